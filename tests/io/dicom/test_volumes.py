"""Volumes of DICOM: slices in their places whatever the files are called, and nothing made up where some are wrong."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import SimpleITK as sitk
from pydicom.dataset import Dataset
from pydicom.uid import CTImageStorage, EnhancedUSVolumeStorage, RLELossless

from scopereg.errors import ScopeRegError
from scopereg.geometry import Pose
from scopereg.io import read_volume
from scopereg.io.stored import is_anatomical

Make = Callable[..., Any]
VOXELS = np.random.default_rng(0).integers(0, 4000, (6, 8, 10)).astype(np.uint16)  # (z, y, x)
AXES = Pose.from_euler_deg((20, -30, 40), (0, 0, 0)).rotation
ORIGIN = np.array([5.0, -6.0, 7.0])
SPACING = (0.5, 0.7, 1.25)  # x, y, z


def slice_tags(z: float, axes: np.ndarray = AXES) -> dict[str, Any]:
    return {
        "ImagePositionPatient": [float(f"{v:.5f}") for v in ORIGIN + axes[:, 2] * z * SPACING[2]],
        "ImageOrientationPatient": [float(f"{v:.6f}") for v in (*axes[:, 0], *axes[:, 1])],
        "PixelSpacing": [SPACING[1], SPACING[0]],
        "FrameOfReferenceUID": "1.2.3.9",
        "SOPClassUID": CTImageStorage,
    }


@pytest.fixture
def series(make_dicom: Make, tmp_path: Path) -> Callable[..., Path]:
    """Writes a series, its names out of order; tags by slice may differ, None leaves a slice out."""

    def write(changes: dict[int, dict[str, Any] | None] | None = None, folder: str = "series") -> Path:
        changes = changes or {}
        (tmp_path / folder).mkdir(exist_ok=True)
        for z, plane in enumerate(VOXELS):
            change = changes.get(z, {})
            if change is not None:
                tags = {**slice_tags(z), "SOPInstanceUID": f"1.2.3.{z + 10}", "InstanceNumber": z, **change}
                made = make_dicom(tags.pop("pixels", plane), **tags)
                made.save_as(tmp_path / folder / f"IM{(z * 5 + 2) % 7}", enforce_file_format=True)
        return tmp_path / folder

    return write


def test_a_series_is_sorted_by_place(series: Make) -> None:
    folder = series()
    (folder / "notes.txt").write_text("not an image")
    volume = read_volume(folder)
    assert np.array_equal(volume.numpy(), VOXELS)
    assert volume.spacing_mm == pytest.approx(SPACING, abs=1e-4)
    assert np.allclose(volume.origin_mm, ORIGIN, atol=1e-4)
    assert np.allclose(volume.direction, AXES, atol=1e-5)
    assert volume.facts["frame_of_reference_uid"] == "1.2.3.9"
    assert volume.facts["slices"] == 6


def test_it_is_the_volume_that_itk_reads(series: Make) -> None:
    folder = series()
    image = sitk.ReadImage(sitk.ImageSeriesReader.GetGDCMSeriesFileNames(str(folder)))
    volume = read_volume(folder)
    assert np.array_equal(sitk.GetArrayFromImage(image), volume.numpy())
    assert np.allclose(image.GetOrigin(), volume.origin_mm)
    assert np.allclose(np.reshape(image.GetDirection(), (3, 3)), volume.direction, atol=1e-5)
    assert np.allclose(image.GetSpacing(), volume.spacing_mm, atol=1e-4)


def test_slices_that_run_backwards_give_right_handed_axes(make_dicom: Make, tmp_path: Path) -> None:
    for z, plane in enumerate(VOXELS):
        make_dicom(plane, **slice_tags(-z)).save_as(tmp_path / f"{z}.dcm", enforce_file_format=True)
    volume = read_volume(tmp_path)
    assert np.array_equal(volume.numpy(), VOXELS[::-1])
    assert np.linalg.det(volume.direction) == pytest.approx(1)
    assert np.allclose(volume.origin_mm, ORIGIN - 5 * SPACING[2] * AXES[:, 2], atol=1e-4)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({3: None}, "missing or uneven"),
        ({3: slice_tags(2.0)}, "another one does"),
        ({3: slice_tags(3.2)}, "missing or uneven"),
        ({2: {"ImageOrientationPatient": [1, 0, 0, 0, 1, 0]}}, "not parallel"),
        ({2: {"PixelSpacing": [1, 1]}}, "differ in size or spacing"),
        ({2: {"pixels": VOXELS[2, :, :5]}}, "differ in size or spacing"),
        ({2: {"SeriesInstanceUID": "1.2.3.2"}}, "2 series"),
        ({2: {"PatientID": "P2"}}, "different patients"),
        ({2: {"PatientName": "Other^Secret"}}, "different patients"),
        ({2: {"StudyInstanceUID": "1.2.4"}}, "different studies"),
        ({2: {"FrameOfReferenceUID": "1.2.3.8"}}, "different frames of reference"),
        ({2: {"ImagePositionPatient": None}}, "does not tell its place"),
        ({2: {"pixels": VOXELS[:2]}}, "2 frames among slices"),
        (dict.fromkeys(range(1, 6)), "single slice"),
    ],
)
def test_series_with_wrong_slices_are_refused(series: Make, changes: dict[int, Any], reason: str) -> None:
    with pytest.raises(ScopeRegError, match=reason) as caught:
        read_volume(series(changes))
    assert "Secret" not in str(caught.value)


def test_a_tilted_gantry_is_a_sheared_volume(series: Make) -> None:
    drift = {z: {"ImagePositionPatient": list(ORIGIN + z * (AXES[:, 2] + 0.3 * AXES[:, 1]))} for z in range(6)}
    with pytest.raises(ScopeRegError, match="sheared"):
        read_volume(series(drift))


def test_one_of_several_series_can_be_chosen(series: Make) -> None:
    folder = series({z: {"SeriesInstanceUID": "1.2.3.7"} for z in range(6)}, "both")
    for path in series().iterdir():
        path.rename(folder / f"other-{path.name}")
    with pytest.raises(ScopeRegError, match=r"2 series: 1\.2\.3\.7 \(6 files") as caught:
        read_volume(folder)
    assert "series=" in caught.value.fix
    assert read_volume(folder, series="1.2.3.7").facts["series_instance_uid"] == "1.2.3.7"
    with pytest.raises(ScopeRegError, match="0 series fit"):
        read_volume(folder, series="9")


def test_slope_and_intercept_may_differ_from_slice_to_slice(series: Make) -> None:
    volume = read_volume(series({z: {"RescaleSlope": z + 0.5, "RescaleIntercept": -1000} for z in range(6)}))
    slopes = np.arange(6)[:, None, None] + 0.5
    assert np.allclose(volume.numpy(), VOXELS * slopes - 1000)


def test_other_folders_and_files_are_refused(tmp_path: Path, make_dicom: Make) -> None:
    with pytest.raises(ScopeRegError, match="no DICOM files"):
        read_volume(tmp_path)
    (tmp_path / "b.nii.gz").touch()
    with pytest.raises(ScopeRegError, match="no DICOM files") as caught:
        read_volume(tmp_path)
    assert f"pass one volume: {tmp_path / 'b.nii.gz'}" in caught.value.fix
    make_dicom(VOXELS[0], **slice_tags(0)).save_as(tmp_path / "one.dcm", enforce_file_format=True)
    with pytest.raises(ScopeRegError, match="single image") as caught:
        read_volume(tmp_path / "one.dcm")
    assert "folder" in caught.value.fix
    make_dicom(VOXELS).save_as(tmp_path / "cine.dcm", enforce_file_format=True)
    with pytest.raises(ScopeRegError, match="6 frames do not tell their planes"):
        read_volume(tmp_path / "cine.dcm")
    with pytest.raises(ScopeRegError, match="DICOM states"):
        read_volume(tmp_path / "cine.dcm", spacing_mm=1)


def enhanced(make_dicom: Make, voxels: np.ndarray, order: list[int], kind: str, times: list[int]) -> Any:
    """A multi-frame file whose frames hold slices in any order, placed in the patient or in the scanner's volume."""
    ending, group = ("Patient", "") if kind == "patient" else ("Volume", "Volume")

    def item(**tags: Any) -> Dataset:
        made = Dataset()
        for name, value in tags.items():
            setattr(made, name, value)
        return made

    tags = slice_tags(0)
    shared = item(PixelMeasuresSequence=[item(PixelSpacing=tags["PixelSpacing"])])
    setattr(
        shared,
        f"PlaneOrientation{group}Sequence",
        [item(**{f"ImageOrientation{ending}": tags["ImageOrientationPatient"]})],
    )
    frames = []
    for time in times:
        for z in order:
            place = item(**{f"ImagePosition{ending}": slice_tags(z)["ImagePositionPatient"]})
            frame = item(**{f"PlanePosition{group}Sequence": [place]})
            frame.TemporalPositionSequence = [item(TemporalPositionTimeOffset=float(time))]
            frames.append(frame)
    pixels = np.concatenate([voxels[order] + time for time in times])
    made = make_dicom(pixels, SOPClassUID=EnhancedUSVolumeStorage, VolumeFrameOfReferenceUID="1.2.3.8")
    made.SharedFunctionalGroupsSequence = [shared]
    made.PerFrameFunctionalGroupsSequence = frames
    return made


