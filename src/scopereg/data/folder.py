"""Folder: any volumes below a folder, brought to one voxel size and one shape."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from scopereg.data.cases import CaseFiles, LoadedVolume, SetPlan, existing_folder
from scopereg.data.dataset import Dataset, Shape, check_volume
from scopereg.data.grids import PERCENTILES, Array, as_label_bytes, centred_start, regrid, regrid_labels, to_uint8
from scopereg.data.orientation import orientation_code
from scopereg.errors import ScopeRegError, listed
from scopereg.io.dicom.header import says_dicom
from scopereg.io.dicom.volumes import find_series, read_slices
from scopereg.io.formats import ImageFile, ImageHeader, check_stated
from scopereg.io.read_image import ending_of, endings, read_header, read_image

LABEL_ENDINGS = ("_labels", "_label", "_gt", "_seg", "_mask")
_LABEL_NAMES = ("labels", "label", "gt", "seg", "mask")  # beside a volume that is alone in its folder
_GOOD_MULTIPLE = 8  # networks pad to it otherwise
MIN_SIZE = 8


@dataclass(frozen=True)
class FileGrid:
    """Grid of one file in array order z, y, x."""

    size: Shape
    spacing_mm: tuple[float, float, float]

    def size_at(self, step_mm: float) -> Shape:
        """Whole voxels of another size that fit into it."""
        z, y, x = (int(n * s / step_mm + 1e-3) for n, s in zip(self.size, self.spacing_mm, strict=True))
        return z, y, x


class Folder(Dataset):
    """Volumes of one's own."""

    name = "folder"
    options = ("size", "shape", "spacing_mm", "margin")
    sized_by = "shape"

    def found(self, root: Path) -> bool:
        return True

    def find(self, root: Path, labels: bool = True) -> list[CaseFiles]:
        return find_cases(root, labels)

    def check(self, case: CaseFiles, header: ImageHeader) -> None:
        _grid_of(header, case.image)

    def plan(self, folder: Path | str, **options: Any) -> SetPlan:
        return plan_folder(folder, **options)


FOLDER = Folder()
load_folder = FOLDER.load


def plan_folder(
    folder: Path | str,
    *,
    size: int | None = None,
    spacing_mm: float | None = None,
    shape: Shape | None = None,
    margin: Shape = (0, 0, 0),
    labels: bool = True,
    patient_of: Callable[[str], str] | None = None,
    name: str | None = None,
    skip_bad: bool = False,
) -> SetPlan:
    """NIfTI, NRRD, MHA and MHD volumes and DICOM series below `folder`, axes as stored, about their middle.

    `spacing_mm` is by default the finest that every file has, or the widest image in `size` pixels. The reference field
    is `shape` (D, H, W), else all slices of `size` x `size`, else all that the files have in common less the `margin`
    and what is beyond multiples of 8. Smaller volumes get black borders; the margin is mirrored where a volume ends.

    Labels are NAME_labels (_label, _gt, _seg, _mask) beside NAME. Files below one subfolder are of one patient,
    others each of their own, unless `patient_of` tells the patient of a case.
    """
    root = existing_folder(folder)
    found = find_cases(root, labels, patient_of)
    headers, skipped = _survey(found, skip_bad)
    step_mm = _one_spacing(list(headers.values()), size, spacing_mm, root)
    field = shape or _one_shape({n: h.size_at(step_mm) for n, h in headers.items()}, size, margin, root)
    if len(field) != 3 or min(field) < MIN_SIZE:
        raise ScopeRegError(
            f"a reference field of {field} voxels of {step_mm:g} mm",
            where="plan_folder(shape, size, margin)",
            fix=f"leave at least {MIN_SIZE} voxels on each axis: a smaller spacing or margin",
        )
    return SetPlan(
        name or FOLDER.name,
        root,
        spacing_mm=step_mm,
        shape=field,
        margin=margin,
        facts={"dataset": "folder", "shape": list(field), "spacing_mm": step_mm, "percentiles": list(PERCENTILES)},
        cases=tuple(case for case in found if case.name in headers),
        load=partial(_load_case, step_mm=step_mm, field=field, margin=margin),
        skipped=skipped,
    ).labelled_alike(skip_bad)


