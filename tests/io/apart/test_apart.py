"""The child process: quick for good files, and whatever a reader does in it, here arrives an error and nothing else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from scopereg.errors import ScopeRegError
from scopereg.io import apart
from scopereg.io.apart import Allowance, Answer, end_children, read_apart

SMALL = Allowance(memory=2**26, answer=2**16, seconds=5.0)
LINUX = pytest.mark.skipif(sys.platform != "linux", reason="what only Linux can limit")


@pytest.fixture(autouse=True)
def _readers(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The child finds what its parent finds."""
    end_children()
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    yield
    end_children()


def ask(reader: str, content: bytes = b"12", allowance: Allowance = SMALL, **options: Any) -> Answer:
    return read_apart(f"hostile:{reader}", content, "a.file", allowance, ending=".x", options=options)


def test_arrays_and_facts_come_back_and_the_child_stays() -> None:
    first, again = ask("echo", b"hello", word="ä"), ask("echo", b"")
    assert first.arrays[0].tobytes() == b"hello"
    assert again.arrays[0].size == 0
    assert first.arrays[1].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert first.facts["word"] == "ä"
    assert first.facts["id"] == again.facts["id"] != os.getpid()


def test_a_fresh_child_sees_one_file() -> None:
    usual = ask("echo").facts["id"]
    fresh = [read_apart("hostile:echo", b"", "a", SMALL, fresh=True).facts["id"] for _ in range(2)]
    assert len({usual, *fresh}) == 3
    assert ask("echo").facts["id"] == usual


def test_the_word_of_a_reader_is_passed_on_and_the_child_stays() -> None:
    before = ask("echo").facts["id"]
    with pytest.raises(ScopeRegError, match=r"^a\.file: it is not what it \[31m seems\n.* leave it"):
        ask("refuse")
    with pytest.raises(ScopeRegError, match=r"a\.file: it cannot be read: .*indices"):
        ask("stumble")
    assert ask("echo").facts["id"] == before


@pytest.mark.parametrize(("reader", "words"), [("crash", f"signal {int(signal.SIGSEGV)}"), ("leave", "status 3")])
def test_a_crash_is_an_error_and_the_next_file_is_read(reader: str, words: str) -> None:
    before = ask("echo").facts["id"]
    with pytest.raises(ScopeRegError, match=words) as caught:
        ask(reader)
    assert caught.value.where == "a.file"
    assert ask("echo").facts["id"] != before


@pytest.mark.parametrize("reader", ["loop", "sleep"])
def test_what_takes_too_long_is_ended(reader: str) -> None:
    ask("echo")
    started = time.monotonic()
    with pytest.raises(ScopeRegError, match="more than 1 s"):
        ask(reader, allowance=SMALL._replace(seconds=1.0))
    assert time.monotonic() - started < 8


@LINUX
def test_memory_is_limited() -> None:
    for step in (2**20, 2**40):  # little by little, and at once
        with pytest.raises(ScopeRegError, match="memory"):
            ask("fill", step=step)
    assert ask("much", count=2**16).arrays[0].size == 2**16  # for the next file there is as much again


@pytest.mark.parametrize("words", ["noise", "long", "deep", "shape", "vast", "object", "short", "facts"])
def test_answers_that_are_none_are_refused(words: str) -> None:
    with pytest.raises(ScopeRegError, match=r"answer that is none|ended with status 0"):
        ask("babble", words=words)
    assert ask("echo").arrays


def test_more_than_was_asked_for_is_refused() -> None:
    with pytest.raises(ScopeRegError, match="more than 65536 bytes"):
        ask("much", count=2**16 + 1)


@LINUX
def test_the_child_reaches_nothing_but_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = tmp_path / "secret"
    secret.write_text("mine")
    monkeypatch.setenv("SCOPEREG_SECRET", "mine")
    done = ask("reach", secret=str(secret)).facts
    held = apart._idle[-1].holds
    assert "limits" in held
    reached = {name for name, did in done.items() if did}
    allowed = set() if "files" in held else {"read", "list", "remove"}
    allowed |= set() if "calls" in held else {"socket", "program", "kill"}
    assert reached <= allowed
    assert secret.read_text() == "mine"


def test_the_child_ends_with_its_parent_and_leaves_nothing(tmp_path: Path) -> None:
    """Killed, the parent cannot clean up: the child does, idle or busy."""
    code = (
        "import sys; from scopereg.io import apart\n"
        "print(apart.read_apart('hostile:echo', b'', 'a', apart.Allowance(2**26, 2**16)).facts['id'], flush=True)\n"
        "print(apart._idle[0]._folder, flush=True)\n"
        "apart.read_apart('hostile:loop', b'', 'a', apart.Allowance(2**26, 2**16, 1.0)) if sys.argv[1:] else input()"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)}
    for busy in ([], ["busy"]):
        parent = subprocess.Popen(
            [sys.executable, "-c", code, *busy],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            text=True,
        )
        assert parent.stdout is not None
        child, folder = int(parent.stdout.readline()), Path(parent.stdout.readline().strip())
        assert folder.exists() or busy
        parent.send_signal(signal.SIGKILL)
        parent.communicate()
        assert wait_until(lambda child=child: not _lives(child))
        assert busy or wait_until(lambda folder=folder: not folder.exists())


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except OSError:
        return False
    try:
        return Path(f"/proc/{process}/stat").read_text().split()[2] != "Z"
    except OSError:
        return False


def wait_until(condition: Any, seconds: float = 20.0) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.05)
    return False


def test_threads_read_beside_each_other() -> None:
    found: list[bytes] = []

    def read(number: int) -> None:
        for turn in range(5):
            content = bytes([number, turn]) * 1000
            found.append(content if ask("echo", content).arrays[0].tobytes() == content else b"")

    threads = [threading.Thread(target=read, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == len(set(found)) == 20
    assert b"" not in found
    assert len(apart._idle) <= apart.MOST_IDLE


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_fork_has_children_of_its_own() -> None:
    before = ask("echo").facts["id"]
    reading, writing = os.pipe()
    fork = os.fork()
    if fork == 0:
        try:
            os.write(writing, str(ask("echo").facts["id"]).encode())
            end_children()
        finally:
            os._exit(0)
    os.waitpid(fork, 0)
    assert int(os.read(reading, 20)) != before
    assert ask("echo").facts["id"] == before
    os.close(reading)
    os.close(writing)


def test_neither_the_child_nor_its_module_loads_torch() -> None:
    names = ", ".join(f"scopereg.io.apart.{name}" for name in ("child", "itk", "pictures"))
    code = f"import sys, {names}; print('torch' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "False"


def test_small_integers_of_both_orders_arrive() -> None:
    assert ask("echo").arrays[1].dtype == np.dtype("<i2")


@pytest.mark.skipif(os.name != "posix", reason="the number of a process cannot be asked for")
def test_folders_of_killed_processes_are_swept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apart.tempfile, "tempdir", str(tmp_path))
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    for number, age_s in ((gone.pid, 7200), (gone.pid, 10), (os.getpid(), 7200)):
        folder = tmp_path / f"scopereg-apart-{number}-{age_s}"
        folder.mkdir()
        (folder / "file.dcm").write_bytes(b"someone's pixels")
        os.utime(folder, (time.time() - age_s,) * 2)
    ask("echo")
    left = {folder.name for folder in tmp_path.iterdir() if (folder / "file.dcm").exists()}
    assert left == {f"scopereg-apart-{gone.pid}-10", f"scopereg-apart-{os.getpid()}-7200"}
