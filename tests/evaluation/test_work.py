"""Operations from sizes against those counted on the way through the networks, the paper's and the documented ones."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from scopereg.evaluation.cost import network_cost, published_cost
from scopereg.evaluation.work import Cells, form_work
from scopereg.networks import ScopeReg, create
from scopereg.networks.streaming import Streaming

FORMS = ["as published", "forward", "whole", "streaming"]


def scope_reg(**options: Any) -> ScopeReg:
    torch.manual_seed(0)
    network = create("scope-reg", **options).eval()
    assert isinstance(network, ScopeReg)
    return network


@pytest.mark.parametrize("shape", [(32, 64, 64), (13, 27, 38)], ids=str)
def test_the_published_form_from_sizes_and_counted(shape: tuple[int, int, int]) -> None:
    wanted = published_cost(scope_reg(), shape)
    found = form_work("as published", Cells(shape))
    assert found.gflops == pytest.approx(wanted.gflops, rel=1e-6)
    assert found.gflops_with_scans == pytest.approx(wanted.total_gflops, rel=1e-6)


@pytest.mark.parametrize("stride", [8, 4])
def test_the_forward_pass_from_sizes_and_counted(stride: int) -> None:
    wanted = network_cost(scope_reg(depth_stride=stride), (24, 40, 64))
    found = form_work("forward", Cells((24, 40, 64), stride))
    assert found.gflops == pytest.approx(wanted.gflops, rel=1e-6)
    assert found.gflops_with_scans == pytest.approx(wanted.total_gflops, rel=1e-6)


class Whole(nn.Module):
    """A streaming form as a module."""

    def __init__(self, streaming: Streaming) -> None:
        super().__init__()
        self.streaming = streaming

    def forward(self, slices: Tensor, volumes: Tensor) -> Tensor:
        return self.streaming.whole(slices, volumes[0]).translation


@pytest.mark.parametrize(("options", "looks"), [({}, 1), ({"matching": True, "looks": 3}, 3)], ids=str)
def test_what_streaming_computes_is_what_is_counted(options: dict[str, Any], looks: int) -> None:
    shape = (16, 32, 40)
    counted = network_cost(Whole(Streaming(scope_reg(**options), "meta")), shape)
    found = form_work("whole", Cells(shape), looks=looks, matching="matching" in options)
    assert found.gflops == pytest.approx(counted.gflops, rel=2e-3)
    assert found.scans == pytest.approx(1e9 * counted.scan_gflops)


def test_the_paper_s_figures_and_what_streaming_saves() -> None:
    for size, published in ((128, 8.6), (192, 19.4), (384, 77.7), (512, 138.2)):
        cells = Cells((32, size, size))
        assert form_work("as published", cells).gflops == pytest.approx(published, abs=0.06)
        order = [form_work(form, cells).gflops_with_scans for form in FORMS]
        assert order == sorted(order, reverse=True)
    assert form_work("streaming", cells, looks=3).scans > 2.9 * form_work("streaming", cells).scans


def test_the_documented_figures_are_those_counted() -> None:
    """The rows of docs/method.md and docs/performance.md, which were counted by fvcore."""
    docs = Path(__file__).parents[2] / "docs"
    without = _row(docs / "method.md", "GFLOPs as the paper counts")
    both = _row(docs / "performance.md", "as published")
    for size, gflops, pair in zip((128, 192, 384, 512), without, both, strict=True):
        cost = published_cost(scope_reg(), (32, size, size))
        assert f"{cost.gflops:.2f}" == gflops
        assert f"{cost.gflops:.2f} / {cost.total_gflops:.2f}" == pair


def _row(page: Path, name: str) -> list[str]:
    (row,) = re.findall(rf"^\| {name} \|(.+)\|$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return [cell.strip() for cell in row.split("|")]
