"""mu-RegPro: transrectal volumes cut into two halves along the through-plane axis, cropped at the probe."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from scopereg.data.cases import CaseFiles, LoadedVolume, SetPlan, existing_folder
from scopereg.data.dataset import Dataset, Shape
from scopereg.data.grids import PERCENTILES, Array, as_label_bytes, inner, regrid, regrid_labels, to_uint8
from scopereg.data.orientation import orientation_code
from scopereg.errors import ScopeRegError, listed
from scopereg.io.formats import ImageHeader
from scopereg.io.read_image import read_image

SPACING_MM = 0.8
SHAPE = (40, 64, 64)  # through-plane, depth, lateral
MARGIN = (16, 24, 24)  # what poses of 10 voxels and degrees reach beyond the field, and some more
ORIENTATION = "RAS"
HALVES = ("a", "b")
GLAND = 0  # channel of the labels
_SURE = 0.65  # share of the cases that must agree about the probe's end
_CLOSE = 0.01  # relative difference of spacings that is none
End = Literal["low", "high"]


class MuRegPro(Dataset):
    """mu-RegPro as published."""

    name = "muregpro"
    title = "mu-RegPro"
    address = "https://muregpro.github.io/"
    options = ("margin", "probe", "any_orientation")
    orientation = ORIENTATION
    highest_label = None
    shape = SHAPE
    spacing_mm = SPACING_MM

    def found(self, root: Path) -> bool:
        return next(root.rglob("us_images/case*.nii*"), None) is not None

    def find(self, root: Path, labels: bool = True) -> list[CaseFiles]:
        cases = []
        for image in sorted(root.glob("**/us_images/case*.nii*")):
            mask = image.parent.with_name("us_labels") / image.name
            name = image.name.split(".")[0]
            cases.append(CaseFiles(name, name, image, mask if labels and mask.is_file() else None))
        if not cases:
            raise ScopeRegError(
                "no us_images/case*.nii.gz in it",
                where=str(root),
                fix="name the folder with the published train and val folders",
            )
        names = [case.name for case in cases]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ScopeRegError(
                f"there more than once: {listed(twice)}",
                where=str(root),
                fix="remove copies, or name the folder of one",
            )
        return sorted(cases, key=lambda case: case.name)

    def check(self, case: CaseFiles, header: ImageHeader) -> None:
        if len(header.size) != 3:
            raise ScopeRegError(
                f"it has shape {header.size[::-1]}", where=str(case.image), fix="use the published volumes"
            )
        planes, columns, rows = header.size
        _half_starts((planes, rows, columns), _steps(header.spacing_mm), case.image)

    def published_grid(self) -> tuple[Shape, float, str]:
        return SHAPE, SPACING_MM, "as published: two halves of each case, next to the probe"

    def plan(self, folder: Path | str, **options: Any) -> SetPlan:
        return plan_muregpro(folder, **options)


MUREGPRO = MuRegPro()
load_muregpro = MUREGPRO.load


def plan_muregpro(
    folder: Path | str,
    *,
    margin: tuple[int, int, int] = MARGIN,
    probe: End | None = None,
    labels: bool = True,
    name: str | None = None,
    any_orientation: bool = False,
    skip_bad: bool = False,
) -> SetPlan:
    """Two volumes 40 x 64 x 64 at 0.8 mm of each case in {train,val}/us_images, with gland masks from us_labels.

    Rows run along the depth with the probe at the bottom, as transrectal images are shown: the crop takes the 64 rows
    next to it and the middle 64 columns. What lies beyond is kept up to `margin`, mirrored where the volume ends.

    `probe` tells the end of the files' depth axis where the probe is. Without it the images tell: a fan is narrower at
    its probe, so each case votes for the end whose quarter of rows has the smaller lateral spread of brightness.
    Every image is read once for that. Files whose header turns their axes otherwise than the rest are bad, unless
    `any_orientation`.
    """
    root = existing_folder(folder)
    cases = MUREGPRO.find(root, labels)
    votes = None if probe else _votes_for_high_end(cases)
    facts = {
        "dataset": "mu-RegPro",
        "shape": list(SHAPE),
        "percentiles": list(PERCENTILES),
        "classes": ["background", "prostate gland"],
        "probe_end": probe or _decided(votes, root),
        "probe_votes_for_high_end": votes,
    }
    return SetPlan(
        name or MUREGPRO.name,
        root,
        spacing_mm=SPACING_MM,
        shape=SHAPE,
        margin=margin,
        facts=facts,
        cases=tuple(cases),
        load=partial(_load_case, margin=margin, turned=facts["probe_end"] == "low"),
        volumes_per_case=len(HALVES),
        orientation=None if any_orientation else ORIENTATION,
    ).labelled_alike(skip_bad)


def _load_case(case: CaseFiles, *, margin: tuple[int, int, int], turned: bool) -> list[LoadedVolume]:
    volume, steps, code = _read_volume(case.image, turned)
    codes = [code]
    gland = None
    if case.labels is not None:
        gland, _, code = _read_volume(case.labels, turned)
        codes.append(code)
        if gland.shape != volume.shape:
            raise ScopeRegError(
                f"labels of {gland.shape} for an image of {volume.shape}",
                where=str(case.labels),
                fix="take both files from the same release",
            )
        gland = as_label_bytes(gland > 0, str(case.labels))
    counts = [n + 2 * m for n, m in zip(SHAPE, margin, strict=True)]
    volumes = []
    for half, start in zip(HALVES, _half_starts(volume.shape, steps, case.image), strict=True):
        grid = [s - m * step for s, m, step in zip(start, margin, steps, strict=True)], steps, counts
        voxels = to_uint8(regrid(volume, *grid), inner(counts, margin), str(case.image))
        labels = None if gland is None else regrid_labels(gland, *grid)
        volumes.append(LoadedVolume(f"{case.name}{half}", voxels, labels, orientation=tuple(codes)))
    return volumes


def _half_starts(shape: tuple[int, ...], steps: list[float], path: Path) -> list[list[float]]:
    """First voxel of both reference fields: side by side about the middle slice, last rows, middle columns."""
    planes, rows, columns = (int(n / step + 1e-3) for n, step in zip(shape, steps, strict=True))
    if planes < 2 * SHAPE[0] or rows < SHAPE[1] or columns < SHAPE[2]:
        raise ScopeRegError(
            f"{planes} slices of {rows} x {columns} voxels at {SPACING_MM} mm",
            where=str(path),
            fix=f"two halves need {2 * SHAPE[0]} slices of {SHAPE[1]} x {SHAPE[2]} or more: use the published volumes",
        )
    first = (planes - 2 * SHAPE[0]) // 2
    corners = [(plane, rows - SHAPE[1], (columns - SHAPE[2]) // 2) for plane in (first, first + SHAPE[0])]
    # Centres of new voxels in old ones, both grids starting at the same border.
    return [[(k + 0.5) * step - 0.5 for k, step in zip(corner, steps, strict=True)] for corner in corners]


def _read_volume(path: Path, turned: bool) -> tuple[Array, list[float], str]:
    """The volume (through-plane, depth, lateral), probe at the last row; new voxels in old ones; orientation."""
    array, spacing_mm, _, direction = read_image(path, sized=True)[:4]
    volume = array[GLAND] if array.ndim == 4 else array
    if volume.ndim != 3:
        raise ScopeRegError(f"it has shape {array.shape}", where=str(path), fix="use the published volumes")
    volume = volume.transpose(2, 0, 1)  # files: x through-plane, y lateral, z depth; arrays: (z, y, x)
    if turned:
        volume = volume[:, ::-1, ::-1]  # half a turn within the plane: a single flip would mirror the patient
    return volume, _steps(spacing_mm), orientation_code(direction)


def _steps(spacing_mm: Sequence[float]) -> list[float]:
    """Sizes of new voxels in old ones, through-plane, depth, lateral."""
    steps = [SPACING_MM / float(spacing_mm[axis]) for axis in (0, 2, 1)]
    return [1.0 if abs(step - 1) < _CLOSE else step for step in steps]


def _votes_for_high_end(cases: list[CaseFiles]) -> float:
    """Share of the readable cases whose fan is narrower at the high end of the depth axis."""
    votes = []
    for case in cases:
        try:
            volume, *_ = _read_volume(case.image, turned=False)
        except ScopeRegError:
            continue  # it is refused or counted when it is loaded
        quarter = max(volume.shape[1] // 4, 1)
        votes.append(_lateral_spread(volume[:, -quarter:]) < _lateral_spread(volume[:, :quarter]))
    return float(np.mean(votes)) if votes else 1.0


def _lateral_spread(volume: Array) -> float:
    """Standard deviation, in columns, of where the brightness of (through-plane, depth, lateral) voxels lies."""
    light = volume.astype(np.float64).sum((0, 1))
    share = light / max(light.sum(), 1e-9)
    columns = np.arange(len(share))
    return float(np.sqrt((share * (columns - (share * columns).sum()) ** 2).sum()))


def _decided(votes: float | None, root: Path) -> End:
    assert votes is not None
    if max(votes, 1 - votes) < _SURE:
        raise ScopeRegError(
            f"the images do not tell where the probe is: {votes:.0%} of the cases say the high end",
            where=str(root),
            fix="look at one and pass probe='high' or probe='low', the end of the files' depth axis",
        )
    return "high" if votes > 0.5 else "low"
