"""`scopereg data prepare`: a dataset as one memory-mapped set with its folds and evaluation poses."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape

from scopereg.data.camus import plan_camus
from scopereg.data.cases import SetPlan, listed
from scopereg.data.datasets import no_path
from scopereg.data.folder import plan_folder
from scopereg.data.muregpro import plan_muregpro
from scopereg.data.orientation import unexpected
from scopereg.data.preparation import SPLITS, prepare_set
from scopereg.data.store import MANIFEST, VolumeSet
from scopereg.data.workers import usable_cores
from scopereg.errors import ScopeRegError
from scopereg.options.data import PrepareOptions
from scopereg.progress import counting
from scopereg.provenance import command_line

_OWN_OPTIONS = {  # beside those of every dataset
    "camus": ("size", "frames", "any_orientation"),
    "muregpro": ("margin", "probe", "any_orientation"),
    "folder": ("size", "shape", "spacing_mm", "margin"),
}
_PLANS = {"camus": plan_camus, "muregpro": plan_muregpro, "folder": plan_folder}


def run(options: PrepareOptions) -> int:
    if options.workers is not None and options.workers < 1:
        raise ScopeRegError(f"{options.workers} processes", where="--workers", fix="use at least one")
    plan = plan_of(options)
    finished = (options.output / MANIFEST).is_file() and not options.fresh
    try:
        with counting("preparing") as progress:
            volumes = prepare_set(
                plan,
                options.output,
                workers=options.workers or usable_cores(),
                skip_bad=options.skip_bad,
                fresh=options.fresh,
                splits=options.splits,
                progress=progress,
            )
    except KeyboardInterrupt:
        print(f"Finished cases are kept. To go on, run the same command again:\n  {command_line()}", file=sys.stderr)
        raise
    _tell(volumes, options.output, finished)
    return 0


def plan_of(options: PrepareOptions) -> SetPlan:
    """What is to be read and how; an option that the dataset has no use for is an error."""
    if options.path is None:
        raise no_path(options.dataset, f"scopereg data prepare {options.dataset} FOLDER -o PREPARED")
    own = _OWN_OPTIONS[options.dataset]
    given: dict[str, Any] = {}
    for name in sorted({name for names in _OWN_OPTIONS.values() for name in names}):
        value = getattr(options, name)
        if value is None or value is False:
            continue
        if name not in own:
            flag = "--" + name.replace("_", "-")
            raise ScopeRegError(f"{options.dataset} has no use for it", where=flag, fix="leave it out")
        given[name] = value
    if options.name is not None:
        given["name"] = options.name
    return _PLANS[options.dataset](options.path, labels=options.labels, skip_bad=options.skip_bad, **given)  # type: ignore[operator]


def _tell(volumes: VolumeSet, folder: Path, finished: bool) -> None:
    console, facts = Console(soft_wrap=True), volumes.facts
    patients = len(set(volumes.patients))
    state = "was prepared before from the same files" if finished else "is prepared"
    console.print(f"{escape(str(folder))} {state}: {escape(repr(volumes))}, {patients} patients")
    console.print(f"  labels: {', '.join(facts.get('classes', ['yes'])) if volumes.labels is not None else 'none'}")
    for word, names in facts["notes"].items():
        console.print(f"  {word}: {len(names)}")
    rules = [rule.partition(", fold")[0] for rule in facts["splits"]["rules"]]
    console.print(f"  folds: {len(rules)} by {' and '.join(dict.fromkeys(rules))}, in {SPLITS}")
    poses = facts["evaluation_poses"]
    sizes = ", ".join(key.removeprefix("pm") for key in poses["sha256"])
    console.print(f"  evaluation poses: {poses['frames']} of each volume at +-{sizes}, in {poses['file']}")
    turned = unexpected(facts.get("orientation", {}))
    if turned:
        console.print(f"  [yellow]orientation: {turned}[/]")
    skipped = facts["skipped"]
    if skipped:
        named = [f"{name} ({reason})" for name, reason in skipped.items()]
        console.print(f"  [yellow]left out {len(skipped)}: {escape(listed(named))}[/]")
