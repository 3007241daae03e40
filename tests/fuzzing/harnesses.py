"""Harnesses: every reader of foreign bytes as a function of bytes, for fuzzing and for the corpus; no tests.

A reader may refuse with a ScopeRegError that says what is wrong and how to fix it, or give an answer that makes sense.
Anything else is a finding: another exception, an answer that is not finite, a crash, a hang, too much memory.
"""

from __future__ import annotations

import gzip
import math
import struct
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from scopereg.errors import ScopeRegError
from scopereg.grid.reading import read_plan
from scopereg.images import Frame, Volume
from scopereg.io import notes, read_pose
from scopereg.io.frames import read_cine
from scopereg.io.landmarks import read_landmarks
from scopereg.io.limits import limit_of
from scopereg.io.plus import read_calibration
from scopereg.io.plus_configuration import write_calibration
from scopereg.io.probe_sweeps import read_probe_sweep
from scopereg.io.records import parse_json
from scopereg.io.sweeps import read_npz_sweep
from scopereg.io.volumes import read_volume
from scopereg.live import messages
from scopereg.networks.weights import load_network, read_base, read_facts
from scopereg.registration import recorded

CORPUS = Path(__file__).parent / "corpus"
LIMIT_GB = 1 / 64  # of one image: what takes more memory than that shows
MOST_FRAMES = 4  # of a cine that are decoded


class Harness(NamedTuple):
    """One kind of bytes, the file's ending, and what reads it."""

    ending: str
    read: Callable[[Path], Any]
    content: Callable[[bytes], bytes] = bytes  # of the file, made of what the fuzzer gives


def try_one(name: str, data: bytes, folder: Path | None = None) -> bool:
    """Whether the reader took the bytes; False where it refused them. Raises what is a finding."""
    harness = HARNESSES[name]
    with tempfile.TemporaryDirectory(dir=folder) as inside, limit_of(LIMIT_GB):
        path = Path(inside) / f"file{harness.ending}"
        path.write_bytes(harness.content(data))
        return refused_or_read(harness.read, path)


def refused_or_read(read: Callable[[Any], Any], given: Any) -> bool:
    """Whether it was read; a refusal must say what is wrong and how to fix it."""
    try:
        read(given)
    except ScopeRegError as error:
        if not (error.what and error.fix):
            raise AssertionError(f"refused without a reason or a way out: {error!r}") from error
        return False
    return True


def _volume(path: Path) -> None:
    """As a volume, and as a stack of frames: some files are both."""
    taken = [refused_or_read(_whole_volume, path), refused_or_read(_frames, path)]
    if not any(taken):
        _whole_volume(path)


def _whole_volume(path: Path) -> None:
    _make_sense(read_volume(path))


def _frames(path: Path) -> None:
    cine = read_cine(path)
    for index in range(min(len(cine), MOST_FRAMES)):
        _make_sense(cine[index])


def _picture(path: Path) -> None:
    cine = read_cine(path, spacing_mm=0.2)
    for index in range(min(len(cine), MOST_FRAMES)):
        _make_sense(cine[index])


def _sweep(path: Path) -> None:
    """Of images, or of a probe, whose poses archives may hold instead."""
    refused_or_read(read_npz_sweep, path)
    sweep = read_probe_sweep(path)
    assert len(sweep)
    assert torch.isfinite(sweep.images.float()).all()
    assert all(math.isfinite(x) for x in sweep.probe_to_world.ravel())


def _configuration(path: Path) -> None:
    """What is put into a configuration is read back, and with it all that was there before."""
    before, link, matrix = read_calibration(path), ("Image", "Probe"), np.diag([1 / 7, 1 / 7, 1 / 7, 1.0])
    after = read_calibration(write_calibration(path.with_name("made.xml"), link, matrix, configuration=path))
    assert (after.transforms.pop(link) == matrix).all()
    before.transforms.pop(link, None)
    assert after.transforms.keys() == before.transforms.keys()
    assert after.clip == before.clip


