"""Sweeps from files: PLUS sequences as PLUS reads them, arrays as stored, and errors that say what is missing."""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path

import numpy as np
import pytest
import SimpleITK as sitk
import torch

from scopereg.errors import ScopeRegError
from scopereg.geometry import Pose
from scopereg.io.plus import path_between, take_out_pixel_size
from scopereg.io.sweeps import read_npz_sweep, read_plus_sequence

PLUS = Path(__file__).parents[3] / "shared" / "data" / "plus"
LIVER = PLUS.parent / "liver_sweep.npz"
COUNT, HEIGHT, WIDTH = 5, 12, 16
IMAGES = np.random.default_rng(0).integers(0, 256, (COUNT, HEIGHT, WIDTH)).astype(np.uint8)
PROBE = [Pose.from_euler_deg((10, 20 + k, 5), (1, k, -2), "Probe", "Tracker") for k in range(COUNT)]
REFERENCE = Pose.from_euler_deg((-40, 3, 7), (50, 60, -70), "Reference", "Tracker")
RIGID = Pose.from_euler_deg((80, -5, 30), (4, -9, 12), "Image", "Probe")
PIXEL_MM = (0.2, 0.3)
CALIBRATION = RIGID.matrix @ np.diag([*PIXEL_MM, 0.25, 1])


def words(matrix: np.ndarray) -> str:
    return " ".join(f"{number:.12g}" for number in matrix.ravel())


def write_sequence(
    path: Path,
    images: np.ndarray = IMAGES,
    *,
    compressed: bool = False,
    data: str = "LOCAL",
    fields: dict[str, str] | None = None,
    frame_fields: dict[tuple[int, str], str] | None = None,
) -> Path:
    channels = {"ElementNumberOfChannels": str(images.shape[3])} if images.ndim == 4 else {}
    kinds = {"uint8": "MET_UCHAR", "uint16": "MET_USHORT", "float32": "MET_FLOAT"}
    content = zlib.compress(images.tobytes()) if compressed else images.tobytes()
    header = {
        "ObjectType": "Image",
        "NDims": "3",
        "BinaryData": "True",
        "BinaryDataByteOrderMSB": "False",
        "CompressedData": str(compressed),
        "DimSize": f"{images.shape[2]} {images.shape[1]} {len(images)}   ",
        "ElementType": kinds[images.dtype.name],
        "UltrasoundImageOrientation": "MF",
        **channels,
        **(fields or {}),
    }
    rows = {}
    for k in range(len(images)):
        rows[k, "ProbeToTrackerTransform"] = words(PROBE[k].matrix)
        rows[k, "ProbeToTrackerTransformStatus"] = "OK"
        rows[k, "ReferenceToTrackerTransform"] = words(REFERENCE.matrix)
        rows[k, "ReferenceToTrackerTransformStatus"] = "OK"
        rows[k, "Timestamp"] = str(100 + k)
        rows[k, "ImageStatus"] = "OK"
    rows |= frame_fields or {}
    lines = [f"{name} = {value}" for name, value in header.items() if value]
    lines += [f"Seq_Frame{k:04d}_{name} = {value}" for (k, name), value in rows.items() if value]
    text = "\n".join([*lines, f"ElementDataFile = {data}", ""]).encode()
    path.write_bytes(text + content if data == "LOCAL" else text)
    if data != "LOCAL":
        path.with_name(data).write_bytes(content)
    return path


def write_calibration(path: Path, matrix: np.ndarray = CALIBRATION, clip: str = "") -> Path:
    path.write_text(
        '<PlusConfiguration version="2.1"><CoordinateDefinitions>'
        f'<Transform From="Image" To="Probe"\n Matrix="{words(matrix)}" Error="1.6" />'
        f"</CoordinateDefinitions>{clip}</PlusConfiguration>"
    )
    return path


