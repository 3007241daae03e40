"""apply_unseen: acoustic differences that no network of this package is trained on, for tests."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from scopereg.data.mismatch.draws import UNIT, Range, both_ways, draw_uniform
from scopereg.data.mismatch.images import blur_across, check_images
from scopereg.data.mismatch.rays import Rays, draw_rays
from scopereg.errors import ScopeRegError

UNSEEN_FAMILIES = ("lateral_resolution", "haze", "reverberation", "depth_gain", "compression")

_CHANCE = 0.5  # of each family, besides the one that a frame surely has
_BAND_DECAY = 0.6  # of each echo to the one before
_CLOUD_PX = (2, 4)  # grain of clutter, axial and lateral
# Depths are shares of the fan's depth.
_RANGES: dict[str, Range] = {
    "lateral": (0.01, 0.02),  # sigma where the beam is widest, as a share of the image's width
    "focus": (0.0, 0.4),
    "haze": (0.15, 0.4),  # grey value on the probe's face
    "haze_reach": (0.1, 0.3),  # depth over which it falls to 1/e
    "band": (0.12, 0.35),  # grey value of the first echo of the probe's face
    "band_period": (0.07, 0.2),
    "band_sigma": (0.008, 0.018),
    "band_centre": both_ways(0.6),
    "band_half_width": (0.3, 1.0),  # of the fan's half angle
    "wave_2": both_ways(0.2),  # logarithms of the gain's waves along depth
    "wave_3": both_ways(0.2),
    "wave_4": both_ways(0.2),
    "coarseness": (1.0, 3.0),  # of the quantisation: JPEG qualities 50 to 17
    "sure": UNIT,
}


@torch.no_grad()
def apply_unseen(
    images: Tensor,
    generator: torch.Generator,
    *,
    families: Sequence[str] = UNSEEN_FAMILIES,
    rays: Rays | None = None,
    seen: Tensor | None = None,
) -> Tensor:
    """Frames (B, H, W) with at least one of `families` each, every other with even odds, at random strengths.

    Haze and bands follow `rays`, by default those of probes drawn here. Pixels that are not `seen` (B, H, W) become 0.
    """
    check_images(images, generator, seen, "apply_unseen")
    _check_families(families)
    count, height, width = images.shape
    rays = draw_rays(count, (height, width), generator) if rays is None else rays
    ranges = {**_RANGES, **dict.fromkeys(families, UNIT)}
    draw = draw_uniform(count, ranges, generator)
    has = _choose(families, draw)
    depth = rays.depth.clamp(0, 1)
    frames = images
    if "lateral_resolution" in has:
        frames = torch.where(has["lateral_resolution"], _blur_beam(frames, depth, draw), frames)
    clouds = _draw_clouds(count, (height, width), generator)
    if "haze" in has:
        haze = _haze(depth, draw) * (clouds * has["haze"])
        frames = torch.addcmul(frames, haze, 1 - frames)
    if "reverberation" in has:
        bands = _bands(rays, draw) * (clouds * has["reverberation"])
        frames = torch.addcmul(frames, bands, 1 - frames)
    if "depth_gain" in has:
        frames = frames * torch.where(has["depth_gain"], _gain_curve(height, draw), 1.0)
    frames = frames.clamp(0, 1)
    if "compression" in has:
        squeezed = compress_frames(frames, draw["coarseness"]).clamp(0, 1)
        frames = torch.where(has["compression"], squeezed, frames)
    return frames if seen is None else frames * seen


def _choose(families: Sequence[str], draw: dict[str, Tensor]) -> dict[str, Tensor]:
    """Frames (B, 1, 1) that have each family: a frame has one for sure and some of the others."""
    sure = torch.floor(draw["sure"] * len(families))
    return {name: (draw[name] < _CHANCE) | (sure == number) for number, name in enumerate(families)}


def _blur_beam(
    images: Float[Tensor, "b h w"], depth: Float[Tensor, "b h w"], draw: dict[str, Tensor]
) -> Float[Tensor, "b h w"]:
    """Images with a lateral blur that widens away from a shallow focus."""
    widest_px, focus = draw["lateral"] * images.shape[-1], draw["focus"]
    # Three widths stand for all: none, half and full, blended by the distance from the focus.
    level = (depth - focus).abs() * (2 / (1 - focus))  # (B, H, W), 0 to 2
    half, full = blur_across(images, widest_px / 2), blur_across(images, widest_px)
    return torch.where(level < 1, torch.lerp(images, half, level), torch.lerp(half, full, level - 1))


def _draw_clouds(
    count: int, shape: tuple[int, int], generator: torch.Generator
) -> Float[Tensor, "{count} {shape[0]} {shape[1]}"]:
    """Textures of clutter, of mean near 1: half even, half the envelope of a coarse complex lattice."""
    coarse = [math.ceil(size / px) + 1 for size, px in zip(shape, _CLOUD_PX, strict=True)]
    lattice = torch.randn(count, 2, *coarse, generator=generator, device=generator.device)
    real, imaginary = F.interpolate(lattice, shape, mode="bicubic", align_corners=True).unbind(1)
    return 0.5 + 0.5 * torch.hypot(real, imaginary)


def _haze(depth: Float[Tensor, "b h w"], draw: dict[str, Tensor]) -> Float[Tensor, "b h w"]:
    """Grey value of a haze that is densest at the probe."""
    return draw["haze"] * torch.exp(-depth / draw["haze_reach"])


def _bands(rays: Rays, draw: dict[str, Tensor]) -> Float[Tensor, "b h w"]:
    """Grey value of echoes at multiples of a depth, along a part of the probe's face, each weaker."""
    turns = rays.depth / draw["band_period"]
    echo = turns.round()
    off = (turns - echo) * (draw["band_period"] / draw["band_sigma"])
    beside = ((rays.angle - draw["band_centre"]) / draw["band_half_width"]) ** 2
    # One exponential: pulse along depth, window across, decay from echo to echo.
    shape = torch.exp(-0.5 * (off * off + beside * beside) + math.log(_BAND_DECAY) * (echo - 1))
    return draw["band"] * torch.where(echo > 0, shape, 0.0)


