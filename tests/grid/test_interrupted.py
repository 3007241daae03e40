"""A grid that is killed goes on where it was, and Ctrl-C ends one in good order."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from small_grids import SECONDS, Write, grid, rows_of, written


@pytest.mark.slow
def test_a_killed_grid_goes_on_where_it_was(
    write_plan: Write, data: Path, output: Path, wait_for: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    variant = {"batch": 4, "frames_per_volume": 2, "validate_every": 2}
    plan = write_plan(methods={"identity": None, "cross-attention-heads": variant}, epochs=8)  # 14 steps
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


@pytest.mark.slow
def test_ctrl_c_ends_a_grid_in_good_order(
    write_plan: Write, data: Path, output: Path, wait_for: Callable[..., Any]
) -> None:
    variant = {"batch": 4, "validate_every": 2}
    plan = write_plan(methods={"cross-attention-heads": variant, "identity": None}, epochs=200)
    command = [sys.executable, "-m", "scopereg", "grid", str(plan), "--data", str(data), "-o", str(output)]
    driver = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    wait_for((output / "runs" / "cross-attention-heads-paper-fold0-pm3" / "last.ckpt").exists)
    driver.send_signal(signal.SIGINT)
    said = driver.communicate(timeout=SECONDS)[1]
    assert driver.returncode == 130
    assert "run the same command again" in said
    assert "Traceback" not in said
    assert not (output / "results").exists()  # the next run did not begin
