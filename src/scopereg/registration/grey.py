"""Grey: the likeness of grey values, smoothed and normalised by their surroundings, as a correlation.

Gain, depth compensation and shadows change slowly over an image, speckle changes from pixel to pixel. What lies
between, relative to its surroundings, is the anatomy. With frame and volume normalised to mean 0 and length 1 over the
pixels that both have, half of the squared difference is one minus the correlation: a least-squares problem.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Num
from torch import Tensor

from scopereg.geometry import VoxelPoses, centred_axis, sample_slice
from scopereg.geometry.beam import TAPS, WEIGHTS
from scopereg.geometry.steps import lever_voxels
from scopereg.images import field_of_view, largest_section
from scopereg.registration.likeness import NOTHING_SHARED, Local, Normal

GREY = "grey"
_GRAIN = 1.5  # voxels: how far speckle reaches
_WEAK, _STRONG = 0.02, 0.999  # between which a correlation is weighed as one
_MOSTLY = 0.99  # a sample counts where all voxels around it have a picture
_QUIET = 1e-4  # spread of grey values in [0, 1] that is none
_LEAST = 1e-3  # share of seen pixels under a window, below which nothing is known there
_LEAST_PIXELS = 16  # that a similarity takes
_MOST_ALIKE = 0.95  # correlation that points are trusted by, at the most
_STRANGE = 4.0  # squared distance of grey values, as a multiple of the usual one, that counts half
_HALF = 0.5  # weight of the taps that must lie where the volume has a picture


class Level(NamedTuple):
    """One comparison, coarse to fine; lengths in voxels."""

    smooth: float  # standard deviation of the smoothing
    stride: int  # every so many pixels of the frame are compared
    window: float  # standard deviation of the surroundings that grey values are normalised by; 0: not at all
    iterations: int  # at most


@dataclass(frozen=True)
class RefineOptions:
    """Settings of a refinement by grey values, chosen on the validation part of CAMUS-M."""

    levels: tuple[Level, ...] = (Level(2, 2, 5, 10), Level(1, 2, 3, 10), Level(0, 1, 2, 8))
    """Comparisons, coarse to fine."""
    floor: float = 0.15
    """Share of the usual local spread that is added to the local spread: keeps flat regions quiet."""
    spread: float = 2.5
    """Usual error of start poses in voxels, of each shift and of each turn at the frame's edge: a weak similarity may
    not lead far beyond it. Infinite: the similarity alone decides."""
    least_inside: float = 0.3
    """Share of the seen pixels that must lie inside of the volume for a similarity."""
    longest_step: float = 2.0
    """Longest step in voxels, times the smoothing where that is more than one."""
    last_step: float = 0.005
    """Step in voxels below which a level is finished."""


WIDE = RefineOptions(levels=(Level(4, 4, 10, 15), *RefineOptions().levels), spread=4.0)
"""For starts that are farther off than those of a network: a tracker's, or none at all."""


class Grey:
    """The likeness of grey values."""

    name = GREY
    most_voxels: int | None = None

    def __init__(self, options: RefineOptions | None = None) -> None:
        self.options = options or RefineOptions()
        self.spread = self.options.spread
        self.facts: dict[str, Any] = {"options": str(self.options)}

    def prepare(self, volume: Float[Tensor, "d h w"], known: Bool[Tensor, "d h w"] | None = None) -> GreyVolume:
        return GreyVolume(volume, self.options, known)


def make_grey(device: torch.device, far: bool) -> Grey:
    """Grey values on any device, for starts that are `far` off or near."""
    return Grey(WIDE if far else None)


