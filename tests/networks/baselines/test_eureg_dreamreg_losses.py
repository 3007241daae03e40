"""What EUReg and DreamReg are trained for: each term against its definition, gradients, and that training helps."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from scopereg.errors import ScopeRegError
from scopereg.geometry import VoxelPoses, rotation_from_euler_deg, sample_slice
from scopereg.networks.baselines import dreamreg, eureg
from scopereg.networks.baselines.dreamreg import DreamReg, Gaussian
from scopereg.networks.baselines.eureg import EuReg, FlowPose
from scopereg.networks.recipe import Batch

EUREG_SHAPE = (16, 64, 64)
CAMUS_SHAPE = (8, 32, 32)
NEVER_USED = ("unused.", "transition.memory_input.")
UNUSED_ON_CAMUS = (*NEVER_USED, "decoder.", "reward.")
EVERYTHING = dreamreg.DreamWeights(reconstruction=1.0, reward=1.0, action=1.0)


def make_batch(shape: tuple[int, int, int], volumes: int = 2, frames: int = 4) -> Batch:
    generator = torch.Generator().manual_seed(0)
    low = torch.rand(volumes, 1, 6, 12, 12, generator=generator)
    images = F.interpolate(low, shape, mode="trilinear", align_corners=True)[:, 0]
    translation = 4 * torch.rand(frames, 3, generator=generator) - 2
    rotation = rotation_from_euler_deg(10 * torch.rand(frames, 3, generator=generator) - 5)
    slices = sample_slice(images.repeat_interleave(frames // volumes, 0), rotation, translation)
    return Batch(slices, images, rotation, translation)


def pose_numbers(batch: Batch) -> Tensor:
    """Poses (B, 6) by the textbook's formulas."""
    angles = torch.rad2deg(torch.stack([
        torch.atan2(batch.rotation[:, 2, 1], batch.rotation[:, 2, 2]),
        -torch.asin(batch.rotation[:, 2, 0]),
        torch.atan2(batch.rotation[:, 1, 0], batch.rotation[:, 0, 0]),
    ], -1))  # fmt: skip
    return torch.cat([batch.translation, angles], -1)


def check_gradients(network: nn.Module, loss: Tensor, unused: tuple[str, ...]) -> None:
    """Gradients reach all parameters but those under the names `unused`, which get none."""
    network.zero_grad(set_to_none=True)
    loss.mean().backward()
    for name, parameter in network.named_parameters():
        if name.startswith(unused):
            assert parameter.grad is None, name
        else:
            assert parameter.grad is not None, name
            assert torch.isfinite(parameter.grad).all(), name
            if parameter.ndim > 1:  # biases in front of a norm get rounding errors alone
                assert parameter.grad.abs().max() > 0, name


def losses_of_three_steps(network: nn.Module, objective: Callable[..., Tensor], batch: Batch) -> list[float]:
    """The loss with the same draws before, between and after optimiser steps."""
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-4)  # the rate that both were trained with
    losses = []
    for _ in range(4):
        torch.manual_seed(0)
        loss = objective(network, batch).mean()
        losses.append(float(loss.detach()))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return losses


# EUReg


@pytest.fixture(scope="module")
def eureg_network() -> EuReg:
    torch.manual_seed(0)
    return EuReg(shape=EUREG_SHAPE).train()


def test_eureg_flow_of_a_shift_is_in_cells(eureg_network: EuReg) -> None:
    shift = VoxelPoses(torch.eye(3)[None], torch.tensor([[63 / 7, -2 * 63 / 7, 15.0]]))
    flow = eureg.true_flow(eureg_network, shift)
    assert flow.shape == (1, 3, 8, 8)
    torch.testing.assert_close(flow, torch.tensor([1.0, -2.0, 1.0]).view(1, 3, 1, 1).expand(1, 3, 8, 8))


def test_eureg_flow_of_a_turn_turns_cells(eureg_network: EuReg) -> None:
    turn = VoxelPoses(rotation_from_euler_deg(torch.tensor([[0.0, 0.0, 90.0]])), torch.zeros(1, 3))
    flow = eureg.true_flow(eureg_network, turn)
    corner = flow[0, :, 0, 0]  # the cell (-3.5, -3.5) goes to (3.5, -3.5)
    torch.testing.assert_close(corner, torch.tensor([7.0, 0.0, 0.0]), atol=1e-5, rtol=0)
    # A tilt about x moves y into z one to one: as if a cell were a cube.
    tilt = VoxelPoses(rotation_from_euler_deg(torch.tensor([[90.0, 0.0, 0.0]])), torch.zeros(1, 3))
    corner = eureg.true_flow(eureg_network, tilt)[0, :, 0, 0]
    torch.testing.assert_close(corner, torch.tensor([0.0, 3.5, -3.5]), atol=1e-5, rtol=0)


