"""Networks by name: `create("scope-reg")`, `names()`."""

from __future__ import annotations

import inspect
from functools import partial
from typing import Any

from torch import nn

from scopereg.errors import ScopeRegError, did_you_mean
from scopereg.networks.ablations import CrossAttentionHeads, DecoderHeads, FusionHeads, TriPlane
from scopereg.networks.baselines.cu_reg import CuReg
from scopereg.networks.baselines.dreamreg import DreamReg
from scopereg.networks.baselines.eureg import EuReg
from scopereg.networks.baselines.fvr_net import FvrNet
from scopereg.networks.scope_reg import NetworkResult, ScopeReg

# A class and the settings that make it this network and no other.
_MAKERS: dict[str, partial[Any]] = {
    "scope-reg": partial(ScopeReg, weighted=True),
    "cross-attention-heads": partial(CrossAttentionHeads),
    "ssvf-heads": partial(FusionHeads),
    "cwcd-heads": partial(DecoderHeads),
    "cwcd-kabsch": partial(ScopeReg, weighted=False),
    "tri-plane": partial(TriPlane),
    "fvr-net": partial(FvrNet),
    "cu-reg": partial(CuReg),
    "eureg": partial(EuReg),
    "dreamreg": partial(DreamReg),
}

__all__ = ["NetworkResult", "ScopeReg", "create", "is_network", "names", "options"]


def names() -> tuple[str, ...]:
    """Networks that `create` knows."""
    return tuple(_MAKERS)


def options(name: str) -> tuple[str, ...]:
    """Options that `create` takes for a network."""
    return _free(_maker(name, {}))


def create(name: str, **options: Any) -> nn.Module:
    """A network with fresh weights; `forward(slice (B, H, W), volume (B, D, H, W))` gives a `NetworkResult`."""
    return _maker(name, options)(**options)


def is_network(network: nn.Module, name: str, options: dict[str, Any]) -> bool:
    """Whether `network` is what `create(name, **options)` makes, without making one: that would draw random numbers."""
    maker = _maker(name, options)
    usual = {key: parameter.default for key, parameter in inspect.signature(maker).parameters.items()}
    wanted = usual | options | maker.keywords
    # Those without a trace in the network show in its weights: a file with the wrong norm does not load.
    told = {key: value for key, value in wanted.items() if value is not None}  # None: the network chooses itself
    same = (_plain(getattr(network, key, value)) == _plain(value) for key, value in told.items())
    return type(network) is maker.func and all(same)


def _plain(value: Any) -> Any:
    """A shape as JSON gives it back."""
    return list(value) if isinstance(value, tuple) else value


def _maker(name: str, given: dict[str, Any]) -> partial[Any]:
    if name not in _MAKERS:
        raise ScopeRegError(
            f"unknown network {name!r}{did_you_mean(name, names())}",
            where="networks.create(name)",
            fix=f"use one of: {', '.join(names())}",
        )
    maker = _MAKERS[name]
    known = _free(maker)
    for key in given:
        if key not in known:
            raise ScopeRegError(
                f"{name} has no option {key!r}{did_you_mean(key, known)}",
                where="networks.create(**options)",
                fix=f"use {', '.join(known)}" if known else "pass none",
            )
    return maker


def _free(maker: partial[Any]) -> tuple[str, ...]:
    """Options that do not make the network another one."""
    return tuple(key for key in inspect.signature(maker).parameters if key not in maker.keywords)
