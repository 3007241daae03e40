"""DICOM files that are damaged or made to do harm: refused with words before memory is taken, never a traceback."""

from __future__ import annotations

import tracemalloc
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mutations import survive
from pydicom.data import get_testdata_file
from pydicom.dataset import Dataset
from pydicom.encaps import encapsulate, get_frame
from pydicom.uid import DeflatedExplicitVRLittleEndian, JPEGBaseline8Bit, JPEGLSLossless, RLELossless

from scopereg.errors import ScopeRegError
from scopereg.io import read_cine, read_frame, read_pose, read_volume
from scopereg.io.limits import limit_of

Make = Callable[..., Any]
IMAGES = np.random.default_rng(0).integers(0, 256, (3, 40, 60)).astype(np.uint8)
PLANE = {"ImageOrientationPatient": [1, 0, 0, 0, 1, 0], "PixelSpacing": [0.5, 0.5], "FrameOfReferenceUID": "1.2.9"}


@pytest.mark.parametrize(
    ("tags", "words"),
    [
        ({"NumberOfFrames": 300_000_000}, "limit is 4 GB"),  # 7.5 GB were taken
        ({"NumberOfFrames": 4}, "holds 7200 bytes of pixels, its header promises 9600"),
        ({"NumberOfFrames": 2}, "holds 7200 bytes of pixels, its header promises 4800"),
        ({"Rows": 0}, "no image"),
        ({"Rows": 39}, "promises 7020"),
        ({"Columns": 65535, "Rows": 65535, "NumberOfFrames": 1000}, "limit is 4 GB"),
        ({"SamplesPerPixel": 2}, "SamplesPerPixel is 2: it must be one of 1, 3"),
        ({"SamplesPerPixel": 3}, "PhotometricInterpretation is 'MONOCHROME2', with 3 numbers"),
        ({"BitsAllocated": 12}, "BitsAllocated is 12"),
        ({"BitsStored": 9}, "BitsStored is 9"),
        ({"HighBit": 3}, "HighBit is 3"),
        ({"PixelRepresentation": 2}, "PixelRepresentation is 2"),
        ({"PhotometricInterpretation": "MONOCHROME3"}, "'MONOCHROME3'"),
        ({"PhotometricInterpretation": "PALETTE COLOR"}, "cannot be read"),  # without a palette
    ],
)
def test_headers_that_do_not_fit_their_pixels_are_refused(
    make_dicom: Make, saved: Make, tags: dict[str, Any], words: str
) -> None:
    path = saved(make_dicom(IMAGES, **tags))
    tracemalloc.start()
    try:
        with pytest.raises(ScopeRegError, match=words) as caught:
            read_frame(path, spacing_mm=1, index=0)
        assert tracemalloc.get_traced_memory()[1] < 50e6
    finally:
        tracemalloc.stop()
    assert caught.value.where == str(path)
    assert caught.value.fix


@pytest.mark.parametrize(
    "keyword", ["BitsAllocated", "BitsStored", "HighBit", "PixelRepresentation", "SamplesPerPixel", "Columns"]
)
def test_what_pixels_need_must_be_told(make_dicom: Make, saved: Make, keyword: str) -> None:
    made = make_dicom(IMAGES[0])
    delattr(made, keyword)
    with pytest.raises(ScopeRegError, match=f"{keyword} is not told|no image"):
        read_frame(saved(made), spacing_mm=1)


def test_the_limit_is_the_users(make_dicom: Make, saved: Make) -> None:
    path = saved(make_dicom(IMAGES))
    with limit_of(1e-6), pytest.raises(ScopeRegError, match="the limit is"):
        read_cine(path, spacing_mm=1)
    assert len(read_cine(path, spacing_mm=1)) == 3


