"""Splits: which volumes train, choose the weights and are tested, by patient, and the file that keeps them."""

from __future__ import annotations

import csv
import hashlib
import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from scopereg.data.store import VolumeSet
from scopereg.errors import ScopeRegError, listed
from scopereg.io.files import write_text
from scopereg.io.records import Limits, read_json

CAMUS_FOLDS = 5
PARTS = ("train", "validation", "test")
_SUBGROUPS = 10
FORMAT = "scopereg-folds-1"
Folds = list[dict[str, list[str]]]  # patients of each part
Published = Callable[[Sequence[str], int], "Split | None"]  # of patients and a fold
_LIMITS = Limits(64 * 2**20, 20, 4_000_000)  # every patient in every fold
_SHORT = {"val": "validation"}


@dataclass(frozen=True)
class Split:
    """Rows of a set for training, validation and test, and the rule that chose them."""

    train: tuple[int, ...]
    validation: tuple[int, ...]
    test: tuple[int, ...]
    rule: str = ""

    def sha256(self, patients: Sequence[str]) -> str:
        """Hash of the patients in each part, to store with results: equal hashes are equal splits."""
        parts = [sorted({patients[row] for row in rows}) for rows in (self.train, self.validation, self.test)]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def split_set(volume_set: VolumeSet, fold: int = 0, seed: int = 0) -> Split:
    """The folds stored with a prepared set; else the publishers' subgroups for CAMUS, seeded five-fold 7:1:2 else.

    A part of CAMUS too small to have every part of that fold, or with patients that its publishers do not know, is
    split like everything else; `rule` tells.
    """
    stored = volume_set.facts.get("folds")
    if stored:
        return split_given(volume_set.patients, stored, fold)
    return split_named(volume_set.name, volume_set.patients, fold, seed)


def split_named(name: str, patients: Sequence[str], fold: int = 0, seed: int = 0) -> Split:
    """The split of a set of this name where no folds were given."""
    if name.lower().startswith("camus") and _has_all_parts(patients, fold):
        return split_camus(patients, fold)
    return split_patients(patients, fold=fold, seed=seed)


def split_given(patients: Sequence[str], folds: Sequence[Mapping[str, Any]], fold: int = 0) -> Split:
    """One of the folds that name the patients of each part, and the rule that chose them."""
    _check_fold(fold, len(folds), "split_given(fold)")
    parts = _parts(folds[fold], fold, "split_given(folds)")
    rule = str(folds[fold].get("rule", f"given, fold {fold}"))
    split = _rows(patients, parts["train"], parts["validation"], parts["test"], rule)
    if not (split.train and split.validation and split.test):
        raise ScopeRegError(
            f"fold {fold} leaves a part without patients",
            where="split_given(patients)",
            fix="use another fold or more patients",
        )
    return split


def split_patients(patients: Sequence[str], *, fold: int = 0, folds: int = 5, seed: int = 0) -> Split:
    """Patients in a seeded order, cut into `folds` test blocks; half a block's worth behind it validates.

    With five folds that is 7:1:2, and each patient is tested in exactly one fold. With fewer patients than folds there
    are as many folds as patients. The test comes first, then training, then validation: with two patients validation
    uses the training patient, a single patient is all three.
    """
    names = sorted(set(patients), key=lambda name: hashlib.sha256(f"{seed} {name}".encode()).digest())
    if folds < 2 or not names:
        raise ScopeRegError(
            f"{folds} folds of {len(names)} patients", where="split_patients(folds)", fix="use two folds or more"
        )
    used = min(folds, len(names))
    _check_fold(fold, used, f"split_patients(fold), {len(names)} patients")
    if len(names) == 1:
        rows = tuple(range(len(patients)))
        return Split(rows, rows, rows, "one patient in every part")
    small, larger = divmod(len(names), used)  # the first `larger` blocks have one patient more
    start = fold * small + min(fold, larger)
    size = small + (fold < larger)
    turned = names[start:] + names[:start]
    test, rest = turned[:size], turned[size:]
    count = max(1, int(len(names) / (2 * folds) + 0.5)) if len(rest) > 1 else 0
    validation, train = rest[:count] or rest, rest[count:]
    return _rows(patients, train, validation, test, f"{used}-fold by patient, fold {fold}, seed {seed}")


