"""Rays: where each pixel lies as seen from the probe, and which pixels the probe sees."""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from scopereg.data.mismatch.draws import UNIT, both_ways, draw_uniform
from scopereg.data.mismatch.options import FanOptions
from scopereg.data.phantom.fan import Fan
from scopereg.errors import ScopeRegError
from scopereg.geometry import plane_points

_FAN = FanOptions()
_PARALLEL = 8.0  # times farther is the apex of a frame without a fan: its rays are nearly parallel


class Rays(NamedTuple):
    """The probes of frames, as seen from their pixels."""

    angle: Float[Tensor, "b h w"]  # -1 and 1 on the fan's outer rays
    depth: Float[Tensor, "b h w"]  # 0 on the probe's face and 1 where the rays end
    inside: Bool[Tensor, "b h w"]  # what the frame shows


def draw_rays(count: int, shape: tuple[int, int], generator: torch.Generator, options: FanOptions = _FAN) -> Rays:
    """Probes at the upper border of `count` images (H, W), independent of what is in them."""
    _check_fans(count, shape)
    height, width = shape
    # Lengths are heights of the image: they stand for the fan's mm.
    x, y = (plane_points((height, width), device=generator.device) / height).unbind(-1)
    fan, full = _draw_probes(count, width / height, generator, options)
    angle, depth = fan.locate(x[None], y[None])
    inside = torch.maximum(angle.abs(), depth.abs()) <= 1
    return Rays(angle, (depth + 1) / 2, inside | full)


def draw_fans(
    count: int, shape: tuple[int, int], generator: torch.Generator, options: FanOptions = _FAN
) -> Bool[Tensor, "{count} {shape[0]} {shape[1]}"]:
    """Masks of what transducers show, True inside: fans from the top, and some full rectangles."""
    return draw_rays(count, shape, generator, options).inside


def _draw_probes(count: int, aspect: float, generator: torch.Generator, options: FanOptions) -> tuple[Fan, Tensor]:
    """Fans in heights of the image, and which frames (B, 1, 1) show the full rectangle."""
    ranges = {
        "full": UNIT,
        "above": options.apex_above,
        "shift": both_ways(options.apex_shift * aspect),
        "heading_deg": both_ways(options.heading_deg),
        "half_width": (options.opening[0] * aspect / 2, options.opening[1] * aspect / 2),
        "face": options.face,
        "reach": options.reach,
    }
    draw = draw_uniform(count, ranges, generator)
    full = draw["full"] < options.full_chance
    farther = 1 + (_PARALLEL - 1) * full
    above = draw["above"] * farther
    fan = Fan(
        apex_x_mm=draw["shift"],
        apex_y_mm=-0.5 - above,
        heading_deg=draw["heading_deg"] / farther,
        half_angle_deg=torch.rad2deg(torch.atan(draw["half_width"] / (above + 0.5))),
        near_mm=(above + draw["face"]).clamp_min(0),
        far_mm=above + draw["reach"],
    )
    return fan, full


def _check_fans(count: int, shape: tuple[int, int]) -> None:
    if count < 1 or len(shape) != 2 or min(shape) < 2:
        raise ScopeRegError(
            f"{count} fans of shape {tuple(shape)} were asked for",
            where="draw_rays(count, shape)",
            fix="ask for at least one, of at least 2 x 2 pixels",
        )
