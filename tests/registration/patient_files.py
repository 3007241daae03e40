"""A phantom patient as files of every kind that a user may have, made once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch
from pydicom.dataset import Dataset, FileDataset, FileMetaDataset
from pydicom.uid import ExplicitVRLittleEndian, UltrasoundMultiFrameImageStorage

from scopereg import io
from scopereg.data import phantom
from scopereg.geometry import Pose, sample_poses
from scopereg.images import Frame, Volume, pose_from_voxels
from scopereg.io.metaimage import MetaSequence, write_metaimage
from scopereg.io.pictures import grey_pixels, png_bytes
from scopereg.io.volumes import write_labels

COUNT = 4
BORDER = 10  # pixels around the picture of the DICOM files
PROBE = Pose.from_euler_deg((80, -5, 30), (4, -9, 12), "Image", "Probe")


class Case(NamedTuple):
    """A folder with files, and what is in them."""

    folder: Path
    volume: Volume
    frames: list[Frame]  # counted from their first pixel
    truth: list[Pose]

    def error_mm(self, row: int, pose: Pose) -> float:
        """Mean distance of the frame's corners from where they truly lie."""
        x, y = self.frames[row].extent_mm
        corners = np.array([(0, 0, 0), (x, 0, 0), (0, y, 0), (x, y, 0)])
        return float(np.linalg.norm(pose.apply(corners) - self.truth[row].apply(corners), axis=1).mean())


@pytest.fixture(scope="session")
def case(tmp_path_factory: pytest.TempPathFactory) -> Case:
    """frame.png, mask.png, frame.dcm, cine.dcm, scan.igs.mha with scan.xml, frames/, volume.nii.gz, organ.nii.gz."""
    folder = tmp_path_factory.mktemp("patient")
    patient = phantom.create("echo", seed=200_001, shape=(24, 96, 96))
    tilt = Pose.from_euler_deg((5, -3, 20), (0, 0, 0)).rotation
    volume = Volume(patient.volume.array, patient.spacing_mm, (12.0, -34.0, 56.0), tilt)
    drawn = sample_poses(COUNT, 4, patient.shape, torch.Generator().manual_seed(3))
    images = patient.acquire(*drawn, protocol="paper", seed=3).images
    frames = [Frame(image, spacing_mm=patient.spacing_mm, origin_mm=(0, 0)) for image in images]
    truth = [
        pose_from_voxels(drawn.rotation[row], drawn.translation[row], frame, volume) for row, frame in enumerate(frames)
    ]
    io.write_volume(volume, folder / "volume.nii.gz")
    organ = torch.ones(volume.shape, dtype=torch.uint8)
    organ[:, :16] = 0
    write_labels(replace(volume, labels=organ), folder / "organ.nii.gz")
    pixels = np.stack([grey_pixels(image) for image in images])
    (folder / "frames").mkdir()
    for row, image in enumerate(pixels):
        (folder / "frames" / f"view{row}.png").write_bytes(png_bytes(image))
    (folder / "frame.png").write_bytes(png_bytes(pixels[0]))
    drawn_mask = np.full((96, 96), 255, np.uint8)
    drawn_mask[:, 80:] = 0
    (folder / "mask.png").write_bytes(png_bytes(drawn_mask))
    write_dicom(pixels[:1], patient.spacing_mm, folder / "frame.dcm")
    write_dicom(pixels, patient.spacing_mm, folder / "cine.dcm")
    write_tracked(pixels, patient.spacing_mm, truth, folder)
    return Case(folder, volume, frames, truth)


def write_dicom(pixels: np.ndarray, spacing_mm: float, path: Path) -> Path:
    """An ultrasound image or cine (F, H, W) whose picture is a region within a border."""
    screen = np.pad(pixels, ((0, 0), (BORDER, BORDER), (BORDER, BORDER)))
    meta = FileMetaDataset()
    meta.TransferSyntaxUID = ExplicitVRLittleEndian
    made = FileDataset("", {}, file_meta=meta, preamble=b"\0" * 128)
    made.SOPClassUID, made.SOPInstanceUID = UltrasoundMultiFrameImageStorage, "1.2.3.4"
    made.StudyInstanceUID, made.SeriesInstanceUID, made.Modality = "1.2.3", "1.2.3.1", "US"
    made.PatientName, made.PatientID = "Someone^Secret", "P1"
    made.NumberOfFrames, made.Rows, made.Columns = screen.shape
    made.BitsAllocated, made.BitsStored, made.HighBit, made.PixelRepresentation = 8, 8, 7, 0
    made.SamplesPerPixel, made.PhotometricInterpretation = 1, "MONOCHROME2"
    item = Dataset()
    item.RegionSpatialFormat, item.RegionDataType, item.RegionFlags = 1, 1, 0
    item.RegionLocationMinX0 = item.RegionLocationMinY0 = BORDER
    item.RegionLocationMaxX1, item.RegionLocationMaxY1 = (BORDER + size - 1 for size in pixels.shape[:0:-1])
    item.PhysicalUnitsXDirection = item.PhysicalUnitsYDirection = 3
    item.PhysicalDeltaX = item.PhysicalDeltaY = spacing_mm / 10
    made.SequenceOfUltrasoundRegions = [item]
    made.PixelData = screen.tobytes()
    made["PixelData"].VR = "OB"
    made.save_as(path, enforce_file_format=True)
    return path


def write_tracked(pixels: np.ndarray, spacing_mm: float, truth: list[Pose], folder: Path) -> None:
    """A sequence that a tracker placed 2 mm beside the truth; the world is the volume's. The last frame is lost."""
    size = np.diag([spacing_mm, spacing_mm, spacing_mm, 1.0])
    off = Pose.from_euler_deg((0, 0, 0), (1.2, -1.2, 1.0), "Volume", "Volume")
    fields = []
    for row, pose in enumerate(truth):
        tracked = Pose.from_matrix((off @ pose @ PROBE.inverse()).matrix, "Probe", "Reference")
        text = " ".join(f"{number:.15g}" for number in tracked.matrix.ravel())
        state = "OK" if row < len(truth) - 1 else "INVALID"
        own = {"ProbeToReferenceTransform": text, "ProbeToReferenceTransformStatus": state}
        fields.append(own | {"Timestamp": f"{row / 10}", "ImageStatus": "OK"})
    write_metaimage(MetaSequence({"UltrasoundImageOrientation": "MF"}, fields, pixels), folder / "scan.igs.mha")
    words = " ".join(f"{number:.15g}" for number in (PROBE.matrix @ size).ravel())
    entry = f'<Transform From="Image" To="Probe" Matrix="{words}"/>'
    (folder / "scan.xml").write_text(f"<PlusConfiguration>{entry}</PlusConfiguration>")
