"""DreamReg (arXiv 2606.18825): a policy walks to the pose in steps, over beliefs that a world model imagines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from scopereg.devices import full_precision
from scopereg.errors import ScopeRegError
from scopereg.geometry import rotation_from_euler_deg
from scopereg.networks.baselines.pyramid import CHANNELS, Pyramid, check_images, check_shape, encoded_shape
from scopereg.networks.baselines.terms import (
    pose_smooth_l1,
    pose_vectors,
    resampled_slices,
    structural_similarity,
)
from scopereg.networks.recipe import Batch, Recipe
from scopereg.networks.scope_reg import NetworkResult

BELIEF, LATENT, EMBEDDING, POSE = 512, 1024, 1024, 6
LAYERS, HEADS = 4, 8
NOISE_SEED = 2026  # of the draws that inference imagines with

Variant = Literal["camus", "prostate"]

_LEAST = (8, 8, 8)  # one encoded voxel
_CONTEXT = POSE + POSE + EMBEDDING  # action, pose and volume
_STATE = BELIEF + LATENT + EMBEDDING


class Gaussian(NamedTuple):
    """A latent's distribution, independent in each dimension."""

    mean: Tensor  # (B, 1024)
    log_variance: Tensor  # (B, 1024)

    def sample(self, noise: Tensor) -> Tensor:
        """A draw (B, 1024) from standard normal noise."""
        return self.mean + torch.exp(0.5 * self.log_variance) * noise


STEPS: dict[Variant, int] = {"camus": 7, "prostate": 5}


