"""ProbeSweep: images of one sweep and where a tracker saw the probe that took them; where the image lies on it is open.

PLUS sequences that hold the probe's transforms, and archives of arrays (.npz).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from scopereg.errors import ScopeRegError
from scopereg.geometry import Pose
from scopereg.image_fields import as_pair
from scopereg.images import Frame
from scopereg.io.plus import IMAGE, Matrix, chain, path_between, take_out_pixel_size
from scopereg.io.plus_sequence import PIXEL_SIZE, PlusSequence
from scopereg.io.sweeps import WORLD, checked_frames, read_npz_arrays, read_npz_sweep

PROBE = "Probe"
_FRAMES, _POSES, _PIXELS = "frames", "probe_to_world", "spacing_xy_mm"


@dataclass(frozen=True, eq=False, repr=False)
class ProbeSweep:
    """Images (F, H, W), uint8 or float from 0 to 1, and `ProbeToWorld` of each that was tracked."""

    path: Path
    images: Tensor
    probe_to_world: npt.NDArray[np.float64]  # (F, 4, 4), rigid
    rows: tuple[int, ...]  # of the images in the file
    spacing_mm: tuple[float, float] | None  # x, y; None where nobody tells
    world: str  # what the tracker's frame of reference is called
    probe: str = PROBE
    before: Matrix | None = None  # ImageToProbe in mm per pixel, where somebody calibrated it already
    facts: dict[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        count, height, width = self.images.shape
        return f"ProbeSweep({self.path.name}, {count} frames {height} x {width}, {self.probe}To{self.world})"

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of the images."""
        return int(self.images.shape[1]), int(self.images.shape[2])

    def frame(self, number: int, spacing_mm: Sequence[float]) -> Frame:
        """One image with pixels of a size, in mm from its first pixel."""
        image = self.images[number]
        return Frame(image.float() / 255 if not image.is_floating_point() else image, spacing_mm, origin_mm=(0, 0))

    def label(self, number: int) -> str:
        return f"{self.path.name} frame {self.rows[number]}"


def read_probe_sweep(
    path: Path | str,
    calibration: Path | str | Matrix | None = None,
    *,
    probe: str = PROBE,
    spacing_mm: float | Sequence[float] | None = None,
) -> ProbeSweep:
    """A sweep of either kind of file, by its ending.

    A PLUS sequence holds transforms that lead from `probe` to the tracker; the size of a pixel is that of the
    `calibration` (PLUS's configuration, or ImageToProbe as a 4x4 matrix), of our own header field, or `spacing_mm`,
    which comes first. An archive holds frames (F, H, W), probe_to_world (F, 4, 4) and spacing_xy_mm (2,); one with
    image_mm_to_world instead has poses of images, which are taken for those of the probe: what is found then corrects
    them.
    """
    given = None if spacing_mm is None else as_pair(spacing_mm, "read_probe_sweep(spacing_mm)")
    if Path(path).suffix == ".npz":
        return _read_npz(Path(path), given)
    return _read_plus(PlusSequence.open(path, calibration), probe, given)


def _read_npz(path: Path, given: tuple[float, float] | None) -> ProbeSweep:
    arrays = read_npz_arrays(path, (_FRAMES, _POSES, _PIXELS), either=_POSES)
    if not arrays:
        sweep = read_npz_sweep(path)
        facts = {"notes": ["its poses are those of images: what is found corrects the calibration that they rest on"]}
        poses, images, spacing = sweep.image_to_world, sweep.images, sweep.spacing_mm
        return ProbeSweep(path, images, poses, tuple(range(len(images))), given or spacing, WORLD, facts=facts)
    images, poses = checked_frames(arrays[_FRAMES], path), arrays[_POSES]
    if poses.shape != (len(images), 4, 4):
        raise ScopeRegError(
            f"poses of shape {poses.shape} for {len(images)} images",
            where=f"{path}, {_POSES}",
            fix="store one 4x4 matrix for each image",
        )
    spacing = given or as_pair(arrays[_PIXELS].ravel().tolist(), f"{path}, {_PIXELS}")
    rigid = _rigid(poses, range(len(images)), f"{path}, {_POSES}")
    return ProbeSweep(path, images, rigid, tuple(range(len(images))), spacing, WORLD)


def _read_plus(sequence: PlusSequence, probe: str, given: tuple[float, float] | None) -> ProbeSweep:
    way = sequence.way_to(None, start=probe)
    path = sequence.path
    if way is None:
        fix = "record the probe's transforms with the images; if the probe has another name there, give it: probe="
        raise sequence.no_way(None, fix, start=probe)
    if any(IMAGE in link for link in way):
        raise ScopeRegError(
            f"its transforms lead from {probe} to {way[-1][1]} through {IMAGE}, which is what is sought",
            where=str(path),
            fix="record the probe's own transforms, or name another probe: probe=",
        )
    faults = sequence.image_faults() | sequence.pose_faults(way)
    good = [row for row in range(len(sequence)) if row not in faults]
    dropped = dict(Counter(faults[row] for row in sorted(faults)))
    if not good:
        raise ScopeRegError(
            f"none of its {len(sequence)} frames is tracked: {dropped}",
            where=str(path),
            fix="record again with the probe and the reference in the tracker's view",
        )
    images = sequence.images(good)
    before = _before(sequence, probe, good[0])
    spacing, source = _pixels_of(sequence, given, before, (int(images.shape[1]), int(images.shape[2])))
    facts = {"way": ["To".join(link) for link in way], "frames_in_file": len(sequence), "dropped": dropped}
    facts |= {"spacing_from": source}
    poses = _rigid(sequence.pixel_to_world(way, good), good, str(path))
    return ProbeSweep(path, images, poses, tuple(good), spacing, way[-1][1], probe, before, facts)


def _before(sequence: PlusSequence, probe: str, row: int) -> Matrix | None:
    """ImageToProbe as the calibration or the file says, in mm per pixel."""
    transforms = sequence.transforms_of(row)
    way = path_between(transforms, IMAGE, probe)
    return chain(way, transforms) if way and len(way) == 1 else None


def _pixels_of(
    sequence: PlusSequence, given: tuple[float, float] | None, before: Matrix | None, shape: tuple[int, int]
) -> tuple[tuple[float, float] | None, str]:
    """The size of a pixel and where it comes from."""
    if given is not None:
        return given, "given"
    if before is not None:
        told = take_out_pixel_size(before[None], shape, str(sequence.path), stated=sequence.states_one_mm)
        return told.spacing_mm, "calibration"
    words = sequence.stored.fields.get(PIXEL_SIZE, "").split()
    try:
        return as_pair([float(word) for word in words], PIXEL_SIZE), "header"
    except (ValueError, ScopeRegError):
        return None, "nobody"


def _rigid(poses: Matrix, rows: Sequence[int], where: str) -> Matrix:
    """The poses with exact rotations; an error that names the first frame whose pose is none."""
    made = []
    for row, matrix in zip(rows, poses, strict=True):
        try:
            made.append(Pose.from_matrix(matrix, PROBE, WORLD).matrix)
        except ScopeRegError as error:
            raise ScopeRegError(f"frame {row}: {error.what}", where=where, fix=error.fix) from None
    return np.stack(made)
