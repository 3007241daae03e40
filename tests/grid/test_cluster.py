"""Grids on a real cluster of Ray on this machine: workers and drivers are killed, and everything is done in the end."""

from __future__ import annotations

import csv
import json
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from scopereg.cli import main

ray = pytest.importorskip("ray")

Write = Callable[..., Path]
VARIANT = "cross-attention-heads"  # the quickest to train
RUN = f"{VARIANT}-paper-fold0-pm3"
METHODS: dict[str, Any] = {"identity": None, VARIANT: {"batch": 4, "frames_per_volume": 2, "validate_every": 2}}
STEPS = 14  # of 8 epochs


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Where the cluster is that this process is in, too."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    # Else workers wait for as long as other tests keep all cores busy. Ray asks for this very spelling.
    os.environ["RAY_worker_niceness"] = "0"  # noqa: SIM112
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level=logging.CRITICAL)
    yield ray.get_runtime_context().gcs_address
    ray.shutdown()


def grid(plan: Path, output: Path, *words: Any) -> int:
    return main(["grid", str(plan), "-o", str(output), "--ray", *map(str, words)])


def attempts(folder: Path) -> list[dict[str, Any]]:
    path = folder / "attempts.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def metrics(folder: Path) -> list[dict[str, str]]:
    with (folder / "log" / "metrics.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text() if Path("/proc").exists() else True


class Killer(threading.Thread):
    """Kills the worker of a run when its first checkpoint is written, and keeps what it had logged."""

    def __init__(self, folder: Path, wait_for: Callable[..., Any]) -> None:
        super().__init__(daemon=True)
        self.folder, self.wait_for = folder, wait_for
        self.seen: list[dict[str, str]] = []
        self.start()

    def run(self) -> None:
        self.wait_for((self.folder / "last.ckpt").exists)
        (only,) = attempts(self.folder)
        os.kill(only["pid"], signal.SIGKILL)
        self.seen = metrics(self.folder)


@pytest.mark.slow
def test_a_lost_worker_is_replaced_and_its_training_goes_on(
    write_plan: Write, data: Path, output: Path, address: str, wait_for: Callable[..., Any]
) -> None:
    plan = write_plan(methods=METHODS, epochs=8, protocols=["paper"], test_protocols=["paper", "honest"])
    folder = output / "runs" / RUN
    killer = Killer(folder, wait_for)
    assert grid(plan, output, "--data", data) == 0
    killer.join()
    killed, replaced = attempts(folder)
    assert killed["pid"] != replaced["pid"]
    assert os.getpid() not in (killed["pid"], replaced["pid"])
    assert 0 < len(killer.seen) < STEPS // 2
    after = metrics(folder)
    assert after[0] == killer.seen[0]  # with the seconds that it took then: it was not trained again
    assert [int(row["step"]) for row in after] == list(range(2, STEPS + 1, 2))
    marker = json.loads((folder / "done.json").read_text())
    assert (marker["attempts"], marker["training"]["steps"]) == (2, STEPS)
    assert marker["command"].split()[1:] == sys.argv[1:]  # of the driver, not of the worker
    assert len(attempts(output / "runs" / "identity-fold0-pm3")) == 1
    with (output / "tables" / "main.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["protocol"], row["method"]) for row in rows] == [
        (protocol, method) for protocol in ("honest", "paper") for method in ("identity", VARIANT)
    ]


def test_a_worker_that_is_lost_too_often_stops_no_other_run(
    write_plan: Write,
    data: Path,
    output: Path,
    address: str,
    wait_for: Callable[..., Any],
    capsys: pytest.CaptureFixture[str],
) -> None:
    plan = write_plan(methods=METHODS, epochs=200)
    killer = Killer(output / "runs" / RUN, wait_for)
    assert grid(plan, output, "--data", data, "--retries", 0) == 1
    killer.join()
    said = capsys.readouterr().err
    assert f"failed {RUN}: its worker was lost 1 times" in said
    assert "1 of 2 runs are not done" in said
    assert (output / "runs" / "identity-fold0-pm3" / "done.json").exists()
    assert (output / "tables" / "main.csv").exists()


@pytest.mark.slow
def test_a_killed_driver_leaves_nobody_behind_and_the_next_one_goes_on(
    write_plan: Write, data: Path, output: Path, address: str, wait_for: Callable[..., Any]
) -> None:
    plan = write_plan(methods=METHODS, epochs=8)
    words = ["grid", str(plan), "--data", str(data), "-o", str(output), "--ray", address]
    driver = subprocess.Popen([sys.executable, "-m", "scopereg", *words], stderr=subprocess.DEVNULL)
    folder = output / "runs" / RUN
    wait_for((folder / "last.ckpt").exists)
    driver.kill()
    assert driver.wait() == -signal.SIGKILL
    (first,) = attempts(folder)
    seen = metrics(folder)
    assert grid(plan, output, "--data", data) == 0
    assert not is_alive(first["pid"])
    assert metrics(folder)[0] == seen[0]
    assert [int(row["step"]) for row in metrics(folder)] == list(range(2, STEPS + 1, 2))
    assert len(attempts(folder)) == 2
    assert len(attempts(output / "runs" / "identity-fold0-pm3")) == 1


@pytest.mark.parametrize(("words", "said"), [(["--cpus", "3"], "3 cores"), (["--gpus", "64"], "64 GPUs")])
def test_a_run_that_fits_no_machine_is_refused_instead_of_waiting(
    write_plan: Write,
    data: Path,
    output: Path,
    address: str,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    said: str,
) -> None:
    assert grid(write_plan(), output, "--data", data, *words) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("first", "words", "said"),
    [
        ("", ["127.0.0.1:1"], "no cluster can be reached there"),
        ("sys.modules['ray'] = None", [], "pip install 'scopereg[cluster]'"),
    ],
)
def test_where_there_is_no_cluster_or_no_ray_it_is_said_at_once(
    write_plan: Write, data: Path, output: Path, first: str, words: list[str], said: str
) -> None:
    code = f"import sys\n{first}\nfrom scopereg.cli import main\nsys.exit(main(sys.argv[1:]))"
    given = ["grid", str(write_plan()), "--data", str(data), "-o", str(output), "--ray", *words]
    command = [sys.executable, "-c", code, *given]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 2
    assert said in ended.stderr


