"""DICOM Spatial Registration objects: the frame registered to the volume's frame of reference.

The matrix of the frame takes points of the frame to the volume's RCS (PS3.3, C.20.2). A frame without a frame of
reference of its own is named by its SOP instance, its mm counted from the centre of its first pixel (PS3.17, O.1),
which is just how scopereg counts them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from pydicom.dataset import Dataset, FileDataset, FileMetaDataset
from pydicom.uid import UID, ExplicitVRLittleEndian, SpatialRegistrationStorage
from pydicom.valuerep import format_number_as_ds

from scopereg import __version__
from scopereg.errors import ScopeRegError
from scopereg.geometry import Pose
from scopereg.images import Frame, Volume
from scopereg.io.dicom.header import MOST_MM, is_dicom, numbers, read_dataset, reading
from scopereg.io.files import atomic_path
from scopereg.io.stored import StoredFrame, StoredVolume, identity

_MATRIX = "FrameOfReferenceTransformationMatrix"
_MATRIX_TYPES = ("RIGID", "RIGID_SCALE", "AFFINE")  # the more general ones may be rigid all the same
_PATIENT = ("PatientName", "PatientID", "PatientBirthDate", "PatientSex")
_STUDY = ("StudyInstanceUID", "StudyDate", "StudyTime", "ReferringPhysicianName", "StudyID", "AccessionNumber")
_BY_IDENTITY = ("125021", "Frame of Reference Identity")
_BY_CONTENT = ("125024", "Image Content-based Alignment")
_IMPLEMENTATION = "scopereg implementation"


def write_spatial_registration(
    pose: Pose, frame: Frame, volume: Volume, path: Path | str, *, made: datetime | None = None
) -> Path:
    """Write a pose as a DICOM Spatial Registration object.

    Patient, study and frames of reference come from the images where they were read from DICOM. What is missing is
    made from the images' content, so that the same images get the same identifiers again: `registration_uids` tells.
    """
    path = Path(path)
    if (pose.source, pose.target) != (frame.frame_of_reference, volume.frame_of_reference):
        raise ScopeRegError(
            f"the pose is {pose.name}, the images are {frame.frame_of_reference} and {volume.frame_of_reference}",
            where="write_spatial_registration(pose)",
            fix="pass the pose of this frame in this volume",
        )
    now = made or datetime.now()
    dataset = _dataset(pose, frame, volume, now, path)
    with atomic_path(path) as temporary:
        dataset.save_as(temporary, enforce_file_format=True)
    return path


def registration_uids(frame: Frame, volume: Volume) -> dict[str, str | None]:
    """Frames of reference that a registration names: taken from the images, or made from their content.

    The frame's is None where the file names it by its SOP instance instead.
    """
    facts = volume.facts if isinstance(volume, StoredVolume) else {}
    own = _own_header(frame)
    uid = None
    if own is None:
        uid = made_uid("frame of reference", identity(frame)["pixels_sha256"])
    elif _has_plane(frame, own):
        uid = str(own.FrameOfReferenceUID)
    target = facts.get("frame_of_reference_uid")
    return {
        "volume": target or made_uid("frame of reference", identity(volume)["pixels_sha256"]),
        "frame": uid,
        "volume_from": "file" if target else "content",
        "frame_from": "content" if own is None else "file",
    }


def read_spatial_registration(path: Path | str, source: str = "Image", target: str = "Volume") -> Pose:
    """The pose of the one registration in the file that is not the identity of the registered frame of reference."""
    path = Path(path)
    dataset = read_dataset(path)
    with reading(path):
        if dataset.get("SOPClassUID") != SpatialRegistrationStorage:
            raise ScopeRegError("it is no spatial registration", where=str(path), fix="pass a DICOM REG object")
        matrix = _only_matrix(dataset, path)
    try:
        return Pose.from_matrix(matrix, source, target)
    except ScopeRegError as error:
        raise ScopeRegError(error.what, where=str(path), fix=error.fix) from None


def _only_matrix(dataset: Dataset, path: Path) -> npt.NDArray[np.float64]:
    """The one matrix of the file that is not that of the registered frame of reference itself."""
    home = dataset.get("FrameOfReferenceUID")
    moved = [item for item in dataset.get("RegistrationSequence") or () if item.get("FrameOfReferenceUID") != home]
    if len(moved) != 1:
        raise ScopeRegError(
            f"it registers {len(moved)} images or frames of reference", where=str(path), fix="pass one with just one"
        )
    registrations = moved[0].get("MatrixRegistrationSequence") or ()
    steps = [step for registration in registrations for step in registration.get("MatrixSequence") or ()]
    matrix = numbers(steps[0], _MATRIX, 16) if len(steps) == 1 else None
    if matrix is None or np.abs(matrix).max() > MOST_MM:
        raise ScopeRegError(
            f"it holds {len(steps)} matrices, or one that is not 16 numbers", where=str(path), fix="pass one with one"
        )
    kind = str(steps[0].get(f"{_MATRIX}Type") or "")
    if kind not in _MATRIX_TYPES:
        raise ScopeRegError(f"its matrix is of the type {kind[:40]!r}", where=str(path), fix="pass a rigid one")
    return matrix.reshape(4, 4)


def made_uid(*words: str) -> str:
    """An identifier that depends on the words alone (PS3.5, B.2: 2.25 and 128 bits as a number)."""
    digest = hashlib.sha256("\n".join(("scopereg", *words)).encode()).digest()
    return f"2.25.{int.from_bytes(digest[:16], 'big')}"


def _dataset(pose: Pose, frame: Frame, volume: Volume, now: datetime, path: Path) -> FileDataset:
    own, other = _own_header(frame), _own_header(volume)
    uids = registration_uids(frame, volume)
    content = [str(uids), repr(pose.matrix.tolist()), now.isoformat(), identity(frame)["pixels_sha256"]]
    instance = made_uid("instance", *content)
    meta = FileMetaDataset()
    meta.MediaStorageSOPClassUID = SpatialRegistrationStorage
    meta.MediaStorageSOPInstanceUID = UID(instance)
    meta.TransferSyntaxUID = ExplicitVRLittleEndian
    meta.ImplementationClassUID = UID(made_uid(_IMPLEMENTATION))
    dataset = FileDataset(str(path), {}, file_meta=meta, preamble=b"\0" * 128)
    dataset.SOPClassUID, dataset.SOPInstanceUID = SpatialRegistrationStorage, instance
    dataset.SpecificCharacterSet = "ISO_IR 192"
    _add_patient_and_study(dataset, own, other, content, path)
    dataset.Modality = "REG"
    dataset.SeriesInstanceUID = made_uid("series", *content)
    dataset.SeriesNumber = None
    dataset.SeriesDescription = "scopereg: frame to volume"
    dataset.FrameOfReferenceUID = uids["volume"]
    dataset.PositionReferenceIndicator = ""
    dataset.Manufacturer, dataset.ManufacturerModelName, dataset.SoftwareVersions = "", "scopereg", __version__
    dataset.InstanceNumber = 1
    dataset.ContentDate, dataset.ContentTime = now.strftime("%Y%m%d"), now.strftime("%H%M%S")
    dataset.ContentLabel, dataset.ContentDescription, dataset.ContentCreatorName = "REGISTRATION", pose.name, ""
    dataset.RegistrationSequence = [
        _item(np.eye(4), _BY_IDENTITY, uid=uids["volume"]),
        _item(_frame_matrix(pose, frame, uids["frame"], own), _BY_CONTENT, uid=uids["frame"], image=own, frame=frame),
    ]
    if own is not None:
        _add_references(dataset, own, frame)
    return dataset


def _own_header(image: Frame | Volume) -> FileDataset | None:
    """The header of the DICOM file that an image was read from; of a series, of one of its files."""
    if not isinstance(image, StoredFrame | StoredVolume) or "study_instance_uid" not in image.facts:
        return None
    path = image.path
    if path.is_dir():
        wanted = image.facts.get("series_instance_uid")
        headers = (read_dataset(file, pixels=False) for file in sorted(path.iterdir()) if is_dicom(file))
        return next((header for header in headers if str(header.get("SeriesInstanceUID")) == wanted), None)
    return read_dataset(path, pixels=False) if is_dicom(path) else None


def _has_plane(frame: Frame, header: Dataset) -> bool:
    return isinstance(frame, StoredFrame) and frame.pose is not None and bool(header.get("FrameOfReferenceUID"))


def _frame_matrix(pose: Pose, frame: Frame, uid: str | None, header: Dataset | None) -> npt.NDArray[np.float64]:
    """From the frame's mm or, where its header places it in a frame of reference, from there."""
    if uid is not None and header is not None and isinstance(frame, StoredFrame) and frame.pose is not None:
        return (pose @ frame.pose.inverse()).matrix
    return pose.matrix


