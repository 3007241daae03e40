"""Numerical kernels: the selective scans, each with twins that are tested against one another."""

from __future__ import annotations

from scopereg.ops.scan import (
    available_backends,
    bidirectional_mass,
    coordinate_readout,
    coordinate_scan,
    coordinate_states,
    directional_scan,
    selective_scan,
)

__all__ = [
    "available_backends",
    "bidirectional_mass",
    "coordinate_readout",
    "coordinate_scan",
    "coordinate_states",
    "directional_scan",
    "selective_scan",
]