class DreamReg(nn.Module):
    """Slice (B, H, W) and volume (V, D, H, W) in [0, 1] to the slice's pose in its volume, in `steps` steps from zero.

    `shape` (D, H, W) is that of the volumes: both embeddings grow with it. References of 64 x 64 pixels make the
    prostate variant, with a decoder of that size and 5 steps; all others the CAMUS variant, whose decoder draws
    192 x 192, with 7 steps; `steps` says otherwise.
    In eval mode the imagined latents come from noise that was drawn once, the same for every frame.
    """

    noise: Tensor

    def __init__(self, *, shape: Sequence[int] = (32, 128, 128), steps: int | None = None) -> None:
        super().__init__()
        self.shape = check_shape("dreamreg", shape, _LEAST)
        self.variant: Variant = "prostate" if self.shape[1:] == (64, 64) else "camus"
        self.steps = _check_steps(STEPS[self.variant] if steps is None else steps)
        depth, height, width = encoded_shape(self.shape)
        cells = CHANNELS[-1] * height * width
        self.slice_encoder, self.volume_encoder = Pyramid(2), Pyramid(3)
        self.slice_embedding = nn.Linear(cells, EMBEDDING)
        self.volume_embedding = nn.Linear(depth * cells, EMBEDDING)
        self.prior_net = _mlp(BELIEF + _CONTEXT, 256, 2 * LATENT)
        self.posterior_net = _mlp(BELIEF + _CONTEXT + EMBEDDING, 256, 2 * LATENT)
        self.transition = Transition()
        self.policy = _mlp(BELIEF + EMBEDDING, 256, POSE)
        self.decoder = SliceDecoder(self.variant)
        self.reward = _mlp(_STATE, 256, 2)
        self.unused = Unused()
        self.register_buffer("noise", _fixed_noise(self.steps), persistent=False)

    def forward(self, slice: Tensor, volume: Tensor) -> NetworkResult:
        check_images("dreamreg", self.shape, slice, volume)
        goal = self.embed_slices(slice)
        place = self.embed_volumes(volume, len(slice))
        # Poses do not fit into bfloat16, and these layers cost nothing.
        with full_precision(slice.device):
            pose = self._dream(goal, place)
            return NetworkResult(rotation_from_euler_deg(pose[:, 3:]), pose[:, :3])

    def _dream(self, goal: Tensor, place: Tensor) -> Tensor:
        """The pose (B, 6) after all steps, which never look at the volume's slice on the way."""
        frames = len(goal)
        pose, belief = goal.new_zeros(frames, POSE), goal.new_zeros(frames, BELIEF)
        noise = torch.randn(self.steps, frames, LATENT, device=goal.device) if self.training else self.noise.float()
        for step in range(self.steps):
            delta = self.delta(belief, goal)
            pose = move(pose, delta)
            if step + 1 < self.steps:  # nothing reads the last belief
                latent = self.prior(belief, delta, pose, place).sample(noise[step])
                belief = self.next_belief(belief, latent, delta, pose, place)
        return pose

    def embed_slices(self, slices: Tensor) -> Tensor:
        """Slices (N, H, W) as vectors (N, 1024)."""
        return self._embed(self.slice_encoder, self.slice_embedding, slices)

    def embed_volumes(self, volumes: Tensor, frames: int) -> Tensor:
        """Volumes (V, D, H, W) as vectors (B, 1024), one for each of the B `frames`."""
        embedded = self._embed(self.volume_encoder, self.volume_embedding, volumes)
        return embedded.repeat_interleave(frames // len(volumes), 0)

    def _embed(self, encoder: nn.Module, embedding: nn.Module, images: Tensor) -> Tensor:
        features = encoder(images[:, None].to(next(self.parameters()).dtype))
        embedded: Tensor = embedding(features.flatten(1))
        return embedded.float()

    def prior(self, belief: Tensor, action: Tensor, pose: Tensor, place: Tensor) -> Gaussian:
        """What the latent will be after an action (B, 6) that led to a pose (B, 6), unseen."""
        return Gaussian(*_apply(self.prior_net, belief, action, pose, place).chunk(2, -1))

    def posterior(self, belief: Tensor, action: Tensor, pose: Tensor, place: Tensor, seen: Tensor) -> Gaussian:
        """The same with the embedding (B, 1024) of the volume's slice at that pose."""
        return Gaussian(*_apply(self.posterior_net, belief, action, pose, place, seen).chunk(2, -1))

    def next_belief(self, belief: Tensor, latent: Tensor, action: Tensor, pose: Tensor, place: Tensor) -> Tensor:
        """The belief (B, 512) after a step."""
        token = _apply(self.transition.token, latent, action, pose, place)
        return _apply(self.transition, torch.stack([belief, token], 1))

    def delta(self, belief: Tensor, goal: Tensor) -> Tensor:
        """The next step (B, 6), voxels and degrees, towards the slice with the embedding `goal` (B, 1024)."""
        return _apply(self.policy, belief, goal)


class Transition(nn.Module):
    """The sequence (B, 2, 512) of memory and token to the next memory (B, 512)."""

    def __init__(self) -> None:
        super().__init__()
        self.token = nn.Linear(LATENT + _CONTEXT, BELIEF)
        self.memory_input = nn.Linear(BELIEF, BELIEF)  # the original has it, counts it and does not use it
        self.layers = nn.Sequential(*(TransformerLayer() for _ in range(LAYERS)))
        self.memory_output = nn.Linear(BELIEF, BELIEF)

    def forward(self, pair: Tensor) -> Tensor:
        memory: Tensor = self.memory_output(self.layers(pair)[:, 0])
        return memory


class TransformerLayer(nn.Module):
    """Attention and an MLP, each after a layer norm and around a shortcut: tokens (B, N, 512) to the same."""

    def __init__(self) -> None:
        super().__init__()
        self.attention_norm, self.mlp_norm = nn.LayerNorm(BELIEF), nn.LayerNorm(BELIEF)
        self.attention_input = nn.Linear(BELIEF, 3 * BELIEF)
        self.attention_output = nn.Linear(BELIEF, BELIEF)
        self.mlp = nn.Sequential(nn.Linear(BELIEF, BELIEF), nn.GELU(), nn.Linear(BELIEF, BELIEF))

    def forward(self, tokens: Tensor) -> Tensor:
        parted = self.attention_input(self.attention_norm(tokens)).unflatten(-1, (3, HEADS, -1))
        query, key, value = parted.permute(2, 0, 3, 1, 4)  # (B, heads, N, 64)
        weights = torch.softmax(query @ key.mT / query.shape[-1] ** 0.5, -1)
        tokens = tokens + self.attention_output((weights @ value).transpose(1, 2).flatten(2))
        moved: Tensor = tokens + self.mlp(self.mlp_norm(tokens))
        return moved


class SliceDecoder(nn.Sequential):
    """Belief, latent and volume (B, 2560) to a slice (B, 1, 192, 192), or (B, 1, 64, 64) for the prostate."""

    def __init__(self, variant: Variant) -> None:
        side, channels = (4, (64, 32, 16, 16, 16)) if variant == "prostate" else (6, (64, 32, 16, 16, 16, 8))
        layers: list[nn.Module] = [nn.Linear(_STATE, channels[0] * side * side), nn.Unflatten(1, (-1, side, side))]
        for inputs, outputs in pairwise(channels):
            layers += [nn.ConvTranspose2d(inputs, outputs, 4, 2, 1), nn.ReLU()]
        super().__init__(*layers, nn.Conv2d(channels[-1], 1, 3, padding=1))


class Unused(nn.Module):
    """Parts that the original counts and never runs; only their sum is known, the widths are a guess that gives it."""

    def __init__(self) -> None:
        super().__init__()
        self.pose_encoder = _mlp(POSE, 512, 256)
        self.pretrain_projection = _mlp(EMBEDDING, 1024, 512)
        self.value = _mlp(BELIEF + EMBEDDING, 256, 1)


def move(pose: Tensor, delta: Tensor) -> Tensor:
    """A pose (B, 6) after a step (B, 6), its angles within +-180 degrees."""
    moved = pose + delta
    return torch.cat([moved[:, :3], torch.remainder(moved[:, 3:] + 180, 360) - 180], -1)


def _mlp(inputs: int, hidden: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, outputs))


def _apply(part: nn.Module, *inputs: Tensor) -> Tensor:
    """A part on its inputs side by side, in the type of its weights; the result in float32."""
    joined = torch.cat(inputs, -1).to(next(part.parameters()).dtype)
    result: Tensor = part(joined)
    return result.float()


def _fixed_noise(steps: int) -> Tensor:
    """Standard normal numbers (steps, 1, 1024), the same in every process."""
    generator = torch.Generator("cpu").manual_seed(NOISE_SEED)
    noise = torch.randn(steps, 1, LATENT, generator=generator, device="cpu")
    return noise.to(torch.get_default_device())  # where the weights are


def _check_steps(steps: int) -> int:
    if steps < 1:
        raise ScopeRegError(
            f"{steps} steps", where='networks.create("dreamreg", steps)', fix="pass 1 or more; 7 and 5 are published"
        )
    return steps


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


RECIPE = Recipe(
    objective,
    settings={
        "optimizer": "adamw",
        "learning_rate": 1e-4,
        "decay": "plateau",
        "batch": 64,
        "warmup": 0,
        "clip": 0.0,
        "weight_decay": 0.01,
    },
    paper={"frames_per_volume": 1},
    muregpro={"learning_rate": 1e-5, "plateau_factor": 0.2, "plateau_patience": 2},
    epochs=(100, 100),
    draws=True,
)