LISTENING = """
import os, sys
from pathlib import Path
from scopereg.grid.cluster import _cluster, ray
with _cluster(None):
    @ray.remote
    def told():
        return os.environ.get("RAY_AUTH_MODE"), len(os.environ.get("RAY_AUTH_TOKEN", ""))
    print(*ray.get(told.remote()))
    sockets = {}
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            target, pid = os.readlink(link), int(link.parts[2])
            if target.startswith("socket:") and os.getpgid(pid) == os.getpgid(0):
                sockets[target[8:-1]] = pid
        except OSError:
            pass
    for family in ("tcp", "tcp6"):
        for line in Path("/proc/net", family).read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == "0A" and words[9] in sockets:
                print("listens", words[1].partition(":")[0])
print("left", "RAY_AUTH_TOKEN" in os.environ)
"""
LOOPBACK = {"0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000"}


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="the system does not tell who listens")
def test_a_cluster_of_its_own_listens_on_loopback_and_asks_for_a_token() -> None:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", LISTENING],
        capture_output=True,
        text=True,
        timeout=300,
        env=kept,
        start_new_session=True,
    )
    assert done.returncode == 0, done.stderr
    first, *lines, last = done.stdout.splitlines()
    assert (first, last) == ("token 64", "left False")
    places = {line.split()[1] for line in lines if line.startswith("listens")}
    assert places
    assert places <= LOOPBACK
