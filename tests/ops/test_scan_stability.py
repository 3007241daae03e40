"""Stiff and long sequences stay finite and right; gradients are those of the function computed."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from scopereg.ops import available_backends, directional_scan, selective_scan
from scopereg.ops.scan.selftest import Case, feature_inputs

USABLE = [name for name, obstacle in available_backends("cpu").items() if obstacle is None and name != "triton"]


@pytest.mark.parametrize("backend", USABLE)
@pytest.mark.parametrize("rate", [-1e-4, -10.0, -1e4, -3e38])
def test_long_stiff_scan_is_finite(backend, rate):
    u = torch.randn(1, 4096, 3, generator=torch.Generator().manual_seed(0))
    delta = torch.full_like(u, 8.0)
    gate = torch.ones(1, 4096, 2)
    with torch.no_grad():
        y = selective_scan(u, delta, torch.full((3, 2), rate), gate, gate, backend=backend)
        exact = selective_scan(
            *(x.double() for x in (u, delta)), torch.full((3, 2), rate, dtype=torch.float64), gate, gate
        )
    assert y.isfinite().all()
    # At the slowest rate 1,250 tokens stay in the state, and each rounds its decay to float32: no backend can be exact.
    assert (y - exact).abs().max() / exact.abs().max() < (1e-4 if rate > -1.0 else 1e-5)


@pytest.mark.parametrize("backend", USABLE)
@pytest.mark.parametrize("stiffness", [1e4, 3e38])
def test_stiff_gradients_are_finite(backend, stiffness):
    x = feature_inputs(Case(length=300, stiffness=stiffness))
    free = {name: v.requires_grad_() for name, v in x.items() if v.is_floating_point()}
    y = directional_scan(**x, backend=backend)
    for gradient in torch.autograd.grad(y.sum(), list(free.values())):
        assert gradient.isfinite().all()


@pytest.mark.parametrize("backend", USABLE)
def test_nan_is_not_swallowed(backend):
    x = feature_inputs(Case(directions=1))
    x["A"][0, 1, 2] = torch.nan
    with torch.no_grad():
        y = directional_scan(**x, backend=backend)
    assert y[..., 1].isnan().any()
    assert y[..., [0, 2, 3, 4]].isfinite().all()


@pytest.mark.parametrize("backend", USABLE)
def test_nan_is_not_swallowed_on_the_way_back(backend):
    x = feature_inputs(Case(directions=1))
    x["delta"][0, 0, 4, 1] = torch.nan
    free = [x[name].requires_grad_() for name in ("u", "delta", "A")]
    du, ddelta, dA = torch.autograd.grad(directional_scan(**x, backend=backend).sum(), free)
    assert du[0, :, :, 1].isnan().any()
    assert ddelta[0, 0, :, 1].isnan().any()
    assert dA[0, 1].isnan().any()
    others = [0, 2, 3, 4]
    assert all(gradient.isfinite().all() for gradient in (du[..., others], ddelta[..., others], dA[:, others], du[1]))


@pytest.mark.parametrize("backend", ["reference", "torch"])
def test_gradcheck(backend):
    x = {k: v.double() if v.is_floating_point() else v for k, v in feature_inputs(Case(1, 2, 2, 7, 2, 3)).items()}
    order = x.pop("order")
    names = list(x)

    def scan(*tensors: torch.Tensor) -> torch.Tensor:
        return directional_scan(**dict(zip(names, tensors, strict=True)), order=order, backend=backend)

    assert torch.autograd.gradcheck(scan, [v.requires_grad_() for v in x.values()])


def test_float64_stays_float64():
    x = {k: v.double() if v.is_floating_point() else v for k, v in feature_inputs(Case()).items()}
    have, want = (directional_scan(**x, backend=name) for name in ("torch", "reference"))
    assert have.dtype == torch.float64
    torch.testing.assert_close(have, want, rtol=1e-12, atol=1e-12)


def test_fast_exponential_is_accurate():
    """Read the decays back through a two-token scan: y_2 = exp2(x) y_1 with x = A log2(e)."""
    kernels = pytest.importorskip("scopereg.ops.scan.cpu_kernels", reason="the cpu backend needs numba")
    x = np.linspace(-160.0, 0.0, 200_003, dtype=np.float32)
    table = np.zeros((1, 1, 1, 2, x.size, 1), np.float32)
    values, step = np.ones((1, 2, 1), np.float32), np.ones((1, 1, 1, 2), np.float32)
    write = np.zeros((1, 1, 1, 2, x.size), np.float32)
    write[..., 0, :] = 1.0
    kernels.state_tasks(0, 1, values, step, x[None], write, np.array([[0, 1]]), table)
    check_exponential(x, table[0, 0, 0, 1, :, 0])

    lanes = kernels.LANES
    rate = np.ascontiguousarray(x[: x.size // lanes * lanes].reshape(1, -1, 1, lanes))  # one state, many blocks
    channels = rate.size
    u = np.zeros((1, 1, 2, channels), np.float32)
    u[:, :, 0] = 1.0
    y, gate = np.empty_like(u), np.ones((1, 1, 2, 1), np.float32)
    ones, skip = np.ones((1, 1, 2, channels), np.float32), np.zeros(channels, np.float32)
    kernels.feature_tasks(0, rate.shape[1], (0,), 0, u, ones, rate, gate, gate, skip, np.array([[0, 1]]), y)
    check_exponential(rate.ravel(), y[0, 0, 1])


def check_exponential(x: np.ndarray, have: np.ndarray) -> None:
    want = np.exp2(x.astype(np.float64))
    normal = x >= -126.0
    assert np.max(np.abs(have[normal] / want[normal] - 1.0)) < 3e-7
    assert not have[~normal].any()
    assert (have[x == 0.0] == 1.0).all()
