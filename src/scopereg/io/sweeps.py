"""Tracked sweeps from files: PLUS sequences (.igs.mha) and archives of arrays (.npz)."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from scopereg.data.sweep import TrackedSweep, seen_pixels
from scopereg.errors import ScopeRegError
from scopereg.io.metaimage import MetaSequence, read_metaimage
from scopereg.io.plus import (
    IMAGE,
    Calibration,
    Link,
    Matrix,
    chain,
    link_of,
    matrix_of,
    path_between,
    read_calibration,
    take_out_pixel_size,
)

WORLDS = ("Reference", "Tracker")  # frames of reference that a sweep is placed in, the best first
_ENDING = "Transform"
_ORIENTATIONS = ("MF", "MN", "UF", "UN", "FM", "FU", "NM", "NU")


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
    return TrackedSweep(path.stem, images, tuple(spacing), poses, seen_pixels(images), {"source": path.name})


def read_plus_sequence(
    path: Path | str, calibration: Path | str | Matrix | None = None, *, world: str | None = None
) -> TrackedSweep:
    """A sweep from a PLUS sequence, its frames placed in `world` (by default Reference, else Tracker).

    `calibration` is PLUS's configuration file, or ImageToProbe as a 4x4 matrix in mm per pixel; without one, the
    sequence itself must hold the transform. Frames whose image or transforms are not OK are dropped and counted in the
    facts. Images are turned to PLUS's MF (columns towards the marked side, rows away from the probe), for which it
    calibrates.
    """
    path = Path(path)
    sequence = read_metaimage(path)
    fixed = _calibration(calibration)
    way = _way_to_world(sequence, fixed, world, path)
    good, dropped = _good_frames(sequence, [link for link in way if not _given(link, fixed)])
    if not good:
        raise ScopeRegError(
            f"none of its {len(sequence.frames)} frames is tracked: {dropped}",
            where=str(path),
            fix="record again with the probe and the reference in the tracker's view",
        )
    pixel_to_world = np.stack([chain(way, _transforms(sequence, row, fixed, path)) for row in good])
    images = _oriented(_grey(sequence.images, good, path), sequence.fields, path)
    rigid = take_out_pixel_size(pixel_to_world, (images.shape[1], images.shape[2]), str(path))
    return TrackedSweep(
        name=path.name.split(".")[0],
        images=images,
        spacing_mm=rigid.spacing_mm,
        image_to_world=rigid.image_to_world,
        mask=_mask(images, fixed.clip),
        facts={
            "source": path.name,
            "world": way[-1][1],
            "way": ["To".join(link) for link in way],
            "orientation_in_file": sequence.fields.get("UltrasoundImageOrientation", "not stated, taken as MF"),
            "frames_in_file": len(sequence.frames),
            "dropped": dropped,
            "calibration_skew": round(rigid.skew, 4),
            "calibration_moved_mm": round(rigid.moved_mm, 3),
        },
    )


def _calibration(source: Path | str | Matrix | None) -> Calibration:
    if source is None:
        return Calibration({}, None)
    if isinstance(source, str | Path):
        return read_calibration(source)
    numbers = " ".join(str(float(number)) for number in np.asarray(source).ravel())
    return Calibration({(IMAGE, "Probe"): matrix_of(numbers, "read_plus_sequence(calibration)")}, None)


def _way_to_world(sequence: MetaSequence, fixed: Calibration, world: str | None, path: Path) -> list[Link]:
    """The links from the image to the world, over the transforms of the file and of the calibration."""
    links = dict.fromkeys(fixed.transforms)
    for fields in (*sequence.frames, sequence.fields):
        links |= dict.fromkeys(link for name in fields if (link := _link_of_field(name)))
    for goal in (world,) if world else WORLDS:
        way = path_between(links, IMAGE, goal)
        if way:
            return way
    held = ", ".join("To".join(link) for link in links) or "none"
    raise ScopeRegError(
        f"no transforms lead from {IMAGE} to {world or ' or '.join(WORLDS)}; there are {held}",
        where=str(path),
        fix="pass calibration=, the PLUS configuration that holds the transform from Image to Probe",
    )


def _link_of_field(name: str) -> Link | None:
    return link_of(name.removesuffix(_ENDING)) if name.endswith(_ENDING) else None


def _given(link: Link, fixed: Calibration) -> bool:
    return link in fixed.transforms or link[::-1] in fixed.transforms


def _good_frames(sequence: MetaSequence, links: Sequence[Link]) -> tuple[list[int], dict[str, int]]:
    """Frames whose image and transforms on these links are OK, and how many are not, by what is wrong first."""
    both_ways = {*links, *(link[::-1] for link in links)}
    needed = {name for fields in sequence.frames for name in fields if _link_of_field(name) in both_ways}
    good: list[int] = []
    dropped: dict[str, int] = {}
    for row, fields in enumerate(sequence.frames):
        states = {name: fields.get(f"{name}Status", "OK") if name in fields else "missing" for name in sorted(needed)}
        states["Image"] = fields.get("ImageStatus", "OK")
        wrong = [f"{name} {state}" for name, state in states.items() if state.upper() != "OK"]
        if wrong:
            dropped[wrong[0]] = dropped.get(wrong[0], 0) + 1
        else:
            good.append(row)
    return good, dropped


def _transforms(sequence: MetaSequence, row: int, fixed: Calibration, path: Path) -> dict[Link, Matrix]:
    """Transforms of one frame: of the calibration, which wins, of the frame, of the whole file."""
    found: dict[Link, Matrix] = {}
    for fields, where in ((sequence.fields, str(path)), (sequence.frames[row], f"{path}, frame {row}")):
        for name, text in fields.items():
            if link := _link_of_field(name):
                found[link] = matrix_of(text, where)
    return found | fixed.transforms


def _grey(images: npt.NDArray[Any], rows: Sequence[int], path: Path) -> Tensor:
    """Some of the images as uint8, or as float from 0 to 1; colours by their mean."""
    images = images[list(rows)]
    if images.ndim == 4:
        if images.shape[-1] != 3:
            raise ScopeRegError(
                f"each pixel holds {images.shape[-1]} numbers", where=str(path), fix="record grey or RGB images"
            )
        images = images.mean(-1).round().astype(images.dtype)
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
    letters = fields.get("UltrasoundImageOrientation", "MF").upper()
    if letters[:2] not in _ORIENTATIONS or len(letters) > 3:
        raise ScopeRegError(
            f"the orientation of its images is {letters!r}",
            where=str(path),
            fix=f"set UltrasoundImageOrientation to one of {', '.join(_ORIENTATIONS)}",
        )
    if letters[0] in "FN":
        images, letters = images.transpose(1, 2), letters[1] + letters[0]
    flips = [axis for axis, letter in ((2, "U"), (1, "N")) if letter in letters[:2]]
    return images.flip(flips).contiguous()


def _mask(images: Tensor, clip: tuple[int, int, int, int] | None) -> Tensor | None:
    """What the transducer sees, inside of the clip rectangle of the configuration; None if that cannot be told."""
    seen = seen_pixels(images)
    if clip is not None:
        x, y, width, height = clip
        inside = torch.zeros_like(seen)
        inside[y : y + height, x : x + width] = True
        seen &= inside
    return seen if bool(seen.any()) else None