class GreyVolume:
    """A volume smoothed and normalised for every level, with its slopes."""

    def __init__(
        self, volume: Float[Tensor, "d h w"], options: RefineOptions, known: Bool[Tensor, "d h w"] | None = None
    ) -> None:
        self.options = options
        image = volume.float()[None]
        seen = (field_of_view(volume) if known is None else known.to(volume.device)).float()[None]
        # Of a frame that is larger than all that counts no more can be shared.
        self.section = math.inf if known is None else largest_section(known)
        self.levels: list[Tensor] = []
        for level in options.levels:
            values = normalise_locally(image, seen, level.smooth, level.window, options.floor)[0]
            # A level that no pose descends needs no slopes.
            slopes = gradients(values) if level.iterations else values.new_empty(0, *values.shape)
            self.levels.append(torch.cat([values[None], seen, slopes]))  # (5 or 2, D, H, W)

    def compare(
        self,
        frames: Float[Tensor, "b h w"],
        seen: Float[Tensor, "b h w"],
        across: Float[Tensor, "b h w"] | None = None,
    ) -> Iterator[GreyComparison]:
        """Coarse to fine. Frames are thick by Gaussians `across` their plane, of so many voxels; by default not so."""
        for level, volume in zip(self.options.levels, self.levels, strict=True):
            yield GreyComparison(volume, frames, seen, level, self.options, self.section, across)

    def finest(
        self,
        frames: Float[Tensor, "b h w"],
        seen: Float[Tensor, "b h w"],
        across: Float[Tensor, "b h w"] | None = None,
    ) -> GreyComparison:
        """The last of the comparisons alone."""
        level, volume = self.options.levels[-1], self.levels[-1]
        return GreyComparison(volume, frames, seen, level, self.options, self.section, across)

    def of_thick(self, across: Float[Tensor, "b h w"]) -> ThickGrey:
        """The volume for frames that average it across their plane."""
        return ThickGrey(self, across)

    def correlations(
        self, frames: Float[Tensor, "b h w"], poses: VoxelPoses, masks: Bool[Tensor, "b h w"] | None = None
    ) -> Float[Tensor, "b levels"]:
        """The similarity of frames at poses at every level; all on the volume's device.

        `masks` are true where pixels count.
        """
        field = field_of_view(frames)
        seen = (field if masks is None else field & masks).to(torch.float32)
        return torch.stack([one.similarity(poses) for one in self.compare(frames, seen)], 1)


class ThickGrey(NamedTuple):
    """A volume that frames of a thickness are compared with."""

    grey: GreyVolume
    across: Float[Tensor, "b h w"]  # standard deviations in voxels

    def compare(self, frames: Float[Tensor, "b h w"], seen: Float[Tensor, "b h w"]) -> Iterator[GreyComparison]:
        return self.grey.compare(frames, seen, self.across)


class _Moments(NamedTuple):
    """Products of the volume's values at the frame and their changes (K), all without their means."""

    similarity: Float[Tensor, "b"]
    pixels: Float[Tensor, "b"]  # how many both images have
    among: Float[Tensor, "b k k"]
    with_frame: Float[Tensor, "b k"]  # with the frame of length 1

    @property
    def with_cut(self) -> Float[Tensor, "b k"]:
        """With the volume's values."""
        return self.among[:, :, 0]


