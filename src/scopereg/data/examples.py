"""Examples: the frames of a case that every method gets, the same for a seed whatever else is evaluated."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from scopereg.data.frames import Protocol, cut_frames, reference_field
from scopereg.data.poses import FRAMES_PER_CASE, evaluation_poses
from scopereg.data.seeds import generator_for
from scopereg.data.store import VolumeSet
from scopereg.geometry import VoxelPoses


class CaseExamples(NamedTuple):
    """One volume and the frames to find in it."""

    volume: Tensor  # (D, H, W) in [0, 1]
    labels: Tensor | None  # (D, H, W)
    frames: Tensor  # (F, H, W) in [0, 1]
    poses: VoxelPoses  # (F, ...), where they truly lie


def case_examples(
    volumes: VolumeSet, row: int, protocol: Protocol, magnitude: float, *, seed: int = 0, frames: int = FRAMES_PER_CASE
) -> CaseExamples:
    """The examples of one volume of a set, as bytes hold them; honest ones with what no network is trained on.

    Poses are those stored with a prepared set; a set without them, or another seed, gets poses drawn by the same rule.
    Frames that were acquired beforehand (phantoms) are taken as they are, with their own poses.
    """
    images = volumes.images[row : row + 1].float() / 255
    volume = reference_field(images, volumes.margin)[0]
    labels = None if volumes.labels is None else reference_field(volumes.labels[row : row + 1], volumes.margin)[0]
    if protocol == "honest" and volumes.frames is not None:
        own = volumes.frames
        poses = VoxelPoses(own.rotation[row, :frames], own.translation[row, :frames])
        return CaseExamples(volume, labels, own.images[row, :frames].float() / 255, poses)
    case = volumes.cases[row]
    stored = None if volumes.poses is None else volumes.poses.of(case, magnitude, frames, seed)
    poses = stored or evaluation_poses([case], volumes.shape, magnitude, frames=frames, seed=seed)
    generator = generator_for(f"{protocol} frames of {case}", seed, round(magnitude * 1000))
    cut = cut_frames(images.cpu(), volumes.margin, poses, protocol, generator, unseen=True)
    return CaseExamples(volume, labels, (cut * 255).round() / 255, poses)
