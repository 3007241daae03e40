"""Poses of frames from any file: transforms, tables, tracked sequences, and folders of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from scopereg.errors import ScopeRegError
from scopereg.evaluation.score.posed import (
    FIRST,
    TABLES,
    UNJUDGED,
    Counting,
    PosedFrame,
    PosedFrames,
    Verdict,
    numbered,
    stated_origin,
)
from scopereg.geometry import Pose, ras_from_lps
from scopereg.images import Frame
from scopereg.io.cine import Cine
from scopereg.io.frame_grid import FrameGrid, read_frame_grid
from scopereg.io.frames import read_cine
from scopereg.io.metaimage import is_sequence
from scopereg.io.plus import IMAGE, take_out_pixel_size
from scopereg.io.plus_sequence import WORLDS, read_plus_cine
from scopereg.io.records import SMALL, Record, read_json
from scopereg.io.transforms import ENDINGS, JSON_FORMAT, Convention, read_matrix, read_pose
from scopereg.progress import counted
from scopereg.registration.batch import read_table_results
from scopereg.registration.inputs import Inputs, read_inputs
from scopereg.registration.reading import reason_of
from scopereg.registration.result import Result
from scopereg.registration.track import is_track, read_track

UNKNOWN = "Unknown"  # the world of a file that names none
VOLUME = "Volume"  # where the poses of scopereg lead to
CASES = ("patient.json", "world.json")  # of `data phantom` and `data worlds`, with the true poses of their frames
_PASS = "pass poses (.tfm, .h5, .json, .txt), poses.csv, track.csv, a tracked sequence (.igs.mha, .npz) or a folder"
USUAL = Counting()
_CONVENTIONS: dict[str, Convention] = {"ImageToVolume": "itk-resample", "VolumeToImage": "slicer"}
_ASK = "tell it: origin=first-pixel, as files of frames count, or origin=centre, as a Frame made of an array does"


def read_posed(path: Path | str, counting: Counting = USUAL, *, calibration: Path | str | None = None) -> PosedFrames:
    """The poses of a file or a folder; `counting` is what the file leaves open, `calibration` of a PLUS sequence.

    An error where it is left open from where the millimetres of the frame are counted and nobody tells.
    """
    path = Path(path)
    if path.is_dir():
        return _of_folder(path, counting, calibration)
    if not path.is_file():
        raise ScopeRegError("there is no such file or folder", where=str(path), fix=_PASS)
    ending = path.suffix.lower()
    if ending == ".csv":
        return _of_table(path, counting)
    if path.name in CASES:
        return _of_case(path, counting)
    if ending in ENDINGS and (ending != ".dcm" or _is_registration(path)):
        frame, world = _of_transform(path, path.stem, counting)
        return PosedFrames.of(path, [frame], [world])
    return _of_frames(path, counting, calibration)


# tables


def _of_table(path: Path, counting: Counting) -> PosedFrames:
    _refuse(counting, path, "a table holds ImageToVolume in LPS mm")
    rows = _track_rows(path) if is_track(path) else read_table_results(path)
    grids, notes = _grids_beside(path.parent, list(dict.fromkeys(file for file, *_ in rows)))
    frames = [
        _in_grid(
            PosedFrame(
                file,
                index,
                None if result is None else result.pose,
                counting.origin or FIRST,
                verdict=UNJUDGED if result is None else Verdict.of(result),
                reason=reason,
            ),
            grids.get(file),
            counting,
            str(path),
        )
        for file, index, result, reason in rows
    ]
    return PosedFrames.of(path, frames, [VOLUME], notes)


def _track_rows(path: Path) -> list[tuple[str, int, Result | None, str]]:
    """Of a track those poses alone that a picture stands behind: the others are INVALID in its sequence too."""
    return [
        (step.file, step.index, step.result if step.is_placed else None, "" if step.is_placed else step.state)
        for step in read_track(path)
    ]


def _grids_beside(folder: Path, names: Sequence[str]) -> tuple[dict[str, FrameGrid], list[str]]:
    """The pixels of a table's frames, from the files that inputs.json beside it tells, as far as they are there."""
    inputs = read_inputs(folder)
    grids: dict[str, FrameGrid] = {}
    lost = []
    known = [name for name in names if name in inputs.frames]
    for name in counted(known, "reading frames") if known else ():
        try:
            if (path := inputs.frames[name].found()) is not None:
                grids[name] = _grid_of_cine(_cine_told(path, inputs))
            else:
                lost.append(name)
        except Exception as error:  # a damaged file may fail anywhere in a reader
            lost.append(f"{name} ({reason_of(error)})")
    notes = [f"{len(lost)} files of frames are not found as they were, first {lost[0]}"] if lost else []
    return grids, notes