@pytest.mark.parametrize("compressed", [False, True])
def test_a_sequence_is_placed_as_plus_places_it(tmp_path: Path, compressed: bool) -> None:
    path = write_sequence(tmp_path / "scan.igs.mha", compressed=compressed)
    sweep = read_plus_sequence(path, write_calibration(tmp_path / "c.xml"))
    assert (sweep.name, len(sweep)) == ("scan", COUNT)
    assert np.array_equal(sweep.images.numpy(), IMAGES)
    assert sweep.spacing_mm == pytest.approx(PIXEL_MM)
    assert sweep.facts["way"] == ["ImageToProbe", "ProbeToTracker", "TrackerToReference"]
    assert sweep.facts["calibration_moved_mm"] == pytest.approx(0, abs=1e-3)
    for k in range(COUNT):
        expected = np.linalg.inv(REFERENCE.matrix) @ PROBE[k].matrix @ CALIBRATION @ (5, 7, 0, 1)
        assert np.allclose(sweep.pose(k).apply((5 * 0.2, 7 * 0.3, 0)), expected[:3], atol=1e-6)


def test_the_calibration_may_be_a_matrix_or_lie_in_the_sequence(tmp_path: Path) -> None:
    plain = read_plus_sequence(write_sequence(tmp_path / "a.mha"), CALIBRATION)
    whole = write_sequence(tmp_path / "b.mha", fields={"ImageToProbeTransform": words(CALIBRATION)})
    frames = {(k, "ImageToProbeTransform"): words(CALIBRATION) for k in range(COUNT)}
    for path in (whole, write_sequence(tmp_path / "c.mha", frame_fields=frames)):
        assert np.allclose(read_plus_sequence(path).image_to_world, plain.image_to_world)


def test_without_a_reference_the_world_is_the_tracker(tmp_path: Path) -> None:
    frames = {(k, "ReferenceToTrackerTransform"): "" for k in range(COUNT)}
    path = write_sequence(tmp_path / "a.mha", frame_fields=frames)
    sweep = read_plus_sequence(path, CALIBRATION)
    assert sweep.facts["world"] == "Tracker"
    assert np.allclose(sweep.pose(2).rotation, PROBE[2].rotation @ RIGID.rotation)
    named = read_plus_sequence(write_sequence(tmp_path / "b.mha"), CALIBRATION, world="Tracker")
    assert np.allclose(named.image_to_world, sweep.image_to_world)


def test_a_sequence_without_calibration_is_refused_with_what_it_has(tmp_path: Path) -> None:
    with pytest.raises(ScopeRegError, match=r"no transforms lead from Image .* ProbeToTracker") as caught:
        read_plus_sequence(write_sequence(tmp_path / "a.mha"))
    assert "calibration=" in caught.value.fix


def test_frames_that_are_not_tracked_are_dropped_and_counted(tmp_path: Path) -> None:
    wrong = {
        (1, "ProbeToTrackerTransformStatus"): "INVALID",
        (2, "ImageStatus"): "INVALID",
        (4, "ReferenceToTrackerTransform"): "",
    }
    sweep = read_plus_sequence(write_sequence(tmp_path / "a.mha", frame_fields=wrong), CALIBRATION)
    assert np.array_equal(sweep.images.numpy(), IMAGES[[0, 3]])
    assert np.allclose(sweep.pose(1).rotation, REFERENCE.rotation.T @ PROBE[3].rotation @ RIGID.rotation)
    assert sweep.facts["dropped"] == {
        "ProbeToTrackerTransform INVALID": 1,
        "Image INVALID": 1,
        "ReferenceToTrackerTransform missing": 1,
    }
    wrong = {(k, "ProbeToTrackerTransformStatus"): "INVALID" for k in range(COUNT)}
    with pytest.raises(ScopeRegError, match="none of its 5 frames is tracked"):
        read_plus_sequence(write_sequence(tmp_path / "b.mha", frame_fields=wrong), CALIBRATION)


