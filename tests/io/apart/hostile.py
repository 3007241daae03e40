"""Readers that do what no reader should, for the child to be seen through."""

from __future__ import annotations

import ctypes
import os
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np

from scopereg.errors import ScopeRegError
from scopereg.io.apart import MARK

Found = tuple[list[Any], dict[str, Any]]


def echo(path: Path, **options: Any) -> Found:
    content = path.read_bytes()
    return [np.frombuffer(content, np.uint8), np.arange(6, dtype=">i2").reshape(2, 3)], {"id": os.getpid(), **options}


def refuse(path: Path) -> Found:
    raise ScopeRegError("it is not\nwhat it\x1b[31m seems", where=str(path), fix="leave it")


def stumble(path: Path) -> Found:
    return [np.zeros(3)["x"]], {}


def crash(path: Path) -> Found:
    ctypes.string_at(0)
    raise AssertionError


def leave(path: Path) -> Found:
    os._exit(3)


def loop(path: Path) -> Found:
    while True:
        pass


def sleep(path: Path) -> Found:
    time.sleep(100)
    raise AssertionError


def fill(path: Path, step: int) -> Found:
    held = []
    while True:
        held.append(np.ones(step, np.uint8))


def much(path: Path, count: int) -> Found:
    return [np.zeros(count, np.uint8)], {}


def babble(path: Path, words: str) -> Found:
    """Write an answer of its own on every pipe that is open."""
    answers = {"noise": b"\x07" * 100_000, "long": MARK + b"\xff\xff\xff\x7f", "deep": MARK + _head(b"[" * 60_000)}
    answers["shape"] = MARK + _head(b'{"arrays": [["<f8", [-1, 4]]]}')
    answers["vast"] = MARK + _head(b'{"arrays": [["<f8", [1099511627775, 1099511627775]]]}')
    answers["object"] = MARK + _head(b'{"arrays": [["|O", [4]]]}')
    answers["short"] = MARK + _head(b'{"arrays": [["|u1", [400]]]}') + b"123"
    answers["facts"] = MARK + _head(b'{"facts": 3}')
    for pipe in range(3, 20):
        try:
            os.write(pipe, answers[words])
        except OSError:
            continue
    os._exit(0)


def _head(text: bytes) -> bytes:
    return len(text).to_bytes(4, "little") + text


def reach(path: Path, secret: str) -> Found:
    """What it can do, by name."""
    done = {}
    attempts = {
        "read": lambda: Path(secret).read_bytes(),
        "list": lambda: os.listdir(Path(secret).parent),
        "write": lambda: Path(secret).with_name("new").write_bytes(b"x" * 10),
        "remove": lambda: os.unlink(secret),
        "own": lambda: path.with_name("more").write_bytes(b"x" * 10),
        "socket": lambda: socket.socket(),
        "program": lambda: subprocess.run(["/bin/true"], check=True),
        "kill": lambda: os.kill(os.getppid(), 0),
        "environment": lambda: os.environ["SCOPEREG_SECRET"],
    }
    for name, attempt in attempts.items():
        try:
            attempt()
            done[name] = True
        except Exception:
            done[name] = False
    return [], done
