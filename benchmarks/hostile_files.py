"""Files that were changed at random, through every reader of foreign bytes: how many are read, how many refused.

    python benchmarks/hostile_files.py --seed 1 benchmarks/hostile_files.csv

Two kinds of rows. `mutations` takes the good files of tests/fuzzing/corpus and changes them as tests/io/mutations.py
does; a reader may read or refuse with words, anything else ends the run. `flips` turns one bit in a packed stream,
which has a checksum: what is read all the same must hold the same voxels, `changed` counts what does not.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from scopereg.errors import ScopeRegError
from scopereg.io.files import write_sheet
from scopereg.io.frames import read_cine
from scopereg.io.volumes import read_volume
from scopereg.progress import say

ROOT = Path(__file__).parents[1]
sys.path += [str(ROOT / "tests" / "fuzzing"), str(ROOT / "tests" / "io")]
from harnesses import CORPUS, HARNESSES, try_one  # noqa: E402
from mutations import LONGEST_S, mutations, peak_memory  # noqa: E402

PACKED = {  # files with a packed stream, and where it begins
    ("nifti-gz", "good-own"): lambda data: 0,
    ("nrrd", "good-itk-packed"): lambda data: data.index(b"\n\n") + 2,
    ("metaimage", "good-itk-packed"): lambda data: data.index(b"LOCAL") + 6,
    ("png", ""): lambda data: data.index(b"IDAT") + 4,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", type=Path, help="CSV file to write")
    parser.add_argument("--each", type=int, default=170, help="mutations for every reader")
    parser.add_argument("--flips", type=int, default=200, help="bits turned in every packed stream")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    rows = [mutated(name, options.each, options.seed) for name in HARNESSES]
    rows += [flipped(name, start, options.flips, options.seed) for name, start in PACKED.items()]
    for row in rows:
        row |= {"seed": options.seed, "peak_mb": round(peak_memory() / 2**20)}
    write_sheet(options.table, rows, list(rows[0]))
    tried, late = sum(row["tried"] for row in rows), max(row["slowest_s"] for row in rows)
    say(f"{tried} files, slowest {late:.1f} s, {sum(row['changed'] for row in rows)} changed in silence")


def mutated(name: str, count: int, seed: int) -> dict[str, Any]:
    """Mutations of the good files of a reader, as many of each."""
    files = seeds(name)
    changed = (data for n, file in enumerate(files) for data in mutations(file, -(-count // len(files)), seed + n))
    return ended("mutations", name, changed, lambda data: (try_one(name, data), False))


def flipped(name: tuple[str, str], start: Callable[[bytes], int], count: int, seed: int) -> dict[str, Any]:
    """Single bits turned in the packed stream of a file."""
    data = next(file for file in files_of(name[0]) if file.name == name[1] or not name[1]).read_bytes()
    ending = HARNESSES[name[0]].ending
    true = voxels(data, ending)

    def read(one: bytes) -> tuple[bool, bool]:
        try:
            found = voxels(one, ending)
        except ScopeRegError:
            return False, False
        return True, not np.array_equal(found, true)

    return ended("flips", name[0], flips(data, start(data), count, seed), read)


def ended(kind: str, name: str, files: Iterator[bytes], read: Callable[[bytes], tuple[bool, bool]]) -> dict[str, Any]:
    """A row: `read` tells whether a file was read, and whether it holds something else than it should."""
    row: dict[str, Any] = {"kind": kind, "reader": name, "tried": 0, "read": 0, "refused": 0, "changed": 0}
    slowest = 0.0
    for data in files:
        begin = time.monotonic()
        taken, differs = read(data)
        slowest = max(slowest, time.monotonic() - begin)
        assert slowest < LONGEST_S, f"{name}: {slowest:.1f} s"
        row["tried"] += 1
        row["read" if taken else "refused"] += 1
        row["changed"] += differs
    return row | {"slowest_s": round(slowest, 3)}


def files_of(name: str) -> list[Path]:
    """Good files of a reader; any where it has none."""
    return sorted((CORPUS / name).glob("good-*")) or sorted((CORPUS / name).iterdir())


def seeds(name: str) -> list[bytes]:
    return [path.read_bytes() for path in files_of(name)]


def flips(data: bytes, start: int, count: int, seed: int) -> Iterator[bytes]:
    rng = random.Random(seed)
    for _ in range(count):
        changed = bytearray(data)
        changed[rng.randrange(start, len(data))] ^= 1 << rng.randrange(8)
        yield bytes(changed)


def voxels(data: bytes, ending: str) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"file{ending}"
        path.write_bytes(data)
        return read_cine(path, spacing_mm=0.2)[0].numpy() if ending == ".png" else read_volume(path).numpy()


if __name__ == "__main__":
    main()
