"""Contender: one row of the speed table while it is measured, block by block, beside the others."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch

from scopereg.errors import ScopeRegError
from scopereg.evaluation.forms import Form, Runner, Setting, gflops_of, make_runner

MIB = 2**20
WARM_UP, PREPARATIONS = 3, 3


@dataclass(frozen=True)
class Row:
    """A row of the table; None is what there is not, `note` says why."""

    method: str
    form: str
    resolution: int
    precision: str | None
    parameters: int | None
    gflops: float | None
    gflops_with_scans: float | None
    fps: float | None  # median over the blocks
    p50_ms: float | None
    p95_ms: float | None
    ratio: float | None  # frames per second over those of the form as published, same resolution, same run
    prepare_ms: float | None  # once per volume
    peak_mib: float | None  # since before the weights were made, preparation included
    frame_peak_mib: float | None  # while frames are located, what is kept of the volume included
    frames: int
    blocks: int
    note: str


@dataclass
class Contender:
    """A form at a resolution. What goes wrong becomes its note; the others go on."""

    form: Form
    setting: Setting
    runner: Runner | None = None
    blocks: list[list[float]] = field(default_factory=list)  # seconds of every call, by block
    spent_s: float = 0.0
    usual_s: float = 0.0  # of the call before
    prepare_ms: float | None = None
    peak_mib: float | None = None
    frame_peak_mib: float | None = None
    note: str = ""
    out_of_memory: bool = False
    parameters: int | None = None
    precision: str | None = None
    counted: tuple[float, float] | None = None  # GFLOPs without and with scans

    def measure_memory(self) -> None:
        """The most that weights, preparation and the first frame take, with nothing beside; on CUDA devices alone."""
        if self.setting.device.type == "cuda":
            self._attempt(self._measure_memory)
            self.out_of_memory = False  # nothing was beside it: trying again would not help
            self.release()

    def make(self, seconds: float) -> None:
        """Weights, preparation, recording and first calls, so that blocks can begin."""
        if not self.note:
            self._attempt(lambda: self._make(seconds))

    def run_block(self, seconds: float) -> None:
        """Calls for so long, at least one."""
        if self.runner is not None:
            self._attempt(lambda: self._run_block(seconds))

    def release(self) -> None:
        """Give the memory back; times stay."""
        self.runner = None
        free_memory(self.setting.device)

    @property
    def fps(self) -> float | None:
        rates = [len(block) / sum(block) for block in self.blocks]
        return statistics.median(rates) if rates else None

    def row(self, first_fps: float | None) -> Row:
        calls_ms = 1e3 * np.array([call for block in self.blocks for call in block])
        p50, p95 = (float(np.percentile(calls_ms, share)) if len(calls_ms) else None for share in (50, 95))
        gflops, gflops_with_scans = self.counted or (None, None)
        return Row(
            self.form.method,
            self.form.name,
            self.setting.resolution,
            self.precision,
            self.parameters,
            gflops,
            gflops_with_scans,
            fps=self.fps,
            p50_ms=p50,
            p95_ms=p95,
            ratio=self.fps / first_fps if self.fps and first_fps else None,
            prepare_ms=self.prepare_ms,
            peak_mib=self.peak_mib,
            frame_peak_mib=self.frame_peak_mib,
            frames=len(calls_ms),
            blocks=len(self.blocks),
            note=self.note,
        )

    def _measure_memory(self) -> None:
        memory = Memory(self.setting.device)
        self.runner = make_runner(self.form, self.setting)
        prepared_mib = memory.peak_mib()
        memory.restart()
        self.runner.call()
        self.frame_peak_mib = memory.peak_mib()
        self.peak_mib = max(prepared_mib, self.frame_peak_mib)

    def _make(self, seconds: float) -> None:
        self.runner = make_runner(self.form, self.setting)
        self.parameters, self.precision = self.runner.parameters, self.runner.precision
        self.counted = gflops_of(self.form, self.setting, self.runner.network)
        for _ in range(WARM_UP):
            if self.usual_s < seconds:
                self._call()
        if self.runner.prepare is not None:
            self.prepare_ms = 1e3 * median_s(self.runner.prepare, seconds)

    def _run_block(self, seconds: float) -> None:
        if self.usual_s < seconds / 10:
            self._call()  # the caches and clocks that another row left
        calls: list[float] = []
        begin = time.perf_counter()
        while not calls or time.perf_counter() - begin < seconds:
            calls.append(self._call())
        self.blocks.append(calls)
        self.spent_s += sum(calls)

    def _call(self) -> float:
        """Seconds of one call."""
        assert self.runner is not None
        begin = time.perf_counter()
        self.runner.call()
        self.usual_s = time.perf_counter() - begin
        return self.usual_s

    def _attempt(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:  # whatever it is: it is this row's, and the table is to have the others
            self.note, self.out_of_memory = reason_of(error), is_out_of_memory(error)
        else:
            return
        self.blocks.clear()  # of a row that broke nothing is told but why
        self.release()  # out of the handler, whose traceback holds the tensors


class Memory:
    """Peak of what torch allocates on a CUDA device, beyond what was held before.

    CUDA graphs recorded before one is made must not be replayed any more: they may refer to workspaces that it frees.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        free_memory(device)
        # Tens of MiB that the first product on a stream takes and later ones find: every row is to pay for its own.
        torch._C._cuda_clearCublasWorkspaces()
        torch.cuda.empty_cache()
        self.held = torch.cuda.memory_allocated(device)
        self.restart()

    def restart(self) -> None:
        """Forget the peak so far; what is held now still counts."""
        torch.cuda.reset_peak_memory_stats(self.device)

    def peak_mib(self) -> float:
        torch.cuda.synchronize(self.device)
        return (torch.cuda.max_memory_allocated(self.device) - self.held) / MIB


def free_memory(device: torch.device) -> None:
    """Give back what nobody refers to; on other devices Python does so in its own time."""
    if device.type == "cuda":
        gc.collect()
        torch.cuda.synchronize(device)
        torch.cuda.empty_cache()


def median_s(work: Callable[[], object], seconds: float) -> float:
    """Seconds that some work takes: three times, once where it is slow."""
    times: list[float] = []
    while not times or (len(times) < PREPARATIONS and sum(times) < seconds):
        begin = time.perf_counter()
        work()
        times.append(time.perf_counter() - begin)
    return statistics.median(times)


def is_out_of_memory(error: Exception) -> bool:
    words = ("out of memory", "can't allocate memory", "not enough memory")
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or any(word in str(error) for word in words)


def reason_of(error: Exception) -> str:
    """One line for the table."""
    if isinstance(error, ScopeRegError):
        return f"{error.what}; {error.fix}"
    first = (str(error).splitlines() or [""])[0]
    if is_out_of_memory(error):
        return f"out of memory: {first}"
    return f"{type(error).__name__}: {first}"
