"""Tracked sweeps from files: PLUS sequences (.igs.mha) and archives of arrays (.npz)."""

from __future__ import annotations

import zipfile
from collections import Counter
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from scopereg.errors import ScopeRegError
from scopereg.io.plus import Matrix, take_out_pixel_size
from scopereg.io.plus_sequence import ORIENTATION, PlusSequence
from scopereg.io.tracked_sweep import TrackedSweep, seen_pixels


def read_npz_sweep(path: Path | str) -> TrackedSweep:
    """A sweep from arrays `frames` (F, H, W) uint8, `image_mm_to_world` (F, 4, 4) and `spacing_xy_mm` (2,)."""
    path = Path(path)
    try:
        with np.load(path) as content:
            frames, poses, spacing = (content[key] for key in ("frames", "image_mm_to_world", "spacing_xy_mm"))
    except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise ScopeRegError(
            f"cannot be read: {error}",
            where=str(path),
            fix="pass a .npz file with frames, image_mm_to_world and spacing_xy_mm",
        ) from None
    if frames.dtype != np.uint8:
        raise ScopeRegError(f"the frames are {frames.dtype}", where=str(path), fix="store them as uint8")
    images = torch.from_numpy(frames)
    return TrackedSweep(path.stem, images, tuple(spacing), poses, _mask(images, None), {"source": path.name})


def read_plus_sequence(
    path: Path | str, calibration: Path | str | Matrix | None = None, *, world: str | None = None
) -> TrackedSweep:
    """A sweep from a PLUS sequence, its frames placed in `world` (by default Reference, else Tracker, else Volume).

    `calibration` is PLUS's configuration file, or ImageToProbe as a 4x4 matrix in mm per pixel; without one, the
    sequence itself must hold the transform. Frames whose image or transforms are not OK are dropped and counted in the
    facts. Images are turned to PLUS's MF (columns towards the marked side, rows away from the probe), for which it
    calibrates.
    """
    sequence = PlusSequence.open(path, calibration)
    path = sequence.path
    way = sequence.way_to(world)
    if way is None:
        fix = "pass calibration=, the PLUS configuration that holds the transform from Image to Probe"
        raise sequence.no_way(world, fix)
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
    rigid = take_out_pixel_size(
        sequence.pixel_to_world(way, good),
        (images.shape[1], images.shape[2]),
        str(path),
        stated=sequence.states_one_mm,
    )
    return TrackedSweep(
        name=path.name.split(".")[0],
        images=images,
        spacing_mm=rigid.spacing_mm,
        image_to_world=rigid.image_to_world,
        mask=_mask(images, sequence.calibration.clip),
        facts={
            "source": path.name,
            "world": way[-1][1],
            "way": ["To".join(link) for link in way],
            "orientation_in_file": sequence.stored.fields.get(ORIENTATION, "not stated, taken as MF"),
            "frames_in_file": len(sequence),
            "dropped": dropped,
            "calibration_skew": round(rigid.skew, 4),
            "calibration_moved_mm": round(rigid.moved_mm, 3),
        },
    )


def _mask(images: Tensor, clip: tuple[int, int, int, int] | None) -> Tensor | None:
    """What the transducer sees, inside of the clip rectangle of the configuration; None if that cannot be told."""
    seen = seen_pixels(images)
    if clip is not None:
        x, y, width, height = clip
        inside = torch.zeros_like(seen)
        inside[y : y + height, x : x + width] = True
        seen &= inside
    return seen if bool(seen.any()) else None
