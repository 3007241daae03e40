"""Shapes and types of the scans' arguments: every complaint names the argument and the shape it should have."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from scopereg.errors import ScopeRegError

Shape = tuple[int, ...]

# Arguments of directional scans: batch, planes, directions k, length, channels, states.
Values = Float[Tensor, "b p l c"]
Steps = Float[Tensor, "b k l c"]
Rates = Float[Tensor, "k c s"]
Gates = Float[Tensor, "b k l s"]
Skip = Float[Tensor, "k c"]
Order = Int64[Tensor, "k l"]
# Of coordinate scans: one grid of q values for all, and gates that differ from plane to plane.
Grid = Float[Tensor, "p l q"]
Moments = Float[Tensor, "b p l q"]
PlaneSteps = Float[Tensor, "b k p l"]
PlaneGates = Float[Tensor, "b k p l s"]
SharedRates = Float[Tensor, "k s"]
States = Float[Tensor, "b k p l s q"]


def compute_dtype(*tensors: Tensor | None) -> torch.dtype:
    """float64 if anything is, else float32: the state never lives in half precision."""
    return torch.float64 if any(x is not None and x.dtype == torch.float64 for x in tensors) else torch.float32


def selective(u: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor, D: Tensor | None) -> None:
    batch, length, channels = _dims("u", u, "(batch, length, channels)", 3)
    _, states = _dims("A", A, "(channels, states)", 2)
    _expect("delta", delta, (batch, length, channels), "(batch, length, channels)")
    _expect("A", A, (channels, states), "(channels, states)")
    for name, gate in (("B", B), ("C", C)):
        _expect(name, gate, (batch, length, states), "(batch, length, states)")
    if D is not None:
        _expect("D", D, (channels,), "(channels,)")
    _floats(u=u, delta=delta, A=A, B=B, C=C, D=D)


def directional(u: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor, D: Tensor | None, order: Tensor) -> None:
    batch, _, length, channels = _dims("u", u, "(batch, planes, length, channels)", 4)
    directions, _, states = _dims("A", A, "(directions, channels, states)", 3)
    _expect("A", A, (directions, channels, states), "(directions, channels, states)")
    _expect("delta", delta, (batch, directions, length, channels), "(batch, directions, length, channels)")
    for name, gate in (("B", B), ("C", C)):
        _expect(name, gate, (batch, directions, length, states), "(batch, directions, length, states)")
    if D is not None:
        _expect("D", D, (directions, channels), "(directions, channels)")
    _order(order, directions, length)
    _floats(u=u, delta=delta, A=A, B=B, C=C, D=D)
    _one_device(u=u, delta=delta, A=A, B=B, C=C, D=D, order=order)


def coordinate(values: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor | None, order: Tensor) -> None:
    planes, length, _ = _dims("values", values, "(planes, length, P)", 3)
    directions, states = _dims("A", A, "(directions, states)", 2)
    batch = _dims("delta", delta, "(batch, directions, planes, length)", 4)[0]
    _expect("delta", delta, (batch, directions, planes, length), "(batch, directions, planes, length)")
    _expect("B", B, (batch, directions, planes, length, states), "(batch, directions, planes, length, states)")
    if C is not None:
        _expect("C", C, (batch, directions, length, states), "(batch, directions, length, states)")
    _order(order, directions, length)
    _floats(values=values, delta=delta, A=A, B=B, C=C)
    _one_device(values=values, delta=delta, A=A, B=B, C=C, order=order)


def readout(h: Tensor, C: Tensor) -> None:
    table, directions, _, length, states, _ = _dims("h", h, "(batch, directions, planes, length, states, P)", 6)
    batch = _dims("C", C, "(batch, directions, length, states)", 4)[0]
    _expect("C", C, (batch, directions, length, states), "(batch, directions, length, states)")
    if table not in (1, batch):
        raise ScopeRegError(
            f"a table of batch {table} cannot be read by gates of batch {batch}",
            where="h",
            fix="give the table the batch of C, or a batch of one",
        )
    _floats(h=h, C=C)


def mass(delta: Tensor, A: Tensor, B: Tensor, C: Tensor) -> None:
    batch, length = _dims("delta", delta, "(batch, length)", 2)
    (states,) = _dims("A", A, "(states,)", 1)
    for name, gate in (("B", B), ("C", C)):
        _expect(name, gate, (batch, length, states), "(batch, length, states)")
    _floats(delta=delta, A=A, B=B, C=C)


def _dims(name: str, x: Tensor, meaning: str, ndim: int) -> Shape:
    if x.ndim != ndim:
        raise ScopeRegError(
            f"has shape {tuple(x.shape)}, {x.ndim} dimensions instead of {ndim}",
            where=name,
            fix=f"give {name} the shape {meaning}",
        )
    # No dimension may be empty; the batch is left alone, since under export it is a symbol.
    if any(isinstance(n, int) and n < 1 for n in x.shape):
        raise ScopeRegError(
            f"has an empty shape {tuple(x.shape)}", where=name, fix=f"give {name} a {meaning} of ones up"
        )
    return tuple(x.shape)


def _expect(name: str, x: Tensor, shape: Shape, meaning: str) -> None:
    _dims(name, x, meaning, len(shape))
    if any(have != want for have, want in zip(x.shape, shape, strict=True)):
        raise ScopeRegError(
            f"has shape {tuple(x.shape)}, but the other arguments ask for {tuple(shape)}",
            where=name,
            fix=f"give {name} the shape {meaning} = {tuple(shape)}",
        )


def _order(order: Tensor, directions: int, length: int) -> None:
    _expect("order", order, (directions, length), "(directions, length)")
    if order.dtype != torch.int64:
        raise ScopeRegError(f"has type {order.dtype}", where="order", fix="use int64 token indices: order.long()")


def _floats(**tensors: Tensor | None) -> None:
    for name, x in tensors.items():
        if x is not None and not x.is_floating_point():
            raise ScopeRegError(f"has type {x.dtype}", where=name, fix=f"use a floating-point type: {name}.float()")


def _one_device(**tensors: Tensor | None) -> None:
    devices = {str(x.device) for x in tensors.values() if x is not None}
    if len(devices) > 1:
        raise ScopeRegError(
            f"live on different devices: {sorted(devices)}",
            where=", ".join(tensors),
            fix="move all arguments to one device",
        )