def find_cases(root: Path, labels: bool = True, patient_of: Callable[[str], str] | None = None) -> list[CaseFiles]:
    """Every volume below a folder, or if there is none every DICOM series."""
    files = [p for p in sorted(root.rglob("*")) if ending_of(p.name) and not p.name.startswith(".")]
    masks: dict[Path, list[Path]] = {}
    images = []
    for path in files:
        if _stem(path) in _LABEL_NAMES or _stem(path).endswith(LABEL_ENDINGS):
            masks.setdefault(path.parent, []).append(path)
        else:
            images.append(path)
    beside = Counter(image.parent for image in images)
    cases = []
    for image in images:
        name = image.relative_to(root).with_name(_stem(image)).as_posix()
        nearby = masks.get(image.parent, [])
        mask = _labels_of(image, nearby, alone=beside[image.parent] == 1) if labels else None
        cases.append(CaseFiles(name, _patient(name, patient_of), image, mask))
    if not cases:
        cases = _find_series(root, patient_of)
    if not cases:
        raise ScopeRegError(
            "no volumes in it",
            where=str(root),
            fix=f"put files in it: {', '.join(endings())} or DICOM series",
        )
    return cases


def eights(size: int) -> int:
    """The size, or if it is large enough the multiple of eight below it, which networks need not pad."""
    return size // _GOOD_MULTIPLE * _GOOD_MULTIPLE if size >= 2 * _GOOD_MULTIPLE else size


def _find_series(root: Path, patient_of: Callable[[str], str] | None) -> list[CaseFiles]:
    """Every DICOM series of two slices or more; a single multi-frame file does not tell its voxel size."""
    cases = []
    for folder in sorted({path.parent for path in root.rglob("*") if path.is_file()}):
        series = {key: files for key, files in _series_of(folder).items() if len(files) > 1}
        for number, files in enumerate(series[key] for key in sorted(series)):
            inside = folder.relative_to(root).as_posix()
            name = (inside if inside != "." else root.name) + (f"-{number}" if len(series) > 1 else "")
            cases.append(CaseFiles(name, _patient(name, patient_of), folder, None, files))
    return cases


def _series_of(folder: Path) -> dict[str, tuple[Path, ...]]:
    """Files of each series. Where a header is damaged nobody knows whose slice it is: then all files are one series.

    Reading that series gives the error, so that it counts as one bad case, and no volume lacks a slice.
    """
    try:
        return {key: tuple(file.path for file in files) for key, files in find_series(folder).items()}
    except ScopeRegError:
        return {"": tuple(path for path in sorted(folder.iterdir()) if path.is_file() and says_dicom(path))}


def _stem(path: Path) -> str:
    return path.name[: -len(ending_of(path.name))]


def _labels_of(image: Path, masks: Sequence[Path], alone: bool) -> Path | None:
    wanted = {_stem(image) + ending for ending in LABEL_ENDINGS} | (set(_LABEL_NAMES) if alone else set())
    fitting = [path for path in masks if _stem(path) in wanted]
    if len(fitting) > 1:
        raise ScopeRegError(
            f"several label files fit {image.name}: {listed([path.name for path in fitting])}",
            where=str(image.parent),
            fix="keep one",
        )
    return fitting[0] if fitting else None


def _patient(name: str, patient_of: Callable[[str], str] | None) -> str:
    return patient_of(name) if patient_of is not None else name.split("/")[0]


def _survey(cases: Sequence[CaseFiles], skip_bad: bool) -> tuple[dict[str, FileGrid], dict[str, str]]:
    """Grids of all cases, and those without one with the reason."""
    headers, skipped = {}, {}
    for case in cases:
        try:
            headers[case.name] = _header(case)
        except ScopeRegError as error:
            if not skip_bad:
                raise
            skipped[case.name] = error.what
    if not headers:
        raise ScopeRegError(
            f"none of {len(cases)} volumes can be read; {cases[0].name}: {skipped[cases[0].name]}",
            where=str(cases[0].image.parent),
            fix="check that the files are whole",
        )
    return headers, skipped


def _header(case: CaseFiles) -> FileGrid:
    if case.image.is_dir():
        image = _read(case)
        return _grid(image.array.shape[::-1], image.spacing_mm, case.image)
    return _grid_of(read_header(case.image), case.image)


def _grid_of(header: ImageHeader, path: Path) -> FileGrid:
    check_stated(header, str(path))
    return _grid(header.size, header.spacing_mm, path)


def _grid(size: Sequence[int], spacing_mm: Sequence[float], path: Path) -> FileGrid:
    check_volume(size, path)
    (x, y, z), (x_mm, y_mm, z_mm) = size[:3], spacing_mm[:3]
    return FileGrid((z, y, x), (z_mm, y_mm, x_mm))