def split_camus(patients: Sequence[str], fold: int = 0) -> Split:
    """Two of the publishers' ten subgroups for the test (fold 0: 1 and 2), the next for validation, seven to train."""
    parts = _camus_parts(patients, fold)
    empty = [name for name, found in parts.items() if not found]
    if empty:
        raise ScopeRegError(
            f"fold {fold} has no patient for {' and '.join(empty)}",
            where="split_camus(patients)",
            fix="use another fold, more patients, or split_patients",
        )
    return _rows(patients, parts["train"], parts["validation"], parts["test"], f"CAMUS subgroups, fold {fold}")


@cache
def camus_subgroups() -> dict[int, int]:
    """The publishers' subgroup, 1 to 10, of each CAMUS patient number."""
    table = resources.files("scopereg.data").joinpath("camus_subgroups.csv").read_text(encoding="utf-8")
    return {int(row["patient"]): int(row["subgroup"]) for row in csv.DictReader(table.splitlines())}


def _camus_parts(patients: Sequence[str], fold: int) -> dict[str, list[str]]:
    _check_fold(fold, CAMUS_FOLDS, "split_camus(fold)")
    groups = {name: _subgroup(name) for name in sorted(set(patients))}
    test = {2 * fold + 1, 2 * fold + 2}
    validation = {(2 * fold + 2) % _SUBGROUPS + 1}
    train = set(range(1, _SUBGROUPS + 1)) - test - validation
    wanted = {"train": train, "validation": validation, "test": test}
    return {part: [name for name, group in groups.items() if group in chosen] for part, chosen in wanted.items()}


def _has_all_parts(patients: Sequence[str], fold: int) -> bool:
    known = all(_known_subgroup(name) is not None for name in patients)
    return known and all(_camus_parts(patients, fold).values())


def _known_subgroup(patient: str) -> int | None:
    number = re.fullmatch(r"patient(\d+)", patient)
    return camus_subgroups().get(int(number[1])) if number else None


def _subgroup(patient: str) -> int:
    group = _known_subgroup(patient)
    if group is None:
        raise ScopeRegError(
            f"{patient!r} is in none of the publishers' subgroups",
            where="split_camus(patients)",
            fix="name patients as the publishers do, patient0001 to patient0500, or use split_patients",
        )
    return group


def _rows(
    patients: Sequence[str], train: Sequence[str], validation: Sequence[str], test: Sequence[str], rule: str
) -> Split:
    def rows_of(part: set[str]) -> tuple[int, ...]:
        return tuple(row for row, name in enumerate(patients) if name in part)

    return Split(rows_of(set(train)), rows_of(set(validation)), rows_of(set(test)), rule)


def _check_fold(fold: int, folds: int, where: str) -> None:
    if not 0 <= fold < folds:
        raise ScopeRegError(f"fold {fold}", where=where, fix=f"use a fold from 0 to {folds - 1}")


def make_folds(
    name: str, patients: Sequence[str], given: Folds | None = None, published: Published | None = None
) -> list[Split]:
    """Every fold of a set: those given, else five, or as many as there are patients, the publishers' where they are."""
    if given is not None:
        return [split_given(patients, given, fold) for fold in range(len(given))]
    found = [published(patients, fold) if published else None for fold in range(_count(patients))]
    return [split or split_named(name, patients, fold) for fold, split in enumerate(found)]


def published_folds(patients: Sequence[str], published: Published | None) -> list[dict[str, Any]] | None:
    """The publishers' folds as they are stored; None where they have none, or not for all of these patients."""
    found = [published(patients, fold) if published else None for fold in range(_count(patients))]
    return None if None in found else _by_patient([split for split in found if split is not None], patients)


def _count(patients: Sequence[str]) -> int:
    return min(CAMUS_FOLDS, len(set(patients)))


