"""Messages: what pyigtl reads and writes, where an image lies in RAS and LPS, and everything that is refused."""

from __future__ import annotations

import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyigtl
import pytest
import SimpleITK as sitk
from hypothesis import given, settings
from hypothesis import strategies as st

from scopereg import Frame, Pose, io
from scopereg.errors import ScopeRegError
from scopereg.geometry import ras_from_lps
from scopereg.live import messages
from scopereg.live.messages import (
    FAILED,
    HEADER_BYTES,
    OK,
    Message,
    MessageError,
    Status,
    frame_of,
    image_message,
    pack,
    pose_of,
    read_header,
    read_message,
    request_status,
    status_message,
    string_message,
    text_of,
    transform_message,
)

PIXELS = np.arange(54, dtype=np.uint8).reshape(1, 6, 9)
RAS = np.array([-1.0, -1.0, 1.0])  # times a point in LPS


def read(packed: bytes) -> Message:
    return read_message(read_header(packed), packed[HEADER_BYTES:], 1.5)


def by_pyigtl(packed: bytes) -> pyigtl.MessageBase:
    fields = pyigtl.MessageBase.parse_header(packed[:HEADER_BYTES])
    message = pyigtl.MessageBase.create_message(fields["message_type"])
    message.unpack(fields, packed[HEADER_BYTES:])
    return message


def of_pyigtl(message: pyigtl.MessageBase, version: int = 1) -> Message:
    message.header_version = version
    return read(message.pack())


def placed(
    matrix: np.ndarray, world: str = "ras", pixels: np.ndarray = PIXELS, name: str = "Image_Reference"
) -> Message:
    return of_pyigtl(pyigtl.ImageMessage(pixels, matrix, world, device_name=name))


# --- headers ---


@pytest.mark.parametrize("version", [1, 2])
def test_pyigtl_reads_what_is_packed(frame: Frame, pose: Pose, version: int) -> None:
    image = by_pyigtl(image_message(frame, pose, time_s=1234.625, version=version))
    assert (image.device_name, image.timestamp, image.header_version) == ("Image_Volume", 1234.625, version)
    assert np.array_equal(image.image[0], (frame.numpy() * 255).round())
    transform = by_pyigtl(transform_message(pose, version=version))
    assert (transform.message_type, transform.device_name) == ("TRANSFORM", "ImageToVolume")
    assert by_pyigtl(string_message("words", version=version)).string == "words"


@pytest.mark.parametrize("version", [1, 2])
def test_what_pyigtl_packs_is_read(version: int) -> None:
    sent = pyigtl.StringMessage("words", timestamp=1234.625, device_name="Name")
    sent.metadata = {"key": "value", "other": "2"} if version == 2 else {}
    sent.message_id = 7
    message = of_pyigtl(sent, version)
    assert message.header[:3] == (version, "STRING", "Name")
    assert message.header.time_s == pytest.approx(1234.625, abs=1e-6)
    assert (text_of(message), message.number, message.arrived_s) == ("words", 7 if version == 2 else 0, 1.5)


def test_a_time_that_cannot_be_told_does_no_harm() -> None:
    assert read_header(pack("STATUS", "", b"", time_s=-5.0)).time_s == 0
    assert read_header(pack("STATUS", "", b"", time_s=1e12)).time_s == 2**32 - 1


@pytest.mark.parametrize(
    ("at", "bytes_there", "what"),
    [
        (0, b"\x00\x03", "no header"),
        (0, b"\x01\x00", "no header"),
        (2, b"image", "no header"),
        (2, b"\x00\x00\x00\x00\x00", "no header"),
        (9, b"\x00X", "no header"),
        (14, b"a\x00b", "no header"),
        (42, struct.pack(">Q", 2**62), "4611686018427387904 bytes"),
        (42, struct.pack(">Q", messages.LARGEST_BODY + 1), "more than"),
    ],
)
def test_what_is_no_header_is_refused(frame: Frame, at: int, bytes_there: bytes, what: str) -> None:
    packed = bytearray(image_message(frame))
    packed[at : at + len(bytes_there)] = bytes_there
    with pytest.raises(MessageError, match=what):
        read_header(bytes(packed))


def test_a_wrong_checksum_or_length_is_refused(frame: Frame) -> None:
    packed = image_message(frame)
    header = read_header(packed)
    with pytest.raises(MessageError, match="checksum"):
        read_message(header, packed[HEADER_BYTES:-1] + b"\x99")
    with pytest.raises(MessageError, match="checksum"):
        read_message(header, packed[HEADER_BYTES:-1])


