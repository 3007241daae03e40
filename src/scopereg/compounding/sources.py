"""Sources: tracked sweeps from files: PLUS sequences, archives of arrays, and frames of any kind beside their poses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from scopereg.errors import ScopeRegError
from scopereg.evaluation.score.pairing import pair_frames
from scopereg.evaluation.score.posed import (
    FIRST,
    TABLES,
    Counting,
    Origin,
    Place,
    PosedFrame,
    PosedFrames,
    Target,
)
from scopereg.evaluation.score.reading import read_posed
from scopereg.geometry import Pose
from scopereg.image_fields import as_pair
from scopereg.io.cine import Cine
from scopereg.io.frames import read_cine
from scopereg.io.limits import check_size
from scopereg.io.metaimage import is_sequence
from scopereg.io.stored import StoredFrame
from scopereg.io.sweeps import TrackedSweep, read_npz_sweep, read_plus_sequence, seen_pixels
from scopereg.progress import counted
from scopereg.registration.reading import find_files, in_order, reason_of

_PASS = "pass a tracked sequence (PLUS with its calibration=, or .npz), or frames and a table of their poses: poses="
_BYTE = 1e-3  # grey levels that a byte may be off its whole number


@dataclass(frozen=True)
class SweepReading:
    """What the files of sweeps leave open."""

    calibration: Path | None = None
    """PLUS's configuration, for its sequences."""
    reference: str | None = None
    """Frame of reference of PLUS that frames are placed in; by default Reference, else Tracker, else Volume."""
    poses: Path | None = None
    """Where frames lie that do not say so themselves: anything that `read_posed` reads."""
    origin: Origin | None = None
    """From where the millimetres of these poses count, where their file does not say so."""
    spacing_mm: tuple[float, ...] | None = None
    """Size of a pixel, for pictures."""
    region: int | None = None
    """Ultrasound region, for DICOM."""
    frame_mask: Path | None = None
    """What counts of the images, see `io.frame_masks`."""
    left_out: tuple[Path, ...] = ()
    """Files in folders that are no frames."""


NOTHING_OPEN = SweepReading()


def read_sweeps(paths: Sequence[Path | str], reading: SweepReading = NOTHING_OPEN) -> list[TrackedSweep]:
    """A sweep of each file or folder; names that stand twice get a number."""
    sweeps: list[TrackedSweep] = []
    for path in map(Path, paths):
        sweep = _read(path, reading)
        same = sum(other.name.split(" (")[0] == sweep.name for other in sweeps)
        sweeps.append(replace(sweep, name=f"{sweep.name} ({same + 1})") if same else sweep)
    return sweeps


def files_of_sweeps(paths: Sequence[Path | str], reading: SweepReading) -> list[Path]:
    """All files that are read."""
    others = (reading.poses, reading.calibration, reading.frame_mask)
    told = [*map(Path, paths), *(path for path in others if path is not None)]
    skipped = {path.resolve() for path in reading.left_out}
    found = [file for path in told for file in (sorted(path.rglob("*")) if path.is_dir() else [path])]
    return [file for file in found if file.is_file() and file.resolve() not in skipped]


def _read(path: Path, reading: SweepReading) -> TrackedSweep:
    if not path.exists():
        raise ScopeRegError("there is no such file or folder", where=str(path), fix="check the name")
    table = reading.poses or _table_in(path)
    if table is not None:
        return _with_poses(path, table, reading)
    if path.is_dir():
        files = find_files(path, reading.left_out)[0]
        if len(files) != 1:
            raise ScopeRegError(f"it holds {len(files)} files with frames and no poses", where=str(path), fix=_PASS)
        path = files[0]
    if path.suffix.lower() == ".npz":
        return _masked(read_npz_sweep(path), path, reading)
    if is_sequence(path):
        return _masked(read_plus_sequence(path, reading.calibration, world=reading.reference), path, reading)
    raise ScopeRegError("it does not say where its frames lie", where=str(path), fix=_PASS)


def _masked(sweep: TrackedSweep, path: Path, reading: SweepReading) -> TrackedSweep:
    """With what somebody says that counts; of masks that differ from frame to frame what all of them leave."""
    if reading.frame_mask is None:
        return sweep
    cine = read_cine(path, calibration=reading.calibration, spacing_mm=None, frame_mask=reading.frame_mask)
    return _in_all(sweep, [cine[sweep.number(row)] for row in range(len(sweep))])


def _in_all(sweep: TrackedSweep, images: Sequence[StoredFrame]) -> TrackedSweep:
    """The sweep without what the mask of any image leaves out."""
    masks = [image.mask for image in images if image.mask is not None]
    notes = list(dict.fromkeys(str(note) for image in images for note in image.facts.get("notes", ())))
    if not masks:
        return replace(sweep, facts={**sweep.facts, "notes": notes})
    mask = sweep.seen.clone()
    for each in masks:
        mask &= each
    if not bool(mask.any()):
        raise ScopeRegError(
            "no pixel counts in all of its frames", where=sweep.name, fix="pass one mask for all frames: frame_mask="
        )
    if any(not torch.equal(each, masks[0]) for each in masks[1:]):
        notes.append("masks differ from frame to frame: what counts in all of them is compounded")
    return replace(sweep, mask=mask, facts={**sweep.facts, "notes": notes})


