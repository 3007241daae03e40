"""Looks: the encoded volume seen from a pose, and a network that decodes it several times."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from torch import Tensor

from scopereg.geometry import VoxelPoses, rotation_from_euler_deg
from scopereg.networks import create
from scopereg.networks.lattice import Lattice, pad_to_stride, pad_volumes
from scopereg.networks.passes import (
    interpolate_by_gathering,
    interpolate_by_product,
    interpolate_by_sampling,
    place,
    seen_from,
)
from scopereg.training.losses import total_loss
from scopereg.training.settings import TrainSettings


def encoded(shape: tuple[int, int, int], depth_stride: int = 8) -> tuple[Tensor, Lattice]:
    """Random tokens (2, D', L, 5) of a volume of `shape` voxels, in double precision."""
    volumes = torch.zeros(2, *shape)
    _, _, lattice = pad_to_stride(volumes[:, 0], volumes, depth_stride)
    depth, height, width = lattice.shape
    generator = torch.Generator().manual_seed(0)
    return torch.randn(2, depth, height * width, 5, generator=generator, dtype=torch.float64), lattice


def poses(tilt_deg: float, shift: float) -> tuple[Tensor, Tensor]:
    """Two poses, in cells."""
    turns = torch.tensor([[1.0, -0.5, 0.3], [-0.2, 0.9, -1.0]], dtype=torch.float64) * tilt_deg
    return rotation_from_euler_deg(turns), torch.tensor([[0.4, -1.0, 0.2], [1.0, 0.3, -0.5]]).double() * shift


@pytest.mark.parametrize("shape", [(32, 40, 48), (8, 24, 16), (13, 21, 30)])
@pytest.mark.parametrize("depth_stride", [8, 4])
def test_both_interpolations_agree_forward_and_backward(shape: tuple[int, int, int], depth_stride: int) -> None:
    tokens, lattice = encoded(shape, depth_stride)
    points = place(lattice.volume_points(tokens.device)[..., :3].flatten(0, 1).double(), *poses(12, 1.3))
    results, gradients = [], []
    for interpolate in (interpolate_by_product, interpolate_by_sampling):
        leaf = tokens.clone().requires_grad_()
        result = interpolate(leaf, lattice, points)
        (result * torch.linspace(-1, 1, result.numel()).reshape(result.shape)).sum().backward()
        results.append(result.detach())
        gradients.append(leaf.grad)
    assert results[0].abs().max() > 0.1
    torch.testing.assert_close(*results, rtol=0, atol=1e-6)
    torch.testing.assert_close(*gradients, rtol=0, atol=1e-6)


@pytest.mark.parametrize("shape", [(32, 40, 48), (8, 8, 16), (13, 21, 30)])
@pytest.mark.parametrize("depth_stride", [8, 4])
@pytest.mark.parametrize("shared", [False, True])
def test_gathering_gives_what_sampling_gives(shape: tuple[int, int, int], depth_stride: int, shared: bool) -> None:
    tokens, lattice = encoded(shape, depth_stride)
    tokens = tokens[:1].expand(2, -1, -1, -1) if shared else tokens
    points = place(lattice.volume_points(tokens.device)[..., :3].flatten(0, 1).double(), *poses(12, 1.3))
    wanted = interpolate_by_sampling(tokens, lattice, points)
    torch.testing.assert_close(interpolate_by_gathering(tokens, lattice, points), wanted, rtol=0, atol=1e-9)


def test_a_pose_that_is_not_a_number_gives_no_tokens() -> None:
    tokens, lattice = encoded((16, 24, 32))
    rotation, shift = poses(5, 0.5)
    shift[1] = torch.nan
    with torch.no_grad():
        seen = seen_from(tokens, lattice, rotation, shift)
    assert seen[0].isfinite().all()
    assert seen[1].isnan().all()


def test_from_the_identity_everything_is_where_it_was() -> None:
    tokens, lattice = encoded((16, 24, 32))
    seen = seen_from(tokens, lattice, torch.eye(3).expand(2, 3, 3).double(), torch.zeros(2, 3).double())
    torch.testing.assert_close(seen, tokens)


def test_a_shift_by_one_cell_brings_the_neighbour_and_zeros_from_outside() -> None:
    tokens, lattice = encoded((16, 24, 32))
    shift = torch.tensor([[1.0, 0.0, 0.0]], dtype=torch.float64).expand(2, 3)
    seen = seen_from(tokens, lattice, torch.eye(3).expand(2, 3, 3).double(), shift).unflatten(2, (3, 4))
    grid = tokens.unflatten(2, (3, 4))
    torch.testing.assert_close(seen[..., :-1, :], grid[..., 1:, :])
    assert not seen[..., -1, :].any()


def images(batch: int, *shape: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    return torch.rand(batch, *shape[1:], generator=generator), torch.rand(batch, *shape, generator=generator)


def network(looks: int) -> torch.nn.Module:
    torch.manual_seed(0)
    made = create("scope-reg", looks=looks, matching=True, reach=1.75).eval()
    for parameter in made.decoder.parameters():
        parameter.data.mul_(3)  # a pose to look from
    return made


def test_looks_add_no_weights() -> None:
    assert create("scope-reg", looks=3).state_dict().keys() == create("scope-reg").state_dict().keys()


def test_every_look_changes_the_answer_and_the_evidence_fits_its_pose() -> None:
    slices, volumes = images(2, 16, 32, 40)
    with torch.no_grad():
        answers = [network(looks)(slices, volumes) for looks in (1, 2, 3)]
    for before, after in pairwise(answers):
        assert (before.translation - after.translation).abs().max() > 1e-4
    for answer in answers:
        assert answer.earlier is None, "earlier looks are for training alone"
        torch.testing.assert_close(torch.linalg.det(answer.rotation), torch.ones(2))


def test_training_and_inference_see_the_same() -> None:
    slices, volumes = images(2, 16, 32, 40)
    made = network(3)
    with torch.no_grad():
        sampled = made(slices, volumes)
    multiplied = made(slices, volumes)
    torch.testing.assert_close(sampled.translation, multiplied.translation.detach(), rtol=0, atol=1e-4)
    torch.testing.assert_close(sampled.rotation, multiplied.rotation.detach(), rtol=0, atol=1e-5)


def test_a_shared_volume_gives_what_its_copies_give() -> None:
    slices, volumes = images(4, 16, 24, 24)
    made = network(2)
    with torch.no_grad():
        shared = made(slices, volumes[:2])
        copied = made(slices, volumes[:2].repeat_interleave(2, 0))
    torch.testing.assert_close(shared.translation, copied.translation, rtol=0, atol=1e-5)


def test_the_loss_counts_every_look_the_last_most() -> None:
    slices, volumes = images(2, 16, 32, 32)
    made = network(3).train()
    result = made(slices, volumes)
    true = VoxelPoses(torch.eye(3).expand(2, 3, 3), torch.full((2, 3), 3.0))
    options = TrainSettings(loss="distance")
    alone = []
    look = result
    while look is not None:
        alone.append(total_loss(look._replace(earlier=None), true, options))
        look = look.earlier
    assert len(alone) == 3
    torch.testing.assert_close(total_loss(result, true, options), alone[0] + 0.5 * alone[1] + 0.25 * alone[2])
    total_loss(result, true, options).sum().backward()
    assert all(parameter.grad is not None and parameter.grad.isfinite().all() for parameter in made.parameters())


def test_later_looks_see_the_middle_planes() -> None:
    lattice = pad_volumes(torch.zeros(1, 40, 16, 24), 4)[1]
    assert lattice.middle_planes(0) == lattice.middle_planes(10) == lattice.middle_planes(99) == lattice
    near = lattice.middle_planes(4)
    assert near.shape == (4, 2, 3)
    assert lattice.middle_planes(5).shape[0] == 6, "one more keeps them centred"
    z = near.axes(torch.device("cpu"))[0]
    torch.testing.assert_close(z, -z.flip(0))
    tokens = torch.randn(1, 10, 6, 5, generator=torch.Generator().manual_seed(0))
    turn, shift = rotation_from_euler_deg(torch.tensor([[3.0, 5.0, -8.0]])), torch.tensor([[0.2, -0.1, 0.3]])
    torch.testing.assert_close(
        seen_from(tokens, lattice, turn, shift, 4), seen_from(tokens, lattice, turn, shift)[:, 3:7]
    )


def test_a_look_at_fewer_planes_answers_otherwise_and_with_all_as_before() -> None:
    slices, volumes = torch.rand(2, 16, 24), torch.rand(2, 40, 16, 24)
    answers = []
    for planes in (0, 10, 4):
        torch.manual_seed(0)
        made = create("scope-reg", looks=2, depth_stride=4, later_planes=planes).eval()
        with torch.no_grad():
            answers.append(made(slices, volumes).translation)
    assert torch.equal(answers[0], answers[1])
    assert not torch.equal(answers[0], answers[2])