def _gain_curve(height: int, draw: dict[str, Tensor]) -> Float[Tensor, "b {height} 1"]:
    """Gain that wavers smoothly along depth."""
    turn = torch.linspace(0, math.pi, height, device=draw["wave_2"].device)[:, None]
    waves = [draw[f"wave_{number}"] * torch.cos(number * turn) for number in (2, 3, 4)]
    return torch.exp(waves[0] + waves[1] + waves[2])


def _check_families(families: Sequence[str]) -> None:
    unknown = [name for name in families if name not in UNSEEN_FAMILIES]
    if unknown or not families or len(set(families)) < len(families):
        raise ScopeRegError(
            f"the families are {tuple(families)}",
            where="apply_unseen(families)",
            fix=f"pass some of {', '.join(UNSEEN_FAMILIES)}, each once",
        )


_BLOCK = 8
# The luminance table of the JPEG standard (ITU-T T.81, table K.1), in grey values of 255.
# fmt: off
_STEPS = (
    16, 11, 10, 16, 24, 40, 51, 61,
    12, 12, 14, 19, 26, 58, 60, 55,
    14, 13, 16, 24, 40, 57, 69, 56,
    14, 17, 22, 29, 51, 87, 80, 62,
    18, 22, 37, 56, 68, 109, 103, 77,
    24, 35, 55, 64, 81, 104, 113, 92,
    49, 64, 78, 87, 103, 121, 120, 101,
    72, 92, 95, 98, 112, 100, 103, 99,
)
# fmt: on


@functools.lru_cache(maxsize=8)
def cosine_basis(device: torch.device) -> Tensor:
    """Basis images (64, 64) of the orthonormal cosine transform of 8 x 8 blocks, one per row."""
    k = torch.arange(_BLOCK, dtype=torch.float64)
    waves = torch.cos(math.pi / _BLOCK * k[:, None] * (k + 0.5)) * math.sqrt(2 / _BLOCK)
    waves[0] /= math.sqrt(2)
    return torch.kron(waves, waves).float().to(device)


@functools.lru_cache(maxsize=8)
def _steps(device: torch.device) -> Tensor:
    return torch.tensor(_STEPS, dtype=torch.float32, device=device) / 255


def compress_frames(images: Float[Tensor, "b h w"], coarseness: Float[Tensor, "b 1 1"]) -> Float[Tensor, "b h w"]:
    """Images after quantisation with the standard table times `coarseness`."""
    count, height, width = images.shape
    rows, columns = math.ceil(height / _BLOCK), math.ceil(width / _BLOCK)
    padding = (0, columns * _BLOCK - width, 0, rows * _BLOCK - height)
    padded = F.pad(images, padding, mode="replicate")
    blocks = padded.reshape(count, rows, _BLOCK, columns, _BLOCK).transpose(2, 3).reshape(count, -1, _BLOCK**2)
    basis = cosine_basis(images.device)
    steps = _steps(images.device) * coarseness  # (B, 1, 64)
    with torch.autocast(images.device.type, enabled=False):
        kept = torch.round(blocks @ basis.mT / steps) * steps  # (B, blocks, 64)
        blocks = (kept @ basis).reshape(count, rows, columns, _BLOCK, _BLOCK)
    return blocks.transpose(2, 3).reshape(padded.shape)[:, :height, :width]
