"""Frames of a real sweep sought in all of the volume that is compounded from the others, from its middle and widely.

python benchmarks/wide.py --sweep SWEEP --out benchmarks/wide.csv

SWEEP is a tracked sweep of the liver (.npz). Blocks of successive frames are left out of the volume; every other one of
them is sought by itself with `universal`, refined. One thread.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch

from scopereg.evaluation.real_protocol import sweep_case
from scopereg.geometry import SUCCESS_MM
from scopereg.images import pose_from_voxels
from scopereg.io.files import write_sheet
from scopereg.io.sweeps import read_npz_sweep
from scopereg.progress import say
from scopereg.registration.locator import Locator
from scopereg.registration.result import apart_mm

BLOCKS, BLOCK, EVERY, SPACING_MM = 5, 10, 2, 1.2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sweep", type=Path, required=True, help="tracked sweep of the liver (.npz)")
    parser.add_argument("--out", type=Path, help="CSV file to write")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = rows_of(options.sweep)
    for way in ("middle", "wide"):
        say(summary(way, [row for row in rows if row["way"] == way]))
    if options.out:
        write_sheet(options.out, rows)


def rows_of(path: Path) -> list[dict[str, str]]:
    """Two for each frame: found from the middle of the volume, and from starts all over it."""
    case = sweep_case(read_npz_sweep(path), SPACING_MM, held_out=(BLOCKS, BLOCK))
    volume = case.reference.volume
    widely = Locator(volume, "universal", refine=True, wide=True, device="cpu")
    rows = []
    for index in range(0, len(case), EVERY):
        frame = case.frames[index]
        truth = pose_from_voxels(case.truth.rotation[index], case.truth.translation[index], frame, volume)
        for way, locator in (("middle", widely.narrow()), ("wide", widely)):
            found = locator.locate(frame)
            rows.append(
                {
                    "frame": str(case.rows[index]),
                    "way": way,
                    "error_mm": f"{apart_mm(frame, found.pose, truth):.2f}",
                    "expected_mm": f"{found.expected_mm:.2f}",
                    "bound_mm": f"{found.bound_mm:.2f}",
                    "ok": "yes" if found.ok else "no",
                    "similarity": f"{found.similarity:.3f}",
                    "seconds": f"{found.time_ms / 1e3:.1f}",
                }
            )
            say(", ".join(rows[-1].values()))
    return rows


def summary(way: str, rows: list[dict[str, str]]) -> str:
    errors, bounds = (np.array([float(row[name]) for row in rows]) for name in ("error_mm", "bound_mm"))
    ok = np.array([row["ok"] == "yes" for row in rows])
    near = errors <= SUCCESS_MM
    return (
        f"{way}: {len(rows)} frames, mean {errors.mean():.2f} mm, median {np.median(errors):.2f} mm, "
        f"{near.sum()} within {SUCCESS_MM:g} mm; {ok.sum()} ok, {(ok & ~near).sum()} of them wrongly; "
        f"{(errors <= bounds).sum()} below their bound"
    )


if __name__ == "__main__":
    main()
