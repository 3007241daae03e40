"""Sizes of pixels: as given by the caller, and whether a file states them at all. ITK fills in 1 mm where none is."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from scopereg.errors import ScopeRegError
from scopereg.io.nifti import read_nifti_header

_LONGEST_HEADER = 2**20
_DIFFERENT = 0.01  # relative difference between two statements of a pixel's size that is worth a word
GIVE_IT = "give the size of a voxel in mm: spacing_mm="


def as_pair(spacing_mm: float | Sequence[float], where: str) -> tuple[float, float]:
    """A pixel size x, y from one number or two."""
    x, y = as_sizes(spacing_mm, 2, where)
    return x, y


def as_sizes(spacing_mm: float | Sequence[float], axes: int, where: str) -> tuple[float, ...]:
    """Sizes x, y(, z) from one number or as many as there are axes."""
    try:
        numbers = np.asarray(spacing_mm, np.float64).reshape(-1)
    except (TypeError, ValueError):
        numbers = np.zeros(0)
    if numbers.size == 1:
        numbers = np.repeat(numbers, axes)
    if numbers.size != axes or not (np.isfinite(numbers).all() and numbers.min() > 0):
        raise ScopeRegError(
            f"the spacing is {spacing_mm}", where=where, fix=f"pass {axes} positive sizes in mm, x first"
        )
    return tuple(float(step) for step in numbers)


def given_spacing_note(given: Sequence[float], stated: Sequence[float] | None, source: str) -> dict[str, Any]:
    """A note where the given spacing is not the one that the file states."""
    if stated is None or np.allclose(given, stated, rtol=_DIFFERENT, atol=0):
        return {}
    said, used = (" x ".join(f"{step:g}" for step in sizes) for sizes in (stated, given))
    return {"notes": [f"{source} of the file says {said} mm; the given {used} mm are used"]}


def states_spacing(path: Path) -> bool:
    """Whether the header of a NIfTI, NRRD or MetaImage file tells the size of a voxel."""
    name = path.name.lower()
    if name.endswith((".nii", ".nii.gz")):
        sizes = read_nifti_header(path).spacing
        return bool(sizes) and min(map(abs, sizes)) > 0
    if name.endswith((".nrrd", ".nhdr")):
        return any(key in _text_fields(path, ":") for key in ("spacings", "space directions"))
    if name.endswith((".mha", ".mhd")):
        return any(key in _text_fields(path, "=") for key in ("elementspacing", "elementsize"))
    return False


def _text_fields(path: Path, mark: str) -> set[str]:
    """Names of the fields of a header that is text, in lower case."""
    with path.open("rb") as file:
        text = file.read(_LONGEST_HEADER)
    fields = set()
    for line in text.split(b"\n"):
        name, found, _ = line.decode("latin-1").partition(mark)
        if mark == ":" and not line.strip():
            break  # NRRD: the pixels begin after an empty line
        if found:
            fields.add(name.strip().lower())
        if name.strip() == "ElementDataFile":
            break
    return fields
