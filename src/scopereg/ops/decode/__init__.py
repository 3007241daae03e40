"""Decoding one frame in a few launches: gates from one product, planes weighed, a pose fitted.

Each of the steps has a twin in plain PyTorch; on an NVIDIA GPU a Triton kernel does it, without gradients or with them.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from scopereg.geometry import weighted_kabsch
from scopereg.ops.decode import plain
from scopereg.ops.decode.plain import Fit, Gates, Sizes
from scopereg.ops.scan import forward_kernels
from scopereg.ops.scan.dispatch import fastest

__all__ = ["Fit", "Gates", "Sizes", "fit_plane", "fit_pose", "split_gates", "weigh_planes"]


def split_gates(mapped: Float[Tensor, "b l columns"], sizes: Sizes) -> Gates:
    """All gates that a slice steers the scans with, from one product of its tokens; in float32.

    Columns are: steps of the feature scan (directions x channels), its write gates and its readouts (directions x
    states each), readouts of the coordinate scan (directions x states).
    """
    gates: Gates = _backend(mapped).split_gates(mapped, sizes)
    return gates


def weigh_planes(
    logits: Float[Tensor, "b d l gates"],
    log_decay: Float[Tensor, " n"],
    moments: Float[Tensor, "..."],
    readout: Float[Tensor, "b k l s"] | None,
) -> tuple[Float[Tensor, "b l 3"], Float[Tensor, "b l"]]:
    """Coordinates and evidence: the depth gate, and the planes weighed by it and summed.

    `logits` are the 2 N + 1 of the depth gate before its softplus, `log_decay` its N decays. With a `readout`,
    `moments` is a table of states (1 or B, K, D', L, S, 4) to be read by it; without, the moments (B, D', L, 4)
    themselves.
    """
    if readout is None and _differentiates(logits, log_decay, moments):
        from scopereg.ops.decode import gradients

        return gradients.weigh_planes(logits, log_decay, moments)
    coordinates, evidence = _backend(logits).weigh_planes(logits, log_decay, moments, readout)
    return coordinates, evidence


def fit_pose(
    points: Float[Tensor, "l 2"], coordinates: Float[Tensor, "b l 3"], evidence: Float[Tensor, "b l"]
) -> tuple[Float[Tensor, "b 3 3"], Float[Tensor, "b 3"]]:
    """Rotation and translation of `fit_plane`, with gradients by coordinates and evidence."""
    if _differentiates(coordinates, evidence):
        from scopereg.ops.decode import gradients

        return gradients.fit_pose(points, coordinates, evidence)
    # not len(): export keeps the batch free
    rotation, translation = weighted_kabsch(points.expand(coordinates.shape[0], -1, -1), coordinates, evidence)
    return rotation, translation


def fit_plane(points: Float[Tensor, "l 2"], coordinates: Float[Tensor, "b l 3"], evidence: Float[Tensor, "b l"]) -> Fit:
    """The rigid motion of plane points that fits coordinates best, weighed by evidence."""
    fit: Fit = _backend(coordinates).fit_plane(points, coordinates, evidence)
    return fit


def _differentiates(*inputs: Tensor) -> bool:
    """Whether kernels with gradients do it: training on a GPU, and nothing that is recorded or transformed."""
    return torch.is_grad_enabled() and inputs[0].is_cuda and fastest(inputs) == "triton"


def _backend(tensor: Tensor) -> Any:
    if forward_kernels(tensor):
        from scopereg.ops.decode import triton_backend

        return triton_backend
    return plain
