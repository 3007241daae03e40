"""LC2: the likeness of frames and a volume of another modality, the linear correlation of linear combinations.

Ultrasound is bright where tissue changes and, besides, by what it is made of. So in a small patch its grey values are
taken for a combination of the other volume's value, of the length of its gradient and of a constant, with weights of
that patch alone (Wein, Ladikos, Fuerst and others, MICCAI 2013). How much of the patch's variance these explain is its
likeness; the likeness of a frame is the share that is explained in all of its patches together.

The weights are solved for at every pose, so the residual is a function of the pose alone, and steps are those of Gauss
and Newton on it (variable projection). `lc2_of` says the same patch by patch.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from scopereg.geometry import VoxelPoses, centred_axis
from scopereg.geometry.steps import lever_voxels
from scopereg.images import field_of_view, largest_section
from scopereg.registration.grey import gradients, normalise_locally
from scopereg.registration.likeness import NOTHING_SHARED, Normal

LC2 = "lc2"
_MOSTLY = 0.99  # a sample counts where all voxels around it have a picture
_HALF = 0.5  # of a patch must count
_GRAIN = 1.5  # voxels: how far speckle reaches
_WEIGHTS = 3  # that are solved for in a patch
_TINY = 1e-12


class PatchLevel(NamedTuple):
    """One comparison, coarse to fine; lengths in voxels."""

    smooth: float  # standard deviation of the smoothing of the volume
    frame_smooth: float  # and of the frame
    stride: int  # every so many pixels of the frame are compared
    size: int  # of a patch along a side, in points that are compared
    iterations: int  # at most


@dataclass(frozen=True)
class LC2Options:
    """Settings of a likeness by LC2."""

    levels: tuple[PatchLevel, ...] = (PatchLevel(1.5, 1.5, 3, 3, 15), PatchLevel(1.0, 1.0, 2, 3, 15))
    """Comparisons, coarse to fine."""
    ridge: float = 0.01
    """Share of the volume's variance that is added to that of a patch: flat patches explain nothing."""
    floor: float = 0.3
    """Share of the usual variance of the frame that is added to that of a patch where patches are weighed."""
    spread: float = 0.7
    """Usual error of start poses in voxels. On single frames LC2 is weak: with more it leads away from good ones."""
    least_inside: float = 0.3
    """Share of the frame's patches that must lie inside of the volume."""
    longest_step: float = 2.0
    last_step: float = 0.02


class Patches(NamedTuple):
    """What frames and volume hold in the patches, without their means; nothing where a point does not count."""

    frame: Float[Tensor, "b p m"]
    value: Float[Tensor, "b p m"]
    edge: Float[Tensor, "b p m"]  # length of the gradient
    counts: Float[Tensor, "b p m"]  # 1 where both have a picture
    weight: Float[Tensor, "b p"]  # of each patch; 0: it is left out


class Explained(NamedTuple):
    """The combination that fits best in each patch, and what it leaves."""

    value_weight: Float[Tensor, "b p"]
    edge_weight: Float[Tensor, "b p"]
    inverse: tuple[Float[Tensor, "b p"], ...]  # of the 2 x 2 matrix of the equations: value, edge, both
    left: Float[Tensor, "b p m"]  # of the frame
    unexplained: Float[Tensor, "b"]  # sum of squares, weighted, with what the ridge takes
    all: Float[Tensor, "b"]


class LC2Likeness:
    """LC2 of frames and a volume of another modality."""

    name = LC2
    most_voxels: int | None = 128

    def __init__(self, options: LC2Options | None = None) -> None:
        self.options = options or LC2Options()
        self.spread = self.options.spread
        self.facts: dict[str, Any] = {"options": str(self.options)}

    def prepare(self, volume: Float[Tensor, "d h w"], known: Bool[Tensor, "d h w"] | None = None) -> LC2Volume:
        return LC2Volume(volume, self.options, known)


def make_lc2(device: torch.device, far: bool) -> LC2Likeness:
    """LC2 on any device, for any starts."""
    return LC2Likeness()


class LC2Volume:
    """The volume of the other modality: values, lengths of their gradient, and the slopes of both, for every level."""

    def __init__(
        self, volume: Float[Tensor, "d h w"], options: LC2Options, known: Bool[Tensor, "d h w"] | None = None
    ) -> None:
        self.options = options
        self.section = math.inf if known is None else largest_section(known)
        seen = (field_of_view(volume) if known is None else known.to(volume.device)).float()[None]
        self.levels = [value_and_edges(volume.float(), seen, level.smooth) for level in options.levels]

    def compare(self, frames: Float[Tensor, "b h w"], seen: Float[Tensor, "b h w"]) -> Iterator[LC2Comparison]:
        for level, volume in zip(self.options.levels, self.levels, strict=True):
            yield LC2Comparison(volume, cut_frames(frames, seen, level), level, self.options, self.section)

    def compare_slices(
        self, ultrasound: Float[Tensor, "d h w"], seen: Float[Tensor, "d h w"]
    ) -> Iterator[LC2Comparison]:
        """The same for all slices of a volume with voxels of the same size, as one body."""
        for level, volume in zip(self.options.levels, self.levels, strict=True):
            yield LC2Comparison(volume, cut_slices(ultrasound, seen, level), level, self.options)


