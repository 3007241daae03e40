"""The scans on the CPU, fast and without gradients: numba kernels spread over PyTorch's number of threads.

Threads are plain Python ones around kernels that release the GIL. Numba's own parallel loops were not used: their
thread pools abort the process when two threads scan at once, or after a fork. The small preparations are NumPy's:
PyTorch would share them out, and its threads then spin for a while on the cores that the kernels need.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from functools import lru_cache, partial
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from scopereg.errors import ScopeRegError
from scopereg.ops.scan import cpu_kernels as kernels
from scopereg.ops.scan.cpu_kernels import Floats, Indices

_LOG2E = np.float32(1.0 / math.log(2.0))
# Planes that share one computation of the decays: more would not fit the registers.
_GROUP = 8


def directional(u: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor, D: Tensor | None, order: Tensor) -> Tensor:
    batch, planes, _, channels = u.shape
    lanes = kernels.LANES
    spare = -channels % lanes
    blocks = (channels + spare) // lanes
    values, step = (_widen(x, -1, spare) for x in (u, delta))
    with np.errstate(over="ignore"):  # a rate beyond float32 decays to zero at once, as minus infinity does
        rate = _widen(A, 1, spare).reshape(-1, blocks, lanes, A.shape[2]) * _LOG2E
    rate = np.ascontiguousarray(rate.swapaxes(2, 3))  # (directions, blocks, states, lanes)
    skip = np.zeros(channels + spare, np.float32) if D is None else _widen(D, -1, spare).sum(0)
    fixed = (rate, _array(B), _array(C), skip, _steps(order))
    y = torch.empty(values.shape, dtype=torch.float32)  # by PyTorch, not NumPy: aligned to cache lines
    for plane in range(0, planes, _GROUP):
        group = (0,) * min(_GROUP, planes - plane)  # its length is part of its type: one kernel is compiled for each
        _share(batch * blocks, partial(_features, group, plane, (values, step, *fixed, y.numpy())))
    return y[..., :channels].contiguous()


def _features(group: tuple[int, ...], plane: int, arrays: tuple[NDArray[Any], ...], first: int, last: int) -> None:
    kernels.feature_tasks(first, last, group, plane, *arrays)


def coordinate(values: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor, order: Tensor) -> Tensor:
    batch, planes, length = delta.shape[0], values.shape[0], values.shape[1]
    z = torch.zeros(batch, planes, length, values.shape[2], dtype=torch.float32)
    arrays = (_array(values.transpose(1, 2)), _array(delta), _array(A) * _LOG2E, _array(B), _array(C), _steps(order))
    _share(batch * planes, lambda a, b: kernels.coordinate_tasks(a, b, *arrays, z.numpy()))
    return z


def states(values: Tensor, delta: Tensor, A: Tensor, B: Tensor, order: Tensor) -> Tensor:
    batch, directions, planes, length = delta.shape
    table = torch.empty(batch, directions, planes, length, A.shape[1], values.shape[2], dtype=torch.float32)
    arrays = (_array(values), _array(delta), _array(A) * _LOG2E, _array(B), _steps(order))
    _share(batch * directions * planes, lambda a, b: kernels.state_tasks(a, b, *arrays, table.numpy()))
    return table


def _widen(x: Tensor, axis: int, spare: int) -> Floats:
    """The array with `spare` zeros behind `axis`."""
    array = _array(x)
    if not spare:
        return array
    width = [(0, 0)] * array.ndim
    width[axis] = (0, spare)
    return np.pad(array, width)


def _array(x: Tensor) -> Floats:
    return x.detach().float().contiguous().numpy()


def _steps(order: Tensor) -> Indices:
    """The visiting order, refused when it leaves the tokens: the kernels write where it points."""
    low, high = order.aminmax()
    if low < 0 or high >= order.shape[1]:
        raise ScopeRegError(
            f"points to tokens {int(low)} to {int(high)} of {order.shape[1]}",
            where="order",
            fix="make every row a permutation of 0 .. length - 1",
        )
    return order.contiguous().numpy()


def _share(tasks: int, run: Callable[[int, int], None]) -> None:
    """Run `run(first, last)` over all tasks in pieces that this thread and its helpers take as they come free."""
    threads = min(torch.get_num_threads(), tasks)
    # A few pieces per thread even out what else the cores are doing.
    bounds = np.linspace(0, tasks, min(tasks, 4 * threads) + 1).astype(int).tolist()
    pieces = iter(list(pairwise(bounds)))

    def work() -> None:
        for first, last in pieces:  # a list iterator hands each piece out once, whichever thread asks
            run(first, last)

    helpers = [_pool(os.getpid()).submit(work) for _ in range(threads - 1)]
    try:
        work()
    finally:
        wait(helpers)
    for helper in helpers:
        helper.result()


@lru_cache(maxsize=1)
def _pool(process: int) -> ThreadPoolExecutor:
    """Helpers of this process: a forked child has none of its parent's threads and makes its own."""
    return ThreadPoolExecutor(max_workers=max(1, (os.cpu_count() or 1) - 1), thread_name_prefix="scopereg-scan")
