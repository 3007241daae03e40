"""The steps of decoding: what they compute, and the Triton kernels beside their twins in plain PyTorch."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from scopereg.geometry import rotation_from_euler_deg
from scopereg.ops import decode
from scopereg.ops.decode import Sizes, plain

needs_triton = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton is not installed")
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")

# Odd sizes, several frames, one volume for all or one for each; run in a process of its own by Triton's interpreter.
COMPARED = """
import torch
from scopereg.ops.decode import Sizes, plain, triton_backend

def close(found, wanted, name):
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one.cpu(), other.cpu(), rtol=2e-5, atol=2e-5, msg=lambda text: f"{name}: {text}")

generator = torch.Generator().manual_seed(0)
def draw(*shape, spread=1.0):
    return (torch.randn(*shape, generator=generator) * spread).to(DEVICE)

for batch, length, sizes in ((1, 1, Sizes(1, 1, 1)), (2, 7, Sizes(4, 5, 3)), (1, 5, Sizes(2, 16, 8))):
    mapped = draw(batch, length, sizes.columns, spread=12.0)
    close(triton_backend.split_gates(mapped, sizes), plain.split_gates(mapped, sizes), "gates")
    half = mapped.half()
    close(triton_backend.split_gates(half, sizes), plain.split_gates(half, sizes), "gates of half precision")
for batch, planes, length, states, volumes in ((1, 1, 1, 1, 1), (2, 3, 7, 5, 1), (2, 2, 6, 4, 2), (1, 5, 9, 16, 1)):
    logits, decay = draw(batch, planes, length, 2 * states + 1, spread=4.0), draw(states)
    table = draw(volumes, 4, planes, length, 3, 4)
    table[..., 3] = table[..., 3].abs()
    readout = plain.positive(draw(batch, 4, length, 3))
    wanted = plain.weigh_planes(logits, decay, table, readout)
    close(triton_backend.weigh_planes(logits, decay, table, readout), wanted, "planes read from a table")
    moments = draw(batch, planes, length, 4)
    moments[..., 3] = moments[..., 3].abs()
    wanted = plain.weigh_planes(logits, decay, moments, None)
    close(triton_backend.weigh_planes(logits, decay, moments, None), wanted, "planes")
triton_backend.FIT_BLOCK = 4
for batch, length in ((1, 1), (3, 9), (1, 4)):
    points, coordinates, evidence = draw(length, 2), draw(batch, length, 3), draw(batch, length).abs()
    if batch == 3:
        evidence[1] = 0  # nothing speaks: the identity
        coordinates[2] = 0  # all in one place
    wanted = plain.fit_plane(points, coordinates, evidence)
    close(triton_backend.fit_plane(points, coordinates, evidence), wanted, "fit")

# Gradients, against those of the twins in float64.
from scopereg.geometry import weighted_kabsch
from scopereg.ops.decode import gradients

def compare(fast, slow, inputs, name):
    single = [x.clone().requires_grad_() for x in inputs]
    double = [x.double().requires_grad_() for x in inputs]
    found, wanted = fast(*single), slow(*double)
    pushed = [draw(*x.shape) for x in found]
    close(found, [x.float() for x in wanted], name)
    have = torch.autograd.grad(found, single, pushed, materialize_grads=True)
    want = torch.autograd.grad(wanted, double, [x.double() for x in pushed], materialize_grads=True)
    for one, other in zip(have, want, strict=True):
        error = (one - other).abs().max() / other.abs().max().clamp_min(1e-30)
        assert error < 2e-5, (name, [tuple(x.shape) for x in inputs], float(error))

for batch, planes, length, states in ((1, 1, 1, 1), (2, 3, 9, 5), (1, 5, 7, 16)):
    logits, decay = draw(batch, planes, length, 2 * states + 1, spread=3.0), draw(states)
    moments = draw(batch, planes, length, 4)
    moments[..., 3] = moments[..., 3].abs() + 0.1
    slow = lambda *x: plain.weigh_planes(*x, None)
    compare(gradients.weigh_planes, slow, (logits, decay, moments), "gradients of planes")