@pytest.mark.parametrize("sizes", [(11, 0, 0), (12, 60000, 0), (12, 0, 2**31), (65535, 0, 0)])
def test_an_extended_header_that_lies_is_refused(sizes: tuple[int, int, int]) -> None:
    body = struct.pack(">HHII", *sizes, 1) + struct.pack(">12f", *range(12))
    header = read_header(pack("TRANSFORM", "AToB", body))._replace(version=2)
    with pytest.raises(MessageError, match="extended header"):
        read_message(header, body)


def test_names_that_do_not_fit_are_refused(frame: Frame) -> None:
    for name in ("x" * 21, "µ", "a\nb"):
        with pytest.raises(ScopeRegError, match="the name is"):
            image_message(frame, name=name)


# --- where an image lies ---


def test_the_wire_holds_the_centre_and_axes_in_ras(frame: Frame, pose: Pose) -> None:
    content = image_message(frame, pose)[HEADER_BYTES:]
    version, components, scalar, endian, world, *size = struct.unpack(">HBBBBHHH", content[:12])
    assert (version, components, scalar, endian, world, size) == (1, 1, 3, 2, 1, [9, 6, 1])
    numbers = np.array(struct.unpack(">12f", content[12:60])).reshape(4, 3)
    assert np.allclose(numbers[0], pose.rotation[:, 0] * 0.5 * RAS, atol=1e-6)
    assert np.allclose(numbers[1], pose.rotation[:, 1] * 0.8 * RAS, atol=1e-6)
    assert np.allclose(numbers[3], pose.apply(frame.centre_mm) * RAS, atol=1e-5)


def test_pyigtl_puts_every_pixel_in_its_place(frame: Frame, pose: Pose) -> None:
    image = by_pyigtl(image_message(frame, pose))
    assert image.world_coordinate_system == "ras"
    for column, row in ((0, 0), (8, 0), (0, 5), (4, 1)):
        there = (image.ijk_to_world_matrix @ (column, row, 0, 1))[:3]
        in_frame = (2.0 + 0.5 * column, -1.0 + 0.8 * row, 0)
        assert np.allclose(there, pose.apply(in_frame) * RAS, atol=1e-4)


def test_it_lies_where_the_file_of_the_placed_frame_lies(frame: Frame, pose: Pose, tmp_path: Path) -> None:
    file = sitk.ReadImage(str(io.write_placed_frame(frame, pose, tmp_path / "placed.nrrd")))
    image = by_pyigtl(image_message(frame, pose))
    for index in ((0, 0, 0), (8, 5, 0), (3, 4, 0)):
        there = np.array(file.TransformContinuousIndexToPhysicalPoint([float(n) for n in index]))
        assert np.allclose((image.ijk_to_world_matrix @ (*index, 1))[:3], there * RAS, atol=1e-4)


def test_the_transform_takes_the_image_in_its_own_mm_into_place(frame: Frame, pose: Pose) -> None:
    """What 3D Slicer does when the transform is applied to the image: both in RAS."""
    transform = by_pyigtl(transform_message(pose)).matrix
    assert np.allclose(transform, ras_from_lps(pose.matrix), atol=1e-6)
    own, in_place = by_pyigtl(image_message(frame)), by_pyigtl(image_message(frame, pose))
    assert own.device_name == "Image"
    assert np.allclose(transform @ own.ijk_to_world_matrix, in_place.ijk_to_world_matrix, atol=1e-4)


@pytest.mark.parametrize("version", [1, 2])
def test_a_frame_comes_back_as_it_went(frame: Frame, pose: Pose, version: int) -> None:
    back = frame_of(read(image_message(frame, pose, time_s=17.5, version=version)))
    assert np.allclose(back.numpy(), frame.numpy(), atol=1e-6)
    assert back.spacing_mm == pytest.approx((0.5, 0.8))
    assert back.origin_mm == (0, 0)
    assert back.facts["time_s"] == 17.5
    assert back.pose is not None
    assert back.pose.name == "ImageToVolume"
    for column, row in ((0, 0), (8, 5), (3, 1)):  # the origin of the frame went into the pose
        before = pose.apply((2.0 + 0.5 * column, -1.0 + 0.8 * row, 0))
        assert np.allclose(back.pose.apply((0.5 * column, 0.8 * row, 0)), before, atol=1e-4)


def test_ras_and_lps_images_lie_in_the_same_place(pose: Pose) -> None:
    lps = Pose(pose.rotation, pose.translation_mm, "Image", "Reference").matrix @ np.diag([0.5, 0.8, 1, 1])
    ras = np.diag([-1, -1, 1, 1]) @ lps
    one, other = frame_of(placed(lps, "lps")), frame_of(placed(ras, "ras"))
    assert one.pose is not None
    assert other.pose is not None
    assert one.pose.is_close(other.pose, mm=1e-4, deg=1e-3)
    assert one.pose.name == "ImageToReference"
    assert np.allclose(one.pose.matrix, pose.matrix, atol=1e-4)


