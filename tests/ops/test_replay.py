"""Two branches of a graph give what they give one after the other, in order and with their gradients."""

from __future__ import annotations

import pytest
import torch

from scopereg.ops.replay import side_by_side


def test_both_are_called_once_and_their_results_come_in_order() -> None:
    calls: list[str] = []

    def note(name: str) -> str:
        calls.append(name)
        return name

    assert side_by_side(lambda: note("one"), lambda: note("other"), torch.zeros(1)) == ("one", "other")
    assert calls == ["one", "other"]


def product(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    for _ in range(12):  # memory of what is left is used again while the other branch is still at work
        x = torch.tanh(x @ weight)
    return x


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
def test_a_recorded_graph_gives_the_same_values_and_gradients() -> None:
    torch.manual_seed(0)
    x = torch.randn(256, 512, device="cuda", requires_grad=True)
    weights = [torch.randn(512, 512, device="cuda").div(16).requires_grad_() for _ in range(2)]
    gradients: list[torch.Tensor] = []

    def step() -> None:
        shared = x * 1.0
        one, other = side_by_side(lambda: product(shared, weights[0]), lambda: product(shared, weights[1]), shared)
        found = torch.autograd.grad((one * other).sum(), [x, *weights])
        gradients[:] = [value.detach() for value in (*found, one, other)]  # no graph of one stream lives on in another

    step()
    wanted = [value.clone() for value in gradients]
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        step()
    first: list[torch.Tensor] = []
    for _ in range(20):
        graph.replay()
        torch.cuda.synchronize()
        first = first or [value.clone() for value in gradients]
        assert all(torch.equal(found, value) for found, value in zip(gradients, first, strict=True))
    for found, want in zip(first, wanted, strict=True):  # products may be cut up differently on another stream
        torch.testing.assert_close(found, want, rtol=1e-4, atol=1e-4)
