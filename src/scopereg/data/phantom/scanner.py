"""Scanner: the settings of the machine and the state of its contact with the skin, one set per acquisition."""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch
from torch import Tensor

from scopereg.data.phantom.fan import Fan
from scopereg.data.phantom.options import AcquisitionOptions

TGC_TERMS = 3
SHADOWS = 2
_SKIN_SHADOW_DB = (6.0, 26.0)
_SKIN_SHADOW_WIDTH = (0.06, 0.22)  # of the fan's half angle


@dataclass(frozen=True)
class Scanner:
    """Settings (B,) of acquisitions; those with a second axis are (B, n)."""

    gain_db: Tensor
    dynamic_range_db: Tensor
    gamma: Tensor
    haze_db: Tensor  # clutter at the probe's face, 0 dB = white
    haze_reach_mm: Tensor  # depth at which its power has fallen to 1/e
    clutter_db: Tensor  # clutter at every depth
    noise_db: Tensor  # electronic noise at the deepest sample
    axial_mm: Tensor  # sigma of the point spread along the ray
    lateral_deg: Tensor  # sigma of the point spread across rays: grows with depth in mm
    tgc_db: Tensor  # (B, TGC_TERMS) cosine terms over the depth
    side_db: Tensor  # gain ramp over the rays
    edge_db: Tensor  # loss at both outermost rays
    shadow_angle: Tensor  # (B, SHADOWS), -1..1 across the fan
    shadow_width: Tensor  # (B, SHADOWS)
    shadow_db: Tensor  # (B, SHADOWS)

    @classmethod
    def single(
        cls,
        *,
        gain_db: float,
        dynamic_range_db: float,
        haze_db: float,
        haze_reach_mm: float,
        clutter_db: float,
        noise_db: float,
        axial_mm: float,
        lateral_deg: float,
        tgc_db: float,
        edge_db: float,
        shadow: tuple[float, float, float] = (0.0, 0.1, 0.0),
        device: torch.device | str = "cpu",
    ) -> Scanner:
        """One scanner from plain numbers, with at most one `shadow` (angle, width, dB).

        `tgc_db` is what the time-gain curve gives too much at the probe and too little at the far end.
        """

        def one(value: float) -> Tensor:
            return torch.tensor([value], device=device, dtype=torch.float32)

        angle, width, depth_db = (one(v)[:, None].repeat(1, SHADOWS) for v in shadow)
        depth_db[:, 1:] = 0
        curve = torch.zeros(1, TGC_TERMS, device=device)
        curve[:, 0] = tgc_db
        return cls(
            gain_db=one(gain_db),
            dynamic_range_db=one(dynamic_range_db),
            gamma=one(1.0),
            haze_db=one(haze_db),
            haze_reach_mm=one(haze_reach_mm),
            clutter_db=one(clutter_db),
            noise_db=one(noise_db),
            axial_mm=one(axial_mm),
            lateral_deg=one(lateral_deg),
            tgc_db=curve,
            side_db=one(0.0),
            edge_db=one(edge_db),
            shadow_angle=angle,
            shadow_width=width,
            shadow_db=depth_db,
        )

    def __getitem__(self, rows: slice) -> Scanner:
        """Some of them."""
        return Scanner(*(getattr(self, field.name)[rows] for field in fields(self)))

    def varied(self, options: AcquisitionOptions, count: int, generator: torch.Generator) -> Scanner:
        """`count` scanners drawn around this one; it must be a single one."""

        def draw(*axes: int) -> Tensor:
            return 2 * torch.rand(count, *axes, generator=generator, device=generator.device) - 1

        shadow_angle = draw(SHADOWS)
        low, high = _SKIN_SHADOW_WIDTH
        shadow_width = low + (high - low) * (draw(SHADOWS) + 1) / 2
        low, high = _SKIN_SHADOW_DB
        cast = (draw(SHADOWS) + 1) / 2 < options.shadow_chance
        shadow_db = torch.where(cast, low + (high - low) * (draw(SHADOWS) + 1) / 2, torch.zeros_like(shadow_angle))
        own = self.shadow_db if options.shadow_chance == 0 else torch.zeros_like(self.shadow_db)
        keep = own.expand(count, -1) > 0  # without draws the volume's own shadow stays
        return Scanner(
            gain_db=self.gain_db + options.gain_db * draw(),
            dynamic_range_db=self.dynamic_range_db + options.dynamic_range_db * draw(),
            gamma=self.gamma * torch.exp(options.gamma * draw()),
            haze_db=self.haze_db + options.haze_db * draw(),
            haze_reach_mm=self.haze_reach_mm.expand(count),
            clutter_db=self.clutter_db + 0.5 * options.haze_db * draw(),
            noise_db=self.noise_db.expand(count),
            axial_mm=self.axial_mm * torch.exp(options.resolution * draw()),
            lateral_deg=self.lateral_deg * torch.exp(options.resolution * draw()),
            tgc_db=self.tgc_db + options.tgc_db * draw(TGC_TERMS),
            side_db=self.side_db + options.side_db * draw(),
            edge_db=self.edge_db.expand(count),
            shadow_angle=torch.where(keep, self.shadow_angle, shadow_angle),
            shadow_width=torch.where(keep, self.shadow_width, shadow_width),
            shadow_db=torch.where(keep, own, shadow_db),
        )


def vary_fan(fan: Fan, options: AcquisitionOptions, count: int, generator: torch.Generator) -> Fan:
    """`count` fans drawn around a single one; nothing of the pose enters."""
    draw = 2 * torch.rand(5, count, generator=generator, device=generator.device) - 1
    shift_mm = options.fan_shift * (fan.far_mm - fan.near_mm)
    opening = 1 + options.fan_size * draw[3]
    return Fan(
        fan.apex_x_mm + shift_mm * draw[0],
        fan.apex_y_mm + shift_mm * draw[1],
        fan.heading_deg + options.fan_turn_deg * draw[2],
        fan.half_angle_deg * opening,
        fan.near_mm.expand(count),
        fan.near_mm + (fan.far_mm - fan.near_mm) * (1 + options.fan_size * draw[4]),
    )
