"""Acquisition: the grey volume of a world and grey frames of it, each with speckle, shadows and grey map of its own."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Complex, Float
from torch import Tensor

from scopereg.data.mismatch import MismatchOptions, honest_frames
from scopereg.data.phantom.speckle import speckle_field
from scopereg.data.worlds.draws import Draws, on_device
from scopereg.data.worlds.fields import Box
from scopereg.data.worlds.probes import draw_probes
from scopereg.data.worlds.ranges import WorldRanges
from scopereg.data.worlds.sweep import Sweep
from scopereg.geometry import VoxelPoses, place_plane

_DB = 20 / math.log(10)
_MOST_LOSS_DB, _LEAST_LOSS_DB = 45.0, -6.0
_DARKEST = 0.004  # grey of no echo: 0 is what no probe sees
_TAPS = (-0.5, 0.0, 0.5)  # places across the thickness of a frame that are averaged
_DARK, _BRIGHT = 0.01, 0.99  # quantiles of the grey values that become 0 and 1
_STRIDE = 31  # voxels between those that quantiles are taken of
_LEAST_SPAN = 0.15  # grey values between them, or noise would fill a flat volume


class GreyMap(NamedTuple):
    """Settings by which a scanner turns echo into grey, a number for each world or frame (B,)."""

    contrast: Tensor  # of the speckle, 1 for a single view
    dynamic_range_db: Tensor
    gain_db: Tensor
    gamma: Tensor  # exponent of the grey values between black and white

    def grey(self, echo_db: Tensor, speckle: Tensor) -> Tensor:
        """Grey values of echoes (B, ...) through complex speckle (B, ...)."""
        ones = (-1,) + (1,) * (echo_db.ndim - 1)
        contrast, span, gain = (value.reshape(ones) for value in self[:3])
        level = echo_db + gain + contrast * _DB * torch.log(speckle.abs().clamp_min(1e-3))
        return (1 + level / span).clamp(_DARKEST, 1.2)


@dataclass(frozen=True)
class Scanned:
    """Volumes of a batch of worlds, and what frames need to know of how they were made."""

    volumes: Float[Tensor, "n d h w"]  # in [0, 1]
    speckle: Float[Tensor, "n 2 d+1 h+1 w+1"]  # one period and the first values again
    grey_map: GreyMap
    black: Float[Tensor, " n"]  # the grey value that became 0
    white: Float[Tensor, " n"]  # the one that became 1
    upward: Bool[Tensor, " n"]  # the probe is at the last row
    coarse: Bool[Tensor, " n"]  # kept with half the voxels on every axis


def scan_volumes(
    maps: Float[Tensor, "n 3 z y x"],
    box: Box,
    sweep: Sweep,
    speckle_stretch: Float[Tensor, " n"],
    ranges: WorldRanges,
    draws: Draws,
) -> Scanned:
    """Volumes of worlds, through a probe and a sweep each.

    Speckle is longer along z by `speckle_stretch` than the point spread is.
    """
    grid = box.grid(sweep.points)
    tissue = F.grid_sample(maps, grid, padding_mode="reflection", align_corners=True)  # (n, 3, D, H, W)
    upward = draws.chance(ranges.upward_chance)
    probes = draw_probes(draws, box.shape[1:], 1 - ranges.fan_chance, upward)
    speckle = _draw_speckle(box, speckle_stretch, ranges, draws)
    compounded = draws.chance(ranges.compounded_chance)
    contrast = torch.where(compounded, draws.uniform(ranges.compounded), draws.uniform((0.7, 1.0)))
    numbers = (draws.uniform(bounds) for bounds in (ranges.dynamic_range_db, ranges.gain_db, ranges.log_gamma))
    span_db, gain_db, log_gamma = numbers
    grey_map = GreyMap(contrast, span_db, gain_db, log_gamma.exp())
    maps_draws = draws.with_axes(3)
    shadowed = maps_draws.chance(ranges.shadow_chance)
    rays = probes.rays()
    loss = probes.losses_db(tissue[:, 1], rays).clamp(_LEAST_LOSS_DB, _MOST_LOSS_DB) * shadowed
    grey = grey_map.grey(tissue[:, 0] - loss, torch.view_as_complex(speckle.movedim(1, -1).contiguous()))
    grey = _smoothed(grey, maps_draws.uniform((0.0, ranges.smoothing)), maps_draws.chance(ranges.thick_chance))
    black, white = _ends(grey)
    white = torch.maximum(white, black + _LEAST_SPAN)
    volumes = _stretched(grey, black, white) ** grey_map.gamma[:, None, None, None]
    foreign = maps_draws.chance(ranges.foreign_chance)
    volumes = torch.where(foreign, _foreign_contrast(tissue[:, 2], draws), volumes)
    seen = rays.inside[:, None] & sweep.filled(rays, ranges, draws)
    volumes = torch.where(foreign | seen, volumes, 0.0)
    coarse = draws.chance(ranges.coarse_chance)
    volumes = torch.where(coarse[:, None, None, None], _kept_coarse(volumes, (2, 2, 2)), volumes)
    volumes = torch.where(maps_draws.chance(ranges.sparse_chance), _kept_coarse(volumes, (2, 1, 1)), volumes)
    padded = F.pad(speckle, (0, 1, 0, 1, 0, 1), mode="circular")
    return Scanned(volumes, padded, grey_map, black, white, upward, coarse)


def scan_frames(
    maps: Float[Tensor, "n 3 z y x"],
    box: Box,
    scanned: Scanned,
    poses: VoxelPoses,
    ranges: WorldRanges,
    draws: Draws,
) -> Float[Tensor, "b h w"]:
    """Frames of worlds at b poses, b / n in a row for each; other acquisitions than the volumes."""
    worlds, each = len(maps), draws.count // len(maps)
    plane = box.shape[1:]

    def per_frame(values: Tensor) -> Tensor:
        return values.repeat_interleave(each, 0)

    echo_db, attenuation_db, centres = _slice_tissue(maps, box, poses, ranges, draws)
    own = speckle_field(draws.count, plane, tuple(map(draws.log_uniform, ranges.frame_point_spread)), draws.generator)
    shared = _slice_speckle(scanned.speckle, centres.reshape(worlds, each, *plane, 3), box)
    none = draws.chance(ranges.own_speckle_chance)
    correlation = torch.where(none, 0.0, draws.uniform(ranges.speckle_correlation))[:, None, None]
    speckle = correlation * shared + torch.sqrt(1 - correlation**2) * own
    probes = draw_probes(draws, plane, ranges.frame_full_chance, per_frame(scanned.upward))
    rays = probes.rays()
    shadowed = draws.with_axes(2).chance(ranges.shadow_chance)
    loss = probes.losses_db(attenuation_db[:, None], rays)[:, 0].clamp(_LEAST_LOSS_DB, _MOST_LOSS_DB) * shadowed
    grey_map = _varied(GreyMap(*map(per_frame, scanned.grey_map)), ranges, draws)
    grey = grey_map.grey(echo_db - loss, speckle)
    grey = torch.lerp(grey, _box_blur(grey[:, None])[:, 0], draws.with_axes(2).uniform((0.0, ranges.smoothing)))
    # Scaled as the volume is, or by its own grey values, as readers of files do.
    own_scale = draws.chance(ranges.own_scale_chance)
    ends = zip(_ends(grey), (per_frame(scanned.black), per_frame(scanned.white)), strict=True)
    black, white = (torch.where(own_scale, own_end, end) for own_end, end in ends)
    frames = _stretched(grey, black, torch.maximum(white, black + _LEAST_SPAN)) ** grey_map.gamma[:, None, None]
    mismatch = MismatchOptions(clean_chance=ranges.frame_clean_chance)
    frames, _ = honest_frames(frames, draws.generator, unseen=False, mismatch=mismatch, rays=rays)
    chance = torch.where(per_frame(scanned.coarse), ranges.coarse_both_chance, ranges.coarse_frame_chance)
    coarse = draws.chance(chance)
    return torch.where(coarse[:, None, None], _kept_coarse(frames, (2, 2)), frames)


def _varied(grey_map: GreyMap, ranges: WorldRanges, draws: Draws) -> GreyMap:
    """Another setting of the scanner."""
    change = ranges.frame_gain_db / 4  # as far as the gain may change, so may the rest
    contrast = (grey_map.contrast * draws.uniform((1 - 0.2 * change, 1 + 0.3 * change))).clamp(0.2, 1)
    span = grey_map.dynamic_range_db * draws.uniform((1 - 0.15 * change, 1 + 0.2 * change))
    gain = grey_map.gain_db + draws.uniform((-ranges.frame_gain_db, ranges.frame_gain_db))
    return GreyMap(contrast, span, gain, grey_map.gamma * draws.uniform((-0.2 * change, 0.2 * change)).exp())


def _draw_speckle(
    box: Box, stretch: Float[Tensor, " n"], ranges: WorldRanges, draws: Draws
) -> Float[Tensor, "n 2 d h w"]:
    """Complex speckle of the volumes as two channels; periodic, so that frames may look beyond it."""
    z, y, x = (draws.log_uniform(bounds) for bounds in ranges.point_spread)
    field = speckle_field(draws.count, box.shape, (z * stretch, y, x), draws.generator)
    return torch.view_as_real(field).movedim(-1, 1)


def _slice_tissue(
    maps: Float[Tensor, "n 3 z y x"], box: Box, poses: VoxelPoses, ranges: WorldRanges, draws: Draws
) -> tuple[Float[Tensor, "b h w"], Float[Tensor, "b h w"], Float[Tensor, "b h w 3"]]:
    """Echo and attenuation of frames, averaged across their thickness, and where their pixels lie."""
    worlds, plane = len(maps), box.shape[1:]
    points = place_plane(*poses, plane)  # (B, H, W, 3)
    thick = draws.chance(ranges.elevation_chance) * draws.uniform(ranges.elevation)
    normal = poses.rotation[:, :, 2] * thick[:, None]  # (B, 3), as long as the plane is thick
    taps = on_device(_TAPS, points.device)
    across = points[:, None] + (taps[:, None] * normal[:, None])[:, :, None, None]  # (B, taps, H, W, 3)
    grid = box.grid(across).reshape(worlds, -1, *plane, 3)
    found = F.grid_sample(maps[:, :2], grid, padding_mode="reflection", align_corners=True)  # (n, 2, each taps, H, W)
    echo, attenuation = found.movedim(1, 0).reshape(2, draws.count, len(_TAPS), *plane).unbind(0)
    power = torch.exp(echo * (2 / _DB)).mean(1)
    return torch.log(power) * (_DB / 2), attenuation[:, len(_TAPS) // 2], points


def _slice_speckle(
    speckle: Float[Tensor, "n 2 z y x"], points: Float[Tensor, "n each h w 3"], box: Box
) -> Complex[Tensor, "n*each h w"]:
    """The volumes' speckle at points; it repeats beyond their borders."""
    period = on_device(tuple(map(float, reversed(box.shape))), points.device)
    place = torch.remainder(points + (period - 1) / 2, period)  # from the first voxel
    found = F.grid_sample(speckle, place * 2 / period - 1, align_corners=True)  # (n, 2, each, H, W)
    return torch.view_as_complex(found.movedim(1, -1).contiguous()).flatten(0, 1)