def test_volumes_are_judged_as_they_will_be_used(make_dicom: Make, tmp_path: Path) -> None:
    for z, plane in enumerate(IMAGES):
        made = make_dicom(plane, SOPInstanceUID=f"1.{z}", ImagePositionPatient=[0, 0, z], **PLANE)
        made.save_as(tmp_path / f"{z}.dcm", enforce_file_format=True)
    with limit_of(20_000 / 2**30), pytest.raises(ScopeRegError, match="3 x 40 x 60"):  # float32: 28,800 bytes
        read_volume(tmp_path)
    assert read_volume(tmp_path).shape == IMAGES.shape


@pytest.mark.parametrize("value", ["0\\0.5", "nan\\0.5", "-0.5\\0.5", "1e9\\1e9", "1e-9\\1e-9", "a\\b", "0.5"])
def test_spacings_that_are_none_are_not_made_up(make_dicom: Make, saved: Make, value: str) -> None:
    path = saved(make_dicom(IMAGES[0], PixelSpacing=[0.5, 0.5]))
    path.write_bytes(_with_text(path.read_bytes(), b"0.5\\0.5 ", value.encode()))
    with pytest.raises(ScopeRegError, match="how large a pixel is"):
        read_frame(path)


def _with_text(content: bytes, old: bytes, new: bytes) -> bytes:
    """Another value of one element, with its length before it."""
    assert content.count(old) == 1
    new += b" " * (len(new) % 2)
    at = content.index(old)
    return content[: at - 2] + len(new).to_bytes(2, "little") + new + content[at + len(old) :]


@pytest.mark.parametrize(
    ("keyword", "value"), [("RescaleSlope", "0"), ("RescaleSlope", "1e38"), ("RescaleIntercept", "1e39")]
)
def test_a_rescaling_to_nothing_is_refused(make_dicom: Make, tmp_path: Path, keyword: str, value: str) -> None:
    for z, plane in enumerate(IMAGES):
        tags = {"ImagePositionPatient": [0, 0, z], **PLANE, keyword: value}
        made = make_dicom(plane.astype(np.uint16), SOPInstanceUID=f"1.{z}", **tags)
        made.save_as(tmp_path / f"{z}.dcm", enforce_file_format=True)
    with pytest.raises(ScopeRegError, match="no numbers, or all the same"):
        read_volume(tmp_path)


def test_a_rescaling_that_is_no_number_is_not_passed_over(make_dicom: Make, tmp_path: Path) -> None:
    for z, plane in enumerate(IMAGES):
        tags = {"ImagePositionPatient": [0, 0, z], "RescaleSlope": "2.5", **PLANE}
        made = make_dicom(plane, SOPInstanceUID=f"1.{z}", **tags)
        path = tmp_path / f"{z}.dcm"
        made.save_as(path, enforce_file_format=True)
        path.write_bytes(path.read_bytes().replace(b"2.5 ", b"nan "))
    with pytest.raises(ScopeRegError, match="RescaleSlope is"):
        read_volume(tmp_path)


def test_values_that_are_not_finite_are_refused(make_dicom: Make, saved: Make) -> None:
    made = make_dicom(IMAGES[0])
    values = IMAGES[0].astype(np.float32)
    values[3, 4] = np.nan
    del made.PixelData
    made.FloatPixelData, made.BitsAllocated = values.tobytes(), 32
    with pytest.raises(ScopeRegError, match="1 of 2400 values are NaN"):
        read_frame(saved(made), spacing_mm=1)


def test_deflated_files_inflate_to_no_more_than_the_limit(make_dicom: Make, saved: Make) -> None:
    path = saved(make_dicom(IMAGES[0]))
    plain = path.read_bytes()
    meta = make_dicom(IMAGES[0])
    meta.file_meta.TransferSyntaxUID = DeflatedExplicitVRLittleEndian
    packed = saved(meta, "deflated.dcm")
    assert np.array_equal(read_frame(packed, spacing_mm=1).numpy(), read_frame(path, spacing_mm=1).numpy())
    whole = packed.read_bytes()
    start = whole.index(b"1.2.840.10008.1.2.1.99\0\0"[:22])
    head = whole[: 132 + 12 + int.from_bytes(whole[140:144], "little")]
    assert start < len(head) < len(plain)
    packer = zlib.compressobj(9, wbits=-15)
    bomb = packer.compress(bytes(50 * 2**20)) + packer.flush()
    packed.write_bytes(head + bomb)
    tracemalloc.start()
    try:
        with limit_of(1 / 1024), pytest.raises(ScopeRegError, match="limit is"):
            read_frame(packed, spacing_mm=1)
        assert tracemalloc.get_traced_memory()[1] < 10 * 2**20
    finally:
        tracemalloc.stop()
    packed.write_bytes(whole[:-100])
    with pytest.raises(ScopeRegError, match="cut short"):
        read_frame(packed, spacing_mm=1)


