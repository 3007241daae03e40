"""`scopereg bench`: speed, memory and cost of the networks on this machine, as a table, a CSV file and a plot.

Also `python -m scopereg.evaluation.bench`, for machines that have torch and little else.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scopereg.cli import status_of
from scopereg.devices import resolve_device
from scopereg.errors import ScopeRegError
from scopereg.evaluation.contender import Contender, Row, reason_of
from scopereg.evaluation.floor import Ceilings, StageTime, measure_ceilings, stage_times, staged
from scopereg.evaluation.forms import FIRST, Form, Setting, forms_of
from scopereg.evaluation.speed_tables import print_rows, print_stages, row_line, write_csv
from scopereg.io.files import output_folder
from scopereg.progress import say
from scopereg.provenance import command_line, provenance

if TYPE_CHECKING:
    from scopereg.options.evaluation import BenchOptions

BLOCKS, LEAST_BLOCKS = 5, 3
INTERRUPTED = 130


@dataclass
class Bench:
    """All that is measured; what is there stays there when it is interrupted."""

    contenders: list[Contender] = field(default_factory=list)
    ceilings: Ceilings | None = None
    stages: list[StageTime] = field(default_factory=list)

    def measure(self, forms: Sequence[Form], setting: Setting, seconds: float, show: Show) -> None:
        """All forms at one resolution: block by block in turn, so that a drifting clock favours none."""
        group = [Contender(form, setting) for form in forms]
        self.contenders += group
        for each in group:
            each.measure_memory()
        for each in group:
            show.step(f"{each.form.label}, {setting.resolution}")
            each.make(seconds)
        self._run_blocks(group, seconds, show)
        for each in group:
            each.count()
            each.release()
        self._again_alone([each for each in group if each.out_of_memory], seconds, show)
        for row in self.rows()[-len(group) :]:
            show.finished(row)

    def time_stages(self, methods: Sequence[str], setting: Setting, seconds: float, show: Show) -> None:
        """Every stage alone, and the floor below it."""
        for method in staged(methods):
            show.step(f"stages of {method}, {setting.resolution}")
            try:
                if self.ceilings is None:
                    dtype = setting.streaming(setting.network(method)).dtype
                    self.ceilings = measure_ceilings(setting.device, dtype, seconds / 10)
                self.stages += stage_times(method, setting, self.ceilings, seconds / 20)
            except Exception as error:  # as of a row: what else is measured is worth keeping
                say(f"no stages of {method}, {setting.resolution}: {reason_of(error)}")

    def rows(self) -> list[Row]:
        """Of everything that was measured or failed."""
        first = {each.setting.resolution: each.fps for each in self.contenders if each.form == Form(*FIRST)}
        tried = [each for each in self.contenders if each.blocks or each.note]
        return [each.row(first.get(each.setting.resolution)) for each in tried]

    def _run_blocks(self, group: Sequence[Contender], seconds: float, show: Show) -> None:
        for block in range(BLOCKS):
            for each in group:
                show.step(f"{each.form.label}, {each.setting.resolution}")
                if block < LEAST_BLOCKS or each.spent_s < seconds:
                    each.run_block(seconds / BLOCKS)

    def _again_alone(self, crowded: Sequence[Contender], seconds: float, show: Show) -> None:
        """What did not fit beside the others may fit without them."""
        for each in crowded:
            each.note, each.out_of_memory, each.spent_s = "", False, 0.0
            each.blocks.clear()
            each.make(seconds)
            self._run_blocks([each], seconds, show)
            each.note = each.note or "measured alone: it did not fit beside the others"
            each.count()
            each.release()


class Show(AbstractContextManager["Show"]):
    """A bar on a terminal, a line per row elsewhere."""

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> Show:
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

    def step(self, words: str) -> None:
        if self._bar is not None:
            self._bar.update(self._task, advance=1, description=words)

    def finished(self, row: Row) -> None:
        if self._bar is None:
            say(row_line(row))


def run(options: BenchOptions | Any, command: str | None = None) -> int:
    """The status is 0 when every row was measured, 1 when one was not, 130 when interrupted."""
    forms = forms_of(options.methods)
    _check(options)
    device = resolve_device(options.device)
    output_folder(options.output.parent)
    settings = [Setting(size, device, options.precision, options.seed) for size in dict.fromkeys(options.resolutions)]
    bench, interrupted = Bench(), False
    steps = len(forms) * (1 + BLOCKS) + options.stages * len(staged(options.methods))
    with Show(len(settings) * steps) as show:
        try:
            for setting in settings:
                bench.measure(forms, setting, options.seconds, show)
                if options.stages:
                    bench.time_stages(options.methods, setting, options.seconds, show)
        except KeyboardInterrupt:
            interrupted = True
    facts = provenance(seed=options.seed, device=str(device)) | {"command": command or command_line()}
    _save(bench, options.output, facts)
    if interrupted:
        say("interrupted; what was measured is kept")
        return INTERRUPTED
    return 1 if any(row.fps is None for row in bench.rows()) else 0


def _save(bench: Bench, output: Path, facts: dict[str, Any]) -> None:
    """Files first, then the tables to read."""
    rows = bench.rows()
    if not rows:
        return
    written = [write_csv(output, rows, facts)]
    if bench.stages:
        written.append(write_csv(output.with_name(f"{output.stem}-stages.csv"), bench.stages, facts))
    if any(row.fps for row in rows):
        written += _draw(rows, output.with_suffix(".png"), facts)
    print_rows(rows, facts)
    if bench.ceilings is not None:
        print_stages(bench.stages, bench.ceilings)
    for path in written:
        say(str(path))


def _draw(rows: Sequence[Row], path: Path, facts: dict[str, Any]) -> list[Path]:
    try:
        from scopereg.evaluation.speed_plot import draw_speeds
    except ImportError:
        say("no plot: matplotlib is not installed (pip install 'scopereg[eval]')")
        return []
    return [draw_speeds(rows, path, facts)]


def _check(options: BenchOptions | Any) -> None:
    """What would spoil every row is told before the first."""
    smallest = min(options.resolutions, default=0)
    if smallest < 8:
        raise ScopeRegError(
            f"a resolution of {smallest}" if options.resolutions else "no resolution is given",
            where="--resolutions",
            fix="pass pixels along a side, 8 or more, such as 128 512",
        )
    if not options.seconds > 0:
        raise ScopeRegError(f"{options.seconds:g} seconds", where="--seconds", fix="pass more than 0, such as 2")
    if options.output.suffix != ".csv":
        raise ScopeRegError("is no .csv file", where=f"-o {options.output}", fix="pass a file such as out/bench.csv")


def parser() -> argparse.ArgumentParser:
    """The options of `scopereg bench`, which has them from tyro; a test holds the two together."""
    made = argparse.ArgumentParser(prog="python -m scopereg.evaluation.bench", description=__doc__)
    made.add_argument("-o", "--output", "--out", type=Path, default=Path("out/bench.csv"), help="CSV file to write")
    made.add_argument("--methods", nargs="+", default=("scope-reg", "scope-reg-3", "eureg"), help="what to measure")
    made.add_argument("--resolutions", nargs="+", type=int, default=(128, 192, 384, 512), help="pixels along a side")
    made.add_argument("--seconds", type=float, default=2.0, help="time to measure each row for, about")
    made.add_argument("--precision", default="auto", choices=("auto", "float32", "float16", "bfloat16"))
    made.add_argument("--stages", action="store_true", help="also time every stage of SCoPE-Reg, beside its floor")
    made.add_argument("--seed", type=int, default=0, help="seed of weights and images")
    made.add_argument("--device", default="auto", choices=("auto", "cpu", "cuda", "mps"), help="where networks run")
    return made


def main(words: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit status."""
    given = list(sys.argv[1:] if words is None else words)
    command = shlex.join(["python", "-m", "scopereg.evaluation.bench", *given])
    return status_of(lambda: run(parser().parse_args(given), command))


if __name__ == "__main__":
    sys.exit(main())