def test_the_name_of_an_image_tells_its_world() -> None:
    matrix = np.diag([0.5, 0.8, 1, 1])
    for name, world in (("Image_Tracker", "Tracker"), ("Image", "World"), ("Image_1", "World"), ("", "World")):
        found = frame_of(placed(matrix, name=name)).pose
        assert found is not None
        assert found.target == world


def test_transforms_come_back_as_they_went(pose: Pose) -> None:
    assert pose_of(read(transform_message(pose))).is_close(pose, mm=1e-4, deg=1e-3)
    probe = Pose.from_euler_deg((1, 2, 3), (4, 5, 6), "Probe", "Tracker")
    assert pose_of(read(transform_message(probe))).name == "ProbeToTracker"
    scaled = of_pyigtl(pyigtl.TransformMessage(np.diag([0.5, 0.5, 0.5, 1]), device_name="ImageToProbe"))
    with pytest.raises(ScopeRegError, match="not a rotation"):
        pose_of(scaled)


def test_a_pose_of_another_frame_is_refused(frame: Frame, pose: Pose) -> None:
    with pytest.raises(ScopeRegError, match="VolumeToImage"):
        image_message(frame, pose.inverse())


# --- pixels ---


def test_the_volume_at_the_place_of_the_frame_may_be_sent_instead(frame: Frame, pose: Pose) -> None:
    cut = np.arange(54.0).reshape(6, 9)
    image = by_pyigtl(image_message(frame, pose, name="Cut_Volume", values=cut))
    assert (image.device_name, image.image.dtype) == ("Cut_Volume", np.float32)
    assert np.array_equal(image.image[0], cut)
    with pytest.raises(ScopeRegError, match="the values have shape"):
        image_message(frame, pose, values=cut.T)


@pytest.mark.parametrize("kind", ["u1", "i2", ">i2", ">u2", "<f4", ">f8"])
def test_pixels_of_every_kind_are_read(kind: str) -> None:
    pixels = PIXELS.astype(kind) * (1 if kind == "u1" else 3)
    found = frame_of(placed(np.diag([0.5, 0.8, 1, 1]), pixels=pixels)).numpy()
    assert np.allclose(found, PIXELS[0] / 255 if kind == "u1" else PIXELS[0] * 3)


def test_colours_become_their_brightness() -> None:
    colours = np.zeros((1, 6, 9, 3), np.uint8)
    colours[..., 1] = 255
    assert np.allclose(frame_of(placed(np.diag([0.5, 0.8, 1, 1]), pixels=colours)).numpy(), 0.587, atol=1e-3)


def test_images_without_a_pixel_size_need_one() -> None:
    unplaced = placed(np.eye(4))
    with pytest.raises(MessageError, match="would measure 1 mm") as caught:
        frame_of(unplaced)
    assert "spacing_mm=" in caught.value.fix
    given = frame_of(unplaced, spacing_mm=(0.3, 0.4))
    assert (given.spacing_mm, given.pose, given.facts["spacing_from"]) == ((0.3, 0.4), None, "given")
    assert frame_of(unplaced, spacing_mm=1.0).spacing_mm == (1.0, 1.0)
    stated = placed(np.diag([0.5, 0.8, 1, 1]))
    assert frame_of(stated, spacing_mm=(0.5, 0.8)).pose is not None
    with pytest.raises(MessageError, match="are given"):
        frame_of(stated, spacing_mm=0.3)


def test_axes_of_a_calibration_that_are_nearly_square_are_made_so() -> None:
    skewed = np.diag([0.5, 0.8, 1, 1])
    skewed[0, 1] = 0.02
    found = frame_of(placed(skewed))
    assert found.pose is not None
    assert np.allclose(found.pose.rotation.T @ found.pose.rotation, np.eye(3))
    skewed[0, 1] = 0.5
    with pytest.raises(MessageError, match="not square"):
        frame_of(placed(skewed))


def test_images_that_are_no_frames_are_refused() -> None:
    with pytest.raises(MessageError, match="4 planes"):
        frame_of(placed(np.diag([0.5, 0.8, 1, 1]), pixels=np.zeros((4, 6, 9), np.uint8)))
    with pytest.raises(MessageError, match="no size"):
        frame_of(placed(np.zeros((4, 4))))
    nowhere = np.diag([0.5, 0.8, 1, 1])
    nowhere[0, 3] = np.nan
    with pytest.raises(MessageError, match="not finite"):
        frame_of(placed(nowhere))
    with pytest.raises(ScopeRegError, match="NaN"):
        frame_of(placed(np.diag([0.5, 0.8, 1, 1]), pixels=np.full((1, 6, 9), np.nan, np.float32)))


# --- words ---


