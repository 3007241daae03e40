"""BodyLikeness: how alike the frames of a body are to a volume at its pose, and which way the body moves to be more so.

The equations of a step are those of the frames (`registration.likeness`), brought to the six unknowns of the body by
the chain rule and summed. So the loop of the refinement descends a body as it descends a frame, by any likeness.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from scopereg.geometry import Pose, VoxelPoses
from scopereg.geometry.steps import lever_voxels
from scopereg.images import pose_from_voxels
from scopereg.networks.anywhere import FarFrame, alike
from scopereg.networks.fine import FineFrame, FineVolume
from scopereg.registration.body import BODY, Body
from scopereg.registration.body_ground import Ground as Ground
from scopereg.registration.likeness import NOTHING_SHARED, Comparison, Normal
from scopereg.registration.refine import descend


@dataclass(frozen=True)
class _Part:
    """Frames of one size."""

    rows: tuple[int, ...]  # in the body
    comparisons: tuple[Comparison, ...]  # coarse to fine
    relative: VoxelPoses  # of the frames in the body, about its centre, in voxels
    lever: float
    read: FineFrame | None


class BodyComparison:
    """A body against a volume at one level: a `Comparison` of one pose."""

    def __init__(self, parts: Sequence[tuple[Comparison, VoxelPoses, Tensor]], lever: float) -> None:
        """Comparisons of frames, where these lie in the body, and how much each counts."""
        self._parts, self.lever = list(parts), lever
        every = [comparison for comparison, _, _ in parts]
        self.iterations = max(one.iterations for one in every)
        self.longest_step = min(one.longest_step for one in every)
        self.last_step = min(one.last_step for one in every)
        self._chains = [chain(relative, one.lever, lever) for one, relative, _ in parts]

    def similarity(self, poses: VoxelPoses) -> Float[Tensor, "b"]:
        """Mean of the frames; one that lies outside is like nothing."""
        total, mass = torch.zeros(1, device=poses.rotation.device), torch.zeros(1, device=poses.rotation.device)
        anything = torch.zeros(1, dtype=torch.bool, device=poses.rotation.device)
        for comparison, relative, weights in self._parts:
            alike = comparison.similarity(carried(poses, relative))
            shares = alike > NOTHING_SHARED
            total = total + (weights * torch.where(shares, alike, 0.0)).sum()
            mass, anything = mass + weights.sum(), anything | shares.any()
        return torch.where(anything, total / mass.clamp_min(1e-9), NOTHING_SHARED)

    def normal(self, poses: VoxelPoses) -> Normal:
        """The sums over frames."""
        merit, matrix, slope = [], [], []
        for (comparison, relative, weights), jacobian in zip(self._parts, self._chains, strict=True):
            at = comparison.normal(carried(poses, relative))
            merit.append((weights * at.merit).sum())
            matrix.append(torch.einsum("n,nki,nkl,nlj->ij", weights, jacobian, at.matrix, jacobian))
            slope.append(torch.einsum("n,nki,nk->i", weights, jacobian, at.slope))
        return Normal(*(torch.stack(each).sum(0)[None] for each in (merit, matrix, slope)))


def carried(poses: VoxelPoses, relative: VoxelPoses) -> VoxelPoses:
    """Poses of frames that lie so in a body at each of its poses: those of a frame follow one another."""
    rotation = poses.rotation @ relative.rotation.unsqueeze(1)  # (frames, poses, 3, 3)
    shifted = (poses.rotation @ relative.translation[:, None, :, None]).squeeze(-1) + poses.translation
    return VoxelPoses(rotation.flatten(0, 1), shifted.flatten(0, 1))


def chain(relative: VoxelPoses, frame_lever: float, body_lever: float) -> Float[Tensor, "n 6 6"]:
    """How steps of frames follow from a step of their body, both as `geometry.steps` has them.

    A body that shifts by s and turns by w takes a frame that lies at t in it along by s + w x t, and turns it by w;
    both told in the frame's own axes.
    """
    back, place = relative.rotation.transpose(1, 2), relative.translation
    zero = torch.zeros_like(place[:, 0])
    x, y, z = place.unbind(1)
    cross = torch.stack([zero, -z, y, z, zero, -x, -y, x, zero], 1).unflatten(1, (3, 3))  # t x
    above = torch.cat([back, -back @ cross / body_lever], 2)
    below = torch.cat([torch.zeros_like(back), back * (frame_lever / body_lever)], 2)
    return torch.cat([above, below], 1)


class BodyOnGround:
    """A body whose frames are on the voxels of a ground, to be compared at any poses, and moved."""

    @torch.no_grad()
    def __init__(self, body: Body, ground: Ground) -> None:
        """Frames with grey values in [0, 1]."""
        self.body, self.ground = body, ground
        step = ground.volume.isotropic_spacing_mm
        fine = self._frames = [frame.resampled(step) for frame in body.frames]
        shapes = dict.fromkeys(frame.shape for frame in fine)
        self._parts: list[_Part] = []
        for shape in shapes:
            rows = tuple(row for row, frame in enumerate(fine) if frame.shape == shape)
            images, seen = (
                torch.stack([getattr(fine[row], what) for row in rows]).to(ground.device, torch.float32)
                for what in ("tissue", "seen")
            )
            comparisons = tuple(ground.prepared.compare(images, seen))
            read = None if ground.fine is None else ground.fine.read(images * (seen > 0))
            self._parts.append(_Part(rows, comparisons, self._places_of(rows), lever_voxels(*shape), read))
        self.lever = self._lever()

    def of_places(self, body: Body) -> BodyOnGround:
        """The same frames elsewhere beside one another: they are not read again."""
        same = copy.copy(self)
        same.body = body
        same._parts = [replace(part, relative=same._places_of(part.rows)) for part in self._parts]
        same.lever = same._lever()
        return same

    def _places_of(self, rows: Sequence[int]) -> VoxelPoses:
        places = [self._relative(row, self._frames[row].centre_mm) for row in rows]
        return VoxelPoses(*(torch.stack(part).to(self.ground.device) for part in zip(*places, strict=True)))

    def _lever(self) -> float:
        squared = [
            part.lever**2 + float(part.relative.translation[number].square().sum())
            for part in self._parts
            for number in range(len(part.rows))
        ]
        return math.sqrt(sum(squared) / len(squared))

    def _relative(self, row: int, middle_mm: np.ndarray) -> tuple[Tensor, Tensor]:
        pose = self.body.image_to_body[row]
        place = (pose.apply(middle_mm) - self.body.centre_mm) / self.ground.volume.isotropic_spacing_mm
        return torch.tensor(pose.rotation, dtype=torch.float32), torch.tensor(place, dtype=torch.float32)

    def to_voxels(self, body_to_volume: Pose) -> VoxelPoses:
        """A pose (1, ...) in centred voxels, of the body about its centre."""
        volume = self.ground.volume
        rotation = volume.direction.T @ body_to_volume.rotation
        offset = volume.direction.T @ (body_to_volume.apply(self.body.centre_mm) - volume.centre_mm)
        told = (rotation, offset / volume.isotropic_spacing_mm)
        return VoxelPoses(*(torch.tensor(each, dtype=torch.float32, device=self.ground.device)[None] for each in told))

    def from_voxels(self, poses: VoxelPoses) -> Pose:
        volume = self.ground.volume
        rotation, translation = (part[0].detach().cpu().double().numpy() for part in poses)
        turned = volume.direction @ Pose(rotation, np.zeros(3)).rotation
        offset = volume.direction @ translation * volume.isotropic_spacing_mm
        shift = volume.centre_mm + offset - turned @ self.body.centre_mm
        return Pose(turned, shift, BODY, volume.frame_of_reference)

    @torch.no_grad()
    def descend(self, start: Pose, weights: Tensor, *, levels: int | None = None) -> Pose:
        """Where the likeness of all frames leads from a start, in its first so many levels; no less alike than there.

        `weights` (N,) say how much each frame counts.
        """
        first = poses = self.to_voxels(start)
        chosen = list(self._levels(weights))[:levels]
        for comparison in chosen:
            if comparison.iterations:
                poses, _ = descend(comparison, first, poses, self.ground.trust)
        better = bool((chosen[-1].similarity(poses) >= chosen[-1].similarity(first)).all())
        return self.from_voxels(poses) if better else start

    @torch.no_grad()
    def likeness(self, body_to_volume: Pose) -> Tensor:
        """How alike each frame is to the volume there (N,), on the host: `PreparedFine.likeness`, or the similarity."""
        told, poses = torch.zeros(len(self.body)), self.to_voxels(body_to_volume)
        for part in self._parts:
            there = carried(poses, part.relative)
            if self.ground.fine is not None and part.read is not None:
                alike = self.ground.fine.likeness(part.read, there)
            else:
                alike = part.comparisons[-1].similarity(there).clamp_min(0.0)
            told[list(part.rows)] = alike.float().cpu()
        return told

    @torch.no_grad()
    def freed(self, body_to_volume: Pose) -> list[Pose]:
        """`ImageToVolume` of where each frame goes by itself from where the body has it."""
        told: dict[int, Pose] = {}
        poses = self.to_voxels(body_to_volume)
        for part in self._parts:
            there = self._settled(part, carried(poses, part.relative))
            for number, row in enumerate(part.rows):
                turned, shifted = there.rotation[number], there.translation[number]
                told[row] = pose_from_voxels(turned, shifted, self._frames[row], self.ground.volume)
        return [told[row] for row in range(len(self.body))]

    @torch.no_grad()
    def stretches(self, body_to_volume: Pose) -> Float[Tensor, "n 2"]:
        """How many times as wide and as high pixels of each frame would fit best; ones without learned features."""
        told = torch.ones(len(self.body), 2)
        poses = self.to_voxels(body_to_volume)
        for part in self._parts:
            if self.ground.fine is not None and part.read is not None:
                sizes = self.ground.fine.stretch(part.read, carried(poses, part.relative))
                told[list(part.rows)] = sizes.float().cpu()
        return told

    def _settled(self, part: _Part, first: VoxelPoses) -> VoxelPoses:
        if self.ground.fine is not None and part.read is not None:
            return self.ground.fine.locate(part.read, first)  # as it was taught to settle
        there = first
        for comparison in part.comparisons:
            if comparison.iterations:
                there, _ = descend(comparison, first, there, self.ground.trust)
        last = part.comparisons[-1]
        better = last.similarity(there) >= last.similarity(first)
        rotation = torch.where(better[:, None, None], there.rotation, first.rotation)
        return VoxelPoses(rotation, torch.where(better[:, None], there.translation, first.translation))

    @property
    def tells_places(self) -> bool:
        """Whether its features tell a place of the volume from others."""
        return self.ground.fine is not None

    @torch.no_grad()
    def place_likeness(
        self, poses: VoxelPoses, rows: Sequence[int], most_points: int | None = None
    ) -> Float[Tensor, "k"]:
        """How alike some of the frames are to the places that poses (K, ...) of the body put them at: their mean.

        By at most so many points of a frame, those that tell most.
        """
        total = torch.zeros(len(poses.rotation), device=self.ground.device)
        for part in self._parts:
            chosen = torch.tensor([number for number, row in enumerate(part.rows) if row in rows], dtype=torch.int64)
            if len(chosen):
                assert self.ground.fine is not None
                assert part.read is not None
                far = part.read.pick(chosen.to(self.ground.device)).far
                if most_points is not None and most_points < len(far.points):
                    told = far.weights.sum(0).topk(most_points).indices
                    far = FarFrame(far.vectors[:, told], far.weights[:, told], far.seen[:, told], far.points[told])
                there = carried(poses, VoxelPoses(*(each[chosen] for each in part.relative)))
                total = total + alike(far, self.ground.fine.encoded.far, there).sum(0)
        return total / len(rows)

    def sought(self, row: int) -> tuple[FineFrame, VoxelPoses, FineVolume]:
        """A frame as it is read, where it lies in the body (1, ...), and the volume as it is encoded."""
        (part,) = (part for part in self._parts if row in part.rows)
        assert self.ground.fine is not None
        assert part.read is not None
        place = torch.tensor([part.rows.index(row)], device=self.ground.device)
        return part.read.pick(place), VoxelPoses(*(each[place] for each in part.relative)), self.ground.fine.encoded

    def _levels(self, weights: Tensor) -> list[BodyComparison]:
        count = len(self._parts[0].comparisons)
        return [
            BodyComparison(
                [
                    (part.comparisons[level], part.relative, weights[list(part.rows)].to(self.ground.device))
                    for part in self._parts
                ],
                self.lever,
            )
            for level in range(count)
        ]
