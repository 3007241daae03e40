"""Gallery: frames of results as rows of pictures, from the best to the worst, and the failures."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from scopereg.evaluation.groups import START, Group
from scopereg.evaluation.results import FrameResult, is_failure
from scopereg.geometry import SUCCESS_MM
from scopereg.io.pictures import grey_pixels, red_difference_pixels
from scopereg.report.page import Picture, Report
from scopereg.report.scenes import Scenes

MOST_FAILURES = 12
_LARGEST = 256  # pixels along a side: more make the page heavy, not clearer
_RANKS = {"best": 0.0, "median": 0.5, "95th percentile": 0.95, "worst": 1.0}


def ranked(rows: Sequence[FrameResult]) -> dict[int, str]:
    """Frames at the ranks that tell most, by error; those that were not located come last."""
    order = _by_error(rows)
    found: dict[int, str] = {}
    for name, share in _RANKS.items():
        index = order[round(share * (len(order) - 1))]
        found[index] = f"{found[index]}, {name}" if index in found else name
    return found


def failures(rows: Sequence[FrameResult]) -> list[int]:
    """Frames that failed, the worst first."""
    return [index for index in reversed(_by_error(rows)) if is_failure(rows[index], SUCCESS_MM)]


def add_strip(report: Report, scenes: Scenes, group: Group, methods: Sequence[str], index: int, title: str) -> None:
    """The frame, the slice at the start, that of each method and the true one, each above its difference."""
    scene = scenes.scene(group, index)
    rows = {method: group.methods[method][index] for method in methods}
    some = rows[methods[-1]]
    pictures = [Picture("frame", grey_pixels(_small(scene.frame)))]
    pictures.append(_compared(f"start: {some.start_mm:.2f} mm", scene.start, scene.frame))
    for method in methods:
        cut = scene.found[method]
        if method != START:
            shown = torch.zeros_like(scene.frame) if cut is None else cut
            pictures.append(_compared(f"{method}: {error_text(rows[method])}", shown, scene.frame))
    pictures.append(_compared("truth", scene.truth, scene.frame))
    report.strip(title, f"{some.case}, frame {some.frame}", pictures)


def error_text(row: FrameResult) -> str:
    """The error in words."""
    lost = f"not located ({row.failure})" if row.failure else "not located"
    return lost if math.isnan(row.mtre_mm) else f"{row.mtre_mm:.2f} mm"


def _compared(caption: str, cut: Tensor, frame: Tensor) -> Picture:
    small, other = _small(cut), _small(frame)
    return Picture(caption, grey_pixels(small), red_difference_pixels(small, other))


def _small(image: Tensor) -> Tensor:
    factor = math.ceil(max(image.shape) / _LARGEST)
    return image if factor == 1 else torch.nn.functional.avg_pool2d(image[None], factor)[0]


def _by_error(rows: Sequence[FrameResult]) -> list[int]:
    errors = [math.inf if math.isnan(row.mtre_mm) else row.mtre_mm for row in rows]
    return sorted(range(len(rows)), key=errors.__getitem__)
