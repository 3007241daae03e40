"""Words for a calibration: what it is, how well it is known, how well it foretells where frames lie."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

from scopereg.registration.probe.calibrated import KEPT_ASIDE, STATES, USED, ProbeCalibration
from scopereg.registration.probe.certainty import FARTHEST


def facts_of(found: ProbeCalibration) -> dict[str, str]:
    """Lines by name."""
    x, y = found.spacing_mm
    known = found.certainty
    pixels = "" if math.isnan(known.pixels_percent[0]) else f" ({_plus_minus(known.pixels_percent, '%')})"
    counts = [f"{len(found.of_state(state))} {state}" for state in STATES if found.of_state(state)]
    told = {
        "frames": ", ".join(counts),
        "offset": f"{_numbers(found.image_to_probe.translation_mm)} mm, the first pixel in the probe's mm",
        "": f"{_plus_minus(known.offset_mm, 'mm')} along the image's x, y, z at its middle, in 95 %",
        "turn": f"{_numbers(found.image_to_probe.euler_deg)} degrees about x, y, z; "
        + _plus_minus(known.turn_deg, "degrees"),
        "pixels": f"{x:.5f} x {y:.5f} mm{pixels}",
        "world": "as given" if found.world_known else "; ".join(map(str, found.world_to_volume)),
        "error": residuals(found),
    }
    moved = found.moved
    if moved is not None:
        told["moved"] = (
            f"{moved['offset_mm']:.1f} mm and {moved['turn_deg']:.1f} degrees from the calibration before, pixels by "
            f"{moved['pixels_percent']:.1f} %; points of the image by {moved['points_mm']:.1f} mm"
        )
    return told


def residuals(found: ProbeCalibration) -> str:
    """How far frames are from where the calibration puts them, in one line."""
    parts = []
    aside = [row.apart_mm for row in found.of_state(KEPT_ASIDE) if math.isfinite(row.apart_mm)]
    used = [row.apart_mm for row in found.of_state(USED) if math.isfinite(row.apart_mm)]
    without = [row.without_mm for row in found.of_state(USED) if math.isfinite(row.without_mm)]
    for name, values in (("kept aside", aside), ("used", used), ("used, each by a calibration of the others", without)):
        if values:
            parts.append(f"{name} {np.median(values):.2f} mm (at most {max(values):.2f})")
    return "; ".join(parts) or "nothing to tell it by"


def _numbers(values: Iterable[float]) -> str:
    return " ".join(f"{value:.3f}" for value in values)


def _plus_minus(values: Sequence[float], unit: str) -> str:
    """Half widths; long ones are no numbers."""
    return f"± {', '.join(f'{value:.1f}' if value < FARTHEST else 'unknown' for value in values)} {unit}"
