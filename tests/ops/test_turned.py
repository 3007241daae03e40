"""The kernel that looks at an encoded volume from a pose sees what its twin in plain PyTorch sees."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable

import pytest
import torch

needs_triton = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton is not installed")
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
# Odd sizes, one plane alone, channels that are no power of two; far turns look past the volume's edge.
COMPARED = """
import torch
from scopereg.geometry import rotation_from_euler_deg
from scopereg.networks.lattice import Lattice
from scopereg.networks.passes import seen_from
from scopereg.ops.turned import Cells, turned

generator = torch.Generator().manual_seed(3)
for shape, step, planes, channels in [((7, 5, 6), 0.5, 3, 12), ((1, 3, 4), 1.0, 0, 16), ((4, 2, 3), 1.0, 0, 5)]:
    lattice = Lattice(shape, tuple(-(n - 1) / 2 for n in shape), step)
    for shared in (False, True):
        tokens = torch.randn(1 if shared else 3, shape[0], shape[1] * shape[2], channels, generator=generator)
        tokens = tokens.expand(3, -1, -1, -1)
        rotation = rotation_from_euler_deg(40 * torch.rand(3, 3, generator=generator))
        shift = 2 * torch.rand(3, 3, generator=generator) - 1
        with torch.no_grad():
            expected = seen_from(tokens, lattice, rotation, shift, planes)
            wanted = lattice.middle_planes(planes)
            cells = [Cells(*one[:3]) for one in (lattice, wanted)]
            given = [part.to(DEVICE) for part in (rotation, shift)]
            table = tokens[:1].to(DEVICE).expand_as(tokens) if shared else tokens.to(DEVICE)
            found = turned(table, *cells, *given)
            torch.testing.assert_close(found.cpu(), expected, rtol=1e-5, atol=1e-5)
            half = turned(table.half(), *cells, *given)
            assert half.dtype == torch.half
            torch.testing.assert_close(half.float().cpu(), expected, rtol=0, atol=5e-3)
            given[1][1, 2] = float("nan")
            lost = turned(table, *cells, *given)
            assert bool(lost[1].isnan().all()) and torch.equal(lost[0], found[0])
"""


@needs_triton
@pytest.mark.skipif(torch.cuda.is_available(), reason="the GPU test covers it")
def test_kernel_in_the_interpreter(run_interpreted: Callable[[str], None]) -> None:
    run_interpreted(f"DEVICE = 'cpu'\n{COMPARED}")


@pytest.mark.gpu
@needs_triton
@needs_gpu
def test_kernel_on_a_gpu() -> None:
    exec(f"DEVICE = 'cuda'\n{COMPARED}", {})
