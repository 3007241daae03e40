"""Result files: what is written comes back, and what is damaged, foreign or there twice is refused."""

from __future__ import annotations

import math
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from scopereg.errors import ScopeRegError
from scopereg.evaluation.results import COLUMNS, FrameResult, is_failure, read_many, read_results, write_results

NUMBERS = {name: 0.125 * index for index, name in enumerate(COLUMNS[8:-3])}
ROW = FrameResult("CAMUS-M", "honest", 10.0, 2, "scope-reg", 'case "1", of two', "patient 7", 3, **NUMBERS, ok="yes")
ROWS = [ROW, replace(ROW, frame=4, mtre_mm=1 / 3), replace(ROW, case="other", dice=math.nan, ncc=math.nan)]


def saved(path: Path, rows: list[FrameResult] = ROWS) -> Path:
    return write_results(path, rows, {"seed": 5, "method_facts": {"weights": "x"}})


def test_rows_and_facts_come_back_as_they_were(tmp_path: Path) -> None:
    rows, facts = read_results(saved(tmp_path / "a.csv"))
    assert [repr(asdict(row)) for row in rows] == [repr(asdict(row)) for row in ROWS]  # NaN is not equal to itself
    assert (facts["seed"], facts["method_facts"]) == (5, {"weights": "x"})
    assert [type(value) for value in (rows[0].fold, rows[0].magnitude, rows[0].frame)] == [int, float, int]


def older(path: Path, columns: int) -> FrameResult:
    """The one row of a file from before so many columns were added."""
    first, *lines = saved(path, ROWS[:1]).read_text().splitlines()
    path.write_text("\n".join([first, *(line.rsplit(",", columns)[0] for line in lines)]) + "\n")
    ((row,), _) = read_results(path)
    return row


def test_files_from_before_similarities_are_read(tmp_path: Path) -> None:
    row = older(tmp_path / "a.csv", 1)
    assert (row.ok, row.failure, row.confidence) == ("yes", "", ROW.confidence)
    assert math.isnan(row.similarity)


def test_files_from_before_reasons_of_failures_are_read(tmp_path: Path) -> None:
    row = older(tmp_path / "a.csv", 2)
    assert (row.ok, row.expected_mm, row.failure) == ("yes", ROW.expected_mm, "")


def test_files_from_before_calibrations_are_read(tmp_path: Path) -> None:
    row = older(tmp_path / "a.csv", 5)
    assert (row.found_rz, row.ok) == (ROW.found_rz, "")
    assert math.isnan(row.expected_mm)
    assert math.isnan(row.bound_mm)


def test_a_file_without_frames_is_read(tmp_path: Path) -> None:
    assert read_results(saved(tmp_path / "a.csv", []))[0] == []


@pytest.mark.parametrize(
    ("line", "content", "said"),
    [
        (0, '# {"format": "scopereg-res', "the header is damaged"),
        (0, '# {"format": "scopereg-results-0"}', "not a results file of this version"),
        (0, "# [1]", "not a results file of this version"),
        (0, "dataset,protocol", "not a results file of this version"),
        (1, "dataset,protocol", "not a results file of this version"),
        (3, "CAMUS-M,honest,10.0,2,scope-reg,case,patient,many", "line 4 is damaged"),
        (3, "CAMUS-M,honest,10.0,2", "line 4 is damaged"),
    ],
)
def test_damage_is_named(tmp_path: Path, line: int, content: str, said: str) -> None:
    path = saved(tmp_path / "a.csv")
    lines = path.read_text().splitlines()
    lines[line] = content
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises(ScopeRegError, match=said) as caught:
        read_results(path)
    assert caught.value.where == str(path)


def test_what_is_no_text_or_not_there_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "picture.csv").write_bytes(b"\xff\xfe\x00\x01")
    (tmp_path / "empty.csv").touch()
    for name, said in (
        ("picture.csv", "it is no text"),
        ("none.csv", "cannot be read: No such file"),
        ("empty.csv", "not a results"),
    ):
        with pytest.raises(ScopeRegError, match=said):
            read_results(tmp_path / name)


def test_folders_are_read_through_and_files_named_twice_once(tmp_path: Path) -> None:
    one = saved(tmp_path / "set" / "fold0.csv")
    saved(tmp_path / "set" / "deep" / "fold1.csv", [replace(row, fold=1) for row in ROWS])
    (tmp_path / "set" / "notes.txt").write_text("not results")
    rows = read_many([tmp_path / "set", one])
    assert sorted((row.fold, row.case, row.frame) for row in rows) == sorted(
        (fold, row.case, row.frame) for fold in (1, 2) for row in ROWS
    )


def test_the_same_frame_twice_is_refused(tmp_path: Path) -> None:
    saved(tmp_path / "a.csv")
    saved(tmp_path / "b.csv", [ROW])
    with pytest.raises(ScopeRegError, match=r"scope-reg has case .* frame 3 twice \(CAMUS-M, honest, pm 10, fold 2\)"):
        read_many([tmp_path])
    others = [
        replace(ROW, **change) for change in ({"method": "m"}, {"fold": 0}, {"magnitude": 15.0}, {"dataset": "d"})
    ]
    saved(tmp_path / "b.csv", others)
    assert len(read_many([tmp_path])) == 7


def test_parts_of_the_data_are_not_mixed(tmp_path: Path) -> None:
    write_results(tmp_path / "a.csv", [ROW], {"settings": {"part": "test"}})
    write_results(tmp_path / "b.csv", [replace(ROW, frame=9)], {"settings": {"part": "validation"}})
    with pytest.raises(ScopeRegError, match="several parts"):
        read_many([tmp_path])


def test_nothing_to_read_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ScopeRegError, match="no results in nothing"):
        read_many([])
    with pytest.raises(ScopeRegError, match=f"no results in {tmp_path}"):
        read_many([tmp_path])


def test_a_frame_that_was_not_located_has_failed() -> None:
    assert [is_failure(replace(ROW, mtre_mm=error), 3) for error in (3.0, 3.01, math.nan)] == [False, True, True]
