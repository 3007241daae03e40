"""Networks by name: `create("scope-reg")`, `names()`."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

from torch import nn

from scopereg.errors import ScopeRegError, did_you_mean
from scopereg.networks.ablations import CrossAttentionHeads, DecoderHeads, FusionHeads, TriPlane
from scopereg.networks.scope_reg import NetworkResult, ScopeReg

_MAKERS: dict[str, Callable[..., nn.Module]] = {
    "scope-reg": ScopeReg,
    "cross-attention-heads": CrossAttentionHeads,
    "ssvf-heads": FusionHeads,
    "cwcd-heads": DecoderHeads,
    "cwcd-kabsch": partial(ScopeReg, weighted=False),
    "tri-plane": TriPlane,
}

__all__ = ["NetworkResult", "ScopeReg", "create", "names"]


def names() -> tuple[str, ...]:
    """Networks that `create` knows."""
    return tuple(_MAKERS)


def create(name: str, **options: Any) -> nn.Module:
    """A network with fresh weights; `forward(slice (B, H, W), volume (B, D, H, W))` gives a `NetworkResult`."""
    if name not in _MAKERS:
        raise ScopeRegError(
            f"unknown network {name!r}{did_you_mean(name, names())}",
            where="networks.create(name)",
            fix=f"use one of: {', '.join(names())}",
        )
    maker = _MAKERS[name]
    known = [key for key in inspect.signature(maker).parameters if key != "weighted"]  # that is what names are for
    for key in options:
        if key not in known:
            raise ScopeRegError(
                f"{name} has no option {key!r}{did_you_mean(key, known)}",
                where="networks.create(**options)",
                fix=f"use {', '.join(known)}",
            )
    return maker(**options)
