"""The scans on the CPU, fast, with a backward pass: numba kernels spread over PyTorch's number of threads.

Threads are plain Python ones around kernels that release the GIL. Numba's own parallel loops were not used: their
thread pools abort the process when two threads scan at once, or after a fork. The small preparations are NumPy's:
PyTorch would share them out, and its threads then spin for a while on the cores that the kernels need.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from functools import lru_cache, partial
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.autograd.function import once_differentiable

from scopereg.errors import ScopeRegError
from scopereg.ops.scan import cpu_backward_kernels, torch_backend
from scopereg.ops.scan import cpu_kernels as kernels
from scopereg.ops.scan.checks import (
    Gates,
    Grid,
    Moments,
    Order,
    PlaneGates,
    PlaneSteps,
    Rates,
    SharedRates,
    Skip,
    States,
    Steps,
    Values,
)
from scopereg.ops.scan.cpu_vectors import LANES, Floats, Indices
from scopereg.ops.scan.layout import coordinates_by, needs_gradient
from scopereg.threads import look, took

_LOG2E = np.float32(1.0 / math.log(2.0))
# Planes that share one computation of the decays: more would not fit the registers.
_GROUP, _BACKWARD_GROUP = 8, 4
# Channel blocks of a task of the backward pass: each task has sums of its own for the gates, which all channels share.
_TOGETHER = 4


def directional(u: Values, delta: Steps, A: Rates, B: Gates, C: Gates, D: Skip | None, order: Order) -> Values:
    if needs_gradient(u, delta, A, B, C, D):
        y: Tensor = _DirectionalScan.apply(u, delta, A, B, C, D, order)  # type: ignore[no-untyped-call]
        return y
    return _forward(u, delta, A, B, C, D, order)


class _DirectionalScan(torch.autograd.Function):
    """Only the inputs are kept: the backward pass computes states anew, a few at a time."""

    @staticmethod
    def forward(
        ctx: Any, u: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor, D: Tensor | None, order: Tensor
    ) -> Tensor:
        ctx.save_for_backward(u, delta, A, B, C, D, order)
        return _forward(u, delta, A, B, C, D, order)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        u, delta, A, B, C, D, order = ctx.saved_tensors
        inputs = (u, delta, A, B, C, D)
        found = _backward(dy, u, delta, A, B, C, D, order)
        cast = [g if g is None else g.to(x.dtype) for g, x in zip(found, inputs, strict=True)]
        return (*cast, None)


def _forward(u: Values, delta: Steps, A: Rates, B: Gates, C: Gates, D: Skip | None, order: Order) -> Values:
    batch, planes, _, channels = u.shape
    arrays = _arrays(u, delta, A, B, C, D, order)
    y = torch.empty(arrays[0].shape, dtype=torch.float32)  # by PyTorch, not NumPy: aligned to cache lines
    for plane in range(0, planes, _GROUP):
        group = (0,) * min(_GROUP, planes - plane)  # its length is part of its type: one kernel is compiled for each
        run = partial(_call, kernels.feature_tasks, (group, plane, *arrays, y.numpy()))
        share(batch * arrays[2].shape[1], run)
    return y[..., :channels].contiguous()


def _backward(
    dy: Tensor, u: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor, D: Tensor | None, order: Tensor
) -> tuple[Tensor | None, ...]:
    """Gradients of the inputs, in float32."""
    batch, planes, length, channels = u.shape
    arrays = _arrays(u, delta, A, B, C, D, order)
    values, slope = arrays[0], _widen(dy, -1, -channels % LANES)
    directions, blocks, states, _ = arrays[2].shape
    runs, chunk = -(-blocks // _TOGETHER), math.isqrt(length - 1) + 1
    gates = (batch, runs, directions, length, states)
    shapes = (values.shape, arrays[1].shape, (batch, *arrays[2].shape), gates, gates)
    du, ddelta, *others = (torch.empty(shape, dtype=torch.float32) for shape in shapes)
    sums = [x.numpy() for x in (du, ddelta, *others)]
    for array in sums[1:]:  # du is not added to before it is set
        array.fill(0.0)
    for plane in range(0, planes, _BACKWARD_GROUP):
        group = (0,) * min(_BACKWARD_GROUP, planes - plane)
        given = (group, plane, _TOGETHER, chunk, *arrays, slope, *sums)
        share(batch * runs, partial(_call, cpu_backward_kernels.gradient_tasks, given))
    dA, dB, dC = (torch.from_numpy(x.sum(axis)) for x, axis in zip(sums[2:], (0, 1, 1), strict=True))
    dD = None
    if D is not None:
        dD = torch.from_numpy(np.einsum("bplc,bplc->bpc", values, slope).sum((0, 1)))[:channels].expand_as(D)
    return du[..., :channels], ddelta[..., :channels], dA.transpose(2, 3).flatten(1, 2)[:, :channels], dB, dC, dD


def _arrays(
    u: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor, D: Tensor | None, order: Tensor
) -> tuple[NDArray[Any], ...]:
    """Values, steps, rates, gates, skip and order as the kernels want them: channels filled up to whole blocks."""
    channels = u.shape[3]
    spare = -channels % LANES
    values, step = (_widen(x, -1, spare) for x in (u, delta))
    with np.errstate(over="ignore"):  # a rate beyond float32 decays to zero at once, as its largest number does
        rate = np.maximum(_widen(A, 1, spare) * _LOG2E, np.finfo(np.float32).min)
    rate = rate.reshape(-1, (channels + spare) // LANES, LANES, A.shape[2])
    rate = np.ascontiguousarray(rate.swapaxes(2, 3))  # (directions, blocks, states, lanes)
    skip = np.zeros(channels + spare, np.float32) if D is None else _widen(D, -1, spare).sum(0)
    return values, step, rate, _array(B), _array(C), skip, _steps(order)


def _call(kernel: Callable[..., None], arguments: tuple[Any, ...], first: int, last: int) -> None:
    kernel(first, last, *arguments)


def coordinate(values: Grid, delta: PlaneSteps, A: SharedRates, B: PlaneGates, C: Gates, order: Order) -> Moments:
    if needs_gradient(values, delta, A, B, C):
        return coordinates_by(directional, values, delta, A, B, C, order)
    batch, planes, length = delta.shape[0], values.shape[0], values.shape[1]
    z = torch.zeros(batch, planes, length, values.shape[2], dtype=torch.float32)
    arrays = (_array(values.transpose(1, 2)), _array(delta), _array(A) * _LOG2E, _array(B), _array(C), _steps(order))
    share(batch * planes, lambda a, b: kernels.coordinate_tasks(a, b, *arrays, z.numpy()))
    return z


def states(values: Grid, delta: PlaneSteps, A: SharedRates, B: PlaneGates, order: Order) -> States:
    if needs_gradient(values, delta, A, B):
        return torch_backend.states(values, delta, A, B, order)
    batch, directions, planes, length = delta.shape
    table = torch.empty(batch, directions, planes, length, A.shape[1], values.shape[2], dtype=torch.float32)
    arrays = (_array(values), _array(delta), _array(A) * _LOG2E, _array(B), _steps(order))
    share(batch * directions * planes, lambda a, b: kernels.state_tasks(a, b, *arrays, table.numpy()))
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


def share(tasks: int, run: Callable[[int, int], None]) -> None:
    """Run `run(first, last)` over all tasks in pieces that this thread and its helpers take as they come free."""
    look()
    threads = min(torch.get_num_threads(), tasks)
    # A few pieces per thread even out what else the cores are doing.
    bounds = np.linspace(0, tasks, min(tasks, 4 * threads) + 1).astype(int).tolist()
    pieces = iter(list(pairwise(bounds)))

    def work() -> tuple[float, float]:
        begin, cpu = time.perf_counter(), time.thread_time()
        for first, last in pieces:  # a list iterator hands each piece out once, whichever thread asks
            run(first, last)
        return time.perf_counter() - begin, time.thread_time() - cpu

    helpers = [_pool(os.getpid()).submit(work) for _ in range(threads - 1)]
    try:
        own = work()
    finally:
        wait(helpers)
    for wall_seconds, cpu_seconds in (own, *(helper.result() for helper in helpers)):
        took(wall_seconds, cpu_seconds)


@lru_cache(maxsize=1)
def _pool(process: int) -> ThreadPoolExecutor:
    """Helpers of this process: a forked child has none of its parent's threads and makes its own."""
    return ThreadPoolExecutor(max_workers=max(1, (os.cpu_count() or 1) - 1), thread_name_prefix="scopereg-scan")
