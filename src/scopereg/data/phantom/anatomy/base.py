"""Anatomy: what every patient can tell about a point in space; Tissue: what a beam meets there."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from scopereg.data.phantom.anatomy.draws import Draws
from scopereg.data.phantom.fan import Fan
from scopereg.data.phantom.scanner import Scanner


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


class Anatomy(ABC):
    """A random patient, defined at every point (mm from the volume's centre; x right, y down, z across planes)."""

    name: ClassVar[str]
    label_names: ClassVar[Mapping[int, str]]
    usual_shape: ClassVar[tuple[int, int, int]]
    usual_spacing_mm: ClassVar[float]
    elevation_planes: ClassVar[float]  # sigma of the point spread across planes, in planes
    detail_mm: ClassVar[float]  # rays are sampled at least this finely, however coarse the image

    @abstractmethod
    def __init__(self, draws: Draws, sweep_mm: float, device: torch.device) -> None:
        """Draw a patient; `sweep_mm` is the distance from the first to the last plane of the volume."""

    @abstractmethod
    def tissue(self, x: Tensor, y: Tensor, z: Tensor, depth_mm: Tensor) -> Tissue:
        """Tissue that the beam meets at points whose coordinates broadcast.

        `depth_mm` is their distance from the face of the probe that is looking: skin, wall and coupling fluid lie
        against that probe, wherever it stands. Fixed in the patient they would show where the volume's probe stood.
        """

    @abstractmethod
    def labels(self, x: Tensor, y: Tensor, z: Tensor, depth_mm: Tensor) -> Tensor:
        """Class numbers, uint8, 0 = none of `label_names`; `depth_mm` as for `tissue`."""

    @abstractmethod
    def fan(self, draws: Draws, device: torch.device) -> Fan:
        """The transducer that acquires the volume."""

    @abstractmethod
    def scanner(self, draws: Draws, device: torch.device) -> Scanner:
        """The scanner that acquires the volume, with its image quality."""


def paint_labels(like: Tensor, layers: list[tuple[int, Tensor]]) -> Tensor:
    """Class numbers (uint8) from (number, inside mask) pairs, later ones on top."""
    labels = torch.zeros(like.shape, dtype=torch.uint8, device=like.device)
    for number, inside in layers:
        labels = torch.where(inside, number, labels)
    return labels.to(torch.uint8)
