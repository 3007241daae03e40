"""Which backend runs a scan, and why another one cannot."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import NamedTuple

import torch
from torch import Tensor
from torch.autograd import forward_ad

from scopereg.errors import ScopeRegError, did_you_mean
from scopereg.ops.scan import meta, recorded, reference, torch_backend

BACKENDS = ("reference", "torch", "triton", "cpu")


class Backend(NamedTuple):
    """The three forms every backend serves; inputs are checked, outputs are in the type of the computation."""

    directional: Callable[..., Tensor]
    coordinate: Callable[..., Tensor]
    states: Callable[..., Tensor]


# These need nothing but PyTorch. The others are imported when first asked for, which no recorded program does.
_PLAIN = {
    "reference": Backend(reference.directional, reference.coordinate, reference.states),
    "torch": Backend(torch_backend.directional, torch_backend.coordinate, torch_backend.states),
    "recorded": Backend(recorded.directional, recorded.coordinate, recorded.states),
    "meta": Backend(meta.directional, meta.coordinate, meta.states),
}
_OPTIONAL = {"triton": "scopereg.ops.scan.triton_backend", "cpu": "scopereg.ops.scan.cpu"}


def available_backends(device: torch.device | str = "cpu") -> dict[str, str | None]:
    """Every backend's name with None when it can run on `device`, else the reason why it cannot."""
    kind = torch.device(device).type
    return {name: _obstacle(name, kind) for name in BACKENDS}


def forward_kernels(tensor: Tensor) -> bool:
    """Whether kernels of Triton without gradients can serve a tensor: on a GPU, in nothing that is compiled."""
    if not tensor.is_cuda or torch.is_grad_enabled() or torch.compiler.is_compiling():
        return False
    return _obstacle("triton", "cuda") is None


def resolve(name: str, inputs: Sequence[Tensor]) -> Backend:
    """The backend called `name`, or for "auto" the fastest that can serve these inputs."""
    if name == "auto":
        return _load(fastest(inputs))
    if name not in BACKENDS:
        raise ScopeRegError(
            f"unknown scan backend {name!r}{did_you_mean(name, ('auto', *BACKENDS))}",
            where="backend",
            fix=f"choose one of: auto, {', '.join(BACKENDS)}",
        )
    reason = _obstacle(name, inputs[0].device.type)
    if reason is not None:
        raise ScopeRegError(
            f"the {name!r} scan backend cannot run: {reason}",
            where="backend",
            fix='use backend="auto" or "torch", which run everywhere and differentiate',
        )
    return _load(name)


def fastest(inputs: Sequence[Tensor]) -> str:
    """The name of the fastest backend that can serve these inputs."""
    if _tracing() or any(x.dtype == torch.float64 for x in inputs):
        return "torch"
    # Fake and wrapped tensors have no memory for a kernel to read; plain PyTorch knows how to treat them.
    if any(type(x) not in (Tensor, torch.nn.Parameter) for x in inputs):
        return "torch"
    kind = inputs[0].device.type
    if kind == "meta" and not (torch.is_grad_enabled() and any(x.requires_grad for x in inputs)):
        return "meta"
    if kind == "cuda" and _obstacle("triton", kind) is None:
        return "triton"
    if kind == "cpu" and _obstacle("cpu", kind) is None:
        return "cpu"
    return "torch"


def _tracing() -> bool:
    """Whether the call is being recorded or transformed (compile, export, vmap, forward AD) rather than run."""
    transformed = torch._C._functorch.maybe_current_level() is not None
    return recorded.recording() or torch.jit.is_tracing() or transformed or forward_ad._current_level >= 0


def _obstacle(name: str, kind: str) -> str | None:
    if name == "triton":
        if not _installed("triton"):
            return "triton is not installed"
        if kind != "cuda" and not _interpreting():
            return f"it needs a CUDA tensor, not one on {kind!r}"
        if kind == "cuda" and not torch.cuda.is_available():
            return "PyTorch finds no CUDA device"
    if name == "cpu":
        if kind != "cpu":
            return f"it needs a CPU tensor, not one on {kind!r}"
        if not _installed("numba"):
            return "numba is not installed (pip install numba)"
    return _broken(name) if name in _OPTIONAL else None


@cache
def _broken(name: str) -> str | None:
    """Why an installed backend does not load: numba refuses a NumPy newer than itself, triton another PyTorch's."""
    try:
        _load(name)
    except Exception as error:
        return f"it does not load: {error}"
    return None


def _interpreting() -> bool:
    """Triton's own interpreter runs kernels on the CPU, slowly: for tests."""
    return os.environ.get("TRITON_INTERPRET") == "1"


@cache
def _installed(module: str) -> bool:
    return find_spec(module) is not None


def _load(name: str) -> Backend:
    if name == "torch" and recorded.recording():
        name = "recorded"
    return _PLAIN[name] if name in _PLAIN else _import(_OPTIONAL[name])


@cache
def _import(path: str) -> Backend:
    module = import_module(path)
    return Backend(module.directional, module.coordinate, module.states)
