"""The codec of OpenIGTLink: whatever is packed comes back, and whatever is bad is an error and nothing else."""

from __future__ import annotations

import random
import tracemalloc
from contextlib import suppress
from typing import Any

import numpy as np
import pyigtl
import pytest
from bad_messages import bad_message, good_messages
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from scopereg import Frame, Pose
from scopereg.errors import ScopeRegError
from scopereg.live.messages import (
    HEADER_BYTES,
    LARGEST_BODY,
    Message,
    MessageError,
    Status,
    frame_of,
    image_message,
    pack,
    pose_of,
    read_header,
    read_message,
    status_message,
    string_message,
    text_of,
    transform_message,
)

ASCII = st.characters(min_codepoint=32, max_codepoint=126)
NAMES = st.text(ASCII, min_size=1, max_size=20).filter(lambda name: name == name.strip())
VERSIONS = st.sampled_from([1, 2])
TIMES = st.floats(0, 2**32 - 1)
SIZES_MM = st.floats(0.05, 5).filter(lambda size: abs(size - 1) > 0.01)
ANGLES, PLACES = st.floats(-180, 180), st.floats(-500, 500)
POSES = st.builds(Pose.from_euler_deg, st.tuples(ANGLES, ANGLES, ANGLES), st.tuples(PLACES, PLACES, PLACES))
PIXELS = arrays(np.uint8, array_shapes(min_dims=2, max_dims=2, min_side=1, max_side=40))
TEXTS = st.text(st.characters(min_codepoint=1, max_codepoint=126), max_size=400)


def read(packed: bytes) -> Message:
    header = read_header(packed)
    assert len(packed) == HEADER_BYTES + header.body_bytes
    return read_message(header, packed[HEADER_BYTES:])


def by_pyigtl(packed: bytes) -> Any:
    fields = pyigtl.MessageBase.parse_header(packed[:HEADER_BYTES])
    message = pyigtl.MessageBase.create_message(fields["message_type"])
    message.unpack(fields, packed[HEADER_BYTES:])
    return message


@settings(max_examples=200, deadline=None)
@given(PIXELS, SIZES_MM, SIZES_MM, st.none() | POSES, VERSIONS, TIMES)
def test_images_come_back(
    pixels: np.ndarray, x: float, y: float, pose: Pose | None, version: int, time_s: float
) -> None:
    """As bytes to the last one, where they were to a hundredth of a millimetre; pyigtl reads the same."""
    frame = Frame(pixels / np.float32(255), (x, y), (0, 0))
    packed = image_message(frame, pose, time_s=time_s, version=version)
    message = read(packed)
    found = frame_of(message)
    assert np.array_equal(np.rint(found.numpy() * 255), pixels)
    assert found.spacing_mm == pytest.approx((x, y), rel=1e-4)
    assert found.pose is not None
    placed = Pose.identity("Image", "World") if pose is None else pose
    corner = (pixels.shape[1] * x, pixels.shape[0] * y, 0)
    for point in ((0, 0, 0), corner):
        assert found.pose.apply(point) == pytest.approx(placed.apply(point), abs=1e-2)
    assert message.header.time_s == pytest.approx(time_s, abs=1e-6)
    assert np.array_equal(by_pyigtl(packed).image[0], pixels)


@settings(max_examples=100, deadline=None)
@given(arrays(np.float32, (3, 5), elements=st.floats(-1e6, 1e6, width=32)), VERSIONS)
def test_numbers_come_back_as_they_are(values: np.ndarray, version: int) -> None:
    frame = Frame(np.zeros((3, 5), np.float32), 0.5)
    outside = values.min() < 0 or values.max() > 1
    found = frame_of(read(image_message(frame, values=values, version=version))).numpy()
    assert np.array_equal(found, values) if outside else np.abs(found - values).max() <= 0.5 / 255 + 1e-6


@settings(max_examples=200, deadline=None)
@given(POSES, VERSIONS, TIMES)
def test_transforms_come_back(pose: Pose, version: int, time_s: float) -> None:
    message = read(transform_message(pose, time_s=time_s, version=version))
    found = pose_of(message)
    assert found.name == pose.name
    assert found.is_close(pose, mm=1e-3, deg=1e-2)


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**16 - 1), st.integers(-(2**63), 2**63 - 1), st.text(ASCII, max_size=19), TEXTS, NAMES, VERSIONS)
def test_words_come_back(code: int, subcode: int, title: str, text: str, name: str, version: int) -> None:
    status = Status(code, subcode, title, text)
    message = read(status_message(status, name=name, version=version))
    assert (message.content, message.header.name) == (status, name)
    assert text_of(read(string_message(text, name=name, version=version))) == text


@settings(max_examples=100, deadline=None)
@given(st.text(st.sampled_from("ABCXYZ_019"), min_size=1, max_size=11), NAMES, st.binary(max_size=99), VERSIONS)
def test_kinds_that_nobody_here_knows_pass(kind: str, name: str, body: bytes, version: int) -> None:
    kind = f"X{kind}"
    message = read(pack(kind, name, body, version=version))
    assert (message.kind, message.header.name, message.content) == (kind, name, None)


@settings(max_examples=500, deadline=None)
@given(st.binary(min_size=HEADER_BYTES, max_size=HEADER_BYTES))
def test_no_header_does_more_than_raise_an_error(data: bytes) -> None:
    with suppress(MessageError):
        assert read_header(data).body_bytes <= LARGEST_BODY


def test_2000_bad_messages_are_errors_or_messages_and_take_no_memory() -> None:
    """The same that `soak_streams.py` sends by the ten thousand."""
    random_ = random.Random(7)
    used = [use(bad_message(random_)) for _ in range(200)]  # libraries are loaded by the first that need them
    tracemalloc.start()
    used += [use(bad_message(random_)) for _ in range(1800)]
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert 1000 < used.count(False) < 2000
    assert most < 2**21
    for packed in good_messages(random_):
        assert read(packed).kind


def use(packed: bytes) -> bool:
    """Whether a message can be read, and its image or transform used."""
    try:
        message = read_message(read_header(packed.ljust(HEADER_BYTES, b"\x00")), packed[HEADER_BYTES:])
        {"IMAGE": frame_of, "TRANSFORM": pose_of}.get(message.kind, lambda _: None)(message)
    except ScopeRegError:
        return False
    return True
