"""Wide: the starts of a search that reaches beyond the offsets that a network was trained for.

A network that looks several times may begin anywhere: it decodes the encoded volume as seen from a start, and goes on
from where that leads. Beside the middle of the volume there are two starts on each axis, shifted or turned.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from scopereg.geometry import VoxelPoses, rotation_from_euler_deg


@dataclass(frozen=True)
class WideOptions:
    """How far and how long to look."""

    shift_voxels: float = 12.0
    """Of a start that is shifted: a little more than what networks are trained for."""
    turn_deg: float = 12.0
    """Of a start that is turned."""
    looks: int = 8
    """From each start; three to five are enough within the offsets of the training."""
    kept: int = 3
    """Places that are given or refined: the one that is most like the frame need not be the right one."""
    apart_mm: float = 1.0
    """Of two places that are not the same."""


def starts(options: WideOptions) -> VoxelPoses:
    """The middle, shifts and turns: thirteen poses (13, ...) in centred voxels."""
    axes = torch.cat([torch.eye(3), -torch.eye(3)])
    still = torch.zeros(6, 3)
    shifts = torch.cat([torch.zeros(1, 3), options.shift_voxels * axes, still])
    turns = torch.cat([torch.zeros(1, 3), still, options.turn_deg * axes])
    return VoxelPoses(rotation_from_euler_deg(turns), shifts)