@pytest.mark.parametrize("letters", ["MF", "MN", "UF", "UN", "FM", "FU", "NM", "NU", "MFA", "UFD", ""])
def test_images_are_turned_to_mf(tmp_path: Path, letters: str) -> None:
    stored = IMAGES
    if "U" in letters:
        stored = stored[:, :, ::-1]
    if "N" in letters:
        stored = stored[:, ::-1]
    if letters[:1] in ("F", "N"):
        stored = stored.transpose(0, 2, 1)
    path = write_sequence(
        tmp_path / "a.mha", np.ascontiguousarray(stored), fields={"UltrasoundImageOrientation": letters}
    )
    assert np.array_equal(read_plus_sequence(path, CALIBRATION).images.numpy(), IMAGES)


@pytest.mark.parametrize("letters", ["XX", "AMF", "MFAB"])
def test_unknown_orientations_are_refused(tmp_path: Path, letters: str) -> None:
    path = write_sequence(tmp_path / "a.mha", fields={"UltrasoundImageOrientation": letters})
    with pytest.raises(ScopeRegError, match="the orientation of its images"):
        read_plus_sequence(path, CALIBRATION)


def test_other_pixels_become_grey(tmp_path: Path) -> None:
    colours = np.repeat(IMAGES[..., None], 3, -1)
    assert np.array_equal(
        read_plus_sequence(write_sequence(tmp_path / "a.mha", colours), CALIBRATION).images.numpy(), IMAGES
    )
    deep = IMAGES.astype(np.uint16) * 16
    values = read_plus_sequence(write_sequence(tmp_path / "b.mha", deep), CALIBRATION).images
    assert torch.allclose(values, torch.from_numpy(IMAGES / IMAGES.max()).float(), atol=1e-6)
    with pytest.raises(ScopeRegError, match="grey values run from -1"):
        read_plus_sequence(write_sequence(tmp_path / "c.mha", IMAGES.astype(np.float32) - 1), CALIBRATION)


def test_pixels_may_lie_in_a_file_of_their_own(tmp_path: Path) -> None:
    one_plane = {"NDims": "4", "DimSize": f"{WIDTH} {HEIGHT} 1 {COUNT}"}
    sweep = read_plus_sequence(write_sequence(tmp_path / "a.mhd", data="a.raw", fields=one_plane), CALIBRATION)
    assert np.array_equal(sweep.images.numpy(), IMAGES)
    (tmp_path / "a.raw").unlink()
    with pytest.raises(ScopeRegError, match="its voxels are missing"):
        read_plus_sequence(tmp_path / "a.mhd", CALIBRATION)


@pytest.mark.parametrize("compressed", [False, True])
def test_files_cut_short_are_refused(tmp_path: Path, compressed: bool) -> None:
    path = write_sequence(tmp_path / "a.mha", compressed=compressed)
    content = path.read_bytes()
    for share in (0.02, 0.5, 0.99):
        path.write_bytes(content[: int(share * len(content))])
        with pytest.raises(ScopeRegError, match=r"not a MetaImage|cut short"):
            read_plus_sequence(path, CALIBRATION)


def test_other_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.mha").write_bytes(b"\x89PNG" + bytes(1000))
    with pytest.raises(ScopeRegError, match="not a MetaImage"):
        read_plus_sequence(tmp_path / "a.mha", CALIBRATION)
    with pytest.raises(ScopeRegError, match="no such file"):
        read_plus_sequence(tmp_path / "b.mha", CALIBRATION)
    good = write_sequence(tmp_path / "c.mha")
    (tmp_path / "c.xml").write_text("<PlusConfiguration")
    with pytest.raises(ScopeRegError, match="cannot be read"):
        read_plus_sequence(good, tmp_path / "c.xml")
    (tmp_path / "c.xml").write_text("<PlusConfiguration />")
    with pytest.raises(ScopeRegError, match="no <Transform"):
        read_plus_sequence(good, tmp_path / "c.xml")


