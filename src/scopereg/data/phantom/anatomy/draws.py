"""Draws: the random numbers that make one patient differ from the next; Texture: random fields made of them."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from scopereg.data.seeds import generator_for


class Draws:
    """Seeded numbers for the parameters of an anatomy.

    Always drawn on the CPU, so that one seed gives the same patient on every device.
    """

    def __init__(self, purpose: str, seed: int) -> None:
        self._generator = generator_for(purpose, seed)

    def uniform(self, low: float, high: float) -> float:
        """One number between `low` and `high`."""
        return low + (high - low) * float(torch.rand((), generator=self._generator))

    def chance(self, probability: float) -> bool:
        """True with the given probability."""
        return self.uniform(0, 1) < probability

    def integer(self, low: int, high: int) -> int:
        """One whole number from `low` to `high`, both included."""
        return int(torch.randint(low, high + 1, (), generator=self._generator))

    def direction(self) -> torch.Tensor:
        """A unit vector (3,), all directions alike."""
        vector = torch.randn(3, generator=self._generator)
        return vector / vector.norm().clamp_min(1e-6)

    def noise(self, *shape: int) -> torch.Tensor:
        """Standard normal numbers of a shape."""
        return torch.randn(*shape, generator=self._generator)


_NODES = 32  # lattice nodes per axis before it repeats


class Texture:
    """Channels of smooth noise with unit variance, periodic in space, sampled with one lookup.

    `scale_mm` is the size of the finest detail; larger detail is mixed in with the weight of its size, as in tissue.
    """

    def __init__(self, draws: Draws, channels: int, scale_mm: float, device: torch.device) -> None:
        spectrum = torch.fft.fftn(draws.noise(channels, _NODES, _NODES, _NODES), dim=(-3, -2, -1))
        k = torch.fft.fftfreq(_NODES)
        k2 = k[:, None, None] ** 2 + k[None, :, None] ** 2 + k[None, None, :] ** 2
        falloff = torch.exp(-k2 / (2 * 0.16**2)) / (k2 + 0.05**2) ** 0.5
        falloff[0, 0, 0] = 0  # no offset: the mean stays what the tissue says
        field = torch.fft.ifftn(spectrum * falloff, dim=(-3, -2, -1)).real
        field = field / field.std((-3, -2, -1), keepdim=True)
        # One more node on each side closes the period for the interpolation.
        self._lattice = F.pad(field[None], (0, 1, 0, 1, 0, 1), mode="circular").contiguous().to(device)
        self._step_mm = scale_mm / 2

    def __call__(self, x: Tensor, y: Tensor, z: Tensor) -> tuple[Tensor, ...]:
        """Channels, each of the broadcast shape of the coordinates in mm."""
        x, y, z = torch.broadcast_tensors(x, y, z)
        turns = torch.stack([x, y, z], -1).div_(self._step_mm * _NODES)
        grid = turns.sub_(turns.floor()).mul_(2).sub_(1)
        values = F.grid_sample(self._lattice, grid.reshape(1, 1, 1, -1, 3), mode="bilinear", align_corners=True)
        return values.reshape(-1, *x.shape).unbind(0)
