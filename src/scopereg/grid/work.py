"""Work: one run from its data to its marker; what an earlier attempt left is gone on with."""

from __future__ import annotations

import gc
import math
import time
import traceback
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch

from scopereg.data.poses import FRAMES_PER_CASE
from scopereg.data.splits import split_set
from scopereg.data.store import VolumeSet
from scopereg.devices import resolve_device
from scopereg.environment import changed_environment
from scopereg.errors import ScopeRegError
from scopereg.evaluation.results import read_results
from scopereg.evaluation.runner import EvaluateSettings, evaluate
from scopereg.grid.folder import RunFolder, summary
from scopereg.grid.measure import facts_of, peak_memory_mib, start_counting
from scopereg.grid.plan import Run
from scopereg.grid.volumes import load_volumes
from scopereg.interruption import Terminated
from scopereg.io.files import write_text
from scopereg.io.lock import locked
from scopereg.progress import counting
from scopereg.provenance import provenance
from scopereg.registration import model as models
from scopereg.registration.method import Method, create
from scopereg.registration.network import NetworkMethod
from scopereg.training.folder import CHECKPOINT, MODEL
from scopereg.training.settings import TrainSettings

# Each run is one process: Lightning must not take those of a job that do other runs for its own.
_LAUNCHER = ("SLURM_NTASKS", "SLURM_NTASKS_PER_NODE", "SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID")
# Frames and metrics of a test are small work for the CPU. Where grids share a machine, threads on all its cores wait
# for each other instead: on 16 cores the test of one beside the training of another took minutes, with four seconds.
_THREADS_BESIDE_GPU = 4


@dataclass(frozen=True)
class Place:
    """Where the runs of a grid work; nothing of it decides their outcome but the data."""

    output: Path
    data: str | None = None  # a folder; `{size}` in it stands for the resolution
    device: str = "auto"
    quiet: bool = False
    patience_s: float = 1.0  # to wait for another process that works on the same run


class Outcome(NamedTuple):
    """How a run ended."""

    name: str
    word: str  # done, failed or running, which is: elsewhere
    note: str
    seconds: float


def attempt(run: Run, place: Place) -> Outcome:
    """Do a run and tell how it went: what goes wrong with one must not stop the others."""
    with changed_environment(dict.fromkeys(_LAUNCHER)):
        return _attempt(run, place)


def _attempt(run: Run, place: Place) -> Outcome:
    begin = time.monotonic()
    folder = RunFolder(run, place.output)
    threads = torch.get_num_threads()
    try:
        if resolve_device(place.device).type == "cuda":
            torch.set_num_threads(min(threads, _THREADS_BESIDE_GPU))
        with locked(folder.lock, patience_s=place.patience_s) as held:
            if not held:
                return Outcome(run.name, *folder.state(), time.monotonic() - begin)
            note = summary(do_run(run, place))
    except Exception as error:
        said = str(error) if isinstance(error, ScopeRegError) else f"{type(error).__name__}: {error}"
        write_text(folder.error, f"{said}\n\n{traceback.format_exc()}")
        return Outcome(run.name, "failed", said, time.monotonic() - begin)
    finally:
        torch.set_num_threads(threads)
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
    return Outcome(run.name, "done", note, time.monotonic() - begin)


def do_run(run: Run, place: Place) -> dict[str, Any]:
    """Train where there is something to train, test, and write the marker; gives what the marker holds.

    What is done is not done again: a finished run, a finished training, the cases of an unfinished test.
    """
    folder = RunFolder(run, place.output)
    earlier, missing = folder.found(), folder.missing()
    if earlier is not None and not missing:
        return earlier
    attempts, begin = folder.begin(), time.monotonic()
    device = resolve_device(place.device)
    start_counting(device)
    volumes = load_volumes(run, place.data, place.output, place.device, quiet=place.quiet)
    content = earlier or _prepare(run, place, volumes, folder.work)
    _check_data(content, volumes, folder)
    method = _method(run, folder.work / MODEL, place.device)
    for protocol in missing:
        path = _test(run, volumes, method, protocol, place, folder.results)
        content["results"][protocol] = path.name
        content["mtre_mm"][protocol] = _mean_mtre(path)
    here = (time.monotonic() - begin) / 60
    trained = content.get("training", {}).get("minutes", 0.0)  # those of killed attempts included
    content["minutes"] = max(content["minutes"] + here, trained)
    content["peak_memory_mib"] = max(filter(None, [content["peak_memory_mib"], peak_memory_mib(device)]), default=None)
    content["attempts"] = attempts
    folder.finish(content)
    # Only now: until the marker stands a killed run goes on from it.
    (folder.work / CHECKPOINT).unlink(missing_ok=True)
    return content