@pytest.mark.parametrize(
    ("matrix", "reason"),
    [
        (RIGID.matrix, "no pixel size"),
        (CALIBRATION @ np.array([[1, 0.3, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]), "not square"),
        (np.full((4, 4), np.nan), "a transform reads"),
    ],
)
def test_calibrations_that_cannot_be_are_refused(tmp_path: Path, matrix: np.ndarray, reason: str) -> None:
    with pytest.raises(ScopeRegError, match=reason):
        read_plus_sequence(write_sequence(tmp_path / "a.mha"), matrix)


def test_a_slightly_skewed_calibration_becomes_the_nearest_rigid_one() -> None:
    skewed = CALIBRATION.copy()
    skewed[:3, 1] += 0.04 * 0.3 * RIGID.rotation[:, 0]
    rigid = take_out_pixel_size(skewed[None], (101, 151), "here")  # 30 x 30 mm
    assert rigid.skew == pytest.approx(0.04, abs=1e-3)
    assert 0.3 < rigid.moved_mm < 0.6
    centre = np.array([75, 50, 0, 1.0])
    assert np.allclose(
        (rigid.image_to_world[0] @ (centre * (*rigid.spacing_mm, 1, 1)))[:3], (skewed @ centre)[:3], atol=1e-6
    )


def test_the_clip_rectangle_of_the_configuration_is_used(tmp_path: Path) -> None:
    clip = '<VolumeReconstruction ClipRectangleOrigin="2 3" ClipRectangleSize="5 6" />'
    sweep = read_plus_sequence(write_sequence(tmp_path / "a.mha"), write_calibration(tmp_path / "c.xml", clip=clip))
    expected = torch.zeros(HEIGHT, WIDTH, dtype=torch.bool)
    expected[3:9, 2:7] = True
    assert torch.equal(sweep.seen, expected)


def test_ways_are_found_forwards_and_backwards() -> None:
    links = [("Probe", "Tracker"), ("Reference", "Tracker"), ("Image", "Probe")]
    assert path_between(links, "Reference", "Image") == [
        ("Reference", "Tracker"),
        ("Tracker", "Probe"),
        ("Probe", "Image"),
    ]
    assert path_between(links, "Image", "Moon") is None


def test_arrays_become_a_sweep(tmp_path: Path) -> None:
    matrices = np.stack([(pose @ RIGID).matrix for pose in PROBE])
    np.savez(tmp_path / "a.npz", frames=IMAGES, image_mm_to_world=matrices, spacing_xy_mm=np.array(PIXEL_MM))
    sweep = read_npz_sweep(tmp_path / "a.npz")
    assert sweep.spacing_mm == pytest.approx(PIXEL_MM)
    assert np.allclose(sweep.image_to_world, matrices)
    np.savez_compressed(
        tmp_path / "a.npz", frames=np.asfortranarray(IMAGES), image_mm_to_world=matrices, spacing_xy_mm=PIXEL_MM
    )
    assert np.array_equal(read_npz_sweep(tmp_path / "a.npz").images.numpy(), IMAGES)
    np.savez(tmp_path / "b.npz", frames=IMAGES)
    for name in ("b.npz", "none.npz"):
        with pytest.raises(ScopeRegError, match="cannot be read"):
            read_npz_sweep(tmp_path / name)


@pytest.mark.parametrize(
    ("shape", "words"),
    [
        ("(5, 12, 17)", "does not hold the 1020 bytes"),
        ("(5, 12, 15)", "does not hold the 900 bytes"),
        ("(99999, 99999, 9999)", "limit is 4 GB"),
        ("(5, 12, -16)", "plain numbers"),
        ("(5, 12, 16", "plain numbers"),
        ("('a',)", "plain numbers"),
    ],
)
def test_arrays_of_other_sizes_than_they_say_are_refused(tmp_path: Path, shape: str, words: str) -> None:
    header = f"{{'descr': '|u1', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    array = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode() + IMAGES.tobytes()
    matrices = np.stack([pose.matrix for pose in PROBE])
    np.savez(tmp_path / "a.npz", image_mm_to_world=matrices, spacing_xy_mm=np.array(PIXEL_MM))
    with zipfile.ZipFile(tmp_path / "a.npz", "a") as archive:
        archive.writestr("frames.npy", array)
    with pytest.raises(ScopeRegError, match=words):
        read_npz_sweep(tmp_path / "a.npz")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("<!DOCTYPE a [<!ENTITY b 'c'>]><PlusConfiguration/>", "declares entities"),
        ("<?xml version='1.0' encoding='none'?><PlusConfiguration/>", "cannot be read"),
        (
            '<P><Transform From="Image" To="Probe" Matrix="1e9 0 0 0 0 1 0 0 0 0 1 0 0 0 0 1"/></P>',
            "a transform reads",
        ),
        (
            '<P><Transform From="Image" To="Probe" Matrix="1 0 0 0 0 1 0 0 0 0 1 0 0 0 0 1"/>'
            '<VolumeReconstruction ClipRectangleOrigin="a 2" ClipRectangleSize="-3 4"/></P>',
            "clip rectangle reads",
        ),
    ],
)
def test_configurations_that_do_harm_are_refused(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "c.xml").write_text(text)
    with pytest.raises(ScopeRegError, match=words):
        read_plus_sequence(write_sequence(tmp_path / "a.mha"), tmp_path / "c.xml")