def _cine_told(path: Path, inputs: Inputs) -> Cine:
    return read_cine(path, spacing_mm=inputs.spacing_mm, region=inputs.region, calibration=inputs.calibration)


def _grid_of_cine(cine: Cine) -> FrameGrid:
    """That of the first frame that can be read: those of a file are alike."""
    frame: Frame = cine[next((row for row in range(len(cine)) if row not in cine.faults), 0)]
    return FrameGrid.of(frame)


def _in_grid(frame: PosedFrame, grid: FrameGrid | None, counting: Counting, where: str) -> PosedFrame:
    if grid is None:
        return frame
    origin = stated_origin(grid, counting, where)
    return replace(frame, size=grid.size, spacing_mm=grid.spacing_mm, origin=origin)


# tracked sequences, and images whose header places them


def _of_frames(path: Path, counting: Counting, calibration: Path | str | None) -> PosedFrames:
    _refuse(counting, path, "it places its frames itself, in mm")
    # What was registered is told before where a tracker had it.
    plus = is_sequence(path)
    cine = read_plus_cine(path, calibration=calibration, world=(VOLUME, *WORLDS)) if plus else read_cine(path)
    if cine.poses is None:
        raise ScopeRegError("it places none of its frames", where=str(path), fix=_PASS)
    grid = _grid_of_cine(cine)
    faults = {**cine.pose_faults, **cine.faults}
    frames = [
        _in_grid(
            PosedFrame(path.name, row, None if row in faults else pose, FIRST, reason=faults.get(row, "")),
            grid,
            counting,
            str(path),
        )
        for row, pose in enumerate(cine.poses)
    ]
    return PosedFrames.of(path, frames, [pose.target for pose in cine.poses if pose is not None])


# transforms


def _of_transform(path: Path, name: str, counting: Counting) -> tuple[PosedFrame, str | None]:
    """The one pose of a file, and the world that it names."""
    if counting.unit == "pixel":
        return _of_pixels(path, name, counting), None
    pose = _pose_of(path, counting)
    grid = read_frame_grid(path)
    world = None if pose.target == UNKNOWN else pose.target
    if grid is None and counting.origin is None:
        raise ScopeRegError(
            "it does not say from where it counts the millimetres of the frame", where=str(path), fix=_ASK
        )
    frame = PosedFrame(name, 0, pose, counting.origin or FIRST, also=numbered(name))
    frame = _in_grid(frame, grid, counting, str(path))
    return (_with_record(frame, path) if path.suffix.lower() == ".json" else frame), world


def _pose_of(path: Path, counting: Counting) -> Pose:
    """The pose of a transform file, from Image, in LPS; turned round where the file says or is told to hold that."""
    ending = path.suffix.lower()
    if ending in (".json", ".dcm"):
        _refuse(counting, path, "it tells direction and axes itself")
    default = "ImageToVolume" if ending == ".txt" else "VolumeToImage"
    direction = counting.direction or default
    convention = _CONVENTIONS[direction]
    try:
        pose = read_pose(path, convention=convention, target=UNKNOWN)
    except ScopeRegError as error:
        scaled = ending == ".txt" and error.what.startswith("not a rotation")
        error.fix += "; or tell that it takes pixels, as those of PLUS do: unit=pixel" if scaled else ""
        raise
    if pose.target == IMAGE or (ending == ".txt" and direction == "VolumeToImage"):
        turned = pose.inverse()
        pose = Pose(turned.rotation, turned.translation_mm, IMAGE, UNKNOWN if pose.target == UNKNOWN else pose.source)
    return in_lps(pose, counting)


def in_lps(pose: Pose, counting: Counting) -> Pose:
    """A pose whose numbers count in RAS, at one end or both, in LPS."""
    if counting.space == "LPS":
        return pose
    both = ras_from_lps(pose.matrix)
    if counting.space == "RAS-volume":
        both[:3, :2] *= -1  # the frame's end as it was
    return Pose.from_matrix(both, pose.source, pose.target)


def _of_pixels(path: Path, name: str, counting: Counting) -> PosedFrame:
    """A transform of pixels, as PLUS has them: pixel size and pose taken apart."""
    if path.suffix.lower() != ".txt" or counting.origin == "centre" or counting.direction == "VolumeToImage":
        raise ScopeRegError(
            "a transform of pixels is a 4x4 matrix in a .txt, from the first pixel to the volume",
            where=str(path),
            fix="leave unit=pixel out, or write such a matrix",
        )
    rigid = take_out_pixel_size(read_matrix(path)[None], (2, 2), str(path))
    pose = Pose.from_matrix(rigid.image_to_world[0], IMAGE, UNKNOWN)
    return PosedFrame(name, 0, in_lps(pose, counting), (0.0, 0.0), spacing_mm=rigid.spacing_mm, also=numbered(name))


