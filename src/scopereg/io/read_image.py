"""Images from files through SimpleITK, refusing what is damaged: ITK reads a NIfTI file cut short without a word."""

from __future__ import annotations

import gzip
import hashlib
import re
import struct
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import SimpleITK as sitk

from scopereg.errors import ScopeRegError

FORMATS = (".nii.gz", ".nii", ".nrrd", ".nhdr", ".mha", ".mhd")
_CHUNK = 2**22
_GET_AGAIN = "copy or download the file again"


class ImageFile(NamedTuple):
    """What a file holds, axes as stored."""

    array: npt.NDArray[Any]  # (z, y, x), or (t, z, y, x)
    spacing_mm: tuple[float, ...]  # x, y, z(, t)
    origin_mm: tuple[float, ...]  # x, y, z(, t) in LPS
    direction: npt.NDArray[np.float64]  # columns are the axes in LPS


class ImageHeader(NamedTuple):
    """What a file says of its voxels, axes as stored, x first."""

    size: tuple[int, ...]
    spacing_mm: tuple[float, ...]
    direction: npt.NDArray[np.float64]  # columns are the axes in LPS
    kind: str  # of numbers, in ITK's words
    components: int  # numbers in each voxel


def read_image(path: Path | str) -> ImageFile:
    """One image of real numbers; damaged, truncated, coloured or non-finite files are refused."""
    path = Path(path)
    if not path.is_file():
        raise ScopeRegError("there is no such file", where=str(path), fix="check the name and the folder")
    if path.name.lower().endswith((".nii", ".nii.gz")):
        _check_nifti(path)
    return _read(path)


def read_header(path: Path | str) -> ImageHeader:
    """What a file says of its voxels, without reading them."""
    reader = sitk.ImageFileReader()
    reader.SetFileName(str(path))
    try:
        reader.ReadImageInformation()
    except RuntimeError as error:
        raise _unreadable(error, Path(path)) from None
    axes = reader.GetDimension()
    return ImageHeader(
        reader.GetSize(),
        reader.GetSpacing(),
        np.array(reader.GetDirection()).reshape(axes, axes),
        sitk.GetPixelIDValueAsString(reader.GetPixelIDValue()),
        reader.GetNumberOfComponents(),
    )


def check_length(path: Path) -> None:
    """An error if a NIfTI file is cut short, or a header's file of voxels is not there; quick where the file is whole.

    A whole .gz file ends with the number of bytes that it unpacks to; only where these are not enough is it unpacked.
    """
    name = path.name.lower()
    if name.endswith(".nii.gz"):
        if not _tells_its_length(path):
            _check_nifti(path)
    elif name.endswith(".nii"):
        _check_nifti(path)
    elif (voxels := _named_voxels(path)) is not None and not voxels.is_file():
        raise ScopeRegError(f"its voxels are missing: {voxels.name}", where=str(path), fix="copy both files")


@contextmanager
def quiet_itk() -> Iterator[None]:
    """ITK's warnings off while the block runs."""
    warns = sitk.ProcessObject.GetGlobalWarningDisplay()
    sitk.ProcessObject.SetGlobalWarningDisplay(False)
    try:
        yield
    finally:
        sitk.ProcessObject.SetGlobalWarningDisplay(warns)


def files_of(path: Path) -> tuple[Path, ...]:
    """The file and, where a header keeps its voxels elsewhere (.mhd, .nhdr), the file with the voxels."""
    voxels = _named_voxels(path)
    return (path,) if voxels is None or not voxels.is_file() else (path, voxels)


def _named_voxels(path: Path) -> Path | None:
    """The file that a header (.mhd, .nhdr) says to keep the voxels, None if it keeps them itself or names several."""
    keys = {".mhd": "elementdatafile", ".nhdr": "data file"}
    key = keys.get(path.suffix.lower())
    for line in path.read_text(encoding="latin-1").splitlines() if key else ():
        name, _, value = line.replace(":", "=", 1).partition("=")
        if name.strip().lower() == key and not re.match(r"local$|list\b|.*%", value.strip(), re.IGNORECASE):
            return path.with_name(value.strip())
    return None


