"""Example data: the volume and the frames of rows of results again, from where the evaluation had them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol, cast

from scopereg.data.datasets import load_dataset
from scopereg.data.examples import CaseExamples, case_examples
from scopereg.data.frames import PROTOCOLS
from scopereg.data.frames import Protocol as FrameProtocol
from scopereg.data.phantom.anatomy import ANATOMIES
from scopereg.data.phantom.sets import make_phantoms
from scopereg.data.poses import FRAMES_PER_CASE
from scopereg.data.store import MANIFEST, VolumeSet, open_set
from scopereg.data.tracked import start_poses
from scopereg.errors import ScopeRegError, did_you_mean
from scopereg.evaluation.real_protocol import sweep_case, sweep_examples
from scopereg.evaluation.results import FrameResult, Group, ResultsFile
from scopereg.evaluation.source import Source, source_of
from scopereg.io.sweeps import read_sweep
from scopereg.progress import counting

OTHER_DATA = "pass the data that the results were made with, in the same version"


class Origin(Protocol):
    """Gives the examples that a row was measured on, with the index of its frame in them."""

    def examples(self, row: FrameResult, settings: dict[str, Any]) -> CaseExamples: ...


class ExampleData:
    """Finds the images of groups of results: those that somebody names, else those that the results tell of."""

    def __init__(self, files: Sequence[ResultsFile], dataset: str | None = None, data: Path | None = None) -> None:
        self._files = {row.run: file for file in files for row in file.rows}
        self._found: dict[tuple[str, str], Origin | str] = {}
        names = list(dict.fromkeys(row.dataset for file in files for row in file.rows))
        volumes = None if data is None else _load(files, names, dataset, data)
        self._given = None if volumes is None else StoredCases(volumes)
        self._dataset = dataset if volumes is None else volumes.name
        if self._dataset is not None and self._dataset not in names:
            raise ScopeRegError(
                f"there are no results of {self._dataset}{did_you_mean(self._dataset, names)}",
                where="dataset=" if volumes is None else str(data),
                fix=f"the results are of {', '.join(names)}",
            )
        if data is None and dataset is not None and dataset not in ANATOMIES:
            raise ScopeRegError(f"{dataset} cannot be made, only read", where="dataset=", fix="add data=FOLDER")

    def is_given(self, group: Group) -> bool:
        """Whether somebody named the data of a group: then it must be the right one."""
        return group.dataset == self._dataset

    def why_not(self, group: Group) -> str | None:
        """Reason why the images of a group are not at hand and what helps; None where they are."""
        found = self._origin(group)
        return found if isinstance(found, str) else None

    def examples(self, row: FrameResult, group: Group) -> CaseExamples:
        """The volume and the frames of the case of a row."""
        origin = self._origin(group)
        assert not isinstance(origin, str), origin
        return origin.examples(row, self._files[row.run].facts.get("settings", {}))

    def _origin(self, group: Group) -> Origin | str:
        key = group.dataset, group.protocol
        if key not in self._found:
            self._found[key] = self._find(group)
        return self._found[key]

    def _find(self, group: Group) -> Origin | str:
        file = self._files[next(iter(group.methods.values()))[0].run]
        made = _data_facts(file.facts).get("phantoms")
        if self._given is not None and self.is_given(group):
            return self._given
        if group.dataset in ANATOMIES and made:
            return MadePhantoms(made, _data_facts(file.facts)["shape"])
        source = source_of(file.facts)
        try:
            found = _read(source, group, file.path)
        except ScopeRegError as error:
            return f"No pictures: {error.what} ({error.where}). {_ask(group)}"
        if found is None:
            name = Path(source.path).name
            gone = f"{name} is not where the evaluation read it" if name else "nothing tells where the images are"
            return f"No pictures: {gone}. {_ask(group)}"
        return found


def _ask(group: Group) -> str:
    if group.protocol not in PROTOCOLS:
        return "Evaluate again, or put the file of the sweep back in its place."
    return f"Add dataset={group.dataset} data=FOLDER, with the folder that the evaluation read, or a prepared set."


def _read(source: Source, group: Group, results: Path) -> Origin | None:
    """From the places that a results file names; None where nothing is there."""
    if group.protocol not in PROTOCOLS:
        return SweptFrames(source) if source.path and source.spacing_mm and Path(source.path).is_file() else None
    kept = source.kept_beside(results)
    if kept is not None and (kept / MANIFEST).is_file():
        return StoredCases(open_set(kept, verify=False))  # each frame that is shown is checked
    if not source.path or not (Path(source.path).is_dir() or Path(source.path).is_file()):
        return None
    with counting("reading volumes") as progress:
        return StoredCases(
            load_dataset(
                source.dataset, Path(source.path), size=source.size, skip_bad=source.skip_bad, progress=progress
            )
        )


class StoredCases:
    """Cases of a set of volumes."""

    def __init__(self, volumes: VolumeSet) -> None:
        self._volumes = volumes

    def examples(self, row: FrameResult, settings: dict[str, Any]) -> CaseExamples:
        if row.case not in self._volumes.cases:
            raise ScopeRegError(f"there is no case {row.case}", where=f"data=, {self._volumes.name}", fix=OTHER_DATA)
        return _case(self._volumes, self._volumes.cases.index(row.case), row, settings)


class MadePhantoms:
    """Phantoms made one by one: each is of its own seed, whatever else was made with it."""

    def __init__(self, made: dict[str, Any], shape: Sequence[int]) -> None:
        self._made, self._shape = made, tuple(shape)
        self._one = lru_cache(maxsize=64)(self._make)

    def examples(self, row: FrameResult, settings: dict[str, Any]) -> CaseExamples:
        return _case(self._one(int(row.case.removeprefix(self._made["anatomy"]))), 0, row, settings)

    def _make(self, seed: int) -> VolumeSet:
        depth, height, width = self._shape
        frames, magnitude = self._made["frames"], self._made["magnitude"]
        return make_phantoms(
            self._made["anatomy"], 1, seed=seed, frames=frames, magnitude=magnitude, shape=(depth, height, width)
        )


class SweptFrames:
    """Held-out frames of a tracked sweep, in a reference compounded of the others."""

    def __init__(self, source: Source) -> None:
        self._source = source
        sweep = read_sweep(source.path, source.calibration or None)
        self._case = sweep_case(sweep, source.spacing_mm, held_out=source.held_out)

    def examples(self, row: FrameResult, settings: dict[str, Any]) -> CaseExamples:
        name, _, number = row.case.rpartition("-")
        if name != self._case.name or not number.isdecimal() or int(number) not in self._case.rows:
            raise ScopeRegError(f"there is no frame {row.case}", where=self._source.path, fix=OTHER_DATA)
        starts = start_poses(self._case.truth, row.magnitude, settings.get("seed", 0), self._source.shape)
        return sweep_examples(self._case, self._case.rows.index(int(number)), starts, self._source.shape)


def _case(volumes: VolumeSet, place: int, row: FrameResult, settings: dict[str, Any]) -> CaseExamples:
    seed, frames = settings.get("seed", 0), settings.get("frames", FRAMES_PER_CASE)
    return case_examples(volumes, place, cast(FrameProtocol, row.protocol), row.magnitude, seed=seed, frames=frames)


def _data_facts(facts: dict[str, Any]) -> dict[str, Any]:
    found = facts.get("data")
    return found if isinstance(found, dict) else {}


def _load(files: Sequence[ResultsFile], names: Sequence[str], dataset: str | None, data: Path) -> VolumeSet:
    """The data; their name and size are those of the results where nobody says otherwise."""
    stored = (data / MANIFEST).is_file()
    if dataset is None and not stored and len(names) > 1:
        raise ScopeRegError(
            f"the results are of {', '.join(names)}", where=f"data= {data}", fix="add dataset= with one of them"
        )
    name = dataset or ("folder" if stored else names[0])
    shapes = [_data_facts(file.facts).get("shape") for file in files if file.rows and file.rows[0].dataset == name]
    size = next((shape[1] for shape in shapes if shape), 128)
    with counting("reading volumes") as progress:
        return load_dataset(name, data, size=size, skip_bad=True, progress=progress)