def test_sequences_within_sequences_without_end_are_refused(make_dicom: Make, saved: Make) -> None:
    item = Dataset()
    for _ in range(60):
        outer = Dataset()
        outer.SharedFunctionalGroupsSequence = [item]
        item = outer
    path = saved(make_dicom(IMAGES[0], SharedFunctionalGroupsSequence=[item]))
    assert read_frame(path, spacing_mm=1).shape == (40, 60)
    content = path.read_bytes()
    mark = bytes.fromhex("00522992") + b"SQ\0\0" + b"\xff" * 4 + bytes.fromhex("feff00e0") + b"\xff" * 4
    at = content.index(bytes.fromhex("e07f1000"))
    path.write_bytes(content[:at] + mark * 20_000)
    with pytest.raises(ScopeRegError, match=r"a\.dcm"):
        read_frame(path, spacing_mm=1)


@pytest.mark.parametrize("syntax", ["1.2.840.10008.1.2.77", "1.2.3", "", "hello"])
def test_transfer_syntaxes_that_are_none_are_refused(make_dicom: Make, saved: Make, syntax: str) -> None:
    path = saved(make_dicom(IMAGES[0]))
    content, old = path.read_bytes(), b"1.2.840.10008.1.2.1\0"
    assert content.count(old) == 1
    path.write_bytes(content.replace(old, syntax.encode().ljust(len(old), b"\0")))
    with pytest.raises(ScopeRegError, match=r"a\.dcm"):
        read_frame(path, spacing_mm=1)


def test_compressed_pixels_hold_what_is_promised(make_dicom: Make, saved: Make) -> None:
    made = make_dicom(IMAGES)
    made.compress(RLELossless)
    made.NumberOfFrames = 300_000
    with pytest.raises(ScopeRegError, match="3 pieces of compressed pixels, its header promises 300000 frames"):
        read_cine(saved(made), spacing_mm=1)


