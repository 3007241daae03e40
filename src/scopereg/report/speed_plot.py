"""Speed plot: frames per second and latency over the resolution, a line per row of `scopereg bench`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from scopereg.evaluation.speed.modes import NETWORKS, PLANES, SHIPPED, Mode
from scopereg.evaluation.speed.rows import SpeedRow
from scopereg.io.files import write_text
from scopereg.report.charts import log_panel
from scopereg.report.drawing import Curve, svg_file
from scopereg.report.palette import DASH_DOTTED, DASHED, DOTTED, Look

# Colour tells the mode, the dash tells the method.
_MODES = {"as published": "var(--none)", "forward": "var(--c2)", "whole": "var(--c1)", "streaming": "var(--c0)"}
_BASELINES = {"eureg": "var(--c3)", "fvr-net": "var(--c5)", "cu-reg": "var(--c6)", "dreamreg": "var(--c7)"}
_VARIANTS = {
    "cross-attention-heads": "var(--c5)",
    "ssvf-heads": "var(--c3)",
    "cwcd-heads": "var(--c6)",
    "cwcd-kabsch": "var(--c7)",
    "tri-plane": "var(--c4)",
}


def draw_speeds(rows: Sequence[SpeedRow], path: Path, facts: dict[str, Any]) -> Path:
    """SVG with two panels, both axes logarithmic: frames per second, and p50 latency with a stroke up to p95."""
    measured = [row for row in rows if row.fps is not None]
    modes = list(dict.fromkeys(Mode(row.method, row.form) for row in measured))
    shipped = [mode.method for mode in modes if mode.name == SHIPPED]
    sizes = sorted({row.resolution for row in measured})
    apart = 0.015 if len(sizes) > 1 else 0.1  # beside each other: rows as fast as another would hide it
    speeds, latencies = [], []
    for place, mode in enumerate(modes):
        own = sorted((row for row in measured if Mode(row.method, row.form) == mode), key=lambda row: row.resolution)
        aside = 1 + apart * (2 * place / max(len(modes) - 1, 1) - 1)
        x, look = [row.resolution * aside for row in own], look_of(mode, shipped)
        fps, p50, p95 = ([getattr(row, name) or 0.0 for row in own] for name in ("fps", "p50_ms", "p95_ms"))
        speeds.append(Curve(mode.label, x, fps, look.colour, look.dash, marker=look.marker))
        span = list(zip(p50, p95, strict=True))
        latencies.append(Curve(mode.label, x, p50, look.colour, look.dash, band=span, marker=look.marker))
    panels = [
        log_panel(speeds, sizes, x_label="pixels along a side", y_label="frames per second"),
        log_panel(latencies, sizes, x_label="pixels along a side", y_label="latency, ms: p50, stroke to p95"),
    ]
    title = f"From a host array to a pose on the host, batch 1, {PLANES} planes, {facts['device']}"
    return write_text(path, svg_file(title, panels, speeds))


def look_of(mode: Mode, shipped: Sequence[str] = ()) -> Look:
    """The look of a row; methods as shipped take colours in the order in which they come."""
    if mode.name == SHIPPED:
        return Look(f"var(--c{list(shipped).index(mode.method) % 8})", DASHED, "diamond")
    if mode.method in _BASELINES:
        return Look(_BASELINES[mode.method], DOTTED, "square")
    if mode.method in _VARIANTS:
        return Look(_VARIANTS[mode.method], DASH_DOTTED, "diamond")
    plain = not NETWORKS[mode.method].options
    return Look(_MODES[mode.name], "" if plain else DASHED, "circle" if plain else "triangle")
