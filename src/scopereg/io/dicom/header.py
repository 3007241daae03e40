"""Headers of DICOM files: opened with errors that tell what is wrong, and the identifiers kept with an image."""

from __future__ import annotations

import warnings
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pydicom
from pydicom.dataset import Dataset, FileDataset
from pydicom.errors import InvalidDicomError
from pydicom.filebase import DicomBytesIO
from pydicom.filereader import read_file_meta_info
from pydicom.filewriter import write_file_meta_info
from pydicom.uid import DeflatedExplicitVRLittleEndian, ExplicitVRLittleEndian

from scopereg.errors import ScopeRegError
from scopereg.io.limits import check_size, largest_bytes

DICOM_ENDINGS = (".dcm", ".ima", ".dicom")
MAGIC_AT, MAGIC = 128, b"DICM"
MOST_MM = 1e6  # of a place; what lies a kilometre away is a damaged number
SPACINGS_MM = (1e-5, 1e3)  # of pixels
_GROUP_LENGTH_BYTES = 12  # of the element that tells how long the group of a file's own facts is
_SILENT = ("ignore", None, Warning, None, 0)  # what simplefilter("ignore") puts first
_GET_AGAIN = "copy or export the file again"
# Identifiers of data, none of a patient.
_IDENTIFIERS = {
    "sop_class_uid": "SOPClassUID",
    "sop_instance_uid": "SOPInstanceUID",
    "series_instance_uid": "SeriesInstanceUID",
    "study_instance_uid": "StudyInstanceUID",
    "frame_of_reference_uid": "FrameOfReferenceUID",
    "modality": "Modality",
}


def is_dicom(path: Path) -> bool:
    """Whether a file begins as DICOM files do."""
    try:
        with path.open("rb") as file:
            return file.read(MAGIC_AT + len(MAGIC))[MAGIC_AT:] == MAGIC
    except OSError:
        return False


def says_dicom(path: Path) -> bool:
    """Whether a file is to be read as DICOM: by its beginning, or by its name, which a damaged one still has."""
    return path.name.lower().endswith(DICOM_ENDINGS) or is_dicom(path)


@contextmanager
def reading(path: Path | str) -> Iterator[None]:
    """Whatever pydicom stumbles over in the block, as an error that names the file.

    Values are parsed when they are asked for, and damaged ones fail anywhere and with any error.
    """
    try:
        if warnings.filters[:1] == [_SILENT]:  # in a block that reads a whole folder
            yield
        else:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of small sins that nearly every scanner commits
                yield
    except ScopeRegError:
        raise
    except Exception as error:
        words = " ".join(str(error).split())[:300] or type(error).__name__
        raise ScopeRegError(f"its header cannot be read: {words}", where=str(path), fix=_GET_AGAIN) from None


def read_dataset(path: Path, *, pixels: bool = True) -> FileDataset:
    """A whole DICOM file, or all before its pixels."""
    with reading(path):
        check_size((path.stat().st_size,), 1, str(path), in_use=False)
        try:
            with path.open("rb", buffering=0) as raw:
                return pydicom.dcmread(_Parts(raw), stop_before_pixels=not pixels)
        except _WholeError:
            return pydicom.dcmread(_inflated(path), stop_before_pixels=not pixels)
        except InvalidDicomError:
            raise ScopeRegError(
                "not a DICOM file: it lacks the mark DICM after 128 bytes",
                where=str(path),
                fix="export it again as a DICOM file (part 10), or convert old files with dcmconv of DCMTK",
            ) from None


class _Parts(BufferedReader):
    """A file that is read in parts of known length: pydicom reads the rest of one at once only to inflate it."""

    def read(self, size: int | None = -1, /) -> bytes:
        if size is None or size < 0:
            raise _WholeError
        return super().read(size)


class _WholeError(Exception):
    pass


def _inflated(path: Path) -> DicomBytesIO:
    """A deflated file as one that is not, if it inflates to no more than the limit: pydicom would take any amount."""
    meta = read_file_meta_info(path)
    if meta.TransferSyntaxUID != DeflatedExplicitVRLittleEndian:
        raise ScopeRegError("it has a part without a length", where=str(path), fix=_GET_AGAIN)
    start = MAGIC_AT + len(MAGIC) + _GROUP_LENGTH_BYTES + int(meta.FileMetaInformationGroupLength)
    stream = zlib.decompressobj(-zlib.MAX_WBITS)
    plain = stream.decompress(path.read_bytes()[start:], largest_bytes() + 1)
    if len(plain) > largest_bytes():
        check_size((len(plain),), 1, str(path), in_use=False)
    if not stream.eof:
        raise ScopeRegError("it is deflated, and cut short", where=str(path), fix=_GET_AGAIN)
    meta.TransferSyntaxUID = ExplicitVRLittleEndian
    whole = DicomBytesIO()
    whole.write(bytes(MAGIC_AT) + MAGIC)
    write_file_meta_info(whole, meta, enforce_standard=False)
    whole.write(plain)
    whole.seek(0)
    return whole


def frame_count(dataset: Dataset) -> int:
    """Frames that the header promises."""
    return max(int(number(dataset, "NumberOfFrames") or 1), 1)


def number(dataset: Dataset, keyword: str) -> float | None:
    """One number of the header, None if it is absent, empty or no number."""
    values = numbers(dataset, keyword, 1)
    return None if values is None else float(values[0])


def numbers(dataset: Dataset, keyword: str, count: int) -> npt.NDArray[np.float64] | None:
    """So many numbers of the header, None if they are absent, empty or not finite."""
    value: Any = dataset.get(keyword)
    if value is None or value == "":
        return None
    items = value if isinstance(value, Sequence) and not isinstance(value, str) else [value]
    try:
        array = np.array([float(item) for item in items])
    except (TypeError, ValueError):
        return None
    return array if len(array) == count and bool(np.isfinite(array).all()) else None


def place_mm(dataset: Dataset, keyword: str) -> npt.NDArray[np.float64] | None:
    """A point x, y, z of the header, None if it is absent, no point or farther away than any room is large."""
    point = numbers(dataset, keyword, 3)
    return point if point is not None and bool(np.abs(point).max() <= MOST_MM) else None


def pixel_spacing_mm(dataset: Dataset) -> tuple[float, float] | None:
    """Pixel size x, y: DICOM stores the distance of rows first, which is y."""
    spacing = numbers(dataset, "PixelSpacing", 2)
    if spacing is None or not SPACINGS_MM[0] <= spacing.min() <= spacing.max() <= SPACINGS_MM[1]:
        return None
    return float(spacing[1]), float(spacing[0])


def identifiers(dataset: Dataset) -> dict[str, str]:
    """Identifiers of the data, for JSON."""
    return {name: str(dataset.get(key)) for name, key in _IDENTIFIERS.items() if dataset.get(key)}