def _with_record(frame: PosedFrame, path: Path) -> PosedFrame:
    """With what a pose in JSON tells of its frame, and of how it was found."""
    record = Record.of(read_json(path, _PASS, limits=SMALL), str(path), _PASS)
    if record.has("frame") and record.record("frame").has("file"):
        image = record.record("frame")
        index = image.whole("index") if image.has("index") else 0
        frame = replace(frame, file=image.text("file", most=1000), index=index, also=(frame.file, 0))
    if not record.has("result"):
        return frame
    told = record.record("result")
    numbers = {key: told.number(key) for key in ("confidence", "expected_mm", "bound_mm") if told.has(key)}
    ok = told.truth("ok") if told.has("ok") else None
    return replace(frame, verdict=Verdict(ok, **numbers, method=told.text("method") if told.has("method") else ""))


def _is_registration(path: Path) -> bool:
    """Whether a DICOM file holds a pose; else it is an image, which may be placed."""
    from scopereg.io.dicom.header import read_dataset  # pydicom is slow to import

    return "RegistrationSequence" in read_dataset(path, pixels=False)


# phantoms and worlds


def _of_case(path: Path, counting: Counting) -> PosedFrames:
    """The true poses that `scopereg data phantom` and `data worlds` write beside their frames."""
    _refuse(counting, path, "it tells origin, direction and axes itself")
    record = Record.of(read_json(path, _PASS, limits=SMALL), str(path), _PASS)
    spacing, frames = record.number("spacing_mm", 1e-6, 1e6), []
    for told in record.list("frames", most=10_000):
        one = Record.of(told, f"{path}, frames", _PASS)
        rows = one.list("image_to_volume", most=4)
        matrix = [Record.of({"row": row}, f"{path}, image_to_volume", _PASS).numbers("row", 4) for row in rows]
        x, y = one.numbers("origin_mm", 2)
        pose = Pose.from_matrix(matrix, IMAGE, VOLUME)
        frames.append(PosedFrame(one.text("file", most=1000), 0, pose, (x, y), spacing_mm=(spacing, spacing)))
    return PosedFrames.of(path, frames, [VOLUME])


# folders


def _of_folder(folder: Path, counting: Counting, calibration: Path | str | None) -> PosedFrames:
    """Its table, else its transforms, else its sequences."""
    tables = [folder / name for name in TABLES if (folder / name).is_file()]
    if len(tables) > 1:
        names = " and ".join(path.name for path in tables)
        raise ScopeRegError(f"it holds {names}", where=str(folder), fix="pass one of the two")
    if tables:
        return _of_table(tables[0], counting)
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and not path.name.startswith(".")]
    if case := next((folder / name for name in CASES if (folder / name).is_file()), None):
        return _of_case(case, counting)
    if transforms := [path for path in files if _is_transform(path)]:
        found = [_below(path, folder, counting) for path in transforms]
        return PosedFrames.of(folder, [frame for frame, _ in found], [world for _, world in found])
    if sequences := [path for path in files if path.suffix.lower() == ".npz" or is_sequence(path)]:
        every = [_of_frames(path, counting, calibration) for path in sequences]
        frames = [frame for each in every for frame in each.frames]
        return PosedFrames.of(folder, frames, [each.world for each in every])
    raise ScopeRegError(f"it holds no poses in {len(files)} files", where=str(folder), fix=_PASS)


def _below(path: Path, folder: Path, counting: Counting) -> tuple[PosedFrame, str | None]:
    return _of_transform(path, path.relative_to(folder).with_suffix("").as_posix(), counting)


def _is_transform(path: Path) -> bool:
    """Whether a file of a folder is a pose by its ending, or by what it says of itself."""
    ending = path.suffix.lower()
    if ending != ".json":
        return ending in ENDINGS and (ending != ".dcm" or _is_registration(path))
    content = read_json(path, _PASS, finite=False)
    return isinstance(content, dict) and (content.get("format") == JSON_FORMAT or "matrix_lps" in content)


def _refuse(counting: Counting, path: Path, why: str) -> None:
    """An error where something is told that the file says itself."""
    for name in ("direction", "space", "unit"):
        if getattr(counting, name) != getattr(USUAL, name):
            raise ScopeRegError(
                f"{why}: {name}={getattr(counting, name)} is for transforms of others",
                where=str(path),
                fix=f"leave {name}= out",
            )
