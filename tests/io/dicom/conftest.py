"""DICOM files made on the spot."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydicom.dataset import Dataset, FileDataset, FileMetaDataset
from pydicom.uid import ExplicitVRLittleEndian, UltrasoundMultiFrameImageStorage

MakeDicom = Callable[..., FileDataset]


def region(
    box: tuple[int, int, int, int], delta_cm: float = 0.02, *, kind: int = 1, spatial: int = 1, units: int = 3
) -> Dataset:
    item = Dataset()
    item.RegionSpatialFormat, item.RegionDataType, item.RegionFlags = spatial, kind, 0
    item.RegionLocationMinX0, item.RegionLocationMinY0, item.RegionLocationMaxX1, item.RegionLocationMaxY1 = box
    item.PhysicalUnitsXDirection = item.PhysicalUnitsYDirection = units
    item.PhysicalDeltaX, item.PhysicalDeltaY = delta_cm, delta_cm / 2
    return item


def dataset(pixels: np.ndarray, *, regions: list[Dataset] | None = None, **tags: Any) -> FileDataset:
    """An ultrasound image of pixels (H, W) or (F, H, W), colours last if there are any (SamplesPerPixel=3)."""
    meta = FileMetaDataset()
    meta.TransferSyntaxUID = ExplicitVRLittleEndian
    made = FileDataset("", {}, file_meta=meta, preamble=b"\0" * 128)
    made.SOPClassUID = tags.pop("SOPClassUID", UltrasoundMultiFrameImageStorage)
    made.SOPInstanceUID = tags.pop("SOPInstanceUID", "1.2.3.4")
    made.StudyInstanceUID, made.SeriesInstanceUID, made.Modality = "1.2.3", "1.2.3.1", "US"
    made.PatientName, made.PatientID = "Someone^Secret", "P1"
    samples = tags.get("SamplesPerPixel", 1)
    planes = pixels if pixels.ndim == (3 if samples == 1 else 4) else pixels[None]
    made.NumberOfFrames, made.Rows, made.Columns = planes.shape[:3]
    bits = 8 * pixels.dtype.itemsize
    made.BitsAllocated, made.BitsStored, made.HighBit = bits, bits, bits - 1
    made.SamplesPerPixel, made.PhotometricInterpretation = 1, "MONOCHROME2"
    made.PixelRepresentation = int(pixels.dtype.kind == "i")
    if regions:
        made.SequenceOfUltrasoundRegions = regions
    made.PixelData = planes.tobytes()
    made["PixelData"].VR = "OW" if bits > 8 else "OB"
    for name, value in tags.items():
        setattr(made, name, value)
    if made.NumberOfFrames == 1:
        del made.NumberOfFrames
    return made


@pytest.fixture
def make_dicom() -> MakeDicom:
    return dataset


@pytest.fixture
def make_region() -> Callable[..., Dataset]:
    return region


@pytest.fixture
def saved(tmp_path: Path) -> Callable[..., Path]:
    def save(made: FileDataset, name: str = "a.dcm") -> Path:
        made.save_as(tmp_path / name, enforce_file_format=True)
        return tmp_path / name

    return save
