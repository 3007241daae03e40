"""Split: which volumes train, which choose the weights and which are tested, patient by patient."""

from __future__ import annotations

import csv
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from scopereg.data.store import VolumeSet
from scopereg.errors import ScopeRegError

CAMUS_FOLDS = 5
PARTS = ("train", "validation", "test")
_SUBGROUPS = 10


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
    train, validation, test = (folds[fold][part] for part in PARTS)
    split = _rows(patients, train, validation, test, folds[fold].get("rule", f"given, fold {fold}"))
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
