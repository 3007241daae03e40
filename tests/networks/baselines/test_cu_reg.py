"""CU-Reg: published size and cost, its attention and the slow twin, gradients, shared volumes, mixed precision."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from scopereg.errors import ScopeRegError
from scopereg.evaluation.cost import count_parameters, network_cost
from scopereg.geometry import is_rotation
from scopereg.networks.baselines.cu_reg import CuReg, GatedCrossAttention, fused_attention, plain_attention

SMALL = (9, 16, 24)
UNUSED = (
    "slice_encoder.resnet.unused_classifier.",
    "slice_encoder.unused_classifier.",
    "slice_attention.unused_g.",
    "volume_attention.unused_g.",
    "trunk.stages.3.",
)
# A shift of all keys changes no softmax over them.
WITHOUT_EFFECT = {"slice_attention.theta.bias", "volume_attention.theta.bias"}


@pytest.fixture(scope="module")
def network() -> CuReg:
    torch.manual_seed(0)
    return CuReg()


@pytest.fixture
def attention() -> GatedCrossAttention:
    """One that adds something, unlike at the start."""
    torch.manual_seed(2)
    made = GatedCrossAttention()
    nn.init.normal_(output_norm(made).weight)
    return made


def output_norm(attention: GatedCrossAttention) -> nn.BatchNorm3d:
    """The last layer of an attention block; its weights start at zero."""
    norm = attention.output[1]
    assert isinstance(norm, nn.BatchNorm3d)
    return norm


def images(frames: int, volumes: int, shape: tuple[int, int, int] = SMALL) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    return torch.rand(frames, *shape[1:], generator=generator), torch.rand(volumes, *shape, generator=generator)


def maps(seed: int) -> Tensor:
    return torch.randn(2, 64, 2, 3, 5, generator=torch.Generator().manual_seed(seed))


# sizes and costs


def test_published_parameter_count() -> None:
    with torch.device("meta"):
        assert count_parameters(CuReg()) / 1e6 == pytest.approx(98.820, abs=5e-4)


def test_published_cost_which_includes_the_attention(network: CuReg) -> None:
    assert 38.7 < network_cost(network, (32, 128, 128)).gflops < 38.8


@pytest.mark.parametrize("shape", [(32, 128, 128), (32, 512, 512), (40, 64, 64)])
def test_every_published_size_runs(shape: tuple[int, int, int]) -> None:
    with torch.device("meta"):
        found = CuReg().predict(torch.zeros(2, 4, *shape[1:]), torch.zeros(1, *shape))
    assert [tuple(value.shape) for value in found] == [(2, 6), (2, 3), (2, 2, *shape[1:])]


# attention


@pytest.mark.parametrize(("tokens", "scale"), [(1, 1.0), (37, 1.0), (130, 3.0)])
def test_fused_attention_is_the_plain_one(tokens: int, scale: float) -> None:
    generator = torch.Generator().manual_seed(tokens)
    inputs = [(scale * torch.randn(2, tokens, 32, generator=generator)).requires_grad_() for _ in range(3)]
    fused, plain = fused_attention(*inputs), plain_attention(*inputs)
    torch.testing.assert_close(fused, plain, rtol=1e-4, atol=1e-5)
    push = torch.randn(plain.shape, generator=generator)
    for one, other in zip(
        torch.autograd.grad(fused, inputs, push), torch.autograd.grad(plain, inputs, push), strict=True
    ):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)


def test_block_is_the_same_with_either_attention(attention: GatedCrossAttention) -> None:
    this, other = maps(1), maps(2)
    fused = attention(this, other)
    attention.fused = False
    torch.testing.assert_close(fused, attention(this, other), rtol=1e-4, atol=1e-5)


def test_attention_as_the_notes_state_it(attention: GatedCrossAttention) -> None:
    """Token by token: the other's token i asks this branch's tokens j; its answer, gated by i, is added at place i."""
    this, other = maps(1)[:1], maps(2)[:1]
    attention.eval()
    phi, theta = attention.phi(other).flatten(2)[0], attention.theta(this).flatten(2)[0]  # (32, N)
    gated = attention.gate(other).flatten(2)[0]  # (64, N)
    answers = []
    for i in range(phi.shape[1]):
        weights = torch.stack([phi[:, i] @ theta[:, j] for j in range(theta.shape[1])]).softmax(0)
        answers.append((gated[:32] * weights).sum(1) * gated[32:, i])
    wanted = this + attention.output(torch.stack(answers, 1).reshape(1, 32, 2, 3, 5))
    torch.testing.assert_close(attention(this, other), wanted, rtol=1e-4, atol=1e-5)


def test_attention_adds_nothing_at_the_start() -> None:
    this = maps(1)
    assert torch.equal(GatedCrossAttention()(this, maps(2)), this)


# predictions


def test_poses_at_the_start_are_small_and_the_prompt_a_probability(network: CuReg) -> None:
    slices, volumes = images(2, 2)
    network.eval()
    with torch.no_grad():
        found = network.predict(slices[:, None].expand(-1, 4, -1, -1), volumes)
        result = network(slices, volumes)
    assert is_rotation(result.rotation).all()
    assert found.vectors.abs().max() < 2
    assert found.distances.isfinite().all()
    torch.testing.assert_close(result.translation, found.vectors[:, :3])
    torch.testing.assert_close(found.prompt.sum(1), torch.ones(2, *SMALL[1:]))
    assert found.prompt.std() > 1e-3


def test_shared_volumes_give_what_repeated_ones_give(network: CuReg) -> None:
    slices, volumes = images(4, 2)
    volumes[1] = 0
    seen: list[Tensor] = []  # what the trunk is given: little of it comes through with fresh weights
    hook = network.trunk.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    network.eval()
    with torch.no_grad():
        shared, repeated = network(slices, volumes), network(slices, volumes.repeat_interleave(2, 0))
        network(slices, volumes.flip(0))
    hook.remove()
    torch.testing.assert_close(shared.translation, repeated.translation, rtol=0, atol=1e-6)
    torch.testing.assert_close(shared.rotation, repeated.rotation, rtol=0, atol=1e-6)
    torch.testing.assert_close(seen[0], seen[1], rtol=0, atol=1e-5)
    assert ((seen[0] - seen[2]).abs().amax((1, 2, 3, 4)) > 1e-3).all()


def test_other_frames_matter(network: CuReg) -> None:
    slices, volumes = images(4, 1)
    slices[1:] = 0
    network.eval()
    with torch.no_grad():
        alone = network.predict(slices[:1, None].expand(-1, 4, -1, -1), volumes)
        beside = network.predict(slices[None], volumes)
    assert (alone.prompt - beside.prompt).abs().max() > 5e-5


def test_gradient_reaches_every_used_parameter(network: CuReg) -> None:
    network.train()
    network.zero_grad()
    norms = output_norm(network.slice_attention), output_norm(network.volume_attention)
    for norm in norms:
        nn.init.ones_(norm.weight)  # zero stops the gradient at the start
    slices, volumes = images(8, 2)
    found = network.predict(slices.unflatten(0, (2, 4)).repeat_interleave(4, 0), volumes)
    torch.stack([value.square().sum() for value in found]).sum().backward()
    for name, parameter in network.named_parameters():
        assert (parameter.grad is None) == name.startswith(UNUSED), name
        assert parameter.grad is None or name in WITHOUT_EFFECT or bool(parameter.grad.any()), name
    for norm in norms:
        nn.init.zeros_(norm.weight)
    network.zero_grad()


def test_pose_is_single_precision_under_autocast(network: CuReg) -> None:
    slices, volumes = images(2, 1)
    network.eval()
    with torch.no_grad():
        exact = network(slices, volumes)
        with torch.autocast("cpu", torch.bfloat16):
            mixed = network(slices, volumes)
    assert mixed.translation.dtype == mixed.rotation.dtype == torch.float32
    assert not torch.equal(mixed.translation, mixed.translation.bfloat16().float())
    torch.testing.assert_close(mixed.translation, exact.translation, rtol=0, atol=0.02)


# refusals


def test_sizes_that_do_not_divide_by_eight(network: CuReg) -> None:
    with pytest.raises(ScopeRegError, match="divide by 8"):
        network(*images(1, 1, (9, 16, 20)))


def test_stacks_of_other_than_four(network: CuReg) -> None:
    with pytest.raises(ScopeRegError, match="stacks"):
        network.predict(torch.zeros(1, 3, 16, 16), torch.zeros(1, 8, 16, 16))
