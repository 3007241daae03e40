"""Mismatch: what makes a frame another acquisition than the volume that it is matched to.

Frames are (B, H, W) in [0, 1] on the generator's device. All is drawn from the generator alone: nothing of the pose or
of the image enters a draw. Nothing waits for the device, so that a GPU can do this within a training step.
"""

from __future__ import annotations

from scopereg.data.mismatch.mismatch import apply_mismatch, honest_frames
from scopereg.data.mismatch.options import FanOptions, MismatchOptions
from scopereg.data.mismatch.rays import Rays, draw_fans, draw_rays
from scopereg.data.mismatch.unseen import UNSEEN_FAMILIES, apply_unseen

__all__ = [
    "UNSEEN_FAMILIES",
    "FanOptions",
    "MismatchOptions",
    "Rays",
    "apply_mismatch",
    "apply_unseen",
    "draw_fans",
    "draw_rays",
    "honest_frames",
]