def content_sha256(paths: Iterable[Path]) -> str:
    """Hash of the content of files, one after the other."""
    digest = hashlib.sha256()
    for path in paths:
        with path.open("rb") as file:
            while chunk := file.read(_CHUNK):
                digest.update(chunk)
    return digest.hexdigest()


def _read(path: Path) -> ImageFile:
    try:
        image = sitk.ReadImage(str(path))
    except RuntimeError as error:
        raise _unreadable(error, path) from None
    components = image.GetNumberOfComponentsPerPixel()
    if components != 1:
        raise ScopeRegError(
            f"each voxel holds {components} numbers",
            where=str(path),
            fix="store one channel: grey values instead of colours",
        )
    array = sitk.GetArrayFromImage(image)
    if not np.isfinite(array).all():
        raise ScopeRegError(
            f"{int((~np.isfinite(array)).sum())} of {array.size} values are NaN or infinite",
            where=str(path),
            fix="replace them (numpy.nan_to_num) and store the file again",
        )
    axes = image.GetDimension()
    direction = np.array(image.GetDirection()).reshape(axes, axes)
    return ImageFile(array, image.GetSpacing(), image.GetOrigin(), direction)


def _unreadable(error: RuntimeError, path: Path) -> ScopeRegError:
    # Names without folders: the reason may be stored with the data, which may be passed on.
    reason = str(error).strip().splitlines()[-1].removeprefix("sitk::ERROR: ").replace(str(path), path.name)
    return ScopeRegError(f"ITK cannot read it: {reason}", where=str(path), fix=_GET_AGAIN)


def _check_nifti(path: Path) -> None:
    """An error unless the file holds as many bytes as its header promises."""
    opener: Any = gzip.open if path.name.lower().endswith(".gz") else open
    try:
        with opener(path, "rb") as file:
            expected, found = _promised_bytes(file.read(540)), file.tell()
            found += _bytes_left(file)
    except (OSError, EOFError, zlib.error, struct.error) as error:
        raise ScopeRegError(f"it is damaged or cut short: {error}", where=str(path), fix=_GET_AGAIN) from None
    if found < expected:
        raise ScopeRegError(f"it is cut short: {found} of {expected} bytes", where=str(path), fix=_GET_AGAIN)


def _tells_its_length(path: Path) -> bool:
    """Whether a .gz file ends with just the number of bytes that its NIfTI header promises."""
    try:
        with gzip.open(path, "rb") as file:
            expected = _promised_bytes(file.read(540))
        with path.open("rb") as raw:
            raw.seek(-4, 2)
            (told,) = struct.unpack("<I", raw.read(4))
    except (OSError, EOFError, zlib.error, struct.error):
        return False
    return bool(expected) and told == expected % 2**32


def _bytes_left(file: IO[bytes]) -> int:
    if not isinstance(file, gzip.GzipFile):
        at = file.tell()
        return file.seek(0, 2) - at
    count = 0
    while chunk := file.read(_CHUNK):
        count += len(chunk)
    return count


def _promised_bytes(header: bytes) -> int:
    """Length of a NIfTI-1 or NIfTI-2 file by its header; 0 for other headers, which ITK refuses by itself."""
    for order in "<>":
        (size,) = struct.unpack_from(f"{order}i", header)
        if size == 348:
            dims, (bits,) = struct.unpack_from(f"{order}8h", header, 40), struct.unpack_from(f"{order}h", header, 72)
            (offset,) = struct.unpack_from(f"{order}f", header, 108)
        elif size == 540:
            dims, (bits,) = struct.unpack_from(f"{order}8q", header, 16), struct.unpack_from(f"{order}h", header, 14)
            (offset,) = struct.unpack_from(f"{order}q", header, 168)
        else:
            continue
        return int(offset) + prod(max(n, 1) for n in dims[1 : 1 + max(dims[0], 0)]) * bits // 8
    return 0
