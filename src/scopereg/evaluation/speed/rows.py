"""Speed tables: rows of `scopereg bench` for people, on a terminal, and for programs, as CSV."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scopereg.evaluation.speed.floor import Ceilings, StageTime
from scopereg.evaluation.speed.modes import PLANES, SHIPPED, Mode
from scopereg.io.files import write_sheet

if TYPE_CHECKING:
    from rich.console import Console

_NOTHING = "–"
_WIDTH = 150  # where nobody tells how wide the page is


@dataclass(frozen=True)
class SpeedRow:
    """A row of the table; None is what there is not, `note` says why."""

    method: str
    form: str  # the mode, by its name
    resolution: int
    precision: str | None
    parameters: int | None
    gflops: float | None
    gflops_with_scans: float | None
    fps: float | None  # median over the blocks
    p50_ms: float | None
    p95_ms: float | None
    ratio: float | None  # frames per second over those of the mode as published, same resolution, same run
    prepare_ms: float | None  # once per volume
    peak_mib: float | None  # since before the weights were made, preparation included
    frame_peak_mib: float | None  # while frames are located, what is kept of the volume included
    frames: int
    blocks: int
    note: str


def write_csv(path: Path, rows: Sequence[SpeedRow] | Sequence[StageTime], facts: dict[str, Any]) -> Path:
    """One line per row, each with what it was made with, so that lines of several machines can stand in one file."""
    made = made_with(facts)
    lines = [{name: _rounded(value) for name, value in asdict(row).items()} | made for row in rows]
    return write_sheet(path, lines)


def made_with(facts: dict[str, Any]) -> dict[str, Any]:
    """The columns behind the numbers."""
    versions = " ".join(f"{name} {version}" for name, version in facts["versions"].items())
    kept = {name: facts[name] for name in ("device", "system", "python", "seed", "command", "made", "scopereg")}
    return {"machine": machine(), "versions": versions, **kept}


def machine() -> str:
    """The processor and how many cores of it there are."""
    name = platform.processor()
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        name = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), name)
    except OSError:  # another system than Linux
        pass
    return f"{name or platform.machine()}, {os.cpu_count()} cores"


def row_line(row: SpeedRow) -> str:
    """A row in one line, for a log."""
    start = f"{Mode(row.method, row.form).label}, {row.resolution}: "
    if row.fps is None:
        return start + row.note
    parts = [f"{row.fps:.4g} FPS", f"p50 {row.p50_ms:.4g} ms", f"p95 {row.p95_ms:.4g} ms"]
    parts += [f"{row.ratio:.2f} x published"] if row.ratio else []
    parts += [f"prepare {row.prepare_ms:.4g} ms"] if row.prepare_ms else []
    parts += [f"{row.peak_mib:.0f} MiB"] if row.peak_mib is not None else []
    return start + ", ".join([*parts, *([row.note] if row.note else [])])


def print_rows(rows: Sequence[SpeedRow], facts: dict[str, Any]) -> None:
    """The table, a section per resolution, with what went wrong below it."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(title=f"Speed at batch 1 on {facts['device']}, volumes of {PLANES} planes", box=SIMPLE_HEAD)
    titles = ("method", "pixels", "M param", "GFLOPs", "+ scans", "FPS", "p50 ms", "p95 ms", "x publ.", "prepare ms",
              "MiB", "frames MiB")  # fmt: skip
    for title in titles:
        table.add_column(title, justify="left" if title == "method" else "right", no_wrap=title == "method")
    for place, row in enumerate(rows):
        if place and rows[place - 1].resolution != row.resolution:
            table.add_section()
        table.add_row(*_cells(row))
    console = _console()
    console.print(table)
    for note in _notes(rows, facts):
        console.print(note, soft_wrap=True, highlight=False, markup=False)


def print_stages(stages: Sequence[StageTime], ceilings: Ceilings) -> None:
    """Stages with their floors, sums in bold."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(title="Stages of SCoPE-Reg, each alone, and the least time that they can take", box=SIMPLE_HEAD)
    for title in ("method", "pixels", "stage", "MFLOP", "MiB", "floor µs", "measured µs", "x floor"):
        table.add_column(title, justify="left" if title in ("method", "stage") else "right")
    before: tuple[str, int] | None = None
    for stage in stages:
        if before not in (None, (stage.method, stage.resolution)):
            table.add_section()
        before = stage.method, stage.resolution
        numbers = (stage.mflop, stage.mib, stage.floor_us, stage.measured_us, stage.times_floor)
        cells = [stage.method, str(stage.resolution), stage.stage, *map(_three_digits, numbers)]
        table.add_row(*cells, style="bold" if stage.is_sum else None)
    console = _console()
    console.print(table)
    console.print(
        f"Ceilings measured here: {ceilings.product_flops / 1e12:.3g} TFLOP/s in products in the encoders' precision, "
        f"{ceilings.float_product_flops / 1e12:.3g} in float32 rounded as convolutions may, "
        f"{ceilings.float_flops / 1e12:.3g} in exact float32, {ceilings.bytes / 1e9:.4g} GB/s in memory, "
        f"{ceilings.link_bytes / 1e9:.3g} GB/s from the host.",
        soft_wrap=True,
        highlight=False,
    )


def _cells(row: SpeedRow) -> list[str]:
    values = [
        (row.parameters and row.parameters / 1e6, ".2f"),
        (row.gflops, ".2f"),
        (row.gflops_with_scans, ".2f"),
        (row.fps, ".4g"),
        (row.p50_ms, ".4g"),
        (row.p95_ms, ".4g"),
        (row.ratio, ".2f"),
        (row.prepare_ms, ".4g"),
        (row.peak_mib, ".0f"),
        (row.frame_peak_mib, ".0f"),
    ]
    shown = [_NOTHING if value is None else format(value, form) for value, form in values]
    return [Mode(row.method, row.form).label, str(row.resolution), *shown]


def _notes(rows: Sequence[SpeedRow], facts: dict[str, Any]) -> list[str]:
    notes = [
        "From a frame (streaming) or a frame and its volume on the host to a pose on the host. FPS: median over blocks "
        "that the rows took in turn; x publ.: frames per second over those of SCoPE-Reg as published, in the same run.",
        "GFLOPs: one multiply-add is one, as in the paper; scans, 9 per token, channel and state, in the next column.",
    ]
    if any(row.form == SHIPPED for row in rows):
        notes.append(
            "Methods as shipped: from images in mm to a pose with its verdict; prepare ms until the first pose."
        )
    precisions = dict.fromkeys((row.form, row.precision) for row in rows if row.precision is not None)
    if precisions:
        notes.append("Precision: " + ", ".join(f"{mode} {precision}" for mode, precision in precisions) + ".")
    if all(row.peak_mib is None for row in rows):
        notes.append("Memory is told on CUDA devices alone.")
    else:
        notes.append("MiB: the most that torch allocated for the row, weights included; frames MiB: once prepared.")
    notes += [f"{Mode(row.method, row.form).label}, {row.resolution}: {row.note}" for row in rows if row.note]
    return notes


def _console() -> Console:
    """Rich takes 80 columns where there is no terminal, which would break the names."""
    from rich.console import Console

    return Console() if sys.stdout.isatty() else Console(width=_WIDTH)


def _three_digits(number: float) -> str:
    return f"{number:.0f}" if number >= 1000 else f"{number:.3g}"


def _rounded(value: Any) -> Any:
    return f"{value:.6g}" if isinstance(value, float) else value
