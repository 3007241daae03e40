"""A tree of files laid out as CAMUS is, and the set that is made of it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydicom.dataset import FileDataset, FileMetaDataset
from pydicom.uid import ExplicitVRLittleEndian, MRImageStorage

from scopereg.data.builder import build_set

sys.path.append(str(Path(__file__).parent))  # camus_trees.py, which is no test
from camus_trees import plan, write_tree


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tree(tmp_path_factory.mktemp("camus"))


@pytest.fixture(scope="module")
def whole(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The set of the tree, made in one go."""
    folder = tmp_path_factory.mktemp("whole")
    build_set(plan(tree), folder)
    return folder


@pytest.fixture
def write_series() -> Callable[..., np.ndarray]:
    """Writes eight DICOM slices, 1 mm apart, into a folder and gives their voxels (8, 24, 32).

    Tags of a slice may differ; None for a tag or for a slice leaves it out.
    """

    def write(folder: Path, changes: dict[int, dict[str, Any] | None] | None = None) -> np.ndarray:
        voxels = np.random.default_rng(len(folder.name)).integers(0, 256, (8, 24, 32)).astype(np.uint8)
        folder.mkdir(exist_ok=True)
        for z, plane in enumerate(voxels):
            change = (changes or {}).get(z, {})
            if change is not None:
                _slice(plane, z, change).save_as(folder / f"slice{z}.dcm", enforce_file_format=True)
        return voxels

    return write


def _slice(plane: np.ndarray, z: int, change: dict[str, Any]) -> FileDataset:
    meta = FileMetaDataset()
    meta.TransferSyntaxUID = ExplicitVRLittleEndian
    made = FileDataset("", {}, file_meta=meta, preamble=b"\0" * 128)
    place = {"ImagePositionPatient": [0, 0, z], "ImageOrientationPatient": [1, 0, 0, 0, 1, 0], "PixelSpacing": [1, 1]}
    named = {"SOPClassUID": MRImageStorage, "SOPInstanceUID": f"1.2.3.{z + 1}", "PatientID": "P1", "Modality": "MR"}
    grid = {"Rows": plane.shape[0], "Columns": plane.shape[1], "SamplesPerPixel": 1, "PixelRepresentation": 0}
    coding = {"BitsAllocated": 8, "BitsStored": 8, "HighBit": 7, "PhotometricInterpretation": "MONOCHROME2"}
    series = {"StudyInstanceUID": "1.2", "SeriesInstanceUID": "1.2.3", "InstanceNumber": z}
    for name, value in {**place, **named, **grid, **coding, **series, **change}.items():
        if value is not None:
            setattr(made, name, value)
    made.PixelData = plane.tobytes()
    made["PixelData"].VR = "OB"
    return made
