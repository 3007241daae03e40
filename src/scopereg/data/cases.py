"""Cases: files that become volumes of a set, one case after the other, bad ones refused or counted.

Reading cases needs numpy and the readers of images alone, not torch: processes that do nothing else start quickly and
stay small.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from scopereg.data.orientation import odd_orientations, orientation_facts
from scopereg.errors import ScopeRegError, listed
from scopereg.io.read_image import content_sha256, files_of

if TYPE_CHECKING:
    from scopereg.data.splits import Split

Progress = Callable[[int, int], None]  # cases done, cases in all
Voxels = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class CaseFiles:
    """Files of one case."""

    name: str
    patient: str
    image: Path
    labels: Path | None = None
    others: tuple[Path, ...] = ()  # that decide the result too

    def sources(self) -> list[Path]:
        """Every file that decides the result and is there."""
        return [path for path in (self.image, self.labels, *self.others) if path is not None and path.is_file()]


@dataclass(frozen=True)
class LoadedVolume:
    """One volume of a case, surroundings included; `notes` are words counted in the set's facts."""

    name: str
    image: Voxels
    labels: Voxels | None
    notes: tuple[str, ...] = ()
    orientation: tuple[str, ...] = ()  # codes of image and labels, where cases are compared


@dataclass(frozen=True)
class SetPlan:
    """Description of a set before its first voxel is read, and the way to read its cases."""

    name: str
    root: Path
    spacing_mm: float
    shape: tuple[int, int, int]  # of the reference field
    margin: tuple[int, int, int]
    facts: dict[str, Any]
    cases: tuple[CaseFiles, ...]
    load: Callable[[CaseFiles], list[LoadedVolume]]  # can be sent to other processes
    volumes_per_case: int = 1
    orientation: str | None = None  # expected; None: cases are not compared
    skipped: dict[str, str] = field(default_factory=dict)  # cases found bad already, and why
    split: Callable[[Sequence[str], int], Split | None] | None = None  # the publishers', of patients and a fold

    @property
    def labelled(self) -> bool:
        """True where the volumes have labels: all do or none does."""
        return bool(self.cases) and self.cases[0].labels is not None

    @property
    def array_shape(self) -> tuple[int, int, int, int]:
        """Shape of the images if every case is good."""
        depth, height, width = (n + 2 * m for n, m in zip(self.shape, self.margin, strict=True))
        return len(self.cases) * self.volumes_per_case, depth, height, width

    def labelled_alike(self, skip_bad: bool) -> SetPlan:
        """The plan with cases that all have labels or all have none; an error if some would have to be left out."""
        lacking = [case.name for case in self.cases if case.labels is None]
        if not lacking or len(lacking) == len(self.cases):
            return self
        if not skip_bad:
            raise ScopeRegError(
                f"{len(lacking)} of {len(self.cases)} cases have no labels: {listed(lacking)}",
                where=str(self.root),
                fix="add them, leave these cases out (skip_bad=True), or load all without labels (labels=False)",
            )
        kept = tuple(case for case in self.cases if case.labels is not None)
        return replace(self, cases=kept, skipped=self.skipped | dict.fromkeys(lacking, "no labels"))


class Reading(Protocol):
    """The part of a plan that reading a case takes."""

    @property
    def root(self) -> Path: ...
    @property
    def load(self) -> Callable[[CaseFiles], list[LoadedVolume]]: ...
    @property
    def volumes_per_case(self) -> int: ...
    @property
    def array_shape(self) -> tuple[int, ...]: ...


@dataclass(frozen=True)
class CaseRecord:
    """Facts of a case, kept besides its voxels."""

    name: str
    patient: str
    volumes: tuple[str, ...]
    notes: dict[str, list[str]]  # volumes that a word was noted for
    orientation: tuple[str, ...]
    sources: dict[str, str]  # hash of each file, by its name below the root, the image first

    @property
    def image_sha256(self) -> str:
        return next(iter(self.sources.values()), self.name)


class Outcome(NamedTuple):
    """The cases of a set that are good, those left out with the reason, and the facts of the set."""

    records: list[CaseRecord]
    skipped: dict[str, str]
    facts: dict[str, Any]

    @property
    def volumes(self) -> tuple[str, ...]:
        return tuple(name for record in self.records for name in record.volumes)

    @property
    def patients(self) -> tuple[str, ...]:
        return tuple(record.patient for record in self.records for _ in record.volumes)


def existing_folder(folder: Path | str) -> Path:
    """The folder, or an error if there is none."""
    path = Path(folder)
    if not path.is_dir():
        raise ScopeRegError("there is no such folder", where=str(path), fix="check the name; unpack an archive first")
    return path


