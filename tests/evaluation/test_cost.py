"""Operations counted on the way through networks: the paper's figures, the documented ones, and those of the stages."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from scopereg.evaluation.cost import network_cost, published_cost, streaming_cost
from scopereg.evaluation.speed.floor import USES, Cells, stage_work
from scopereg.networks import ScopeReg, create
from scopereg.networks.streaming import Streaming


def scope_reg(**options: Any) -> ScopeReg:
    torch.manual_seed(0)
    network = create("scope-reg", **options).eval()
    assert isinstance(network, ScopeReg)
    return network


@pytest.mark.parametrize(("options", "looks"), [({}, 1), ({"matching": True, "looks": 3}, 3)], ids=str)
def test_the_products_of_the_stages_are_those_on_the_way_through(options: dict[str, Any], looks: int) -> None:
    shape = (16, 32, 40)
    streaming = Streaming(scope_reg(**options), "meta", "float32")
    frame, volume = torch.empty(1, *shape[1:], device="meta"), torch.empty(shape, device="meta")
    stages = stage_work(Cells(shape), matching="matching" in options)
    prepared = streaming.prepare(volume)
    for form, call in {
        "whole": lambda: streaming.whole(frame, volume),
        "streaming": lambda: streaming.locate(prepared, frame),
        "prepare": lambda: streaming.prepare(volume),
    }.items():
        with torch.no_grad(), FlopCounterMode(display=False) as counter:
            call()
        again = 0 if form == "prepare" else looks - 1
        names = [*USES[form], *USES["look"] * again]
        found = sum(stages[name].products + stages[name].float_products for name in names)
        assert found == pytest.approx(counter.get_total_flops() / 2, rel=1e-6)


@pytest.mark.parametrize("stride", [8, 4])
def test_streaming_saves_operations_and_no_scan_is_missed(stride: int) -> None:
    network, shape = scope_reg(depth_stride=stride), (24, 40, 64)
    costs = [
        published_cost(network, shape),
        network_cost(network, shape),
        streaming_cost(network, shape, prepared=False),
        streaming_cost(network, shape, prepared=True),
    ]
    assert len({cost.parameters for cost in costs}) == 1
    for more, less in pairwise(costs):
        assert more.gflops > less.gflops
        assert more.total_gflops > less.total_gflops
    published, forward, whole, prepared = (cost.scan_gflops for cost in costs)
    assert published == forward == whole > prepared > 0.9 * whole


def test_the_paper_s_figures() -> None:
    for size, published in ((128, 8.6), (192, 19.4), (384, 77.7), (512, 138.2)):
        assert published_cost(scope_reg(), (32, size, size)).gflops == pytest.approx(published, abs=0.06)
    one, three = (
        streaming_cost(scope_reg(looks=looks, matching=True), (32, 64, 64), prepared=True) for looks in (1, 3)
    )
    assert three.scan_gflops > 2.9 * one.scan_gflops


def test_the_documented_figures_are_those_counted() -> None:
    """The rows of docs/method.md and docs/performance.md, which were counted by fvcore."""
    docs = Path(__file__).parents[2] / "docs"
    without = _row(docs / "method.md", "GFLOPs as the paper counts")
    both = {name: _row(docs / "performance.md", name) for name in ("as published", "forward", "whole", "streaming")}
    for place, size in enumerate((128, 192, 384, 512)):
        shape, network = (32, size, size), scope_reg()
        costs = {
            "as published": published_cost(network, shape),
            "forward": network_cost(network, shape),
            "whole": streaming_cost(network, shape, prepared=False),
            "streaming": streaming_cost(network, shape, prepared=True),
        }
        assert f"{costs['as published'].gflops:.2f}" == without[place]
        for name, cost in costs.items():
            assert f"{cost.gflops:.2f} / {cost.total_gflops:.2f}" == both[name][place], (name, size)


def _row(page: Path, name: str) -> list[str]:
    (row,) = re.findall(rf"^\| {name} \|(.+)\|$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return [cell.strip() for cell in row.split("|")]
