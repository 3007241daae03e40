"""Probes: linear, curved, phased and endocavity transducers, what they see and what their beams lose on the way."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from scopereg.data.mismatch.rays import Rays
from scopereg.data.phantom.fan import Fan
from scopereg.data.worlds.draws import Draws, on_device
from scopereg.geometry import plane_points

# Kinds of probes, by ranges of the fan in heights of the image: (apex above the face, radius of the face, half-angle).
# A linear probe's rays are parallel: its apex is far away.
_ABOVE = ((6.0, 8.0), (0.25, 0.9), (0.02, 0.08), (0.02, 0.15))
_HALF_ANGLE_DEG = ((3.0, 6.0), (24.0, 42.0), (30.0, 48.0), (50.0, 88.0))
_FACE = ((-0.03, 0.05), (-0.03, 0.06), (0.0, 0.03), (0.0, 0.12))
_KINDS = len(_ABOVE)
_SAMPLES = 96  # along and across the rays, where losses are summed


class Probes(NamedTuple):
    """A transducer for each of a batch of images (H, W); lengths are heights of the image."""

    fan: Fan
    shape: tuple[int, int]
    full: Bool[Tensor, "b 1 1"]  # images that show the whole rectangle all the same

    def rays(self) -> Rays:
        """Place of every pixel as seen from the probe."""
        height, _ = self.shape
        x, y = (plane_points(self.shape, device=self.full.device) / height).unbind(-1)
        angle, depth = self.fan.locate(x[None], y[None])
        inside = torch.maximum(angle.abs(), depth.abs()) <= 1
        return Rays(angle, (depth + 1) / 2, inside | self.full)

    def losses_db(self, attenuation_db: Float[Tensor, "b c h w"], rays: Rays) -> Float[Tensor, "b c h w"]:
        """Loss of beams on their way to every pixel, from losses per pixel of depth.

        Summed along rays. Pixels beyond the fan take the value of its border.
        """
        height, width = self.shape
        x, y = self.fan.ray_positions(_SAMPLES, _SAMPLES)  # (B, rays, samples)
        grid = torch.stack([x * 2 * height / max(width - 1, 1), y * 2 * height / max(height - 1, 1)], -1)
        along = F.grid_sample(attenuation_db, grid, padding_mode="border", align_corners=True)
        lost = torch.cumsum(along, -1) * (self.fan.step_mm(_SAMPLES) * height)[:, None, None, None]
        back = torch.stack([rays.depth * 2 - 1, rays.angle], -1)
        return F.grid_sample(lost, back, padding_mode="border", align_corners=True)


def draw_probes(
    draws: Draws, shape: tuple[int, int], full_chance: float | Tensor, upward: Bool[Tensor, " b"]
) -> Probes:
    """Probes of all kinds at the upper border, or at the lower one of images that look `upward`."""
    flat = draws.with_axes(0)
    kind = torch.randint(_KINDS, (draws.count,), generator=draws.generator, device=draws.device)

    def drawn(table: tuple[tuple[float, float], ...]) -> Tensor:
        low, high = (on_device(ends, draws.device)[kind] for ends in zip(*table, strict=True))
        return low + (high - low) * flat.uniform((0.0, 1.0))

    aspect = shape[1] / shape[0]
    above, face = drawn(_ABOVE), drawn(_FACE)
    half_angle = drawn(_HALF_ANGLE_DEG)
    # Wide images need wide fans: an opening that covers the image at half depth, times what is drawn.
    covering = torch.rad2deg(torch.atan(aspect / 2 / (above + 0.5)))
    half_angle = torch.where(kind < 2, covering * flat.uniform((0.85, 1.5)), half_angle)
    sign = torch.where(upward, -1.0, 1.0)
    heading = flat.uniform((-5.0, 5.0)) / (1 + above) + torch.where(upward, 180.0, 0.0)
    fan = Fan(
        apex_x_mm=flat.uniform((-0.06, 0.06)) * aspect,
        apex_y_mm=-(0.5 + above) * sign,
        heading_deg=heading,
        half_angle_deg=half_angle.clamp(2.0, 88.0),
        near_mm=(above + face).clamp_min(0.0),
        far_mm=above + flat.uniform((0.9, 1.15)),
    )
    return Probes(fan, shape, draws.with_axes(2).chance(full_chance))
