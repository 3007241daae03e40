"""Signs: what tells, without the truth, how well a network located a frame; one row of numbers for each frame.

Nothing here waits for the GPU or depends on values on the host, so that a session can record it.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from scopereg.geometry import VoxelPoses, target_points
from scopereg.networks.streaming import Located
from scopereg.registration.refine import Level, RefineOptions, Refiner

SIGNS = (
    "residual",  # log mm of the coordinates from the plane fitted to them
    "entropy",  # of the evidence over the cells, 1 where all say the same amount
    "mass",  # mean logarithm of the evidence
    "coarse",  # correlation of frame and volume at the pose, smoothed and normalised by their surroundings
    "medium",  # the same, less smoothed
    "spread",  # log mm that the pose moves under small changes of the frame; only where these are asked for
)
LIKENESS = slice(3, 5)  # the signs that change when the pose is refined
WORSE = {"residual": 1, "mass": -1, "coarse": -1, "medium": -1, "spread": 1}
"""Which way a sign is bad. Entropy has no such way: few cells may say much of a right place or of a wrong one."""

_LEVELS = (Level(2, 2, 5, 0), Level(1, 2, 3, 0))
_LEAST_MM = 0.05  # added before a logarithm: what is less says no more
_NOTHING = 1e-12  # evidence that is none
_MOST = 20.0  # logarithm that is still a number of mm
_GAMMAS = ((1.0, 0.8), (1.15, 1.25))  # gain and gamma
_SHIFTS_PX = ((0, 3), (-3, 0))  # x and y
CHANGES = len(_GAMMAS) + len(_SHIFTS_PX)


class Witness:
    """A volume prepared to tell the signs of frames located in it."""

    def __init__(self, volume: Tensor, spacing_mm: float) -> None:
        """`volume` (D, H, W) in [0, 1], on the device of the frames to come."""
        self.spacing_mm = spacing_mm
        self._refiner = Refiner(volume, RefineOptions(levels=_LEVELS))
        # Made here, since what is recorded may not copy from the host.
        self._targets = target_points((volume.shape[1], volume.shape[2]), device=volume.device)
        self._shifts = torch.tensor([(float(x), float(y), 0.0) for x, y in _SHIFTS_PX], device=volume.device)

    def likeness(self, images: Tensor, poses: VoxelPoses) -> Tensor:
        """The signs (B, 2) of frames (B, H, W) at poses that depend on nothing else."""
        return self._refiner.likeness(images, poses)

    def signs(self, images: Tensor, found: Located) -> Tensor:
        """Signs (B, 5) of frames (B, H, W), or (B, 6) where `found` also has those of `with_changes(images)`."""
        count = len(images)
        poses = VoxelPoses(found.rotation.float(), found.translation.float())
        own = VoxelPoses(poses.rotation[:count], poses.translation[:count])
        evidence = found.evidence[:count].float().clamp_min(_NOTHING)
        parts = [self._log_mm(found.residual[:count]), _entropy(evidence), evidence.log().mean(1)]
        signs = torch.cat([torch.stack(parts, 1), self.likeness(images, own)], 1)
        if len(poses.rotation) == count:
            return signs
        return torch.cat([signs, self._spread(own, poses).unsqueeze(1)], 1)

    def _spread(self, own: VoxelPoses, every: VoxelPoses) -> Tensor:
        """How far frames move when they are changed, on average over the changes; what a shift does is undone."""
        count = len(own.rotation)
        rotation = every.rotation[count:].unflatten(0, (CHANGES, count))
        translation = every.translation[count:].unflatten(0, (CHANGES, count))
        still = torch.zeros_like(self._shifts[:1]).expand(len(_GAMMAS), -1)
        shifts = torch.cat([still, self._shifts])[:, None, :, None]  # (CHANGES, 1, 3, 1)
        translation = translation + (rotation @ shifts).squeeze(-1)
        turned = (rotation - own.rotation) @ self._targets.T  # (CHANGES, B, 3, targets)
        apart = turned + (translation - own.translation).unsqueeze(-1)
        return self._log_mm(torch.linalg.vector_norm(apart, dim=2).mean((0, 2)))

    def _log_mm(self, voxels: Tensor) -> Tensor:
        return (voxels.float() * self.spacing_mm + _LEAST_MM).log()


def with_changes(images: Tensor) -> Tensor:
    """Frames (B, H, W), then all of them under each small change: (B (1 + CHANGES), H, W)."""
    grey = [(images.clamp_min(0) * gain).clamp(0, 1) ** gamma for gain, gamma in _GAMMAS]
    moved = [F.pad(images, (x, -x, y, -y)) for x, y in _SHIFTS_PX]
    return torch.cat([images, *grey, *moved])


def mm_of(sign: float) -> float:
    """A sign in log mm as mm."""
    return max(math.exp(min(sign, _MOST)) - _LEAST_MM, 0.0)


def _entropy(evidence: Tensor) -> Tensor:
    share = evidence / evidence.sum(1, keepdim=True)
    return -(share * share.log()).sum(1) / math.log(max(evidence.shape[1], 2))
