"""Anatomy: what every patient can tell about a point in space."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor

from scopereg.data.phantom.anatomy.draws import Draws
from scopereg.data.phantom.anatomy.tissue import Tissue
from scopereg.data.phantom.fan import Fan
from scopereg.data.phantom.scanner import Scanner


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
        """What the beam meets at points whose coordinates broadcast.

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
