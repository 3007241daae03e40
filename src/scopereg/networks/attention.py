"""Cross-attention in place of the feature scan: the arm that the paper compares its fusion with."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from scopereg.networks.fusion import WIDTH
from scopereg.networks.lattice import Lattice

HEADS = 8


class CrossAttention(nn.Module):
    """Volume tokens attend over volume and slice tokens: (B, D', L, C') and (B, L, C') to (B, D', L, C')."""

    def __init__(self) -> None:
        super().__init__()
        self.query = nn.Linear(WIDTH, WIDTH)
        self.key = nn.Linear(WIDTH, WIDTH)
        self.value = nn.Linear(WIDTH, WIDTH)
        self.output = nn.Linear(WIDTH, WIDTH)

    def forward(self, x_v: Tensor, x_s: Tensor, lattice: Lattice) -> Tensor:
        place = positions(lattice, x_v.device).to(x_v.dtype)  # (D', L, C')
        middle = positions(Lattice((1, *lattice.shape[1:]), (0.0, *lattice.start[1:])), x_v.device).to(x_s.dtype)
        volume = (x_v + place).flatten(1, 2)  # (B, D' L, C')
        both = torch.cat([volume, x_s + middle[0]], 1)
        query, key, value = (self._split(x) for x in (self.query(volume), self.key(both), self.value(both)))
        attended = F.scaled_dot_product_attention(query, key, value)
        return self.output(attended.transpose(1, 2).flatten(2)).unflatten(1, x_v.shape[1:3])

    @staticmethod
    def _split(tokens: Tensor) -> Tensor:
        return tokens.unflatten(-1, (HEADS, -1)).transpose(1, 2)  # (B, heads, N, C' / heads)


def positions(lattice: Lattice, device: torch.device) -> Tensor:
    """Sine and cosine codes (D', L, C') of x, y and z, a third of the channels each, the rest zero."""
    points = lattice.volume_points(device)[..., :3]  # (D', L, 3)
    pairs = WIDTH // 6
    rates = torch.exp(-math.log(1e4) * torch.arange(pairs, device=device) / pairs)
    angles = points[..., None] * rates  # (D', L, 3, pairs)
    codes = torch.cat([angles.sin(), angles.cos()], -1).flatten(-2)
    return F.pad(codes, (0, WIDTH - codes.shape[-1]))