def test_eureg_flow_loss_compares_fields_and_one_number_of_the_batch() -> None:
    wanted = torch.zeros(2, 3, 4, 4)
    offset = torch.full_like(wanted, 0.5)
    torch.testing.assert_close(eureg.flow_loss(offset, wanted), torch.full((2,), 0.125))
    slope = torch.zeros_like(wanted)
    slope[0, 0] = 0.1 * torch.arange(4.0)  # steps of 0.1 along x in one channel of one frame
    squared = 0.01 / 6 / 2  # mean over frames and channels, then of x and y
    field = (0.5 * slope.square()).mean((1, 2, 3))
    torch.testing.assert_close(eureg.flow_loss(slope, wanted), field + 0.5 * squared**2)


def test_local_ncc_is_its_definition() -> None:
    generator = torch.Generator().manual_seed(0)
    first, second = torch.rand(2, 3, 20, 23, generator=generator, dtype=torch.float64)
    padded = (F.pad(image, (4, 4, 4, 4)).unfold(1, 9, 1).unfold(2, 9, 1).flatten(3) for image in (first, second))
    one, two = (boxes - boxes.mean(-1, keepdim=True) for boxes in padded)
    wanted = (one * two).sum(-1).square() / (one.square().sum(-1) * two.square().sum(-1) + 1e-5)
    torch.testing.assert_close(eureg.local_ncc(first, second), wanted.mean((1, 2)))


def test_local_ncc_is_one_for_alike_and_zero_for_flat_images() -> None:
    image = torch.rand(1, 32, 32, generator=torch.Generator().manual_seed(0))
    assert eureg.local_ncc(image, image) == pytest.approx(1, abs=1e-3)
    flat = torch.full_like(image, 0.7).requires_grad_()
    inside = eureg.local_ncc(flat, 100 * image)
    inside.sum().backward()
    assert 0 <= float(inside.detach()) < 0.5  # the border of a flat image is no longer flat
    assert flat.grad is not None
    assert torch.isfinite(flat.grad).all()


def test_eureg_objective_at_the_truth_is_the_likeness_alone(eureg_network: EuReg) -> None:
    batch = make_batch(EUREG_SHAPE)
    true = pose_numbers(batch)

    class Oracle:
        """A network that knows."""

        encoded, voxels_per_cell = eureg_network.encoded, eureg_network.voxels_per_cell
        error = torch.zeros(6)

        def flow_pose(self, slices: Tensor, volumes: Tensor) -> FlowPose:
            flow = eureg.true_flow(eureg_network, batch.poses)
            return FlowPose(flow, true[:, :3] + self.error[:3], true[:, 3:] + self.error[3:])

    oracle = Oracle()
    likeness = eureg.local_ncc(batch.slices, batch.slices)
    assert likeness.min() > 0.8
    torch.testing.assert_close(eureg.objective(oracle, batch), -likeness, atol=2e-3, rtol=0)  # type: ignore[arg-type]
    oracle.error = torch.tensor([3.0, 0.0, 0.0, 0.0, 6.0, 0.0])
    worse = eureg.objective(oracle, batch) + likeness  # type: ignore[arg-type]
    least = (3 - 0.5) / 3 + (6 - 0.5) / 3  # smooth-L1 of both, means over three components
    assert (worse > least).all()
    assert (worse < least + 1).all()


def test_eureg_gradients_reach_all_parameters(eureg_network: EuReg) -> None:
    loss = eureg.objective(eureg_network, make_batch(EUREG_SHAPE))
    assert loss.shape == (4,)
    check_gradients(eureg_network, loss, ("none",))


def test_eureg_likeness_gives_the_pose_a_gradient(eureg_network: EuReg) -> None:
    batch = make_batch(EUREG_SHAPE)
    pose = pose_numbers(batch).requires_grad_()
    volumes = batch.volumes.repeat_interleave(2, 0)
    moved = pose + 1.0
    seen = sample_slice(volumes, rotation_from_euler_deg(moved[:, 3:]), moved[:, :3])
    eureg.local_ncc(seen, batch.slices).sum().backward()
    assert pose.grad is not None
    assert (pose.grad.abs() > 0).all()


