"""What verdicts are worth on the development sets: on own frames, and on frames that are none, or not as they are told.

    python benchmarks/confidence.py --out benchmarks/confidence.csv

A row for every set, alone and refined, as `scopereg register` judges without other ways after it. No calibration was
made on these sets. Of the first frames of each set `register` is also asked for frames of another patient and of
another organ, noise, gel, mirrored ones, wrong pixel sizes and the like (`registration.strangers`), and for own frames
with colour flow saved in grey, or text, drawn over them. Every frame is in a second file (-frames.csv).
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import painting
import torch
from development_sets import DATA, OUT, QUICK_MAGNITUDE, SETS, development_set
from quick_sets import Case, DevelopmentSet

import scopereg
from scopereg.data.seeds import generator_for
from scopereg.errors import ScopeRegError
from scopereg.evaluation.reliability import Judged, doubt_of, reliability_of
from scopereg.geometry import SUCCESS_MM, VoxelPoses, mtre_mm
from scopereg.images import Frame, Volume, pose_to_voxels
from scopereg.io.files import write_sheet
from scopereg.io.grey import brightness
from scopereg.progress import counting, say
from scopereg.registration.calibrate import Once
from scopereg.registration.locator import Locator
from scopereg.registration.method import refined
from scopereg.registration.model import Registrar
from scopereg.registration.network import NetworkMethod
from scopereg.registration.result import Result
from scopereg.registration.strangers import GEL, KINDS, NOISE, OTHER, strangers_of

CLOSE_MM = 2.0  # poses as close as this ought to be ok
FRAMES, STRANGE = 24, 12  # own frames of each set, and those of them that strangers are made of
EACH = 7  # kinds of strangers made of each of these, in turn: every kind about four times
OWN, ORGAN = "own", "another organ"
COVERED = {
    "colour flow of 15% saved in grey": lambda picture, random: painting.doppler(picture, 0.15, random),
    "colour flow of 45% saved in grey": lambda picture, random: painting.doppler(picture, 0.45, random),
    "white text in it": painting.lettered,
}
ONE_PATIENT = ("liver",)  # "another patient" would be another place of the same
GROUPS = {
    "other": (OTHER, ORGAN),
    "nothing": (NOISE, GEL),
    "size_5": tuple(kind for kind in KINDS if "0.95" in kind or "1.05" in kind),
    "size_10": tuple(kind for kind in KINDS if "pixels" in kind and "0.95" not in kind and "1.05" not in kind),
    "turned": tuple(kind for kind in KINDS if "mirrored" in kind or "turned" in kind),
    "else": ("black and white swapped", "two pictures on a screen"),
}


@dataclass(frozen=True)
class Row:
    """A frame, and what was said of it."""

    set: str
    stage: str
    kind: str
    case: str
    patient: str
    error_mm: float  # NaN where there is no truth
    expected_mm: float
    bound_mm: float
    confidence: float
    belongs: bool
    ok: bool
    reason: str


class Sought(NamedTuple):
    """A frame to seek, and whether the pose of the case is its truth."""

    kind: str
    frame: Frame
    has_truth: bool


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="universal", help="a model of the package, or weights with a calibration")
    parser.add_argument("--data", type=Path, default=DATA, help="folder of the data")
    parser.add_argument("--sets", nargs="+", choices=list(SETS), default=list(SETS), metavar="SET")
    parser.add_argument("--folder", type=Path, default=OUT / "sets", help="where these are kept")
    parser.add_argument("--magnitude", type=float, default=QUICK_MAGNITUDE, help="voxels and degrees")
    parser.add_argument("--frames", type=int, default=FRAMES, help="own ones of each set, at least")
    parser.add_argument("--strange", type=int, default=STRANGE, help="of these, that strangers are made of")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".csv"))
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    model = scopereg.load(options.model, device="cpu")
    rows: list[Row] = []
    table: list[dict[str, Any]] = []
    for place, name in enumerate(options.sets):
        made = development_set(name, options.magnitude, options.data, options.folder)
        after = options.sets[(place + 1) % len(options.sets)]
        organ = development_set(after, options.magnitude, options.data, options.folder).cases[0]
        found = list(judged(made.first(options.frames), model, organ, options.strange))
        rows += found
        for stage in dict.fromkeys(row.stage for row in found):
            table.append(summary([row for row in found if row.stage == stage], model, options.magnitude))
            say(", ".join(f"{key} {value}" for key, value in table[-1].items() if key != "weights_sha256"))
        write_sheet(options.out, table)
        write_sheet(options.out.with_name(f"{options.out.stem}-frames.csv"), [short(row) for row in rows])


def judged(chosen: DevelopmentSet, model: Registrar, organ: Case, strange: int) -> Iterator[Row]:
    """Every frame of a set, and strangers beside the first of them, alone and refined."""
    number = 0
    with counting(chosen.name) as progress:
        for done, case in enumerate(chosen.cases, start=1):
            volume = Volume(case.volume.float() / 255, chosen.spacing_mm)
            network = Once(NetworkMethod(model))
            alone, refining = Locator(volume, network), Locator(volume, refined(network, device="cpu"))
            for row, image in enumerate(case.frames):
                frame = Frame(image.float() / 255, spacing_mm=chosen.spacing_mm)
                true = VoxelPoses(*(part[row : row + 1].float() for part in (case.rotation, case.translation)))
                every = [Sought(OWN, frame, True)]
                if number < strange:
                    every += sought(chosen, case, frame, organ, number)
                number += 1
                for one in every:
                    yield from rows_of(chosen, case, one, true, alone, refining)
            progress(done, len(chosen.cases))


def sought(chosen: DevelopmentSet, case: Case, frame: Frame, organ: Case, number: int) -> Iterator[Sought]:
    """All that is sought beside a frame."""
    others = [one for one in chosen.cases if one.patient != case.patient and chosen.name not in ONE_PATIENT]
    other = Frame(others[number % len(others)].frames[0].float() / 255, frame.spacing_mm) if others else None
    generator = generator_for(f"strangers of {case.name}", number)
    for kind, strange in strangers_of(frame, other, number, EACH, generator):
        yield Sought(kind, strange, False)
    yield Sought(ORGAN, Frame(organ.frames[number % len(organ.frames)].float() / 255, frame.spacing_mm), False)
    kind = list(COVERED)[number % len(COVERED)]
    picture = painting.enlarged((frame.numpy() * 255).round().astype(np.uint8), 2)
    drawn = COVERED[kind](picture, np.random.default_rng(number)).astype(np.float32) / 255
    x_mm, y_mm = frame.spacing_mm
    yield Sought(kind, Frame(brightness(drawn, "grey") if drawn.ndim == 3 else drawn, (x_mm / 2, y_mm / 2)), True)


def rows_of(
    chosen: DevelopmentSet, case: Case, one: Sought, true: VoxelPoses, alone: Locator, refining: Locator
) -> Iterator[Row]:
    """What is said of a frame; one that cannot be located has no pose, and is not ok."""
    try:
        found = alone.locate(one.frame)
    except ScopeRegError:
        return
    for stage, result in (("network", found), ("refined", refining.refine_from(one.frame, found) or found)):
        error_mm = error_of(result, one.frame, true, case) if one.has_truth else np.nan
        numbers = (error_mm, result.expected_mm, result.bound_mm, result.confidence)
        head = (chosen.name, stage, one.kind, case.name, case.patient)
        yield Row(*head, *numbers, result.belongs is True, result.ok is True, result.reason)


def error_of(result: Result, frame: Frame, true: VoxelPoses, case: Case) -> float:
    assert result.volume is not None
    spacing_mm = result.volume.isotropic_spacing_mm
    grid = frame.resampled(spacing_mm)
    pose = pose_to_voxels(result.pose, grid, result.volume)
    guess = VoxelPoses(*(part[None].float() for part in pose))
    return float(mtre_mm(guess, true, (case.frames.shape[1], case.frames.shape[2]), spacing_mm))


def summary(rows: Sequence[Row], model: Registrar, magnitude: float) -> dict[str, Any]:
    """A row of the table."""
    own = [row for row in rows if row.kind == OWN]
    errors, expected, bound, sure = (
        np.array([getattr(row, name) for row in own]) for name in ("error_mm", "expected_mm", "bound_mm", "confidence")
    )
    ok, close = np.array([row.ok for row in own]), errors <= CLOSE_MM
    sure, doubt = np.nan_to_num(sure, nan=0.0), doubt_of(expected, sure)
    told = reliability_of(Judged(errors, doubt, [row.patient for row in own], sure, expected, bound, ok))
    strange = [row for row in rows if np.isnan(row.error_mm)]
    covered = [row for row in rows if row.kind in COVERED]
    return {
        "set": rows[0].set,
        "magnitude": f"{magnitude:g}",
        "stage": rows[0].stage,
        "frames": told.frames,
        "mean_mm": f"{told.mean_mm:.3f}",
        "beyond_3_mm": told.bad,
        "auroc": f"{told.auroc:.3f}",
        "below_bound": f"{told.below_bound:.3f}",
        "bound_mm": f"{told.bound_mm:.2f}",
        "rejected": sum(not row.belongs for row in own),
        "ok": int(ok.sum()),
        "ok_beyond_3_mm": int((ok & (errors > SUCCESS_MM)).sum()),
        "worst_ok_mm": f"{errors[ok].max():.2f}" if ok.any() else "",
        "within_2_mm": int(close.sum()),
        "ok_within_2_mm": int((ok & close).sum()),
        "strangers": len(strange),
        "strangers_ok": sum(row.ok for row in strange),
        **{f"{name}_ok": count_ok([row for row in strange if row.kind in kinds]) for name, kinds in GROUPS.items()},
        "covered": len(covered),
        "covered_ok": sum(row.ok for row in covered),
        "covered_ok_beyond_3_mm": sum(row.ok and row.error_mm > SUCCESS_MM for row in covered),
        "model": model.name,
        "weights_sha256": model.fingerprint[:16],
    }


def count_ok(rows: Sequence[Row]) -> str:
    return f"{sum(row.ok for row in rows)} of {len(rows)}"


def short(row: Row) -> dict[str, Any]:
    numbers = {name: "" if np.isnan(value) else f"{value:.3f}" for name, value in asdict(row).items() if "mm" in name}
    sure = "" if np.isnan(row.confidence) else f"{row.confidence:.3f}"
    return {**asdict(row), **numbers, "confidence": sure, "belongs": int(row.belongs), "ok": int(row.ok)}


if __name__ == "__main__":
    main()
