"""Volume formats beside ITK, which reads and writes them independently: the same voxels in the same places."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import SimpleITK as sitk
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scopereg.errors import ScopeRegError
from scopereg.geometry import Pose
from scopereg.images import Volume
from scopereg.io import read_volume, write_volume
from scopereg.io.formats import ImageFile
from scopereg.io.read_image import check_length, endings, read_header, read_image, write_image

DTYPES = ("i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f4", "f8")
WRITTEN = (".nii", ".nii.gz", ".nrrd", ".nhdr", ".mha", ".mhd")
AXES = Pose.from_euler_deg((15, -25, 35), (0, 0, 0)).rotation
RNG = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    sitk.ProcessObject.SetGlobalWarningDisplay(False)
    yield
    sitk.ProcessObject.SetGlobalWarningDisplay(True)


def voxels(dtype: str, shape: tuple[int, ...] = (3, 4, 5)) -> np.ndarray:
    kind = np.dtype(dtype)
    if kind.kind == "f":
        return RNG.normal(size=shape).astype(kind)
    info = np.iinfo(kind)
    return RNG.integers(info.min, info.max, shape, dtype=kind, endpoint=True)


def placed(array: np.ndarray, axes: np.ndarray = AXES) -> sitk.Image:
    image = sitk.GetImageFromArray(array)
    image.SetSpacing((0.5, 0.6, 0.7))
    image.SetOrigin((1.0, -2.0, 300.0))
    image.SetDirection(axes.ravel().tolist())
    return image


def assert_as_itk_reads(path: Path) -> None:
    wanted = sitk.ReadImage(str(path))
    array, spacing, origin, direction = read_image(path)[:4]
    axes = wanted.GetDimension()
    assert array.dtype == sitk.GetArrayViewFromImage(wanted).dtype
    assert array.dtype.isnative
    assert np.array_equal(array, sitk.GetArrayViewFromImage(wanted))
    assert np.allclose(spacing, wanted.GetSpacing(), rtol=1e-6)
    assert np.allclose(origin, wanted.GetOrigin(), rtol=1e-6, atol=1e-5)
    assert np.allclose(direction.ravel(), wanted.GetDirection(), atol=1e-6)
    header = read_header(path)
    assert (header.size, header.components, len(header.origin_mm)) == (wanted.GetSize(), 1, axes)
    assert header.kind == wanted.GetPixelIDTypeAsString()
    check_length(path)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("ending", WRITTEN)
@pytest.mark.parametrize("packed", [False, True])
def test_what_itk_writes_is_read_as_itk_reads_it(tmp_path: Path, ending: str, dtype: str, packed: bool) -> None:
    sitk.WriteImage(placed(voxels(dtype)), str(tmp_path / f"v{ending}"), useCompression=packed)
    assert_as_itk_reads(tmp_path / f"v{ending}")


@pytest.mark.parametrize("ending", WRITTEN)
def test_planes_and_series_are_read_as_itk_reads_them(tmp_path: Path, ending: str) -> None:
    plane = sitk.GetImageFromArray(voxels("u1", (4, 5)))
    plane.SetSpacing((0.5, 0.6))
    plane.SetOrigin((1.0, -2.0))
    sitk.WriteImage(plane, str(tmp_path / f"plane{ending}"))
    assert_as_itk_reads(tmp_path / f"plane{ending}")
    series = sitk.JoinSeries([sitk.GetImageFromArray(voxels("i2")) for _ in range(3)])
    series.SetSpacing((0.5, 0.6, 0.7, 0.02))
    sitk.WriteImage(series, str(tmp_path / f"series{ending}"))
    assert_as_itk_reads(tmp_path / f"series{ending}")
    colours = sitk.GetImageFromArray(voxels("u1", (3, 4, 5, 3)), isVector=True)
    sitk.WriteImage(colours, str(tmp_path / f"colours{ending}"))
    header = read_header(tmp_path / f"colours{ending}")
    assert (header.size, header.components) == ((5, 4, 3), 3)
    assert header.kind == colours.GetPixelIDTypeAsString()
    with pytest.raises(ScopeRegError, match="each voxel holds 3 numbers"):
        read_image(tmp_path / f"colours{ending}")


@pytest.mark.parametrize("first", ["", "Comment = by hand\n"])
def test_metaimage_headers_by_hand_may_leave_the_type_of_object_out(tmp_path: Path, first: str) -> None:
    header = (
        "NDims = 3\nDimSize = 5 4 3\nElementSpacing = 0.5 0.6 0.7\nElementType = MET_UCHAR\nElementDataFile = a.raw\n"
    )
    (tmp_path / "a.mhd").write_text(first + header)
    (tmp_path / "a.raw").write_bytes(bytes(range(60)))
    assert_as_itk_reads(tmp_path / "a.mhd")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("encoding", ["raw", "gzip", "ascii"])
def test_the_other_byte_order_is_read(tmp_path: Path, dtype: str, encoding: str) -> None:
    import gzip

    array = voxels(dtype)
    swapped = array.astype(array.dtype.newbyteorder(">")).tobytes()
    text = " ".join(str(number) for number in array.ravel().tolist()).encode() + b" \n"
    nrrd = (
        f"NRRD0004\ntype: {read_type(dtype)}\ndimension: 3\nspace: LPS\nsizes: 5 4 3\n"
        f"space directions: (0.5,0,0) (0,0.6,0) (0,0,0.7)\nspace origin: (1,2,3)\nendian: big\nencoding: {encoding}\n\n"
    )
    packed = {"raw": swapped, "gzip": gzip.compress(swapped), "ascii": text}[encoding]
    (tmp_path / "a.nrrd").write_bytes(nrrd.encode() + packed)
    assert_as_itk_reads(tmp_path / "a.nrrd")
    meta = (
        f"ObjectType = Image\nNDims = 3\nBinaryDataByteOrderMSB = {encoding != 'ascii'}\nDimSize = 5 4 3\n"
        "ElementSpacing = 0.5 0.6 0.7\n"
        f"BinaryData = {encoding != 'ascii'}\nElementType = {meta_type(dtype)}\nElementDataFile = LOCAL\n"
    )
    if encoding != "gzip":
        (tmp_path / "a.mha").write_bytes(meta.encode() + packed)
        assert np.array_equal(read_image(tmp_path / "a.mha").array, array)
        if dtype[1] != "8" or encoding != "ascii":  # ITK rounds long numbers
            assert_as_itk_reads(tmp_path / "a.mha")
    assert np.array_equal(read_image(tmp_path / "a.nrrd").array, array)


def read_type(dtype: str) -> str:
    kind = np.dtype(dtype)
    return {"f4": "float", "f8": "double"}.get(dtype, f"{'u' * (kind.kind == 'u')}int{kind.itemsize * 8}")


def meta_type(dtype: str) -> str:
    names = ("CHAR", "UCHAR", "SHORT", "USHORT", "INT", "UINT", "LONG_LONG", "ULONG_LONG", "FLOAT", "DOUBLE")
    return f"MET_{names[DTYPES.index(dtype)]}"


@pytest.mark.parametrize(
    "lines",
    [
        "space: right-anterior-superior\nspace directions: (0.5,0.1,0) (-0.12,0.6,0) (0,0,0.7)\nspace origin: (1,2,3)",
        "space: LAS\nspace directions: (0.5,0,0) (0,0,0.6) (0,0.7,0)\nspace origin: (1,2,3)",
        "space: scanner-xyz\nspace directions: (0.5,0,0) (0,0.6,0) (0,0,0.7)\nspace origin: (1,2,3)",
        "space dimension: 3\nspace directions: (0.5,0,0) (0,0.6,0) (0,0,0.7)\nspace origin: (1,2,3)",
        'space: LPS\nspace directions: (0.5,0,0) (0,0.6,0) (0,0,0.7)\nspace units: "mm" "mm" "mm"',
        "spacings: 0.5 0.6 0.7",
        "spacings: 0.5 0.6 0.7\naxis mins: 1 2 3\ncenters: node node node",
        "spacings: 0.5 0.6 0.7\naxismins: 1 2 3\ncenterings: cell cell cell",
        'spacings: 0.5 0.6 0.7\nunits: "mm" "mm" "mm"\nkinds: domain space domain\nlabels: "a" "b" "c"',
        "spacings: 0.5 0.6 0.7\nbyte skip: 4",
        "spacings: 0.5 0.6 0.7\nbyteskip: -1",
        "spacings: 0.5 0.6 0.7\nlineskip: 2\nbyte skip: 1",
        "# words\nspacings: 0.5 0.6 0.7\nmade by:=somebody\ncontent: a thing",
    ],
)
def test_nrrd_headers_mean_what_they_mean_to_itk(tmp_path: Path, lines: str) -> None:
    header = f"NRRD0005\ntype: uchar\ndimension: 3\nsizes: 5 4 3\nencoding: raw\n{lines}\n\n"
    before = b"abc\n" if "byte skip: 4" in lines or "-1" in lines else b"1\n2\n3" if "lineskip" in lines else b""
    (tmp_path / "a.nrrd").write_bytes(header.encode() + before + voxels("u1").tobytes())
    if "0.1,0" in lines:
        lengths = np.linalg.norm([(0.5, 0.1, 0), (-0.12, 0.6, 0)], axis=1)
        assert read_header(tmp_path / "a.nrrd").spacing_mm[:2] == pytest.approx(lengths)
    assert_as_itk_reads(tmp_path / "a.nrrd")


def test_lines_may_end_as_on_windows(tmp_path: Path) -> None:
    header = "NRRD0004\r\ntype: uchar\r\ndimension: 3\r\nsizes: 5 4 3\r\nspacings: 1 1 1\r\nencoding: raw\r\n\r\n"
    (tmp_path / "a.nrrd").write_bytes(header.encode() + bytes(60))
    assert read_image(tmp_path / "a.nrrd").array.shape == (3, 4, 5)
    meta = "ObjectType = Image\nNDims = 3\nDimSize = 5 4 3\nElementType = MET_UCHAR\nElementDataFile = LOCAL\n"
    (tmp_path / "a.mha").write_bytes(meta.replace("\n", "\r\n").encode() + bytes(60))
    assert read_image(tmp_path / "a.mha").array.shape == (3, 4, 5)


def nifti_header(path: Path, *changes: tuple[int, str, object]) -> None:
    content = bytearray(path.read_bytes())
    for at, form, values in changes:
        struct.pack_into(f"<{form}", content, at, *np.atleast_1d(values).tolist())
    path.write_bytes(content)


def test_the_orientation_of_nifti_is_the_one_that_itk_chooses(tmp_path: Path) -> None:
    """Any codes, with sforms and qforms that agree, disagree, are sheared or left-handed."""
    rng, path, read = np.random.default_rng(1), tmp_path / "a.nii", 0
    for turn in range(150):
        axes = np.linalg.qr(rng.normal(size=(3, 3)))[0]
        sitk.WriteImage(placed(voxels("u1"), axes), str(path))
        changes: list[tuple[int, str, object]] = [(252, "2h", rng.integers(0, 5, 2))]
        if turn % 5:
            other = np.linalg.qr(rng.normal(size=(3, 3)))[0] + (0.3 * rng.normal(size=(3, 3)) if turn % 5 == 2 else 0)
            rows = np.column_stack([other * (0.5, 0.6, 0.7), 20 * rng.normal(size=3)])
            changes.append((280, "12f", rows.ravel()))
        if turn % 5 == 3:
            quaternion = rng.normal(size=4)
            quaternion *= np.sign(quaternion[0]) / np.linalg.norm(quaternion)
            changes += [(256, "3f", quaternion[1:]), (76, "f", rng.choice([-1, 0, 1]))]
        nifti_header(path, *changes)
        try:
            sitk.ReadImage(str(path))
        except RuntimeError:
            with pytest.raises(ScopeRegError, match=r"sheared|contradicts"):
                read_image(path)
            continue
        if turn % 5 == 2 and refused(path, "contradicts itself"):
            continue  # ITK takes sizes from pixdim and axes from an sform of other sizes
        assert_as_itk_reads(path)
        read += 1
    assert read > 80


def refused(path: Path, words: str) -> bool:
    try:
        read_image(path)
    except ScopeRegError as error:
        return words in error.what
    return False


@pytest.mark.parametrize("dtype", ["u1", "i2", "f4", "f8"])
def test_nifti_values_are_scaled_as_itk_scales_them(tmp_path: Path, dtype: str) -> None:
    sitk.WriteImage(placed(voxels(dtype)), str(tmp_path / "a.nii"))
    for slope, intercept in ((1, 0), (2, 3), (0.5, -1), (0, 0)):
        nifti_header(tmp_path / "a.nii", (112, "2f", [slope, intercept]))
        wanted, found = sitk.ReadImage(str(tmp_path / "a.nii")), read_image(tmp_path / "a.nii").array
        assert found.dtype == sitk.GetArrayViewFromImage(wanted).dtype
        assert np.allclose(found, sitk.GetArrayViewFromImage(wanted), rtol=1e-6)


def test_of_two_files_the_named_one_is_read(tmp_path: Path) -> None:
    """ITK reads a.nii where a.nii.gz is asked for and both are there."""
    for name, value in (("a.nii", 1), ("a.nii.gz", 2)):
        sitk.WriteImage(sitk.GetImageFromArray(np.full((3, 3, 3), value, np.uint8)), str(tmp_path / name))
    assert read_image(tmp_path / "a.nii.gz").array.max() == 2


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("ending", endings(written=True))
def test_what_is_written_is_read_by_itk(tmp_path: Path, ending: str, dtype: str) -> None:
    for handed in (1, -1):
        image = ImageFile(voxels(dtype), (0.5, 0.6, 0.7), (1.0, -2.0, 300.0), AXES * [1, 1, handed])
        found = sitk.ReadImage(str(write_image(image, tmp_path / f"{handed}{ending}")))
        assert np.array_equal(sitk.GetArrayViewFromImage(found), image.array)
        assert np.allclose(found.GetSpacing(), image.spacing_mm, rtol=1e-6)
        assert np.allclose(found.GetOrigin(), image.origin_mm, rtol=1e-6)
        assert np.allclose(found.GetDirection(), image.direction.ravel(), atol=1e-6)
        assert_as_itk_reads(tmp_path / f"{handed}{ending}")


NUMBERS = st.floats(0.01, 50).map(float)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    shape=st.tuples(*[st.integers(2, 9)] * 3),
    spacing=st.tuples(NUMBERS, NUMBERS, NUMBERS),
    origin=st.tuples(*[st.floats(-1000, 1000)] * 3),
    angles=st.tuples(*[st.floats(-180, 180)] * 3),
    ending=st.sampled_from(endings(written=True)),
    seed=st.integers(0, 2**31),
)
def test_any_volume_comes_back_from_its_file(
    tmp_path: Path,
    shape: tuple[int, int, int],
    spacing: tuple[float, float, float],
    origin: tuple[float, float, float],
    angles: tuple[float, float, float],
    ending: str,
    seed: int,
) -> None:
    values = torch.rand(shape, generator=torch.Generator().manual_seed(seed)) * 2 - 1
    axes = Pose.from_euler_deg(angles, (0, 0, 0)).rotation
    volume = Volume(values, spacing, origin, axes)
    again = read_volume(write_volume(volume, tmp_path / f"v{ending}"))
    exact = {"rtol": 1e-6, "atol": 1e-4} if ending.startswith(".nii") else {"rtol": 1e-12, "atol": 1e-9}
    assert torch.equal(again.array, volume.array)
    assert np.allclose(again.spacing_mm, spacing, rtol=exact["rtol"])
    assert np.allclose(again.origin_mm, origin, **exact)
    assert np.allclose(again.direction, volume.direction, atol=1e-6)
    assert again.facts["notes"] == []
