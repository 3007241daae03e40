"""Learned: the likeness of learned features, which need share no speckle: what the fine stage compares."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from scopereg.geometry import VoxelPoses
from scopereg.images import largest_section
from scopereg.networks.fine import FineStage, FineVolume, FrameLevel, VolumeLevel
from scopereg.networks.pyramid import STRIDES
from scopereg.networks.weights import fine_beside, load_network, weights_file, weights_sha256
from scopereg.registration.fine import coverable
from scopereg.registration.likeness import NOTHING_SHARED, Local, Normal
from scopereg.registration.settings import DEFAULT

LEARNED = "learned"
_VOXELS = 160  # along a plane: the features know frames of so many pixels, see docs/register.md
_ITERATIONS = 10  # at each level, at most
_LONGEST = 2.0  # step in cells of a level
_LAST = 0.01  # step in voxels below which a level is finished
_LEAST_INSIDE = 0.3  # share of what a frame's features weigh that must lie in the volume


class Learned:
    """The likeness of the features of a fine stage."""

    name = LEARNED
    spread = math.inf  # they lead to the right place from as far as they were taught to
    most_voxels: int | None = _VOXELS

    def __init__(self, stage: FineStage) -> None:
        self.stage = stage
        self.facts: dict[str, Any] = {"weights": weights_sha256(stage.state_dict())}

    def prepare(self, volume: Float[Tensor, "d h w"], known: Bool[Tensor, "d h w"] | None = None) -> LearnedVolume:
        with torch.no_grad():
            shown = volume.float() if known is None else volume.float() * known.to(volume.device)
            section = math.inf if known is None else largest_section(known)
            return LearnedVolume(self.stage, self.stage.encode(shown[None]), section)


def make_learned(device: torch.device, far: bool) -> Learned:
    """Features of the fine stage that comes with the package."""
    with weights_file(DEFAULT) as path:
        stage = load_network(fine_beside(path), device)
    assert isinstance(stage, FineStage)
    return Learned(stage)


class LearnedVolume:
    """The features of a volume."""

    def __init__(self, stage: FineStage, encoded: FineVolume, section: float = math.inf) -> None:
        """Of a volume with a mask no plane has more than a `section` that counts, in square voxels."""
        self.stage, self.encoded, self.section = stage, encoded, section

    def compare(self, frames: Float[Tensor, "b h w"], seen: Float[Tensor, "b h w"]) -> Iterator[LearnedComparison]:
        read = self.stage.read(frames * (seen > 0))
        for level, (frame, volume) in enumerate(zip(read.levels, self.encoded.levels, strict=True)):
            yield LearnedComparison(self.stage, level, frame, volume, self.section)


class LearnedComparison:
    """Frames against a volume at one stride."""

    iterations: int = _ITERATIONS
    last_step: float = _LAST

    def __init__(
        self, stage: FineStage, level: int, frame: FrameLevel, volume: VolumeLevel, section: float = math.inf
    ) -> None:
        self.least = _LEAST_INSIDE * coverable(frame, section)
        self.stage, self.level, self.frame, self.volume = stage, level, frame, volume
        self.lever = frame.lever
        self.longest_step = _LONGEST * STRIDES[level]
        self.places = frame.points[:, :2]

    def similarity(self, poses: VoxelPoses) -> Float[Tensor, "b"]:
        """Mean cosine of the features, which have length 1."""
        found = self.stage.agreement(self.level, self.frame, self.volume, poses)
        enough = found.inside > self.least
        return torch.where(enough, 1 - found.residual / 2, NOTHING_SHARED)

    def normal(self, poses: VoxelPoses) -> Normal:
        """The equations of the fine stage, divided by what was compared: less of it is no merit."""
        return self._normal(poses, stretched=False)

    def stretched(self, poses: VoxelPoses) -> Normal:
        """The same with the size of pixels."""
        return self._normal(poses, stretched=True)

    def local(self, poses: VoxelPoses, off: Float[Tensor, "b n 3"]) -> Local:
        """The equations of points, divided by how far apart features usually are."""
        points = place_off(self.frame.points, poses, off)
        at = self.stage.local(self.level, self.frame, self.volume, points, poses.rotation)
        usual = (at.weights * at.squared).sum(1) / at.weights.sum(1).clamp_min(1e-6) / self.frame.vectors.shape[2]
        usual = usual.clamp_min(1e-6)
        return Local(at.among / usual[:, None, None, None], at.with_rest / usual[:, None, None])

    def _normal(self, poses: VoxelPoses, *, stretched: bool) -> Normal:
        found = self.stage.agreement(self.level, self.frame, self.volume, poses)
        at = self.stage.normal(self.level, self.frame, self.volume, poses, stretched=stretched)
        weight = found.compared.clamp_min(1e-6)
        return Normal(-found.robust / 2, at.matrix / weight[:, None, None], at.slope / weight[:, None])


def place_off(points: Float[Tensor, "n 3"], poses: VoxelPoses, off: Float[Tensor, "b n 3"]) -> Float[Tensor, "b n 3"]:
    """Where points of frames lie in volumes that are off their places."""
    return (points + off) @ poses.rotation.transpose(1, 2) + poses.translation[:, None]
