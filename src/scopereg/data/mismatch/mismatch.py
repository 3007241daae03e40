"""Mismatch of frames: the differences from their volume that networks are trained on, and honest frames."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from scopereg.data.mismatch.draws import UNIT, Range, both_ways, draw_uniform
from scopereg.data.mismatch.images import blur_across, blur_down, check_images
from scopereg.data.mismatch.options import FanOptions, MismatchOptions
from scopereg.data.mismatch.rays import Rays, draw_rays
from scopereg.data.mismatch.unseen import apply_unseen
from scopereg.data.phantom.speckle import speckle_field

_MISMATCH = MismatchOptions()
_RAYLEIGH_MEAN = math.sqrt(math.pi) / 2  # of an envelope with unit mean power
_FWHM = math.sqrt(8 * math.log(2))  # full width at half maximum of a Gaussian with sigma 1


@torch.no_grad()
def apply_mismatch(
    images: Tensor,
    generator: torch.Generator,
    options: MismatchOptions = _MISMATCH,
    *,
    rays: Rays | None = None,
    seen: Tensor | None = None,
) -> Tensor:
    """Frames (B, H, W) with other speckle, resolution, grey map, gain, shadows and noise than `images` have.

    Shadows run along `rays`, by default those of probes drawn here. Pixels that are not `seen` (B, H, W) become 0;
    without it noise falls on black too, as it does inside a fan.
    """
    check_images(images, generator, seen, "apply_mismatch")
    count, height, width = images.shape
    rays = draw_rays(count, (height, width), generator) if rays is None else rays
    draw = draw_uniform(count, _ranges(options), generator)
    tissue = _change_sharpness(images, draw).clamp_min(0) ** draw["log_gamma"].exp()
    factor = _gain(draw, (height, width)) * _speckle(draw, (height, width), generator)
    factor = factor * cast_shadows(rays, draw_shadows(count, generator, options))
    noise = torch.randn(images.shape, generator=generator, device=generator.device) * draw["noise"]
    frames = torch.addcmul(noise, tissue, factor).clamp(0, 1)
    frames = torch.where(draw["clean"] < options.clean_chance, images, frames)
    return frames if seen is None else frames * seen


def _ranges(options: MismatchOptions) -> dict[str, Range]:
    low_px, high_px = options.grain_px
    return {
        "clean": UNIT,
        "log_gamma": both_ways(options.log_gamma),
        "gain": both_ways(options.gain),
        "ramp_y": both_ways(options.ramp),
        "ramp_x": both_ways(options.ramp),
        "speckle": (0.0, options.speckle),
        "grain_1": (low_px / _FWHM, high_px / _FWHM),
        "grain_2": (low_px / _FWHM, high_px / _FWHM),
        "blurs": UNIT,
        "blur_y_px": (0.0, options.blur_px),
        "blur_x_px": (0.0, options.blur_px),
        "sharpening": (-options.sharpening, 0.0),
        "noise": (0.0, options.noise),
    }


def _change_sharpness(images: Float[Tensor, "b h w"], draw: dict[str, Tensor]) -> Float[Tensor, "b h w"]:
    """Half of the images blurred, the others sharpened against their blurred copy."""
    blurred = blur_across(blur_down(images, draw["blur_y_px"]), draw["blur_x_px"])
    return torch.lerp(images, blurred, torch.where(draw["blurs"] < 0.5, 1.0, draw["sharpening"]))


def _gain(draw: dict[str, Tensor], shape: tuple[int, int]) -> Float[Tensor, "b {shape[0]} {shape[1]}"]:
    """Gain with linear ramps along both axes."""
    y = torch.linspace(-1, 1, shape[0], device=draw["gain"].device)[:, None]
    x = torch.linspace(-1, 1, shape[1], device=draw["gain"].device)
    return (1 + draw["gain"]) * ((1 + draw["ramp_y"] * y) + draw["ramp_x"] * x)


def _speckle(
    draw: dict[str, Tensor], shape: tuple[int, int], generator: torch.Generator
) -> Float[Tensor, "b {shape[0]} {shape[1]}"]:
    """Multiplicative speckle of mean 1: the Rayleigh envelope of fields of its own, as strong as drawn."""
    strength = draw["speckle"]
    # A beam is wider than its pulse is long: the wider of two draws is lateral.
    axial = torch.minimum(draw["grain_1"], draw["grain_2"])
    lateral = torch.maximum(draw["grain_1"], draw["grain_2"])
    field = speckle_field(len(strength), shape, (axial, lateral), generator)
    return (1 - strength) + field.abs() * (strength / _RAYLEIGH_MEAN)


_SECOND = 0.4  # probability of a second shadow once there is a first
_HALF_WIDTH = (0.08, 0.25)
_DEEPEST_START = 0.5
_ONSET = 0.1  # depth over which a shadow sets in


class Shadows(NamedTuple):
    """K shadows of each of b frames, in the units of their rays."""

    centre: Float[Tensor, "k b 1 1"]
    half_width: Float[Tensor, "k b 1 1"]
    softness: Float[Tensor, "k b 1 1"]  # share of the half width over which it sets in from its sides
    start: Float[Tensor, "k b 1 1"]
    dark: Float[Tensor, "k b 1 1"]  # share of the grey value that it takes, 0 where there is none


def draw_shadows(count: int, generator: torch.Generator, options: MismatchOptions) -> Shadows:
    """One or two shadows for some of the frames: half of them from the probe's face on, the others from deeper."""
    ranges = {
        "centre": both_ways(0.95),
        "half_width": _HALF_WIDTH,
        "softness": (0.6, 1.0),
        "start": both_ways(_DEEPEST_START + _ONSET),
        "dark": options.shadow_dark,
        "rarity": UNIT,
    }
    draw = {name: value.unflatten(0, (2, count)) for name, value in draw_uniform(2 * count, ranges, generator).items()}
    first = draw["rarity"][0] < options.shadow_chance
    there = torch.stack([first, first & (draw["rarity"][1] < _SECOND)])  # (2, B, 1, 1)
    return Shadows(
        draw["centre"],
        draw["half_width"],
        draw["softness"],
        start=draw["start"].clamp_min(0) - _ONSET,
        dark=draw["dark"] * there,
    )


