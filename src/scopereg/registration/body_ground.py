"""BodyGround: what a body is compared with: a volume as learned features show it, or grey values.

Features know frames that are turned by up to 25 degrees against the axes of a volume, and a volume may have any axes in
a tracker's world. Around a start pose the part that the body may reach can be seen along the body's middle frame.
"""

from __future__ import annotations

import itertools
import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from scopereg.devices import resolve_device
from scopereg.geometry import Pose
from scopereg.images import Frame, Volume, seen_from
from scopereg.registration.body import Body
from scopereg.registration.calibration import largest_offset
from scopereg.registration.fine import PreparedFine
from scopereg.registration.grey import WIDE, Grey
from scopereg.registration.learned import LearnedVolume
from scopereg.registration.likeness import PreparedLikeness
from scopereg.registration.network import PreparedNetwork, PreparedVolume
from scopereg.registration.prepared import Prepared
from scopereg.registration.refine import PreparedRefinement
from scopereg.registration.working_grid import isotropic

Array = npt.NDArray[np.float64]

_MARGIN_VOXELS = 28  # around a body at its start


class Ground(NamedTuple):
    """What a body is compared with: an isotropic volume as a likeness prepared it."""

    volume: Volume
    prepared: PreparedLikeness
    trust: float  # in a start: one over the variance of its errors in voxels
    device: torch.device
    fine: PreparedFine | None = None  # where its features are what is compared


def ground_of(volume: Volume, prepared: Prepared, network: PreparedNetwork | None, body: Body) -> Ground:
    """The learned features of the network's fine stage; else grey values, as a refinement prepared them or anew."""
    if network is not None and network.model.fine is not None:
        ready = _ready(network, body)
        fine = ready.fine
        assert fine is not None
        return Ground(ready.volume, LearnedVolume(fine.stage, fine.encoded, fine.section), 0.0, fine.device, fine)
    if isinstance(prepared, PreparedRefinement):
        refiner = prepared.refiner
        return Ground(prepared.volume, refiner.prepared, refiner.trust, refiner.device)
    device = resolve_device("cpu")
    volume, _ = isotropic(volume.for_registration())
    grey = Grey(WIDE)
    return Ground(volume, grey.prepare(volume.array.to(device), volume.known), 1 / grey.spread**2, device)


def turned_deg(network: PreparedNetwork, body: Body, start: Pose) -> float:
    """The largest angle that the middle frame of a body makes with the axes of the volume."""
    turned = _ready(network, body).volume.direction.T @ body.pose_of(body.middle_row, start).rotation
    return largest_offset(torch.from_numpy(turned), torch.zeros(3))


def ground_along(network: PreparedNetwork, body: Body, start: Pose) -> Ground | None:
    """The same around a body at its start, along its middle frame; None where the volume has nothing there."""
    volume = _ready(network, body).volume
    turned = volume.direction.T @ body.pose_of(body.middle_row, start).rotation
    step, axes = volume.isotropic_spacing_mm, volume.direction @ turned
    corners = [_corners_mm(frame, body.pose_of(row, start)) for row, frame in enumerate(body.frames)]
    low, high = _box(np.concatenate(corners) @ axes)
    least, most = _box(_corners_mm(volume) @ axes)
    low, high = np.maximum(low - _MARGIN_VOXELS * step, least), np.minimum(high + _MARGIN_VOXELS * step, most)
    width, height, depth = (math.ceil(length / step) + 1 for length in high - low)
    stage = network.model.fine
    if stage is None or min(width, height, depth) < _MARGIN_VOXELS:
        return None
    offset = volume.direction.T @ (axes @ (low + high) / 2 - volume.centre_mm) / step
    rotation, shift = (torch.tensor(part, dtype=torch.float32) for part in (turned, offset))
    part = seen_from(volume, rotation, shift, (depth, height, width))
    if not bool((part.array > 0).any()):
        return None
    device = network.model.device
    fine = PreparedFine(stage, part.for_registration().array.to(device), section=part.section_voxels)
    return Ground(part, LearnedVolume(stage, fine.encoded, fine.section), 0.0, device, fine)


def _ready(network: PreparedNetwork, body: Body) -> PreparedVolume:
    return network.volume_for(max(body.frames, key=lambda frame: math.prod(frame.extent_mm)))


def _corners_mm(image: Frame | Volume, pose: Pose | None = None) -> Array:
    """In its world, or where a pose puts them."""
    half = np.array([*image.extent_mm, 0.0][:3]) / 2
    signs = np.array(list(itertools.product((-1, 1), repeat=3)))
    if isinstance(image, Volume):
        return image.centre_mm + signs * half @ image.direction.T
    assert pose is not None
    return pose.apply(image.centre_mm + signs * half)


def _box(points: Array) -> tuple[Array, Array]:
    return points.min(0), points.max(0)
