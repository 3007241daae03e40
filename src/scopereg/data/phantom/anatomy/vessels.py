"""Vessels: branching trees of tapered tubes."""

from __future__ import annotations

import torch
from torch import Tensor

from scopereg.data.phantom.anatomy.draws import Draws

_BENDS = 2  # tubes per branch with children: vessels are never straight
_SHORTER, _THINNER = 0.8, 0.8  # a child branch compared with its parent

_FLATTER = (1.0, 1.0, 0.6)  # scanning planes are chosen along the vessels, so these run more in the planes


class VesselTree:
    """Tubes: starts and ends (K, 3) in mm, radii (K, 2) in mm at both ends."""

    def __init__(self) -> None:
        self._starts: list[Tensor] = []
        self._ends: list[Tensor] = []
        self._radii: list[tuple[float, float]] = []

    def grow(
        self,
        draws: Draws,
        root_mm: Tensor,
        direction: Tensor,
        length_mm: float,
        radius_mm: float,
        generations: int,
        spread: float = 0.75,
    ) -> None:
        """Add a branch and all its children; `spread` is how far children turn away, 0..1."""
        place, heading, radius = root_mm, direction / direction.norm(), radius_mm
        bends = _BENDS if generations > 1 else 1
        for _ in range(bends):
            heading = _turned(heading, draws.direction(), 0.22)
            end = place + heading * (length_mm / bends)
            thinner = radius * draws.uniform(0.86, 0.96)
            self._starts.append(place)
            self._ends.append(end)
            self._radii.append((radius, thinner))
            place, radius = end, thinner
        if generations <= 1:
            return
        side = torch.linalg.cross(heading, draws.direction()) * torch.tensor(_FLATTER)
        side = side / side.norm().clamp_min(1e-3)
        for sign in (1.0, -1.0):
            child = _turned(heading, sign * side, spread * draws.uniform(0.6, 1.3))
            length, thin = length_mm * _SHORTER * draws.uniform(0.8, 1.2), radius * _THINNER * draws.uniform(0.85, 1.15)
            self.grow(draws, place, child, length, thin, generations - 1, spread)

    def tubes(self) -> tuple[Tensor, Tensor, Tensor]:
        """Starts, ends and radii for `shapes.tubes`."""
        return torch.stack(self._starts), torch.stack(self._ends), torch.tensor(self._radii)


def _turned(direction: Tensor, towards: Tensor, amount: float) -> Tensor:
    mixed = direction + amount * towards
    return mixed / mixed.norm().clamp_min(1e-6)
