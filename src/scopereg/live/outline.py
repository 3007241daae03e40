"""Outline: what of the pictures of a stream is lit; a change of depth that their sender does not state shows in it."""

from __future__ import annotations

from collections import deque

import torch
import torch.nn.functional as F
from torch import Tensor

from scopereg.images import Frame, field_of_view

_CELLS = 64  # along the longer side of a picture
_LIT = 0.04  # of the brightest: analogue video is never quite black
_TOGETHER = 5  # pictures whose outline is taken together, and that a change must last for
_GROWN, _SHRUNK = 0.06, 0.10  # shares of the outline so far that are new, and that are gone
_LEFT = 0.4  # of the outline so far that is still lit where the depth changed; a probe in air leaves less
_EVEN = 0.4  # of what is gone on one side that is gone on the other: a probe that is lifted on one side loses that


class Outline:
    """Follows the outline of pictures of one size; tells when it has become another one, and for good."""

    def __init__(self) -> None:
        self._latest: deque[Tensor] = deque(maxlen=_TOGETHER)
        self._usual: Tensor | None = None  # all that was ever lit
        self._odd = 0  # pictures in a row with another outline

    def changed(self, frame: Frame) -> bool:
        """Take a picture; true once where the outline has changed. The new one is what counts from then on."""
        self._latest.append(lit_cells(frame))
        now = field_of_view(torch.stack(tuple(self._latest)).amax(0))
        if self._usual is None or self._usual.shape != now.shape:
            self._usual, self._odd = now, 0
            return False
        if len(self._latest) < _TOGETHER or not _differs(self._usual > 0, now):
            self._odd = 0
            # Only from what is settled: a new outline must not creep in picture by picture.
            self._usual = field_of_view(torch.maximum(self._usual.float(), self._latest[-1])).float()
            return False
        self._odd += 1
        if self._odd < _TOGETHER:
            return False
        self._usual, self._odd = now.float(), 0
        return True


def lit_cells(frame: Frame) -> Tensor:
    """Where a picture is lit (H', W'), on a coarse grid, 0 or 1."""
    tissue = frame.tissue.float()
    height, width = tissue.shape
    step = -(-max(height, width) // _CELLS)
    coarse = F.avg_pool2d(tissue[None, None], (min(step, height), min(step, width)), ceil_mode=True)[0, 0]
    return (coarse > _LIT * coarse.amax().clamp_min(1e-6)).float()


def _differs(usual: Tensor, now: Tensor) -> bool:
    """Whether an outline is another one: larger, or smaller evenly about the middle."""
    area = float(usual.sum())
    grown, gone = now.bool() & ~usual, usual & ~now.bool()
    if float(grown.sum()) > _GROWN * area:
        return True
    if float(gone.sum()) <= _SHRUNK * area or float(now.sum()) < _LEFT * area:
        return False
    columns = usual.any(0).nonzero().flatten()
    middle = int(columns[0] + columns[-1] + 1) // 2
    left, right = float(gone[:, :middle].sum()), float(gone[:, middle:].sum())
    return min(left, right) >= _EVEN * max(left, right)
