"""A format of one's own, added from outside of the package, is read and written wherever the others are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from scopereg.data.folder import load_folder
from scopereg.errors import ScopeRegError
from scopereg.images import Volume
from scopereg.io import read_frame, read_volume, register_format, write_volume
from scopereg.io.formats import Format, ImageFile, ImageHeader
from scopereg.io.read_image import read_image
from scopereg.registration.reading import frame_endings

MARK = b"PLAIN 1\n"


def read_header(path: Path, detached: bool) -> ImageHeader:
    """Three whole numbers and a size in mm, as text in one line behind the mark."""
    with path.open("rb") as file:
        if file.readline() != MARK:
            raise ScopeRegError("it is no plain volume", where=str(path), fix="copy it again")
        x, y, z, step = file.readline().split()
        size = int(x), int(y), int(z)
        return ImageHeader(size, (float(step),) * 3, np.eye(3), "8-bit", 1, (0, 0, 0), source=(path, file.tell()))


def read_voxels(header: ImageHeader) -> np.ndarray[Any, Any]:
    path, start = header.source
    return np.frombuffer(path.read_bytes()[start:], np.uint8).reshape(header.size[::-1])


def write(path: Path, image: ImageFile) -> None:
    z, y, x = image.array.shape
    path.write_bytes(MARK + f"{x} {y} {z} {image.spacing_mm[0]}\n".encode() + image.array.astype(np.uint8).tobytes())


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    from scopereg.io import read_image as door

    monkeypatch.setattr(door, "_BY_ENDING", dict(door._BY_ENDING))
    register_format(Format((".plain",), read_header, read_voxels, write))


def test_it_is_read_and_written_as_any_other(tmp_path: Path) -> None:
    values = np.arange(16 * 24 * 32, dtype=np.float32).reshape(16, 24, 32) % 250
    path = write_volume(Volume(values, 0.5), tmp_path / "a.plain")
    volume = read_volume(path)
    assert np.allclose(volume.numpy() * 255, values)
    assert volume.spacing_mm == (0.5, 0.5, 0.5)
    assert read_frame(path, index=3).shape == (24, 32)
    assert np.array_equal(read_image(path).array, values)
    assert ".plain" in frame_endings()


def test_folders_of_it_make_sets(tmp_path: Path) -> None:
    for name in "ab":
        rng = np.random.default_rng(ord(name))
        write_volume(Volume(rng.integers(0, 255, (16, 24, 32)).astype(np.float32), 1.0), tmp_path / f"{name}.plain")
    assert load_folder(tmp_path).cases == ("a", "b")


def test_endings_are_new_and_begin_with_a_dot() -> None:
    for ending in (".plain", ".nii.gz", "plain", ".PLAIN2"):
        with pytest.raises(ScopeRegError, match=r"is taken|is no ending"):
            register_format(Format((ending,), read_header, read_voxels))