def _read(case: CaseFiles) -> ImageFile:
    if case.image.is_dir():
        return read_slices(case.others, case.image)
    return read_image(case.image)


def _one_spacing(headers: list[FileGrid], size: int | None, spacing_mm: float | None, root: Path) -> float:
    if spacing_mm is not None:
        if not (math.isfinite(spacing_mm) and spacing_mm > 0):
            raise ScopeRegError(f"{spacing_mm}", where="plan_folder(spacing_mm)", fix="pass a positive number of mm")
        return float(spacing_mm)
    if size is not None:
        return max(n * s for h in headers for n, s in zip(h.size[1:], h.spacing_mm[1:], strict=True)) / size
    # The finest of the coarsest file: resampling shall not pretend detail that some volumes do not have.
    return max(min(h.spacing_mm) for h in headers)


def _one_shape(natural: dict[str, Shape], size: int | None, margin: Shape, root: Path) -> Shape:
    """The reference field that all volumes have in common, or an error that names those that differ."""
    shapes = {name: (n[0], size, size) if size is not None else n for name, n in natural.items()}
    (usual, count), *others = Counter(shapes.values()).most_common()
    if others:
        odd = [f"{name} ({_by(shape)})" for name, shape in shapes.items() if shape != usual]
        smallest = [str(eights(min(axis))) for axis in zip(*shapes.values(), strict=True)]
        raise ScopeRegError(
            f"{count} of {len(shapes)} volumes have {_by(usual)} voxels, but not {listed(odd)}",
            where=str(root),
            fix=f"crop or pad all to one shape, for instance shape=({', '.join(smallest)}), or remove them",
        )
    depth, height, width = (n - 2 * m for n, m in zip(usual, margin, strict=True))
    if size is not None:
        return eights(depth), size, size
    return eights(depth), eights(height), eights(width)


def _by(shape: Sequence[int]) -> str:
    return " x ".join(map(str, shape))


def _load_case(case: CaseFiles, *, step_mm: float, field: Shape, margin: Shape) -> list[LoadedVolume]:
    image = _read(case)
    size: tuple[int, ...] = image.array.shape[-3:]
    array = image.array.reshape(size)
    steps = [step_mm / s for s in image.spacing_mm[2::-1]]
    counts = [n + 2 * m for n, m in zip(field, margin, strict=True)]
    lacking = [n * step - old for n, step, old in zip(field, steps, size, strict=True)]
    borders = [max(0, math.ceil(old / 2 - 1e-3)) for old in lacking]
    padded = [old + 2 * border for old, border in zip(size, borders, strict=True)]
    grid = [centred_start(*numbers) for numbers in zip(padded, steps, counts, strict=True)], steps, counts
    values = regrid(_framed(array, borders, array.min()), *grid)
    seen = tuple(
        slice(m + (lost := min(math.ceil(border / step), (n - 1) // 2)), m + n - lost)
        for m, n, border, step in zip(margin, field, borders, steps, strict=True)
    )
    voxels = to_uint8(values, seen, str(case.image))
    labels = None
    if case.labels is not None:
        masks, _, _, direction = read_image(case.labels)[:4]
        _check_turned_alike(image.direction, direction, case.labels)
        if masks.size != array.size or masks.shape[-3:] != array.shape:
            raise ScopeRegError(
                f"labels of shape {masks.shape} for a volume of {array.shape}",
                where=str(case.labels),
                fix="store labels on the grid of their volume",
            )
        classes = as_label_bytes(masks.reshape(array.shape), str(case.labels))
        labels = regrid_labels(_framed(classes, borders, 0), *grid)
    notes = ("padded with black",) if any(borders) else ()
    return [LoadedVolume(case.name, voxels, labels, notes)]


def _check_turned_alike(image: Array, labels: Array, path: Path) -> None:
    codes = orientation_code(image), orientation_code(labels)
    if codes[0] != codes[1]:
        raise ScopeRegError(
            f"the labels are {codes[1]}, their volume is {codes[0]}: axes are permuted or flipped",
            where=str(path),
            fix="store labels on the grid of their volume, header included",
        )


def _framed(array: Array, borders: Sequence[int], value: float) -> Array:
    return np.pad(array, [(border, border) for border in borders], constant_values=value) if any(borders) else array
