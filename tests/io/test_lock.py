"""One at a time: a lock that names who holds it, and that a killed process gives back."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from scopereg.errors import ScopeRegError
from scopereg.io.lock import alone, holder, locked

_HOLD = "import sys, time, pathlib\nfrom scopereg.io.lock import alone\n"
_HOLD += "with alone(pathlib.Path(sys.argv[1]), 'work'):\n    print('held', flush=True)\n    time.sleep(600)"


def test_who_holds_a_lock_is_named_and_a_kill_gives_it_back(tmp_path: Path) -> None:
    path = tmp_path / "folder" / ".lock"
    other = subprocess.Popen([sys.executable, "-c", _HOLD, str(path)], stdout=subprocess.PIPE, text=True)
    assert other.stdout is not None
    assert other.stdout.readline() == "held\n"
    assert (holder(path) or {})["pid"] == other.pid
    with pytest.raises(ScopeRegError, match=f"another work is at work in this folder: process {other.pid} on"):
        alone(path, "work").__enter__()
    other.send_signal(signal.SIGKILL)
    other.wait()
    other.stdout.close()
    assert path.exists()  # what the killed one left keeps nobody out
    with alone(path, "work"):
        assert (holder(path) or {})["pid"] == os.getpid()
    assert not path.exists()


def test_of_many_threads_one_works_at_a_time_and_nothing_stays(tmp_path: Path) -> None:
    path, at_work, most, done = tmp_path / ".lock", [0], [0], [0]

    def work() -> None:
        for _ in range(200):
            try:
                with alone(path, "work"):
                    at_work[0] += 1
                    most[0] = max(most[0], at_work[0])
                    done[0] += 1
                    at_work[0] -= 1
            except ScopeRegError:
                pass

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1]
    assert done[0] >= 200
    assert not list(tmp_path.iterdir())


def test_an_error_gives_the_lock_back(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="x"), alone(tmp_path / ".lock", "work"):
        raise ValueError("x")
    with alone(tmp_path / ".lock", "work"), locked(tmp_path / "other") as held:
        assert held


@pytest.mark.parametrize("content", ["", "{", "[1]", "[" * 100_000])
def test_a_lock_that_is_badly_signed_is_held_all_the_same(tmp_path: Path, content: str) -> None:
    path = tmp_path / ".lock"
    with alone(path, "work"):
        path.write_text(content)
        assert holder(path) == {}
        with pytest.raises(ScopeRegError, match=r"process \? on \?"), alone(path, "work"):
            pass