def test_transforms_without_an_inverse_are_refused(tmp_path: Path) -> None:
    flat = np.diag([1.0, 1, 0, 1])
    frames = {(k, "ReferenceToTrackerTransform"): words(flat) for k in range(COUNT)}
    with pytest.raises(ScopeRegError, match="no inverse"):
        read_plus_sequence(write_sequence(tmp_path / "a.mha", frame_fields=frames), CALIBRATION)


@pytest.mark.skipif(not PLUS.is_dir(), reason="the sequence of the PLUS toolkit is not at hand")
def test_the_spine_phantom_lies_where_plus_reconstructed_it() -> None:
    sweep = read_plus_sequence(
        PLUS / "SpinePhantomFreehand.igs.mha", PLUS / "PlusDeviceSet_SpinePhantomFreehandReconstructionOnly.xml"
    )
    assert sweep.images.shape == (21, 616, 820)
    assert sweep.facts["calibration_skew"] == pytest.approx(-0.048, abs=1e-3)
    volume = sitk.ReadImage(str(PLUS / "SpinePhantomFreehandReconstructed.mha"))
    voxels, first = sitk.GetArrayFromImage(volume), np.array(volume.GetOrigin())
    rows, columns = (part[::50] for part in np.nonzero(sweep.seen.numpy()))
    places = np.stack([columns * sweep.spacing_mm[0], rows * sweep.spacing_mm[1], 0 * rows], 1)
    x, y, z = np.round((sweep.pose(10).apply(places) - first) / 0.5).astype(int).T
    inside = (z < voxels.shape[0]) & (y < voxels.shape[1]) & (x < voxels.shape[2]) & (np.minimum(x, y) >= 0) & (z >= 0)
    assert inside.mean() > 0.98
    frame = sweep.values([10])[0].numpy()[rows, columns]
    assert np.corrcoef(voxels[z, y, x][inside], frame[inside])[0, 1] > 0.9


@pytest.mark.skipif(not LIVER.is_file(), reason="the liver sweep is not at hand")
def test_the_liver_sweep_is_a_fan() -> None:
    sweep = read_npz_sweep(LIVER)
    assert (len(sweep), sweep.images.shape[1:]) == (140, (593, 739))
    assert 0.6 < float(sweep.seen.float().mean()) < 0.63
    assert not bool(sweep.seen[:200, :100].any())
    assert not bool(sweep.seen[:200, -100:].any())
