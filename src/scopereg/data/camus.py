"""CAMUS: half-sequences from end-diastole to end-systole as volumes, time along the third axis."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from scopereg.data.cases import CaseFiles, LoadedVolume, SetPlan, existing_folder
from scopereg.data.dataset import Dataset, Shape
from scopereg.data.grids import (
    PERCENTILES,
    Array,
    as_label_bytes,
    centred_start,
    inner,
    regrid,
    regrid_labels,
    to_uint8,
)
from scopereg.data.orientation import orientation_code
from scopereg.errors import ScopeRegError
from scopereg.io.formats import ImageHeader
from scopereg.io.read_image import read_image
from scopereg.io.records import SMALL, read_within

FIELD_MM = 78.848  # 256 pixels of 0.308 mm
SURROUNDINGS = 0.375  # of the field, both sides together
VIEWS = ("2CH", "4CH")
ORIENTATION = "LPS"
CLASSES = ("background", "left ventricle", "myocardium", "left atrium")
_ENDINGS = ("half_sequence.nii.gz", "half_sequence.nii", "half_sequence.mhd", "sequence.mhd")  # the first found counts
_EXTENT_MM = (30.0, 400.0)  # beyond these no heart was imaged: the header lost its spacing


class Camus(Dataset):
    """CAMUS as published."""

    name = "camus"
    title = "CAMUS"
    address = "https://www.creatis.insa-lyon.fr/Challenge/camus/"
    options = ("size", "frames", "any_orientation")
    sized_by = "size"
    orientation = ORIENTATION
    highest_label = len(CLASSES) - 1

    def found(self, root: Path) -> bool:
        return next(root.rglob("patient*_[24]CH_*sequence*.*"), None) is not None

    def find(self, root: Path, labels: bool = True, views: Sequence[str] = VIEWS) -> list[CaseFiles]:
        found: dict[tuple[str, str], list[Path]] = {}
        pattern = re.compile(rf"(patient\d+)_({'|'.join(views)})_(?:{'|'.join(map(re.escape, _ENDINGS))})")
        for path in sorted(root.rglob("patient*sequence.*")):
            if match := pattern.fullmatch(path.name):
                found.setdefault((match[1], match[2]), []).append(path)
        if not found:
            raise ScopeRegError(
                f"no sequence of {' or '.join(views)} in it",
                where=str(root),
                fix="name the folder with the published patientXXXX folders (patientXXXX_4CH_half_sequence.nii.gz)",
            )
        return [_case_files(patient, view, paths, labels) for (patient, view), paths in sorted(found.items())]

    def check(self, case: CaseFiles, header: ImageHeader) -> None:
        x, y, *frames = header.size
        count = math.prod(frames)
        if count < 2 or sum(n > 1 for n in frames) > 1:
            raise _not_a_sequence(case.image, header.size[::-1])
        _check_extent((y, x), header.spacing_mm, case.image)
        _ed_to_es(case.others[0], count)

    def published_grid(self) -> tuple[Shape, float, str]:
        rule = "as published: 32 frames, the central 78.8 mm in 128 pixels; size=192, 384 and 512 are published too"
        return (32, 128, 128), FIELD_MM / 128, rule

    def plan(self, folder: Path | str, **options: Any) -> SetPlan:
        return plan_camus(folder, **options)


CAMUS = Camus()
load_camus = CAMUS.load


def plan_camus(
    folder: Path | str,
    *,
    size: int = 128,
    frames: int = 32,
    views: Sequence[str] = VIEWS,
    labels: bool = True,
    name: str | None = None,
    any_orientation: bool = False,
    skip_bad: bool = False,
) -> SetPlan:
    """Every sequence below `folder` as published, NIfTI or the older MHD, each view a volume (frames, size, size).

    The central 78.848 mm of the image at 78.848 / size mm, depth downwards, with 18.75 % more on each side as
    surroundings; frames between end-diastole and end-systole stretched to `frames`, in that order. Files whose header
    turns their axes otherwise than the rest are bad, unless `any_orientation`.
    """
    root = existing_folder(folder)
    _check_options(size, frames, views)
    margin = round(size * SURROUNDINGS / 2)
    facts = {
        "dataset": "CAMUS",
        "size": size,
        "frames": frames,
        "views": list(views),
        "field_mm": FIELD_MM,
        "percentiles": list(PERCENTILES),
        "classes": list(CLASSES),
    }
    return SetPlan(
        name or CAMUS.name,
        root,
        spacing_mm=FIELD_MM / size,
        shape=(frames, size, size),
        margin=(0, margin, margin),
        facts=facts,
        cases=tuple(CAMUS.find(root, labels, views)),
        load=partial(_load_case, size=size, frames=frames, margin=margin),
        orientation=None if any_orientation else ORIENTATION,
    ).labelled_alike(skip_bad)


def _case_files(patient: str, view: str, paths: list[Path], labels: bool) -> CaseFiles:
    stem = f"{patient}_{view}_"
    ending = next(ending for ending in _ENDINGS if any(path.name == stem + ending for path in paths))
    image, *others = [path for path in paths if path.name == stem + ending]
    if others:
        raise ScopeRegError(
            f"{image.name} is there twice, also in {others[0].parent}",
            where=str(image.parent),
            fix="remove one copy, or name the folder of one of them",
        )
    masks = [image.with_name(stem + ending.replace("sequence", "sequence_gt")) for ending in _ENDINGS] if labels else []
    mask = next((path for path in masks if path.is_file()), None)
    return CaseFiles(f"{patient}_{view}", patient, image, mask, (image.with_name(f"Info_{view}.cfg"),))


def _load_case(case: CaseFiles, *, size: int, frames: int, margin: int) -> list[LoadedVolume]:
    image, (width_mm, height_mm), code = _read_sequence(case.image)
    codes = [code]
    order = _ed_to_es(case.others[0], len(image))
    steps = [(len(order) - 1) / (frames - 1), FIELD_MM / size / height_mm, FIELD_MM / size / width_mm]
    counts = [frames, size + 2 * margin, size + 2 * margin]
    middle = [centred_start(n, step, count) for n, step, count in zip(image.shape, steps, counts, strict=True)]
    grid = [0.0, *middle[1:]], steps, counts
    voxels = to_uint8(regrid(image[order], *grid), inner(counts, (0, margin, margin)), str(case.image))
    labels = None
    if case.labels is not None:
        masks, _, code = _read_sequence(case.labels)
        codes.append(code)
        if masks.shape != image.shape:
            raise ScopeRegError(
                f"labels of shape {masks.shape} for an image of {image.shape}",
                where=str(case.labels),
                fix="take both files from the same release",
            )
        labels = regrid_labels(as_label_bytes(masks, str(case.labels), len(CLASSES) - 1)[order], *grid)
    notes = {
        "reversed": order[0] > order[-1],
        "cut to the half-cycle": len(order) < len(image),
        "field mirrored at the border": any(size * steps[axis] > image.shape[axis] + 1e-3 for axis in (1, 2)),
    }
    words = tuple(word for word, holds in notes.items() if holds)
    return [LoadedVolume(case.name, voxels, labels, words, tuple(codes))]


def _read_sequence(path: Path) -> tuple[Array, tuple[float, float], str]:
    """Frames (T, H, W) with depth downwards, as the files have it, width and height of a pixel in mm, orientation."""
    array, spacing_mm, _, direction = read_image(path, sized=True)[:4]
    sequence = array.reshape(-1, *array.shape[-2:]) if array.ndim == 4 and 1 in array.shape[:2] else array
    if sequence.ndim != 3 or len(sequence) < 2:
        raise _not_a_sequence(path, array.shape)
    return sequence, _check_extent(sequence.shape[1:], spacing_mm, path), orientation_code(direction)


def _not_a_sequence(path: Path, shape: tuple[int, ...]) -> ScopeRegError:
    return ScopeRegError(
        f"it has shape {shape}, not frames of a sequence",
        where=str(path),
        fix="use the half_sequence files, not single frames",
    )


def _check_extent(shape: Sequence[int], spacing_mm: Sequence[float], path: Path) -> tuple[float, float]:
    """Width and height of a pixel in mm, if the image (H, W) is as large as a heart."""
    pixel_mm = (float(spacing_mm[0]), float(spacing_mm[1]))
    extent_mm = [n * step for n, step in zip(shape[::-1], pixel_mm, strict=True)]
    if not all(_EXTENT_MM[0] <= extent <= _EXTENT_MM[1] for extent in extent_mm):
        raise ScopeRegError(
            f"pixels of {pixel_mm[0]:g} x {pixel_mm[1]:g} mm make it {extent_mm[0]:.0f} x {extent_mm[1]:.0f} mm large",
            where=str(path),
            fix="the header lost the pixel size: use the published file",
        )
    return pixel_mm


def _ed_to_es(info: Path, count: int) -> Array:
    """Indices of the frames from end-diastole to end-systole, which Info_*.cfg counts from 1."""
    try:
        lines = read_within(info, "use the published Info files", SMALL).decode("utf-8", "replace").splitlines()
        entries = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
        first, last = (int(entries[key]) - 1 for key in ("ED", "ES"))
    except (OSError, KeyError, ValueError) as error:
        raise ScopeRegError(
            f"it does not tell the frames ED and ES: {error}", where=str(info), fix="use the published Info files"
        ) from None
    if first == last or not (0 <= first < count and 0 <= last < count):
        raise ScopeRegError(
            f"ED {first + 1} and ES {last + 1} of {count} frames", where=str(info), fix="use the published Info files"
        )
    step = 1 if last > first else -1
    return np.arange(first, last + step, step)


def _check_options(size: int, frames: int, views: Sequence[str]) -> None:
    if size < 8 or size % 8 or frames < 2:
        raise ScopeRegError(
            f"{frames} frames of {size} pixels",
            where="plan_camus(size, frames)",
            fix="use a multiple of 8 pixels, 128 is usual, and two frames or more, 32 is usual",
        )
    if isinstance(views, str) or not views or not set(views) <= set(VIEWS):
        raise ScopeRegError(f"{views!r}", where="plan_camus(views)", fix=f"pass one or both of {VIEWS}")
