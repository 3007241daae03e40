"""Speed plot: frames per second and latency over the resolution, a line per row of `scopereg bench`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator

from scopereg.evaluation.speed.modes import METHODS, Mode
from scopereg.evaluation.speed.tables import SpeedRow
from scopereg.io.files import atomic_path

_DPI = 160


class Look(NamedTuple):
    """How a row is drawn: colour tells the mode, the dash tells the method."""

    colour: str
    dash: str
    marker: str


_FORMS = {"as published": "#7f7f7f", "forward": "#0072b2", "whole": "#e69f00", "streaming": "#009e73"}
_BASELINES = {"eureg": "#cc79a7", "fvr-net": "#d55e00", "cu-reg": "#56b4e9", "dreamreg": "#9c7a3c"}
_VARIANTS = {
    "cross-attention-heads": "#d55e00",
    "ssvf-heads": "#cc79a7",
    "cwcd-heads": "#56b4e9",
    "cwcd-kabsch": "#9c7a3c",
    "tri-plane": "#4d4d9f",
}


def draw_speeds(rows: Sequence[SpeedRow], path: Path, facts: dict[str, Any]) -> Path:
    """PNG with two panels, both axes logarithmic: frames per second, and p50 latency with a stroke up to p95."""
    measured = [row for row in rows if row.fps is not None]
    modes = list(dict.fromkeys(Mode(row.method, row.form) for row in measured))
    figure = Figure(figsize=(11, 4.6), layout="constrained")
    speed, latency = figure.subplots(1, 2)
    sizes = sorted({row.resolution for row in measured})
    apart = 0.015 if len(sizes) > 1 else 0.1  # beside each other: rows as fast as another would hide it
    for place, mode in enumerate(modes):
        own = sorted((row for row in measured if Mode(row.method, row.form) == mode), key=lambda row: row.resolution)
        _draw_mode(speed, latency, mode, own, 1 + apart * (2 * place / max(len(modes) - 1, 1) - 1))
    _dress(speed, sizes, "frames per second")
    _dress(latency, sizes, "latency, ms: p50, stroke to p95")
    figure.suptitle(f"From a host array to a pose on the host, batch 1, 32 planes, {facts['device']}", fontsize=11)
    figure.legend(*speed.get_legend_handles_labels(), loc="outside right center", frameon=False, fontsize=9)
    with atomic_path(path) as temporary:
        figure.savefig(temporary, dpi=_DPI)
    return path


def _draw_mode(speed: Axes, latency: Axes, mode: Mode, rows: Sequence[SpeedRow], aside: float) -> None:
    """Points and lines in both panels, moved by a factor along the axis of resolutions."""
    look = look_of(mode)
    style: dict[str, Any] = {"color": look.colour, "linestyle": look.dash, "marker": look.marker, "markersize": 5}
    sizes = [row.resolution * aside for row in rows]
    rates, middle, high = ([getattr(row, name) for row in rows] for name in ("fps", "p50_ms", "p95_ms"))
    speed.plot(sizes, rates, label=mode.label, **style)
    latency.plot(sizes, middle, label=mode.label, **style)
    latency.vlines(sizes, middle, high, color=look.colour, linewidth=1.2, alpha=0.6)


def look_of(mode: Mode) -> Look:
    if mode.method in _BASELINES:
        return Look(_BASELINES[mode.method], ":", "s")
    if mode.method in _VARIANTS:
        return Look(_VARIANTS[mode.method], "-.", "D")
    plain = not METHODS[mode.method].options
    return Look(_FORMS[mode.name], "-" if plain else "--", "o" if plain else "^")


def _dress(axes: Axes, sizes: Sequence[int], label: str) -> None:
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xticks(list(sizes), [str(size) for size in sizes])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlim(min(sizes) / 1.15, max(sizes) * 1.15)
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel("pixels along a side")
    axes.set_ylabel(label)
    axes.grid(which="major", color="#dddddd", linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
