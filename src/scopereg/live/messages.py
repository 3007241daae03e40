"""OpenIGTLink messages: headers of version 1 and 2, and what IMAGE, TRANSFORM, STATUS and STRING say, in LPS.

Bodies go through pyigtl, which is imported here alone and when it is needed. It lacks STATUS, checks no checksum and
trusts every size, so headers are read here. On the wire everything is RAS, which 3D Slicer takes for granted whatever a
message says of itself, and an image tells where its centre is; inside of scopereg it is LPS and the first pixel.
"""

from __future__ import annotations

import re
import struct
import time
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from scopereg.errors import ScopeRegError
from scopereg.geometry import Pose
from scopereg.image_fields import as_pair
from scopereg.images import Frame
from scopereg.io.overlays import picture_of
from scopereg.io.plus import IMAGE, Matrix, link_of, take_out_pixel_size
from scopereg.io.stored import GIVEN, StoredFrame
from scopereg.registration.format import PixelSize, Unknown, size_facts

Sizing = Callable[[tuple[int, int], PixelSize | None], PixelSize | Unknown]
HEADER_BYTES = 58
LARGEST_BODY = 2**26  # bytes; an image of 4096 x 4096 numbers of four bytes
WORLD = "World"  # frame of reference of an image whose name does not tell it
OK, FAILED = 1, 2  # codes of STATUS

_HEADER = struct.Struct(">H12s20sIIQQ")
_EXTENDED = struct.Struct(">HHII")  # of version 2: own size, sizes of the metadata's header and body, number
_STATUS = struct.Struct(">Hq20s")
_STRING = struct.Struct(">HH")  # encoding, length
_IMAGE = struct.Struct(">HBBBB3H12f6H")  # version, components, type, byte order, world, size, matrix, part
_SCALAR_BYTES = {2: 1, 3: 1, 4: 2, 5: 2, 6: 4, 7: 4, 10: 4, 11: 8}
_KIND = re.compile(rb"([A-Z][A-Z0-9_]*)\x00*")
_NAME = re.compile(rb"([\x20-\x7e\x80-\xff]*)\x00*")
_SIGNS = np.array([-1.0, -1.0, 1.0, 1.0])  # LPS to RAS, and back
_SQUARE = 1e-5  # cosine between axes that rounding to float32 may leave
_SAME_SIZE = 0.01
_NOT_STATED = 1e-4  # mm from a pixel of just 1 mm, which stands for none
_LONGEST_TEXT = 2**15
_RESEND = "look at the program that sends: its OpenIGTLink is not what the protocol says"


class MessageError(ScopeRegError):
    """A message that cannot be used. The next one may be good."""


class Header(NamedTuple):
    """What stands before a body."""

    version: int
    kind: str
    name: str
    time_s: float  # since 1970 or the start of the sender; 0 where it does not tell
    body_bytes: int
    crc: int


class Message(NamedTuple):
    """A message whose checksum is right."""

    header: Header
    content: Any  # pyigtl's message of an IMAGE, TRANSFORM or STRING, a Status, None for other kinds
    number: int = 0  # by the sender, version 2 alone
    arrived_s: float = 0.0  # time.perf_counter() when it was whole

    @property
    def kind(self) -> str:
        return self.header.kind


class Status(NamedTuple):
    """What a STATUS says."""

    code: int
    subcode: int
    title: str
    text: str

    @property
    def ok(self) -> bool:
        return self.code == OK


def require_pyigtl() -> None:
    """An error that tells how to install pyigtl where it is missing."""
    _pyigtl()


