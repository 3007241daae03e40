"""Parity of a backend with the float64 loop on this very machine: for `doctor`, the benchmark and the tests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product

import torch
from torch import Tensor

from scopereg.ops.scan.forms import coordinate_scan, directional_scan


@dataclass(frozen=True)
class Case:
    """Sizes and nature of one comparison; `stiffness` is the largest -delta A."""

    batch: int = 2
    directions: int = 2
    planes: int = 3
    length: int = 33
    channels: int = 5
    states: int = 3
    dtype: torch.dtype = torch.float32
    stiffness: float = 4.0
    skip: bool = True

    @property
    def tolerance(self) -> float:
        """Relative to the largest entry: of float32, or of the rounding of a half-precision result."""
        return 1e-5 if self.dtype == torch.float32 else 1e-2


@dataclass(frozen=True)
class Comparison:
    """The relative error of one tensor: the output y, or the gradient of an input."""

    case: Case
    tensor: str
    error: float

    @property
    def ok(self) -> bool:
        return self.error <= self.case.tolerance  # false for NaN


CASES = (
    Case(1, 1, 1, 1, 1, 1),
    Case(2, 1, 1, 2, 5, 3, skip=False),
    Case(1, 2, 3, 7, 17, 16),
    Case(2, 4, 4, 33, 5, 32),
    Case(1, 4, 3, 130, 17, 3),
    Case(1, 2, 4, 130, 1, 32),
    Case(1, 1, 1, 1025, 5, 16),
    Case(2, 4, 4, 33, 5, 32, dtype=torch.bfloat16),
    Case(1, 2, 1, 130, 17, 16, dtype=torch.float16),
    Case(1, 1, 2, 4096, 2, 4, stiffness=80.0),
    Case(1, 1, 2, 4096, 2, 4, stiffness=0.01),
)


def compare(backend: str, device: torch.device | str = "cpu") -> list[Comparison]:
    """Both forms in all cases, with gradients."""
    found: list[Comparison] = []
    for case, inputs in product(CASES, (feature_inputs, coordinate_inputs)):
        found += compare_case(case, backend, device, inputs=inputs)
    return found


def compare_case(
    case: Case,
    backend: str,
    device: torch.device | str = "cpu",
    *,
    inputs: Callable[[Case], dict[str, Tensor]] | None = None,
) -> list[Comparison]:
    """y, and the gradients of a random weighting of it, against the reference in float64."""
    make = feature_inputs if inputs is None else inputs
    given = {name: x.to(device) for name, x in make(case).items()}
    exact = {name: x.double() if x.is_floating_point() else x for name, x in given.items()}
    want = _evaluate(exact, "reference")
    have = _evaluate(given, backend)
    return [Comparison(case, name, relative_error(have[name], want[name])) for name in want]


def relative_error(have: Tensor, want: Tensor) -> float:
    """Largest deviation over the largest entry."""
    have, want = have.detach(), want.detach()
    scale = want.abs().max().clamp_min(torch.finfo(torch.float32).tiny)
    return float((have.to(want.dtype) - want).abs().max() / scale)


def feature_inputs(case: Case) -> dict[str, Tensor]:
    """Arguments of `directional_scan`, the same on every machine."""
    draw = torch.Generator().manual_seed(case.length * 131 + case.channels)
    batch, directions, length = case.batch, case.directions, case.length

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=draw).to(case.dtype)

    given = {
        "u": normal(batch, case.planes, length, case.channels),
        "delta": torch.rand(batch, directions, length, case.channels, generator=draw).to(case.dtype),
        "A": -case.stiffness * torch.rand(directions, case.channels, case.states, generator=draw).to(case.dtype),
        "B": normal(batch, directions, length, case.states),
        "C": normal(batch, directions, length, case.states),
        "order": torch.stack([torch.randperm(length, generator=draw) for _ in range(directions)]),
    }
    if case.skip:
        given["D"] = normal(directions, case.channels)
    return given


def coordinate_inputs(case: Case) -> dict[str, Tensor]:
    """Arguments of `coordinate_scan`, the same on every machine."""
    draw = torch.Generator().manual_seed(case.length * 137 + case.channels)
    batch, directions, planes, length = case.batch, case.directions, case.planes, case.length

    def positive(*shape: int) -> Tensor:
        return torch.rand(*shape, generator=draw).to(case.dtype)

    return {
        "values": torch.randn(planes, length, 4, generator=draw).to(case.dtype),
        "delta": positive(batch, directions, planes, length),
        "A": -case.stiffness * positive(directions, case.states),
        "B": positive(batch, directions, planes, length, case.states),
        "C": positive(batch, directions, length, case.states),
        "order": torch.stack([torch.randperm(length, generator=draw) for _ in range(directions)]),
    }


def _evaluate(given: dict[str, Tensor], backend: str) -> dict[str, Tensor]:
    """y without gradients and with them, which may be other kernels, and the gradient of every floating argument."""
    arguments = {name: x.detach() for name, x in given.items()}
    free = {name: x for name, x in arguments.items() if x.is_floating_point()}
    for x in free.values():
        x.requires_grad_()
    scan = directional_scan if "u" in arguments else coordinate_scan
    if "u" in arguments:
        arguments.setdefault("D", None)  # type: ignore[arg-type]
    with torch.no_grad():
        plain = scan(**arguments, backend=backend)
    y = scan(**arguments, backend=backend)
    # Rounded alike on both sides: the twin in float64 is to see the very same upstream gradient.
    weights = torch.randn(y.shape, generator=torch.Generator().manual_seed(1)).bfloat16().to(y)
    # What a form leaves out has a gradient of zero: a single token has no decay.
    gradients = torch.autograd.grad(y, list(free.values()), weights, materialize_grads=True)
    return {
        "y": plain,
        "y with gradients": y.detach(),
        **{f"grad {name}": g for name, g in zip(free, gradients, strict=True)},
    }
