"""Selective scans: `forms` is what callers use, `dispatch` picks the backend, the rest are the backends."""

from __future__ import annotations

from scopereg.ops.scan.dispatch import BACKENDS, available_backends, forward_kernels
from scopereg.ops.scan.forms import (
    bidirectional_mass,
    coordinate_readout,
    coordinate_scan,
    coordinate_states,
    directional_scan,
    selective_scan,
)

__all__ = [
    "BACKENDS",
    "available_backends",
    "bidirectional_mass",
    "coordinate_readout",
    "coordinate_scan",
    "coordinate_states",
    "directional_scan",
    "forward_kernels",
    "selective_scan",
]
