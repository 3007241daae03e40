"""Replay: functions of tensors recorded as CUDA graphs, so that hundreds of launches become one.

Two parts of a recording that do not need each other run at the same time (`side_by_side`).
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from inspect import ismethod
from typing import Any, TypeVar
from weakref import WeakMethod

import torch
from torch import Tensor

_RUNS_BEFORE = 2  # libraries choose their kernels and allocate their workspaces in the first runs
_recording = threading.Lock()  # a device records one graph at a time

_BRANCH = 2  # of `side_stream`; the first two belong to recordings and to streaming

Function = Callable[..., tuple[Tensor, ...]]
One = TypeVar("One")
Other = TypeVar("Other")


@dataclass(frozen=True)
class _Recorded:
    graph: torch.cuda.CUDAGraph
    inputs: tuple[Tensor, ...]  # what the graph reads and writes lies at fixed places
    outputs: tuple[Tensor, ...]
    free: torch.cuda.Event = field(default_factory=torch.cuda.Event)  # when these places may be written again


class Replayed:
    """Calls `function(*tensors)`; on a GPU it is recorded once for each set of shapes and replayed from then on.

    The function must not draw random numbers, wait for the GPU or depend on values on the host. Any thread may call.
    """

    def __init__(self, function: Function, *, most: int = 4) -> None:
        """`most` graphs are kept, each with the memory of its own intermediate results; the longest unused one goes."""
        self.function, self.most = _weakly(function), most
        self._kept: OrderedDict[tuple[object, ...], _Recorded] = OrderedDict()
        self._lock = threading.Lock()

    def __call__(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        if not inputs[0].is_cuda:
            return self.function(*inputs)
        with self._lock, torch.cuda.device(inputs[0].device):
            recorded = self._recorded(inputs)
            stream = torch.cuda.current_stream()
            stream.wait_event(recorded.free)  # another thread's stream may still be at it
            for place, value in zip(recorded.inputs, inputs, strict=True):
                place.copy_(value, non_blocking=True)
            recorded.graph.replay()
            outputs = tuple(output.clone() for output in recorded.outputs)
            recorded.free.record(stream)
        return outputs

    def _recorded(self, inputs: tuple[Tensor, ...]) -> _Recorded:
        recorded: _Recorded = _kept(self._kept, inputs, self.most, lambda: _record(self.function, inputs))
        return recorded


class Piped:
    """As `Replayed`, from host to host: the copies to the GPU and back are part of the recording.

    On other devices the function is called as it is. The memory of a recording goes with the object, or with `clear`.
    """

    def __init__(self, function: Function, device: torch.device, *, most: int = 4) -> None:
        self.function, self.device, self.most = _weakly(function), device, most
        self._kept: OrderedDict[tuple[object, ...], _Pipe] = OrderedDict()
        self._lock = threading.Lock()
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None  # threads do not wait for others'

    def __call__(self, *arrays: Tensor) -> tuple[Tensor, ...]:
        """Tensors on the host to tensors on the host."""
        if self._stream is None:
            return tuple(output.cpu() for output in self.function(*(array.to(self.device) for array in arrays)))
        with self._lock, torch.cuda.device(self.device), torch.cuda.stream(self._stream):
            pipe: _Pipe = _kept(self._kept, arrays, self.most, lambda: _pipe(self.function, arrays, self.device))
            for place, array in zip(pipe.inputs, arrays, strict=True):
                place.copy_(array)
            pipe.graph.replay()
            self._stream.synchronize()
            return tuple(output.clone() for output in pipe.outputs)

    def clear(self) -> None:
        """Give the memory of all recordings back."""
        with self._lock:
            self._kept.clear()


def _weakly(function: Function) -> Function:
    """A method without its object, which else would never be freed where it records a method of its own."""
    if not ismethod(function):
        return function
    method = WeakMethod(function)

    def call(*inputs: Tensor) -> tuple[Tensor, ...]:
        bound = method()
        assert bound is not None  # its own object calls
        found: tuple[Tensor, ...] = bound(*inputs)
        return found

    return call


@dataclass(frozen=True)
class _Pipe:
    graph: torch.cuda.CUDAGraph
    inputs: tuple[Tensor, ...]  # on the host, pinned
    outputs: tuple[Tensor, ...]  # on the host, pinned
    kept: tuple[Tensor, ...]  # on the GPU


def _kept(
    store: OrderedDict[tuple[object, ...], Any], inputs: tuple[Tensor, ...], most: int, make: Callable[[], Any]
) -> Any:
    """What was made for inputs of these shapes; the longest unused goes where there are too many."""
    key = tuple((tensor.shape, tensor.dtype, tensor.stride()) for tensor in inputs)
    if key not in store:
        store[key] = make()
        if len(store) > most:
            store.popitem(last=False)
    store.move_to_end(key)
    return store[key]


def _record(function: Function, inputs: tuple[Tensor, ...]) -> _Recorded:
    places = tuple(tensor.clone() for tensor in inputs)
    graph, outputs = _graph_of(lambda: tuple(function(*places)))
    return _Recorded(graph, places, outputs)


def _pipe(function: Function, arrays: tuple[Tensor, ...], device: torch.device) -> _Pipe:
    inputs = tuple(torch.empty_like(array).copy_(array).pin_memory() for array in arrays)
    places = tuple(torch.empty_like(array, device=device) for array in arrays)
    outputs: list[Tensor] = []

    def there_and_back() -> tuple[Tensor, ...]:
        for place, value in zip(places, inputs, strict=True):
            place.copy_(value, non_blocking=True)
        found = function(*places)
        if not outputs:
            outputs.extend(torch.empty(x.shape, dtype=x.dtype, pin_memory=True) for x in found)
        for host, value in zip(outputs, found, strict=True):
            host.copy_(value, non_blocking=True)
        return tuple(found)

    graph, found = _graph_of(there_and_back)
    return _Pipe(graph, inputs, tuple(outputs), (*places, *found))


def _graph_of(function: Callable[[], tuple[Tensor, ...]]) -> tuple[torch.cuda.CUDAGraph, tuple[Tensor, ...]]:
    with _recording:
        main, aside = torch.cuda.current_stream(), side_stream(torch.device("cuda", torch.cuda.current_device()))
        aside.wait_stream(main)
        with torch.cuda.stream(aside):  # capture wants the runs before it on another stream than the default one
            for _ in range(_RUNS_BEFORE):
                function()
        main.wait_stream(aside)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=aside, capture_error_mode="thread_local"):
            outputs = function()
        return graph, outputs


@cache
def side_stream(device: torch.device, number: int = 0) -> torch.cuda.Stream:
    """One of a few streams for all: libraries hold memory for every stream that they ever worked on."""
    return torch.cuda.Stream(device)


def side_by_side(one: Callable[[], One], other: Callable[[], Other], *shared: Tensor) -> tuple[One, Other]:
    """What both give. While a CUDA graph is recorded, `one` is on a stream of its own, its backward pass as well.

    Small kernels leave most of a GPU idle: those of `one` fill it. `shared` are the tensors that `one` reads: their
    memory is not given to others before the recording ends. Elsewhere one is called after the other.
    """
    if not _captures(shared):
        return one(), other()
    here, aside = torch.cuda.current_stream(), side_stream(shared[0].device, _BRANCH)
    aside.wait_stream(here)
    for tensor in shared:
        tensor.record_stream(aside)
    with torch.cuda.stream(aside):
        first = one()
    second = other()
    here.wait_stream(aside)
    return first, second


def _captures(shared: tuple[Tensor, ...]) -> bool:
    if torch.compiler.is_compiling():  # compilers find out for themselves what may run at the same time
        return False
    return any(tensor.is_cuda for tensor in shared) and torch.cuda.is_current_stream_capturing()