def read_header(data: bytes, largest_body: int = LARGEST_BODY) -> Header:
    """The header in the first 58 bytes; an error for anything that does not look like one."""
    version, kind, name, seconds, fraction, body_bytes, crc = _HEADER.unpack_from(data)
    known_kind, known_name = _KIND.fullmatch(kind), _NAME.fullmatch(name)
    if version not in (1, 2) or known_kind is None or known_name is None:
        raise MessageError(f"no header of version 1 or 2: {data[:16]!r}", where="OpenIGTLink header", fix=_RESEND)
    if body_bytes > largest_body:
        raise MessageError(
            f"a message claims to have {body_bytes} bytes, more than {largest_body}",
            where="OpenIGTLink header",
            fix="send single frames, not larger than 4096 x 4096",
        )
    name_text = known_name[1].decode("utf-8", "replace").strip()
    return Header(version, known_kind[1].decode("ascii"), name_text, seconds + fraction / 2**32, body_bytes, crc)


def read_message(header: Header, body: bytes | bytearray, arrived_s: float = 0.0) -> Message:
    """The message of a header and its body; an error where the checksum or the content is wrong."""
    where = f"OpenIGTLink {header.kind} {header.name!r}"
    if len(body) != header.body_bytes or _checksum()(body) != header.crc:
        raise MessageError("the checksum is wrong", where=where, fix="look at the network and at the sender")
    try:
        content, number = _content(header, bytes(body))
        return Message(header, _parsed(header, content), number, arrived_s)
    except ScopeRegError:
        raise
    except Exception as error:  # pyigtl trusts what it reads, and fails in many ways
        reason = f"{type(error).__name__}: {error}"
        raise MessageError(f"it cannot be read: {reason}", where=where, fix=_RESEND) from None


def pack(kind: str, name: str, content: bytes, *, time_s: float | None = None, version: int = 1) -> bytes:
    """A whole message. Without a time it is that of now."""
    _check_name(name)
    body = content
    if version == 2:
        no_metadata = struct.pack(">H", 0)
        body = _EXTENDED.pack(_EXTENDED.size, len(no_metadata), 0, 0) + content + no_metadata
    seconds = min(max(time.time() if time_s is None else time_s, 0.0), 2**32 - 1)
    stamp = int(seconds), int(seconds % 1 * 2**32)
    return _HEADER.pack(version, kind.encode(), name.encode(), *stamp, len(body), _checksum()(body)) + body


def image_message(
    frame: Frame,
    pose: Pose | None = None,
    *,
    name: str | None = None,
    values: npt.NDArray[Any] | None = None,
    time_s: float | None = None,
    version: int = 1,
) -> bytes:
    """The frame as an IMAGE where `pose` puts it, in its own mm without one.

    `values` (H, W) may stand in for its pixels, such as the volume cut at the same place. Values from 0 to 1 are sent
    as bytes. An image placed in a volume is named Image_Volume, as PLUS names those that it places.
    """
    if pose is not None and pose.source != frame.frame_of_reference:
        raise ScopeRegError(
            f"the pose is {pose.name}, the frame is in {frame.frame_of_reference}",
            where="image_message(pose)",
            fix=f"pass the pose from {frame.frame_of_reference} to the volume",
        )
    pixels = as_bytes(frame.numpy() if values is None else np.asarray(values))
    if pixels.shape != frame.shape:
        raise ScopeRegError(
            f"the values have shape {pixels.shape}, the frame {frame.shape}",
            where="image_message(values)",
            fix="pass one value for each pixel of the frame",
        )
    pixel_to_lps = (np.eye(4) if pose is None else pose.matrix) @ _pixel_to_image(frame)
    default = frame.frame_of_reference if pose is None else f"{frame.frame_of_reference}_{pose.target}"
    # pyigtl needs three axes, or it sends an image one pixel wide.
    content = _pyigtl().ImageMessage(pixels[None], _other_world(pixel_to_lps), "ras")._pack_content()
    return pack("IMAGE", name or default, content, time_s=time_s, version=version)


def transform_message(pose: Pose, *, name: str | None = None, time_s: float | None = None, version: int = 1) -> bytes:
    """The pose as a TRANSFORM between RAS spaces, by default under its own name: ImageToVolume."""
    content = _pyigtl().TransformMessage(_other_worlds(pose.matrix))._pack_content()
    return pack("TRANSFORM", name or pose.name, content, time_s=time_s, version=version)


