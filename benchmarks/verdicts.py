"""What the verdicts of a model are worth on the development sets: how many poses are ok, and how many of these wrongly.

    python benchmarks/verdicts.py --out benchmarks/verdicts.csv

A row for every set, alone and refined, as `scopereg register` would say it. No calibration was made on these sets.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from development_sets import DATA, OUT, QUICK_MAGNITUDE, SETS, development_set
from quick_sets import DevelopmentSet

import scopereg
from scopereg.errors import ScopeRegError
from scopereg.geometry import SUCCESS_MM, VoxelPoses, mtre_mm
from scopereg.images import Frame, Volume, pose_to_voxels
from scopereg.io.files import write_sheet
from scopereg.progress import say
from scopereg.registration.locator import Locator
from scopereg.registration.model import Registrar

CLOSE_MM = 2.0  # poses as close as this ought to be ok
FRAMES = 24


class Judged(NamedTuple):
    """The error of a frame, and what was said of it."""

    error_mm: float
    ok: bool
    bound_mm: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="universal", help="a model of the package, or weights with a calibration")
    parser.add_argument("--data", type=Path, default=DATA, help="folder of the data")
    parser.add_argument("--sets", nargs="+", choices=list(SETS), default=list(SETS), metavar="SET")
    parser.add_argument("--magnitude", type=float, default=QUICK_MAGNITUDE, help="voxels and degrees")
    parser.add_argument("--frames", type=int, default=FRAMES, help="of each set, at least")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".csv"))
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    model = scopereg.load(options.model, device="cpu")
    rows = []
    for name in options.sets:
        chosen = development_set(name, options.magnitude, options.data, OUT / "sets").first(options.frames)
        for refine in (False, True):
            rows.append(row_of(chosen, model, refine))
            say(", ".join(f"{key} {value}" for key, value in rows[-1].items() if key != "weights_sha256"))
            write_sheet(options.out, rows)


def row_of(chosen: DevelopmentSet, model: Registrar, refine: bool) -> dict[str, Any]:
    judged = list(judge(chosen, model, refine))
    errors, bounds = (np.array([getattr(one, name) for one in judged]) for name in ("error_mm", "bound_mm"))
    fine, close = np.array([one.ok for one in judged]), errors <= CLOSE_MM
    return {
        "set": chosen.name,
        "magnitude": f"{chosen.magnitude:g}",
        "refined": refine,
        "frames": len(judged),
        "mean_mm": f"{errors.mean():.3f}",
        "ok": int(fine.sum()),
        "ok_beyond_3_mm": int((fine & (errors > SUCCESS_MM)).sum()),
        "worst_ok_mm": f"{errors[fine].max():.2f}" if fine.any() else "",
        "within_2_mm": int(close.sum()),
        "ok_within_2_mm": int((fine & close).sum()),
        "below_bound": f"{(errors <= bounds).mean():.3f}",
        "model": model.name,
        "weights_sha256": model.fingerprint[:16],
    }


def judge(chosen: DevelopmentSet, model: Registrar, refine: bool) -> Iterator[Judged]:
    """Every frame of a set, located from the middle of its volume; one that cannot be is neither ok nor near."""
    for case in chosen.cases:
        volume = Volume(case.volume.float() / 255, chosen.spacing_mm)
        locator = Locator(volume, model, refine=refine, device="cpu")
        for image, *truth in zip(case.frames, case.rotation, case.translation, strict=True):
            frame = Frame(image.float() / 255, spacing_mm=chosen.spacing_mm)
            try:
                found = locator.locate(frame)
            except ScopeRegError:
                yield Judged(np.inf, False, np.nan)  # nor below its bound
                continue
            pose = pose_to_voxels(found.pose, frame, volume)
            guess, true = (VoxelPoses(*(part[None].float() for part in one)) for one in (pose, truth))
            error = mtre_mm(guess, true, (frame.shape[0], frame.shape[1]), chosen.spacing_mm)
            yield Judged(float(error), found.ok is True, found.bound_mm)


if __name__ == "__main__":
    main()