@pytest.mark.parametrize("kind", ["patient", "volume"])
@pytest.mark.parametrize("compressed", [False, True])
def test_an_enhanced_file_is_a_volume(make_dicom: Make, saved: Make, kind: str, compressed: bool) -> None:
    made = enhanced(make_dicom, VOXELS, [3, 0, 5, 1, 2, 4], kind, [0])
    if compressed:
        made.compress(RLELossless)
    path = saved(made)
    volume = read_volume(path)
    assert np.array_equal(volume.numpy(), VOXELS)
    assert volume.spacing_mm == pytest.approx(SPACING, abs=1e-4)
    assert np.allclose(volume.direction, AXES, atol=1e-5)
    assert volume.facts["frame_of_reference_uid"] == "1.2.3.8"
    assert is_anatomical(volume) == (kind == "patient")  # the other lies in the scanner's volume
    assert np.array_equal(read_volume(path.parent).numpy(), VOXELS)  # the folder with this file alone


def test_points_in_time_are_chosen(make_dicom: Make, saved: Make) -> None:
    path = saved(enhanced(make_dicom, VOXELS, [1, 0, 2, 3, 4, 5], "volume", [0, 30]))
    assert np.array_equal(read_volume(path, index=1).numpy(), VOXELS + 30)
    for index in (None, 2):
        with pytest.raises(ScopeRegError, match=r"2 volumes|index is 2"):
            read_volume(path, index=index)
    twice = saved(enhanced(make_dicom, VOXELS, [1, 1, 2, 3, 4, 5], "volume", [0]))
    with pytest.raises(ScopeRegError, match="frame 0 and frame 1"):
        read_volume(twice)
