"""Tissue: what a beam meets at each point, painted from the background to the front."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor


@dataclass(frozen=True)
class Interface:
    """A smooth surface that reflects like a mirror: bright where the beam meets it squarely."""

    distance_mm: Tensor  # signed distance to the surface
    peak_db: Tensor | float  # echo at normal incidence, 0 dB = white
    thickness_mm: float
    exponent: float = 2.0  # how fast it fades with the angle, as a power of the cosine


@dataclass
class Tissue:
    """Echogenicity and attenuation on a set of points, all of one shape."""

    echo_db: Tensor  # mean backscatter, 0 dB = white
    excess_db_per_mm: Tensor  # attenuation beyond what the time-gain compensates, both ways
    fibre_db: Tensor  # echo lost where the beam runs along the wall of `fibre_distance_mm`
    interfaces: list[Interface] = field(default_factory=list)
    fibre_distance_mm: Tensor | None = None

    @classmethod
    def background(cls, echo_db: Tensor, excess_db_per_mm: float = 0.0) -> Tissue:
        """Everything filled with one tissue."""
        return cls(echo_db.clone(), torch.full_like(echo_db, excess_db_per_mm), torch.zeros_like(echo_db))

    def paint(self, share: Tensor, echo_db: Tensor | float, excess_db_per_mm: float = 0.0) -> None:
        """Lay a tissue over what is there, `share` 0..1 of each point."""
        self.echo_db = self.echo_db + share * (echo_db - self.echo_db)
        self.excess_db_per_mm = self.excess_db_per_mm + share * (excess_db_per_mm - self.excess_db_per_mm)

    def brighten(self, share: Tensor, gain_db: float) -> None:
        """Add to the echo of what is there."""
        self.echo_db = self.echo_db + share * gain_db

    def reflect(
        self, distance_mm: Tensor, peak_db: Tensor | float, thickness_mm: float = 0.5, exponent: float = 2.0
    ) -> None:
        """Add a mirror-like surface."""
        self.interfaces.append(Interface(distance_mm, peak_db, thickness_mm, exponent))
