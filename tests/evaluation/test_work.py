"""Operations that are counted, against fvcore and the paper."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from scopereg.evaluation.cost import count_gflops, published_cost
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
def test_the_published_form_is_counted_as_fvcore_does(shape: tuple[int, int, int]) -> None:
    wanted = published_cost(scope_reg(), shape)
    found = form_work("as published", Cells(shape))
    assert found.gflops == pytest.approx(wanted.gflops, rel=1e-6)
    assert found.gflops_with_scans == pytest.approx(wanted.total_gflops, rel=1e-6)


@pytest.mark.parametrize("stride", [8, 4])
def test_the_forward_pass_is_counted_as_fvcore_does(stride: int) -> None:
    wanted = count_gflops(scope_reg(depth_stride=stride), (24, 40, 64))
    assert form_work("forward", Cells((24, 40, 64), stride)).gflops == pytest.approx(wanted, rel=1e-6)


class Traced(nn.Module):
    """A streaming form as a module, which is what fvcore takes."""

    def __init__(self, streaming: Streaming, form: str) -> None:
        super().__init__()
        self.streaming, self.form = streaming, form
        self.weight = nn.Parameter(torch.zeros(1))

    def forward(self, slices: Tensor, volumes: Tensor) -> Tensor:
        with torch.no_grad():
            if self.form == "whole":
                return self.streaming.whole(slices, volumes[0]).translation
            return self.streaming.locate(self.streaming.prepare(volumes[0]), slices).translation


@pytest.mark.parametrize(("options", "looks"), [({}, 1), ({"matching": True, "looks": 3}, 3)], ids=str)
def test_what_streaming_computes_is_what_is_counted(options: dict[str, Any], looks: int) -> None:
    shape = (16, 32, 40)
    counted = count_gflops(Traced(Streaming(scope_reg(**options)), "whole"), shape)
    found = form_work("whole", Cells(shape), looks=looks, matching="matching" in options)
    assert found.gflops == pytest.approx(counted, rel=2e-3)


def test_the_paper_s_figures_and_what_streaming_saves() -> None:
    for size, published in ((128, 8.6), (192, 19.4), (384, 77.7), (512, 138.2)):
        cells = Cells((32, size, size))
        assert form_work("as published", cells).gflops == pytest.approx(published, abs=0.06)
        order = [form_work(form, cells).gflops_with_scans for form in FORMS]
        assert order == sorted(order, reverse=True)
    assert form_work("streaming", cells, looks=3).scans > 2.9 * form_work("streaming", cells).scans
