"""Choosing where tensors live, and what is said when they find no room there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

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
            where="device=",
            fix="use auto or cpu; scopereg doctor tells more",
        )
    return torch.device(name)


def full_precision(device: torch.device) -> AbstractContextManager[object]:
    """Autocast off, where the device has it; the meta device, on which costs are counted, does not."""
    kind = device.type
    return torch.autocast(kind, enabled=False) if torch.amp.is_autocast_available(kind) else nullcontext()


@contextmanager
def reproducible(device: torch.device) -> Iterator[None]:
    """While this lasts cuDNN takes the same algorithms in every run, so that two runs of one seed agree.

    Afterwards its settings and the random numbers of torch are what they were: they belong to the caller.
    """
    cudnn = torch.backends.cudnn
    before = cudnn.deterministic, cudnn.benchmark
    cudnn.deterministic, cudnn.benchmark = True, False
    try:
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            yield
    finally:
        cudnn.deterministic, cudnn.benchmark = before


@contextmanager
def memory_in_words(where: str, kept: Callable[[], str], fix: str) -> Iterator[None]:
    """A device that runs out of memory becomes an error in words; `kept` tells what is left of the work."""
    try:
        yield
    except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
        text = str(error)
        if not isinstance(error, torch.OutOfMemoryError | MemoryError) and "not enough memory" not in text:
            raise
        reason = text.splitlines()[0] if text else "no more could be had"
        raise ScopeRegError(f"out of memory ({kept()}): {reason}", where=where, fix=fix) from error
