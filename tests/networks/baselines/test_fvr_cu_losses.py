"""What FVR-Net and CU-Reg are trained for: each term against its definition, gradients, and that training helps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from scopereg.errors import ScopeRegError
from scopereg.evaluation.metrics import ssim
from scopereg.geometry import rotation_from_euler_deg, sample_poses, sample_slice
from scopereg.networks.baselines import cu_reg, fvr_net
from scopereg.networks.baselines.cu_reg import (
    CuReg,
    CuRegOutput,
    CuRegWeights,
    neighbour_distances,
    prompt_target,
    with_neighbours,
)
from scopereg.networks.baselines.fvr_net import FvrNet, FvrNetWeights
from scopereg.networks.baselines.terms import (
    image_mse,
    pose_smooth_l1,
    pose_vectors,
    resampled_slices,
    smooth_l1,
    structural_similarity,
    vector_mse,
)
from scopereg.networks.recipe import Batch

SHAPE = (8, 16, 24)


def smooth(*shape: int, seed: int = 0) -> Tensor:
    """Smooth random images (N, ...) in [0, 1]."""
    low = torch.rand(shape[0], 1, *(4 for _ in shape[1:]), generator=torch.Generator().manual_seed(seed))
    mode = "trilinear" if len(shape) == 4 else "bilinear"
    return F.interpolate(low, shape[1:], mode=mode, align_corners=True)[:, 0]


def tiny_batch(volumes: int = 2, frames: int = 2, *, masks: bool = False) -> Batch:
    images = smooth(volumes, *SHAPE)
    poses = sample_poses(volumes * frames, 3.0, SHAPE, torch.Generator().manual_seed(4))
    slices = sample_slice(images.repeat_interleave(frames, 0), *poses)
    return Batch(slices, images, *poses, masks=slices > 0.5 if masks else None)


class Canned(nn.Module):
    """A network that gives what it was given: poses of its own, distances and a prompt that remember the inputs."""

    def __init__(self, vectors: Tensor) -> None:
        super().__init__()
        self.vectors = nn.Parameter(vectors)

    def pose_vectors(self, slices: Tensor, volumes: Tensor) -> Tensor:
        return self.vectors

    def predict(self, stacks: Tensor, volumes: Tensor) -> CuRegOutput:
        self.stacks = stacks
        prompt = torch.full((len(stacks), 2, *stacks.shape[2:]), 0.5)
        return CuRegOutput(self.vectors, torch.ones(len(stacks), 3), prompt)


def near(batch: Batch, offset: float = 0.5) -> Canned:
    """A network whose poses are wrong by the same offset in each of the six numbers."""
    return Canned(pose_vectors(batch.rotation, batch.translation) + offset)


# terms


def test_pose_vectors_hold_translation_then_angles() -> None:
    angles, translation = torch.tensor([[10.0, -20.0, 5.0], [0.0, 0.0, -25.0]]), torch.tensor([[1.0, 2, 3], [4, 5, 6]])
    vectors = pose_vectors(rotation_from_euler_deg(angles), translation)
    torch.testing.assert_close(vectors, torch.cat([translation, angles], 1), rtol=0, atol=1e-4)


def test_vector_errors_are_means_per_frame() -> None:
    first, second = torch.tensor([[0.0] * 6, [1.0] * 6]), torch.tensor([[0.5, 0, 0, 3, 0, 0], [1.0] * 6])
    torch.testing.assert_close(vector_mse(first, second), torch.tensor([9.25 / 6, 0]))
    translation, rotation = pose_smooth_l1(first, second)
    torch.testing.assert_close(translation, torch.tensor([0.125 / 3, 0]))
    torch.testing.assert_close(rotation, torch.tensor([2.5 / 3, 0]))


def test_resampled_slices_are_those_of_the_plane_sampler() -> None:
    batch = tiny_batch(2, 3)
    wanted = sample_slice(batch.volumes.repeat_interleave(3, 0), *batch.poses)
    torch.testing.assert_close(resampled_slices(batch.volumes, *batch.poses), wanted)


@pytest.mark.parametrize("shape", [(2, 11, 11), (3, 16, 21)])
def test_similarity_is_the_metric(shape: tuple[int, int, int]) -> None:
    first, second = smooth(*shape, seed=1), smooth(*shape, seed=2)
    torch.testing.assert_close(structural_similarity(first, second), ssim(first, second), rtol=0, atol=2e-5)
    torch.testing.assert_close(structural_similarity(first, first), torch.ones(shape[0]))


def test_similarity_has_the_right_gradient() -> None:
    first, second = (smooth(1, 12, 13, seed=seed).double().requires_grad_() for seed in (1, 2))
    (found,) = torch.autograd.grad(structural_similarity(first, second).sum(), first)
    (wanted,) = torch.autograd.grad(ssim(first, second).sum(), first)
    torch.testing.assert_close(found, wanted, rtol=1e-3, atol=1e-5)


def test_similarity_refuses_images_smaller_than_its_window() -> None:
    with pytest.raises(ScopeRegError, match="11 x 11"):
        structural_similarity(torch.rand(1, 10, 16), torch.rand(1, 10, 16))


# FVR-Net


def test_fvr_net_loss_is_pose_and_image() -> None:
    batch = tiny_batch()
    network = near(batch)
    resampled = resampled_slices(batch.volumes, rotation_from_euler_deg(network.vectors[:, 3:]), network.vectors[:, :3])
    image = image_mse(resampled, batch.slices)
    assert image.min() > 1e-6
    torch.testing.assert_close(fvr_net.objective(network, batch), 0.25 + image, rtol=1e-4, atol=1e-6)  # type: ignore[arg-type]


def test_perfect_poses_have_no_fvr_net_loss() -> None:
    batch = tiny_batch()
    assert fvr_net.objective(near(batch, 0.0), batch).max() < 1e-6  # type: ignore[arg-type]


# CU-Reg


def test_neighbours_are_the_next_three_of_the_own_volume() -> None:
    stacks = with_neighbours(torch.arange(10), 5)
    assert stacks[:5].tolist() == [[0, 1, 2, 3], [1, 2, 3, 4], [2, 3, 4, 0], [3, 4, 0, 1], [4, 0, 1, 2]]
    assert torch.equal(stacks[5:], stacks[:5] + 5)


def test_frame_without_enough_neighbours_stands_four_times() -> None:
    assert with_neighbours(torch.arange(3), 3).tolist() == [[n] * 4 for n in range(3)]


def test_distances_are_those_of_the_frame_centres() -> None:
    centres = torch.tensor([[0.0, 0, 0], [3, 4, 0], [0, 0, 2], [6, 8, 0]])
    found = neighbour_distances(centres, 4)
    torch.testing.assert_close(found[0], torch.tensor([5.0, 2.0, 10.0]))
    torch.testing.assert_close(found[1], torch.tensor([29**0.5, 5.0, 5.0]))


def test_prompt_target_is_one_hot() -> None:
    target = prompt_target(torch.tensor([[[True, False]]]))
    assert target.tolist() == [[[[0.0, 1.0]], [[1.0, 0.0]]]]


@pytest.mark.parametrize(("frames", "masks"), [(4, True), (4, False), (2, True), (1, False)])
def test_cu_reg_loss_is_the_published_sum(frames: int, masks: bool) -> None:
    batch = tiny_batch(2, frames, masks=masks)
    network = near(batch)
    found = cu_reg.objective(network, batch)  # type: ignore[arg-type]
    poses = rotation_from_euler_deg(network.vectors[:, 3:]), network.vectors[:, :3]
    likeness = ssim(sample_slice(batch.volumes.repeat_interleave(frames, 0), *poses), batch.slices)
    wanted = 2 * 0.125 + 0.5 * (1 - likeness)
    if masks:
        wanted = wanted + 0.1 * 0.25  # halves everywhere are wrong by a half everywhere
    if frames == 4:
        distances = neighbour_distances(batch.translation, 4)
        wanted = wanted + 0.1 * smooth_l1(torch.ones_like(distances), distances)
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)
    assert torch.equal(network.stacks[:, 0], batch.slices)


@pytest.mark.parametrize(
    ("objective", "weights"),
    [(fvr_net.objective, FvrNetWeights(pose=0.0)), (cu_reg.objective, CuRegWeights(0.0, 0.0, 0.0, 0.5, 0.0))],
)
def test_image_terms_send_a_gradient_to_the_pose(
    objective: Callable[..., Tensor], weights: FvrNetWeights | CuRegWeights
) -> None:
    batch = tiny_batch()
    network = near(batch)
    objective(network, batch, weights=weights).sum().backward()
    assert network.vectors.grad is not None
    assert bool((network.vectors.grad.abs().sum(1) > 0).all())


def test_prompt_loss_falls_towards_the_mask_and_not_towards_a_half() -> None:
    """The original pulls both channels to the mask: a half everywhere is then best."""
    mask = torch.tensor([[[True, False], [False, True]]])
    right, half = prompt_target(mask), torch.full((1, 2, 2, 2), 0.5)
    assert image_mse(right, prompt_target(mask)) == 0
    assert image_mse(half, prompt_target(mask)) > 0.2


# training


@pytest.mark.parametrize("name", ["fvr-net", "cu-reg"])
def test_two_steps_lower_the_loss(name: str) -> None:
    torch.manual_seed(0)
    network = FvrNet(shape=SHAPE) if name == "fvr-net" else CuReg()
    objective: Callable[..., Tensor] = fvr_net.objective if name == "fvr-net" else cu_reg.objective
    batch = tiny_batch(1, 4, masks=True)
    optimizer = torch.optim.Adam(network.train().parameters(), lr=1e-4)
    with Looks() as looks:
        objective(network, batch)
    assert looks.seen == []
    losses = []
    for step in range(3):
        torch.manual_seed(1)  # the same dropout, so that only the weights differ
        loss = objective(network, batch)
        assert loss.shape == (4,)
        assert loss.dtype == torch.float32
        losses.append(float(loss.mean().detach()))
        if step < 2:
            optimizer.zero_grad()
            loss.mean().backward()
            optimizer.step()
    assert losses[2] < losses[0]


@pytest.mark.parametrize("name", ["fvr-net", "cu-reg"])
def test_loss_is_single_precision_under_autocast(name: str) -> None:
    batch = tiny_batch(2, 4, masks=True)
    objective: Callable[..., Tensor] = fvr_net.objective if name == "fvr-net" else cu_reg.objective
    exact = objective(near(batch), batch)
    with torch.autocast("cpu", torch.bfloat16):
        mixed = objective(near(batch), batch)
    assert mixed.dtype == torch.float32
    torch.testing.assert_close(mixed, exact, rtol=1e-5, atol=1e-5)


class Looks(TorchDispatchMode):
    """Notes every operation that brings values to the host or new ones from it: no graph can record these."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(word in str(func) for word in ("_local_scalar_dense", "lift_fresh", "nonzero")):
            self.seen.append(str(func))
        return func(*args, **(kwargs or {}))


def test_watch_sees_what_no_graph_can_record() -> None:
    with Looks() as looks:
        float(torch.tensor([1.0]).sum())
    assert len(looks.seen) == 2


@pytest.mark.parametrize("objective", [fvr_net.objective, cu_reg.objective])
def test_objective_looks_at_no_value(objective: Callable[..., Tensor]) -> None:
    batch = tiny_batch(2, 4, masks=True)
    network = near(batch)
    with Looks() as looks:
        objective(network, batch).sum().backward()
    assert looks.seen == []


def test_weights_can_be_changed() -> None:
    batch = tiny_batch(2, 4, masks=True)
    usual = cu_reg.objective(near(batch), batch)  # type: ignore[arg-type]
    more = cu_reg.objective(near(batch), batch, weights=replace(CuRegWeights(), prompt=1.1))  # type: ignore[arg-type]
    torch.testing.assert_close(more - usual, torch.full((8,), 0.25), rtol=1e-4, atol=1e-4)
