"""Job: what a process needs to read cases and write their rows; numpy and SimpleITK alone, not torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from scopereg.data.cases import CaseFiles, CaseRecord, LoadedVolume, load_case, source_hashes
from scopereg.data.rows import RowFiles
from scopereg.errors import ScopeRegError


class Task(NamedTuple):
    """A case, and its place among the cases of the set."""

    place: int
    case: CaseFiles


class Done(NamedTuple):
    """What became of a case: an entry for the journal, or the reason why it is bad."""

    entry: dict[str, Any] | None
    reason: str = ""


@dataclass(frozen=True)
class Job:
    """How the cases of one set are read, and where their rows are."""

    load: Callable[[CaseFiles], list[LoadedVolume]]
    root: Path
    rows: RowFiles
    volumes_per_case: int

    def write_case(self, task: Task) -> Done:
        """Read a case and write its rows."""
        try:
            volumes, record = load_case(self.load, task.case, self.root)
        except ScopeRegError as error:
            return Done(None, error.what)
        for row, volume in zip(self._rows(task.place), volumes, strict=True):
            for name, voxels in zip(("images", "labels"), (volume.image, volume.labels), strict=True):
                if voxels is not None:
                    self.rows.write(row, name, voxels)
        return Done({**asdict(record), "voxels_sha256": self.rows.sha256(self._rows(task.place))})

    def state(self, task: tuple[Task, dict[str, Any]]) -> Literal["good", "changed", "damaged"]:
        """Whether a case of the journal is still made of the same files and its rows are as they were written."""
        (place, case), entry = task
        try:
            same = source_hashes(case, self.root) == entry["sources"]
        except ScopeRegError:
            same = False
        if not same:
            return "changed"
        return "good" if self.rows.sha256(self._rows(place)) == entry["voxels_sha256"] else "damaged"

    def _rows(self, place: int) -> range:
        return range(place * self.volumes_per_case, (place + 1) * self.volumes_per_case)


def record_of(entry: dict[str, Any]) -> CaseRecord:
    """What was kept of a case, from its entry in the journal."""
    values = {key: value for key, value in entry.items() if key != "voxels_sha256"}
    return CaseRecord(**{**values, "volumes": tuple(entry["volumes"]), "orientation": tuple(entry["orientation"])})
