"""Fine: a volume prepared for the fine stage of a network, which brings what the network found to a part of a voxel."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from scopereg.devices import full_precision
from scopereg.geometry import VoxelPoses
from scopereg.geometry.steps import inverse_positive, moved, solve_positive
from scopereg.networks.anywhere import alike
from scopereg.networks.fine import FINEST, FineFrame, FineStage, FineVolume, FrameLevel
from scopereg.networks.passes import place
from scopereg.networks.pyramid import read_table, volume_lattice
from scopereg.ops import descent

_STEADY = 1e-6  # curvature that is none: along what nothing tells a step is long, but a number
_LEAST = 1e-6  # residual and variance whose logarithm is taken
UNSAID_STRETCH = 0.005  # that says nothing, added before its logarithm is taken
_CONTENT = 4  # voxels between places that are known to show something
_SHARED = 0.5  # of a frame, that must lie where the volume shows something, for places to be compared
_DAMPING = 0.01  # share of the curvature
_STRETCHES = (3, 3, 3)  # steps at each stride, coarse to fine, of a pose with the size of the pixels
_FAR = 1e6  # voxels: no step is as long
_LARGEST, _SMALLER = 0.12, 0.05  # a step in that size, alone and of several
_LEAST_INSIDE = 0.3  # share of what a frame's features weigh that must lie in the volume to be alike at all


class Stretched(NamedTuple):
    """Where frames fit better with pixels of other sizes."""

    poses: VoxelPoses
    factors: Float[Tensor, "b 2"]  # how many times as wide and as high the pixels are there


def coverable(frame: FrameLevel, section: float) -> Float[Tensor, "b"]:
    """The share of frames that planes of a volume can cover at most, of whose voxels no more than a `section` count."""
    height, width = (frame.points[:, axis].amax() - frame.points[:, axis].amin() + 1 for axis in (1, 0))
    shown = (frame.weights > 0).float().mean(1) * height * width
    return (section / shown.clamp_min(1.0)).clamp_max(1.0)


class PreparedFine:
    """Frames of one volume, on its grid."""

    def __init__(
        self,
        stage: FineStage,
        volume: Float[Tensor, "d h w"],
        encoded: FineVolume | None = None,
        *,
        section: float = math.inf,
    ) -> None:
        """`volume` in [0, 1]; `encoded` where somebody has that already.

        Of a volume with a mask no plane has more than a `section` that counts, in square voxels.
        """
        self.stage, self.section = stage, section
        with torch.inference_mode():
            self.encoded = encoded or stage.encode(volume[None].float())
            shown = F.max_pool3d((volume[None] > 0).float(), _CONTENT + 1, _CONTENT, _CONTENT // 2)
            self._shown = shown.unsqueeze(-1), volume_lattice(volume.shape, shown.shape[1:], _CONTENT)

    @torch.inference_mode()
    def read(self, images: Float[Tensor, "b h w"]) -> FineFrame:
        """Images in [0, 1], black where nothing is to be compared."""
        return self.stage.read(images.float())

    @torch.inference_mode()
    def locate(self, frames: FineFrame, start: VoxelPoses) -> VoxelPoses:
        """From poses that a network found, in centred voxels."""
        return self.stage.settle(frames, self.encoded, start)

    @torch.inference_mode()
    def apart(self, frames: FineFrame, poses: VoxelPoses, level: int = FINEST) -> Float[Tensor, "b"]:
        """How far features of frames and volume are apart; infinite where the volume shows too little of a frame."""
        frame = frames.levels[level]
        found = self.stage.agreement(level, frame, self.encoded.levels[level], poses).robust
        shown, inside = read_table(*self._shown, place(frame.points, *poses) / _CONTENT)
        shared = (frame.weights * shown[..., 0] * inside).sum(1) / frame.weights.sum(1).clamp_min(1e-6)
        return found.masked_fill(shared < _SHARED * coverable(frame, self.section), torch.inf)

    @torch.inference_mode()
    def features(self, frames: FineFrame, poses: VoxelPoses) -> Float[Tensor, "b 4"]:
        """What tells how good poses are, see `confidence.FINE_FEATURES`.

        How far features of frame and volume are apart; how surely they tell the pose; how alike the frame is to this
        place at all; and by how much it would fit better with pixels of another size.
        """
        frame = frames.levels[FINEST]
        with full_precision(poses.rotation.device):
            at = self.stage.normal(FINEST, frame, self.encoded.levels[FINEST], poses)
            steady = at.matrix + _STEADY * torch.eye(6, device=at.matrix.device)
            variance = inverse_positive(steady).diagonal(dim1=1, dim2=2).sum(1) * at.residual / len(frame.points)
            stretch = self.stretch(frames, poses)
        return torch.stack(
            [
                at.residual.clamp_min(_LEAST).log(),
                variance.clamp_min(_LEAST).log() / 2,
                alike(frames.far, self.encoded.far, poses)[:, 0],
                ((stretch - 1).abs().amax(1) + UNSAID_STRETCH).log(),
            ],
            1,
        )

    @torch.inference_mode()
    def stretch(self, frames: FineFrame, poses: VoxelPoses) -> Float[Tensor, "b 2"]:
        """How many times as wide and as high pixels would fit best, sought together with the pose from these poses."""
        sizes = torch.ones(len(poses.rotation), 2, device=poses.rotation.device)
        if descent.serves(self.encoded.levels[0].table):
            return self._stretch(frames, poses, sizes)
        for level, steps in enumerate(_STRETCHES):
            for _ in range(steps):
                poses, factors = self._stretched(level, frames, poses, sizes, _SMALLER)
                sizes = sizes * factors
        return sizes

    def _stretch(self, frames: FineFrame, poses: VoxelPoses, sizes: Float[Tensor, "b 2"]) -> Float[Tensor, "b 2"]:
        """The same by kernels."""
        rotation, translation = poses.rotation.float(), poses.translation.float()
        for level, (frame, volume) in enumerate(zip(frames.levels, self.encoded.levels, strict=True)):
            rule = self.stretching(level, frame.lever)
            table = descent.Table(volume.table, volume.lattice.start, volume.stride)
            sought = (frame.vectors, frame.weights, frame.points, rotation, translation)
            rotation, translation, sizes = descent.descend(table, *sought, rule, sizes)
        return sizes

    def stretching(self, level: int, lever: float) -> descent.Rule:
        """How steps in a pose and the size of the pixels are taken."""
        damping, floor = (torch.full((8,), share, device=self.device) for share in (_DAMPING, _STEADY))
        tolerance = self.stage.log_tolerance[level].exp()
        return descent.Rule(_STRETCHES[level], damping, floor, tolerance, lever, _FAR, _SMALLER)

    @torch.inference_mode()
    def likeness(self, frames: FineFrame, poses: VoxelPoses) -> Float[Tensor, "b"]:
        """How alike frames are to the volume: the cosine of their details, and how alike the place is as a whole.

        Details of any two pictures of tissue are somewhat alike (0.6), places are not (0): about 0.95 where a frame
        lies, and 0 where too little of it lies in the volume.
        """
        with full_precision(poses.rotation.device):
            found = self.stage.agreement(FINEST, frames.levels[FINEST], self.encoded.levels[FINEST], poses)
            told = 1 - found.residual / 2 + alike(frames.far, self.encoded.far, poses)[:, 0]
        least = _LEAST_INSIDE * coverable(frames.levels[FINEST], self.section)
        return torch.where(found.inside >= least, told, 0.0)

    @torch.inference_mode()
    def stretched(self, frames: FineFrame, poses: VoxelPoses, *, coarsely: bool = False) -> Stretched:
        """One step in the pose and the size of pixels together, from poses where the features agree."""
        sizes = torch.ones(len(poses.rotation), 2, device=self.device)
        with full_precision(self.device):
            return self._stretched(FINEST - coarsely, frames, poses, sizes, _LARGEST)

    def _stretched(
        self, level: int, frames: FineFrame, poses: VoxelPoses, sizes: Float[Tensor, "b 2"], largest: float
    ) -> Stretched:
        """A step from pixels that are so many times as large as they are told to be."""
        sized = VoxelPoses(poses.rotation * F.pad(sizes, (0, 1), value=1.0).unsqueeze(1), poses.translation)
        at = self.stage.normal(level, frames.levels[level], self.encoded.levels[level], sized, stretched=True)
        damping = _DAMPING * at.matrix.diagonal(dim1=1, dim2=2) + _STEADY
        step = -solve_positive(at.matrix + torch.diag_embed(damping), at.slope)
        factors = 1 + (step[:, 6:] / frames.lever).clamp(-largest, largest)
        return Stretched(moved(poses, step[:, :6], frames.lever), factors)

    @property
    def device(self) -> torch.device:
        return self.encoded.levels[0].table.device
