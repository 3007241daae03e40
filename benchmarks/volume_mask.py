"""Whether a mask of the volume helps, and what the network should see of the rest: black, or what is there.

    OMP_NUM_THREADS=1 python benchmarks/volume_mask.py --frames 16

An ellipsoid in the middle of each reference counts, a bit less than half of each plane. Outside of it the volume is as
it was (as where a user points at an organ), or it is another place (its mirror image: what moved, or is not there any
more). Frames of the development sets are located without a mask, with the rest black to network and fine stage, and
with the rest as it is to both and left out of the refinement alone.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from development_sets import DATA, OUT, QUICK_MAGNITUDE, development_set
from quick_sets import Case

from scopereg.errors import ScopeRegError
from scopereg.geometry import Pose
from scopereg.images import Frame, Volume, pose_from_voxels
from scopereg.io.files import write_sheet
from scopereg.progress import say
from scopereg.registration.locator import Locator
from scopereg.registration.refine import PreparedRefinement, RefinedMethod
from scopereg.registration.result import Result, apart_mm

SETS = ("liver", "uterus", "resect", "camus-m", "phantom-abdomen", "phantom-echo")
METHOD = "universal+refine"
RIGHT, OTHER = "as it was", "another place"
NONE, BLACK, AS_IS = "none", "black", "as it is, not refined on"
NEAR_MM = 3.0


def ellipsoid(shape: tuple[int, int, int], share: float = 0.37) -> torch.Tensor:
    """Semi-axes of so much of the height and width, along all of the depth."""
    _, y, x = torch.meshgrid(*(torch.linspace(-0.5, 0.5, n) for n in shape), indexing="ij")
    return (x.square() + y.square()) <= share**2


def volumes(case: Case, spacing_mm: float) -> Iterator[tuple[str, Volume]]:
    """The reference as it was, and with another place around what counts."""
    values = case.volume.float() / 255
    mask = ellipsoid(tuple(values.shape))
    yield RIGHT, Volume(values, spacing_mm, mask=mask)
    yield OTHER, Volume(torch.where(mask, values, values.flip(2).flip(0)), spacing_mm, mask=mask)


def locators(volume: Volume) -> Iterator[tuple[str, Locator]]:
    plain = Locator(replace(volume, mask=None), METHOD, device="cpu")
    yield NONE, plain
    masked = Locator(volume, METHOD, device="cpu")
    yield BLACK, masked
    mixed = Locator(replace(volume, mask=None), METHOD, device="cpu")
    assert isinstance(mixed.method, RefinedMethod)
    assert isinstance(plain.prepared, PreparedRefinement)
    mixed.prepared = PreparedRefinement(mixed.method, plain.prepared.before, volume.for_registration())
    yield AS_IS, mixed


def rows(name: str, case: Case, spacing_mm: float) -> Iterator[dict[str, Any]]:
    for around, volume in volumes(case, spacing_mm):
        for seen, locator in locators(volume):
            for row, image in enumerate(case.frames[:2]):
                frame = Frame(image.float() / 255, spacing_mm)
                truth = pose_from_voxels(case.rotation[row], case.translation[row], frame, volume)
                yield {"set": name, "around": around, "seen": seen, **outcome(locator, frame, truth)}


def outcome(locator: Locator, frame: Frame, truth: Pose) -> dict[str, Any]:
    prepared = locator.prepared
    assert isinstance(prepared, PreparedRefinement)
    (network,) = prepared.before.locate([frame.for_registration()], [None])
    try:
        found = locator.locate(frame)
    except ScopeRegError:
        return {"network_mm": np.inf, "error_mm": np.inf, "ok": None}
    first = apart_mm(frame, network.pose, truth) if isinstance(network, Result) else np.inf
    return {"network_mm": first, "error_mm": apart_mm(frame, found.pose, truth), "ok": found.ok}


def summary(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    cells: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for row in found:
        cells.setdefault((row["set"], row["around"], row["seen"]), []).append(row)
    return [
        {
            **dict(zip(("set", "around", "seen"), cell, strict=True)),
            "frames": len(own),
            "network_median_mm": f"{np.median([row['network_mm'] for row in own]):.2f}",
            "median_mm": f"{np.median([row['error_mm'] for row in own]):.2f}",
            "within_3_mm": f"{np.mean([row['error_mm'] <= NEAR_MM for row in own]):.2f}",
            "ok": sum(row["ok"] is True for row in own),
            "ok_and_wrong": sum(row["ok"] is True and row["error_mm"] > NEAR_MM for row in own),
        }
        for cell, own in cells.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", default=list(SETS))
    parser.add_argument("--frames", type=int, default=16, help="of each set, two of each volume where it has so many")
    parser.add_argument("--data", type=Path, default=DATA, help="folder of the data")
    parser.add_argument("--folder", type=Path, default=OUT / "sets", help="where sets are kept")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".csv"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    found: list[dict[str, Any]] = []
    for name in options.sets:
        chosen, seen = development_set(name, QUICK_MAGNITUDE, options.data, options.folder), 0
        for case in chosen.cases:
            if seen >= options.frames:
                break
            seen += min(len(case.frames), 2)
            found += rows(name, case, chosen.spacing_mm)
        write_sheet(options.out, summary(found))
        for row in summary(found)[-6:]:
            say(", ".join(f"{key} {value}" for key, value in row.items()))


if __name__ == "__main__":
    main()
