"""The checksum in numpy is crcmod's, whatever the length."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from pyigtl.messages import CRC64

from scopereg.live import messages
from scopereg.live.crc import crc64


@pytest.mark.parametrize("length", [0, 1, 2, 255, 4095, 4096, 4097, 5119, 65537, 307272])
def test_parity_with_crcmod(length: int) -> None:
    data = np.random.default_rng(length).integers(0, 256, length, dtype=np.uint8).tobytes()
    assert crc64(data) == CRC64(data)
    assert crc64(bytearray(data)) == CRC64(data)


def test_leading_zeros_and_the_last_bit_count() -> None:
    data = np.random.default_rng(0).integers(0, 256, 9999, dtype=np.uint8).tobytes()
    assert crc64(data[:-1] + bytes([data[-1] ^ 1])) != crc64(data)
    assert crc64(b"\x00" * 5000 + data) == CRC64(b"\x00" * 5000 + data) == crc64(data)


def test_without_the_c_extension_numpy_does_it(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("crcmod._crcfunext", reason="crcmod was installed without a compiler")
    assert messages._checksum() is CRC64
    messages._checksum.cache_clear()
    monkeypatch.setitem(sys.modules, "crcmod._crcfunext", None)
    assert messages._checksum() is crc64
    packed = messages.string_message("word " * 2000)
    messages._checksum.cache_clear()
    header = messages.read_header(packed)
    assert header.crc == CRC64(packed[messages.HEADER_BYTES :])