def load_case(plan: Reading, case: CaseFiles) -> tuple[list[LoadedVolume], CaseRecord]:
    """The volumes of a case and what to keep besides."""
    try:
        volumes = plan.load(case)
    except OSError as error:
        raise _cannot_read(error, case) from None
    _check_loaded(volumes, plan, case)
    notes: dict[str, list[str]] = {}
    for volume in volumes:
        for word in volume.notes:
            notes.setdefault(word, []).append(volume.name)
    names = tuple(volume.name for volume in volumes)
    record = CaseRecord(case.name, case.patient, names, notes, volumes[0].orientation, source_hashes(case, plan.root))
    return volumes, record


def _check_loaded(volumes: Sequence[LoadedVolume], plan: Reading, case: CaseFiles) -> None:
    """An error unless they are what the plan said: a dataset from outside may be mistaken."""
    wanted = plan.array_shape[1:]
    if len(volumes) != plan.volumes_per_case:
        raise _mistaken(f"{len(volumes)} volumes were read of it, not {plan.volumes_per_case}", case)
    for volume in volumes:
        arrays = {"image": volume.image, "labels": volume.labels}
        for role, array in arrays.items():
            if array is None and role == "labels" and case.labels is None:
                continue
            kind, shape = getattr(array, "dtype", None), getattr(array, "shape", None)
            if array is None or kind != np.uint8 or shape != wanted:
                raise _mistaken(f"its {role} became {kind} of shape {shape}, not uint8 of {wanted}", case)


def _mistaken(what: str, case: CaseFiles) -> ScopeRegError:
    return ScopeRegError(what, where=str(case.image), fix="this is a mistake of the dataset's `read`, not of the file")


def source_hashes(case: CaseFiles, root: Path) -> dict[str, str]:
    """The hash of every file of a case, by its name below the root."""
    try:
        return {path.relative_to(root).as_posix(): content_sha256(files_of(path)) for path in case.sources()}
    except OSError as error:
        raise _cannot_read(error, case) from None


def settle(plan: SetPlan, records: Mapping[str, CaseRecord], bad: Mapping[str, str], skip_bad: bool) -> Outcome:
    """The end of a set of cases: those turned otherwise than the rest are bad too; an error unless they may go."""
    codes = {name: record.orientation for name, record in records.items() if record.orientation}
    facts = dict(plan.facts)
    odd: dict[str, str] = {}
    if plan.orientation is not None and codes:
        odd = odd_orientations(codes, plan.orientation)
        facts["orientation"] = orientation_facts(codes, plan.orientation)
    bad = {**bad, **odd}
    if bad and not skip_bad:
        raise _bad_cases(plan, bad, turned=len(odd) == len(bad))
    skipped = plan.skipped | bad
    good = [records[case.name] for case in plan.cases if case.name in records and case.name not in odd]
    if not good:
        raise ScopeRegError(
            f"no case is good; the first of {len(skipped)}: {next(iter(skipped.values()), 'none was found')}",
            where=str(plan.root),
            fix="load one of them with skip_bad=False to see where it fails",
        )
    notes: dict[str, list[str]] = {}
    sources: dict[str, str] = {}
    images = Counter(record.image_sha256 for record in good)
    for record in good:
        sources |= record.sources
        for word, volumes in record.notes.items():
            notes.setdefault(word, []).extend(volumes)
        if images[record.image_sha256] > 1:
            notes.setdefault("same image as another case", []).extend(record.volumes)
    return Outcome(good, skipped, {**facts, "notes": notes, "skipped": skipped, "sources_sha256": sources})


def rows_of(laid_out: Sequence[str], outcome: Outcome, volumes_per_case: int) -> list[int]:
    """Rows of the good cases where the cases `laid_out` lie one after the other."""
    first = {name: place * volumes_per_case for place, name in enumerate(laid_out)}
    return [first[record.name] + k for record in outcome.records for k in range(volumes_per_case)]


def _cannot_read(error: OSError, case: CaseFiles) -> ScopeRegError:
    where = str(error.filename or case.image)
    return ScopeRegError(f"it cannot be read: {error.strerror or error}", where=where, fix="check the permissions")


def _bad_cases(plan: SetPlan, bad: Mapping[str, str], turned: bool) -> ScopeRegError:
    named = [f"{name} ({reason})" for name, reason in bad.items()]
    fix = "repair them and go on, or leave them out (skip_bad=True)"
    if turned:
        fix += "; if only their headers are wrong, take all as stored (any_orientation=True)"
    return ScopeRegError(
        f"{len(bad)} of {len(plan.cases)} cases cannot be used: {listed(named)}", where=str(plan.root), fix=fix
    )