class GreyComparison:
    """Frames against a volume at one level: correlation and its normal equations at any poses."""

    def __init__(
        self,
        volume: Float[Tensor, "c d h w"],
        frames: Float[Tensor, "b rows columns"],
        seen: Float[Tensor, "b rows columns"],
        level: Level,
        options: RefineOptions,
        section: float = math.inf,
        across: Float[Tensor, "b rows columns"] | None = None,
    ) -> None:
        """Of the volume no plane has more than a `section` that counts, in pixels.

        With `across` it is averaged over Gaussians across the plane, of so many voxels at each pixel.
        """
        self.volume, self.options = volume, options
        self.most = section / level.stride**2
        self.iterations, self.last_step = level.iterations, options.last_step
        self.longest_step = options.longest_step * max(level.smooth, 1.0)
        height, width = frames.shape[1:]
        rows, columns = (slice((n % level.stride) // 2, None, level.stride) for n in (height, width))
        values = normalise_locally(frames, seen, level.smooth, level.window, options.floor)
        self.frames, self.seen = (image[:, rows, columns].flatten(1) for image in (values, seen))  # (B, N)
        axes = (centred_axis(n, device=frames.device) for n in (height, width))
        y, x = torch.meshgrid(*(axis[part] for axis, part in zip(axes, (rows, columns), strict=True)), indexing="ij")
        self.x, self.y = x.flatten(), y.flatten()  # (N,)
        self.places = torch.stack([self.x, self.y], 1)
        self.lever = lever_voxels(height, width)
        self.across = None if across is None else across[:, rows, columns].flatten(1)
        halves = (max((n - 1) / 2, 0.5) for n in reversed(volume.shape[1:]))
        # Filled on the device: what is recorded may not copy from the host.
        self.halves = torch.cat([torch.full((1,), half, device=frames.device) for half in halves])  # x, y, z
        # Pixels nearer than the smoothing, or than speckle, say the same: so many say something of their own.
        grain = max(level.smooth, _GRAIN)
        self.each = level.stride**2 / (4 * math.pi * grain**2)

    def similarity(self, poses: VoxelPoses) -> Float[Tensor, "b"]:
        """Correlation over the pixels that both have."""
        if self.across is None:
            samples = self._sampled(poses, self.volume[:2])
        else:
            samples, _ = self._averaged(poses, self.volume[:2])
        return self._moments(samples, samples[:1]).similarity

    def normal(self, poses: VoxelPoses) -> Normal:
        """The merit, and the Gauss-Newton equations."""
        return self._normal(poses, stretched=False)

    def stretched(self, poses: VoxelPoses) -> Normal:
        """The same with the size of pixels."""
        return self._normal(poses, stretched=True)

    def local(self, poses: VoxelPoses, off: Float[Tensor, "b n 3"]) -> Local:
        """The equations of pixels: how far the frame's values are from what the volume's let expect.

        Both have mean 0 and spread 1 over the pixels that both images have. With a correlation r, r times the volume's
        is expected, and errors have a variance of 1 - r^2.
        """
        samples = self._sampled(poses, self.volume, off @ poses.rotation.transpose(1, 2))
        both = self.seen * (samples[1] > _MOSTLY)
        cut, spread = _standardised(samples[0], both)
        frame, _ = _standardised(self.frames, both)
        alike = ((cut * frame * both).sum(1, keepdim=True) / both.sum(1, keepdim=True).clamp_min(1)).clamp(
            _WEAK, _MOST_ALIKE
        )
        rest, variance = frame - alike * cut, 1 - alike.square()
        weights = self.each / variance * both / (1 + rest.square() / (_STRANGE * variance))
        slopes = torch.einsum("cbn,bck->bnk", samples[2:], poses.rotation) * (alike / spread).unsqueeze(-1)
        matrix = weights[..., None, None] * slopes.unsqueeze(3) * slopes.unsqueeze(2)
        return Local(matrix, -(weights * rest).unsqueeze(-1) * slopes)

    def _normal(self, poses: VoxelPoses, *, stretched: bool) -> Normal:
        if self.across is None:
            samples, lifted = self._sampled(poses, self.volume), None
        else:
            samples, lifted = self._averaged(poses, self.volume)
        slopes = torch.einsum("cbn,bck->kbn", samples[2:], poses.rotation)  # along the frame's axes
        x, y = self.x / self.lever, self.y / self.lever
        # A turn about an axis moves a point by the cross product with it; points of a frame have z = 0.
        turns = (slopes[2] * y, -slopes[2] * x, slopes[1] * x - slopes[0] * y)
        if lifted is not None:  # unless they lie off its plane
            across, down, _ = torch.einsum("cbn,bck->kbn", lifted, poses.rotation) / self.lever
            turns = (turns[0] - down, turns[1] + across, turns[2])
        stretches = (slopes[0] * x, slopes[1] * y) if stretched else ()
        found = self._moments(samples, torch.stack([samples[0], *slopes, *turns, *stretches]))
        # Both images have mean 0 and length 1 over the shared pixels, and so has no change of them any part along them.
        along = found.with_cut[:, 1:]  # (B, 6 or 8), of the change along the cut
        matrix = found.among[:, 1:, 1:] - along.unsqueeze(2) * along.unsqueeze(1)
        slope = along * found.similarity.unsqueeze(1) - found.with_frame[:, 1:]
        return _as_probability(found.similarity, matrix, slope, self.each * found.pixels)

    def _sampled(
        self, poses: VoxelPoses, volume: Float[Tensor, "c d h w"], off: Float[Tensor, "b n 3"] | None = None
    ) -> Float[Tensor, "c b n"]:
        """The volume's channels at the pixels of the frames, or so many voxels off them."""
        first, second = (poses.rotation[:, None, :, axis] for axis in (0, 1))
        points = first * self.x[:, None] + second * self.y[:, None] + poses.translation[:, None]  # (B, N, 3)
        points = points if off is None else points + off
        grid = (points / self.halves).reshape(1, 1, 1, -1, 3)
        return F.grid_sample(volume[None], grid, align_corners=True).reshape(len(volume), *self.frames.shape)

    def _averaged(
        self, poses: VoxelPoses, volume: Float[Tensor, "c d h w"]
    ) -> tuple[Float[Tensor, "c b n"], Float[Tensor, "k b n"]]:
        """The same averaged across the plane where there is a picture; and slopes times how far off it they lie."""
        assert self.across is not None
        normal = poses.rotation[:, :, 2]
        sums, mass = [], []
        for tap, weight in zip(TAPS, WEIGHTS, strict=True):
            off = tap * self.across
            samples = self._sampled(poses, volume, normal[:, None] * off.unsqueeze(-1))
            counts = weight * (samples[1] > _MOSTLY)
            mass.append(counts)
            sums.append(counts * torch.cat([samples, off * samples[2:]]))
        share = torch.stack(mass).sum(0)
        average = torch.stack(sums).sum(0) / share.clamp_min(1e-6)
        average[1] = share >= _HALF
        return average[: len(volume)], average[len(volume) :]

    def _moments(self, samples: Float[Tensor, "c b n"], columns: Float[Tensor, "k b n"]) -> _Moments:
        """Sums over the pixels that both images have, of columns that begin with the volume's values."""
        weights = self.seen * (samples[1] > _MOSTLY)
        every = torch.cat([columns, self.frames[None], torch.ones_like(weights)[None]]).transpose(0, 1)  # (B, K + 2, N)
        gram = (every * weights.unsqueeze(1)) @ every.transpose(1, 2)
        count = gram[:, -1, -1]
        sums = gram[:, :-1, -1]
        apart = gram[:, :-1, :-1] - sums.unsqueeze(2) * sums.unsqueeze(1) / count.clamp_min(1)[:, None, None]
        cut, frame = (apart[:, row, row].clamp_min(1e-12).sqrt() for row in (0, -1))
        among = apart[:, :-1, :-1] / cut.square()[:, None, None]
        with_frame = apart[:, :-1, -1] / (cut * frame).unsqueeze(1)
        enough = count >= self.options.least_inside * self.seen.sum(1).clamp(1, self.most)
        similarity = torch.where(enough, with_frame[:, 0], NOTHING_SHARED)
        return _Moments(similarity, count, among, with_frame)


def _standardised(values: Float[Tensor, "b n"], both: Float[Tensor, "b n"]) -> tuple[Tensor, Tensor]:
    """Values with mean 0 and spread 1 where `both` is 1; and the spread (B, 1) that they had."""
    count = both.sum(1, keepdim=True).clamp_min(1)
    apart = values - (values * both).sum(1, keepdim=True) / count
    spread = ((apart.square() * both).sum(1, keepdim=True) / count).sqrt().clamp_min(_QUIET)
    return apart / spread, spread


def _as_probability(
    similarity: Float[Tensor, "b"],
    matrix: Float[Tensor, "b k k"],
    slope: Float[Tensor, "b k"],
    count: Float[Tensor, "b"],
) -> Normal:
    """What the pixels say as a probability.

    Of `count` independent pairs with correlation r the logarithm of their likelihood is -count / 2 log(1 - r^2): a
    strong similarity outweighs any start, a weak one does not.
    """
    strength = similarity.clamp(_WEAK, _STRONG)
    weight = count * strength / (1 - strength.square())  # of a change of the similarity
    merit = -count / 2 * torch.log1p(-strength.square()) + count * (similarity - strength)
    return Normal(merit, weight[:, None, None] * matrix, weight[:, None] * slope)


def normalise_locally(
    images: Float[Tensor, "b *places"], seen: Num[Tensor, "b *places"], smooth: float, window: float, floor: float
) -> Float[Tensor, "b *places"]:
    """Images of two or three axes, smoothed, minus their local mean, over their local spread.

    `smooth` and `window` are standard deviations in pixels; a `window` of 0 leaves the grey values as they are. `seen`
    is 1 where there is a picture: what is not seen has no part in any mean. `floor` is added to the spread, as a share
    of the usual one, so that noise in flat regions is not blown up.
    """
    weights = seen.to(images.dtype)
    values = _mean(images, weights, smooth) if smooth > 0 else images
    if window <= 0:
        return values
    share = blur(weights, window).clamp_min(_LEAST)
    apart = (values - blur(values * weights, window) / share) * weights
    variance = blur(apart.square(), window) / share
    axes = tuple(range(1, images.ndim))
    usual = (variance * weights).sum(axes, keepdim=True) / weights.sum(axes, keepdim=True).clamp_min(1)
    # An image without any contrast stays quiet instead of showing its rounding errors.
    return apart / (variance.sqrt() + floor * usual.sqrt()).clamp_min(_QUIET)


def _mean(
    images: Float[Tensor, "b *places"], weights: Float[Tensor, "b *places"], sigma: float
) -> Float[Tensor, "b *places"]:
    return blur(images * weights, sigma) / blur(weights, sigma).clamp_min(_LEAST)


def blur(images: Float[Tensor, "b *places"], sigma: float) -> Float[Tensor, "b *places"]:
    """Images of two or three axes under a Gaussian, axis by axis; at the border over what there is.

    As products with a matrix per axis: on a CPU many times faster than convolutions of one channel.
    """
    for axis in range(1, images.ndim):
        images = blur_along(images, axis, sigma)
    return images


def blur_along(images: Float[Tensor, "b *places"], axis: int, sigma: float) -> Float[Tensor, "b *places"]:
    """The same along one axis."""
    # On a GPU the matrices may be part of a recording, which owns what is made within it: nothing of it is kept.
    make = _kept_weights if images.device.type == "cpu" else _gaussian_weights
    weights = make(images.shape[axis], sigma, images.device, images.dtype)
    return (images.movedim(axis, -1) @ weights.T).movedim(-1, axis)


def _gaussian_weights(count: int, sigma: float, device: torch.device, dtype: torch.dtype) -> Float[Tensor, "n n"]:
    """What each of `count` pixels has of each other."""
    places = torch.arange(count, device=device, dtype=dtype)
    apart = places[:, None] - places
    weights = torch.exp(-apart.square() / (2 * sigma**2)) * (apart.abs() <= 3 * sigma)
    return weights / weights.sum(1, keepdim=True)


@lru_cache(maxsize=32)
def _kept_weights(count: int, sigma: float, device: torch.device, dtype: torch.dtype) -> Float[Tensor, "n n"]:
    """The same, made once: a frame is blurred twenty times, and the matrices took longer than the products."""
    with torch.inference_mode(False):  # what is made in that mode is of no use outside of it
        return _gaussian_weights(count, sigma, device, dtype)


def gradients(volume: Float[Tensor, "d h w"]) -> Float[Tensor, "3 d h w"]:
    """Central differences of a volume along x, y, z, per voxel; 0 along an axis of one voxel."""
    slopes = []
    for axis in (2, 1, 0):
        if volume.shape[axis] == 1:
            slopes.append(torch.zeros_like(volume))
        else:
            slopes.append(torch.gradient(volume, dim=axis)[0])
    return torch.stack(slopes)


def similarity_at(
    images: Float[Tensor, "b rows columns"], volume: Float[Tensor, "d h w"], poses: VoxelPoses
) -> Float[Tensor, "b"]:
    """Correlation of frames with a volume at poses, where both have a picture.

    NaN where they share next to nothing. Nothing is asked of the host, so that a GPU can replay it.
    """
    cuts = sample_slice(volume, *poses, slice_shape=(images.shape[1], images.shape[2]))
    both = ((images > 0) & (cuts > 0)).flatten(1)
    count = both.sum(1)
    apart = [
        torch.where(both, values - (values * both).sum(1, keepdim=True) / count.clamp_min(1).unsqueeze(1), 0)
        for values in (images.flatten(1), cuts.flatten(1))
    ]
    first, second = (values.square().sum(1) for values in apart)
    found = (apart[0] * apart[1]).sum(1) / (first * second).sqrt()
    enough = (count >= _LEAST_PIXELS) & (first > 0) & (second > 0)
    return torch.where(enough, found, torch.nan)
