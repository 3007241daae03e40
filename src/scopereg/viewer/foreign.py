"""Foreign volumes: files that somebody else names or brings, checked before anything reads them."""

from __future__ import annotations

import re
from math import prod
from pathlib import Path

from scopereg.errors import ScopeRegError
from scopereg.io.read_image import quiet_itk, read_header
from scopereg.io.volumes import FORMATS

MOST_VOXELS = 2**28  # a small file may unpack to far more than there is memory
_HEADER_BYTES = 2**16
_DATA_FILE = re.compile(rb"^\s*ElementDataFile\s*[=:](.*)$", re.M | re.I)
_NRRD_DATA_FILE = re.compile(rb"^\s*data\s*file\s*:", re.M | re.I)
_BLANK_LINE = re.compile(rb"\n\r?\n")


def ending_of(name: str) -> str:
    """The ending that tells the kind of volume; empty where there is none."""
    return next((ending for ending in FORMATS if name.lower().endswith(ending) and len(name) > len(ending)), "")


def check_foreign(path: Path) -> None:
    """An error for a file that names others to be read in its place, or says to be larger than memory."""
    with path.open("rb") as file:
        head = file.read(_HEADER_BYTES)
    ending = ending_of(path.name)
    if (ending == ".mha" and not _is_whole_mha(head)) or (ending == ".nrrd" and not _is_whole_nrrd(head)):
        raise ScopeRegError(
            "its voxels are in another file", where=path.name, fix="save the volume as one file and try again"
        )
    with quiet_itk():
        size = read_header(path).size
    if prod(size) > MOST_VOXELS:
        raise ScopeRegError(
            f"it has {' x '.join(map(str, size))} voxels", where=path.name, fix="crop it, or resample it"
        )


def _is_whole_mha(head: bytes) -> bool:
    """Whether it says that the voxels follow, and nothing else."""
    named = [word.strip().upper() for word in _DATA_FILE.findall(head)]
    return bool(named) and set(named) == {b"LOCAL"}


def _is_whole_nrrd(head: bytes) -> bool:
    """Whether its header ends, and names no other file."""
    header, *rest = _BLANK_LINE.split(head, maxsplit=1)
    return bool(rest) and not _NRRD_DATA_FILE.search(header)