def test_a_compressed_frame_that_is_cut_or_of_another_size_is_refused(make_dicom: Make, saved: Make) -> None:
    import pydicom

    made = pydicom.dcmread(get_testdata_file("MR_small_jpeg_ls_lossless.dcm"))
    assert made.file_meta.TransferSyntaxUID == JPEGLSLossless
    packed = get_frame(made.PixelData, 0, number_of_frames=1)
    made.PixelData = encapsulate([packed[: len(packed) // 2]])
    with pytest.raises(ScopeRegError, match="cut short"):
        read_frame(saved(made))
    made.PixelData = encapsulate([packed[: len(packed) // 2] + b"\xff\xd9"])
    with pytest.raises(ScopeRegError, match="cannot be decoded here, or damaged"):
        read_frame(saved(made))
    made.PixelData = encapsulate([packed])
    made.Rows = 32
    with pytest.raises(ScopeRegError, match="the stream says 64 x 64 pixels, the header 64 x 32"):
        read_frame(saved(made))


def test_a_picture_that_says_to_be_vast_takes_no_memory(make_dicom: Make, saved: Make) -> None:
    """Its size stands twice: in the header of DICOM, and in that of JPEG, which says 65,500 x 65,500."""
    made = make_dicom(IMAGES[0])
    made.file_meta.TransferSyntaxUID = JPEGBaseline8Bit
    frame_head = b"\xff\xc0\x00\x0b\x08" + (65500).to_bytes(2, "big") * 2 + b"\x01\x01\x11\x00"
    made.PixelData = encapsulate([b"\xff\xd8" + frame_head + b"\xff\xda\x00\x08\x01\x01\x00\x00\x3f\x00" + b"\xff\xd9"])
    with pytest.raises(ScopeRegError, match="the stream says 65500 x 65500 pixels"):
        read_frame(saved(made), spacing_mm=1)


def _cine(path: Path) -> Any:
    cine = read_cine(path, spacing_mm=0.3)
    return [cine[index].numpy() for index in range(min(len(cine), 3))]


def _finite(frames: Any) -> None:
    for frame in frames:
        assert frame.ndim == 2
        assert frame.size
        assert np.isfinite(frame).all()


@pytest.mark.parametrize("kind", ["plain", "rle", "palette"])
def test_mutated_cines_are_read_or_refused(make_dicom: Make, make_region: Make, saved: Make, kind: str) -> None:
    tags: dict[str, Any] = {}
    if kind == "palette":
        tags = {"PhotometricInterpretation": "PALETTE COLOR"}
        for colour in ("Red", "Green", "Blue"):
            tags[f"{colour}PaletteColorLookupTableDescriptor"] = [256, 0, 16]
            tags[f"{colour}PaletteColorLookupTableData"] = np.arange(256, dtype=np.uint16).tobytes()
    made = make_dicom(IMAGES, regions=[make_region((0, 0, 59, 39))], FrameTime="40", **tags)
    if kind == "rle":
        made.compress(RLELossless)
    path = saved(made)
    ends = survive(_cine, path.read_bytes(), path, 300, check=_finite)
    assert set(ends) == {"read", "refused"}
    assert ends["refused"] > 60


@pytest.mark.parametrize("name", ["MR_small_jpeg_ls_lossless", "JPEG2000", "JPEG-lossy"])
def test_mutated_compressed_frames_are_read_or_refused(tmp_path: Path, name: str) -> None:
    content = Path(get_testdata_file(f"{name}.dcm")).read_bytes()
    ends = survive(_cine, content, tmp_path / "a.dcm", 60, check=_finite)
    assert set(ends) <= {"read", "refused"}


def test_mutated_slices_make_no_other_volume(make_dicom: Make, tmp_path: Path) -> None:
    """One slice of a series changes; what is read all the same has the shape of the whole."""
    for z in range(7):
        made = make_dicom(IMAGES[z % 3], SOPInstanceUID=f"1.{z}", ImagePositionPatient=[0, 0, z], **PLANE)
        made.save_as(tmp_path / f"{z}.dcm", enforce_file_format=True)
    path = tmp_path / "3.dcm"

    def whole(volume: Any) -> None:
        assert volume.shape == (7, 40, 60)
        assert np.isfinite(volume.numpy()).all()
        assert volume.spacing_mm == pytest.approx((0.5, 0.5, 1.0), rel=0.05)

    ends = survive(lambda _: read_volume(tmp_path), path.read_bytes(), path, 300, check=whole)
    assert set(ends) == {"read", "refused"}


def test_mutated_registrations_are_rigid_or_refused(tmp_path: Path) -> None:
    import torch

    from scopereg.geometry import Pose
    from scopereg.images import Frame, Volume
    from scopereg.io import write_pose

    pose = Pose.from_euler_deg((12, -34, 56), (7.5, -8.25, 9.125))
    frame, volume = Frame(torch.zeros(4, 5), spacing_mm=0.5), Volume(torch.zeros(3, 4, 5), spacing_mm=0.5)
    content = write_pose(pose, tmp_path / "seed.dcm", frame=frame, volume=volume).read_bytes()

    def rigid(found: Pose) -> None:
        assert np.allclose(found.rotation.T @ found.rotation, np.eye(3), atol=1e-9)

    ends = survive(read_pose, content, tmp_path / "a.dcm", 300, check=rigid)
    assert set(ends) == {"read", "refused"}
