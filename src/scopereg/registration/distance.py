"""Distance: how far apart two poses put a frame."""

from __future__ import annotations

import math

import numpy as np
import torch

from scopereg.geometry import Pose, target_points
from scopereg.images import Frame


def apart_mm(frame: Frame, one: Pose | None, other: Pose | None) -> float:
    """Mean distance of a frame's five targets (as in mTRE) under two poses; NaN where one is missing."""
    if one is None or other is None:
        return math.nan
    targets = target_points(frame.shape, dtype=torch.float64).numpy() * (*frame.spacing_mm, 0.0) + frame.centre_mm
    return float(np.linalg.norm(one.apply(targets) - other.apply(targets), axis=-1).mean())
