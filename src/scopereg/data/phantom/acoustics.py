"""Acoustics: from tissue along rays to the grey levels on a screen."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from scopereg.data.phantom.anatomy.base import Tissue
from scopereg.data.phantom.fan import Fan
from scopereg.data.phantom.scanner import Scanner

DARKEST = 1 / 255  # grey of the deepest shadow: what the fan sees is never exactly black
_MAX_LOSS_DB = 42.0
_MAX_ENHANCEMENT_DB = 5.0
_BEAM_TAPS = (0.0625, 0.25, 0.375, 0.25, 0.0625)  # the beam's spread over neighbouring rays
_REVERBERATION_MM = 4.5  # distance between the ghost layers below the probe
_REVERBERATION = 0.6
_TO_NEPER = math.log(10) / 20  # decibels to the logarithm of an amplitude
_SPECKLE_REDUCTION = 0.8
_SPECULAR_CALM = 0.7  # share of a mirror echo that does not fluctuate with the speckle


def ray_cosine(distance_mm: Tensor, step_mm: Tensor) -> Tensor:
    """|cos| (B, rays, samples) of the angle between the ray and the normal of a surface given by its distance."""
    slope = (distance_mm[..., 2:] - distance_mm[..., :-2]) / (2 * step_mm[:, None, None])
    return F.pad(slope.abs().clamp_max(1), (1, 1), mode="replicate")


def specular_amplitude(tissue: Tissue, step_mm: Tensor) -> Tensor:
    """Amplitude of all mirror-like surfaces: a thin line, bright where the beam meets it squarely."""
    total = torch.zeros_like(tissue.echo_db)
    for surface in tissue.interfaces:
        # A line thinner than a sample would flicker from ray to ray.
        width = (step_mm * 0.6).clamp_min(surface.thickness_mm)[:, None, None]
        line = -0.5 * (surface.distance_mm / width) ** 2 + surface.peak_db * _TO_NEPER
        total = total + torch.exp(line) * ray_cosine(surface.distance_mm, step_mm) ** surface.exponent
    return total


def path_loss_db(tissue: Tissue, step_mm: Tensor) -> Tensor:
    """Loss beyond the time-gain compensation from the probe to each sample; negative behind fluid."""
    before = torch.cumsum(tissue.excess_db_per_mm, -1) - tissue.excess_db_per_mm
    return (before * step_mm[:, None, None]).clamp(-_MAX_ENHANCEMENT_DB, _MAX_LOSS_DB)


def contact_db(scanner: Scanner, rays: int, samples: int) -> Tensor:
    """Gain (B, rays, samples) that does not come from tissue: time-gain errors, ramps, shadows from the skin."""
    device = scanner.gain_db.device
    angle = torch.linspace(-1, 1, rays, device=device)[None, :, None]
    depth = torch.linspace(0, 1, samples, device=device)
    terms = torch.cos(math.pi * depth * torch.arange(1, scanner.tgc_db.shape[1] + 1, device=device)[:, None])
    gain = (scanner.tgc_db @ terms)[:, None, :]
    gain = gain + scanner.side_db[:, None, None] * angle - scanner.edge_db[:, None, None] * angle.abs() ** 5
    offset = (angle - scanner.shadow_angle[:, None, :]) / scanner.shadow_width[:, None, :]  # (B, rays, SHADOWS)
    shadow = (scanner.shadow_db[:, None, :] * torch.exp(-(offset**4))).sum(-1, keepdim=True)
    return gain - shadow * torch.tanh(depth * 8)  # fully there after a little depth


def haze_power(scanner: Scanner, depth_mm: Tensor) -> Tensor:
    """Power (B, 1, samples) of clutter: reverberation bands and haze near the probe, a little everywhere."""
    reach = scanner.haze_reach_mm[:, None, None]
    depth = depth_mm[:, None, :]
    bands = 1 + _REVERBERATION * torch.cos(2 * math.pi * depth / _REVERBERATION_MM)
    near = torch.exp(2 * _TO_NEPER * scanner.haze_db)[:, None, None] * bands * torch.exp(-depth / reach)
    return near + torch.exp(2 * _TO_NEPER * scanner.clutter_db)[:, None, None]


def envelope(tissue: Tissue, fan: Fan, scanner: Scanner, field: Tensor) -> Tensor:
    """Echo envelope (B, rays, samples) before compression, from a complex speckle field of unit power.

    The field has the point spread already. Scaling it with the root of the beam-smoothed power has the same local
    statistics as filtering scaled scatterers, at a fraction of the cost.
    """
    rays, samples = field.shape[-2:]
    step_mm = fan.step_mm(samples)
    contact = contact_db(scanner, rays, samples)
    gain = contact - path_loss_db(tissue, step_mm)
    level_db = tissue.echo_db + gain
    if tissue.fibre_distance_mm is not None:
        level_db = level_db - tissue.fibre_db * (1 - ray_cosine(tissue.fibre_distance_mm, step_mm) ** 2)
    power = torch.exp(level_db * (2 * _TO_NEPER))
    depth_mm = torch.arange(samples, device=field.device) * step_mm[:, None]
    power = power + haze_power(scanner, depth_mm) * torch.exp(contact.clamp_max(0) * _TO_NEPER)
    noise_db = scanner.noise_db[:, None] + 20 * (depth_mm / depth_mm[:, -1:] - 1)  # time-gain lifts it with depth
    power = _spread(power) + torch.exp(noise_db * (2 * _TO_NEPER))[:, None, :]
    mirror = _spread((specular_amplitude(tissue, step_mm) * torch.exp(gain * _TO_NEPER)) ** 2).sqrt()
    amplitude = power.sqrt()
    real = amplitude * field.real + mirror * (_SPECULAR_CALM + (1 - _SPECULAR_CALM) * field.real)
    return torch.sqrt(real**2 + (amplitude * field.imag) ** 2)


def compress(echo: Tensor, scanner: Scanner) -> Tensor:
    """Grey levels in [DARKEST, 1] of envelopes (B, rays, samples): gain, log compression, grey map."""
    gain, span, gamma = (v[:, None, None] for v in (scanner.gain_db, scanner.dynamic_range_db, scanner.gamma))
    level_db = torch.log(echo.clamp_min(1e-6)) / _TO_NEPER + gain
    grey = (1 + level_db / span).clamp(DARKEST, 1)
    # Scanners calm the speckle on the screen: a little of the neighbours, along and across the rays.
    padded = F.pad(grey[:, None], (1, 1, 1, 1), mode="replicate")
    calmed = F.avg_pool2d(padded, 3, stride=1)[:, 0]
    return torch.lerp(grey, calmed, _SPECKLE_REDUCTION) ** gamma


def scan_convert(grey: Tensor, fan: Fan, x_mm: Tensor, y_mm: Tensor) -> tuple[Tensor, Tensor]:
    """Images and fan masks (B, H, W) at plane points (H, W) from polar grey levels (B, rays, samples).

    One fan may serve all planes. Outside of it the image is 0.
    """
    angle, depth = fan.locate(x_mm.expand(len(fan.far_mm), -1, -1), y_mm.expand(len(fan.far_mm), -1, -1))
    mask = (angle.abs() <= 1) & (depth.abs() <= 1)
    grid = torch.stack([depth, angle], -1)
    # With one fan the planes travel as channels: the weights are found once.
    planes = grey[None] if len(grid) == 1 else grey[:, None]
    image = F.grid_sample(planes, grid, mode="bilinear", padding_mode="border", align_corners=True)
    image = image.reshape(len(grey), *mask.shape[1:]).clamp_min(DARKEST) * mask
    return image, mask.expand(len(grey), -1, -1)


def _spread(power: Tensor) -> Tensor:
    """Power smeared over neighbouring rays by the width of the beam."""
    half = len(_BEAM_TAPS) // 2
    padded = F.pad(power[:, None], (0, 0, half, half), mode="replicate")[:, 0]
    rays = power.shape[1]
    total = padded[:, :rays] * _BEAM_TAPS[0]
    for tap, weight in enumerate(_BEAM_TAPS[1:], start=1):
        total.add_(padded[:, tap : tap + rays], alpha=weight)
    return total
