"""`scopereg grid`: read a plan, do what is not done yet, here or on Ray, and make the tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from scopereg.commands.flags import in_flags
from scopereg.commands.output import tell
from scopereg.commands.shared import Device, Folder, Positional, Reference, WithPublished
from scopereg.errors import ScopeRegError, did_you_mean
from scopereg.grid.folder import RunFolder
from scopereg.grid.plan import Plan, Run, expand
from scopereg.grid.reading import read_plan
from scopereg.interruption import name_of, status_of
from scopereg.io.files import output_folder
from scopereg.progress import say

if TYPE_CHECKING:
    from scopereg.grid.work import Outcome


@dataclass(frozen=True)
class GridOptions:
    """Do what a plan says: methods x folds x magnitudes x protocols x resolutions, trained, tested and compared.

    PLAN is a YAML file or a plan of the package: main-table, main-table-muregpro, capture-range, resolution, ablation.
    What is done is skipped, what was interrupted goes on; a run that fails does not stop the others.
    """

    plan: Positional[str] = "main-table"
    """File of a plan, or the name of one that comes with the package."""
    data: str | None = None
    """Folder of the dataset as published, or a prepared set; {size} in it stands for the resolution."""
    output: Folder = Path("out/grid")
    """Folder for weights (runs), results, tables and phantoms (data)."""
    only: tuple[str, ...] = ()
    """Do a part: runs whose names hold one of these words, or match a pattern such as '*fold0*'."""
    set: tuple[str, ...] = ()
    """Change the plan: KEY=VALUE, such as minutes=3 folds=[0]."""
    list: bool = False
    """Show the runs and how far each is, and do nothing."""
    collect: bool = False
    """Make the tables of what is done, and do nothing else."""
    ray: tuple[str, ...] | None = None
    """Run on Ray: --ray alone on this machine, with an ADDRESS on that cluster."""
    ray_open: bool = False
    """Let other machines reach the cluster that --ray alone starts; it asks for a token either way."""
    cpus: float | None = None
    """Processor cores of a run on Ray; by default those of the plan, else 1."""
    gpus: float | None = None
    """GPUs of a run on Ray that trains, or a share such as 0.5; by default as the plan, else 1 if there are any."""
    retries: int = 3
    """Times that a worker of Ray that is lost is replaced, for each run."""
    reference: Reference = None
    with_published: WithPublished = False
    device: Device = "auto"


def run(options: GridOptions) -> int:
    """The status is 0 when all that was asked for is done, 1 when not, 130 when interrupted, 143 after SIGTERM."""
    from scopereg.provenance import command_line

    plan = read_plan(options.plan, options.set)
    every = expand(plan)
    runs = chosen(every, options.only)
    if options.list:
        _list(runs, options)
        return 0
    outcomes: list[Outcome] = []
    if not options.collect:
        _refuse_changes(runs, options)
        try:
            outcomes = _do(plan, runs, options)
        except KeyboardInterrupt as stop:
            word = "Interrupted" if name_of(stop) == "SIGINT" else "Ended by SIGTERM"
            say(f"{word}; what is done is kept. To go on, run the same command again:\n  {command_line()}")
            return status_of(name_of(stop))
    # Whoever does a part of a plan wants to see it beside what was done before.
    _tables(runs if options.collect else every, options, whole=len(every))
    tell(plan=plan.name, runs=len(every), outcomes=outcomes)
    return _report(outcomes)


def chosen(runs: Sequence[Run], only: Sequence[str]) -> list[Run]:
    """The runs whose name holds one of these words, or is as one of these patterns."""
    found = [run for run in runs if not only or any(_fits(run.name, word) for word in only)]
    idle = [word for word in only if not any(_fits(run.name, word) for run in runs)]
    if idle:
        raise ScopeRegError(
            f"no run is called {idle[0]!r}{did_you_mean(idle[0], [run.name for run in runs])}",
            where="--only",
            fix="--list shows the runs of the plan",
        )
    return found


def _fits(name: str, word: str) -> bool:
    return fnmatch(name, word) if any(sign in word for sign in "*?[") else word in name


def _list(runs: Sequence[Run], options: GridOptions) -> None:
    states = [RunFolder(run, options.output).state() for run in runs]
    width = max(len(run.name) for run in runs)
    tell(runs=[{"name": run.name, **state._asdict()} for run, state in zip(runs, states, strict=True)])
    for run, state in zip(runs, states, strict=True):
        print(f"{state.word:<12}{run.name:<{width}}  {state.note}".rstrip())
    words = [state.word for state in states]
    print(f"{len(runs)} runs: " + ", ".join(f"{words.count(word)} {word}" for word in dict.fromkeys(words)))


def _refuse_changes(runs: Sequence[Run], options: GridOptions) -> None:
    """Before any work: a run that was done otherwise is neither skipped nor done again."""
    for each in runs:
        RunFolder(each, options.output).found()


def _do(plan: Plan, runs: Sequence[Run], options: GridOptions) -> list[Outcome]:
    from scopereg.grid.show import Show
    from scopereg.grid.work import Place

    output = output_folder(options.output)
    waiting = [each for each in runs if RunFolder(each, output).missing()]
    say(f"{plan.name}: {len(runs)} runs, {len(runs) - len(waiting)} of them done before")
    if not waiting:
        return []
    data = None if options.data is None else str(options.data)
    _check_data(waiting, data)
    place = Place(output, data, options.device)
    with Show(waiting, bar=options.ray is not None) as show:
        if options.ray is None:
            from scopereg.grid.local import run_here

            return run_here(waiting, place, show)
        from scopereg.grid.cluster import Share, run_on_ray

        share = Share(_given(options, plan, "cpus"), _given(options, plan, "gpus"), options.retries)
        return run_on_ray(waiting, place, show, _address(options.ray), share, open_to_all=options.ray_open)


def _check_data(runs: Sequence[Run], data: str | None) -> None:
    """What would stop every run alike is told before the first."""
    from scopereg.grid.volumes import data_path

    for each in runs:
        path = data_path(each, data)
        if path is None and not each.phantoms:
            raise ScopeRegError(
                "no data are given",
                where=f"dataset {each.dataset}",
                fix="pass its folder, or a prepared set: --data FOLDER",
            )
        if path is not None and not path.exists():
            raise ScopeRegError("there is no such folder", where=f"--data {path}", fix="check the path")


def _given(options: GridOptions, plan: Plan, name: str) -> float | None:
    """The flag, else what the plan says."""
    flag: float | None = getattr(options, name)
    return getattr(plan, name) if flag is None else flag


def _address(words: Sequence[str]) -> str | None:
    if len(words) > 1:
        raise ScopeRegError(f"{len(words)} addresses", where="--ray", fix="pass one, or none for this machine")
    return words[0] if words else None


def _tables(runs: Sequence[Run], options: GridOptions, *, whole: int) -> None:
    """Tables of whatever is done; where the libraries for them are missing, say where to make them."""
    absent = [name for name in ("rich", "scipy") if find_spec(name) is None]
    if absent:
        say(f"no tables: {', '.join(absent)} is not installed here; run the same command with --collect elsewhere")
        return
    from scopereg.grid.collect import collect

    reference, with_published = options.reference, options.with_published
    for path in collect(runs, options.output, whole=whole, reference=reference, with_published=with_published):
        say(str(path))


def _report(outcomes: Sequence[Outcome]) -> int:
    failed = [outcome for outcome in outcomes if outcome.word != "done"]
    if failed:
        say(f"{len(failed)} of {len(outcomes)} runs are not done; the same command tries them again:")
    for outcome in failed:
        say(f"  {outcome.word} {outcome.name}: {in_flags(outcome.note, GridOptions)}")
    return 1 if failed else 0
