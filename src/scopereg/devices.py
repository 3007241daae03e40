"""Choosing where tensors live."""

from __future__ import annotations

import torch

from scopereg.errors import ScopeRegError


def resolve_device(name: str) -> torch.device:
    """`auto` is CUDA where there is one, else the CPU; any other name must be usable here.

    Apple's MPS is taken only when asked for by name: it has no trilinear sampling of volumes yet.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    usable = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if not usable.get(name.split(":")[0], False):
        raise ScopeRegError(
            f"{name!r} cannot be used on this machine",
            where="device",
            fix="use auto or cpu; scopereg doctor tells more",
        )
    return torch.device(name)