def test_eureg_learns_a_batch() -> None:
    torch.manual_seed(0)
    losses = losses_of_three_steps(EuReg(shape=EUREG_SHAPE), eureg.objective, make_batch(EUREG_SHAPE))
    assert losses[-1] < 0.95 * losses[0]


# DreamReg


@pytest.fixture(scope="module")
def dreamer() -> DreamReg:
    torch.manual_seed(0)
    return DreamReg(shape=CAMUS_SHAPE, steps=3).train()


def test_dreamreg_paths_are_noisy_lines_to_the_truth() -> None:
    torch.manual_seed(0)
    true = torch.tensor([[10.0, -10.0, 5.0, 8.0, 0.0, -4.0]]).expand(20_000, 6)
    poses, actions = dreamreg.noisy_path(true, 4)
    torch.testing.assert_close(actions.sum(0), poses[-1])
    torch.testing.assert_close(poses[0], actions[0])
    share = torch.tensor([0.25, 0.5, 0.75, 1.0])[:, None]
    torch.testing.assert_close(poses.mean(1), share * true[0], atol=0.08, rtol=0)
    spread = torch.tensor([2.0, 2.0, 2.0, 0.2])[:, None].expand(4, 6)
    torch.testing.assert_close(poses.std(1), spread, atol=0, rtol=0.03)


def test_dreamreg_renders_each_frame_in_its_volume() -> None:
    batch = make_batch(CAMUS_SHAPE)
    true = pose_numbers(batch).requires_grad_()
    seen = dreamreg.render(batch.volumes, torch.stack([torch.zeros_like(true), true]))
    assert not seen.requires_grad
    torch.testing.assert_close(seen[1], batch.slices, atol=1e-4, rtol=0)
    middle = batch.volumes[:, 3:5].mean(1)  # z = 0 lies between two planes
    torch.testing.assert_close(seen[0], middle.repeat_interleave(2, 0), atol=1e-4, rtol=0)


def test_dreamreg_divergence_is_that_of_normal_distributions() -> None:
    generator = torch.Generator().manual_seed(0)
    first, second = (Gaussian(*torch.randn(2, 3, 16, generator=generator)) for _ in range(2))
    as_torch = [torch.distributions.Normal(g.mean, torch.exp(0.5 * g.log_variance)) for g in (first, second)]
    wanted = torch.distributions.kl_divergence(*as_torch).sum(-1)
    torch.testing.assert_close(dreamreg.kl_divergence(first, second), wanted)


def test_dreamreg_latents_have_their_distribution() -> None:
    torch.manual_seed(0)
    made = Gaussian(torch.tensor([3.0]), torch.tensor([4.0]).log()).sample(torch.randn(100_000, 1))
    assert float(made.mean()) == pytest.approx(3, abs=0.03)
    assert float(made.std()) == pytest.approx(2, abs=0.03)


def test_dreamreg_pose_loss_is_that_of_the_sum_of_steps() -> None:
    true = torch.tensor([[3.0, 0.0, 0.0, 0.0, 0.0, -6.0]])
    deltas = torch.zeros(3, 1, 6)
    deltas[:, 0, 0] = 1.0  # adds up to the true translation
    torch.testing.assert_close(dreamreg.pose_loss(deltas, true), torch.tensor([5.5 / 3]))


def test_dreamreg_policy_sees_the_belief_before_each_step(dreamer: DreamReg) -> None:
    """The first step sees none, in training as in inference; the second sees the first glimpse."""
    generator = torch.Generator().manual_seed(0)
    path = dreamreg.Path(*torch.randn(2, 3, 2, 6, generator=generator))
    goal, place = torch.randn(2, 2, 1024, generator=generator)
    glimpses = torch.randn(3, 2, 1024, generator=generator)
    with torch.no_grad():
        torch.manual_seed(0)
        first = dreamreg.observe(dreamer, path, goal, place, glimpses)
        torch.manual_seed(0)
        other = dreamreg.observe(dreamer, path, goal, place, glimpses.flip(0))
        blind = dreamer.delta(torch.zeros(2, 512), goal)
    torch.testing.assert_close(first.deltas[0], blind)
    torch.testing.assert_close(other.deltas[0], blind)
    assert not torch.equal(first.deltas[1], other.deltas[1])
    assert (first.divergence > 0).all()


