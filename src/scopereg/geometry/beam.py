"""Beam: how thick the slice of tissue is that an ultrasound frame shows, as told or by how deep the frame is.

A one-dimensional array has a lens of fixed focus across the plane. With the focus at half of the depth D, an aperture
of a twelfth of it and the frequency that reaches so deep (a wavelength of a 300th), the width at half of the power is
that of a cone that narrows to the focus and opens behind it, and of the diffraction of the aperture, as the root of the
sum of their squares: D sqrt((0.05 (1 - 2 z / D))^2 + (0.04 z / D)^2) at the depth z.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from scopereg.errors import ScopeRegError

ESTIMATED = "estimated"
FWHM = 2.3548  # of a Gaussian, in standard deviations
TAPS = (-1.6, -0.8, 0.0, 0.8, 1.6)  # standard deviations off the plane, where a slice is sampled
_WEIGHTS = [math.exp(-(tap**2) / 2) for tap in TAPS]
WEIGHTS = tuple(weight / sum(_WEIGHTS) for weight in _WEIGHTS)
_CONE, _DIFFRACTION = 0.05, 0.04  # shares of the depth: at the probe, and at the far end
_MOST_MM = 50.0


@dataclass(frozen=True)
class Thickness:
    """Of a slice, full width at half maximum: one number for all depths, or what these let expect."""

    mm: float | None  # None: by the depth

    @classmethod
    def of(cls, told: float | str | Thickness | None) -> Thickness | None:
        """From mm, or the word `estimated`; None for a slice that has none."""
        if told is None or isinstance(told, Thickness):
            return told
        if str(told).strip().lower() == ESTIMATED:
            return cls(None)
        try:
            number = float(told)
        except ValueError:
            number = math.nan
        if not 0 <= number <= _MOST_MM:
            raise ScopeRegError(
                f"the thickness is {told!r}",
                where="thickness_mm=",
                fix=f"pass millimetres, at most {_MOST_MM:g}, or {ESTIMATED}",
            )
        return cls(number) if number > 0 else None

    @property
    def words(self) -> str:
        return ESTIMATED if self.mm is None else f"{self.mm:g} mm"

    def at_mm(self, depth_mm: Tensor, deepest_mm: Tensor | float) -> Tensor:
        """At depths, of frames that end at the deepest."""
        if self.mm is not None:
            return torch.full_like(depth_mm, self.mm)
        share = (depth_mm / deepest_mm).clamp(0, 1)
        return deepest_mm * torch.hypot(_CONE * (1 - 2 * share), _DIFFRACTION * share)
