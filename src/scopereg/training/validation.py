"""Validation: frames with known poses, made once, and how far a network is off on them under each protocol."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from scopereg.data.examples import case_examples
from scopereg.data.frames import PROTOCOLS, Protocol, reference_field
from scopereg.data.poses import FRAMES_PER_CASE
from scopereg.data.store import VolumeSet
from scopereg.geometry import SUCCESS_MM, VoxelPoses, compose_poses, mtre_mm, resample_volume

_VOLUMES_AT_ONCE = 8


class Examples(NamedTuple):
    """Frames of a set of volumes, `FRAMES_PER_CASE` in a row for each, under every protocol."""

    volumes: VolumeSet
    slices: dict[Protocol, Tensor]  # (N F, H, W) uint8
    poses: dict[Protocol, VoxelPoses]  # (N F, ...), where they truly lie


def make_examples(volumes: VolumeSet, *, magnitude: float, seed: int) -> Examples:
    """The frames that `scopereg evaluate` would measure on, made once and kept on the device of the volumes."""
    device, here = volumes.images.device, volumes.to("cpu")
    slices: dict[Protocol, Tensor] = {}
    poses: dict[Protocol, VoxelPoses] = {}
    for protocol in PROTOCOLS:
        cases = [case_examples(here, row, protocol, magnitude, seed=seed) for row in range(len(here))]
        slices[protocol] = torch.cat([(case.frames * 255).round().byte() for case in cases]).to(device)
        rotation, translation = (torch.cat([case.poses[part] for case in cases]).to(device) for part in (0, 1))
        poses[protocol] = VoxelPoses(rotation, translation)
    return Examples(volumes, slices, poses)


@torch.no_grad()
def errors_mm(network: nn.Module, examples: Examples, protocol: Protocol, passes: int = 1) -> Tensor:
    """mTRE (N F,) in mm of a network, in evaluation mode and single precision."""
    training = network.training
    network.eval()
    volumes, slices, poses = examples.volumes, examples.slices[protocol], examples.poses[protocol]
    found: list[Tensor] = []
    for start in range(0, len(volumes), _VOLUMES_AT_ONCE):
        images = volumes.images[start : start + _VOLUMES_AT_ONCE].float() / 255
        frames = slice(start * FRAMES_PER_CASE, (start + len(images)) * FRAMES_PER_CASE)
        references = reference_field(images, volumes.margin).contiguous()
        guess = locate(network, slices[frames].float() / 255, references, passes)
        there = VoxelPoses(poses.rotation[frames], poses.translation[frames])
        found.append(mtre_mm(guess, there, volumes.shape[1:], volumes.spacing_mm))
    network.train(training)
    return torch.cat(found)


def locate(network: nn.Module, slices: Tensor, volumes: Tensor, passes: int = 1) -> VoxelPoses:
    """Poses (B, ...) of slices (B, H, W) in volumes (V, D, H, W), B / V slices in a row for each.

    Every pass after the first sees the volume resampled at the pose found so far.
    """
    result = network(slices, volumes)
    found = VoxelPoses(result.rotation, result.translation)
    for _ in range(passes - 1):
        own = volumes.repeat_interleave(len(slices) // len(volumes), 0)
        result = network(slices, resample_volume(own, *found))
        found = compose_poses(found, VoxelPoses(result.rotation, result.translation))
    return found


def summarise(errors: Tensor) -> dict[str, float]:
    """Mean, median, 95th percentile and largest error in mm, and the share within 3 mm."""
    errors = errors.double().cpu()
    return {
        "mean_mm": float(errors.mean()),
        "median_mm": float(errors.median()),
        "p95_mm": float(errors.quantile(0.95)),
        "max_mm": float(errors.max()),
        "within_3_mm": float((errors <= SUCCESS_MM).double().mean()),
    }


def identity_errors_mm(examples: Examples, protocol: Protocol) -> Tensor:
    """mTRE (N F,) in mm without any registration."""
    poses = examples.poses[protocol]
    nothing = VoxelPoses.identity(len(poses.rotation), poses.rotation.device)
    return mtre_mm(nothing, poses, examples.volumes.shape[1:], examples.volumes.spacing_mm)
