"""Wide: the starts of a search that reaches beyond the offsets that a network was trained for.

A network that looks several times may begin anywhere: it decodes the encoded volume as seen from a start, and goes on
from where that leads. Others are given the volume as seen from a start, see `windows`. Beside the middle of the volume
there are two starts on each axis, shifted or turned; volumes that are larger than what the network knows have more.
"""

from __future__ import annotations

import itertools
import math
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
    step_voxels: float = 20.0
    """Between starts in a large volume, at most: networks find what lies within 10 of them."""
    looks: int = 8
    """From each start; three to five are enough within the offsets of the training."""
    kept: int = 3
    """Places that are given or refined: the one that is most like the frame need not be the right one."""
    again: int = 12
    """Places that are looked at from there, by a network that looks once or in a large volume."""
    kept_windows: int = 6
    """As `kept`, then: it takes more of them where the network is led about by single looks."""
    apart_mm: float = 1.0
    """Of two places that are not the same."""


def starts(options: WideOptions, room_voxels: tuple[float, float, float] = (0.0, 0.0, 0.0)) -> VoxelPoses:
    """The middle, shifts and turns: thirteen poses (13, ...) in centred voxels; then those all over the room (x, y, z).

    Room is how far starts may be from the middle of a volume that is larger than those of the training.
    """
    axes = torch.cat([torch.eye(3), -torch.eye(3)])
    still = torch.zeros(6, 3)
    shifts = torch.cat([torch.zeros(1, 3), options.shift_voxels * axes, still])
    turns = torch.cat([torch.zeros(1, 3), still, options.turn_deg * axes])
    spread = [_spread(room, options.step_voxels) for room in room_voxels]
    farther = torch.tensor([place for place in itertools.product(*spread) if any(place)]).reshape(-1, 3)
    shifts, turns = torch.cat([shifts, farther]), torch.cat([turns, torch.zeros_like(farther)])
    return VoxelPoses(rotation_from_euler_deg(turns), shifts)


def _spread(room: float, step: float) -> list[float]:
    """Evenly from one end to the other, the middle among them; a small room needs none but that."""
    count = math.ceil(room / step) if room > step / 3 else 0
    return torch.linspace(-room, room, 2 * count + 1).tolist() if count else [0.0]
