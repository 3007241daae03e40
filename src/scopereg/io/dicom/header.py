"""Headers of DICOM files: opened with errors that tell what is wrong, and the identifiers kept with an image."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pydicom
from pydicom.dataset import Dataset, FileDataset
from pydicom.errors import InvalidDicomError

from scopereg.errors import ScopeRegError

DICOM_ENDINGS = (".dcm", ".ima", ".dicom")
MAGIC_AT, MAGIC = 128, b"DICM"
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


def read_dataset(path: Path, *, pixels: bool = True) -> FileDataset:
    """A whole DICOM file, or all before its pixels."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of small sins that nearly every scanner commits
            return pydicom.dcmread(path, stop_before_pixels=not pixels)
    except InvalidDicomError:
        raise ScopeRegError(
            "not a DICOM file: it lacks the mark DICM after 128 bytes",
            where=str(path),
            fix="export it again as a DICOM file (part 10), or convert old files with dcmconv of DCMTK",
        ) from None
    except Exception as error:  # a damaged file fails in any part of pydicom
        raise ScopeRegError(
            f"its header cannot be read: {error}", where=str(path), fix="copy or export the file again"
        ) from None


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


def pixel_spacing_mm(dataset: Dataset) -> tuple[float, float] | None:
    """Pixel size x, y: DICOM stores the distance of rows first, which is y."""
    spacing = numbers(dataset, "PixelSpacing", 2)
    if spacing is None or spacing.min() <= 0:
        return None
    return float(spacing[1]), float(spacing[0])


def identifiers(dataset: Dataset) -> dict[str, str]:
    """Identifiers of the data, for JSON."""
    return {name: str(dataset.get(key)) for name, key in _IDENTIFIERS.items() if dataset.get(key)}
