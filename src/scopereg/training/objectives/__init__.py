"""What each baseline is trained for, one file each: `objective(network, batch)` gives the loss (B,) of a batch.

Networks without one here are trained by `training.losses.total_loss`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from scopereg.training.objectives import cu_reg, dreamreg, eureg, fvr_net

OBJECTIVES: dict[str, Callable[[Any, Any], Tensor]] = {
    "fvr-net": fvr_net.objective,
    "cu-reg": cu_reg.objective,
    "eureg": eureg.objective,
    "dreamreg": dreamreg.objective,
}
DRAWING = frozenset({"cu-reg", "dreamreg"})  # draw random numbers inside of a step: dropout, rollouts
