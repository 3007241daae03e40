"""How far slow worlds change along z: whether the depth of a plane can be found in them at all.

For each range of the factor the same 100 worlds, all slow, by their echo maps without speckle: the correlation of
planes so many voxels apart (its mean, its greatest tenth, the share of worlds above 0.95), and the shift at which it
has fallen to one half. Echo phantoms stand beside them: their third axis is time.

Run: python benchmarks/world_depth.py [least:most ...]
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from scopereg.data import phantom
from scopereg.data.phantom.anatomy.draws import Draws as PatientDraws
from scopereg.data.seeds import generator_for
from scopereg.data.worlds.draws import Draws
from scopereg.data.worlds.fields import MAP_STEP, Box
from scopereg.data.worlds.ranges import WorldRanges
from scopereg.data.worlds.world import draw_tissue
from scopereg.geometry import centred_axis

OUT = Path(__file__).with_suffix(".csv")
SHAPE = (32, 128, 128)
WORLDS, PHANTOMS = 100, 25
SHIFTS = (4, 10)  # voxels: an error that counts, and the offset that evaluation begins with
FACTORS = ("1.25:2.5", "1.5:3", "2:4", "2:8")


def correlations(planes: Tensor) -> Tensor:
    """Mean correlation (D,) of the planes (D, H, W) of a map with those 0, 1, ... further along z."""
    flat = planes.flatten(1)
    flat = flat - flat.mean(1, keepdim=True)
    flat = flat / flat.norm(dim=1, keepdim=True).clamp_min(1e-9)
    every = flat @ flat.T
    return torch.stack([every.diagonal(shift).mean() for shift in range(len(planes))])


def world_maps(ranges: WorldRanges) -> Iterator[Tensor]:
    """Echo maps of worlds, those nodes that lie within the volume."""
    box = Box(SHAPE)
    inside = []
    for nodes, size in zip(box.nodes, SHAPE, strict=True):
        count = size // MAP_STEP
        inside.append(slice((nodes - count) // 2, (nodes + count) // 2))
    for seed in range(WORLDS):
        draws = Draws(1, generator_for("a world of this benchmark", seed))
        yield draw_tissue(box, ranges, draws)[0, 0][tuple(inside)]


def phantom_maps() -> Iterator[Tensor]:
    """Echo maps of heart phantoms at the same nodes."""
    for seed in range(PHANTOMS):
        made = phantom.create("echo", seed=seed, shape=(2, 16, 16))
        made = replace(
            made, patient=type(made.patient)(PatientDraws("patient, echo", seed), 31 * 0.616, torch.device("cpu"))
        )
        z, y, x = (centred_axis(n // MAP_STEP) * MAP_STEP * 0.616 for n in SHAPE)
        x, y = x[None, None, :], y[None, :, None]
        yield made.patient.tissue(x, y, z[:, None, None], made.fan.below_face_mm(x, y)).echo_db


def half_shift(found: Tensor) -> float:
    """Voxels along z until the correlation is one half; the depth of the volume if it never is."""
    below = (found < 0.5).nonzero()
    return float(MAP_STEP * int(below[0])) if len(below) else float(SHAPE[0])


@torch.no_grad()
def measure(maps: Iterator[Tensor]) -> dict[str, float]:
    """Means over worlds, and the share of them whose planes look alike a shift away."""
    every = torch.stack([correlations(echo_db) for echo_db in maps])
    shifts = torch.tensor([half_shift(curve) for curve in every])
    row: dict[str, float] = {"count": len(every)}
    for shift in SHIFTS:
        at = every[:, shift // MAP_STEP]
        row |= {
            f"correlation_{shift}": float(at.mean()),
            f"tenth_{shift}": float(at.quantile(0.9)),
            f"alike_{shift}": float((at > 0.95).float().mean()),
        }
    return row | {"half_median": float(shifts.median()), "never_half": float((shifts >= SHAPE[0]).float().mean())}


def main(words: list[str]) -> None:
    """One row for each range of the factor."""
    usual = WorldRanges()
    cases = {"echo phantoms": phantom_maps(), "not slow": world_maps(replace(usual, slow_chance=0.0))}
    for word in words or FACTORS:
        least, most = map(float, word.split(":"))
        cases[f"{least:g} to {most:g}"] = world_maps(replace(usual, slow_chance=1.0, slow_factor=(least, most)))
    rows = []
    for name, maps in cases.items():
        rows.append({"worlds": name, **{key: f"{value:.3f}" for key, value in measure(maps).items()}})
        print(rows[-1], flush=True)
    with OUT.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main(sys.argv[1:])
