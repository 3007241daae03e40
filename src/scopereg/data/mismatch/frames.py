"""honest_frames: slices turned into frames of another acquisition, through a probe that knows nothing of their pose."""

from __future__ import annotations

import torch
from torch import Tensor

from scopereg.data.mismatch.checks import check_images
from scopereg.data.mismatch.mismatch import apply_mismatch
from scopereg.data.mismatch.options import FanOptions, MismatchOptions
from scopereg.data.mismatch.rays import Rays, draw_rays
from scopereg.data.mismatch.unseen import apply_unseen

_MISMATCH, _FAN = MismatchOptions(), FanOptions()


def honest_frames(
    images: Tensor,
    generator: torch.Generator,
    *,
    unseen: bool,
    mismatch: MismatchOptions = _MISMATCH,
    fan: FanOptions = _FAN,
    rays: Rays | None = None,
    seen: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Frames (B, H, W) with mismatch, 0 outside of their fans, and the masks (B, H, W) of what they show.

    `unseen` adds families that no network is trained on: for tests alone. Probes are drawn here unless their `rays` are
    given. Pixels that are not `seen` are masked too; give it only where it does not tell the pose.
    """
    check_images(images, generator, seen, "honest_frames")
    count, height, width = images.shape
    rays = draw_rays(count, (height, width), generator, fan) if rays is None else rays
    frames = apply_mismatch(images, generator, mismatch, rays=rays)
    if unseen:
        frames = apply_unseen(frames, generator, rays=rays)
    masks = rays.inside if seen is None else rays.inside & seen
    return frames * masks, masks
