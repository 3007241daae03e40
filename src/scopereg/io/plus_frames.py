"""Frames of PLUS sequences, with or without a pose: a frame that the tracker lost is still a picture to register."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from scopereg.errors import ScopeRegError
from scopereg.geometry import Pose
from scopereg.io.cine import Cine
from scopereg.io.plus import IMAGE, Link, Matrix, RigidImages, take_out_pixel_size
from scopereg.io.plus_sequence import PlusSequence
from scopereg.io.spacings import as_pair

_SAME_SIZE = 0.01


def read_plus_cine(
    path: Path | str,
    *,
    calibration: Path | str | Matrix | None = None,
    world: str | None = None,
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
    rigid = _rigid(sequence, way, tracked, shape) if way else None
    spacing = _one_spacing(rigid, spacing_mm, str(path))
    poses: list[Pose | None] = [None] * len(sequence)
    if way and rigid and tracked:
        for row, matrix in zip(tracked, rigid.image_to_world, strict=True):
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
        faults=sequence.image_faults(),
        pose_faults=lost,
        facts=_facts(way, rigid),
    )


def _rigid(sequence: PlusSequence, way: Sequence[Link], tracked: Sequence[int], shape: tuple[int, int]) -> RigidImages:
    """Pixel size and poses of the tracked frames; the pixel size of the calibration alone if none is."""
    links, rows = (way, tracked) if tracked else (way[:1], [0])
    if not tracked and way[0] not in sequence.calibration.transforms:
        raise ScopeRegError(
            f"none of its {len(sequence)} frames is tracked, so that the size of a pixel is not known",
            where=str(sequence.path),
            fix="give the size of a pixel in mm: spacing_mm=",
        )
    matrices = sequence.pixel_to_world(links, rows)
    return take_out_pixel_size(matrices, shape, str(sequence.path), stated=sequence.states_one_mm)


def _one_spacing(rigid: RigidImages | None, given: float | Sequence[float] | None, where: str) -> tuple[float, float]:
    if rigid is None:
        return as_pair(given if given is not None else (), "read_frame(spacing_mm)")
    if given is not None:
        pair = as_pair(given, "read_frame(spacing_mm)")
        if not np.allclose(pair, rigid.spacing_mm, rtol=_SAME_SIZE, atol=0):
            x, y = rigid.spacing_mm
            raise ScopeRegError(
                f"a pixel measures {x:g} x {y:g} mm by its calibration, {pair[0]:g} x {pair[1]:g} mm are given",
                where=where,
                fix="leave spacing_mm out, or the calibration",
            )
    return rigid.spacing_mm


def _facts(way: Sequence[Link] | None, rigid: RigidImages | None) -> dict[str, object]:
    if way is None or rigid is None:
        return {"spacing_from": "given"}
    return {
        "spacing_from": "calibration",
        "world": way[-1][1],
        "way": ["To".join(link) for link in way],
        "calibration_skew": round(rigid.skew, 4),
        "calibration_moved_mm": round(rigid.moved_mm, 3),
    }
