"""What DreamReg is trained for: a world model of slices on the way to the pose, and the steps of that way."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from scopereg.devices import full_precision
from scopereg.geometry import rotation_from_euler_deg
from scopereg.networks.baselines.dreamreg import BELIEF, LATENT, DreamReg, Gaussian, Variant, move
from scopereg.networks.baselines.pyramid import check_images
from scopereg.training.objectives.similarity import (
    pose_smooth_l1,
    pose_vectors,
    resampled_slices,
    structural_similarity,
)
from scopereg.training.source import Batch

PATH_NOISE = 2.0  # standard deviation in voxels and degrees of the poses on the way
LAST_NOISE = 0.1  # of it is left at the end of the way


@dataclass(frozen=True)
class DreamWeights:
    """What each term counts; the defaults are those for CAMUS. The last three are computed only where they count."""

    divergence: float = 1.0
    """KL divergence of the posterior from the prior, summed over the latent's dimensions."""
    pose: float = 1.0
    """Smooth-L1 of the accumulated translation and rotation."""
    reconstruction: float = 0.0
    """L1 and 1 - SSIM of the decoded slices."""
    reward: float = 0.0
    """Squared error of the predicted cosines between each step and the way that is left."""
    action: float = 0.0
    """Smooth-L1 of each predicted step against the one that was taken; 0 in both variants."""


WEIGHTS: dict[Variant, DreamWeights] = {
    "camus": DreamWeights(),
    "prostate": DreamWeights(reconstruction=1.0, reward=1.0),
}


class Path(NamedTuple):
    """A noisy way from zero to the true pose."""

    poses: Tensor  # (L, B, 6), after each step
    actions: Tensor  # (L, B, 6), the steps


class Rollout(NamedTuple):
    """What the world model made of a path."""

    divergence: Tensor  # (B,), mean over the steps
    deltas: Tensor  # (L, B, 6), what the policy would have done
    states: Tensor  # (L, B, 2560), belief, latent and volume after each step


def objective(network: DreamReg, batch: Batch, *, weights: DreamWeights | None = None) -> Tensor:
    """The loss (B,), with the weights of the network's variant unless others are given."""
    check_images("dreamreg", network.shape, batch.slices, batch.volumes)
    weights = weights or WEIGHTS[network.variant]
    true = pose_vectors(batch.rotation, batch.translation)
    path = noisy_path(true, network.steps)
    seen = render(batch.volumes, path.poses)
    goal = network.embed_slices(batch.slices)
    place = network.embed_volumes(batch.volumes, len(batch.slices))
    glimpses = network.embed_slices(seen.flatten(0, 1)).unflatten(0, (network.steps, -1))
    with full_precision(batch.slices.device):
        rollout = observe(network, path, goal, place, glimpses)
        loss = weights.divergence * rollout.divergence + weights.pose * pose_loss(rollout.deltas, true)
        if weights.reconstruction:
            loss = loss + weights.reconstruction * reconstruction_loss(network, rollout.states, seen)
        if weights.reward:
            loss = loss + weights.reward * reward_loss(network, rollout.states, path, true)
        if weights.action:
            loss = loss + weights.action * F.smooth_l1_loss(rollout.deltas, path.actions, reduction="none").mean((0, 2))
        return loss


def noisy_path(true: Tensor, steps: int) -> Path:
    """A straight line from zero to poses (B, 6) with noise on every pose, little on the last."""
    share = torch.arange(1, steps + 1, device=true.device)[:, None, None] / steps
    noise = PATH_NOISE * torch.randn(steps, *true.shape, device=true.device)
    noise = torch.cat([noise[:-1], LAST_NOISE * noise[-1:]])
    poses = share * true + noise
    return Path(poses, poses - _before(poses))


@torch.no_grad()
def render(volumes: Tensor, poses: Tensor) -> Tensor:
    """Slices (L, B, H, W) of volumes (V, D, H, W) at poses (L, B, 6)."""
    steps, frames = poses.shape[:2]
    by_frame = poses.transpose(0, 1).flatten(0, 1)  # all poses of a volume in a row
    seen = resampled_slices(volumes, rotation_from_euler_deg(by_frame[:, 3:]), by_frame[:, :3])
    return seen.unflatten(0, (frames, steps)).transpose(0, 1)


def observe(network: DreamReg, path: Path, goal: Tensor, place: Tensor, glimpses: Tensor) -> Rollout:
    """Follow a path with the glimpses (L, B, 1024) of the slices on it.

    The policy sees the belief before each step, as it does in inference.
    """
    belief = goal.new_zeros(len(goal), BELIEF)
    divergences, deltas, states = [], [], []
    for pose, action, glimpse in zip(*path, glimpses, strict=True):
        deltas.append(network.delta(belief, goal))
        prior = network.prior(belief, action, pose, place)
        posterior = network.posterior(belief, action, pose, place, glimpse)
        latent = posterior.sample(torch.randn(len(goal), LATENT, device=goal.device))
        divergences.append(kl_divergence(posterior, prior))
        belief = network.next_belief(belief, latent, action, pose, place)
        states.append(torch.cat([belief, latent, place], -1))
    return Rollout(torch.stack(divergences).mean(0), torch.stack(deltas), torch.stack(states))


def kl_divergence(first: Gaussian, second: Gaussian) -> Tensor:
    """KL(first || second) (B,), summed over the dimensions."""
    ratio = first.log_variance - second.log_variance
    distance = (first.mean - second.mean).square() * torch.exp(-second.log_variance)
    return 0.5 * (torch.exp(ratio) - ratio - 1 + distance).sum(-1)


def pose_loss(deltas: Tensor, true: Tensor) -> Tensor:
    """Smooth-L1 (B,) of the translation plus that of the angles, after all steps (L, B, 6)."""
    pose = reduce(move, deltas, torch.zeros_like(true))
    translation, rotation = pose_smooth_l1(pose, true)
    return translation + rotation


def reconstruction_loss(network: DreamReg, states: Tensor, seen: Tensor) -> Tensor:
    """L1 and 1 - SSIM (B,) of what the decoder draws for the slices (L, B, H, W), mean over the steps."""
    drawn = network.decoder(states.flatten(0, 1))
    wanted = seen.flatten(0, 1)[:, None]
    if wanted.shape != drawn.shape:
        # The decoder has one size, so the picture is brought to it.
        wanted = F.interpolate(wanted, drawn.shape[-2:], mode="bilinear", antialias=True)
    wrong = (drawn - wanted).abs().mean((1, 2, 3)) + 1 - structural_similarity(drawn[:, 0], wanted[:, 0])
    return wrong.unflatten(0, states.shape[:2]).mean(0)


def reward_loss(network: DreamReg, states: Tensor, path: Path, true: Tensor) -> Tensor:
    """Squared error (B,) of the two predicted rewards: how well each step points to the true pose (B, 6)."""
    left = true - _before(path.poses)
    parts = (slice(0, 3), slice(3, 6))  # translation and rotation
    rewards = [F.cosine_similarity(path.actions[..., part], left[..., part], dim=-1) for part in parts]
    return (network.reward(states) - torch.stack(rewards, -1)).square().mean((0, 2))


def _before(poses: Tensor) -> Tensor:
    """The poses (L, B, 6) before each step."""
    return torch.cat([torch.zeros_like(poses[:1]), poses[:-1]])