def test_dreamreg_reward_is_how_well_a_step_points(dreamer: DreamReg, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dreamreg, "PATH_NOISE", 0.0)
    true = torch.tensor([[3.0, 1.0, 2.0, -4.0, 5.0, 1.0]])
    path = dreamreg.noisy_path(true, 3)
    says = torch.tensor([1.0, 1.0])
    monkeypatch.setitem(dreamer._modules, "reward", None)
    monkeypatch.setitem(dreamer.__dict__, "reward", lambda states: says.expand(3, 1, 2))
    states = torch.zeros(3, 1, 2560)
    assert float(dreamreg.reward_loss(dreamer, states, path, true)) == pytest.approx(0, abs=1e-6)
    backwards = dreamreg.Path(path.poses, path.actions * torch.tensor([-1.0, -1, -1, 1, 1, 1]))
    assert float(dreamreg.reward_loss(dreamer, states, backwards, true)) == pytest.approx(2, abs=1e-5)


def test_dreamreg_reconstruction_brings_the_slice_to_the_size_of_the_decoder(dreamer: DreamReg) -> None:
    seen = torch.full((3, 2, 32, 32), 0.25)
    drawn = torch.full((6, 1, 192, 192), 0.25)
    fake = type("Fake", (), {"decoder": staticmethod(lambda states: drawn)})()
    states = torch.zeros(3, 2, 2560)
    torch.testing.assert_close(dreamreg.reconstruction_loss(fake, states, seen), torch.zeros(2), atol=1e-5, rtol=0)
    drawn += 0.5
    assert (dreamreg.reconstruction_loss(fake, states, seen) > 0.5).all()


def test_dreamreg_weights_follow_the_variant(dreamer: DreamReg, monkeypatch: pytest.MonkeyPatch) -> None:
    assert dreamreg.WEIGHTS["camus"] == dreamreg.DreamWeights(1.0, 1.0, 0.0, 0.0, 0.0)
    assert dreamreg.WEIGHTS["prostate"] == dreamreg.DreamWeights(1.0, 1.0, 1.0, 1.0, 0.0)
    batch = make_batch(CAMUS_SHAPE)

    def loss(weights: dreamreg.DreamWeights | None = None) -> Tensor:
        torch.manual_seed(0)
        return dreamreg.objective(dreamer, batch, weights=weights).detach()

    torch.testing.assert_close(loss(), loss(dreamreg.WEIGHTS["camus"]))
    monkeypatch.setattr(dreamer, "variant", "prostate")
    torch.testing.assert_close(loss(), loss(dreamreg.WEIGHTS["prostate"]))
    assert (loss() > loss(dreamreg.WEIGHTS["camus"])).all()


@pytest.mark.parametrize(("weights", "unused"), [(None, UNUSED_ON_CAMUS), (EVERYTHING, NEVER_USED)])
def test_dreamreg_gradients_reach_what_is_used(
    dreamer: DreamReg, weights: dreamreg.DreamWeights | None, unused: tuple[str, ...]
) -> None:
    loss = dreamreg.objective(dreamer, make_batch(CAMUS_SHAPE), weights=weights)
    assert loss.shape == (4,)
    check_gradients(dreamer, loss, unused)


@pytest.mark.parametrize("shape", [CAMUS_SHAPE, (8, 64, 64)])
def test_dreamreg_learns_a_batch(shape: tuple[int, int, int]) -> None:
    torch.manual_seed(0)
    losses = losses_of_three_steps(DreamReg(shape=shape, steps=3), dreamreg.objective, make_batch(shape))
    assert losses[-1] < 0.5 * losses[0]


# both


@pytest.mark.parametrize("name", ["eureg", "dreamreg"])
def test_losses_are_single_precision_under_autocast(name: str, eureg_network: EuReg, dreamer: DreamReg) -> None:
    with torch.autocast("cpu", torch.bfloat16):
        if name == "eureg":
            loss = eureg.objective(eureg_network, make_batch(EUREG_SHAPE))
        else:
            loss = dreamreg.objective(dreamer, make_batch(CAMUS_SHAPE), weights=EVERYTHING)
    assert loss.dtype == torch.float32
    assert torch.isfinite(loss).all()


def test_images_of_another_shape_are_an_error(eureg_network: EuReg, dreamer: DreamReg) -> None:
    with pytest.raises(ScopeRegError, match="was made for"):
        eureg.objective(eureg_network, make_batch((24, 64, 64)))
    with pytest.raises(ScopeRegError, match="was made for"):
        dreamreg.objective(dreamer, make_batch((8, 40, 40)))