def _by_patient(folds: Sequence[Split], patients: Sequence[str]) -> list[dict[str, Any]]:
    return [
        {
            "rule": fold.rule,
            "sha256": fold.sha256(patients),
            **{part: sorted({patients[row] for row in getattr(fold, part)}) for part in PARTS},
        }
        for fold in folds
    ]


def write_folds(path: Path, folds: Sequence[Split], patients: Sequence[str]) -> list[dict[str, Any]]:
    """Store folds as JSON, and give them by patient as they are stored."""
    content = _by_patient(folds, patients)
    stored = {"format": FORMAT, "sha256": folds_sha256(content), "folds": content}
    write_text(path, json.dumps(stored, indent=1) + "\n")
    return content


def read_folds(path: Path, patients: Collection[str], *, may_name_others: bool = False) -> Folds:
    """Patients of each part of each fold, from a file of ours or of one's own; each patient is in just one part.

    One's own needs no more than {"folds": [{"train": [...], "validation": [...], "test": [...]}, ...]}. It may name
    patients that are not in the set only if it `may_name_others`, since bad cases were left out.
    """
    content = _read(path)
    folds = [_parts(fold, number, str(path)) for number, fold in enumerate(content["folds"])]
    wanted = set(patients)
    for number, fold in enumerate(folds):
        if len(wanted) >= len(PARTS):  # fewer cannot but share parts
            _check_once(fold, f"{path}, fold {number}")
        _check_complete(fold, wanted, may_name_others, f"{path}, fold {number}")
    told = content.get("sha256")
    if content.get("format") == FORMAT and told != folds_sha256(content["folds"]):
        raise ScopeRegError("its content is not what was written", where=str(path), fix="prepare the data again")
    return [{part: [name for name in fold[part] if name in wanted] for part in PARTS} for fold in folds]


def read_stored_folds(path: Path) -> Any:
    """The folds of a file as they are stored."""
    return _read(path)["folds"]


def folds_sha256(content: Any) -> str:
    """Hash of folds as they are stored."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _read(path: Path) -> dict[str, Any]:
    content = read_json(path, "pass a JSON file of folds", limits=_LIMITS)
    if not isinstance(content, dict) or not isinstance(content.get("folds"), list) or not content["folds"]:
        raise ScopeRegError(
            "it has no list of folds",
            where=str(path),
            fix='write {"folds": [{"train": [patients], "validation": [patients], "test": [patients]}, ...]}',
        )
    return content


def _parts(fold: Any, number: int, where: str) -> dict[str, list[str]]:
    parts = {_SHORT.get(key, key): value for key, value in fold.items()} if isinstance(fold, dict) else {}
    for part in PARTS:
        names = parts.get(part)
        if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
            raise ScopeRegError(
                f"fold {number} has no patients for {part}",
                where=where,
                fix=f"list the names of patients in {part}",
            )
    return {part: parts[part] for part in PARTS}


def _check_once(fold: Mapping[str, Sequence[str]], where: str) -> None:
    places: dict[str, list[str]] = {}
    for part, names in fold.items():
        for name in names:
            places.setdefault(name, []).append(part)
    twice = [f"{name} ({' and '.join(parts)})" for name, parts in places.items() if len(parts) > 1]
    if twice:
        raise ScopeRegError(
            f"{len(twice)} patients are in it more than once: {listed(twice)}",
            where=where,
            fix="keep each patient in one part: one that is in two is trained on and tested",
        )


def _check_complete(fold: Mapping[str, Sequence[str]], patients: set[str], may_name_others: bool, where: str) -> None:
    named = {name for names in fold.values() for name in names}
    unknown = set() if may_name_others else named - patients
    for wrong, words in (
        (sorted(patients - named), "patients of the set are in no part"),
        (sorted(unknown), "patients in it are not in the set"),
    ):
        if wrong:
            raise ScopeRegError(
                f"{len(wrong)} {words}: {listed(wrong)}", where=where, fix="name the patients of the set, each once"
            )
    for part, names in fold.items():
        if not patients & set(names):
            raise ScopeRegError(f"nobody is left for {part}", where=where, fix="move patients into this part")
