"""PLUS sequences out: frames with the poses that were found, one transform and status per frame."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from scopereg.errors import ScopeRegError
from scopereg.geometry import Pose
from scopereg.images import Frame
from scopereg.io.metaimage import MetaSequence, read_metaimage, write_metaimage
from scopereg.io.plus import IMAGE, Matrix
from scopereg.io.plus_sequence import FIELD_ENDING, ORIENTATION, PIXEL_SIZE

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
    spacing_mm: Sequence[float],
    origin_mm: Sequence[float] = (0.0, 0.0),
    times_s: Sequence[float] | None = None,
    compressed: bool = True,
) -> Path:
    """The same of pixels (F, H, W) that all have one size, stored as they are."""
    times = list(times_s) if times_s is not None else list(range(len(images)))
    if len(times) != len(images):
        raise ScopeRegError(
            f"{len(times)} times for {len(images)} frames", where="write_plus_sequence(times_s)", fix="pass one each"
        )
    size, name = pixel_to_image(spacing_mm, origin_mm), _field_name(poses)
    fields = [
        {**_pose_fields(pose, name, size), **_frame_fields(time)} for pose, time in zip(poses, times, strict=True)
    ]
    return write_metaimage(MetaSequence(_header(spacing_mm), fields, images), path, compressed=compressed)


def add_poses(
    source: Path | str,
    poses: Sequence[Pose | None],
    path: Path | str,
    *,
    spacing_mm: Sequence[float],
    origin_mm: Sequence[float] = (0.0, 0.0),
) -> Path:
    """Write the PLUS sequence `source` again, all its fields and pixels kept, with poses that were found added.

    `spacing_mm` and `origin_mm` are those of the frames that were registered (as `read_cine` gives them).
    """
    stored = read_metaimage(source)
    if len(poses) != len(stored.frames):
        raise ScopeRegError(
            f"{len(poses)} poses for {len(stored.frames)} frames",
            where="add_poses(poses)",
            fix="pass one each, or None",
        )
    size, name = pixel_to_image(spacing_mm, origin_mm), _field_name(poses)
    frames = [fields | _pose_fields(pose, name, size) for fields, pose in zip(stored.frames, poses, strict=True)]
    return write_metaimage(MetaSequence(_header(spacing_mm) | stored.fields, frames, stored.images), path)


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


def _header(spacing_mm: Sequence[float]) -> dict[str, str]:
    return {**_FIELDS, PIXEL_SIZE: " ".join(repr(float(step)) for step in spacing_mm)}


def _words(matrix: npt.NDArray[np.float64]) -> str:
    return " ".join(repr(float(number) + 0.0) for number in matrix.ravel())
