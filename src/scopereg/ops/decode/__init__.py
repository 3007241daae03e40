"""Decoding one frame in a few launches: gates from one product, planes weighed, a pose fitted.

Each of the three steps has a twin in plain PyTorch; without gradients and on an NVIDIA GPU a Triton kernel does it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from scopereg.ops.decode import plain
from scopereg.ops.decode.plain import Fit, Gates, Sizes
from scopereg.ops.scan import available_backends

__all__ = ["Fit", "Gates", "Sizes", "fit_plane", "split_gates", "weigh_planes"]


def split_gates(mapped: Tensor, sizes: Sizes) -> Gates:
    """All gates that a slice steers the scans with, from one product (B, L, columns) of its tokens; in float32.

    Columns are: steps of the feature scan (directions x channels), its write gates and its readouts (directions x
    states each), readouts of the coordinate scan (directions x states).
    """
    gates: Gates = _backend(mapped).split_gates(mapped, sizes)
    return gates


def weigh_planes(logits: Tensor, log_decay: Tensor, moments: Tensor, readout: Tensor | None) -> tuple[Tensor, Tensor]:
    """Coordinates (B, L, 3) and evidence (B, L): the depth gate, and the planes weighed by it and summed.

    `logits` (B, D', L, 2 N + 1) are the depth gate's before its softplus, `log_decay` (N) its decays. With a `readout`
    (B, K, L, S), `moments` is a table of states (1 or B, K, D', L, S, 4) to be read by it; without, the moments
    (B, D', L, 4) themselves.
    """
    coordinates, evidence = _backend(logits).weigh_planes(logits, log_decay, moments, readout)
    return coordinates, evidence


def fit_plane(points: Tensor, coordinates: Tensor, evidence: Tensor) -> Fit:
    """The rigid motion of plane points (L, 2) that fits coordinates (B, L, 3) best, weighed by evidence (B, L)."""
    fit: Fit = _backend(coordinates).fit_plane(points, coordinates, evidence)
    return fit


def _backend(tensor: Tensor) -> Any:
    if tensor.is_cuda and not torch.is_grad_enabled() and available_backends("cuda")["triton"] is None:
        from scopereg.ops.decode import triton_backend

        return triton_backend
    return plain
