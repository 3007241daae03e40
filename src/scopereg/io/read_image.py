"""Images from files of any registered format: the one door for headers and for voxels, strict about both.

NIfTI, NRRD and MetaImage are read here in Python: the parser that judges a header is the one that reads the voxels.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from scopereg.errors import ScopeRegError
from scopereg.io import metaimage, nifti, nrrd
from scopereg.io.files import atomic_path
from scopereg.io.formats import Format, ImageFile, ImageHeader, check_stated
from scopereg.io.packed import Packed

_CHUNK = 2**22
_BY_ENDING: dict[str, Format] = {}


def register_format(one: Format) -> None:
    """Add a kind of file: from then on volumes and frames of these endings are read, and written if it can write."""
    for ending in one.endings:
        if not ending.startswith(".") or ending != ending.lower() or ending in _BY_ENDING:
            what = "is taken" if ending in _BY_ENDING else "is no ending"
            raise ScopeRegError(
                f"{ending!r} {what}", where="register_format(endings)", fix="pass new endings such as '.abc'"
            )
    _BY_ENDING.update(dict.fromkeys(one.endings, one))


for _one in (*nifti.FORMATS, *nrrd.FORMATS, *metaimage.FORMATS):
    register_format(_one)


def endings(*, written: bool = False) -> tuple[str, ...]:
    """Endings of the files that can be read, or written; longer ones first where one ends in another."""
    found = [ending for ending, one in _BY_ENDING.items() if not written or one.write is not None]
    return tuple(sorted(found, key=lambda ending: -ending.count(".")))


def ending_of(name: str, *, written: bool = False) -> str:
    """The ending of a file's name that tells its format; empty where there is none."""
    known = endings(written=written)
    return next((ending for ending in known if name.lower().endswith(ending) and len(name) > len(ending)), "")


def format_of(path: Path, *, written: bool = False) -> Format:
    """The format of a file by its ending."""
    ending = ending_of(path.name, written=written)
    if not ending:
        raise ScopeRegError(
            f"unknown ending {path.suffix!r}",
            where=str(path),
            fix=f"use one of {', '.join(endings(written=written))}",
        )
    return _BY_ENDING[ending]


def read_image(path: Path | str, *, detached: bool = True, sized: bool = False) -> ImageFile:
    """One image of real numbers; damaged, truncated, coloured or non-finite files are refused.

    `detached=False` is for files that somebody else brought: their voxels must lie in the file itself. With `sized` it
    must state the size of its voxels, which is 1 otherwise.
    """
    header, array = read_with_header(path, detached=detached)
    if sized:
        check_stated(header, str(path))
    return ImageFile(array, header.spacing_mm, header.origin_mm, header.direction, header.anatomical)


def read_with_header(path: Path | str, *, detached: bool = True) -> tuple[ImageHeader, npt.NDArray[Any]]:
    """The same, with all that the header says."""
    path = Path(path)
    header = read_header(path, detached=detached)
    if header.components != 1:
        raise ScopeRegError(
            f"each voxel holds {header.components} numbers",
            where=str(path),
            fix="store one channel: grey values instead of colours",
        )
    array = format_of(path).read_voxels(header)
    _check_finite(array, path)
    return header, array


def read_header(path: Path | str, *, detached: bool = True) -> ImageHeader:
    """What a file says of its voxels, without reading them."""
    path = Path(path)
    if not path.is_file():
        raise ScopeRegError("there is no such file", where=str(path), fix="check the name and the folder")
    one = format_of(path)
    return one.read_header(path, detached and one.detached)


def write_image(image: ImageFile, path: Path | str) -> Path:
    """Write a volume (z, y, x), whole or not at all; the format follows the file's ending."""
    path = Path(path)
    write = format_of(path, written=True).write
    if write is None or not path.name.endswith(endings(written=True)):
        raise ScopeRegError(
            f"unknown ending {path.suffix!r}",
            where=str(path),
            fix=f"use an ending in lower case: {', '.join(endings(written=True))}",
        )
    with atomic_path(path) as temporary:
        write(temporary, image)
    return path


def check_length(path: Path) -> None:
    """An error if a file is cut short, goes on, or lacks its file of voxels; nothing is unpacked."""
    source = read_header(path).source
    packed = getattr(source, "packed", source)
    if isinstance(packed, Packed):
        packed.check_length()


def files_of(path: Path) -> tuple[Path, ...]:
    """The file and, where a header keeps its voxels elsewhere (.mhd, .nhdr), the file with the voxels."""
    ending = ending_of(path.name)
    if not ending or not _BY_ENDING[ending].detached:
        return (path,)
    return read_header(path).files


def content_sha256(paths: Iterable[Path]) -> str:
    """Hash of the content of files, one after the other."""
    digest = hashlib.sha256()
    for path in paths:
        with path.open("rb") as file:
            while chunk := file.read(_CHUNK):
                digest.update(chunk)
    return digest.hexdigest()


def _check_finite(array: npt.NDArray[Any], path: Path) -> None:
    if array.dtype.kind == "f" and not (np.isfinite(array.min()) and np.isfinite(array.max())):
        raise ScopeRegError(
            f"{int((~np.isfinite(array)).sum())} of {array.size} values are NaN or infinite",
            where=str(path),
            fix="replace them (numpy.nan_to_num) and store the file again",
        )
