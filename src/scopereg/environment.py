"""Environment: variables that are other ones for a while."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager


@contextmanager
def changed_environment(changes: Mapping[str, str | None]) -> Iterator[None]:
    """While this lasts, variables have these values, or are not there (None); afterwards they are as before."""
    before = {name: os.environ.get(name) for name in changes}
    _set(changes)
    try:
        yield
    finally:
        _set(before)


def _set(values: Mapping[str, str | None]) -> None:
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def let_threads_sleep() -> None:
    """Have threads of OpenMP sleep while they wait, if PyTorch has not loaded it yet: for the start of a program.

    Spinning, the usual, keeps a core from those who are waited for as soon as there are more at work than cores.
    `scopereg.threads` does it where PyTorch is loaded already.
    """
    if "torch" not in sys.modules and "GOMP_SPINCOUNT" not in os.environ:
        os.environ.setdefault("OMP_WAIT_POLICY", "passive")
