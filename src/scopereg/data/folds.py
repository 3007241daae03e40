"""Folds: every split of a set as one file, by patient, with the rule that made it and hashes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from scopereg.data.cases import listed
from scopereg.data.splits import CAMUS_FOLDS, PARTS, Split, split_given, split_named
from scopereg.errors import ScopeRegError
from scopereg.io.files import write_text

FORMAT = "scopereg-folds-1"
Folds = list[dict[str, list[str]]]  # patients of each part
_SHORT = {"val": "validation"}


def make_folds(name: str, patients: Sequence[str], given: Folds | None = None) -> list[Split]:
    """Every fold of a set: those given, else five, or as many as there are patients."""
    if given is not None:
        return [split_given(patients, given, fold) for fold in range(len(given))]
    return [split_named(name, patients, fold) for fold in range(min(CAMUS_FOLDS, len(set(patients))))]


def write_folds(path: Path, folds: Sequence[Split], patients: Sequence[str]) -> list[dict[str, Any]]:
    """Store folds as JSON, and give them by patient as they are stored."""
    content = [
        {
            "rule": fold.rule,
            "sha256": fold.sha256(patients),
            **{part: sorted({patients[row] for row in getattr(fold, part)}) for part in PARTS},
        }
        for fold in folds
    ]
    stored = {"format": FORMAT, "sha256": folds_sha256(content), "folds": content}
    write_text(path, json.dumps(stored, indent=1) + "\n")
    return content


def read_folds(path: Path, patients: Collection[str], *, strangers: bool = False) -> Folds:
    """Patients of each part of each fold, from a file of ours or of one's own; each patient is in just one part.

    One's own needs no more than {"folds": [{"train": [...], "validation": [...], "test": [...]}, ...]}. It may name
    patients that are not in the set only if `strangers` are expected, since bad cases were left out.
    """
    content = _read(path)
    folds = [_parts(fold, number, path) for number, fold in enumerate(content["folds"])]
    wanted = set(patients)
    for number, fold in enumerate(folds):
        if len(wanted) >= len(PARTS):  # fewer cannot but share parts
            _check_once(fold, f"{path}, fold {number}")
        _check_complete(fold, wanted, strangers, f"{path}, fold {number}")
    told = content.get("sha256")
    if content.get("format") == FORMAT and told != folds_sha256(content["folds"]):
        raise ScopeRegError("its content is not what was written", where=str(path), fix="prepare the data again")
    return [{part: [name for name in fold[part] if name in wanted] for part in PARTS} for fold in folds]


def folds_sha256(content: Any) -> str:
    """Hash of folds as they are stored."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _read(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ScopeRegError(f"it cannot be read: {error}", where=str(path), fix="pass a JSON file of folds") from None
    if not isinstance(content, dict) or not isinstance(content.get("folds"), list) or not content["folds"]:
        raise ScopeRegError(
            "it has no list of folds",
            where=str(path),
            fix='write {"folds": [{"train": [patients], "validation": [patients], "test": [patients]}, ...]}',
        )
    return content


def _parts(fold: Any, number: int, path: Path) -> dict[str, list[str]]:
    parts = {_SHORT.get(key, key): value for key, value in fold.items()} if isinstance(fold, dict) else {}
    for part in PARTS:
        names = parts.get(part)
        if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
            raise ScopeRegError(
                f"fold {number} has no patients for {part}",
                where=str(path),
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


def _check_complete(fold: Mapping[str, Sequence[str]], patients: set[str], strangers: bool, where: str) -> None:
    named = {name for names in fold.values() for name in names}
    unknown = set() if strangers else named - patients
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
