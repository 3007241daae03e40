"""OpenIGTLink messages of every kind, and what becomes of them when something goes wrong; no tests."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable

import numpy as np

from scopereg import Frame, Pose
from scopereg.live.messages import (
    HEADER_BYTES,
    Status,
    _checksum,
    image_message,
    pack,
    status_message,
    string_message,
    transform_message,
)

Change = Callable[[bytearray, random.Random], bytearray]
_ODD = (0, 1, 2, 3, 12, 127, 128, 255, 256, 32767, 32768, 65535, 2**31 - 1, 2**31, 2**32 - 1, 2**62, 2**63, 2**64 - 1)
_NAMES = (
    b"",
    b"\x00" * 12,
    b"IMAGE\xff",
    b"image",
    b"STATUS",
    b"TRANSFORM",
    b"STRING",
    b"A" * 12,
    b"../../etc/pw",
    b"%s%n",
)


def good_messages(random_: random.Random) -> list[bytes]:
    """One of each kind in each version, with other contents each time."""
    pixels = np.random.default_rng(random_.randrange(2**32)).random((random_.randint(1, 24), random_.randint(1, 32)))
    frame = Frame(pixels.astype(np.float32), (random_.uniform(0.1, 0.9), random_.uniform(1.1, 2)))
    pose = Pose.from_euler_deg(
        [random_.uniform(-90, 90) for _ in range(3)], [random_.uniform(-99, 99) for _ in range(3)]
    )
    words = "x" * random_.randint(0, 300)
    return [
        message
        for version in (1, 2)
        for message in (
            image_message(frame, pose, version=version),
            image_message(frame, values=pixels.astype(np.float32) * 300, version=version),
            transform_message(pose, version=version),
            status_message(Status(1, random_.randint(-9, 9), "OK", words), version=version),
            string_message(words, version=version),
            pack("GET_STATUS", "", b"", version=version),
            pack("POLYDATA", "Mesh", random_.randbytes(random_.randint(0, 99)), version=version),
        )
    ]


def bad_message(random_: random.Random) -> bytes:
    """A good message with one to three things wrong; half of them have the right checksum, so that bodies are read."""
    message = bytearray(random_.choice(good_messages(random_)))
    for _ in range(random_.randint(1, 3)):
        message = random_.choice(CHANGES)(message, random_)
    if len(message) >= HEADER_BYTES and random_.random() < 0.5:
        struct.pack_into(">QQ", message, 42, len(message) - HEADER_BYTES, _checksum()(bytes(message[HEADER_BYTES:])))
    return bytes(message)


def _put(form: str, at: int, value: int) -> Change:
    def change(message: bytearray, random_: random.Random) -> bytearray:
        room = struct.calcsize(form)
        if len(message) >= at + room:
            struct.pack_into(form, message, at, value % 2 ** (8 * room))
        return message

    return change


def _odd_number(form: str, places: tuple[int, ...]) -> Change:
    """An odd number at one of these places."""
    return lambda message, random_: _put(form, random_.choice(places), random_.choice(_ODD))(message, random_)


def _flip(message: bytearray, random_: random.Random) -> bytearray:
    if message:
        message[random_.randrange(len(message))] ^= 1 << random_.randrange(8)
    return message


def _cut(message: bytearray, random_: random.Random) -> bytearray:
    return message[: random_.randrange(len(message) + 1)]


def _lengthen(message: bytearray, random_: random.Random) -> bytearray:
    return message + random_.randbytes(random_.choice((1, 2, 58, 4000)))


def _rename(message: bytearray, random_: random.Random) -> bytearray:
    message[2:14] = random_.choice(_NAMES).ljust(12, b"\x00")[:12]
    return message


def _rename_device(message: bytearray, random_: random.Random) -> bytearray:
    message[14:34] = random_.randbytes(20)
    return message


def _splice(message: bytearray, random_: random.Random) -> bytearray:
    """The header of one message before the body of another."""
    return message[:HEADER_BYTES] + bytearray(random_.choice(good_messages(random_)))[HEADER_BYTES:]


def _odd_floats(message: bytearray, random_: random.Random) -> bytearray:
    for _ in range(3):
        at = HEADER_BYTES + 4 * random_.randrange(30)
        if len(message) >= at + 4:
            struct.pack_into(">f", message, at, random_.choice((np.nan, np.inf, -np.inf, 0.0, 1e38, 1e-38)))
    return message


BODY = HEADER_BYTES
CHANGES: tuple[Change, ...] = (
    _odd_number(">H", (0,)),  # version of the header
    _odd_number(">Q", (42,)),  # length of the body
    _odd_number(">Q", (50,)),  # checksum
    _odd_number(">I", (34, 38)),  # time
    _odd_number(">H", (BODY, BODY + 6, BODY + 8, BODY + 10)),  # of an image: version, sizes
    _odd_number(">B", (BODY + 2, BODY + 3, BODY + 4, BODY + 5)),  # components, type, byte order, world
    _odd_number(">H", tuple(BODY + 60 + 2 * row for row in range(6))),  # the part that is sent
    _odd_number(">H", (BODY, BODY + 2)),  # of version 2: sizes of what stands around the content; of a text its own
    _odd_number(">I", (BODY + 4, BODY + 8)),
    _odd_floats,
    _flip,
    _cut,
    _lengthen,
    _rename,
    _rename_device,
    _splice,
)
