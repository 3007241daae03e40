"""A grid from beginning to end, one method of which fails: what it says, leaves, refuses and puts into tables."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from small_grids import SECONDS, Write, grid, rows_of, written

from scopereg.cli import main
from scopereg.data.store import open_set
from scopereg.evaluation.results import read_results
from scopereg.grid.folder import RunFolder
from scopereg.grid.plan import expand
from scopereg.grid.reading import read_plan
from scopereg.io.records import seal
from scopereg.registration.model import load


@dataclasses.dataclass(frozen=True)
class Done:
    plan: Path
    output: Path
    status: int
    said: str


@pytest.fixture(scope="module")
def done(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Done]:
    folder = tmp_path_factory.mktemp("done")
    usual = {"network": "scope-reg", "batch": 4, "frames_per_volume": 2, "validate_every": 1}
    methods = {
        "identity": None,
        "eureg": None,
        "scope-reg": {**usual, "looks": 1, "matching": False},
        "scope-reg-3": {**usual, "norm": "instance"},
    }
    content = {
        "dataset": "folder",
        "epochs": 1,
        "methods": methods,
        "magnitudes": [3],
        "folds": [1],
        "protocols": ["paper", "honest"],
        "test_protocols": ["paper", "honest"],
        "resolutions": [24],
    }
    plan = folder / "small.yaml"
    plan.write_text(yaml.safe_dump(content, sort_keys=False))
    command = [sys.executable, "-m", "scopereg", "grid", str(plan), "--data", str(data), "-o", str(folder / "out")]
    job = {"SLURM_NTASKS": "8", "SLURM_PROCID": "3", "SLURM_LOCALID": "3", "SLURM_JOB_NAME": "grid"}  # one of eight
    ended = subprocess.run(
        command, capture_output=True, text=True, timeout=SECONDS, check=False, env={**os.environ, **job}
    )
    yield Done(plan, folder / "out", ended.returncode, ended.stdout + ended.stderr)
    shutil.rmtree(folder)


def test_one_failed_run_stops_no_other_and_is_told_at_the_end(done: Done) -> None:
    assert done.status == 1
    assert "2 of 7 runs are not done" in done.said
    assert "eureg-paper-fold1-pm3-24: networks.create" in done.said
    assert "at least (16, 64, 64)" in done.said
    states = {run.name: RunFolder(run, done.output).state() for run in expand(read_plan(done.plan))}
    assert {name for name, state in states.items() if state.word == "failed"} == {
        f"eureg-{protocol}-fold1-pm3-24" for protocol in ("paper", "honest")
    }
    assert {state.word for name, state in states.items() if "eureg" not in name} == {"done"}


def test_a_line_tells_of_every_run_with_its_place(done: Done) -> None:
    lines = [line for line in done.said.splitlines() if line.startswith("[")]
    assert len([line for line in lines if "] done " in line]) == 5
    assert len([line for line in lines if "] failed " in line]) == 2
    assert lines[0] == "[1/7] identity-fold1-pm3-24"
    assert "left" in lines[-3]


def test_the_marker_tells_what_was_run_on_what_and_how_long(done: Done, data: Path) -> None:
    marker = json.loads((done.output / "runs" / "scope-reg-3-honest-fold1-pm3-24" / "done.json").read_text())
    settings = marker["definition"]["settings"]
    assert (settings["protocol"], settings["fold"], settings["looks"], settings["norm"]) == ("honest", 1, 3, "instance")
    assert marker["data"]["sha256"] == marker["data_sha256"] == open_set(data).sha256()
    assert marker["training"]["steps"] == 2
    assert marker["minutes"] >= marker["training"]["minutes"] > 0
    assert marker["peak_memory_mib"] > 100
    assert marker["versions"]["torch"]
    assert marker["device"].startswith("cpu")
    assert marker["attempts"] == 1
    assert set(marker["mtre_mm"]) == {"paper", "honest"}
    assert not (done.output / "runs" / "scope-reg-3-honest-fold1-pm3-24" / "last.ckpt").exists()
    assert len(rows_of(done.output / "runs" / "scope-reg-3-honest-fold1-pm3-24" / "log" / "metrics.csv")) == 2


def test_results_bear_the_name_of_the_plan_and_what_a_network_was_trained_for(done: Done) -> None:
    folder = done.output / "results" / "scope-reg-3-paper-fold1-pm3-24"
    names = {}
    for path in folder.glob("*.csv"):
        rows, facts = read_results(path)
        assert len(rows) == 2 * 4  # two test volumes, four frames of each
        names[rows[0].protocol] = rows[0].method
        weights = load(done.output / "runs" / folder.name / "model.safetensors").facts
        assert facts["method_facts"]["weights"]["settings"] == weights["settings"]
    assert names == {"paper": "scope-reg-3", "honest": "scope-reg-3 (trained for paper)"}


def test_training_and_test_share_no_patient(done: Done) -> None:
    run = json.loads((done.output / "runs" / "scope-reg-paper-fold1-pm3-24" / "run.json").read_text())
    (path,) = (done.output / "results" / "scope-reg-paper-fold1-pm3-24").glob("*-paper-scope-reg.csv")
    assert run["split_sha256"] == read_results(path)[1]["split"]


def test_other_verbs_read_the_results_as_they_lie(done: Done, tmp_path: Path) -> None:
    assert main(["compare", str(done.output / "results"), "-o", str(tmp_path), "--format", "csv"]) == 0
    rows = [row for row in rows_of(tmp_path / "main.csv") if row["protocol"] == "honest"]
    assert {row["method"] for row in rows} == {
        "identity",
        "scope-reg",
        "scope-reg-3",
        "scope-reg (trained for paper)",
        "scope-reg-3 (trained for paper)",
    }


def test_tables_have_every_method_that_is_done_beside_the_others(done: Done) -> None:
    rows = rows_of(done.output / "tables" / "main.csv")
    assert len(rows) == 2 * 2 * 3
    for trained_for in ("paper", "honest"):
        for protocol in ("paper", "honest"):
            alike = [row for row in rows if (row["trained_for"], row["protocol"]) == (trained_for, protocol)]
            assert [row["method"] for row in alike] == ["identity", "scope-reg-3", "scope-reg"]
            assert {row["frames"] for row in alike} == {"8"}
            assert {row["pixels"] for row in alike} == {"24"}
    tests = rows_of(done.output / "tables" / "statistics.csv")
    assert {(row["reference"], row["method"]) for row in tests} == {
        ("scope-reg", "identity"),
        ("scope-reg", "scope-reg-3"),
    }
    assert all(float(row["p_holm"]) >= float(row["p"]) for row in tests)


def test_the_cost_table_counts_what_networks_are_and_do(done: Done) -> None:
    rows = {row["method"]: row for row in rows_of(done.output / "tables" / "cost.csv") if row["protocol"] == "paper"}
    assert rows["identity"]["parameters_m"] == ""
    assert float(rows["scope-reg"]["parameters_m"]) == pytest.approx(6.494901, abs=1e-4)
    assert float(rows["scope-reg-3"]["gflops"]) > float(rows["scope-reg"]["gflops"]) > 0
    assert float(rows["scope-reg"]["steps"]) == 2
    text = (done.output / "tables" / "comparison.md").read_text()
    assert "trained for honest, 24 pixels" in text


def test_what_is_done_is_not_done_again(done: Done, capsys: pytest.CaptureFixture[str]) -> None:
    before = written(done.output)
    assert grid(done.plan, done.output, "--only", "scope-reg", "identity") == 0  # without any data
    assert written(done.output) == before
    assert "5 runs, 5 of them done before" in capsys.readouterr().err


def test_a_list_shows_runs_and_does_nothing(done: Done, capsys: pytest.CaptureFixture[str]) -> None:
    before = written(done.output)
    assert grid(done.plan, done.output, "--list") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[:2] == ["done", "identity-fold1-pm3-24"]
    assert "min" in lines[0]
    assert lines[1].split()[:2] == ["failed", "eureg-paper-fold1-pm3-24"]
    assert lines[-1] == "7 runs: 5 done, 2 failed"
    assert written(done.output) == before


def test_a_changed_definition_is_refused_before_any_work(
    done: Done, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = written(done.output)
    assert grid(done.plan, done.output, "--data", data, "--set", "epochs=2") == 2
    said = capsys.readouterr().err
    assert "epochs (1 there, 2 here)" in said
    assert "another folder (-o)" in said
    assert written(done.output) == before


@pytest.fixture
def copy(done: Done, tmp_path: Path) -> Path:
    """Of the finished grid, to change; tables need no weights."""
    return Path(shutil.copytree(done.output, tmp_path / "copy", ignore=shutil.ignore_patterns("*.safetensors", "log")))


def test_published_numbers_and_another_reference(done: Done, copy: Path) -> None:
    assert grid(done.plan, copy, "--collect", "--with-published", "--reference", "scope-reg-3") == 0
    assert {row["reference"] for row in rows_of(copy / "tables" / "statistics.csv")} == {"scope-reg-3"}
    text = (copy / "tables" / "comparison.md").read_text()
    assert text.count("### Published ablation") == 1


def test_while_something_is_missing_the_common_frames_are_compared(done: Done, copy: Path) -> None:
    (path,) = (copy / "results" / "scope-reg-paper-fold1-pm3-24").glob("*-paper-scope-reg.csv")
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-3]))  # three frames of eight
    assert grid(done.plan, copy, "--collect") == 0
    rows = [row for row in rows_of(copy / "tables" / "main.csv") if row["trained_for"] == row["protocol"] == "paper"]
    assert {row["frames"] for row in rows} == {"5"}
    assert "Only the 5 frames that all methods have" in (copy / "tables" / "comparison.md").read_text()


def test_runs_on_other_data_do_not_come_into_one_table(
    done: Done, copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    marker = copy / "runs" / "identity-fold1-pm3-24" / "done.json"
    content = json.loads(marker.read_text())
    content["data"]["sha256"] = "0" * 64
    marker.write_text(json.dumps(seal(content)))
    assert grid(done.plan, copy, "--collect") == 2
    assert "were done on different data" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda text: text.replace('"attempts": 1', '"attempts": 2'), "it is damaged"),
        (lambda text: text[:100], "not the JSON it should be"),
        (lambda text: "[]", "not a mapping"),
    ],
)
def test_a_damaged_marker_is_named(
    done: Done, copy: Path, capsys: pytest.CaptureFixture[str], damage: Callable[[str], str], said: str
) -> None:
    marker = copy / "runs" / "identity-fold1-pm3-24" / "done.json"
    marker.write_text(damage(marker.read_text()))
    assert grid(done.plan, copy, "--collect") == 2
    told = capsys.readouterr().err
    assert said in told
    assert "done.json" in told


def test_magnitudes_and_resolutions_have_tables_of_their_own(write_plan: Write, data: Path, output: Path) -> None:
    methods = {"identity": None, "still": {"method": "identity"}}
    plan = write_plan(methods=methods, magnitudes=[3, 4], resolutions=[24, 32])
    assert grid(plan, output, "--data", data.parent / "tiny-{size}") == 0
    rows = rows_of(output / "tables" / "main.csv")
    assert [(row["pixels"], row["magnitude"], row["method"]) for row in rows] == [
        (size, magnitude, method) for size in ("24", "32") for magnitude in ("3", "4") for method in methods
    ]
    capture = [row for row in rows_of(output / "tables" / "capture.csv") if row["method"] == "identity"]
    assert [row["pixels"] for row in capture] == ["24", "32"]
    # Offsets are in voxels: the larger ones are farther, those at 32 pixels of the same field nearer.
    assert float(capture[0]["pm4_mtre_mm"]) > float(capture[0]["pm3_mtre_mm"]) > float(capture[1]["pm3_mtre_mm"])
