"""Folds of one's own are stored as they are given, and refused where they mix patients."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from camus_trees import plan

from scopereg.data.builder import build_set
from scopereg.data.splits import split_set
from scopereg.data.store import open_set
from scopereg.errors import ScopeRegError


def folds_file(path: Path, *folds: tuple[str, str, str]) -> Path:
    """Folds by patient numbers, such as ("123", "4", "56")."""
    names = [[[f"patient000{n}" for n in part] for part in fold] for fold in folds]
    content = [dict(zip(("train", "val", "test"), parts, strict=True)) for parts in names]
    path.write_text(json.dumps({"folds": content}))
    return path


def test_folds_of_ones_own(tree: Path, tmp_path: Path) -> None:
    path = folds_file(tmp_path / "mine.json", ("123", "4", "56"), ("456", "1", "23"))
    volumes = build_set(plan(tree), tmp_path / "set", splits=path)
    split = split_set(open_set(tmp_path / "set"), 1)
    assert (split.train, split.validation, split.test, split.rule) == ((3, 4, 5), (0,), (1, 2), "given, fold 1")
    stored = json.loads((tmp_path / "set/splits.json").read_text())["folds"]
    assert [fold["sha256"] for fold in stored] == [split_set(volumes, k).sha256(volumes.patients) for k in (0, 1)]
    with pytest.raises(ScopeRegError, match="folds"):
        build_set(plan(tree), tmp_path / "set")


@pytest.mark.parametrize(
    ("folds", "words"),
    [
        (
            [("123", "4", "56"), ("1234", "4", "56")],
            r"1 patients .* more than once: patient0004 \(train and validation\)",
        ),
        ([("1123", "4", "56")], "more than once: patient0001"),
        ([("123", "4", "5")], "1 patients of the set are in no part: patient0006"),
        ([("123", "4", "567")], "not in the set: patient0007"),
        ([("123", "", "456")], "no patients for validation"),
        ([], "no list of folds"),
    ],
)
def test_folds_that_mix_patients_are_refused_before_any_work(
    tree: Path, tmp_path: Path, folds: list[tuple[str, str, str]], words: str
) -> None:
    with pytest.raises(ScopeRegError, match=words):
        build_set(plan(tree), tmp_path / "set", splits=folds_file(tmp_path / "mine.json", *folds))
    assert not (tmp_path / "set/journal.part").exists()
