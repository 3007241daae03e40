"""Packed voxels: read to their checksum, just as many as promised, and no memory taken for what cannot be."""

from __future__ import annotations

import bz2
import gzip
import tracemalloc
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from volume_files import IMAGE, KINDS, VOXELS, meta, nifti, nrrd, packed_file, voxels_of

from scopereg.errors import ScopeRegError
from scopereg.io import read_volume
from scopereg.io.limits import limit_of
from scopereg.io.packed import Packed
from scopereg.io.read_image import check_length, read_image, write_image


@pytest.mark.parametrize("kind", KINDS)
def test_every_flipped_bit_of_a_compressed_stream_is_an_error(tmp_path: Path, kind: str) -> None:
    """ITK read 40 of 40 in a compressed .mha without a word, with up to 82 % of the voxels changed.

    A stream may say the same in several ways: a flip that unpacks to the same bytes is none.
    """
    path, start = packed_file(tmp_path, kind)
    whole, rng = path.read_bytes(), np.random.default_rng(3)
    assert np.array_equal(voxels_of(path, kind), VOXELS)
    after, refused = start + (10 if "gz" in kind else 0), 0  # the time in a gzip header is nobody's
    for place in rng.choice(np.arange(after, len(whole)), 40, replace=False):
        content = bytearray(whole)
        content[place] ^= 1 << int(rng.integers(8))
        path.write_bytes(content)
        try:
            assert np.array_equal(voxels_of(path, kind), VOXELS)
        except ScopeRegError:
            refused += 1
    assert refused >= 37


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "tail",
    [b"x", bytes(100), gzip.compress(b"more", mtime=0), zlib.compress(b"more")],
    ids=["byte", "zeros", "gzip", "zlib"],
)
def test_what_follows_a_stream_is_an_error(tmp_path: Path, kind: str, tail: bytes) -> None:
    path, _ = packed_file(tmp_path, kind)
    path.write_bytes(path.read_bytes() + tail)
    with pytest.raises(ScopeRegError, match=r"goes on|something follows"):
        voxels_of(path, kind)


@pytest.mark.parametrize("kind", KINDS)
def test_streams_that_break_off_are_errors(tmp_path: Path, kind: str) -> None:
    path, start = packed_file(tmp_path, kind)
    whole = path.read_bytes()
    for left in (1, 4, 8, 9, (len(whole) - start) // 2, len(whole) - start - 1):
        path.write_bytes(whole[:-left])
        with pytest.raises(ScopeRegError, match=r"damaged|cut short|cannot be read"):
            voxels_of(path, kind)


def test_two_members_that_hold_the_voxels_together_are_an_error(tmp_path: Path) -> None:
    content = gzip.decompress(write_image(IMAGE, tmp_path / "a.nii.gz").read_bytes())
    (tmp_path / "a.nii.gz").write_bytes(gzip.compress(content[:600]) + gzip.compress(content[600:]))
    with pytest.raises(ScopeRegError, match="something follows"):
        read_image(tmp_path / "a.nii.gz")
    # A length at the end that fits does not help the second member either.
    (tmp_path / "a.nii.gz").write_bytes(gzip.compress(content) + gzip.compress(content))
    with pytest.raises(ScopeRegError, match="goes on"):
        read_image(tmp_path / "a.nii.gz")


@pytest.mark.parametrize("ending", [".nii", ".nrrd", ".mha"])
@pytest.mark.parametrize("more", [-1, 1, 100])
def test_raw_files_hold_just_what_their_header_promises(tmp_path: Path, ending: str, more: int) -> None:
    make = {".nii": nifti, ".nrrd": nrrd, ".mha": meta}[ending]
    path = make(tmp_path / f"a{ending}")
    assert np.array_equal(read_image(path).array, VOXELS)
    path.write_bytes(path.read_bytes() + bytes(more) if more > 0 else path.read_bytes()[:more])
    with pytest.raises(ScopeRegError, match="cut short" if more < 0 else "goes on"):
        read_image(path)
    with pytest.raises(ScopeRegError):
        check_length(path)


@pytest.mark.parametrize("kind", ["nii.gz", "nrrd-gzip", "nrrd-bzip2", "mha", "raw"])
def test_no_memory_is_taken_for_what_cannot_be(tmp_path: Path, kind: str) -> None:
    """Bombs: small files that promise, or unpack to, far more than they should."""
    cases: dict[str, Callable[[], Path]] = {
        "nii.gz": lambda: nifti(tmp_path / "a.nii.gz", (40, "8h", [3, 1000, 1000, 1000, 1, 1, 1, 1])),
        "nrrd-gzip": lambda: nrrd(tmp_path / "a.nrrd", "gzip", packed=gzip.compress(bytes(2**26))),
        "nrrd-bzip2": lambda: nrrd(tmp_path / "a.nrrd", "bzip2", packed=bz2.compress(bytes(2**26))),
        "mha": lambda: meta(tmp_path / "a.mha", "CompressedData = True", content=zlib.compress(bytes(2**26))),
        "raw": lambda: nrrd(tmp_path / "a.nrrd", "raw", ("sizes: 12 10 6", "sizes: 1000 1000 1000")),
    }
    path = cases[kind]()
    tracemalloc.start()
    try:
        with pytest.raises(ScopeRegError, match=r"cut short|goes on|something follows|damaged"):
            read_volume(path)
        assert tracemalloc.get_traced_memory()[1] < 20e6
    finally:
        tracemalloc.stop()


def test_a_limit_of_ones_own_holds_before_memory_is_taken(tmp_path: Path) -> None:
    path = write_image(IMAGE._replace(array=np.zeros((128, 128, 128), np.uint8)), tmp_path / "a.nii.gz")
    assert path.stat().st_size < 20_000
    tracemalloc.start()
    try:
        with limit_of(0.005), pytest.raises(ScopeRegError, match=r"limit is 0\.005 GB"):
            read_volume(path)
        assert tracemalloc.get_traced_memory()[1] < 2e6
    finally:
        tracemalloc.stop()
    with limit_of(0.01):
        assert read_volume(path).shape == (128, 128, 128)


@pytest.mark.parametrize("ending", [".nii", ".nii.gz", ".nrrd", ".mha"])
@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.float32, np.float64])
def test_reading_takes_about_twice_the_voxels_at_most(tmp_path: Path, ending: str, dtype: type) -> None:
    array = np.random.default_rng(0).integers(0, 100, (80, 128, 128)).astype(dtype)
    path = write_image(IMAGE._replace(array=array), tmp_path / f"a{ending}")
    tracemalloc.start()
    try:
        read_volume(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2.1 * max(array.nbytes, 4 * array.size) + 15e6


@pytest.mark.parametrize("name", ["b.raw", "b.gz"])
def test_packed_voxels_of_another_size_are_told(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(bytes(10))
    with pytest.raises(ScopeRegError, match=r"cut short|damaged"):
        Packed(tmp_path / name, (3, 3, 3), np.dtype("<u2"), "gzip" if name == "b.gz" else "raw").read()