def status_message(status: Status, *, name: str = "Status", time_s: float | None = None, version: int = 1) -> bytes:
    """A STATUS; its text in ASCII, cut where it is very long."""
    text = _ascii(status.text)[:_LONGEST_TEXT]
    content = _STATUS.pack(status.code, status.subcode, _ascii(status.title)[:20]) + text + b"\x00"
    return pack("STATUS", name, content, time_s=time_s, version=version)


def string_message(text: str, *, name: str = "Text", time_s: float | None = None, version: int = 1) -> bytes:
    """A STRING in ASCII, cut where it is very long; pyigtl can send no other letters."""
    content = _pyigtl().StringMessage(_ascii(text)[:_LONGEST_TEXT].decode())._pack_content()
    return pack("STRING", name, content, time_s=time_s, version=version)


def request_status() -> bytes:
    """A GET_STATUS, which PLUS answers with a STATUS: it keeps a connection alive."""
    return pack("GET_STATUS", "", b"")


def frame_of(
    message: Message, *, spacing_mm: float | Sequence[float] | None = None, sizing: Sizing | None = None
) -> StoredFrame:
    """The frame of an IMAGE, bytes as 0 to 1; its own mm count from the first pixel.

    The pixel size is that of the message. PLUS sends 1 mm where it was not told to place its images, which nobody may
    take for true: then `spacing_mm` is needed. `pose` is where the message puts the frame. With `sizing` that decides:
    it gets columns and rows and what the message states, if it does, and a frame for which it knows no size either is
    one that `is_sized` tells.
    """
    where = f"OpenIGTLink IMAGE {message.header.name!r}"
    image = message.content.image
    if image.shape[0] != 1:
        raise MessageError(f"it has {image.shape[0]} planes", where=where, fix="send 2D frames")
    colours = image.ndim == 4
    picture = picture_of(image[0], where, colours=colours)
    matrix = message.content.ijk_to_world_matrix
    pixel_to_lps = _other_world(matrix) if message.content.world_coordinate_system == "ras" else matrix
    spacing: PixelSize | Unknown
    if sizing is None:
        spacing, pose = _place(pixel_to_lps, picture.grey.shape, spacing_mm, where)
    else:
        spacing, pose = _sized(pixel_to_lps, picture.grey.shape, sizing, where)
    _, mark, target = message.header.name.rpartition("_")
    world = target if mark and target.isalnum() and target[0].isupper() else WORLD
    facts: dict[str, Any] = {
        "index": message.number,
        "time_s": message.header.time_s,
        **size_facts(spacing, "IMAGE message" if pose is not None else GIVEN),
    }
    placed = None if pose is None else Pose.from_matrix(pose, IMAGE, world)
    if picture.notes:
        facts["notes"] = list(picture.notes)
    return StoredFrame(
        picture.grey,
        1.0 if isinstance(spacing, Unknown) else spacing,
        (0.0, 0.0),
        path=message.header.name,
        facts=facts,
        pose=placed,
        mask=picture.mask,
    )


def pose_of(message: Message) -> Pose:
    """The pose of a TRANSFORM called AToB."""
    link = link_of(message.header.name) or (IMAGE, WORLD)
    return Pose.from_matrix(_other_worlds(message.content.matrix), *link)


def text_of(message: Message) -> str:
    """The text of a STRING or STATUS."""
    content = message.content
    return content.text if isinstance(content, Status) else str(content.string)


