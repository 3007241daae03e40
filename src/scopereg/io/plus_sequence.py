"""PLUS sequences in and out: images turned upright, transforms chained, faults named, poses written for every frame."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from scopereg.errors import ScopeRegError
from scopereg.geometry import Pose
from scopereg.image_fields import as_pair
from scopereg.images import Frame
from scopereg.io.cine import Cine, Stored
from scopereg.io.grey import brightness
from scopereg.io.metaimage import MetaSequence, read_metaimage, write_metaimage
from scopereg.io.plus import (
    IMAGE,
    SAME_PIXEL,
    Calibration,
    Link,
    Matrix,
    RigidImages,
    chain,
    link_of,
    matrix_of,
    path_between,
    read_calibration,
    take_out_pixel_size,
)
from scopereg.io.stored import depths_note

WORLDS = ("Reference", "Tracker", "Volume")  # frames of reference that frames are placed in, the best first
FIELD_ENDING = "Transform"
ORIENTATION = "UltrasoundImageOrientation"
PIXEL_SIZE = "PixelSizeMm"  # our own field
_ORIENTATIONS = ("MF", "MN", "UF", "UN", "FM", "FU", "NM", "NU")


@dataclass(frozen=True, eq=False)
class PlusSequence:
    """A sequence as stored, and what its calibration says."""

    path: Path
    stored: MetaSequence
    calibration: Calibration

    @classmethod
    def open(cls, path: Path | str, calibration: Path | str | Matrix | None = None) -> PlusSequence:
        """Read a file. `calibration` is PLUS's configuration file, or ImageToProbe as a 4x4 matrix in mm per pixel."""
        return cls(Path(path), read_metaimage(path), _calibration(calibration))

    def __len__(self) -> int:
        return len(self.stored.frames)

    @property
    def states_one_mm(self) -> bool:
        """Whether the file says by itself that a pixel measures 1 mm, so that no pixel size was left out."""
        return self.stored.fields.get(PIXEL_SIZE, "").split() in (["1.0", "1.0"], ["1", "1"])

    def way_to(self, world: str | Sequence[str] | None, start: str = IMAGE) -> list[Link] | None:
        """The links from the image, or another start, to the first of some worlds that is reached by transforms."""
        links = self._links()
        for goal in _worlds(world):
            way = path_between(links, start, goal)
            if way:
                return way
        return None

    def no_way(self, world: str | Sequence[str] | None, fix: str, start: str = IMAGE) -> ScopeRegError:
        """The error for a sequence whose transforms do not lead from there to the world."""
        held = ", ".join("To".join(link) for link in self._links()) or "none"
        goal = " or ".join(_worlds(world))
        return ScopeRegError(
            f"no transforms lead from {start} to {goal}; there are {held}", where=str(self.path), fix=fix
        )

    def image_faults(self) -> dict[int, str]:
        """Frames whose image is not OK."""
        states = ((row, fields.get("ImageStatus", "OK")) for row, fields in enumerate(self.stored.frames))
        return {row: f"Image {state}" for row, state in states if state.upper() != "OK"}

    def pose_faults(self, way: Sequence[Link]) -> dict[int, str]:
        """Frames of which a transform on the way is missing or not OK, and the first that is."""
        links = {link for link in way if not self._given(link)}
        both_ways = {*links, *(link[::-1] for link in links)}
        needed = sorted({name for fields in self.stored.frames for name in fields if _link_of_field(name) in both_ways})
        faults = {}
        for row, fields in enumerate(self.stored.frames):
            states = {name: fields.get(f"{name}Status", "OK") if name in fields else "missing" for name in needed}
            wrong = [f"{name} {state}" for name, state in states.items() if state.upper() != "OK"]
            if wrong:
                faults[row] = wrong[0]
        return faults

    def pixel_to_world(self, way: Sequence[Link], rows: Sequence[int]) -> Matrix:
        """Matrices (len(rows), 4, 4) from pixels to the world."""
        return np.stack([chain(way, self.transforms_of(row)) for row in rows])

    def images(self, rows: Sequence[int]) -> Tensor:
        """Images of some frames as uint8, or as float from 0 to 1, turned to PLUS's MF."""
        return _oriented(_grey(self.stored.images, rows, self.path), self.stored.fields, self.path)

    def turned(self, drawn: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
        """What was drawn on a stored image, turned as the images are."""
        turned: npt.NDArray[np.bool_] = _oriented(torch.tensor(drawn)[None], self.stored.fields, self.path)[0].numpy()
        return turned

    def times_s(self) -> tuple[float, ...] | None:
        """Timestamps, if every frame has one."""
        try:
            times = tuple(float(fields["Timestamp"]) for fields in self.stored.frames)
        except (KeyError, ValueError):
            return None
        return times if all(map(math.isfinite, times)) else None

    def _links(self) -> dict[Link, None]:
        links = dict.fromkeys(self.calibration.transforms)
        for fields in (*self.stored.frames, self.stored.fields):
            links |= dict.fromkeys(link for name in fields if (link := _link_of_field(name)))
        return links

    def _given(self, link: Link) -> bool:
        return link in self.calibration.transforms or link[::-1] in self.calibration.transforms

    def transforms_of(self, row: int) -> dict[Link, Matrix]:
        """Transforms of one frame: of the calibration, which wins, of the frame, of the whole file."""
        found: dict[Link, Matrix] = {}
        places = ((self.stored.fields, str(self.path)), (self.stored.frames[row], f"{self.path}, frame {row}"))
        for fields, where in places:
            for name, text in fields.items():
                if link := _link_of_field(name):
                    found[link] = matrix_of(text, where)
        return found | self.calibration.transforms


def _worlds(world: str | Sequence[str] | None) -> Sequence[str]:
    return (world,) if isinstance(world, str) else world or WORLDS


def _calibration(source: Path | str | Matrix | None) -> Calibration:
    if source is None:
        return Calibration({}, None)
    if isinstance(source, str | Path):
        return read_calibration(source)
    numbers = " ".join(str(float(number)) for number in np.asarray(source).ravel())
    return Calibration({(IMAGE, "Probe"): matrix_of(numbers, "read_plus_sequence(calibration)")}, None)


def _link_of_field(name: str) -> Link | None:
    return link_of(name.removesuffix(FIELD_ENDING)) if name.endswith(FIELD_ENDING) else None


def _grey(images: npt.NDArray[Any], rows: Sequence[int], path: Path) -> Tensor:
    """Some of the images as uint8, or as float from 0 to 1; colours by their brightness."""
    images = images[list(rows)]
    if images.ndim == 4:
        grey = brightness(images, str(path))
        images = grey.round().astype(images.dtype) if images.dtype.kind in "iu" else grey
    if images.dtype == np.uint8:
        return torch.from_numpy(np.ascontiguousarray(images))
    values = np.ascontiguousarray(images, np.float32)
    low, high = float(values.min()), float(values.max())
    if not (np.isfinite([low, high]).all() and low >= 0 and high > 0):
        raise ScopeRegError(
            f"grey values run from {low:g} to {high:g}", where=str(path), fix="record brightness, not RF signals"
        )
    return torch.from_numpy(values / np.float32(high))


def _oriented(images: Tensor, fields: dict[str, str], path: Path) -> Tensor:
    """Images turned to MF: the first letter tells where columns lead, the second rows; a third is for volumes."""
    letters = fields.get(ORIENTATION, "MF").upper()
    if letters[:2] not in _ORIENTATIONS or len(letters) > 3:
        raise ScopeRegError(
            f"the orientation of its images is {letters!r}",
            where=str(path),
            fix=f"set {ORIENTATION} to one of {', '.join(_ORIENTATIONS)}",
        )
    if letters[0] in "FN":
        images, letters = images.transpose(1, 2), letters[1] + letters[0]
    flips = [axis for axis, letter in ((2, "U"), (1, "N")) if letter in letters[:2]]
    return images.flip(flips).contiguous()


_SAME_SIZE = 0.01
_ENDING = ".igs.mha"
_MOST_DEPTHS, _LEAST_OF_A_DEPTH = 16, 2  # sizes of pixels in one recording, and frames of each
_NO_SIZE = "it is not tracked where the depth changes: the size of its pixels is not known"


def read_plus_cine(
    path: Path | str,
    *,
    calibration: Path | str | Matrix | None = None,
    world: str | Sequence[str] | None = None,
    spacing_mm: float | Sequence[float] | None = None,
) -> Cine:
    """The frames of a PLUS sequence, turned to MF, numbered as in the file.

    The pixel size and the poses come from the transforms of the file and its `calibration`, as in
    `read_plus_sequence`; with `spacing_mm` and without calibration there are no poses. Frames without a valid pose
    have none, frames without a valid image cannot be read.
    """
    sequence = PlusSequence.open(path, calibration)
    images = sequence.images(range(len(sequence)))
    shape = (int(images.shape[1]), int(images.shape[2]))
    way = sequence.way_to(world)
    if way is None and spacing_mm is None:
        raise sequence.no_way(
            world,
            "pass calibration=, the PLUS configuration with the transform from Image to Probe, "
            "or the size of a pixel in mm: spacing_mm=",
        )
    lost = sequence.pose_faults(way) if way else {}
    tracked = [row for row in range(len(sequence)) if row not in lost] if way else []
    tells = way is not None and (bool(tracked) or way[0] in sequence.calibration.transforms)
    parts = _rigid(sequence, way, tracked, shape) if way and (tells or spacing_mm is None) else []
    spacing = _one_spacing([part for _, part in parts], spacing_mm, str(path))
    sizes = _sizes_of_rows(parts, len(sequence)) if len(parts) > 1 else {}
    poses: list[Pose | None] = [None] * len(sequence)
    if way and tracked:
        for rows, part in parts:
            for row, matrix in zip(rows, part.image_to_world, strict=True):
                poses[row] = Pose.from_matrix(matrix, IMAGE, way[-1][1])

    def decode(index: int) -> npt.NDArray[np.float32]:
        image = images[index].numpy()
        grey: npt.NDArray[np.float32] = image / np.float32(255) if image.dtype == np.uint8 else image
        return grey

    return Cine(
        sequence.path,
        len(sequence),
        spacing,
        decode,
        times_s=sequence.times_s(),
        poses=tuple(poses) if tracked else None,
        faults={
            **{row: _NO_SIZE for row in range(len(sequence)) if sizes and row not in sizes},
            **sequence.image_faults(),
        },
        pose_faults=lost,
        spacings_mm=tuple(sizes.get(row, spacing) for row in range(len(sequence))) if sizes else None,
        facts=_facts(way, [part for _, part in parts]),
        stored=Stored((int(sequence.stored.images.shape[1]), int(sequence.stored.images.shape[2])), sequence.turned),
    )


def _rigid(
    sequence: PlusSequence, way: Sequence[Link], tracked: Sequence[int], shape: tuple[int, int]
) -> list[tuple[list[int], RigidImages]]:
    """Rows with pixels of one size, and that size with their poses; where nothing is tracked that of the calibration.

    Mostly these are all rows. Where the depth was changed while PLUS recorded, its transforms hold a few sizes.
    """
    links, rows = (way, tracked) if tracked else (way[:1], [0])
    if not tracked and way[0] not in sequence.calibration.transforms:
        raise ScopeRegError(
            f"none of its {len(sequence)} frames is tracked, so that the size of a pixel is not known",
            where=str(sequence.path),
            fix="give the size of a pixel in mm: spacing_mm=",
        )
    matrices, found = sequence.pixel_to_world(links, rows), []
    for group in _of_one_size(matrices):
        part = take_out_pixel_size(matrices[group], shape, str(sequence.path), stated=sequence.states_one_mm)
        found.append(([rows[place] for place in group], part))
    return found


def _of_one_size(pixel_to_world: Matrix) -> list[list[int]]:
    """Places of matrices (F, 4, 4) with pixels of one size; all together where sizes are not those of a few depths."""
    sizes, groups = np.linalg.norm(pixel_to_world[:, :3, :2], axis=1), list[list[int]]()
    left = np.arange(len(sizes))
    while len(left) and len(groups) < _MOST_DEPTHS:
        alike = np.abs(sizes[left] - sizes[left[0]]).max(1) <= SAME_PIXEL * sizes[left[0]].min()
        groups.append(left[alike].tolist())
        left = left[~alike]
    depths = not len(left) and min(map(len, groups)) >= _LEAST_OF_A_DEPTH
    return groups if depths else [list(range(len(sizes)))]


def _sizes_of_rows(parts: Sequence[tuple[list[int], RigidImages]], count: int) -> dict[int, tuple[float, float]]:
    """The size of the pixels of each row; those that are not tracked have it where the rows around them agree."""
    known = {row: part.spacing_mm for rows, part in parts for row in rows}
    before, after, latest = {}, {}, None
    for row in range(count):
        before[row] = latest = known.get(row, latest)
    latest = None
    for row in reversed(range(count)):
        after[row] = latest = known.get(row, latest)
    around = {row: {before[row], after[row]} - {None} for row in range(count)}
    return {row: size for row, sizes in around.items() if len(sizes) == 1 for size in sizes if size is not None}


def _one_spacing(
    parts: Sequence[RigidImages], given: float | Sequence[float] | None, where: str
) -> tuple[float, float]:
    if not parts:
        return as_pair(given if given is not None else (), "read_frame(spacing_mm)")
    if given is not None:
        pair = as_pair(given, "read_frame(spacing_mm)")
        for x, y in (part.spacing_mm for part in parts):
            if not np.allclose(pair, (x, y), rtol=_SAME_SIZE, atol=0):
                raise ScopeRegError(
                    f"a pixel measures {x:g} x {y:g} mm by its calibration, {pair[0]:g} x {pair[1]:g} mm are given",
                    where=where,
                    fix="leave spacing_mm out, or the calibration",
                )
    return parts[0].spacing_mm


def _facts(way: Sequence[Link] | None, parts: Sequence[RigidImages]) -> dict[str, object]:
    if way is None or not parts:
        return {"spacing_from": "given"}
    skew = max((part.skew for part in parts), key=np.abs)
    facts: dict[str, object] = {
        "spacing_from": "calibration",
        "world": way[-1][1],
        "way": ["To".join(link) for link in way],
        "calibration_skew": round(skew, 4),
        "calibration_moved_mm": round(max(part.moved_mm for part in parts), 3),
    }
    return facts if len(parts) == 1 else {**facts, "notes": [depths_note([part.spacing_mm for part in parts])]}


_FIELDS = {
    "AnatomicalOrientation": "RAI",
    "CenterOfRotation": "0 0 0",
    "Kinds": "domain domain list",
    "ElementSpacing": "1 1 1",  # PLUS keeps the pixel size in the transforms
    "Offset": "0 0 0",
    "TransformMatrix": "1 0 0 0 1 0 0 0 1",
    ORIENTATION: "MF",
}


def write_plus_sequence(
    frames: Iterable[Frame],
    poses: Sequence[Pose | None],
    path: Path | str,
    *,
    times_s: Sequence[float] | None = None,
    compressed: bool = True,
) -> Path:
    """Write frames and their poses (None where none was found: status INVALID) as a PLUS sequence (.igs.mha).

    The transforms are named after the poses (ImageToVolumeTransform) and take pixels to mm, as PLUS has it. Values from
    0 to 1 are stored as bytes, others as float32. Without `times_s` the timestamps are the numbers of the frames.
    """
    frames = list(frames)
    first = _check_alike(frames, poses, path)
    pixels = np.stack([frame.numpy() for frame in frames])
    if pixels.min() >= 0 and pixels.max() <= 1:
        pixels = (pixels * 255).round().astype(np.uint8)
    return write_plus_images(
        pixels,
        poses,
        path,
        spacing_mm=first.spacing_mm,
        origin_mm=first.origin_mm,
        times_s=times_s,
        compressed=compressed,
    )


def write_plus_images(
    images: npt.NDArray[Any],
    poses: Sequence[Pose | None],
    path: Path | str,
    *,
    spacing_mm: Sequence[float] | None,
    origin_mm: Sequence[float] = (0.0, 0.0),
    times_s: Sequence[float] | None = None,
    compressed: bool = True,
    more: Sequence[Mapping[str, str]] | None = None,
    header: Mapping[str, str] | None = None,
) -> Path:
    """The same of pixels (F, H, W) that all have one size, stored as they are; None: nobody knows how large it is.

    `more` are fields of each frame beside its pose and its time, `header` those of the file; in ASCII.
    """
    times = list(times_s) if times_s is not None else list(range(len(images)))
    if len(times) != len(images):
        raise ScopeRegError(
            f"{len(times)} times for {len(images)} frames", where="write_plus_sequence(times_s)", fix="pass one each"
        )
    size, name = pixel_to_image(spacing_mm or (1.0, 1.0), origin_mm), _field_name(poses)
    fields = [
        {**_pose_fields(pose, name, size), **_frame_fields(time), **others}
        for pose, time, others in zip(poses, times, more or [{}] * len(images), strict=True)
    ]
    stored = MetaSequence(_header(spacing_mm) | dict(header or {}), fields, images)
    return write_metaimage(stored, path, compressed=compressed)


def part_path(path: Path, number: int) -> Path:
    """Of the sequences that frames of several sizes go into: a.igs.mha, a-2.igs.mha and so on."""
    if number == 1:
        return path
    ending = _ENDING if path.name.lower().endswith(_ENDING) else path.suffix
    return path.with_name(f"{path.name[: -len(ending)]}-{number}{ending}")


def add_poses(
    source: Path | str,
    poses: Sequence[Pose | None],
    path: Path | str,
    *,
    spacing_mm: Sequence[float],
    origin_mm: Sequence[float] = (0.0, 0.0),
    spacings_mm: Sequence[Sequence[float]] | None = None,
) -> Path:
    """Write the PLUS sequence `source` again, all its fields and pixels kept, with poses that were found added.

    `spacing_mm`, `origin_mm` and, where the depth changes, `spacings_mm` of each frame are those of the frames that
    were registered (as `read_cine` gives them).
    """
    stored = read_metaimage(source)
    if len(poses) != len(stored.frames):
        raise ScopeRegError(
            f"{len(poses)} poses for {len(stored.frames)} frames",
            where="add_poses(poses)",
            fix="pass one each, or None",
        )
    steps, name = spacings_mm or [spacing_mm] * len(poses), _field_name(poses)
    frames = [
        fields | _pose_fields(pose, name, pixel_to_image(step, origin_mm))
        for fields, pose, step in zip(stored.frames, poses, steps, strict=True)
    ]
    header = _header(None if spacings_mm else spacing_mm)
    return write_metaimage(MetaSequence(header | stored.fields, frames, stored.images), path)


def pixel_to_image(spacing_mm: Sequence[float], origin_mm: Sequence[float]) -> Matrix:
    """PixelToImage (4, 4): columns and rows to the frame's mm. A pixel is as thick as it is wide on the average."""
    x, y = spacing_mm
    matrix = np.diag([x, y, (x + y) / 2, 1.0])
    matrix[:2, 3] = origin_mm
    return matrix


def _check_alike(frames: Sequence[Frame], poses: Sequence[Pose | None], path: Path | str) -> Frame:
    if not frames or len(frames) != len(poses):
        raise ScopeRegError(
            f"{len(frames)} frames and {len(poses)} poses", where=str(path), fix="pass a pose, or None, for each frame"
        )
    grids = {(frame.shape, frame.spacing_mm, frame.origin_mm) for frame in frames}
    if len(grids) > 1:
        raise ScopeRegError(
            f"the frames have {len(grids)} different sizes, spacings or origins",
            where=str(path),
            fix="write one sequence for each kind of frame",
        )
    return frames[0]


def _field_name(poses: Sequence[Pose | None]) -> str:
    """The field of all poses, which must go from the image to one and the same world."""
    names = {found.name for found in poses if found is not None} or {f"{IMAGE}ToVolume"}
    if len(names) > 1 or not next(iter(names)).startswith(f"{IMAGE}To"):
        raise ScopeRegError(
            f"the poses are {', '.join(sorted(names))}",
            where="write_plus_sequence(poses)",
            fix="pass ImageToVolume alone",
        )
    return next(iter(names)) + FIELD_ENDING


def _pose_fields(pose: Pose | None, name: str, size: Matrix) -> dict[str, str]:
    matrix = np.eye(4) if pose is None else pose.matrix @ size
    return {name: _words(matrix), f"{name}Status": "INVALID" if pose is None else "OK"}


def _frame_fields(time: float) -> dict[str, str]:
    return {"Timestamp": repr(float(time)), "ImageStatus": "OK"}


def _header(spacing_mm: Sequence[float] | None) -> dict[str, str]:
    """Fields of a file; without the size of a pixel where that is unknown, or not one."""
    return _FIELDS if spacing_mm is None else {**_FIELDS, PIXEL_SIZE: " ".join(repr(float(n)) for n in spacing_mm)}


def _words(matrix: npt.NDArray[np.float64]) -> str:
    return " ".join(repr(float(number) + 0.0) for number in matrix.ravel())
