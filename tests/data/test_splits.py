"""Splits keep patients together, test each once, and are those of the paper where it tells."""

from __future__ import annotations

from collections import Counter

import pytest
import torch

from scopereg.data.splits import Split, camus_subgroups, split_camus, split_patients, split_set
from scopereg.data.store import VolumeSet
from scopereg.errors import ScopeRegError

CAMUS = tuple(f"patient{number:04d}" for number in range(1, 501) for _ in ("2CH", "4CH"))


def sizes(split: Split, patients: tuple[str, ...]) -> tuple[int, ...]:
    return tuple(len({patients[row] for row in rows}) for rows in (split.train, split.validation, split.test))


def a_set(name: str, patients: tuple[str, ...]) -> VolumeSet:
    images = torch.zeros(len(patients), 2, 2, 2, dtype=torch.uint8)
    return VolumeSet(name, images, 1.0, tuple(map(str, range(len(patients)))), patients)


@pytest.mark.parametrize("count", [3, 9, 10, 11, 73, 100, 399])
def test_every_patient_is_tested_once_and_in_one_part(count: int) -> None:
    patients = tuple(f"p{k // 2}" for k in range(2 * count))
    tested: Counter[int] = Counter()
    for fold in range(min(5, count)):
        split = split_patients(patients, fold=fold)
        assert sorted(split.train + split.validation + split.test) == list(range(len(patients)))
        assert sum(sizes(split, patients)) == count
        assert min(sizes(split, patients)) >= 1
        tested.update(split.test)
    assert set(tested.values()) == {1}
    assert len(tested) == len(patients)


def test_the_sizes_are_those_of_the_paper() -> None:
    """mu-RegPro: 51/7/15 in three folds, 52/7/14 in two; CAMUS: 350/50/100."""
    patients = tuple(f"case{k:06d}" for k in range(73))
    found = [sizes(split_patients(patients, fold=fold), patients) for fold in range(5)]
    assert found == [(51, 7, 15)] * 3 + [(52, 7, 14)] * 2
    assert [sizes(split_camus(CAMUS, fold), CAMUS) for fold in range(5)] == [(350, 50, 100)] * 5


def test_the_seed_and_not_the_order_of_rows_decides() -> None:
    patients = tuple(f"p{k}" for k in range(20))
    shuffled = patients[7:] + patients[:7]
    hashes = {seed: split_patients(patients, seed=seed).sha256(patients) for seed in range(3)}
    assert len(set(hashes.values())) == 3
    assert split_patients(shuffled, seed=1).sha256(shuffled) == hashes[1]
    assert split_patients(patients, fold=1).sha256(patients) != hashes[0]


def test_this_split_stays_as_it_is() -> None:
    """Stored results name it: another order of patients would be another split."""
    patients = tuple(f"p{k}" for k in range(10))
    split = split_patients(patients)
    assert {patients[row] for row in split.test} == {"p5", "p7"}


def test_few_patients_have_a_rule() -> None:
    alone = split_patients(("a", "a"))
    assert (alone.train, alone.validation, alone.test) == ((0, 1), (0, 1), (0, 1))
    first, second = (split_patients(("a", "b"), fold=fold) for fold in (0, 1))
    assert first.train == first.validation == second.test
    assert second.train == second.validation == first.test
    with pytest.raises(ScopeRegError, match="from 0 to 1"):
        split_patients(("a", "b"), fold=2)
    with pytest.raises(ScopeRegError, match="from 0 to 4"):
        split_patients(tuple("abcdefgh"), fold=5)
    with pytest.raises(ScopeRegError, match="folds"):
        split_patients((), fold=0)


def test_camus_uses_the_publishers_subgroups() -> None:
    groups = camus_subgroups()
    assert Counter(groups.values()) == dict.fromkeys(range(1, 11), 50)
    expected = [({1, 2}, {3}), ({3, 4}, {5}), ({5, 6}, {7}), ({7, 8}, {9}), ({9, 10}, {1})]
    for fold, (test, validation) in enumerate(expected):
        split = split_camus(CAMUS, fold)
        assert {groups[int(CAMUS[row][7:])] for row in split.test} == test
        assert {groups[int(CAMUS[row][7:])] for row in split.validation} == validation


def test_unknown_camus_patients_are_refused() -> None:
    for name in ("patient0501", "someone"):
        with pytest.raises(ScopeRegError, match=name):
            split_camus((*CAMUS, name))
    with pytest.raises(ScopeRegError, match="fold 5"):
        split_camus(CAMUS, 5)
    with pytest.raises(ScopeRegError, match="no patient for train"):
        split_camus(("patient0001", "patient0002"))


def test_the_right_rule_for_each_set() -> None:
    assert split_set(a_set("camus", CAMUS), 1) == split_camus(CAMUS, 1)
    few = CAMUS[:40]
    assert split_set(a_set("camus", few), 1, seed=3) == split_patients(few, fold=1, seed=3)
    others = tuple("abcdefghijkl")
    assert split_set(a_set("echo", others), 2, seed=1) == split_patients(others, fold=2, seed=1)
    assert "subgroups" in split_set(a_set("camus", CAMUS)).rule
    assert "subgroups" not in split_set(a_set("camus", few)).rule