def _dicom(path: Path) -> None:
    taken = [refused_or_read(read, path) for read in (_frames, _whole_volume, _pose)]
    if not any(taken):
        _frames(path)


def _pose(path: Path) -> None:
    for convention in ("slicer", "itk-resample"):
        pose = read_pose(path, convention=convention)  # type: ignore[arg-type]
        assert all(math.isfinite(x) for x in pose.matrix.ravel())


def _landmarks(path: Path) -> None:
    landmarks = read_landmarks(path)
    assert len(landmarks)
    assert all(math.isfinite(x) for x in landmarks.array_mm().ravel())


def _notes(path: Path) -> None:
    """As the file beside results, under the name that it has there."""
    path.rename(path.parent / notes.FILE)
    for note in notes.read_notes(path.parent):
        assert note.text == notes.note_text(note.text)


def _recorded(path: Path) -> None:
    """Three fields of a recording, a line each."""
    lines = [*path.read_text("latin-1").split("\n"), "", "", ""]
    fields = dict(zip((recorded.RESULT, recorded.NOTES, recorded.VOLUME), lines, strict=False))
    told = recorded.told_of(fields, "frame")
    assert all(isinstance(value, str) for value in told.cells.values())
    assert all(text == notes.note_text(text) for text in told.notes)
    recorded.volume_of(fields, "file")


def _json(path: Path) -> None:
    parse_json(path.read_bytes(), str(path), "write it again")


def _weights(path: Path) -> None:
    read_facts(path)
    read_base(path)
    load_network(path)


def _make_sense(image: Frame | Volume) -> None:
    assert torch.isfinite(image.array).all(), "values that are not finite"
    assert all(math.isfinite(step) and step > 0 for step in image.spacing_mm), f"spacing {image.spacing_mm}"
    assert all(math.isfinite(place) for place in image.origin_mm), f"origin {image.origin_mm}"


def _message(path: Path) -> None:
    """A header as it is; then the body with the length and the checksum that it has, so that it is looked into."""
    data = path.read_bytes()
    if len(data) < messages.HEADER_BYTES:
        raise ScopeRegError("too short for a header", where="OpenIGTLink", fix="wait for more")
    refused_or_read(messages.read_header, data)
    body = data[messages.HEADER_BYTES :]
    length_and_sum = struct.pack(">QQ", len(body), messages._checksum()(body))
    header = messages.read_header(data[:42] + length_and_sum)
    message = messages.read_message(header, body)
    if message.kind == "IMAGE":
        _make_sense(messages.frame_of(message, spacing_mm=0.2))
    elif message.kind == "TRANSFORM":
        assert all(math.isfinite(x) for x in messages.pose_of(message).matrix.ravel())
    elif message.kind in ("STATUS", "STRING"):
        assert isinstance(messages.text_of(message), str)


HARNESSES = {
    "nifti": Harness(".nii", _volume),
    "nifti-gz": Harness(".nii.gz", _volume),
    "nifti-packed": Harness(".nii.gz", _volume, lambda data: gzip.compress(data, 1)),
    "nrrd": Harness(".nrrd", _volume),
    "metaimage": Harness(".mha", _volume),
    "plus": Harness(".igs.mha", _frames),
    "plus-xml": Harness(".xml", _configuration),
    "npz": Harness(".npz", _sweep),
    "dicom": Harness(".dcm", _dicom),
    "png": Harness(".png", _picture),
    "jpeg": Harness(".jpg", _picture),
    "bmp": Harness(".bmp", _picture),
    "tiff": Harness(".tif", _picture),
    "tfm": Harness(".tfm", _pose),
    "h5": Harness(".h5", _pose),
    "matrix": Harness(".txt", _pose),
    "pose-json": Harness(".json", _pose),
    "fcsv": Harness(".fcsv", _landmarks),
    "markups": Harness(".mrk.json", _landmarks),
    "json": Harness(".json", _json),
    "notes": Harness(".json", _notes),
    "recorded": Harness(".txt", _recorded),
    "plan": Harness(".yaml", read_plan),
    "weights": Harness(".safetensors", _weights),
    "message": Harness(".igtl", _message),
}
