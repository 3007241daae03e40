"""One run of a grid: tested again later, shared between processes, failed, measured."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from small_grids import Write, only_identity

from scopereg.errors import ScopeRegError
from scopereg.evaluation.results import read_results
from scopereg.grid import work
from scopereg.grid.folder import RunFolder
from scopereg.grid.measure import facts_of
from scopereg.grid.plan import Run, expand
from scopereg.grid.reading import read_plan
from scopereg.grid.work import Place, attempt, do_run
from scopereg.io.lock import holder, locked
from scopereg.networks import create
from scopereg.networks.weights import save_network


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
        "import sys, time\nfrom pathlib import Path\nfrom scopereg.io.lock import locked\n"
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
    other.communicate()
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


def test_a_run_forgets_its_launcher_for_a_while(
    write_plan: Write, output: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lightning must not see the other processes of a job; whoever called the grid goes on in that job."""
    seen: list[str | None] = []

    def look(run: Run, place: Place) -> dict[str, Any]:
        seen.append(os.environ.get("SLURM_NTASKS"))
        raise ScopeRegError("it fails", where="here", fix="do it right")

    monkeypatch.setenv("SLURM_NTASKS", "8")
    monkeypatch.delenv("SLURM_PROCID", raising=False)
    monkeypatch.setattr(work, "do_run", look)
    before = dict(os.environ)
    assert attempt(only_identity(write_plan), Place(output, device="cpu", quiet=True)).word == "failed"
    assert seen == [None]
    assert dict(os.environ) == before


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
    with pytest.raises(ScopeRegError, match="not the JSON it should be"):
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
