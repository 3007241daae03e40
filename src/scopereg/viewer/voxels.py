"""Voxels: a volume as the page gets it, one byte each, at a size that any graphics card takes."""

from __future__ import annotations

import gzip
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F

from scopereg.images import Volume, unit_range
from scopereg.io.stored import is_anatomical
from scopereg.viewer.packets import flat

LONGEST_SIDE = 256  # what WebGL2 promises for 3D textures
_FAST = 1  # of gzip: over loopback time counts more than bytes


@dataclass(frozen=True)
class Overlay:
    """What lies over a volume."""

    packed_labels: bytes = b""  # uint8 on the grid of the volume's voxels, x fastest, as gzip; 0 for none
    labels_file: str = ""
    labels: tuple[Mapping[str, Any], ...] = ()  # name, value and colour of what 1, 2, ... stand for
    landmarks_file: str = ""
    landmarks: tuple[Mapping[str, Any], ...] = ()  # name and place (mm, LPS) of each
    notes: tuple[str, ...] = ()

    def state(self) -> dict[str, Any]:
        """All but the voxels, ready for JSON."""
        return {
            "labels_file": self.labels_file,
            "labels": list(self.labels),
            "landmarks_file": self.landmarks_file,
            "landmarks": list(self.landmarks),
        }


@dataclass(frozen=True)
class Voxels:
    """A volume to be shown."""

    generation: int  # of the volumes of a viewer: tells an old one from the present one
    name: str
    shape: tuple[int, int, int]  # x, y, z
    spacing_mm: tuple[float, float, float]
    index_to_world: npt.NDArray[np.float64]  # 4x4, from (i, j, k, 1) to LPS mm
    packed: bytes  # uint8, x fastest, as gzip
    overlay: Overlay | None = None
    anatomical: bool = False  # whether its axes are a patient's

    def state(self) -> dict[str, Any]:
        """All but the voxels, ready for JSON."""
        return {
            "generation": self.generation,
            "name": self.name,
            "shape": list(self.shape),
            "spacing_mm": [round(step, 6) for step in self.spacing_mm],
            "index_to_world": flat(self.index_to_world),
            "overlay": None if self.overlay is None else self.overlay.state(),
            "anatomical": self.anatomical,
        }


def voxels_of(volume: Volume, name: str, generation: int) -> Voxels:
    """The volume for a page: large axes are shrunk by means over a whole number of voxels, each axis by its own."""
    factors = [math.ceil(n / LONGEST_SIDE) for n in volume.shape]  # z, y, x
    values = unit_range(volume.array.detach().cpu())
    if max(factors) > 1:
        values = F.avg_pool3d(values[None, None], factors)[0, 0]
    grey = (values * 255).round().to(torch.uint8).numpy()
    depth, height, width = grey.shape
    steps = [step * factor for step, factor in zip(volume.spacing_mm, reversed(factors), strict=True)]
    return Voxels(
        generation,
        name,
        (width, height, depth),
        (steps[0], steps[1], steps[2]),
        _index_to_world(volume, factors[::-1]),
        gzip.compress(grey.tobytes(), _FAST),
        anatomical=is_anatomical(volume),
    )


def world_matrix(volume: Volume) -> npt.NDArray[np.float64]:
    """4x4, from the indices (i, j, k, 1) of a volume to LPS mm."""
    return _index_to_world(volume, [1, 1, 1])


def _index_to_world(volume: Volume, factors: list[int]) -> npt.NDArray[np.float64]:
    """Of the shrunk grid, whose first voxel lies amid those that it is the mean of."""
    spacing = np.asarray(volume.spacing_mm)
    matrix = np.eye(4)
    matrix[:3, :3] = volume.direction * (spacing * factors)
    matrix[:3, 3] = np.asarray(volume.origin_mm) + volume.direction @ (spacing * (np.array(factors) - 1) / 2)
    return matrix