def _prepare(run: Run, place: Place, volumes: VolumeSet, work: Path) -> dict[str, Any]:
    """Train, if need be; the marker but for the tests."""
    device = resolve_device(place.device)
    content: dict[str, Any] = {
        "run": run.name,
        "definition": run.definition(),
        "data": {
            "name": volumes.name,
            "sha256": volumes.sha256(),
            "shape": list(volumes.shape),
            "spacing_mm": volumes.spacing_mm,
        },
        "results": {},
        "mtre_mm": {},
        "minutes": 0.0,
        "peak_memory_mib": None,
    }
    if run.settings is not None:
        content["training"] = _train(volumes, run.settings, work, place)
        content["peak_memory_mib"] = peak_memory_mib(device)  # measuring the cost starts to count anew
        content["network"] = _network_facts(run.settings, volumes.shape)
        content["cost"] = facts_of(work / MODEL, volumes.shape, device)
    return content | provenance(seed=run.seed, data_sha256=volumes.sha256(), device=str(device))


def _train(volumes: VolumeSet, settings: TrainSettings, folder: Path, place: Place) -> dict[str, Any]:
    """Train, or go on with it; steps and minutes that it took."""
    try:
        from scopereg.training.fitting import Machine, train
    except ModuleNotFoundError as error:
        raise ScopeRegError(
            f"{error.name} is not installed", where="scopereg grid", fix="pip install 'scopereg[train]'"
        ) from None
    result = train(volumes, settings, folder, Machine(place.device), quiet=place.quiet)
    if not result["finished"]:
        raise Terminated if result["ended_by"] == "SIGTERM" else KeyboardInterrupt
    progress = result["progress"]
    return {"steps": progress["step"], "minutes": progress["seconds"] / 60, "best_step": progress["best_step"]}


def _network_facts(settings: TrainSettings, shape: tuple[int, int, int]) -> dict[str, Any]:
    """How to make the network again, to count what it computes."""
    from scopereg.training.network import network_options

    return {"name": settings.network, "options": network_options(settings, shape)}


def _check_data(content: dict[str, Any], volumes: VolumeSet, folder: RunFolder) -> None:
    if content["data"]["sha256"] != volumes.sha256():
        raise ScopeRegError(
            f"{folder.run.name} was done on other data",
            where=str(folder.marker),
            fix="use the same data (data=), or another folder (output=)",
        )


def _method(run: Run, weights: Path, device: str) -> Method:
    if run.settings is None:
        return create(run.made_by, device)
    model = replace(models.load(weights, device), name=run.method)
    return NetworkMethod(model, passes=run.settings.passes)


def _test(run: Run, volumes: VolumeSet, method: Method, protocol: str, place: Place, folder: Path) -> Path:
    """The results file of the test part under a protocol."""
    method.name = run.named_under(protocol)
    settings = EvaluateSettings(protocol, run.magnitude, run.fold, "test", FRAMES_PER_CASE, run.seed, run.cases)  # type: ignore[arg-type]
    split = split_set(volumes, run.fold, run.seed)  # as training splits
    with counting(f"{method.name}, {protocol}, pm {run.magnitude:g}", place.quiet) as progress:
        return evaluate(volumes, split, method, settings, folder, progress=progress)


def _mean_mtre(path: Path) -> float:
    """Over the frames that were located."""
    rows, _ = read_results(path)
    found = [row.mtre_mm for row in rows if not math.isnan(row.mtre_mm)]
    return sum(found) / len(found) if found else math.nan
