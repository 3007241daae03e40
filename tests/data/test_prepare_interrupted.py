"""Interrupted preparations: what was done is kept, and what was made otherwise is never mixed in."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from camus_trees import FRAMES, SIZE, content, interrupt, plan, write_case, write_tree

from scopereg.data import builder
from scopereg.data.builder import build_set
from scopereg.data.journal import Journal, finished_cases
from scopereg.data.store import open_set
from scopereg.errors import ScopeRegError


def children_of(pid: int) -> list[int]:
    listed = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(word) for word in listed.read_text().split()] if listed.exists() else []


def is_alive(pid: int) -> bool:
    status = Path(f"/proc/{pid}/stat")
    return status.exists() and status.read_text().rpartition(")")[2].split()[0] != "Z"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_what_was_done_before_a_kill_is_kept(tree: Path, whole: Path, tmp_path: Path) -> None:
    """The Info file of one case is a pipe that nobody writes to: its worker waits, and everything is killed there."""
    info = tree / "patient0003" / "Info_4CH.cfg"
    text = info.read_text()
    info.unlink()
    os.mkfifo(info)
    words = ["data", "prepare", "camus", str(tree), "-o", str(tmp_path / "set"), "--workers", "2"]
    words += ["--size", str(SIZE), "--frames", str(FRAMES)]
    try:
        process = subprocess.Popen([sys.executable, "-m", "scopereg", *words], stderr=subprocess.DEVNULL)
        until = time.monotonic() + 60
        while not (tmp_path / "set/journal.part").exists() or finished_cases(tmp_path / "set") != (5, 6):
            assert process.poll() is None
            assert time.monotonic() < until
            time.sleep(0.02)
        workers = children_of(process.pid)
        process.send_signal(signal.SIGKILL)
        process.wait()
    finally:
        info.unlink()
        info.write_text(text)
    with pytest.raises(ScopeRegError, match="no set here"):
        open_set(tmp_path / "set")
    until = time.monotonic() + 20
    while any(map(is_alive, workers)):
        assert time.monotonic() < until, "workers outlive the process that started them"
        time.sleep(0.02)
    steps: list[tuple[int, int]] = []
    build_set(plan(tree), tmp_path / "set", progress=lambda *at: steps.append(at))
    assert steps == [(6, 6)]
    assert content(tmp_path / "set") == content(whole)


def test_an_interruption_at_the_very_end_is_mended(
    tree: Path, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed when the arrays had their final names, and killed when only the journal was left."""

    def killed(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    for owner, name in ((builder, "write_manifest"), (Journal, "remove")):
        folder = tmp_path / name
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, killed)
            with pytest.raises(KeyboardInterrupt):
                build_set(plan(tree), folder)
        assert (folder / "images.npy").exists()
        build_set(plan(tree), folder)
        assert content(folder) == content(whole)


def test_several_processes_stop_together(tree: Path, whole: Path, tmp_path: Path) -> None:
    folder = interrupt(tree, tmp_path, 2, workers=2)
    assert finished_cases(folder) == (2, 6)
    build_set(plan(tree), folder)
    assert content(folder) == content(whole)


def test_damaged_rows_and_lines_are_made_again(tree: Path, whole: Path, tmp_path: Path) -> None:
    folder = interrupt(tree, tmp_path, 4)
    part = folder / "images.npy.part"
    damaged = bytearray(part.read_bytes())
    damaged[200] ^= 1  # in the first row
    part.write_bytes(bytes(damaged))
    journal = folder / "journal.part"
    journal.write_text(journal.read_text()[:-30])  # the fourth case was cut short
    steps: list[int] = []
    build_set(plan(tree), folder, progress=lambda done, _: steps.append(done))
    assert steps == [3, 4, 5, 6]
    assert content(folder) == content(whole)


@pytest.mark.parametrize("finished", [False, True])
def test_other_parameters_are_refused_and_told(tree: Path, whole: Path, tmp_path: Path, finished: bool) -> None:
    folder = whole if finished else interrupt(tree, tmp_path / "part")
    with pytest.raises(ScopeRegError, match=r"size \(16 there, 24 now\)") as caught:
        build_set(plan(tree, size=24), folder)
    assert "fresh=True" in caught.value.fix
    assert "output=" in caught.value.fix
    with pytest.raises(ScopeRegError, match=r"labels \(True there, False now\)"):
        build_set(plan(tree, labels=False), folder)
    if not finished:
        volumes = build_set(plan(tree, size=24, labels=False), folder, fresh=True)
        assert (volumes.shape, volumes.labels) == ((FRAMES, 24, 24), None)
        assert not list(folder.glob("*.part"))
        assert not (folder / "labels.npy").exists()


@pytest.mark.parametrize("finished", [False, True])
def test_other_files_are_refused_and_told(tmp_path: Path, finished: bool) -> None:
    root = write_tree(tmp_path / "tree", 4)
    folder = tmp_path / "set"
    if finished:
        build_set(plan(root), folder)
    else:
        interrupt(root, folder)
    write_case(root, 2)  # other noise
    with pytest.raises(ScopeRegError, match=r"changed since.*patient0002"):
        build_set(plan(root), folder)
    write_case(root, 9)
    with pytest.raises(ScopeRegError, match="patient0009_4CH"):
        build_set(plan(root), folder)
    assert len(build_set(plan(root), folder, fresh=True)) == 5


def test_two_at_once_are_kept_apart(tree: Path, tmp_path: Path) -> None:
    pytest.importorskip("fcntl")
    making = {**builder.parameters(plan(tree)), "cases": [case.name for case in plan(tree).cases]}
    with Journal.open(tmp_path, making), pytest.raises(ScopeRegError, match="another process"):
        build_set(plan(tree), tmp_path)
    assert len(build_set(plan(tree), tmp_path)) == 6
