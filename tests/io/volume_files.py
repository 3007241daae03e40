"""Small volume files to be damaged: their headers and streams are where the tests of them expect them."""

from __future__ import annotations

import bz2
import gzip
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np

from scopereg.io.formats import ImageFile
from scopereg.io.metaimage import MetaSequence, read_metaimage, write_metaimage
from scopereg.io.read_image import read_image, write_image

VOXELS = np.random.default_rng(0).integers(0, 256, (6, 10, 12)).astype(np.uint8)
IMAGE = ImageFile(VOXELS, (0.5, 0.6, 0.7), (1.0, -2.0, 3.0), np.eye(3))
NRRD = "NRRD0004\ntype: uchar\ndimension: 3\nsizes: 12 10 6\nspacings: 1 1 1\nencoding: {}\n\n"
META = "ObjectType = Image\nNDims = 3\nDimSize = 12 10 6\nElementSpacing = 1 1 1\nElementType = MET_UCHAR\n"
LOCAL = "ElementDataFile = LOCAL\n"


def nrrd(path: Path, encoding: str = "raw", *changes: tuple[str, str], packed: bytes | None = None) -> Path:
    """An NRRD file with some of its header replaced."""
    header = NRRD.format(encoding)
    for old, new in changes:
        assert old in header
        header = header.replace(old, new)
    pack: dict[str, Callable[[bytes], bytes]] = {"raw": bytes, "gzip": gzip.compress, "bzip2": bz2.compress}
    content = pack[encoding](VOXELS.tobytes()) if packed is None else packed
    path.write_bytes(header.encode("latin-1") + content)
    return path


def meta(path: Path, *lines: str, header: str = META, last: str = LOCAL, content: bytes | None = None) -> Path:
    """A MetaImage file with more lines in its header."""
    text = header + "".join(f"{line}\n" for line in lines) + last
    path.write_bytes(text.encode("latin-1") + (VOXELS.tobytes() if content is None else content))
    return path


def nifti(path: Path, *changes: tuple[int, str, object]) -> Path:
    """A NIfTI file with numbers of its header replaced."""
    plain = path.with_name("plain.nii")
    content = bytearray(write_image(IMAGE, plain).read_bytes())
    plain.unlink()
    for at, form, values in changes:
        struct.pack_into(f"<{form}", content, at, *np.atleast_1d(values).tolist())
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


def packed_file(folder: Path, kind: str) -> tuple[Path, int]:
    """A compressed file, and where its stream begins."""
    if kind == "nii.gz":
        return write_image(IMAGE, folder / "a.nii.gz"), 0
    if kind in ("nrrd-gzip", "nrrd-bzip2"):
        path = nrrd(folder / "a.nrrd", kind[5:])
        return path, len(NRRD.format(kind[5:]))
    if kind == "plus":
        frames = [{"Timestamp": str(row), "ImageStatus": "OK"} for row in range(6)]
        path = write_metaimage(MetaSequence({}, frames, VOXELS), folder / "a.igs.mha")
    else:
        path = write_image(IMAGE, folder / "a.mha")
    return path, path.read_bytes().index(b"ElementDataFile = LOCAL\n") + 24


KINDS = ("nii.gz", "nrrd-gzip", "nrrd-bzip2", "mha", "plus")


def voxels_of(path: Path, kind: str) -> np.ndarray:
    return read_metaimage(path).images if kind == "plus" else read_image(path).array
