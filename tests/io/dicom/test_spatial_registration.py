"""Spatial Registration objects: what the standard requires is there, the right way round, with the images' names."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pydicom
import pytest
import torch
from pydicom.uid import UID, CTImageStorage, SpatialRegistrationStorage

from scopereg.errors import ScopeRegError
from scopereg.geometry import Pose
from scopereg.images import Frame, Volume
from scopereg.io import read_frame, read_pose, read_volume, write_pose
from scopereg.io.dicom.spatial_registration import made_uid, registration_uids, write_spatial_registration

Make = Callable[..., Any]
POSE = Pose.from_euler_deg((12, -34, 56), (7.5, -8.25, 9.125))
IMAGES = np.random.default_rng(0).integers(0, 256, (3, 12, 16)).astype(np.uint8)
FRAME = Frame(torch.rand(6, 8, generator=torch.Generator().manual_seed(0)), spacing_mm=0.5)
VOLUME = Volume(torch.rand(4, 6, 8, generator=torch.Generator().manual_seed(1)), spacing_mm=0.5)
MADE = datetime(2026, 1, 2, 3, 4, 5)
# PS3.3, A.39.1: attributes of type 1 must have a value, those of type 2 must be there.
TYPE_1 = [
    "SOPClassUID",
    "SOPInstanceUID",
    "StudyInstanceUID",
    "SeriesInstanceUID",
    "Modality",
    "FrameOfReferenceUID",
    "ContentDate",
    "ContentTime",
    "InstanceNumber",
    "ContentLabel",
    "RegistrationSequence",
]
TYPE_2 = [
    "PatientName",
    "PatientID",
    "PatientBirthDate",
    "PatientSex",
    "StudyDate",
    "StudyTime",
    "ReferringPhysicianName",
    "StudyID",
    "AccessionNumber",
    "SeriesNumber",
    "PositionReferenceIndicator",
    "Manufacturer",
    "ContentDescription",
    "ContentCreatorName",
]


def matrix_of(item: pydicom.Dataset) -> np.ndarray:
    (registration,) = item.MatrixRegistrationSequence
    (step,) = registration.MatrixSequence
    assert step.FrameOfReferenceTransformationMatrixType == "RIGID"
    (code,) = registration.RegistrationTypeCodeSequence
    assert code.CodingSchemeDesignator == "DCM"
    assert all(len(str(number)) <= 16 for number in step.FrameOfReferenceTransformationMatrix)
    return np.array(step.FrameOfReferenceTransformationMatrix, float).reshape(4, 4)


@pytest.fixture
def images(make_dicom: Make, saved: Make, tmp_path: Path) -> tuple[Path, Path]:
    """A cine and the folder of a series of the same patient."""
    cine = saved(make_dicom(IMAGES, StudyDate="20260101", PixelSpacing=[0.4, 0.4]), "cine.dcm")
    folder = tmp_path / "series"
    folder.mkdir()
    for z, plane in enumerate(IMAGES):
        made = make_dicom(
            plane,
            SOPClassUID=CTImageStorage,
            SOPInstanceUID=f"1.2.4.{z}",
            SeriesInstanceUID="1.2.4",
            FrameOfReferenceUID="1.2.9",
            PixelSpacing=[0.5, 0.5],
            ImagePositionPatient=[0, 0, z],
            ImageOrientationPatient=[1, 0, 0, 0, 1, 0],
        )
        made.save_as(folder / f"{z}.dcm", enforce_file_format=True)
    return cine, folder


def test_the_object_has_what_the_standard_requires(tmp_path: Path) -> None:
    path = write_spatial_registration(POSE, FRAME, VOLUME, tmp_path / "a.dcm", made=MADE)
    made = pydicom.dcmread(path)
    assert made.SOPClassUID == made.file_meta.MediaStorageSOPClassUID == SpatialRegistrationStorage
    assert made.SOPInstanceUID == made.file_meta.MediaStorageSOPInstanceUID
    assert (made.Modality, made.ContentDate, made.ContentTime) == ("REG", "20260102", "030405")
    assert [name for name in TYPE_1 if not made.get(name)] == []
    assert [name for name in TYPE_2 if name not in made] == []
    uids = [made.SOPInstanceUID, made.StudyInstanceUID, made.SeriesInstanceUID, made.FrameOfReferenceUID]
    assert len(set(uids)) == 4
    assert all(UID(uid).is_valid and len(uid) <= 64 for uid in uids)


def test_the_matrix_takes_the_frame_to_the_volume(tmp_path: Path) -> None:
    path = write_pose(POSE, tmp_path / "a.dcm", frame=FRAME, volume=VOLUME)
    made = pydicom.dcmread(path)
    volume, frame = made.RegistrationSequence
    uids = registration_uids(FRAME, VOLUME)
    assert volume.FrameOfReferenceUID == made.FrameOfReferenceUID == uids["volume"]
    assert frame.FrameOfReferenceUID == uids["frame"] != uids["volume"]
    assert np.array_equal(matrix_of(volume), np.eye(4))
    assert np.allclose(matrix_of(frame), POSE.matrix, atol=1e-12)
    assert read_pose(path).is_close(POSE)


def test_patient_study_and_references_come_from_the_files(images: tuple[Path, Path], tmp_path: Path) -> None:
    cine, folder = images
    frame, volume = read_frame(cine, index=1), read_volume(folder)
    made = pydicom.dcmread(write_pose(POSE, tmp_path / "a.dcm", frame=frame, volume=volume))
    assert (made.PatientName, made.PatientID, made.StudyDate) == ("Someone^Secret", "P1", "20260101")
    assert made.StudyInstanceUID == "1.2.3"
    assert made.FrameOfReferenceUID == "1.2.9"
    item = made.RegistrationSequence[1]
    assert "FrameOfReferenceUID" not in item  # the frame has none: it is named by itself
    (reference,) = item.ReferencedImageSequence
    assert reference.ReferencedSOPInstanceUID == "1.2.3.4"
    assert reference.ReferencedFrameNumber == 2
    (series,) = made.ReferencedSeriesSequence
    assert series.SeriesInstanceUID == "1.2.3.1"
    assert series.ReferencedInstanceSequence[0].ReferencedSOPInstanceUID == "1.2.3.4"
    assert np.allclose(matrix_of(item), POSE.matrix)
    assert registration_uids(frame, volume) == {
        "volume": "1.2.9",
        "frame": None,
        "volume_from": "file",
        "frame_from": "file",
    }
    assert read_pose(tmp_path / "a.dcm").is_close(POSE)


def test_a_frame_that_its_header_places_moves_from_there(make_dicom: Make, saved: Make, tmp_path: Path) -> None:
    plane = {
        "ImagePositionPatient": [1, 2, 3],
        "ImageOrientationPatient": [0, 1, 0, 0, 0, -1],
        "FrameOfReferenceUID": "1.2.5",
    }
    frame = read_frame(saved(make_dicom(IMAGES[0], PixelSpacing=[0.4, 0.4], **plane)))
    made = pydicom.dcmread(write_pose(POSE, tmp_path / "r.dcm", frame=frame, volume=VOLUME))
    item = made.RegistrationSequence[1]
    assert item.FrameOfReferenceUID == "1.2.5"
    assert frame.pose is not None
    point = np.array([3.0, 4.0, 0.0])
    in_patient = frame.pose.apply(point)
    assert np.allclose((matrix_of(item) @ [*in_patient, 1])[:3], POSE.apply(point))


def test_identifiers_depend_on_the_images_alone(tmp_path: Path) -> None:
    first, again = (registration_uids(FRAME, VOLUME) for _ in range(2))
    assert first == again
    assert first["volume_from"] == first["frame_from"] == "content"
    other = registration_uids(Frame(FRAME.array * 0.5, spacing_mm=0.5), VOLUME)
    assert (other["volume"], other["frame"] != first["frame"]) == (first["volume"], True)
    files = [write_spatial_registration(POSE, FRAME, VOLUME, tmp_path / f"{n}.dcm", made=MADE) for n in "ab"]
    assert files[0].read_bytes() == files[1].read_bytes()
    later = pydicom.dcmread(write_spatial_registration(POSE, FRAME, VOLUME, tmp_path / "c.dcm"))
    assert later.SOPInstanceUID != pydicom.dcmread(files[0]).SOPInstanceUID
    assert made_uid("a") != made_uid("b")


def test_bad_input_is_refused(images: tuple[Path, Path], make_dicom: Make, saved: Make, tmp_path: Path) -> None:
    cine, folder = images
    stranger = saved(make_dicom(IMAGES, PatientID="P2", PixelSpacing=[0.4, 0.4]), "other.dcm")
    with pytest.raises(ScopeRegError, match="different identifiers"):
        write_pose(POSE, tmp_path / "a.dcm", frame=read_frame(stranger, index=0), volume=read_volume(folder))
    with pytest.raises(ScopeRegError, match="names its images"):
        write_pose(POSE, tmp_path / "a.dcm")
    with pytest.raises(ScopeRegError, match="VolumeToImage"):
        write_pose(POSE.inverse(), tmp_path / "a.dcm", frame=FRAME, volume=VOLUME)
    assert not (tmp_path / "a.dcm").exists()
    with pytest.raises(ScopeRegError, match="no spatial registration"):
        read_pose(cine)
