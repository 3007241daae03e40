"""Fan: the part of a plane that a transducer sees, as rays from an apex."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

import torch
from torch import Tensor

_DEEP = 0.7  # the share of the depth at which rays are as far apart as _PIXELS_PER_RAY
_PIXELS_PER_RAY = 1.1
_MIN_GRID, _MAX_GRID = 24, 768


@dataclass(frozen=True)
class Fan:
    """Fans (B,) in the mm of their image plane: x right, y down, from the image's centre.

    `heading_deg` is the middle ray's turn away from +y: 0 looks down, 180 looks up. Rays start `near_mm` from the apex
    (the face of a curved probe) and end at `far_mm`.
    """

    apex_x_mm: Tensor
    apex_y_mm: Tensor
    heading_deg: Tensor
    half_angle_deg: Tensor
    near_mm: Tensor
    far_mm: Tensor

    @classmethod
    def single(cls, *numbers: float, device: torch.device | str = "cpu") -> Fan:
        """One fan from plain numbers in the order of the fields."""
        return cls(*(torch.tensor([n], device=device, dtype=torch.float32) for n in numbers))

    def __getitem__(self, rows: slice) -> Fan:
        """Some of them."""
        return Fan(*(getattr(self, field.name)[rows] for field in fields(self)))

    def grid_size(self, spacing_mm: float) -> tuple[int, int]:
        """Rays and samples per ray that do justice to pixels of this size."""
        span_rad = 2 * math.radians(float(self.half_angle_deg.max()))
        far_mm = float(self.far_mm.max())
        depth_mm = far_mm - float(self.near_mm.min())
        rays = math.ceil(span_rad * _DEEP * far_mm / (_PIXELS_PER_RAY * spacing_mm))
        samples = math.ceil(depth_mm / spacing_mm) + 1
        return min(max(rays, _MIN_GRID), _MAX_GRID), min(max(samples, _MIN_GRID), _MAX_GRID)

    def step_mm(self, samples: int) -> Tensor:
        """Distance (B,) between samples of a ray."""
        return (self.far_mm - self.near_mm) / (samples - 1)

    def ray_positions(self, rays: int, samples: int) -> tuple[Tensor, Tensor]:
        """Image-plane x, y in mm (B, rays, samples) of the polar grid."""
        device = self.far_mm.device
        turn = torch.linspace(-1, 1, rays, device=device) * self.half_angle_deg[:, None] + self.heading_deg[:, None]
        radius = self.near_mm[:, None] + torch.arange(samples, device=device) * self.step_mm(samples)[:, None]
        angle = torch.deg2rad(turn)[:, :, None]
        x = self.apex_x_mm[:, None, None] + radius[:, None, :] * torch.sin(angle)
        y = self.apex_y_mm[:, None, None] + radius[:, None, :] * torch.cos(angle)
        return x, y

    def below_face_mm(self, x_mm: Tensor, y_mm: Tensor) -> Tensor:
        """Distance (B, ...) of plane points (..., H, W) from the face of the probe, along their rays."""
        dx, dy = x_mm - self.apex_x_mm[:, None, None], y_mm - self.apex_y_mm[:, None, None]
        return torch.sqrt(dx * dx + dy * dy) - self.near_mm[:, None, None]

    def locate(self, x_mm: Tensor, y_mm: Tensor) -> tuple[Tensor, Tensor]:
        """Angle and depth of plane points (B, ...), both scaled so that the fan is [-1, 1] on each."""
        shape = (-1,) + (1,) * (x_mm.ndim - 1)
        heading = torch.deg2rad(self.heading_deg).reshape(shape)
        dx, dy = x_mm - self.apex_x_mm.reshape(shape), y_mm - self.apex_y_mm.reshape(shape)
        side = dx * torch.cos(heading) - dy * torch.sin(heading)
        ahead = dx * torch.sin(heading) + dy * torch.cos(heading)
        angle = torch.rad2deg(torch.atan2(side, ahead)) / self.half_angle_deg.reshape(shape)
        near, far = self.near_mm.reshape(shape), self.far_mm.reshape(shape)
        depth = (torch.sqrt(side * side + ahead * ahead) - near) / (far - near) * 2 - 1
        return angle, depth
