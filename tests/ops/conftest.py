"""Kernels run by Triton's interpreter, in a process of its own: where there is no GPU."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

import pytest

# Triton 3.6's interpreter turns one-element arrays into integers in a way that NumPy 2.4 refuses.
_PATCH = """
from triton.runtime import interpreter

plain_set = interpreter._LangPatchScope.set_attr


def set_attr(scope, target, name, value):
    patched = (lambda tensor: int(tensor.handle.data.item())) if name == "__index__" else value
    plain_set(scope, target, name, patched)


interpreter._LangPatchScope.set_attr = set_attr

# Triton 3.9's refuses masks that it has computed as integers.
for name in ("create_masked_load", "create_masked_store"):
    def checked(builder, *arguments, plain=getattr(interpreter.InterpreterBuilder, name), at=1 + ("store" in name)):
        arguments[at].data = arguments[at].data.astype(bool)
        return plain(builder, *arguments)
    setattr(interpreter.InterpreterBuilder, name, checked)
"""


@pytest.fixture
def run_interpreted() -> Callable[[str], None]:
    """Runs a program; what it asserts is asserted here."""
    return _run


def _run(program: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", f"{_PATCH}\n{program}"],
        env=os.environ | {"TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