def value_and_edges(
    volume: Float[Tensor, "d h w"], seen: Float[Tensor, "1 d h w"], smooth: float
) -> Float[Tensor, "9 d h w"]:
    """A volume, the length of its gradient, where it has a picture, and the slopes of the first two along x, y, z.

    Both vary as much over the picture, so that neither is held back more than the other where a patch is flat.
    """
    value = normalise_locally(volume[None], seen, smooth, 0.0, 0.0)[0]
    edge = (gradients(value).square().sum(0) + 1e-8).sqrt()
    inside = seen[0] > _HALF
    if bool(inside.sum() > 1):
        value, edge = (each / each[inside].std().clamp_min(1e-6) for each in (value, edge))
    return torch.cat([torch.stack([value, edge]), seen, gradients(value), gradients(edge)])


class Cut(NamedTuple):
    """What is compared of frames, or of a whole volume as one frame: points, what is seen there, and their patches."""

    points: Float[Tensor, "n 3"]  # voxels from the middle, along the axes of the frame; of frames z is 0
    values: Float[Tensor, "b n"]
    seen: Float[Tensor, "b n"]  # 1 where there is a picture
    patches: Int[Tensor, "p m"]  # numbers of points
    lever: float  # voxels


def cut_frames(frames: Float[Tensor, "b h w"], seen: Float[Tensor, "b h w"], level: PatchLevel) -> Cut:
    """Pixels with a stride, in patches."""
    height, width = frames.shape[1:]
    rows, columns = (_every(n, level.stride) for n in (height, width))
    values = normalise_locally(frames, seen, level.frame_smooth, 0.0, 0.0)[:, rows, columns]
    axes = (centred_axis(n, device=frames.device) for n in (height, width))
    y, x = torch.meshgrid(*(axis[part] for axis, part in zip(axes, (rows, columns), strict=True)), indexing="ij")
    points = torch.stack([x, y, torch.zeros_like(x)], -1).flatten(0, 1)
    patches = patch_indices(values.shape[1], values.shape[2], level.size).to(frames.device)
    return Cut(points, values.flatten(1), seen[:, rows, columns].flatten(1), patches, lever_voxels(height, width))


def cut_slices(volume: Float[Tensor, "d h w"], seen: Float[Tensor, "d h w"], level: PatchLevel) -> Cut:
    """A whole volume as one frame: all of its slices, with patches in each; without what has no picture."""
    depth, height, width = volume.shape
    parts = [_every(n, level.stride) for n in (depth, height, width)]
    values = normalise_locally(volume[None], seen[None], level.frame_smooth, 0.0, 0.0)[0][tuple(parts)]
    axes = [centred_axis(n, device=volume.device)[part] for n, part in zip((depth, height, width), parts, strict=True)]
    z, y, x = torch.meshgrid(*axes, indexing="ij")
    points, counts = torch.stack([x, y, z], -1).flatten(0, 2), seen[tuple(parts)].flatten()
    plane = patch_indices(values.shape[1], values.shape[2], level.size).to(volume.device)
    offsets = torch.arange(values.shape[0], device=volume.device) * values[0].numel()
    patches = (plane + offsets[:, None, None]).flatten(0, 1)
    patches = patches[counts[patches].mean(1) > _HALF]
    used, numbers = patches.unique(return_inverse=True)
    points = points[used]
    lever = max(float(points.square().sum(1).mean().sqrt()), 1.0) if len(points) else 1.0
    return Cut(points, values.flatten()[used][None], counts[used][None], numbers.reshape(patches.shape), lever)