def cast_shadows(rays: Rays, shadows: Shadows) -> Float[Tensor, "b h w"]:
    """Transmission behind shadows: 1 beside and before them."""
    centre, half_width, softness, start, dark = shadows
    across = ((half_width - (rays.angle - centre).abs()) / (half_width * softness)).clamp(0, 1)  # (K, B, H, W)
    along = ((rays.depth - start) / _ONSET).clamp(0, 1)
    first, second = torch.addcmul(torch.ones_like(dark), across, along * dark, value=-1)
    return first * second


_MISMATCH, _FAN = MismatchOptions(), FanOptions()


def honest_frames(
    images: Tensor,
    generator: torch.Generator,
    *,
    unseen: bool,
    mismatch: MismatchOptions = _MISMATCH,
    fan: FanOptions = _FAN,
    rays: Rays | None = None,
    seen: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Frames (B, H, W) with mismatch, 0 outside of their fans, and the masks (B, H, W) of what they show.

    `unseen` adds families that no network is trained on: for tests alone. Probes are drawn here unless their `rays` are
    given. Pixels that are not `seen` are masked too; give it only where it does not tell the pose.
    """
    check_images(images, generator, seen, "honest_frames")
    count, height, width = images.shape
    rays = draw_rays(count, (height, width), generator, fan) if rays is None else rays
    frames = apply_mismatch(images, generator, mismatch, rays=rays)
    if unseen:
        frames = apply_unseen(frames, generator, rays=rays)
    masks = rays.inside if seen is None else rays.inside & seen
    return frames * masks, masks
