"""Branches: two parts of a recorded graph that do not need each other run at the same time."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor

from scopereg.ops.replay import side_stream

One = TypeVar("One")
Other = TypeVar("Other")
_STREAM = 2  # of `side_stream`; the first two belong to recordings and to streaming


def side_by_side(one: Callable[[], One], other: Callable[[], Other], *shared: Tensor) -> tuple[One, Other]:
    """What both give. While a CUDA graph is recorded, `one` is on a stream of its own, its backward pass as well.

    Small kernels leave most of a GPU idle: those of `one` fill it. `shared` are the tensors that `one` reads: their
    memory is not given to others before the recording ends. Elsewhere one is called after the other.
    """
    if not _recording(shared):
        return one(), other()
    here, aside = torch.cuda.current_stream(), side_stream(shared[0].device, _STREAM)
    aside.wait_stream(here)
    for tensor in shared:
        tensor.record_stream(aside)
    with torch.cuda.stream(aside):
        first = one()
    second = other()
    here.wait_stream(aside)
    return first, second


def _recording(shared: tuple[Tensor, ...]) -> bool:
    if torch.compiler.is_compiling():  # compilers find out for themselves what may run at the same time
        return False
    return any(tensor.is_cuda for tensor in shared) and torch.cuda.is_current_stream_capturing()
