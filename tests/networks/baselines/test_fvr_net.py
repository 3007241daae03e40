"""FVR-Net: published sizes and costs, shapes, gradients, shared volumes, mixed precision."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from scopereg.errors import ScopeRegError
from scopereg.evaluation.cost import count_parameters, network_cost
from scopereg.geometry import is_rotation, rotation_from_euler_deg
from scopereg.networks.baselines.fvr_net import FvrNet
from scopereg.networks.baselines.resnext import halve_depth

SMALL = (10, 24, 16)
UNUSED = {"unused_norm.weight", "unused_norm.bias"}


@pytest.fixture(scope="module")
def small() -> FvrNet:
    torch.manual_seed(0)
    return FvrNet(shape=SMALL)


def images(frames: int, volumes: int, shape: tuple[int, int, int] = SMALL) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    return torch.rand(frames, *shape[1:], generator=generator), torch.rand(volumes, *shape, generator=generator)


@pytest.mark.parametrize(
    ("shape", "millions"),
    [
        ((32, 128, 128), 67.798),
        ((32, 192, 192), 76.187),
        ((32, 384, 384), 151.684),
        ((32, 512, 512), 243.959),
        ((40, 64, 64), 67.798),
    ],
)
def test_published_parameter_counts(shape: tuple[int, int, int], millions: float) -> None:
    with torch.device("meta"):
        network = FvrNet(shape=shape).eval()
        assert count_parameters(network) / 1e6 == pytest.approx(millions, abs=5e-4)
        # The head was made for what the layers before it truly leave.
        result = network(torch.zeros(2, *shape[1:]), torch.zeros(1, *shape))
    assert result.rotation.shape == (2, 3, 3)
    assert result.translation.shape == (2, 3)


def test_last_pool_is_that_of_each_published_size() -> None:
    with torch.device("meta"):
        assert FvrNet().pool.kernel_size == (1, 4, 4)
        assert FvrNet(shape=(32, 512, 512)).pool.kernel_size == (1, 4, 4)
        assert FvrNet(shape=(40, 64, 64)).pool.kernel_size == (2, 2, 2)


def test_published_cost() -> None:
    assert network_cost(FvrNet(), (32, 128, 128)).gflops == pytest.approx(61.2, abs=0.05)


def test_poses_at_the_start_are_small_rotations_from_the_vector(small: FvrNet) -> None:
    slices, volumes = images(3, 3)
    small.eval()
    with torch.no_grad():
        result, vectors = small(slices, volumes), small.pose_vectors(slices, volumes)
    assert is_rotation(result.rotation).all()
    assert vectors.abs().max() < 2
    torch.testing.assert_close(result.translation, vectors[:, :3])
    torch.testing.assert_close(result.rotation, rotation_from_euler_deg(vectors[:, 3:]))


def test_shared_volumes_give_what_repeated_ones_give(small: FvrNet) -> None:
    slices, volumes = images(4, 2)
    volumes[1] = 0  # fresh weights hardly tell one noise from another
    small.eval()
    with torch.no_grad():
        shared, repeated = (
            small.pose_vectors(slices, volumes),
            small.pose_vectors(slices, volumes.repeat_interleave(2, 0)),
        )
        swapped = small.pose_vectors(slices, volumes.flip(0))
    torch.testing.assert_close(shared, repeated, rtol=0, atol=1e-6)
    assert (shared - swapped).abs().max() > 1e-4


def test_gradient_reaches_every_used_parameter(small: FvrNet) -> None:
    small.train()
    small.zero_grad()
    small.pose_vectors(*images(4, 2)).square().sum().backward()
    reached = {name for name, p in small.named_parameters() if p.grad is not None and bool(p.grad.any())}
    assert {name for name, _ in small.named_parameters()} - reached == UNUSED
    small.zero_grad()


def test_both_branches_share_one_norm(small: FvrNet) -> None:
    small.train()
    calls: list[int] = []
    hook = small.norm.register_forward_hook(lambda _, inputs, __: calls.append(inputs[0].shape[2]))
    with torch.no_grad():
        small(*images(2, 2))
    hook.remove()
    assert calls == [5, 16]  # half of the volume's 10 planes, half of the slice's 32


def test_pose_is_single_precision_under_autocast(small: FvrNet) -> None:
    slices, volumes = images(2, 1)
    small.eval()
    with torch.no_grad():
        exact = small(slices, volumes)
        with torch.autocast("cpu", torch.bfloat16):
            mixed = small(slices, volumes)
    assert mixed.translation.dtype == mixed.rotation.dtype == torch.float32
    assert not torch.equal(mixed.translation, mixed.translation.bfloat16().float())
    torch.testing.assert_close(mixed.translation, exact.translation, rtol=0, atol=0.02)


def test_lists_are_shapes_too() -> None:
    with torch.device("meta"):
        assert FvrNet(shape=list(SMALL)).shape == SMALL  # type: ignore[arg-type]


@pytest.mark.parametrize("shape", [(32, 128), (0, 128, 128), (32, 128, -1)])
def test_impossible_shape(shape: tuple[int, ...]) -> None:
    with pytest.raises(ScopeRegError, match="fvr-net"):
        FvrNet(shape=shape)  # type: ignore[arg-type]


def test_other_size_than_it_was_made_for(small: FvrNet) -> None:
    with pytest.raises(ScopeRegError, match="made for"):
        small(*images(1, 1, (10, 24, 24)))


@pytest.mark.parametrize("planes", [4, 5, 6, 7])
def test_few_planes_have_the_right_gradient(planes: int) -> None:
    """oneDNN's own is wrong there, or ends the process."""
    torch.manual_seed(3)
    layer = halve_depth(32)
    features = torch.rand(2, 32, planes, 8, 8)
    weight = next(layer.parameters())
    (found,) = torch.autograd.grad(layer(features).square().sum(), weight)
    with torch.backends.mkldnn.flags(enabled=False):
        output = F.conv3d(features, weight, stride=(2, 1, 1), padding=3)
        (wanted,) = torch.autograd.grad(output.square().sum(), weight)
    torch.testing.assert_close(found, wanted, rtol=1e-3, atol=1e-3 * float(wanted.abs().max()))