for batch, length in ((1, 5), (3, 9)):
    points, coordinates, evidence = draw(length, 2), draw(batch, length, 3), draw(batch, length).abs() + 0.1
    slow = lambda q, w: weighted_kabsch(points.double().expand(len(q), -1, -1), q, w)
    compare(lambda q, w: gradients.fit_pose(points, q, w), slow, (coordinates, evidence), "gradients of the fit")
line = torch.arange(5.0, device=DEVICE)[:, None] * torch.ones(1, 3, device=DEVICE)
for coordinates in (line[None], torch.zeros(1, 5, 3, device=DEVICE)):
    coordinates.requires_grad_()
    evidence = torch.ones(1, 5, device=DEVICE).requires_grad_()
    fit = gradients.fit_pose(line[:, :2].contiguous(), coordinates, evidence)
    for gradient in torch.autograd.grad(fit, (coordinates, evidence), [torch.ones_like(x) for x in fit]):
        assert gradient.isfinite().all()
"""


@needs_triton
@pytest.mark.skipif(torch.cuda.is_available(), reason="the GPU test covers it")
def test_kernels_in_the_interpreter(run_interpreted: Callable[[str], None]) -> None:
    run_interpreted(f"DEVICE = 'cpu'\n{COMPARED}")


@pytest.mark.gpu
@needs_triton
@needs_gpu
def test_kernels_on_a_gpu() -> None:
    exec(f"DEVICE = 'cuda'\n{COMPARED}", {})


def rigid(count: int, seed: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Points of a plane and where a rigid motion takes them."""
    generator = torch.Generator().manual_seed(seed)
    points = torch.randn(count, 2, generator=generator) * 5
    rotation = rotation_from_euler_deg(torch.tensor([[20.0, -15.0, 30.0]]))
    translation = torch.tensor([[1.0, -2.0, 0.5]])
    placed = (rotation[:, None, :, :2] * points[:, None, :]).sum(-1) + translation[:, None]
    return points, placed, rotation, translation


def test_the_fit_tells_what_is_left() -> None:
    points, placed, rotation, translation = rigid(50, 0)
    exact = decode.fit_plane(points, placed, torch.ones(1, 50))
    torch.testing.assert_close(exact.rotation, rotation, rtol=0, atol=1e-5)
    torch.testing.assert_close(exact.translation, translation, rtol=0, atol=1e-5)
    assert float(exact.residual) < 1e-4
    # Off the plane by one, up and down in turn: no motion makes up for it.
    normal = rotation[:, :, 2] * torch.tensor([1.0, -1.0]).repeat(25)[:, None]
    off = decode.fit_plane(points, placed + normal, torch.ones(1, 50))
    assert 0.85 < float(off.residual) <= 1.0


def test_gates_keep_their_order() -> None:
    """Each gate of each direction from columns of its own."""
    sizes = Sizes(2, 3, 2)
    mapped = torch.arange(sizes.columns, dtype=torch.float32)[None, None] + 30  # where softplus is the identity
    gates = decode.split_gates(mapped, sizes)
    assert gates.step[0, :, 0].tolist() == [[30, 31, 32], [33, 34, 35]]
    assert gates.write[0, :, 0].tolist() == [[36, 37], [38, 39]]
    assert gates.read[0, :, 0].tolist() == [[40, 41], [42, 43]]
    assert gates.coordinate_read[0, :, 0].tolist() == [[44, 45], [46, 47]]


def test_gradients_are_left_to_plain_pytorch() -> None:
    mapped = torch.randn(1, 4, Sizes(4, 2, 2).columns, requires_grad=True)
    decode.split_gates(mapped, Sizes(4, 2, 2)).step.sum().backward()
    assert mapped.grad is not None
    assert plain.split_gates(mapped, Sizes(4, 2, 2)).step.requires_grad
