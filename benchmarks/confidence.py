"""What a confidence is worth, on frames whose pose is known and on frames that do not belong to the volume.

python benchmarks/confidence.py --data SET --model MODEL --sweep SWEEP --out benchmarks/confidence.csv

SET is a prepared set of CAMUS that MODEL (.safetensors) was trained on, fold 0; SWEEP a tracked sweep of the liver
(.npz). Either may be left out. `universal` is tested on a part of that set, on phantoms of every anatomy and on the
sweep. Beside the CSV file another one (-frames.csv) gets every frame.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

import scopereg
from scopereg.commands.calibrate import CalibrateOptions
from scopereg.data.examples import CaseExamples, case_examples
from scopereg.data.phantom.anatomy import ANATOMIES
from scopereg.data.phantom.sets import make_phantoms
from scopereg.data.splits import split_set
from scopereg.data.store import VolumeSet, open_set
from scopereg.data.tracked import around, start_poses
from scopereg.evaluation.real_protocol import sweep_case
from scopereg.evaluation.reliability import auroc, auroc_interval, mean_of_surest
from scopereg.geometry import SUCCESS_MM, VoxelPoses, compose_poses, invert_poses
from scopereg.images import field_of_view
from scopereg.io.files import write_sheet
from scopereg.io.sweeps import read_npz_sweep
from scopereg.progress import counting, say
from scopereg.registration.calibrate import Observed, calibrate, observe, observe_case, together
from scopereg.registration.calibration import STAGES, Calibration
from scopereg.registration.grey import blur
from scopereg.registration.model import Registrar

OWN, OTHER, NOISE, GEL = "own", "another patient", "noise", "empty gel"
FIRST_SEED = 40_000  # of phantoms: neither trained, nor calibrated, nor on a model card
SPACING_MM = 1.2  # of the sweep's reference
SHAPE = (32, 128, 128)  # of the part of the sweep's reference around a start
FRAME_COLUMNS = (
    "set",
    "stage",
    "kind",
    "patient",
    "error_mm",
    "expected_mm",
    "bound_mm",
    "confidence",
    "belongs",
    "ok",
)


@dataclass(frozen=True)
class Judged:
    """A frame and what was said of it."""

    set: str
    calibrated_on: str
    stage: str
    agreement: bool
    kind: str
    patient: str
    error_mm: float
    expected_mm: float
    bound_mm: float
    confidence: float
    belongs: bool
    ok: bool
    reason: str


@dataclass(frozen=True)
class Seen:
    """Frames of a set by kind, and the calibration that judges them."""

    name: str
    calibration: Calibration
    frames: dict[str, list[Observed]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="prepared set of CAMUS")
    parser.add_argument("--model", type=Path, help="weights trained on it")
    parser.add_argument("--sweep", type=Path, help="tracked sweep of the liver (.npz)")
    parser.add_argument("--cases", type=int, default=60, help="test patients of CAMUS at most")
    parser.add_argument("--phantoms", type=int, default=16, help="phantom patients of each anatomy")
    parser.add_argument("--out", type=Path, help="CSV file to write")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows: list[Judged] = []
    for seen in every_set(options):
        rows += judge(seen)
        say(f"{seen.name}: done")
    table = [summary([row for row in rows if key_of(row) == key]) for key in dict.fromkeys(map(key_of, rows))]
    for line in table:
        print(line)
    if options.out:
        write_sheet(options.out, table)
        usual = [asdict(row) for row in rows if not row.agreement]
        kept = [{name: row[name] for name in FRAME_COLUMNS} for row in usual]
        write_sheet(options.out.with_name(f"{options.out.stem}-frames.csv"), [shortened(row) for row in kept])


def every_set(options: argparse.Namespace) -> Iterable[Seen]:
    """Each set of frames with the calibration that is to judge them."""
    if options.data and options.model:
        volumes = open_set(options.data)
        split = split_set(volumes)
        own = scopereg.load(options.model, "cpu")
        with counting(f"{volumes.name} validation") as count:
            usual = CalibrateOptions()
            learnt = observe(
                own,
                volumes,
                split.validation,
                magnitude=usual.magnitude,
                seed=usual.seed,
                frames=usual.frames,
                progress=count,
            )
        calibration = calibrate(own, learnt, {"dataset": f"{volumes.name} validation"})
        test = split.test[: options.cases]
        yield observe_set(f"{volumes.name} test, model trained on it", own, calibration, volumes, test)
        default = scopereg.load(device="cpu")
        assert default.calibration is not None
        yield observe_set(
            f"{volumes.name} test, model {default.name}", default, default.calibration, volumes, test[::4]
        )
    for anatomy in ANATOMIES:
        model = scopereg.load(device="cpu")
        assert model.calibration is not None
        phantoms = make_phantoms(anatomy, options.phantoms, seed=FIRST_SEED, frames=4)
        yield observe_set(
            f"{anatomy} phantoms, model {model.name}", model, model.calibration, phantoms, range(len(phantoms))
        )
    if options.sweep:
        yield observe_sweep(scopereg.load("universal", "cpu"), options.sweep)


def observe_set(name: str, model: Registrar, calibration: Calibration, volumes: VolumeSet, rows: Sequence[int]) -> Seen:
    """Honest frames of each volume, and in the same volume frames of the next patient, noise and empty gel."""
    frames: dict[str, list[Observed]] = {kind: [] for kind in (OWN, OTHER, NOISE, GEL)}
    cases = [case_examples(volumes, row, "honest", 10.0, seed=0, frames=4) for row in rows]
    with counting(name) as count:
        for place, (row, case) in enumerate(zip(rows, cases, strict=True)):
            patient = volumes.patients[row]
            frames[OWN].append(observe_case(model, case, volumes.spacing_mm, patient))
            other = cases[(place + 1) % len(cases)].frames[:2]
            add_out_of_distribution(frames, model, case, volumes.spacing_mm, patient, place, other)
            count(place + 1, len(cases))
    return Seen(name, calibration, frames)


def observe_sweep(model: Registrar, path: Path) -> Seen:
    """Held-out frames of a sweep, each around a start pose in the volume compounded from the others."""
    assert model.calibration is not None
    case = sweep_case(read_npz_sweep(path), SPACING_MM)
    starts = start_poses(case.truth, 10.0, 0, SHAPE)
    frames: dict[str, list[Observed]] = {kind: [] for kind in (OWN, NOISE, GEL)}
    with counting("liver sweep") as count:
        for index in range(len(case)):
            only = slice(index, index + 1)
            start, truth = (
                VoxelPoses(p.rotation[only].float(), p.translation[only].float()) for p in (starts, case.truth)
            )
            (volume,) = around(case.reference, start, SHAPE)
            image = case.frames[index].array[None].float()
            example = CaseExamples(volume.array, None, image, compose_poses(invert_poses(start), truth))
            frames[OWN].append(observe_case(model, example, SPACING_MM, f"row {case.rows[index]}"))
            add_out_of_distribution(frames, model, example, SPACING_MM, f"row {case.rows[index]}", index, None)
            count(index + 1, len(case))
    return Seen(f"liver sweep, model {model.name}", model.calibration, frames)


def add_out_of_distribution(
    frames: dict[str, list[Observed]],
    model: Registrar,
    case: CaseExamples,
    spacing_mm: float,
    patient: str,
    seed: int,
    other: Tensor | None,
) -> None:
    """Frames that do not belong to the volume of a case, located in it all the same."""
    generator = torch.Generator().manual_seed(seed)
    noise = torch.rand(case.frames[:1].shape, generator=generator)
    made = {OTHER: other, NOISE: noise, GEL: empty_gel(case.frames[:1], generator)}
    given = {kind: images for kind, images in made.items() if images is not None}
    count = sum(map(len, given.values()))
    nowhere = VoxelPoses(torch.eye(3).repeat(count, 1, 1), torch.zeros(count, 3))
    strange = CaseExamples(case.volume, None, torch.cat(list(given.values())), nowhere)
    found = observe_case(model, strange, spacing_mm, patient, truth=False)
    first = 0
    for kind, images in given.items():
        frames[kind].append(part_of(found, slice(first, first + len(images))))
        first += len(images)


def part_of(found: Observed, rows: slice) -> Observed:
    """Some of the frames."""
    features, errors = (
        {stage: values[stage][rows] for stage in STAGES} for values in (found.features, found.errors_mm)
    )
    return Observed(features, errors, found.patients[rows])


def empty_gel(like: Tensor, generator: torch.Generator) -> Tensor:
    """Speckle without any anatomy (B, H, W), in the fan of other frames."""
    parts = [blur(torch.randn(like.shape, generator=generator), 1.0) for _ in range(2)]
    speckle = (parts[0].square() + parts[1].square()).sqrt()
    fan = torch.stack([field_of_view(image) for image in like])
    return (0.3 * speckle / speckle.mean()).clamp(0.01, 1) * fan


def judge(seen: Seen) -> list[Judged]:
    """What a calibration says of every frame, at both stages, with and without agreement."""
    rows = []
    made_on = seen.calibration.made_on
    calibrated_on = str(made_on["dataset"]) + (" phantoms" if made_on.get("part") == "all" else "")
    for kind, parts in seen.frames.items():
        every = together(parts)
        for stage in STAGES:
            for agreement in (False, True):
                known = seen.calibration.error_model(stage, agreement)
                columns = zip(every.features[stage], every.errors_mm[stage], every.patients, strict=True)
                for features, error, patient in columns:
                    verdict = known.judge(features[: len(known.features)].tolist())
                    place = (seen.name, calibrated_on, stage, agreement, kind, patient, float(error))
                    rows.append(Judged(*place, **vars(verdict)))
    return rows


def key_of(row: Judged) -> tuple[str, str, bool]:
    return row.set, row.stage, row.agreement


def summary(rows: Sequence[Judged]) -> dict[str, object]:
    """One line of the table."""
    own = [row for row in rows if row.kind == OWN]
    errors, expected = (np.array([getattr(row, name) for row in own]) for name in ("error_mm", "expected_mm"))
    fine = np.array([row.ok for row in own])
    low, high = auroc_interval(errors > SUCCESS_MM, expected, [row.patient for row in own])
    line: dict[str, object] = {
        "set": own[0].set,
        "calibrated_on": own[0].calibrated_on,
        "stage": own[0].stage,
        "agreement": own[0].agreement,
        "frames": len(own),
        "mean_mm": errors.mean(),
        "mean_expected_mm": expected.mean(),
        "above_3mm": (errors > SUCCESS_MM).mean(),
        "auroc": auroc(errors > SUCCESS_MM, expected),
        "auroc_low": low,
        "auroc_high": high,
        "below_bound": np.mean([row.error_mm <= row.bound_mm for row in own]),
        "median_bound_mm": np.median([row.bound_mm for row in own]),
        "ok": fine.mean(),
        "ok_within_3mm": (errors[fine] <= SUCCESS_MM).mean() if fine.any() else np.nan,
    }
    for share in (0.5, 0.8, 1.0):
        line[f"mean_mm_of_surest_{share:.0%}"] = mean_of_surest(errors, expected, share)
    line["false_alarms"] = flagged(own)
    for kind, name in ((OTHER, "other_patient"), (NOISE, "noise"), (GEL, "gel")):
        line[f"flagged_{name}"] = flagged([row for row in rows if row.kind == kind])
        line[f"not_ok_{name}"] = share_of(not row.ok for row in rows if row.kind == kind)
    return shortened(line)


def flagged(rows: Sequence[Judged]) -> float:
    """Share of frames that are taken to be out of distribution."""
    return share_of(not row.belongs for row in rows)


def share_of(values: Iterable[bool]) -> float:
    found = list(values)
    return float(np.mean(found)) if found else np.nan


def shortened(line: dict[str, object]) -> dict[str, object]:
    """Numbers with four digits; none where there is no number."""
    return {name: _short(value) if isinstance(value, float) else value for name, value in line.items()}


def _short(value: float) -> float | str:
    return "" if np.isnan(value) else float(f"{value:.4g}")


if __name__ == "__main__":
    main()
