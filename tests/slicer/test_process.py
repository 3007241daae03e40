"""scopereg in a process of its own: the real one, programs that are none, an old one, one that is cancelled."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest
from ScopeRegLiveLib.process import CANCELLED, GRACE_S, Outcome, Process, program_of

import scopereg

REAL = Path(sys.executable).with_name("scopereg")
ENVIRONMENT = dict(os.environ)
needs_posix = pytest.mark.skipif(os.name == "nt", reason="programs of these tests are scripts of a shell")


def ended(process: Process, timeout_s: float = 120.0) -> Outcome:
    deadline_s = time.monotonic() + timeout_s
    while (outcome := process.look()) is None:
        assert time.monotonic() < deadline_s, process.said()
        time.sleep(0.02)
    return outcome


def script(folder: Path, lines: str) -> str:
    path = folder / "program with a space"
    path.write_text(f"#!/bin/sh\n{lines}\n")
    path.chmod(0o755)
    return str(path)


def test_the_real_program_tells_facts(tmp_path: Path) -> None:
    assert program_of(str(REAL), ENVIRONMENT) == str(REAL)
    outcome = ended(Process(str(REAL), ["version"], tmp_path, ENVIRONMENT))
    assert outcome.failure == ""
    assert outcome.facts["verb"] == "version"
    assert scopereg.__version__ in str(outcome.facts)


def test_its_own_error_is_shown(tmp_path: Path) -> None:
    outcome = ended(Process(str(REAL), ["convert", "missing.dcm", "-o", "out.igs.mha"], tmp_path, ENVIRONMENT))
    assert outcome.facts == {}
    assert "missing.dcm" in outcome.failure
    assert "there is no such file" in outcome.failure


def test_without_a_program_the_message_says_how_to_get_one(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="There is no program /nowhere/scopereg: install it"):
        program_of("/nowhere/scopereg", ENVIRONMENT)
    with pytest.raises(ValueError, match="scopereg is not found on this machine: install it"):
        program_of(" ", {"PATH": str(tmp_path)})


@needs_posix
def test_it_is_found_where_the_system_looks(tmp_path: Path) -> None:
    (tmp_path / "scopereg").symlink_to(script(tmp_path, "true"))
    assert program_of("", {"PATH": str(tmp_path)}) == str(tmp_path / "scopereg")


@needs_posix
@pytest.mark.parametrize(
    ("lines", "failure"),
    [
        ("echo hello", "is not scopereg: it does not tell its version"),
        ('rm "$0"; echo scopereg 1.0', "cannot be started: No such file"),
        ("echo scopereg 0.1.0", "This is scopereg 0.1.0, and 0.2 is needed"),
        ('test "$1" = --version && echo scopereg 1.0 || { echo no room >&2; exit 7; }', "status 7.\nno room"),
        ('test "$1" = --version && echo scopereg 1.0 || echo "no JSON"', "ended with status 0"),
        ('test "$1" = --version && echo scopereg 1.0 || kill -9 $$', "ended with status -9"),
    ],
)
def test_what_went_wrong_is_told(tmp_path: Path, lines: str, failure: str) -> None:
    outcome = ended(Process(script(tmp_path, lines), ["compound"], tmp_path, ENVIRONMENT))
    assert failure in outcome.failure


def test_a_file_that_cannot_be_run_is_told(tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(b"\x00\x01")
    (tmp_path / "data").chmod(0o755)
    with pytest.raises(ValueError, match="cannot be started"):
        Process(str(tmp_path / "data"), [], tmp_path, ENVIRONMENT)


@needs_posix
def test_words_reach_it_as_they_are(tmp_path: Path) -> None:
    lines = 'test "$1" = --version && echo scopereg 1.0 || printf \'{"words": "%s|%s|%s"}\' "$@"'
    outcome = ended(Process(script(tmp_path, lines), ["a b", "$(touch bad); *"], tmp_path, ENVIRONMENT))
    assert outcome.facts == {"words": "a b|$(touch bad); *|--json"}


@needs_posix
def test_it_says_how_it_stands_and_can_be_cancelled(tmp_path: Path) -> None:
    lines = 'test "$1" = --version && { echo scopereg 1.0; exit; }; echo "compounding: 3 of 20" >&2; exec sleep 60'
    process = Process(script(tmp_path, lines), ["compound"], tmp_path, ENVIRONMENT)
    deadline_s = time.monotonic() + 20
    while "3 of 20" not in process.said():
        assert process.look() is None
        assert time.monotonic() < deadline_s
        time.sleep(0.02)
    assert process.said().startswith("0 s, ") or process.said()[0].isdigit()
    process.cancel()
    assert process.said() == "being cancelled"
    begin_s = time.monotonic()
    assert ended(process) == Outcome({}, CANCELLED)
    assert time.monotonic() - begin_s < GRACE_S


@needs_posix
def test_one_that_does_not_end_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ScopeRegLiveLib.process.GRACE_S", 0.2)
    process = Process(script(tmp_path, "trap '' TERM; while true; do sleep 0.1; done"), [], tmp_path, ENVIRONMENT)
    time.sleep(0.3)  # until it has heard of TERM
    process.cancel()
    assert ended(process, 20) == Outcome({}, CANCELLED)
    other = Process(script(tmp_path, "trap '' TERM; while true; do sleep 0.1; done"), [], tmp_path, ENVIRONMENT)
    time.sleep(0.3)
    other.close()
    assert other.look() == Outcome({}, CANCELLED)
