"""Comparing: pairing, the numbers in the tables, the three ways to write them, and the verb."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from scopereg.cli import main, parse
from scopereg.errors import ScopeRegError
from scopereg.evaluation.compare import compare, contest, write_tables
from scopereg.evaluation.results import FrameResult, group_results, write_results
from scopereg.evaluation.tables import Cell, Table, cell_text, csv_text, latex

NAN = math.nan
AXES = ("tx", "ty", "tz", "rx", "ry", "rz")


def frames(method: str, errors: Sequence[Sequence[float]], **changes: object) -> list[FrameResult]:
    """Errors by fold, then by frame; two frames make a case, and a case is a patient."""
    return [
        _frame(method, error, fold, place, changes)
        for fold, row in enumerate(errors)
        for place, error in enumerate(row)
    ]


def _frame(method: str, error: float, fold: int, place: int, changes: dict[str, object]) -> FrameResult:
    likeness = NAN if math.isnan(error) else 1 - error / 20
    values: dict[str, object] = {
        "dataset": "CAMUS-M",
        "protocol": "honest",
        "magnitude": 10.0,
        "fold": fold,
        "method": method,
        "case": f"case{fold}{place // 2}",
        "patient": f"patient{fold}{place // 2}",
        "frame": place % 2,
        "start_mm": 8.0 + fold + place,
        **dict.fromkeys(("mtre_mm", "translation_mm", "rotation_deg", "geodesic_deg", "hd95_mm"), error),
        **dict.fromkeys(("dice", "ncc", "ssim"), likeness),
        "confidence": NAN,
        "time_ms": 5.0,
        **{f"true_{axis}": float(fold + place) for axis in AXES},
        **{f"found_{axis}": fold + place + error for axis in AXES},
    }
    return FrameResult(**{**values, **changes})  # type: ignore[arg-type]


GOOD = [[1.0, 1.2, 0.8, 1.0], [1.4, 1.6, 1.5, 1.5]]
POOR = [[4.0, 3.0, 2.0, 5.0], [6.0, 2.0, 7.0, 3.5]]
START = [[8.0, 9.0, 10.0, 11.0], [9.0, 10.0, 11.0, 12.0]]


def three_methods(**changes: object) -> list[FrameResult]:
    return [
        *frames("scope-reg", GOOD, **changes),
        *frames("slow", POOR, **changes),
        *frames("identity", START, **changes),
    ]


def cells(table: Table, method: str, block: int = 0) -> dict[str, Cell]:
    (row,) = (row for row in table.blocks[block].rows if row[0].value == method)
    return {column.key: cell for column, cell in zip(table.columns, row, strict=True)}


def shown(table: Table, method: str, block: int = 0) -> dict[str, str]:
    columns = {column.key: column for column in table.columns}
    return {key: cell_text(cell, columns[key]) for key, cell in cells(table, method, block).items()}


def named(tables: Sequence[Table], name: str) -> Table:
    return next(table for table in tables if table.name == name)


# Pairing


def test_groups_do_not_mix_datasets_protocols_or_magnitudes() -> None:
    kinds = [{}, {"dataset": "camus"}, {"protocol": "paper"}, {"magnitude": 15.0}]
    groups = group_results([row for changes in kinds for row in three_methods(**changes)])
    assert [group.label for group in groups] == [
        "CAMUS-M, honest protocol, pm 10",
        "CAMUS-M, honest protocol, pm 15",
        "CAMUS-M, paper protocol, pm 10",
        "camus, honest protocol, pm 10",
    ]
    assert all(list(group.methods) == ["scope-reg", "slow", "identity"] for group in groups)
    (sweep,) = group_results(frames("a", GOOD, protocol="real", magnitude=0.0))
    assert sweep.label == "CAMUS-M, real protocol"


def test_frames_are_paired_whatever_the_order_of_the_rows() -> None:
    rows = three_methods()
    (group,), (shuffled,) = group_results(rows), group_results(rows[3:8][::-1] + rows[8:] + rows[:3])
    for method in group.methods:
        assert group.methods[method] == shuffled.methods[method]
        assert [row.start_mm for row in group.methods[method]] == group.start_mm.tolist()


def test_frames_that_one_method_lacks_are_an_error_or_left_out_with_a_note() -> None:
    rows = three_methods()[:-3]
    with pytest.raises(ScopeRegError, match="scope-reg 8, slow 8, identity 5; 5 are common to all") as caught:
        group_results(rows)
    assert "intersect=True" in caught.value.fix
    (group,) = group_results(rows, intersect=True)
    assert {len(found) for found in group.methods.values()} == {5}
    tables = compare(rows, intersect=True)
    assert all(any("Only the 5 frames" in note for note in table.notes) for table in tables)
    nothing = [*frames("a", GOOD), *frames("b", GOOD, case="other")]
    with pytest.raises(ScopeRegError, match="0 are common"):
        group_results(nothing, intersect=True)


@pytest.mark.parametrize("change", [{"true_ty": 9.0}, {"start_mm": 9.1}, {"patient": "somebody else"}])
def test_frames_of_one_name_that_are_not_the_same_are_refused(change: dict[str, object]) -> None:
    rows = three_methods()
    rows[9] = replace(rows[9], **change)  # type: ignore[arg-type]
    with pytest.raises(ScopeRegError, match="1 of 8 frames are not the same for scope-reg and slow") as caught:
        group_results(rows)
    assert "case00, frame 1, fold 0" in caught.value.what
    rows[9] = replace(rows[1], method="slow", start_mm=rows[1].start_mm + 0.004)
    group_results(rows)


# What the tables say


def test_the_main_table_by_hand() -> None:
    table = named(compare(three_methods()), "main")
    row = shown(table, "slow")
    # Folds 3.5 and 4.625: mean 4.0625, deviation 0.5625; the eight errors sorted 2 2 3 3.5 4 5 6 7.
    assert (row["mtre_mm"], row["p95_mm"], row["max_mm"]) == ("4.06 ± 0.56", "6.65", "7.00")
    assert row["success_percent"] == "37.5 [13.7, 69.4]"
    assert (row["frames"], row["patients"], row["failures"], row["not_located"]) == ("8", "4", "5", "0")
    assert row["dice"] == "0.797 ± 0.028"
    assert [line[0].value for line in table.blocks[0].rows] == ["identity", "slow", "scope-reg"]
    assert "mTRE before registration: 10.00 mm." in table.notes


def test_one_fold_has_no_deviation() -> None:
    table = named(compare(frames("a", GOOD[:1])), "main")
    assert shown(table, "a")["mtre_mm"] == "1.00"
    assert "one fold, so no deviation" in table.notes[0]


def test_frames_without_a_number_are_counted_named_and_never_the_best() -> None:
    rows = three_methods()
    lost = [replace(row, method="shy", **dict.fromkeys(("mtre_mm", "dice", "ncc"), NAN)) for row in rows[:1]]
    located = [replace(row, method="shy", mtre_mm=0.1, ncc=NAN if row.frame else 0.99) for row in rows[1:8]]
    table = named(compare([*rows, *lost, *located]), "main")
    row, block = cells(table, "shy"), table.blocks[0]
    assert row["mtre_mm"].value == pytest.approx(0.1)
    assert [row[key].value for key in ("failures", "not_located", "frames")] == [1, 1, 8]
    assert row["success_percent"].value == 87.5
    assert (row["mtre_mm"].missing, row["ncc"].missing) == (1, 5)
    assert shown(table, "shy")["mtre_mm"] == "0.10 ± 0.00 †"
    assert "† shy did not locate 1 of 8 frames" in "\n".join(table.notes)
    assert "† no NCC in 4 of 8 frames of shy: left out of the mean." in table.notes
    best = {(block.rows[index][0].value, table.columns[place].key) for index, place in table.best(block)}
    assert ("scope-reg", "mtre_mm") in best
    assert ("scope-reg", "success_percent") in best
    assert not {place for place in best if place[0] == "shy"}


def test_the_statistics_by_hand() -> None:
    table = named(compare(three_methods()), "statistics")
    assert table.title.startswith("scope-reg against")
    row = cells(table, "slow")
    assert row["difference_mm"].value == pytest.approx(4.0625 - 1.25)
    # The reference is better in all 8 frames: exactly 2 / 2^8 without ties; Holm doubles it.
    assert row["p"].value == pytest.approx(2 / 2**8)
    assert row["p_holm"].value == pytest.approx(4 / 2**8)
    assert row["z"].value == pytest.approx(18 / np.sqrt(51))
    assert (row["r"].value, row["effect"].value) == (pytest.approx(18 / np.sqrt(51 * 8)), "large")
    low, high = row["by_frames_mm"].interval or (NAN, NAN)
    assert low < 2.8125 < high
    assert row["by_patients_mm"].interval != row["by_frames_mm"].interval


def test_what_one_method_did_not_locate_is_left_out_of_the_difference_but_not_of_the_test() -> None:
    lost = [[NAN, *POOR[0][1:]], POOR[1]]
    (group,) = group_results([*frames("scope-reg", GOOD), *frames("slow", lost)])
    found = contest(group, "scope-reg", "slow")
    both = np.array([*POOR[0][1:], *POOR[1]]) - np.array([*GOOD[0][1:], *GOOD[1]])
    assert (found.left_out, found.test.pairs) == (1, 8)
    assert found.difference_mm == pytest.approx(both.mean())
    assert found.test.p == pytest.approx(2 / 2**8)
    nothing = contest(group_results([*frames("a", GOOD), *frames("b", [[NAN] * 4] * 2)])[0], "a", "b")
    assert math.isnan(nothing.difference_mm)
    assert nothing.left_out == 8


def test_the_capture_range_needs_several_magnitudes() -> None:
    rows = three_methods()
    assert "capture" not in [table.name for table in compare(rows)]
    table = named(compare([*rows, *frames("scope-reg", POOR, magnitude=25.0)]), "capture")
    assert [column.key for column in table.columns[1::2]] == ["pm10_mtre_mm", "pm25_mtre_mm"]
    assert shown(table, "scope-reg")["pm25_mtre_mm"] == "4.06 ± 0.56"
    assert shown(table, "slow")["pm25_mtre_mm"] == "–"


@pytest.mark.parametrize(
    ("methods", "wanted", "found"),
    [
        (["identity", "fast", "SCoPE_Reg"], None, "SCoPE_Reg"),
        (["identity", "fast", "slow"], None, "fast"),
        (["fast", "slow"], "slow", "slow"),
    ],
)
def test_the_reference(methods: list[str], wanted: str | None, found: str) -> None:
    rows = [row for method in methods for row in frames(method, GOOD)]
    table = named(compare(rows, reference=wanted), "statistics")
    assert table.blocks[0].facts["reference"] == found
    assert [row[0].value for row in table.blocks[0].rows] == [method for method in methods if method != found]


def test_a_reference_that_is_not_there_is_refused_or_noted() -> None:
    with pytest.raises(ScopeRegError, match="did you mean 'slow'"):
        compare(three_methods(), reference="slwo")
    tables = compare([*three_methods(), *frames("other", GOOD, dataset="echo")], reference="slow")
    assert [table.name for table in tables] == ["main", "main", "statistics", *2 * ["against_nothing"]]
    assert any("No tests: slow" in note for note in tables[1].notes)


# Published numbers beside ours


def test_published_numbers_are_a_block_of_their_own_under_their_own_name() -> None:
    table = named(compare(three_methods(), with_published=True), "main")
    assert [block.label for block in table.blocks] == [
        "CAMUS-M, honest protocol, pm 10: these results",
        "CAMUS, paper protocol, pm 10: from the SCoPE-Reg paper, not measured here",
    ]
    assert shown(table, "SCoPE-Reg", block=1)["mtre_mm"] == "0.73 ± 0.04"
    assert "not the same test" in table.notes[-1]
    rows = list(csv.DictReader(io.StringIO(csv_text([table]))))
    assert {(row["dataset"], row["source"]) for row in rows} == {("CAMUS-M", "results"), ("CAMUS", "SCoPE-Reg paper")}
    same = named(compare(three_methods(dataset="camus", protocol="paper"), with_published=True), "main")
    assert "test poses of their own draw" in same.notes[-1]


def test_published_capture_range_ablation_and_cost() -> None:
    rows = [*three_methods(), *three_methods(magnitude=15.0), *three_methods(magnitude=12.0)]
    tables = compare(rows, with_published=True)
    capture = named(tables, "capture")
    row = shown(capture, "EUReg", block=1)
    assert [row[f"pm{pm}_mtre_mm"] for pm in (10, 12, 15)] == ["1.24", "–", "2.48"]
    assert [
        shown(table, "EUReg", 1)["mtre_mm"] for table in tables if table.name == "main" and len(table.blocks) > 1
    ] == [
        "1.24 ± 0.15",
        "2.48",
    ]
    assert named(tables, "published_cost").blocks[3].label == "512²"
    assert len(named(tables, "published_ablation").blocks[0].rows) == 9


def test_data_that_nobody_published_say_so() -> None:
    table = named(compare(three_methods(dataset="echo"), with_published=True), "main")
    assert len(table.blocks) == 1
    assert table.notes[-1] == "Nothing was published to set beside echo at pm 10."


# The verb


def test_latex_of_real_tables_holds_ascii_only() -> None:
    tables = compare([*three_methods(), *three_methods(magnitude=15.0)], with_published=True)
    for table in tables:
        assert latex(table, "x").isascii(), [letter for letter in latex(table, "x") if not letter.isascii()]


def save(folder: Path, rows: Sequence[FrameResult]) -> Path:
    for method in {row.method for row in rows}:
        write_results(folder / f"{method}.csv", [row for row in rows if row.method == method], {"seed": 0})
    return folder


def test_the_verb_prints_the_main_table_and_writes_all_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "90")
    results = save(tmp_path / "results", three_methods())
    words = ["compare", str(results), "-o", str(tmp_path / "out"), "--reference", "slow", "--with-published"]
    assert main(words) == 0
    out = capsys.readouterr().out
    assert "CAMUS-M, honest protocol, pm 10: these results" in out
    assert "1.25 ± 0.25" in out
    names = [
        "against_nothing.csv",
        "comparison.md",
        "comparison.tex",
        "main.csv",
        "published_ablation.csv",
        "published_cost.csv",
        "statistics.csv",
    ]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == names
    text = (tmp_path / "out" / "comparison.md").read_text()
    assert "### slow against the other methods" in text
    assert "Made with scopereg" in text


@pytest.mark.parametrize(
    ("form", "names"),
    [("md", ["comparison.md"]), ("latex", ["comparison.tex"]), ("csv", ["against_nothing.csv", "main.csv"])],
)
def test_only_the_format_asked_for_is_written(tmp_path: Path, form: str, names: list[str]) -> None:
    results = save(tmp_path / "results", frames("a", GOOD))
    assert main(["compare", str(results / "a.csv"), "-o", str(tmp_path / "out"), "--format", form]) == 0
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == names


def test_nothing_but_the_tables_is_left_in_the_folder(tmp_path: Path) -> None:
    paths = write_tables(compare(three_methods()), tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {path.name for path in paths}


def test_the_verb_refuses_an_output_among_the_results(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results = save(tmp_path / "results", three_methods())
    for output in (results, results / "tables"):
        assert main(["compare", str(results), "-o", str(output)]) == 2
        assert "read as results" in capsys.readouterr().err
    assert main(["compare", "-o", str(tmp_path / "out")]) == 2
    assert "no results in nothing" in capsys.readouterr().err


def test_results_may_stand_in_a_yaml_file(tmp_path: Path) -> None:
    config = tmp_path / "compare.yaml"
    config.write_text("results: [a, b.csv]\nformat: csv\nintersect: true\n")
    options = parse("compare", ["--config", str(config)])
    assert (options.results, options.format, options.intersect) == ((Path("a"), Path("b.csv")), "csv", True)
    assert parse("compare", ["c", "--config", str(config)]).results == (Path("c"),)
