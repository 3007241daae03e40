"""Time to read a good volume: by ITK alone, as scopereg 0.1.0 did (ITK and checks beside it), and by the readers now.

    python benchmarks/read_volumes.py --uterus ../shared/data/uterus/12_01.nii.gz --out benchmarks/read_volumes.csv

The three take turns in one process, files in the cache; a row holds the medians and `ratio`, now to 0.1.0. The liver is
a volume of the size of an abdominal CT, 512 x 512 x 160 numbers of 16 bits, made of the other one with noise in it.
"""

from __future__ import annotations

import argparse
import gzip
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import SimpleITK as sitk

from scopereg.io.files import write_sheet
from scopereg.io.read_image import read_image
from scopereg.provenance import device_name

KINDS = ((".nii.gz", True), (".nii", False), (".mha", True), (".mha", False), (".nrrd", True), (".nrrd", False))
TURNS = 9
_CHUNK = 2**22


def by_itk(path: Path) -> np.ndarray[Any, Any]:
    return sitk.GetArrayFromImage(sitk.ReadImage(str(path)))


def as_before(path: Path) -> np.ndarray[Any, Any]:
    """Version 0.1.0: a NIfTI file was unpacked once to see that it is whole, then ITK read it; finite or not."""
    if path.name.endswith(".nii.gz"):
        with gzip.open(path, "rb") as file:
            while file.read(_CHUNK):
                pass
    array = by_itk(path)
    assert np.isfinite(array).all()
    return array


def now(path: Path) -> np.ndarray[Any, Any]:
    return read_image(path).array


def liver_like(small: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Another volume of 160 x 512 x 512 numbers of 16 bits, as noisy as a CT."""
    axes = [np.linspace(0, n - 1, m).round().astype(int) for n, m in zip(small.shape, (160, 512, 512), strict=True)]
    grey = small[np.ix_(*axes)].astype(np.float32) * 4
    return (grey + np.random.default_rng(0).normal(scale=12, size=grey.shape)).astype(np.int16)


def row(name: str, image: sitk.Image, ending: str, packed: bool, folder: Path) -> dict[str, Any]:
    path = folder / f"{name}{'-packed' * packed}{ending}"
    sitk.WriteImage(image, str(path), useCompression=packed)
    readers: dict[str, Callable[[Path], np.ndarray[Any, Any]]] = {"itk": by_itk, "before": as_before, "now": now}
    wanted = by_itk(path)
    taken: dict[str, list[float]] = {key: [] for key in readers}
    for _ in range(TURNS):
        for key, read in readers.items():
            started = time.perf_counter()
            array = read(path)
            taken[key].append(1e3 * (time.perf_counter() - started))
            assert np.array_equal(array, wanted)
    middle = {key: statistics.median(times) for key, times in taken.items()}
    return {
        "volume": name,
        "voxels": " x ".join(map(str, image.GetSize())),
        "numbers": image.GetPixelIDTypeAsString(),
        "format": f"{ending} {'compressed' if packed else 'raw'}",
        "file_mb": round(path.stat().st_size / 1e6, 2),
        "itk_ms": round(middle["itk"], 2),
        "before_ms": round(middle["before"], 2),
        "now_ms": round(middle["now"], 2),
        "ratio": round(middle["now"] / middle["before"], 2),
        "ratio_itk": round(middle["now"] / middle["itk"], 2),
        "device": device_name("cpu"),
    }


def main() -> None:
    sitk.ProcessObject.SetGlobalWarningDisplay(False)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--uterus", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/read_volumes.csv"))
    options = parser.parse_args()
    small = sitk.ReadImage(str(options.uterus))
    volumes = {"uterus": small, "liver": sitk.GetImageFromArray(liver_like(by_itk(options.uterus)))}
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name, image in volumes.items():
            for ending, packed in KINDS:
                rows.append(row(name, image, ending, packed, Path(folder)))
                print(rows[-1], flush=True)
    write_sheet(options.out, rows)


if __name__ == "__main__":
    main()
