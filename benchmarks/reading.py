"""Reading good files: this version beside another one, file by file in turn, each in a process of its own that stays.

    python benchmarks/reading.py --before c5da1f1 benchmarks/reading.csv

Files are made anew. `ms` are the best of the rounds by the clock; `cpu_ms` is the mean time of the processor, of the
process and its child together, which other work on the machine does not touch; both with the ratio now / before.
`first_ms` is the first file of its kind in a new process, which pays what is started once: libraries, and now the child
process that decodes.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[1]
RNG = np.random.default_rng(0)


def scanned(*shape: int, bits: int = 8) -> np.ndarray:
    """Smooth tissue with noise, which compresses as ultrasound does."""
    values = RNG.normal(0, 12, shape)
    for axis in range(len(shape)):
        ramp = np.sin(np.linspace(0, 7 + axis, shape[axis]))
        values += 40 * ramp.reshape([-1 if axis == k else 1 for k in range(len(shape))])
    scale = 2 ** (bits - 8)
    return (np.clip(values + 120, 0, 255) * scale).astype(np.uint16 if bits > 8 else np.uint8)


def make_files(folder: Path) -> dict[str, tuple[str, Path]]:
    """Cases by name: how they are read, and the file or folder."""
    volumes, cines, frames = _make_series(folder), _make_cines(folder), _make_pictures(folder)
    return {**volumes, **cines, **frames, **_make_volumes(folder), **_make_poses(folder)}


def _dicom(pixels: np.ndarray, syntax: str, packed: list[bytes] | None, **tags: Any) -> Any:
    from pydicom.dataset import FileDataset, FileMetaDataset
    from pydicom.encaps import encapsulate
    from pydicom.uid import UID, UltrasoundMultiFrameImageStorage

    meta = FileMetaDataset()
    meta.TransferSyntaxUID = UID(syntax)
    made = FileDataset("", {}, file_meta=meta, preamble=b"\0" * 128)
    made.SOPClassUID, made.Modality = UltrasoundMultiFrameImageStorage, "US"
    made.NumberOfFrames, made.Rows, made.Columns = pixels.shape
    made.BitsAllocated = made.BitsStored = 8 * pixels.dtype.itemsize
    made.HighBit, made.PixelRepresentation = made.BitsStored - 1, 0
    made.SamplesPerPixel, made.PhotometricInterpretation = 1, "MONOCHROME2"
    made.PixelData = pixels.tobytes() if packed is None else encapsulate(packed)
    made["PixelData"].VR = "OB" if packed is not None or pixels.itemsize == 1 else "OW"
    for name, value in tags.items():
        setattr(made, name, value)
    return made


def _packed(plane: np.ndarray, kind: str) -> bytes:
    from PIL import Image

    into = BytesIO()
    Image.fromarray(plane).save(into, kind, **({"irreversible": False, "no_jp2": True} if kind == "JPEG2000" else {}))
    return into.getvalue()


LITTLE, JPEG, JPEG_2000 = "1.2.840.10008.1.2.1", "1.2.840.10008.1.2.4.50", "1.2.840.10008.1.2.4.90"


def _make_series(folder: Path) -> dict[str, tuple[str, Path]]:
    voxels, cases = scanned(100, 256, 256, bits=16), {}
    for name, syntax in (("plain", LITTLE), ("JPEG 2000", JPEG_2000)):
        home = folder / f"series-{name}"
        home.mkdir()
        for z, plane in enumerate(voxels):
            packed = [_packed(plane, "JPEG2000")] if syntax == JPEG_2000 else None
            place = {"ImagePositionPatient": [0, 0, z], "ImageOrientationPatient": [1, 0, 0, 0, 1, 0]}
            uids = {"SOPInstanceUID": f"1.2.{z}", "SeriesInstanceUID": "1.3", "FrameOfReferenceUID": "1.4"}
            made = _dicom(plane[None], syntax, packed, PixelSpacing=[0.5, 0.5], **place, **uids)
            del made.NumberOfFrames
            made.save_as(home / f"{z:03}.dcm", enforce_file_format=True)
        cases[f"DICOM series of 100 slices, {name}"] = ("volume", home)
    return cases


def _make_cines(folder: Path) -> dict[str, tuple[str, Path]]:
    from pydicom.data import get_testdata_file
    from pydicom.uid import RLELossless

    frames, cases = scanned(60, 480, 640), {}
    for name, syntax in (("plain", LITTLE), ("JPEG", JPEG), ("RLE", LITTLE)):
        packed = [_packed(frame, "JPEG") for frame in frames] if syntax == JPEG else None
        made = _dicom(frames, syntax, packed, PixelSpacing=[0.2, 0.2], SOPInstanceUID="1.2.3")
        if name == "RLE":
            made.compress(RLELossless)
        path = folder / f"cine-{name}.dcm"
        made.save_as(path, enforce_file_format=True)
        cases[f"DICOM cine of 60 frames, {name}"] = ("cine", path)
    return {**cases, "DICOM frame, JPEG-LS": ("cine", Path(get_testdata_file("MR_small_jpeg_ls_lossless.dcm")))}


def _make_pictures(folder: Path) -> dict[str, tuple[str, Path]]:
    from PIL import Image

    frame = scanned(480, 640)
    colours = np.stack([frame, np.roll(frame, 5, 0), frame[::-1]], -1)
    for ending in ("png", "jpg", "bmp", "tif"):
        Image.fromarray(colours).save(folder / f"a.{ending}")
    return {f"picture {ending}": ("cine", folder / f"a.{ending}") for ending in ("png", "jpg", "bmp", "tif")}


def _make_volumes(folder: Path) -> dict[str, tuple[str, Path]]:
    import SimpleITK as sitk

    image = sitk.GetImageFromArray(scanned(128, 192, 192, bits=16))
    image.SetSpacing((0.5, 0.5, 0.5))
    for ending in ("nii", "nii.gz", "nrrd", "mha"):
        sitk.WriteImage(image, str(folder / f"v.{ending}"), useCompression=ending != "nii")
    return {f"volume {ending}": ("volume", folder / f"v.{ending}") for ending in ("nii", "nii.gz", "nrrd", "mha")}


def _make_poses(folder: Path) -> dict[str, tuple[str, Path]]:
    import SimpleITK as sitk

    for ending in ("tfm", "h5"):
        sitk.WriteTransform(sitk.Euler3DTransform((1, 2, 3), 0.1, 0.2, 0.3, (4, 5, 6)), str(folder / f"p.{ending}"))
    return {f"transform {ending}": ("pose", folder / f"p.{ending}") for ending in ("tfm", "h5")}


def work() -> None:
    """Read what lines of stdin name, and tell how long each took."""
    from scopereg import io

    def cine(path: str) -> None:
        for frame in io.read_cine(path, spacing_mm=0.2):
            frame.numpy()

    readers = {"cine": cine, "volume": io.read_volume, "pose": io.read_pose}
    for line in sys.stdin:
        how, path = json.loads(line)
        started, used = time.perf_counter(), time.process_time() + _used_by_child()
        readers[how](path)
        took = time.perf_counter() - started
        print(json.dumps([took, time.process_time() + _used_by_child() - used]), flush=True)


def _used_by_child() -> float:
    """Seconds of the processor that the child took so far, where this version has one."""
    apart = sys.modules.get("scopereg.io.apart")
    children = [worker.process_id for worker in getattr(apart, "_idle", [])]
    return sum(int(Path(f"/proc/{child}/schedstat").read_text().split()[0]) / 1e9 for child in children)


class Version:
    """A process with one version of the package."""

    def __init__(self, source: Path) -> None:
        self.environment = {**os.environ, "PYTHONPATH": str(source), "OMP_NUM_THREADS": "1"}
        self.start()

    def start(self) -> None:
        command = [sys.executable, __file__, "--work"]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=self.environment, text=True
        )

    def read(self, how: str, path: Path) -> tuple[float, float]:
        """Seconds by the clock, and of the processor."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps([how, str(path)]) + "\n")
        self.process.stdin.flush()
        took, used = json.loads(self.process.stdout.readline())
        return float(took), float(used)

    def stop(self) -> None:
        self.process.communicate()