def test_a_status_is_laid_out_as_the_protocol_says() -> None:
    content = status_message(Status(FAILED, -3, "NOT OK", "lost"), name="Registration")[HEADER_BYTES:]
    assert content == b"\x00\x02" + b"\xff" * 7 + b"\xfd" + b"NOT OK".ljust(20, b"\x00") + b"lost\x00"


@pytest.mark.parametrize("version", [1, 2])
def test_status_and_string_come_back(version: int) -> None:
    status = Status(OK, 93, "OK", "confidence 0.93")
    message = read(status_message(status, name="Registration", version=version))
    assert (message.content, message.content.ok, text_of(message)) == (status, True, "confidence 0.93")
    assert text_of(read(string_message('{"ok": true}', version=version))) == '{"ok": true}'
    odd = read(status_message(Status(FAILED, 0, "a very long title indeed", "5 µm\x00" + "x" * 10**5)))
    assert not odd.content.ok
    assert odd.content.text.startswith("5 ?m xxx")
    assert len(text_of(read(string_message("ü" * 10**5)))) < 2**16


def test_other_kinds_have_no_content() -> None:
    asked = read(request_status())
    assert (asked.kind, asked.content, asked.header.body_bytes) == ("GET_STATUS", None, 0)
    assert read(pack("POLYDATA", "Mesh", b"\x00" * 99)).content is None


@pytest.mark.parametrize(
    ("at", "value", "what"),
    [
        (5, 0, "world are 3, 2, 0"),  # pyigtl takes any other number for LPS
        (5, 3, "world are 3, 2, 3"),
        (4, 7, "world are 3, 7, 1"),  # and for big endian
        (3, 9, "world are 9, 2, 1"),
        (2, 0, "take 0 bytes, and 54 came"),
        (2, 2, "take 108 bytes, and 54 came"),
        (7, 5, "take 30 bytes, and 54 came"),
    ],
)
def test_an_image_that_does_not_say_what_it_is_is_refused(at: int, value: int, what: str) -> None:
    body = bytearray(image_message(Frame(PIXELS[0] / 255, 0.5))[HEADER_BYTES:])
    body[at] = value
    with pytest.raises(MessageError, match=what):
        read(pack("IMAGE", "Image", bytes(body)))


def test_a_text_that_is_cut_off_is_refused() -> None:
    body = string_message("hello")[HEADER_BYTES:]
    with pytest.raises(MessageError, match="of 5 letters 3 came"):
        read(pack("STRING", "Text", body[:-2]))


# --- whatever else ---


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(["IMAGE", "TRANSFORM", "STATUS", "STRING"]), st.sampled_from([1, 2]), st.data())
def test_no_body_does_more_than_raise_an_error(kind: str, version: int, data: st.DataObject) -> None:
    """Bodies with any bytes changed, cut or added, whose checksum is right."""
    frame = Frame(PIXELS[0] / 255, 0.5)
    whole = {
        "IMAGE": image_message(frame, version=version),
        "TRANSFORM": transform_message(Pose.identity(), version=version),
        "STATUS": status_message(Status(1, 2, "a", "b"), version=version),
        "STRING": string_message("text", version=version),
    }[kind]
    body = bytearray(whole[HEADER_BYTES:])
    for _ in range(data.draw(st.integers(1, 4))):
        body[data.draw(st.integers(0, min(len(body), 90) - 1))] = data.draw(st.integers(0, 255))
    changed = bytes(body[: data.draw(st.integers(0, len(body)))]) + data.draw(st.binary(max_size=8))
    header = read_header(pack(kind, "Image_Reference", changed))._replace(version=version)
    try:
        message = read_message(header, changed)
        {"IMAGE": frame_of, "TRANSFORM": pose_of, "STATUS": text_of, "STRING": text_of}[kind](message)
    except ScopeRegError:
        pass


def test_without_pyigtl_everything_imports_and_what_needs_it_tells_how_to_get_it() -> None:
    verb = {"command", "scene", "status"}  # read volumes and write to terminals
    modules = [path.stem for path in Path(messages.__file__).parent.glob("*.py") if path.stem not in verb]
    assert {"messages", "connection", "server", "sources", "loop", "publish", "exchange"} <= set(modules)
    absent = ("pyigtl", "crcmod", "fastcrc", "SimpleITK", "pydicom", "scipy", "rich", "starlette", "uvicorn")
    code = (
        f"import sys\nsys.modules.update(dict.fromkeys({absent!r}))\n"
        f"for name in {modules!r}: __import__('scopereg.live.' + name)\n"
        "from scopereg.live.sources import open_source\n"
        "try:\n    open_source('igtl://localhost:18944')\nexcept Exception as error:\n    print(error)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert "pip install 'scopereg[live]'" in result.stdout
