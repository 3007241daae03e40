"""One network, organs it never saw: every method on the eight development sets, at several sizes of offsets.

    python benchmarks/zero_shot.py --weights universal=universal.safetensors
    python benchmarks/zero_shot.py --weights universal=universal.safetensors --quick --curve curves.csv

A row of the table is a set, a size of offsets and a method, written as for `scopereg evaluate`: `simpleitk-mi`,
`universal:wide+refine`; names of --weights stand for their files. What was measured before with the same data, settings
and weights is kept, frame by frame in --out and row by row in the table: new weights measure themselves alone. Rows of
`echo`, which the package had once, stay as they are. --quick asks networks alone, once, on the small copies that
training measures itself on (quick_sets.py).
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import json
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from development_sets import DATA, OUT, QUICK_MAGNITUDE, SETS, development_set
from quick_sets import Case, DevelopmentSet, append_curve, quick_errors, stacked

import scopereg
from scopereg.data.examples import CaseExamples
from scopereg.errors import ScopeRegError
from scopereg.evaluation.results import FrameResult
from scopereg.evaluation.runner import EvaluateSettings, Origin, RowJournal, case_rows, images_of, locate_case
from scopereg.evaluation.statistics import mean_interval, success_rate, tail
from scopereg.geometry import SUCCESS_MM, VoxelPoses
from scopereg.images import centre_pose
from scopereg.io.files import write_sheet
from scopereg.progress import counting, say
from scopereg.provenance import device_name, library_versions, tensors_sha256
from scopereg.registration.method import CLASSICAL, Method, create
from scopereg.registration.prepared import IDENTITY, Found
from scopereg.registration.result import Result
from scopereg.registration.settings import DEFAULT

TABLE = Path(__file__).with_suffix(".csv")
FRAMES = 48  # of a set: a network alone then takes about two minutes for all sets at one size, on one core
MAGNITUDES = (10.0, 15.0, 20.0)
KEY = ("set", "magnitude", "method")
SAME = (*KEY, "frames", "seed", "data_sha256", "weights_sha256")  # rows alike in these are not measured again


@dataclass(frozen=True)
class Contestant:
    """A method by the name that the table has for it."""

    name: str
    method: Method
    weights: dict[str, Any]  # name, hash, steps and minutes of training; empty without a network


def main() -> None:
    options = parse()
    torch.set_num_threads(options.threads)
    files = dict(weights_of(text) for text in options.weights)
    if options.quick:
        quick(options, files)
        return
    rows = read_rows(options.table)
    for name in options.methods or usual_methods(files):
        contestant = contest(name, files, options.device)
        for magnitude in options.magnitudes:
            for chosen in options.sets:
                made = development_set(chosen, magnitude, options.data, options.out / "sets", options.seed)
                rows = with_row(rows, made, contestant, options)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=DATA, help="folder of the data")
    parser.add_argument("--out", type=Path, default=OUT, help="folder for prepared sets and the errors of all frames")
    parser.add_argument("--table", type=Path, default=TABLE, help="CSV file to write")
    parser.add_argument(
        "--sets", nargs="+", choices=list(SETS), default=list(SETS), metavar="SET", help=", ".join(SETS)
    )
    parser.add_argument("--magnitudes", type=float, nargs="+", default=list(MAGNITUDES), help="voxels and degrees")
    parser.add_argument("--methods", nargs="+", help="by default mutual information, and networks three ways")
    parser.add_argument("--weights", nargs="+", default=[], metavar="NAME=FILE", help="networks to measure")
    parser.add_argument("--frames", type=int, default=FRAMES, help="of each set, at least; whole volumes are taken")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--again", action="store_true", help="measure again what was measured before")
    parser.add_argument("--quick", action="store_true", help="networks alone at +-10 on the small sets; no table")
    parser.add_argument("--curve", type=Path, help="CSV file that the errors of --quick are appended to")
    return parser.parse_args()


def weights_of(text: str) -> tuple[str, Path]:
    name, equals, path = text.partition("=")
    if not (name and equals and Path(path).is_file()):
        raise ScopeRegError(f"no weights in {text!r}", where="--weights", fix="write NAME=FILE.safetensors")
    return name, Path(path)


def usual_methods(files: dict[str, Path]) -> list[str]:
    networks = list(files) or [DEFAULT]
    return ["simpleitk-mi", *(name + way for way in ("", "+refine", ":wide+refine") for name in networks)]


def network_of(method: str) -> str:
    """What a method calls its network; empty where it has none."""
    name = method.partition("+")[0].partition(":")[0]
    return "" if name in (IDENTITY, *CLASSICAL) else name


def contest(name: str, files: dict[str, Path], device: str) -> Contestant:
    network = network_of(name)
    source = str(files.get(network, network))
    method = create(source + name.removeprefix(network), device)
    return Contestant(name, method, weights_facts(network, source) if network else {})


def weights_facts(name: str, source: str) -> dict[str, Any]:
    """Name, hash, steps and minutes of training, as far as the weights tell."""
    model = scopereg.load(source, "cpu")
    step = model.facts.get("step", model.facts.get("steps", ""))
    minutes = model.facts.get("minutes", "")
    if isinstance(minutes, float):
        minutes += model.facts.get("minutes_before", 0.0)  # over all occasions
    return {
        "weights": name,
        "weights_sha256": model.fingerprint[:16],
        "training_steps": step,
        "training_minutes": round(minutes, 2) if isinstance(minutes, float) else minutes,
    }


def with_row(
    rows: list[dict[str, Any]], made: DevelopmentSet, contestant: Contestant, options: argparse.Namespace
) -> list[dict[str, Any]]:
    """The rows with that of a method on a set, measured unless it is there; the table is written."""
    chosen = made.first(options.frames)
    head = {
        "set": made.name,
        "magnitude": f"{made.magnitude:g}",
        "method": contestant.name,
        "frames": chosen.frame_count,
        "seed": options.seed,
        "data_sha256": data_sha256(made)[:16],
        "weights_sha256": contestant.weights.get("weights_sha256", ""),
    }
    same = [row for row in rows if all(str(row.get(key, "")) == str(head[key]) for key in SAME)]
    if same and not options.again:
        return rows
    found = frame_rows(chosen, contestant, head, options)
    row = {**summary(found), "device": device_name(options.device), **contestant.weights}
    row = {**{key: head[key] for key in KEY}, **row, **head, "scopereg": scopereg.__version__, **versions()}
    told = f"{row['mean_mm']:.2f} mm, {row['within_3_mm']:.0%} within {SUCCESS_MM:g} mm"
    say(f"{made.name} +-{made.magnitude:g} {contestant.name}: {told}")
    others = [old for old in rows if any(str(old[key]) != str(row[key]) for key in KEY)]
    rows = sorted([*others, row], key=place)
    write_sheet(options.table, rows, columns_of(rows))
    return rows


def frame_rows(
    chosen: DevelopmentSet, contestant: Contestant, head: dict[str, Any], options: argparse.Namespace
) -> list[FrameResult]:
    """Results of all frames; volumes that were measured before are read from the journal in --out."""
    facts = {key: head[key] for key in SAME if key != "frames"}
    facts |= {"threads": options.threads, "device": options.device, "scopereg": scopereg.__version__}
    facts["options"] = str(contestant.method.facts.get("options", ""))
    key = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:12]
    folder = options.out / "frames"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{chosen.name}-pm{chosen.magnitude:g}-{contestant.name.replace(':', '-')}-{key}.journal"
    if options.again:
        path.unlink(missing_ok=True)
    journal = RowJournal(path, facts)
    done = journal.cases
    protocol: Any = "real" if chosen.name == "liver" else "honest"
    settings = EvaluateSettings(protocol=protocol, magnitude=chosen.magnitude, seed=options.seed)
    with counting(f"{chosen.name} +-{chosen.magnitude:g} {contestant.name}") as progress:
        for number, case in enumerate(chosen.cases, start=1):
            if case.name not in done:
                journal.add(located_rows(case, chosen, contestant, settings, options.device))
            progress(number, len(chosen.cases))
    names = {case.name for case in chosen.cases}
    return [row for row in journal.rows if row.case in names]


def located_rows(
    case: Case, chosen: DevelopmentSet, contestant: Contestant, settings: EvaluateSettings, device: str
) -> list[FrameResult]:
    """Results of the frames of a case. One that cannot be located stays at the start: it counts as it lies.

    On a processor the time is what this process used of it, for all frames of the case alike, the preparation of their
    volume included: a busy machine does not make a method slow.
    """
    volume, frames = case.volume.float() / 255, case.frames.float() / 255
    examples = CaseExamples(volume, None, frames, VoxelPoses(case.rotation.float(), case.translation.float()))
    begin = time.process_time()
    answers = locate_case(contestant.method, examples, chosen.spacing_mm)
    each_ms = (time.process_time() - begin) * 1e3 / len(frames)
    found = lost_at_start(answers.found, examples, chosen.spacing_mm)
    if device == "cpu":
        found = [replace(one, time_ms=0.0) for one in found]
        answers = answers._replace(shared_ms=each_ms)
    origin = Origin(chosen.name, case.name, case.patient, chosen.spacing_mm)
    return case_rows(origin, contestant.name, settings, examples, answers._replace(found=list(found)))


def lost_at_start(found: Sequence[Found], examples: CaseExamples, spacing_mm: float) -> list[Result]:
    volume, frames = images_of(examples, spacing_mm)
    return [
        one if isinstance(one, Result) else Result(centre_pose(frame, volume), IDENTITY, 0.0, math.nan)
        for one, frame in zip(found, frames, strict=True)
    ]


def summary(found: Sequence[FrameResult]) -> dict[str, Any]:
    """Errors of all frames; intervals are over patients, whose frames are drawn together."""
    errors, patients = np.array([row.mtre_mm for row in found]), [row.patient for row in found]
    near = (errors <= SUCCESS_MM).astype(float)
    mean, share = mean_interval(errors, patients), mean_interval(near, patients)
    numbers = {
        "start_mm": np.mean([row.start_mm for row in found]),
        "mean_mm": errors.mean(),
        "mean_low_mm": mean.low,
        "mean_high_mm": mean.high,
        "median_mm": np.median(errors),
        "p95_mm": tail(errors).p95,
        "within_3_mm": success_rate(errors).fraction,
        "within_3_low": share.low,
        "within_3_high": share.high,
    }
    rounded = {name: round(float(value), 3) for name, value in numbers.items()}
    ms = round(float(np.median([row.time_ms for row in found])), 1)
    return {"frames": len(found), "patients": len(set(patients)), **rounded, "ms": ms}


def quick(options: argparse.Namespace, files: dict[str, Path]) -> None:
    """Networks alone at +-10, one pass, on the sets that training measures itself on."""
    folder = options.out / "sets"
    kept = [development_set(name, QUICK_MAGNITUDE, options.data, folder, options.seed) for name in options.sets]
    sets = [entry for made in kept for entry in stacked(made.quick())]
    for name in options.methods or files or [DEFAULT]:
        source = str(files.get(name, name))
        facts = weights_facts(name, source)
        model = scopereg.load(source, options.device)
        errors = quick_errors(model.network, sets, model.device, volumes_at_once=1)
        for chosen, values in errors.items():
            say(f"{name} {chosen}: {len(values)} frames, mean {values.mean():.2f} mm, median {values.median():.2f} mm")
        if options.curve is not None:
            append_curve(options.curve, errors, facts["weights"], facts["training_steps"], facts["training_minutes"])


def data_sha256(made: DevelopmentSet) -> str:
    tensors = [(case.volume, case.frames, case.rotation, case.translation) for case in made.cases]
    return tensors_sha256(*(tensor for parts in tensors for tensor in parts))


def versions() -> dict[str, str]:
    found = library_versions()
    return {name: found.get(name, "") for name in ("torch", "numpy", "SimpleITK")}


def place(row: dict[str, Any]) -> tuple[Any, ...]:
    """Where a row stands: sets as they are listed, small offsets first."""
    return list(SETS).index(row["set"]), float(row["magnitude"]), row["method"]


def columns_of(rows: Sequence[dict[str, Any]]) -> list[str]:
    return list(dict.fromkeys(name for row in sorted(rows, key=len, reverse=True) for name in row))


def read_rows(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


if __name__ == "__main__":
    main()
