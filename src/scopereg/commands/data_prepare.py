"""`scopereg data prepare`: a dataset as one memory-mapped set with its folds and evaluation poses."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from rich.console import Console
from rich.markup import escape

from scopereg.commands.output import tell
from scopereg.commands.shared import Folder, MadeVoxelSize, Positional, SourceName
from scopereg.cores import usable_cores
from scopereg.errors import ScopeRegError, listed
from scopereg.progress import counting

if TYPE_CHECKING:
    from scopereg.data.cases import SetPlan
    from scopereg.data.store import VolumeSet

_OF_DATASETS = (
    "any_orientation",
    "frames",
    "margin",
    "probe",
    "shape",
    "size",
    "voxel_mm",
)  # which have use for some
_CALLED = {"voxel_mm": "spacing_mm"}  # by them


@dataclass(frozen=True)
class PrepareOptions:
    """Turn a dataset into one memory-mapped set with its folds and evaluation poses; goes on where it was interrupted.

    OUTPUT gets images.npy, labels.npy, splits.json, poses.npz and last manifest.json: without it there is no set.
    """

    dataset: Positional[SourceName] = "camus"
    """CAMUS or mu-RegPro as published, or a folder of volumes of your own."""
    path: Positional[Path | None] = None
    """Folder of the data."""
    output: Folder = Path("out/prepared")
    """Folder for the set."""
    name: str | None = None
    """Name of the set in results, such as CAMUS-M for data derived from CAMUS; by default the dataset's name."""
    size: int | None = None
    """Pixels along each side, a multiple of 8; 128 by default for CAMUS, whose field stays 78.8 mm wide."""
    frames: int | None = None
    """Frames of a CAMUS volume; 32 by default."""
    shape: tuple[int, int, int] | None = None
    """Voxels D H W of a folder's volumes; by default what the files have in common."""
    voxel_mm: Annotated[float | None, MadeVoxelSize] = None
    """Voxel size of a folder's volumes; by default the finest that every file has."""
    margin: tuple[int, int, int] | None = None
    """Voxels D H W kept on each side beyond the reference field, for a folder (default 0) and mu-RegPro (16 24 24)."""
    probe: Literal["low", "high"] | None = None
    """End of the depth axis of mu-RegPro files where the probe is; by default the images tell."""
    labels: bool = True
    """Prepare the masks too, where there are any."""
    splits: Path | None = None
    """JSON file with folds of your own, each patient in one part of each; by default those of docs/protocol.md."""
    workers: int | None = None
    """Processes that read cases; by default one for each processor core."""
    skip_bad: bool = False
    """Leave out cases that cannot be used, named and counted, instead of stopping when the others are done."""
    any_orientation: bool = False
    """Accept files whose headers turn their axes otherwise than the rest; voxels are used as stored."""
    fresh: bool = False
    """Start again, and remove what is in OUTPUT of an earlier set."""


def run(options: PrepareOptions) -> int:
    from scopereg.data.builder import build_set
    from scopereg.data.store import MANIFEST
    from scopereg.provenance import command_line

    if options.workers is not None and options.workers < 1:
        raise ScopeRegError(f"{options.workers} processes", where="--workers", fix="use at least one")
    plan = plan_of(options)
    finished = (options.output / MANIFEST).is_file() and not options.fresh
    try:
        with counting("preparing") as progress:
            volumes = build_set(
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
    tell(folder=options.output, volumes=len(volumes), patients=len(set(volumes.patients)), **volumes.facts)
    _show(volumes, options.output, finished)
    return 0


def plan_of(options: PrepareOptions) -> SetPlan:
    """Plan of what is read; an option that the dataset has no use for is an error."""
    from scopereg.data.registry import DATASETS

    dataset = DATASETS.find(options.dataset, "DATASET")
    if options.path is None:
        raise dataset.no_path()
    given: dict[str, Any] = {}
    for name in _OF_DATASETS:
        value = getattr(options, name)
        if value is None or value is False:
            continue
        called = _CALLED.get(name, name)
        if called not in dataset.options:
            flag = "--" + name.replace("_", "-")
            raise ScopeRegError(f"{options.dataset} has no use for it", where=flag, fix="leave it out")
        given[called] = value
    if options.name is not None:
        given["name"] = options.name
    return dataset.plan(options.path, labels=options.labels, skip_bad=options.skip_bad, **given)


def _show(volumes: VolumeSet, folder: Path, finished: bool) -> None:
    from scopereg.data.builder import SPLITS
    from scopereg.data.orientation import unexpected

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
