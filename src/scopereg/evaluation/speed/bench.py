"""Bench: networks timed side by side on this machine, block by block in turn."""

from __future__ import annotations

import gc
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from scopereg.errors import ScopeRegError
from scopereg.evaluation.cost import Cost
from scopereg.evaluation.speed.floor import Ceilings, StageTime, measure_ceilings, stage_times, staged
from scopereg.evaluation.speed.modes import FIRST, Mode, Runnable, Setting, cost_of, make_runnable
from scopereg.evaluation.speed.rows import SpeedRow, row_line
from scopereg.progress import duration, say
from scopereg.threads import watched

MIB = 2**20
WARM_UP, PREPARATIONS = 3, 3


@dataclass
class TimedMode:
    """A mode at a resolution. What goes wrong becomes its note; the others go on."""

    mode: Mode
    setting: Setting
    runner: Runnable | None = None
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
    cost: Cost | None = None

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

    def row(self, first_fps: float | None) -> SpeedRow:
        calls_ms = 1e3 * np.array([call for block in self.blocks for call in block])
        p50, p95 = (float(np.percentile(calls_ms, share)) if len(calls_ms) else None for share in (50, 95))
        gflops, gflops_with_scans = (self.cost.gflops, self.cost.total_gflops) if self.cost else (None, None)
        return SpeedRow(
            self.mode.method,
            self.mode.name,
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
        self.runner = make_runnable(self.mode, self.setting)
        prepared_mib = memory.peak_mib()
        memory.restart()
        self.runner.call()
        self.frame_peak_mib = memory.peak_mib()
        self.peak_mib = max(prepared_mib, self.frame_peak_mib)

    def _make(self, seconds: float) -> None:
        self.runner = make_runnable(self.mode, self.setting)
        self.parameters, self.precision = self.runner.parameters, self.runner.precision
        self.cost = cost_of(self.mode, self.setting)
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
            self.note, self.out_of_memory = failure_note(error), is_out_of_memory(error)
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


def failure_note(error: Exception) -> str:
    """One line for the table."""
    if isinstance(error, ScopeRegError):
        return f"{error.what}; {error.fix}"
    first = (str(error).splitlines() or [""])[0]
    if is_out_of_memory(error):
        return f"out of memory: {first}"
    return f"{type(error).__name__}: {first}"


BLOCKS, LEAST_BLOCKS = 5, 3


@dataclass
class Bench:
    """Collects everything that is measured; an interruption loses nothing."""

    timings: list[TimedMode] = field(default_factory=list)
    ceilings: Ceilings | None = None
    stages: list[StageTime] = field(default_factory=list)

    @watched(steady=True)
    def measure(self, modes: Sequence[Mode], setting: Setting, seconds: float, show: BenchProgress) -> None:
        """Time all modes at one resolution: block by block in turn, so that a drifting clock favours none."""
        group = [TimedMode(mode, setting) for mode in modes]
        self.timings += group
        for each in group:
            each.measure_memory()
        for each in group:
            show.step(f"{each.mode.label}, {setting.resolution}")
            each.make(seconds)
        self._run_blocks(group, seconds, show)
        for each in group:
            each.release()
        self._again_alone([each for each in group if each.out_of_memory], seconds, show)
        for row in self.rows()[-len(group) :]:
            show.finished(row)

    @watched(steady=True)
    def time_stages(self, methods: Sequence[str], setting: Setting, seconds: float, show: BenchProgress) -> None:
        """Every stage alone, and the floor below it."""
        for method in staged(methods):
            show.step(f"stages of {method}, {setting.resolution}")
            try:
                if self.ceilings is None:
                    dtype = setting.streaming(setting.network(method)).dtype
                    self.ceilings = measure_ceilings(setting.device, dtype, seconds / 10)
                self.stages += stage_times(method, setting, self.ceilings, seconds / 20)
            except Exception as error:  # as of a row: what else is measured is worth keeping
                say(f"no stages of {method}, {setting.resolution}: {failure_note(error)}")

    def rows(self) -> list[SpeedRow]:
        """Rows of everything that was measured or failed."""
        first = {each.setting.resolution: each.fps for each in self.timings if each.mode == Mode(*FIRST)}
        tried = [each for each in self.timings if each.blocks or each.note]
        return [each.row(first.get(each.setting.resolution)) for each in tried]

    def _run_blocks(self, group: Sequence[TimedMode], seconds: float, show: BenchProgress) -> None:
        begin = time.perf_counter()
        for block in range(BLOCKS):
            if block == 1:
                show.first_block(time.perf_counter() - begin)
            for each in group:
                show.step(f"{each.mode.label}, {each.setting.resolution}")
                if block < LEAST_BLOCKS or each.spent_s < seconds:
                    each.run_block(seconds / BLOCKS)

    def _again_alone(self, crowded: Sequence[TimedMode], seconds: float, show: BenchProgress) -> None:
        """Retry those that did not fit in memory beside the others."""
        for each in crowded:
            each.note, each.out_of_memory, each.spent_s = "", False, 0.0
            each.blocks.clear()
            each.make(seconds)
            self._run_blocks([each], seconds, show)
            each.note = each.note or "measured alone: it did not fit beside the others"
            each.release()


class BenchProgress(AbstractContextManager["BenchProgress"]):
    """A bar on a terminal, a line per row elsewhere."""

    def __init__(self, steps: int, resolutions: Sequence[int] = ()) -> None:
        self.steps, self.resolutions = steps, resolutions
        self._begin: float | None = None
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> BenchProgress:
        self._begin = time.perf_counter()
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

            columns = (BarColumn(), TextColumn("{task.percentage:3.0f} %"), TextColumn("{task.description}"))
            self._bar = Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True), transient=True)
            self._bar.start()
            self._task = self._bar.add_task("", total=self.steps)
        return self

    def __exit__(self, *error: Any) -> None:
        if self._bar is not None:
            self._bar.stop()

    def first_block(self, seconds: float) -> None:
        """When the first block of all rows is done, which took so long: tell how long all will take, once."""
        if self._begin is None or not self.resolutions:
            return
        made_s, self._begin = time.perf_counter() - self._begin - seconds, None
        # Making a row takes time by the pixel; so does measuring, where a call is longer than its share of time.
        share = sum(max(1.0, (size / self.resolutions[0]) ** 2) for size in self.resolutions)
        self._say(f"about {duration((made_s + BLOCKS * seconds) * share)} in all, stages aside")

    def _say(self, line: str) -> None:
        (say if self._bar is None else self._bar.console.print)(line)

    def step(self, words: str) -> None:
        if self._bar is not None:
            self._bar.update(self._task, advance=1, description=words)

    def finished(self, row: SpeedRow) -> None:
        if self._bar is None:
            say(row_line(row))
