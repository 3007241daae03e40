"""Likeness: how alike frames and a volume are at a pose, and which way they become more so; what a refinement climbs.

A likeness is a part. Grey values are one (`registration.grey`); learned features or another modality are others, added
by `registration.method.register_likeness` and named `+refine=NAME`. Each prepares a volume once. For frames it then
makes comparisons, coarse to fine, which tell the equations of a step at any poses. How steps are taken, and how much
the start counts, is the refinement's (`registration.refine`).

What is asked for a pose asks nothing of the host and draws no random numbers, so that a GPU can replay it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from scopereg.geometry import VoxelPoses

NOTHING_SHARED = -1.0  # similarity of a frame of which too little lies in the volume


class Normal(NamedTuple):
    """The least-squares problem of one step, for each frame: three shifts, then three turns, see `geometry.steps`.

    Some tell two more numbers, see `Stretchable`.
    """

    merit: Float[Tensor, "b"]  # logarithm of the probability of what is seen, but for a constant
    matrix: Float[Tensor, "b k k"]
    slope: Float[Tensor, "b k"]  # of what falls when the merit rises


@runtime_checkable
class Comparison(Protocol):
    """Frames against a volume, more or less smoothed."""

    lever: float  # voxels: turns are ways of a point so far from the middle of the frame
    iterations: int  # at most; 0: poses are compared here, not moved
    longest_step: float  # voxels
    last_step: float  # voxels, below which a frame is left where it is

    def similarity(self, poses: VoxelPoses) -> Float[Tensor, "b"]:
        """How alike frames and volume are, 1 at the most; `NOTHING_SHARED` where too little could be compared."""
        ...

    def normal(self, poses: VoxelPoses) -> Normal:
        """The equations at poses (B, ...)."""
        ...


@runtime_checkable
class Stretchable(Comparison, Protocol):
    """A comparison that also tells how large pixels should be."""

    def stretched(self, poses: VoxelPoses) -> Normal:
        """The equations with two more: of frames that are wider and higher about their middles, by shares of the lever.

        Rotations may be scaled, as frames with pixels of another size have it.
        """
        ...


class Local(NamedTuple):
    """The least-squares problem of each point of frames alone: which shift along the frame's axes it asks for."""

    matrix: Float[Tensor, "b n 3 3"]  # of voxels; what all points say together is the sum, were they independent
    slope: Float[Tensor, "b n 3"]


@runtime_checkable
class Pointwise(Comparison, Protocol):
    """A comparison that also tells what each point of a frame says, for displacements that are not rigid."""

    places: Float[Tensor, "n 2"]  # points that are compared, in voxels from the middle of the frame

    def local(self, poses: VoxelPoses, off: Float[Tensor, "b n 3"]) -> Local:
        """The equations of points that lie `off` their places, in voxels along the frame's axes."""
        ...


@runtime_checkable
class PreparedLikeness(Protocol):
    """A volume that frames are compared with."""

    def compare(self, frames: Float[Tensor, "b h w"], seen: Float[Tensor, "b h w"]) -> Iterable[Comparison]:
        """Coarse to fine, for frames with pixels of the volume's spacing; `seen` is 1 where there is a picture."""
        ...


@runtime_checkable
class AveragesAcross(Protocol):
    """What a prepared likeness has besides where it can compare frames that are thicker than the volume."""

    def of_thick(self, across: Float[Tensor, "b h w"]) -> PreparedLikeness:
        """The volume averaged across the frames' planes: standard deviations of Gaussians in voxels, at each pixel."""
        ...


@runtime_checkable
class Likeness(Protocol):
    """Made for a device; prepares isotropic volumes with values in [0, 1]."""

    name: str  # in names of methods, tables and calibrations
    facts: dict[str, Any]  # what decides its results: settings, the hash of its weights; ready for JSON
    spread: float  # usual error of starts in voxels; what is weakly alike does not lead far beyond. Infinite: it may
    most_voxels: int | None  # along a plane of the volumes that it knows; None: as many as there are

    def prepare(self, volume: Float[Tensor, "d h w"], known: Bool[Tensor, "d h w"] | None) -> PreparedLikeness:
        """`known` is where the volume has a picture; by default its planes' field of view."""
        ...


MakeLikeness = Callable[[torch.device, bool], Likeness]  # on a device; whether starts are farther off than a network's