def _every(count: int, stride: int) -> slice:
    return slice((count % stride) // 2, None, stride)


class LC2Comparison:
    """Frames against the volume at one level: LC2 and its normal equations at any poses."""

    def __init__(
        self,
        volume: Float[Tensor, "9 d h w"],
        cut: Cut,
        level: PatchLevel,
        options: LC2Options,
        section: float = math.inf,
    ) -> None:
        """Of the volume no plane has more than a `section` that counts, in pixels."""
        self.volume, self.options, self.lever = volume, options, cut.lever
        self.iterations, self.last_step = level.iterations, options.last_step
        self.longest_step = options.longest_step * max(level.smooth, 1.0)
        self.points, self.patches = cut.points, cut.patches
        self.frames, self.seen = cut.values[:, cut.patches], cut.seen[:, cut.patches]  # (B, P, n)
        halves = (max((n - 1) / 2, 0.5) for n in reversed(volume.shape[1:]))
        # Filled on the device: what is recorded may not copy from the host.
        self.halves = torch.cat([torch.full((1,), half, device=volume.device) for half in halves])  # x, y, z
        self.whole = self.seen.mean(2) > _HALF  # patches of the frame that have a picture
        self.most = section / (level.stride * max(level.size - 1, 1)) ** 2  # patches
        spread = _centred(self.frames, self.seen).square().sum((1, 2)) / self.seen.sum((1, 2)).clamp_min(1)
        self.usual = (options.floor * spread).clamp_min(1e-8)
        # Points nearer than the smoothing, or than speckle, say the same; what is solved for in a patch says nothing.
        grain = max(level.frame_smooth, _GRAIN)
        own = 1 - min(_WEIGHTS / max(self.patches.shape[1], 1), 0.9)
        overlap = max(self.patches.numel() / max(len(self.points), 1), 1.0)
        self.each = own * min(level.stride**2 / (4 * math.pi * grain**2), 1.0) / overlap

    def similarity(self, poses: VoxelPoses) -> Float[Tensor, "b"]:
        """LC2: the share of the frame's variance that is explained, 0 to 1."""
        patches = self._patches(self._sampled(poses, self.volume[:3]))
        found = explained(patches, self.options.ridge)
        return torch.where(self._enough(patches), _share(found), NOTHING_SHARED)

    def inside(self, poses: VoxelPoses) -> Float[Tensor, "b"]:
        """Share of the patches that lie where the volume has a picture."""
        patches = self._patches(self._sampled(poses, self.volume[:3]))
        return (patches.weight > 0).sum(1) / self.whole.sum(1).clamp_min(1)

    def normal(self, poses: VoxelPoses) -> Normal:
        """The merit, and the equations of a step."""
        samples = self._sampled(poses, self.volume)
        patches = self._patches(samples)
        found = explained(patches, self.options.ridge)
        changes = self._changes(samples[3:], found, patches, poses)
        own = _of_their_own(changes, found, patches)
        # Of so many independent values with a residual of some variance the logarithm of the likelihood is
        # -count / 2 log(residual), as of a regression.
        count = self.each * patches.counts.sum((1, 2))
        per = count / found.unexplained.clamp_min(_TINY)
        matrix = torch.einsum("bpnk,bpnl,bp->bkl", own, own, patches.weight) * per[:, None, None]
        slope = -torch.einsum("bpnk,bpn,bp->bk", changes, found.left, patches.weight) * per[:, None]
        share = found.unexplained.clamp_min(_TINY) / found.all.clamp_min(_TINY)
        enough = self._enough(patches)
        merit = torch.where(enough, -count / 2 * share.log(), -torch.inf)
        return Normal(merit, matrix, slope)

    def _enough(self, patches: Patches) -> Bool[Tensor, "b"]:
        used, there = (patches.weight > 0).sum(1), self.whole.sum(1)
        return (used > 0) & (used >= self.options.least_inside * there.clamp(1, self.most))

    def _sampled(self, poses: VoxelPoses, volume: Float[Tensor, "c d h w"]) -> Float[Tensor, "c b n"]:
        """The volume's channels at the points of the frames that are compared."""
        points = self.points @ poses.rotation.transpose(1, 2) + poses.translation[:, None]  # (B, N, 3)
        grid = (points / self.halves).reshape(1, 1, 1, -1, 3)
        sampled = F.grid_sample(volume[None], grid, align_corners=True)
        return sampled.reshape(len(volume), *points.shape[:2])

    def _patches(self, samples: Float[Tensor, "c b n"]) -> Patches:
        there = self.seen * (samples[2] > _MOSTLY)[:, self.patches]
        frame, value, edge = (
            _centred(each, there) for each in (self.frames, samples[0][:, self.patches], samples[1][:, self.patches])
        )
        variance = frame.square().sum(2) / there.sum(2).clamp_min(1)
        counts = (there.mean(2) > _HALF) & self.whole
        return Patches(frame, value, edge, there * counts[..., None], counts / (variance + self.usual[:, None]))

    def _changes(
        self, slopes: Float[Tensor, "6 b n"], found: Explained, patches: Patches, poses: VoxelPoses
    ) -> Float[Tensor, "b p m 6"]:
        """How what is explained changes with a step, the weights staying as they are."""
        axes = [torch.einsum("cbn,bck->kbn", part, poses.rotation) for part in (slopes[:3], slopes[3:])]
        x, y, z = (self.points / self.lever).unbind(1)
        columns = []
        for of_axes, weight in zip(axes, (found.value_weight, found.edge_weight), strict=True):
            # A turn about an axis moves a point by the cross product with it.
            across, down, through = of_axes
            turns = (through * y - down * z, across * z - through * x, down * x - across * y)
            steps = torch.stack([across, down, through, *turns], -1)[:, self.patches]  # (B, P, n, 6)
            columns.append(weight[..., None, None] * steps)
        counts = patches.counts[..., None]
        there = patches.counts.sum(2).clamp_min(1)[..., None, None]
        total = (columns[0] + columns[1]) * counts
        return (total - total.sum(2, keepdim=True) / there) * counts


def _of_their_own(changes: Float[Tensor, "b p m 6"], found: Explained, patches: Patches) -> Float[Tensor, "b p m 6"]:
    """Changes without what other weights in the patch would do as well."""
    along_value, along_edge = (torch.einsum("bpnk,bpn->bpk", changes, each) for each in (patches.value, patches.edge))
    of_value, of_edge, of_both = (each[..., None] for each in found.inverse)
    value_part = of_value * along_value + of_both * along_edge
    edge_part = of_both * along_value + of_edge * along_edge
    same = value_part.unsqueeze(2) * patches.value.unsqueeze(3) + edge_part.unsqueeze(2) * patches.edge.unsqueeze(3)
    return changes - same


def explained(patches: Patches, ridge: float) -> Explained:
    """The combination of value and gradient that fits each patch best, and how much of the frames it explains."""
    held = ridge * patches.counts.sum(2) + _TINY
    value, edge = (each.square().sum(2) + held for each in (patches.value, patches.edge))
    both = (patches.value * patches.edge).sum(2)
    with_value, with_edge = ((each * patches.frame).sum(2) for each in (patches.value, patches.edge))
    determinant = (value * edge - both.square()).clamp_min(_TINY)
    inverse = edge / determinant, value / determinant, -both / determinant
    first = inverse[0] * with_value + inverse[2] * with_edge
    second = inverse[2] * with_value + inverse[1] * with_edge
    left = patches.frame - first[..., None] * patches.value - second[..., None] * patches.edge
    left = left * (patches.counts > 0)
    every = (patches.frame * (patches.counts > 0)).square().sum(2)
    # What the ridge holds back is not explained: so the slope at the best weights is that of the residual alone.
    unexplained = (every - first * with_value - second * with_edge).clamp_min(0.0)
    unexplained, every = ((patches.weight * each).sum(1) for each in (unexplained, every))
    return Explained(first, second, inverse, left, unexplained, every)


def patch_indices(height: int, width: int, size: int) -> Int[Tensor, "p n"]:
    """Points of each patch on a grid of points; neighbours share a border."""
    size = min(size, height, width)
    step = max(size - 1, 1)
    numbers = torch.arange(height * width).reshape(height, width)
    return numbers.unfold(0, size, step).unfold(1, size, step).reshape(-1, size * size)


def lc2_of(
    frame: Float[Tensor, "p n"],
    value: Float[Tensor, "p n"],
    edge: Float[Tensor, "p n"],
    counts: Float[Tensor, "p n"],
    *,
    ridge: float,
    floor: float,
) -> float:
    """LC2 patch by patch, as it is defined: the readable twin of `explained`.

    `ridge` and `floor` are variances: one holds the weights of flat patches back, the other weighs patches.
    """
    unexplained, every = 0.0, 0.0
    for row in range(len(frame)):
        inside = counts[row] > 0
        if not float(counts[row].mean()) > _HALF:
            continue
        seen, number = frame[row, inside].double(), int(inside.sum())
        by = torch.stack([value[row, inside], edge[row, inside]], 1).double()
        seen, by = seen - seen.mean(), by - by.mean(0)
        weights = torch.linalg.solve(by.T @ by + ridge * number * torch.eye(2).double(), by.T @ seen)
        share = 1 / (float(seen.square().mean()) + floor)
        held = ridge * number * float(weights.square().sum())
        unexplained += share * (float((seen - by @ weights).square().sum()) + held)
        every += share * float(seen.square().sum())
    return 1 - unexplained / every if every > 0 else 0.0


def _centred(values: Float[Tensor, "b p m"], counts: Float[Tensor, "b p m"]) -> Float[Tensor, "b p m"]:
    """Without the mean of each patch; 0 where a point does not count."""
    mean = (values * counts).sum(2, keepdim=True) / counts.sum(2, keepdim=True).clamp_min(1)
    return (values - mean) * counts


def _share(found: Explained) -> Float[Tensor, "b"]:
    return 1 - found.unexplained / found.all.clamp_min(_TINY)
