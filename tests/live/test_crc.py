"""The checksum of OpenIGTLink: that of the standard, and crcmod's, by which pyigtl computes it."""

from __future__ import annotations

import numpy as np
import pytest
from pyigtl.messages import CRC64

from scopereg.live import messages


def crc64(data: bytes | bytearray) -> int:
    return messages._checksum()(data)


def test_the_value_of_the_standard() -> None:
    """ECMA-182, nothing reflected, no start value: the catalogue's value for nine digits."""
    assert crc64(b"123456789") == 0x6C40DF5F0B497347


@pytest.mark.parametrize("length", [0, 1, 2, 255, 4095, 4096, 4097, 5119, 65537, 307272])
def test_parity_with_crcmod(length: int) -> None:
    data = np.random.default_rng(length).integers(0, 256, length, dtype=np.uint8).tobytes()
    assert crc64(data) == CRC64(data)
    assert crc64(bytearray(data)) == CRC64(data)


def test_leading_zeros_and_the_last_bit_count() -> None:
    data = np.random.default_rng(0).integers(0, 256, 9999, dtype=np.uint8).tobytes()
    assert crc64(data[:-1] + bytes([data[-1] ^ 1])) != crc64(data)
    assert crc64(b"\x00" * 5000 + data) == CRC64(b"\x00" * 5000 + data) == crc64(data)


def test_messages_carry_it() -> None:
    packed = messages.string_message("word " * 2000)
    header = messages.read_header(packed)
    assert header.crc == CRC64(packed[messages.HEADER_BYTES :])
