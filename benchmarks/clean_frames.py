"""How often something is taken for text or a needle where nothing is drawn, and how much of the picture that costs.

    python benchmarks/clean_frames.py

Frames and planes as they are, none of them with text or a needle: those of the liver sweep, the stills of CAMUS, planes
across the volumes of uterus, brain and prostate along all three axes, and of phantoms. Small ones are enlarged as a
screen shows them.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import painting
from development_sets import DATA

from scopereg.data import phantom
from scopereg.io.files import write_sheet
from scopereg.io.letters import text
from scopereg.io.needles import needles
from scopereg.io.read_image import read_image

LIT = 8  # byte from which on a pixel belongs to the picture
LEAST = 5000  # lit pixels of a picture that is looked at
DETECTORS: dict[str, Callable[[Any], Any]] = {"text": text, "needle": needles}


def liver(data: Path) -> Iterator[Any]:
    yield from np.load(data / "liver_sweep.npz")["frames"]


def camus(data: Path) -> Iterator[Any]:
    stored = np.load(data / "camus_stills.npz")
    name = next(name for name in stored.files if stored[name].ndim >= 3 and stored[name].dtype == np.uint8)
    yield from stored[name].reshape(-1, *stored[name].shape[-2:])


def planes(volume: Any, times: int) -> Iterator[Any]:
    """Three across each axis."""
    for axis in range(3):
        for place in (0.35, 0.5, 0.65):
            plane = np.take(volume, int(place * volume.shape[axis]), axis)
            yield painting.enlarged(np.ascontiguousarray(plane).astype(np.uint8), times)


def of_files(folder: str, pattern: str, times: int) -> Callable[[Path], Iterator[Any]]:
    def made(data: Path) -> Iterator[Any]:
        for path in sorted((data / folder).glob(pattern)):
            yield from planes(read_image(path).array, times)

    return made


def trus(data: Path) -> Iterator[Any]:
    for volume in np.load(data / "trus_lowres.npz")["volume"]:
        yield from planes(np.clip(volume, 0, 255), 6)


def phantoms(data: Path) -> Iterator[Any]:
    for anatomy in phantom.names():
        for seed in range(20):
            patient = phantom.create(anatomy, seed=660_000 + seed, shape=(4, 160, 160))
            yield painting.enlarged((patient.volume.array[2].numpy() * 255).astype(np.uint8), 3)


SOURCES: dict[str, Callable[[Path], Iterator[Any]]] = {
    "liver": liver,
    "camus": camus,
    "uterus": of_files("uterus", "*.nii.gz", 3),
    "brain": of_files("resect", "*_us.nii.gz", 2),
    "prostate": trus,
    "phantoms": phantoms,
}


def row_of(source: str, name: str, shares: list[float], seconds: float) -> dict[str, Any]:
    return {
        "source": source,
        "taken_for": name,
        "pictures": len(shares),
        "with_any": sum(share > 0 for share in shares),
        "mean_share_percent": f"{100 * np.mean(shares):.4f}",
        "largest_share_percent": f"{100 * np.max(shares):.2f}",
        "ms": f"{1e3 * seconds / len(shares):.1f}",
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=DATA, help="folder of the data")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".csv"))
    options = parser.parse_args()
    rows = []
    for source, made in SOURCES.items():
        shares: dict[str, list[float]] = {name: [] for name in DETECTORS}
        seconds = dict.fromkeys(DETECTORS, 0.0)
        for picture in made(options.data):
            lit = picture > LIT
            if lit.sum() < LEAST:
                continue
            for name, detect in DETECTORS.items():
                begin = time.process_time()
                found = detect(picture)
                seconds[name] += time.process_time() - begin
                shares[name].append(float((found & lit).sum() / lit.sum()))
        rows += [row_of(source, name, shares[name], seconds[name]) for name in DETECTORS]
        print(*(list(row.values()) for row in rows[-2:]), sep="\n", flush=True)
        write_sheet(options.out, rows)


if __name__ == "__main__":
    main()
