"""Speckle: complex Gaussian fields whose modulus is Rayleigh distributed, shaped by the point spread."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor


def speckle_field(
    count: int,
    shape: tuple[int, ...],
    widths: tuple[Tensor | float, ...],
    generator: torch.Generator,
) -> Tensor:
    """Periodic complex fields (count, *shape) with unit mean power; `widths` are the point spread's sigmas in samples.

    A width is a number or one per field (count,). White noise is drawn in the frequency domain, which is white too, and
    multiplied with the transfer function of a Gaussian point spread: one inverse FFT in all.
    """
    device = generator.device
    noise = torch.randn(count, *shape, 2, generator=generator, device=device)
    spectrum = torch.view_as_complex(noise)
    power = torch.ones((count,) + (1,) * len(shape), device=device)
    for axis, (size, width) in enumerate(zip(shape, widths, strict=True)):
        k = torch.fft.fftfreq(size, device=device)
        sigma = torch.as_tensor(width, device=device, dtype=torch.float32).reshape(-1, 1)
        transfer = torch.exp(-2 * (math.pi * k * sigma) ** 2)  # (count or 1, size)
        place = [len(transfer), *(size if other == axis else 1 for other in range(len(shape)))]
        spectrum = spectrum * transfer.reshape(place)
        power = power * (transfer**2).mean(-1).reshape((-1,) + (1,) * len(shape))
    field = torch.fft.ifftn(spectrum, dim=tuple(range(1, len(shape) + 1)), norm="ortho")
    return field / torch.sqrt(2 * power)  # complex normal numbers of unit parts have power 2


def sample_periodic(lattice: Tensor, turns: tuple[Tensor, Tensor, Tensor]) -> Tensor:
    """Complex values of a periodic lattice (Z, A, R) at positions counted in periods along z, angle and depth."""
    z, a, r = torch.broadcast_tensors(*turns)
    # Node n of N lies at n/N of the period; one more node closes it for the interpolation.
    padded = F.pad(torch.view_as_real(lattice).movedim(-1, 0)[None], (0, 1, 0, 1, 0, 1), mode="circular")
    grid = torch.stack([(t - t.floor()) * 2 - 1 for t in (r, a, z)], -1)
    values = F.grid_sample(padded, grid.reshape(1, 1, 1, -1, 3), mode="bilinear", align_corners=True)
    return torch.view_as_complex(values.reshape(2, -1).T.contiguous()).reshape(z.shape)
