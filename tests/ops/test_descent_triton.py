"""The kernels that bring features together on a GPU take the steps of their twin in plain PyTorch."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable

import pytest
import torch

needs_triton = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton is not installed")
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
# Volumes so small that programs have a few points each, some of them outside, at two frames a volume.
COMPARED = """
import torch
from scopereg.geometry import VoxelPoses
from scopereg.geometry.steps import lever_voxels, moved, solve_positive
from scopereg.networks.fine import FineStage
from scopereg.ops import descent, descent_triton
from scopereg.registration.fine import PreparedFine

torch.manual_seed(2)
stage = FineStage().eval()
for shape in [(15, 22, 27), (8, 33, 16), (1, 24, 24)]:
    generator = torch.Generator().manual_seed(5)
    volumes = torch.rand(2, *shape, generator=generator)
    frames = volumes[:, shape[0] // 2].repeat_interleave(2, 0).clone()
    frames[1, : shape[1] // 2] = 0
    away = 2.0 * (2 * torch.rand(4, 6, generator=generator) - 1)
    start = moved(VoxelPoses.identity(4, torch.device("cpu")), away, lever_voxels(*shape[1:]))
    start.translation[3] += 1000
    with torch.no_grad():
        read, encoded = stage.read(frames), stage.encode(volumes)
        for level, (frame, volume) in enumerate(zip(read.levels, encoded.levels)):
            wanted = start
            for _ in range(3):
                wanted = stage._step(level, frame, volume, wanted)
            rule = stage.rule(level, 3, frame.lever)
            table = descent.Table(volume.table.to(DEVICE), volume.lattice.start, volume.stride)
            rule = rule._replace(**{name: getattr(rule, name).to(DEVICE) for name in ("damping", "floor", "tolerance")})
            inputs = [part.to(DEVICE) for part in (frame.vectors, frame.weights, frame.points, *start)]
            found = descent_triton.descend(table, *inputs, rule, None)
            torch.testing.assert_close(found[1].cpu(), wanted.translation, rtol=0, atol=2e-3)
            torch.testing.assert_close(found[0].cpu(), wanted.rotation, rtol=0, atol=2e-4)
            again = descent_triton.descend(table, *inputs, rule, None)
            assert all(torch.equal(one, other) for one, other in zip(found, again))
        # The size of pixels as well, beside the same steps in plain PyTorch.
        prepared = PreparedFine(stage, volumes[0])
        two, there = PreparedFine.read(prepared, frames[:2]), VoxelPoses(*(part[:2] for part in start))
        serves, descent.serves = descent.serves, lambda values: False
        wanted = prepared.stretch(two, there)
        descent.serves = serves
        sizes, poses = None, there
        for level, (frame, volume) in enumerate(zip(two.levels, prepared.encoded.levels)):
            table = descent.Table(volume.table.to(DEVICE), volume.lattice.start, volume.stride)
            rule = prepared.stretching(level, frame.lever)
            rule = rule._replace(**{name: getattr(rule, name).to(DEVICE) for name in ("damping", "floor", "tolerance")})
            inputs = [part.to(DEVICE) for part in (frame.vectors, frame.weights, frame.points, *poses)]
            *poses, sizes = descent_triton.descend(table, *inputs, rule, sizes)
        torch.testing.assert_close(sizes.cpu(), wanted, rtol=0, atol=2e-3)
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
