"""Limits: how much memory one image from a file may take, judged by its header before any of it is taken.

The limit counts the voxels as they are stored or as float32, whichever is more: an image in use is float32. Reading
takes at most about twice as much for a moment. Who has larger images raises it: with the environment variable
SCOPEREG_MAX_GB, or in Python for a while with `limit_of(gb)`.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

from scopereg.errors import ScopeRegError

MAX_GB = "SCOPEREG_MAX_GB"  # environment variable
USUAL_GB = 4.0  # 1024 x 1024 x 1024 voxels
_IN_USE = 4  # bytes of a voxel in an image that is worked with
_GB = 2**30
_chosen: ContextVar[float | None] = ContextVar("chosen", default=None)


def largest_bytes() -> int:
    """Bytes that the voxels of one image may take."""
    chosen = _chosen.get()
    return int((_from_environment() if chosen is None else chosen) * _GB)


@contextmanager
def limit_of(gb: float) -> Iterator[None]:
    """Another limit, in GB (2**30 bytes), while the block runs; for this thread and for tasks that it starts."""
    token = _chosen.set(_positive(gb, "limit_of(gb)"))
    try:
        yield
    finally:
        _chosen.reset(token)


def check_size(shape: Sequence[int], bytes_each: float, where: str, *, in_use: bool = True) -> int:
    """Bytes of an image as stored (`bytes_each` per voxel, all channels), an error if it is larger than the limit.

    `in_use=False` counts stored bytes alone: for cines, whose frames are made float32 one by one.
    """
    count = math.prod(int(n) for n in shape)
    each = max(bytes_each, _IN_USE) if in_use else bytes_each
    if count * each > largest_bytes():
        raise ScopeRegError(
            f"its {' x '.join(str(n) for n in shape)} values would take {_in_gb(count * each)} GB, "
            f"the limit is {largest_bytes() / _GB:g} GB",
            where=where,
            fix=f"crop or resample it; if it is right and the memory is there, raise the limit: {MAX_GB}="
            f"{math.ceil(count * each / _GB) if count * each < 2**60 else '...'}",
        )
    return math.ceil(count * bytes_each)


def _in_gb(count: float) -> str:
    return f"{count / _GB:.3g}" if count < 2**60 else "more than a billion"


def _from_environment() -> float:
    text = os.environ.get(MAX_GB, "").strip()
    if not text:
        return USUAL_GB
    try:
        return _positive(float(text), MAX_GB)
    except ValueError:
        return _positive(math.nan, MAX_GB, text)


def _positive(gb: float, where: str, text: str = "") -> float:
    if not (math.isfinite(gb) and gb > 0):
        raise ScopeRegError(f"the limit is {text or gb}", where=where, fix="give it in GB, a positive number: 8")
    return float(gb)