def _add_patient_and_study(
    dataset: Dataset, own: Dataset | None, other: Dataset | None, content: Sequence[str], path: Path
) -> None:
    """Patient and study of the frame, else of the volume; type 2 attributes stay empty without either."""
    known = [header for header in (own, other) if header is not None]
    patients = {str(header.get("PatientID")) for header in known if header.get("PatientID")}
    if len(patients) > 1:
        raise ScopeRegError(
            "frame and volume belong to patients with different identifiers",
            where=str(path),
            fix="check the files; write .tfm or .json if they are the same patient all the same",
        )
    for keyword in (*_PATIENT, *_STUDY):
        setattr(dataset, keyword, known[0].get(keyword, "") if known else "")
    if not dataset.StudyInstanceUID:
        dataset.StudyInstanceUID = made_uid("study", *content)


def _item(
    matrix: npt.NDArray[np.float64],
    how: tuple[str, str],
    *,
    uid: str | None,
    image: Dataset | None = None,
    frame: Frame | None = None,
) -> Dataset:
    item = Dataset()
    if uid is not None:
        item.FrameOfReferenceUID = uid
    if image is not None and frame is not None:
        item.ReferencedImageSequence = [_reference(image, frame)]
    code = Dataset()
    code.CodeValue, code.CodingSchemeDesignator, code.CodeMeaning = how[0], "DCM", how[1]
    step = Dataset()
    step.FrameOfReferenceTransformationMatrix = [format_number_as_ds(float(number) + 0.0) for number in matrix.ravel()]
    step.FrameOfReferenceTransformationMatrixType = "RIGID"
    registration = Dataset()
    registration.RegistrationTypeCodeSequence = [code]
    registration.MatrixSequence = [step]
    item.MatrixRegistrationSequence = [registration]
    return item


def _reference(image: Dataset, frame: Frame) -> Dataset:
    entry = Dataset()
    entry.ReferencedSOPClassUID, entry.ReferencedSOPInstanceUID = image.SOPClassUID, image.SOPInstanceUID
    facts: dict[str, Any] = frame.facts if isinstance(frame, StoredFrame) else {}
    if facts.get("frames_in_file", 1) > 1:
        entry.ReferencedFrameNumber = facts["index"] + 1  # DICOM counts frames from 1
    return entry


def _add_references(dataset: Dataset, image: Dataset, frame: Frame) -> None:
    """The Common Instance Reference module: where the referenced image is to be found."""
    series = Dataset()
    series.SeriesInstanceUID = image.SeriesInstanceUID
    plain = _reference(image, frame)
    if "ReferencedFrameNumber" in plain:
        del plain.ReferencedFrameNumber
    series.ReferencedInstanceSequence = [plain]
    dataset.ReferencedSeriesSequence = [series]