def _smoothed(
    grey: Float[Tensor, "n d h w"], amount: Float[Tensor, "n 1 1 1"], thick: Bool[Tensor, "n 1 1 1"]
) -> Float[Tensor, "n d h w"]:
    """Volumes blurred by as much as drawn, and along z where planes are `thick`."""
    smooth = torch.lerp(grey, _box_blur(grey[:, None])[:, 0], amount)
    padded = F.pad(smooth[:, None], (0, 0, 0, 0, 2, 2), mode="replicate")
    return torch.where(thick, F.avg_pool3d(padded, (5, 1, 1), 1)[:, 0], smooth)


def _kept_coarse(images: Float[Tensor, "b *size"], steps: tuple[int, ...]) -> Float[Tensor, "b *size"]:
    """Images as they are when voxels so many times as large were kept of them, and interpolated since."""
    sizes = images.shape[1:]
    fewer = [-(-n // step) for n, step in zip(sizes, steps, strict=True)]
    kept = F.interpolate(images[:, None], fewer, mode="area")
    return F.interpolate(kept, sizes, mode="bilinear" if len(steps) == 2 else "trilinear", align_corners=False)[:, 0]


def _box_blur(images: Float[Tensor, "b 1 *size"]) -> Float[Tensor, "b 1 *size"]:
    """Mean over three voxels on every axis of images."""
    axes = images.ndim - 2
    padded = F.pad(images, (1, 1) * axes, mode="replicate")
    return F.avg_pool2d(padded, 3, 1) if axes == 2 else F.avg_pool3d(padded, 3, 1)


def _ends(grey: Float[Tensor, "n *size"]) -> tuple[Float[Tensor, " n"], Float[Tensor, " n"]]:
    """The grey values that become black and white."""
    some = grey.flatten(1)[:, ::_STRIDE]
    black, white = torch.quantile(some, on_device((_DARK, _BRIGHT), grey.device), dim=1)
    return black, white


def _stretched(
    grey: Float[Tensor, "n *size"], black: Float[Tensor, " n"], white: Float[Tensor, " n"]
) -> Float[Tensor, "n *size"]:
    """Grey values in [0, 1]."""
    ones = (-1,) + (1,) * (grey.ndim - 1)
    return ((grey - black.reshape(ones)) / (white - black).reshape(ones)).clamp(0, 1)


def _foreign_contrast(values: Float[Tensor, "n d h w"], draws: Draws) -> Float[Tensor, "n d h w"]:
    """The anatomy as MR or CT might show it: a bias field, noise, its own grey map."""
    maps = draws.with_axes(3)
    bias = F.interpolate(
        torch.exp(0.35 * draws.normal(1, 3, 4, 4)), values.shape[1:], mode="trilinear", align_corners=True
    )[:, 0]
    noise = torch.randn(values.shape, generator=draws.generator, device=values.device)
    image = torch.addcmul(values * bias, maps.uniform((0.0, 0.06)), noise)
    image = torch.lerp(image, _box_blur(image[:, None])[:, 0], maps.uniform((0.0, 1.0)))
    black, white = _ends(image)
    return _stretched(image, black, torch.maximum(white, black + 0.1)) ** maps.uniform((-0.4, 0.4)).exp()
