"""The least time that stages could take, and the stages themselves."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from scopereg.evaluation.speed.floor import USES, Ceilings, Cells, Work, floor_s, measure_ceilings, stage_work
from scopereg.evaluation.speed.stages import Stages
from scopereg.networks import ScopeReg, create
from scopereg.networks.streaming import Streaming


def test_a_floor_is_the_slower_of_computing_and_moving_and_then_the_link() -> None:
    ceilings = Ceilings(100.0, float_product_flops=20.0, float_flops=10.0, bytes=50.0, link_bytes=5.0)
    assert floor_s(Work(products=100, bytes=50), ceilings) == 2.0
    assert floor_s(Work(products=100, bytes=500), ceilings) == 10.0
    assert floor_s(Work(float_products=20, least_floats=30), ceilings) == 5.0
    assert floor_s(Work(bytes=50, link_bytes=10), ceilings) == 3.0


def test_reduced_precision_moves_less_and_computes_the_same() -> None:
    full, half = (stage_work(Cells((32, 64, 64)), item) for item in (4, 2))
    assert full.keys() == {name for names in USES.values() for name in names}
    assert half["3D encoder"].bytes < 0.6 * full["3D encoder"].bytes
    assert half["3D encoder"].products == full["3D encoder"].products
    assert half["feature scan"] == full["feature scan"]


def test_ceilings_are_measured() -> None:
    found = measure_ceilings(torch.device("cpu"), torch.float32, seconds=0.01)
    assert found.product_flops == found.float_product_flops == found.float_flops > 1e9
    assert found.link_bytes == found.bytes > 1e8


@pytest.mark.parametrize("options", [{}, {"matching": True, "reach": 1.75, "depth_stride": 4}], ids=str)
def test_stages_one_after_another_are_what_streaming_does(options: dict[str, Any]) -> None:
    torch.manual_seed(0)
    network = create("scope-reg", **options).eval()
    assert isinstance(network, ScopeReg)
    with torch.no_grad():
        network.decoder.depth_gate.linear.weight.normal_(std=0.3)
        network.decoder.coordinate_scan.write.weight.mul_(4)
    streaming = Streaming(network)
    generator = torch.Generator().manual_seed(1)
    frame, volume = torch.rand(1, 24, 32, generator=generator), torch.rand(16, 24, 32, generator=generator)
    wanted = streaming.locate(streaming.prepare(volume), frame)
    stages = Stages(streaming, frame, volume)
    for found, expected in zip(stages.located, wanted, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    with torch.inference_mode():
        scanned = stages.table["planes, scanned"]()
    torch.testing.assert_close(scanned[0], wanted.coordinates, rtol=1e-3, atol=1e-3)
