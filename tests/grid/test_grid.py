"""Grids done here: skipped, changed, extended, failed, killed, on a bare machine, and what they leave."""

from __future__ import annotations

import csv
import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from scopereg.cli import main, parse
from scopereg.data.datasets import load_dataset
from scopereg.data.store import open_set, save_set
from scopereg.errors import ScopeRegError
from scopereg.evaluation.results import read_results
from scopereg.grid import __main__ as bare
from scopereg.grid import work
from scopereg.grid.command import chosen
from scopereg.grid.folder import RunFolder
from scopereg.grid.lock import holder, locked
from scopereg.grid.measure import facts_of
from scopereg.grid.plan import Run, expand
from scopereg.grid.reading import read_plan
from scopereg.grid.volumes import data_path, load_volumes
from scopereg.grid.work import Place, attempt, do_run
from scopereg.networks import create
from scopereg.networks.weights import save_network
from scopereg.options.training import GridOptions
from scopereg.registration.model import load

Write = Callable[..., Path]
SECONDS = 120


def grid(plan: Path, output: Path, *words: Any) -> int:
    return main(["grid", str(plan), "-o", str(output), *map(str, words)])


def written(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Every file with its time and content, but for the tables, which are made again."""
    files = [path for path in folder.rglob("*") if path.is_file() and "tables" not in path.parts]
    return {str(path.relative_to(folder)): (path.stat().st_mtime_ns, path.read_bytes()) for path in files}


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


# a grid from beginning to end: one method of it cannot work on volumes this small


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
    marker.write_text(json.dumps(content))
    assert grid(done.plan, copy, "--collect") == 2
    assert "were done on different data" in capsys.readouterr().err


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


# one run


def only_identity(write_plan: Write, **values: Any) -> Run:
    (run,) = expand(read_plan(write_plan(methods={"identity": None}, **values)))
    return run


def test_another_protocol_is_tested_later_without_training_again(write_plan: Write, data: Path, output: Path) -> None:
    place = Place(output, str(data), "cpu", quiet=True)
    (run,) = expand(read_plan(write_plan(methods={"cross-attention-heads": {"batch": 4, "validate_every": 1}})))
    first = do_run(run, place)
    weights = (output / "runs" / run.name / "model.safetensors").stat().st_mtime_ns
    more = dataclasses.replace(run, tested_under=("paper", "honest"))
    assert RunFolder(more, output).state() == ("waiting", "done, but not tested under honest")
    second = do_run(more, place)
    assert (output / "runs" / run.name / "model.safetensors").stat().st_mtime_ns == weights
    assert second["mtre_mm"]["paper"] == first["mtre_mm"]["paper"]
    assert set(second["results"]) == {"paper", "honest"}
    assert RunFolder(more, output).state().word == "done"


def test_only_some_cases(write_plan: Write, data: Path, output: Path) -> None:
    run = only_identity(write_plan, cases=1)
    do_run(run, Place(output, str(data), quiet=True))
    (path,) = (output / "results" / run.name).glob("*.csv")
    assert len(read_results(path)[0]) == 4


def test_a_run_that_another_process_works_on_is_left_to_it(write_plan: Write, data: Path, output: Path) -> None:
    run = only_identity(write_plan)
    code = (
        "import sys, time\nfrom pathlib import Path\nfrom scopereg.grid.lock import locked\n"
        "with locked(Path(sys.argv[1])): print('held', flush=True); time.sleep(100)"
    )
    folder = RunFolder(run, output)
    other = subprocess.Popen([sys.executable, "-c", code, str(folder.lock)], stdout=subprocess.PIPE, text=True)
    assert other.stdout is not None
    assert other.stdout.readline() == "held\n"
    assert folder.state().word == "running"
    assert str(other.pid) in folder.state().note
    ended = attempt(run, Place(output, str(data), quiet=True, patience_s=0.0))
    assert ended.word == "running"
    other.kill()
    other.wait()
    assert holder(folder.lock) is None  # a killed process keeps nobody out
    assert attempt(run, Place(output, str(data), quiet=True)).word == "done"
    with locked(folder.lock) as held:
        assert held


def test_an_unexpected_error_is_kept_with_its_place(write_plan: Write, tmp_path: Path, output: Path) -> None:
    run = only_identity(write_plan)
    ended = attempt(run, Place(output, str(tmp_path / "nothing"), quiet=True))
    assert ended.word == "failed"
    kept = (output / "runs" / run.name / "error.txt").read_text()
    assert kept.startswith(ended.note)
    assert "Traceback" in kept
    assert RunFolder(run, output).state().word == "failed"


@pytest.mark.parametrize(("device", "wanted"), [("cuda", 4), ("cpu", 9)])
def test_beside_a_gpu_a_run_takes_few_threads_and_gives_them_back(
    device: str, wanted: int, write_plan: Write, output: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []

    def look(run: Run, place: Place) -> dict[str, Any]:
        seen.append(torch.get_num_threads())
        return {"mtre_mm": {}, "minutes": 0.0}

    monkeypatch.setattr(work, "resolve_device", lambda name: torch.device(name))
    monkeypatch.setattr(work, "do_run", look)
    before = torch.get_num_threads()
    torch.set_num_threads(9)
    try:
        attempt(only_identity(write_plan), Place(output, device=device, quiet=True))
        assert (seen, torch.get_num_threads()) == ([wanted], 9)
    finally:
        torch.set_num_threads(before)


def test_a_damaged_marker_is_told(write_plan: Write, output: Path) -> None:
    folder = RunFolder(only_identity(write_plan), output)
    folder.begin()
    folder.marker.write_text("{")
    with pytest.raises(ScopeRegError, match="cannot be read"):
        folder.found()
    folder.marker.write_text("{}")
    with pytest.raises(ScopeRegError, match="the format is None"):
        folder.found()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
def test_speed_and_memory_are_measured_on_a_gpu(tmp_path: Path) -> None:
    path = save_network(create("scope-reg"), tmp_path / "model.safetensors", name="scope-reg")
    found = facts_of(path, (32, 128, 128), torch.device("cuda"))
    assert found["parameters"] == 6_494_901
    assert found["fps"] > 10
    assert 6.49 * 4 < found["memory_mib"] < 1000
    again = facts_of(path, (32, 128, 128), torch.device("cuda"))
    assert again["memory_mib"] == pytest.approx(found["memory_mib"], rel=0.02)  # whoever came before


# data


def test_the_resolution_chooses_the_set_and_is_checked(write_plan: Write, data: Path, output: Path) -> None:
    small, large = expand(read_plan(write_plan(methods=["identity"], resolutions=[24, 32])))
    pattern = str(data.parent / "tiny-{size}")
    assert load_volumes(small, pattern, output, "cpu").shape == (16, 24, 24)
    assert data_path(large, pattern) == data.parent / "tiny-32"
    assert load_volumes(large, pattern, output, "cpu").shape == (16, 32, 32)
    with pytest.raises(ScopeRegError, match="24 pixels along a side, the plan asks for 32"):
        load_volumes(large, str(data), output, "cpu")
    with pytest.raises(ScopeRegError, match="names no resolutions"):
        data_path(only_identity(write_plan), pattern)


def test_data_are_read_once_in_a_process(write_plan: Write, data: Path, output: Path) -> None:
    one, two = expand(read_plan(write_plan(methods=["identity"], folds=[0, 1])))
    assert load_volumes(one, str(data), output, "cpu") is load_volumes(two, str(data), output, "cpu")


def test_phantoms_are_made_once_and_kept(write_plan: Write, output: Path) -> None:
    (run,) = expand(read_plan(write_plan(dataset="echo", methods=["identity"], count=2, frames=4, resolutions=[24])))
    volumes = load_volumes(run, None, output, "cpu")
    assert volumes.shape == (32, 24, 24)
    assert volumes.facts["magnitude"] == 3.0
    assert open_set(output / "data" / "echo-pm3-24").sha256() == volumes.sha256()


def test_a_set_of_another_dataset_is_refused(write_plan: Write, tmp_path: Path, output: Path) -> None:
    phantoms = load_dataset("echo", count=2, frames=0, shape=(8, 24, 24))
    save_set(phantoms, tmp_path / "echo")
    with pytest.raises(ScopeRegError, match="is of echo, not of camus"):
        load_volumes(only_identity(write_plan, dataset="camus"), str(tmp_path / "echo"), output, "cpu")


# killed


def test_a_killed_grid_goes_on_where_it_was(
    write_plan: Write, data: Path, output: Path, wait_for: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    arm = {"batch": 4, "frames_per_volume": 2, "validate_every": 2}
    plan = write_plan(methods={"identity": None, "cross-attention-heads": arm}, epochs=8)  # 14 steps
    command = [sys.executable, "-m", "scopereg", "grid", str(plan), "--data", str(data), "-o", str(output)]
    driver = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    folder = output / "runs" / "cross-attention-heads-paper-fold0-pm3"
    wait_for((folder / "last.ckpt").exists)
    driver.kill()
    assert driver.wait() == -signal.SIGKILL
    assert not (folder / "done.json").exists()
    before = rows_of(folder / "log" / "metrics.csv")
    identity = written(output / "runs" / "identity-fold0-pm3")
    assert 0 < len(before) < 7

    assert grid(plan, output, "--list") == 0
    assert capsys.readouterr().out.splitlines()[1].startswith("interrupted")
    assert grid(plan, output, "--data", data) == 0
    after = rows_of(folder / "log" / "metrics.csv")
    # The first validation was not made again: it took the time that it took then.
    assert after[0] == before[0]
    assert [int(row["step"]) for row in after] == list(range(2, 15, 2))
    marker = json.loads((folder / "done.json").read_text())
    assert (marker["attempts"], marker["training"]["steps"]) == (2, 14)
    assert written(output / "runs" / "identity-fold0-pm3") == identity
    assert "2 runs, 1 of them done before" in capsys.readouterr().err


def test_ctrl_c_ends_a_grid_in_good_order(
    write_plan: Write, data: Path, output: Path, wait_for: Callable[..., Any]
) -> None:
    arm = {"batch": 4, "validate_every": 2}
    plan = write_plan(methods={"cross-attention-heads": arm, "identity": None}, epochs=200)
    command = [sys.executable, "-m", "scopereg", "grid", str(plan), "--data", str(data), "-o", str(output)]
    driver = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    wait_for((output / "runs" / "cross-attention-heads-paper-fold0-pm3" / "last.ckpt").exists)
    driver.send_signal(signal.SIGINT)
    said = driver.communicate(timeout=SECONDS)[1]
    assert driver.returncode == 130
    assert "run the same command again" in said
    assert "Traceback" not in said
    assert not (output / "results").exists()  # the next run did not begin


# the command


def test_a_part_of_a_plan(write_plan: Write) -> None:
    runs = expand(read_plan(write_plan(folds=[0, 1])))
    assert [run.name for run in chosen(runs, ["ident"])] == ["identity-fold0-pm3", "identity-fold1-pm3"]
    assert [run.name for run in chosen(runs, ["scope*fold1*", "identity-fold0-pm3"])] == [
        "identity-fold0-pm3",
        "scope-reg-paper-fold1-pm3",
    ]
    with pytest.raises(ScopeRegError, match="did you mean 'identity-fold0-pm3'"):
        chosen(runs, ["identty-fold0-pm3"])


def test_nothing_to_collect_is_an_error(write_plan: Write, output: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert grid(write_plan(), output, "--collect") == 2
    assert "no run is done yet" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"), [([], "dataset folder: no data are given"), (["--data", "nowhere"], "there is no such folder")]
)
def test_missing_data_are_told_once_before_the_first_run(
    write_plan: Write, output: Path, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    assert grid(write_plan(), output, *words) == 2
    assert said in capsys.readouterr().err
    assert not (output / "runs").exists()


def test_a_bare_machine_has_the_same_options() -> None:
    words = ["plan.yaml", "--data", "d", "-o", "o", "--only", "a", "b", "--set", "minutes=3", "--ray", "here:1"]
    for given in ([], words, ["x", "--ray", "--list", "--gpus", "0.5", "--cpus", "2", "--retries", "1"]):
        ours, theirs = parse("grid", given), vars(bare.parser().parse_args(given))
        assert theirs.keys() == {entry.name for entry in dataclasses.fields(GridOptions)}
        for name, value in vars(ours).items():
            same = tuple(theirs[name]) if isinstance(theirs[name], list) else theirs[name]
            assert same == value, name


def test_a_grid_runs_where_little_is_installed(write_plan: Write, data: Path, output: Path) -> None:
    """Lightning itself loads yaml, so it comes first. Tables are then made elsewhere."""
    plan = write_plan(methods={"identity": None, "cross-attention-heads": {"batch": 4, "validate_every": 2}})
    absent = ("SimpleITK", "tyro", "ray", "rich", "scipy", "pydicom", "matplotlib", "pandas", "fvcore", "skimage")
    code = (
        f"import sys, pytorch_lightning\nsys.modules.update(dict.fromkeys({absent!r}))\n"
        "from scopereg.grid.__main__ import main\nsys.exit(main(sys.argv[1:]))"
    )
    command = [sys.executable, "-c", code, str(plan), "--data", str(data), "-o", str(output)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert ended.returncode == 0, ended.stderr
    assert "no tables: tyro, rich, scipy is not installed here" in ended.stderr
    assert grid(plan, output, "--collect") == 0
    rows = rows_of(output / "tables" / "main.csv")
    assert {row["method"] for row in rows} == {"identity", "cross-attention-heads"}