def as_bytes(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Values from 0 to 1 as bytes, others as float32."""
    if values.dtype == np.uint8:
        return values
    if values.size and values.min() >= 0 and values.max() <= 1:
        grey: npt.NDArray[np.uint8] = (values * 255).round().astype(np.uint8)
        return grey
    return values.astype(np.float32)


def _parsed(header: Header, content: bytes) -> Any:
    if header.kind == "STATUS":
        code, subcode, title = _STATUS.unpack_from(content)
        text = content[_STATUS.size :].partition(b"\x00")[0].decode("utf-8", "replace")
        return Status(code, subcode, title.partition(b"\x00")[0].decode("utf-8", "replace"), text)
    kinds = {"IMAGE": "ImageMessage", "TRANSFORM": "TransformMessage", "STRING": "StringMessage"}
    if header.kind not in kinds:
        return None
    wrong = {"IMAGE": _wrong_image, "STRING": _wrong_string}.get(header.kind, lambda _: "")(content)
    if wrong:
        raise MessageError(wrong, where=f"OpenIGTLink {header.kind} {header.name!r}", fix=_RESEND)
    message = getattr(_pyigtl(), kinds[header.kind])()
    fields = {
        "header_version": 1,  # what version 2 adds is taken off
        "message_type": header.kind,
        "device_name": header.name,
        "timestamp": header.time_s,
    }
    with np.errstate(all="ignore"):  # numbers that make no sense are refused by who uses them
        message.unpack(fields, content)
    return message


def _wrong_image(content: bytes) -> str:
    """What pyigtl would take for something else; empty where nothing is wrong."""
    _, components, scalar, order, world, *numbers = _IMAGE.unpack_from(content)
    width, height, depth = numbers[:3]
    if scalar not in _SCALAR_BYTES or order not in (1, 2) or world not in (1, 2):
        return f"its type, byte order and world are {scalar}, {order}, {world}"
    announced = width * height * depth * components * _SCALAR_BYTES[scalar]
    if not announced or announced != len(content) - _IMAGE.size:
        size = f"{width} x {height} x {depth} x {components}"
        return f"{size} of type {scalar} take {announced} bytes, and {len(content) - _IMAGE.size} came"
    return ""


def _wrong_string(content: bytes) -> str:
    """The same of a text."""
    _, length = _STRING.unpack_from(content)
    return f"of {length} letters {len(content) - _STRING.size} came" if length > len(content) - _STRING.size else ""


def _content(header: Header, body: bytes) -> tuple[bytes, int]:
    """The body without what version 2 puts around it, and the number of the message."""
    if header.version == 1:
        return body, 0
    own, metadata_header, metadata_body, number = _EXTENDED.unpack_from(body)
    end = len(body) - metadata_header - metadata_body
    if own < _EXTENDED.size or end < own:
        raise MessageError(
            f"its extended header and metadata have {own + metadata_header + metadata_body} of {len(body)} bytes",
            where=f"OpenIGTLink {header.kind} {header.name!r}",
            fix=_RESEND,
        )
    return body[own:end], number


def _other_world(matrix: Matrix) -> Matrix:
    """A matrix to RAS as one to LPS, and the other way round."""
    return matrix * _SIGNS[:, None]


def _other_worlds(matrix: Matrix) -> Matrix:
    """A matrix between RAS spaces as one between LPS spaces, and the other way round."""
    return matrix * np.outer(_SIGNS, _SIGNS)


def _place(
    pixel_to_lps: Matrix, shape: tuple[int, ...], given: float | Sequence[float] | None, where: str
) -> tuple[tuple[float, float], Matrix | None]:
    """Pixel size and rigid pose of an image; no pose where the message states no pixel size."""
    sizes = np.linalg.norm(pixel_to_lps[:3, :2], axis=0)
    if not np.isfinite(pixel_to_lps).all() or sizes.min() <= 0:
        raise MessageError("its matrix is not finite, or a pixel has no size", where=where, fix=_RESEND)
    wanted = None if given is None else as_pair(given, "spacing_mm")
    unstated = np.allclose(sizes, 1, atol=_NOT_STATED)
    if wanted is not None and unstated and not np.allclose(wanted, 1, atol=_NOT_STATED):
        return wanted, None
    height, width = shape
    try:
        spacing, rigid = _rigid(pixel_to_lps, (height, width), where, stated=wanted is not None)
    except ScopeRegError as error:
        raise MessageError(error.what, where=where, fix=f"{error.fix}, or give spacing_mm=") from None
    if wanted is not None and not np.allclose(wanted, spacing, rtol=_SAME_SIZE, atol=0):
        raise MessageError(
            f"a pixel measures {spacing[0]:g} x {spacing[1]:g} mm, {wanted[0]:g} x {wanted[1]:g} mm are given",
            where=where,
            fix="leave spacing_mm= out, or correct the calibration of the sender",
        )
    return spacing, rigid


def _sized(
    pixel_to_lps: Matrix, shape: tuple[int, ...], sizing: Sizing, where: str
) -> tuple[PixelSize | Unknown, Matrix | None]:
    """Pixel size as `sizing` decides, and the rigid pose of an image that states its own."""
    sizes = np.linalg.norm(pixel_to_lps[:3, :2], axis=0)
    if not np.isfinite(pixel_to_lps).all() or sizes.min() <= 0:
        raise MessageError("its matrix is not finite, or a pixel has no size", where=where, fix=_RESEND)
    height, width = shape
    if np.allclose(sizes, 1, atol=_NOT_STATED):
        return sizing((width, height), None), None
    try:
        stated, rigid = _rigid(pixel_to_lps, (height, width), where, stated=True)
    except ScopeRegError as error:
        raise MessageError(error.what, where=where, fix=error.fix) from None
    return sizing((width, height), stated), rigid


def _rigid(
    pixel_to_lps: Matrix, shape: tuple[int, int], where: str, *, stated: bool
) -> tuple[tuple[float, float], Matrix]:
    x, y = pixel_to_lps[:3, 0], pixel_to_lps[:3, 1]
    width_mm, height_mm = float(np.linalg.norm(x)), float(np.linalg.norm(y))
    square = abs(float(x @ y)) <= _SQUARE * width_mm * height_mm
    if not square or (not stated and np.allclose((width_mm, height_mm), 1, atol=_NOT_STATED)):
        images = take_out_pixel_size(pixel_to_lps[None], shape, where, stated=stated)
        return images.spacing_mm, images.image_to_world[0]
    matrix = np.eye(4)
    matrix[:3, 0], matrix[:3, 1], matrix[:3, 3] = x / width_mm, y / height_mm, pixel_to_lps[:3, 3]
    matrix[:3, 2] = np.cross(matrix[:3, 0], matrix[:3, 1])  # whatever the third axis of a plane says
    return (width_mm, height_mm), matrix


def _pixel_to_image(frame: Frame) -> Matrix:
    """Columns and rows to the frame's mm; a pixel is as thick as it is wide."""
    x, y = frame.spacing_mm
    matrix = np.diag([x, y, x, 1.0])
    matrix[:2, 3] = frame.origin_mm
    return matrix


def _check_name(name: str) -> None:
    if len(name) > 20 or not (name.isascii() and name.isprintable()):
        raise ScopeRegError(
            f"the name is {name!r}", where="OpenIGTLink device name", fix="use at most 20 letters of ASCII"
        )


def _ascii(text: str) -> bytes:
    return text.replace("\x00", " ").encode("ascii", "replace")


@lru_cache(maxsize=1)
def _pyigtl() -> Any:
    try:
        import pyigtl
    except ImportError:
        raise ScopeRegError(
            "OpenIGTLink needs pyigtl, which is not installed",
            where="scopereg.live",
            fix="pip install 'scopereg[live]'",
        ) from None
    return pyigtl


@lru_cache(maxsize=1)
def _checksum() -> Callable[[bytes | bytearray], int]:
    """CRC-64 of ECMA-182. By fastcrc: pyigtl takes crcmod's, which is slow, and slower yet without a compiler."""
    _pyigtl()
    try:
        from fastcrc import crc64
    except ImportError:
        raise ScopeRegError(
            "OpenIGTLink needs fastcrc, which is not installed",
            where="scopereg.live",
            fix="pip install 'scopereg[live]'",
        ) from None
    return crc64.ecma_182
