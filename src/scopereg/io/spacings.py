"""Sizes of pixels: as given by the caller, and whether a file states them at all. ITK fills in 1 mm where none is."""

from __future__ import annotations

from pathlib import Path

from scopereg.io.nifti import read_nifti_header

_LONGEST_HEADER = 2**20
GIVE_IT = "give the size of a voxel in mm: spacing_mm="


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