def _table_in(path: Path) -> Path | None:
    """The table of poses in a folder of frames."""
    tables = [path / name for name in TABLES if (path / name).is_file()] if path.is_dir() else []
    if len(tables) > 1:
        names = " and ".join(table.name for table in tables)
        raise ScopeRegError(f"it holds {names}", where=str(path), fix="say which of the two: poses=")
    return tables[0] if tables else None


def _with_poses(path: Path, table: Path, reading: SweepReading) -> TrackedSweep:
    """Frames of a file or a folder where a table puts them; those without a pose to rely on are counted."""
    posed = read_posed(table, Counting(origin=reading.origin), calibration=reading.calibration)
    files = in_order(find_files(path, _no_frames(table, reading))[0]) if path.is_dir() else [path]
    if not files:
        raise ScopeRegError("it holds no file with frames", where=str(path), fix="pass the folder with the frames")
    cines, dropped = dict[str, Cine](), Counter[str]()
    for file in counted(files, "reading frames"):
        try:
            name = file.relative_to(path).as_posix() if file != path else file.name
            cines[name] = read_cine(
                file,
                spacing_mm=reading.spacing_mm,
                region=reading.region,
                calibration=reading.calibration,
                frame_mask=reading.frame_mask,
            )
        except ScopeRegError as error:
            if len(files) == 1:
                raise
            dropped[reason_of(error)] += 1
    known = [PosedFrame(name, index, None, FIRST) for name, cine in cines.items() for index in range(len(cine))]
    if not known:
        raise ScopeRegError(
            f"none of its {len(files)} files can be read: {next(iter(dropped))}", where=str(path), fix=_PASS
        )
    pairs = pair_frames(PosedFrames(path, tuple(known), None), posed)
    dropped["no pose"] += len(pairs.poses_alone)
    place = {id(frame): number for number, frame in enumerate(known)}
    placed: list[tuple[StoredFrame, Pose]] = []
    numbers: list[int] = []
    for frame, told in pairs.both:
        if told.verdict.ok is False:
            dropped["a pose that may not be relied on"] += 1
            continue
        try:
            image = cines[frame.file][frame.index]
        except ScopeRegError as error:
            dropped[reason_of(error)] += 1
            continue
        assert told.pose is not None
        placed.append((image, _from_first_pixel(told.pose, image, told.origin)))
        numbers.append(place[id(frame)])
    facts = {"source": path.name, "poses": table.name, "frames_in_file": len(known), "dropped": dict(+dropped)}
    sweep = _assembled(path, placed, {**facts, "world": posed.world or "Unknown"})
    return replace(sweep, numbers=tuple(numbers))


def _no_frames(table: Path, reading: SweepReading) -> list[Path]:
    """Files that may lie among the frames."""
    return [table, *([reading.frame_mask] if reading.frame_mask else []), *reading.left_out]


def _from_first_pixel(pose: Pose, image: StoredFrame, origin: Place | Origin) -> Pose:
    """The pose of mm that count from the first pixel of the image as it is stored."""
    (width, height), (x_mm, y_mm), (left, top) = image.size, image.spacing_mm, image.origin_mm
    first_mm = Target((width, height), (x_mm, y_mm), (left, top)).origin_mm(origin)
    return Pose(pose.rotation, pose.apply(first_mm), pose.source, pose.target)


def _assembled(path: Path, placed: Sequence[tuple[StoredFrame, Pose]], facts: dict[str, Any]) -> TrackedSweep:
    """Frames of one size as a sweep, bytes where they were bytes."""
    if not placed:
        reasons = ", ".join(f"{count} {reason}" for reason, count in facts["dropped"].items())
        raise ScopeRegError(f"none of its frames can be used: {reasons}", where=str(path), fix=_PASS)
    kinds = {(image.shape, tuple(round(step, 6) for step in image.spacing_mm)) for image, _ in placed}
    if len(kinds) > 1:
        shown = " and ".join(f"{h} x {w} pixels of {x:g} x {y:g} mm" for (h, w), (x, y) in sorted(kinds)[:2])
        raise ScopeRegError(
            f"its frames differ: {shown}", where=str(path), fix="compound frames of one size and depth at a time"
        )
    first = placed[0][0]
    check_size((len(placed), *first.shape), 4, str(path), in_use=False)
    images = _bytes_or_unit(torch.stack([image.array for image, _ in placed]), path)
    mask = seen_pixels(images)
    matrices = np.stack([pose.matrix for _, pose in placed])
    name = path.name.split(".")[0] or path.name
    known = mask if bool(mask.any()) else None
    sweep = TrackedSweep(name, images, as_pair(first.spacing_mm, name), matrices, known, facts)
    return _in_all(sweep, [image for image, _ in placed])


def _bytes_or_unit(images: Tensor, path: Path) -> Tensor:
    """Images as bytes where that is what they are, else from 0 to 1."""
    low, high = float(images.min()), float(images.max())
    if not (low >= 0 and high > 0):
        raise ScopeRegError(
            f"grey values run from {low:g} to {high:g}", where=str(path), fix="pass images of brightness, from 0 on"
        )
    if high > 1:
        return images / high
    grey = images * 255
    whole = grey.round()
    return whole.to(torch.uint8) if float((grey - whole).abs().max()) < _BYTE else images