def measure(before: Path, rounds: int, folder: Path) -> list[dict[str, Any]]:
    rows = []
    for name, (how, path) in make_files(folder).items():
        versions = {"before": Version(before), "now": Version(ROOT / "src")}
        first = {which: version.read(how, path)[0] for which, version in versions.items()}
        times: dict[str, list[tuple[float, float]]] = {which: [] for which in versions}
        for turn in range(rounds):
            for which in ("before", "now") if turn % 2 else ("now", "before"):
                times[which].append(versions[which].read(how, path))
        for version in versions.values():
            version.stop()
        row: dict[str, Any] = {"file": name}
        for place, kind, of in ((0, "ms", min), (1, "cpu_ms", statistics.mean)):
            ms = {which: 1e3 * of([found[place] for found in times[which]]) for which in versions}
            row |= {f"{which}_{kind}": round(value, 2) for which, value in ms.items()}
            row["ratio" if kind == "ms" else "cpu_ratio"] = round(ms["now"] / ms["before"], 2)
        row |= {f"{which}_first_ms": round(1e3 * first[which]) for which in first}
        rows.append(row)
        print(row, flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("csv", type=Path, nargs="?")
    parser.add_argument("--before", default="c5da1f1", help="revision of git to compare with")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        work()
        return
    with tempfile.TemporaryDirectory() as folder:
        archive = subprocess.run(
            ["git", "archive", options.before, "src"], cwd=ROOT, check=True, stdout=subprocess.PIPE
        ).stdout
        with tarfile.open(fileobj=BytesIO(archive)) as packed:
            packed.extractall(Path(folder) / "before", filter="data")
        (Path(folder) / "files").mkdir()
        rows = measure(Path(folder) / "before" / "src", options.rounds, Path(folder) / "files")
    if options.csv is not None:
        with options.csv.open("w", newline="") as file:
            writer = csv.DictWriter(file, rows[0])
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    main()
