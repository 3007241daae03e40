"""Encoders: the stem and its fast twin, volumes that serve several slices, planes at half the stride, and reach."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from scopereg.errors import ScopeRegError
from scopereg.evaluation.cost import count_parameters
from scopereg.geometry import VoxelPoses, geodesic_angle_deg, sample_poses
from scopereg.networks import create
from scopereg.networks.encoders import Encoder, Stem, blocked_stem, plain_stem
from scopereg.networks.lattice import pad_to_stride
from scopereg.networks.published import forward_as_published
from scopereg.networks.weights import load_network, save_network
from scopereg.training.losses import pose_loss


def images(slices: int, volumes: int, shape: tuple[int, int, int], seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(slices, *shape[1:], generator=generator), torch.rand(volumes, *shape, generator=generator)


def network(seed: int = 0, scale: float = 1.0, **options: object) -> torch.nn.Module:
    torch.manual_seed(seed)
    made = create("scope-reg", **options).eval()
    for parameter in made.parameters():
        parameter.data.mul_(scale)
    return made


# the stem


@pytest.mark.parametrize(("axes", "shape"), [(2, (12, 18)), (2, (2, 2)), (3, (6, 10, 14)), (3, (8, 2, 4))])
def test_the_blocked_stem_equals_the_plain_one_forward_and_backward(axes: int, shape: tuple[int, ...]) -> None:
    generator = torch.Generator().manual_seed(0)
    image = torch.randn(2, 1, *shape, dtype=torch.float64, generator=generator)
    weight = torch.randn(64, 1, *[7] * axes, dtype=torch.float64, generator=generator)
    results = []
    for stem in (plain_stem, blocked_stem):
        inputs = image.clone().requires_grad_(), weight.clone().requires_grad_()
        output = stem(*inputs, axes)
        pull = torch.randn(output.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
        results.append((output, *torch.autograd.grad(output, inputs, pull)))
    for plain, blocked in zip(*results, strict=True):
        torch.testing.assert_close(blocked, plain, atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize("axes", [2, 3])
def test_the_stem_is_the_convolution_that_it_replaces(axes: int) -> None:
    kind = {2: torch.nn.Conv2d, 3: torch.nn.Conv3d}[axes]
    stem, convolution = Stem(axes), kind(1, 64, 7, 2, 3, bias=False)
    convolution.weight.data.copy_(stem.weight)
    image = torch.rand(2, 1, *[16] * axes)
    torch.testing.assert_close(stem(image), convolution(image))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
@pytest.mark.parametrize(("axes", "shape"), [(2, (32, 48)), (3, (16, 24, 32))])
def test_on_a_gpu_the_stem_is_blocked_and_gives_the_same(axes: int, shape: tuple[int, ...]) -> None:
    stem = Stem(axes).cuda().double()
    image = torch.rand(2, 1, *shape, device="cuda", dtype=torch.float64)
    torch.testing.assert_close(stem(image), plain_stem(image, stem.weight, axes), atol=1e-10, rtol=1e-10)


# volumes that serve several slices


def test_a_shared_volume_gives_what_its_copies_give() -> None:
    slices, volumes = images(6, 2, (16, 24, 32))
    with torch.no_grad():
        shared = network()(slices, volumes)
        copied = network()(slices, volumes.repeat_interleave(3, 0))
    for one, other in zip(shared, copied, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("norm", ["batch", "instance"])
def test_a_shared_volume_gives_the_gradients_of_its_copies(norm: str) -> None:
    slices, volumes = images(4, 2, (16, 16, 16))
    true = sample_poses(4, 4, (16, 16, 16), torch.Generator().manual_seed(0))
    gradients = []
    for given in (volumes, volumes.repeat_interleave(2, 0)):
        made = network(norm=norm).train()
        result = made(slices, given)
        pose_loss(VoxelPoses(result.rotation, result.translation), true).mean().backward()
        gradients.append({name: parameter.grad for name, parameter in made.named_parameters()})
    for name, one in gradients[0].items():
        torch.testing.assert_close(one, gradients[1][name], rtol=1e-3, atol=1e-4 * float(one.abs().max()), msg=name)


def test_volumes_that_do_not_divide_the_slices_are_refused() -> None:
    with pytest.raises(ScopeRegError, match="does not fit"):
        network()(*images(5, 2, (16, 16, 16)))


# planes at half the stride


def test_half_the_stride_along_depth_has_the_same_weights() -> None:
    usual, fine = create("scope-reg"), create("scope-reg", depth_stride=4)
    assert count_parameters(fine) == count_parameters(usual)
    fine.load_state_dict(usual.state_dict())


def test_half_the_stride_along_depth_encodes_twice_the_planes() -> None:
    volume = torch.rand(1, 1, 16, 24, 32)
    with torch.no_grad():
        assert Encoder(3).eval()(volume).shape == (1, 256, 2, 3, 4)
        assert Encoder(3, depth_stride=4).eval()(volume).shape == (1, 256, 4, 3, 4)


@pytest.mark.parametrize("depth", [16, 13])
@pytest.mark.parametrize("stride", [8, 4])
def test_cells_lie_at_the_middle_of_their_voxels(depth: int, stride: int) -> None:
    """Plane k covers voxels k stride .. k stride + stride - 1 of the padded volume; cells count 8 voxels."""
    _, padded, lattice = pad_to_stride(*images(1, 1, (depth, 8, 8)), stride)
    before = (padded.shape[1] - depth) // 2
    middles = torch.arange(0, padded.shape[1], stride) + (stride - 1) / 2 - before - (depth - 1) / 2
    torch.testing.assert_close(lattice.volume_points(torch.device("cpu"))[:, 0, 2], middles / 8)


@pytest.mark.parametrize("seed", range(2))
def test_an_untrained_network_of_half_the_stride_answers_with_almost_the_identity(seed: int) -> None:
    with torch.no_grad():
        result = network(seed, depth_stride=4)(*images(1, 1, (32, 48, 48), seed))
    assert result.translation.norm(dim=-1).max() < 1.0
    assert geodesic_angle_deg(result.rotation, torch.eye(3)).max() < 1.0


def test_other_strides_along_depth_are_refused() -> None:
    with pytest.raises(ScopeRegError, match="stride along depth is 2"):
        create("scope-reg", depth_stride=2)


# reach


def test_reach_stretches_the_coordinates_and_nothing_else() -> None:
    inputs = images(2, 2, (24, 32, 40))
    with torch.no_grad():
        usual, far = (network(scale=10, reach=reach)(*inputs) for reach in (1.0, 1.5))
    torch.testing.assert_close(far.coordinates, 1.5 * usual.coordinates, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(far.evidence, usual.evidence)


def test_coordinates_lie_within_reach_of_the_hull_and_beyond_the_hull() -> None:
    with torch.no_grad():
        result = network(scale=10, reach=1.5)(*images(2, 2, (24, 32, 40)))
    hull = torch.tensor([2.0, 1.5, 1.0])[:, None, None]
    assert (result.coordinates.abs() <= 1.5 * hull * (1 + 1e-5)).all()
    assert (result.coordinates.abs() > hull).any()


def test_there_is_no_published_form_of_several_looks() -> None:
    with pytest.raises(ScopeRegError, match="2 looks"):
        forward_as_published(network(looks=2), *images(1, 1, (8, 16, 16)))


def test_the_published_form_follows_every_option() -> None:
    inputs, made = images(2, 2, (11, 30, 21)), network(depth_stride=4, reach=1.5, matching=True)
    with torch.no_grad():
        fast, slow = made(*inputs), forward_as_published(made, *inputs)
    torch.testing.assert_close(fast.rotation, slow.rotation, atol=1e-5, rtol=0)
    torch.testing.assert_close(fast.translation, slow.translation, atol=1e-4, rtol=0)


# files


def test_a_file_keeps_every_option(tmp_path: Path) -> None:
    options = {"norm": "instance", "depth_stride": 4, "reach": 1.5, "matching": True, "looks": 2}
    made, inputs = network(scale=3, **options), images(1, 1, (16, 24, 32))
    loaded = load_network(save_network(made, tmp_path / "a.safetensors", name="scope-reg", options=options))
    with torch.no_grad():
        for one, other in zip(made(*inputs)[:4], loaded(*inputs)[:4], strict=True):  # what inference gives
            assert torch.equal(one, other)


@pytest.mark.parametrize("option", [{"reach": 1.5}, {"depth_stride": 4}, {"matching": True}, {"looks": 2}])
def test_a_network_is_not_saved_as_one_with_other_options(tmp_path: Path, option: dict[str, float]) -> None:
    """The weights would fit when they are loaded, and the answers would be wrong."""
    with pytest.raises(ScopeRegError, match="with other settings"):
        save_network(network(**option), tmp_path / "a.safetensors", name="scope-reg")
    with pytest.raises(ScopeRegError, match="with other settings"):
        save_network(network(), tmp_path / "a.safetensors", name="scope-reg", options=option)
    assert not list(tmp_path.iterdir())
