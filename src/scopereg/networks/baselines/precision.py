"""Where mixed precision ends: heads give poses in voxels, and bfloat16 has steps of a sixteenth at 10 voxels."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch


def full_precision(device: torch.device) -> AbstractContextManager[object]:
    """Autocast off. The meta device, on which costs are counted, has none and refuses the question."""
    return nullcontext() if device.type == "meta" else torch.autocast(device.type, enabled=False)
