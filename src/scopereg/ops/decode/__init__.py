"""Decoding one frame in a few launches: gates from one product, planes weighed, a pose fitted.

Each of the steps has a twin in plain PyTorch; on an NVIDIA GPU a Triton kernel does it, without gradients or with them.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from scopereg.geometry import weighted_kabsch
from scopereg.ops.decode import plain
from scopereg.ops.decode.plain import Fit, Gates, Sizes
from scopereg.ops.scan import available_backends
from scopereg.ops.scan.dispatch import fastest

__all__ = ["Fit", "Gates", "Sizes", "fit_plane", "fit_pose", "split_gates", "weigh_planes"]


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
    if readout is None and _differentiates(logits, log_decay, moments):
        from scopereg.ops.decode import gradients

        return gradients.weigh_planes(logits, log_decay, moments)
    coordinates, evidence = _backend(logits).weigh_planes(logits, log_decay, moments, readout)
    return coordinates, evidence


def fit_pose(points: Tensor, coordinates: Tensor, evidence: Tensor) -> tuple[Tensor, Tensor]:
    """Rotation (B, 3, 3) and translation (B, 3) of `fit_plane`, with gradients by coordinates and evidence."""
    if _differentiates(coordinates, evidence):
        from scopereg.ops.decode import gradients

        return gradients.fit_pose(points, coordinates, evidence)
    # not len(): export keeps the batch free
    rotation, translation = weighted_kabsch(points.expand(coordinates.shape[0], -1, -1), coordinates, evidence)
    return rotation, translation


def fit_plane(points: Tensor, coordinates: Tensor, evidence: Tensor) -> Fit:
    """The rigid motion of plane points (L, 2) that fits coordinates (B, L, 3) best, weighed by evidence (B, L)."""
    fit: Fit = _backend(coordinates).fit_plane(points, coordinates, evidence)
    return fit


def _differentiates(*inputs: Tensor) -> bool:
    """Whether kernels with gradients do it: training on a GPU, and nothing that is recorded or transformed."""
    return torch.is_grad_enabled() and inputs[0].is_cuda and fastest(inputs) == "triton"


def _backend(tensor: Tensor) -> Any:
    if tensor.is_cuda and not torch.is_grad_enabled() and available_backends("cuda")["triton"] is None:
        from scopereg.ops.decode import triton_backend

        return triton_backend
    return plain
