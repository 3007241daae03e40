"""A sweep over a phantom patient, tracked by a made-up tracker: frames cut out of its volume."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from probe_scene import PROBE, WORLDS

from scopereg.data import phantom
from scopereg.geometry import Pose, VoxelPoses, rotation_from_euler_deg
from scopereg.images import Frame, Volume, pose_from_voxels
from scopereg.io.probe_sweeps import ProbeSweep


class Scanned(NamedTuple):
    """A sweep, the volume, and what is true."""

    sweep: ProbeSweep
    volume: Volume
    image_to_probe: Pose
    world_to_volume: Pose
    spacing_mm: tuple[float, float]

    def with_poses(self, probe_to_world: np.ndarray) -> ProbeSweep:
        return replace(self.sweep, probe_to_world=probe_to_world)


def scanned(count: int = 10, turns_deg: float = 12.0, shift_mm: float = 3.0) -> Scanned:
    patient, random = phantom.create("echo", seed=200_003, shape=(32, 96, 96)), np.random.default_rng(1)
    turns = torch.from_numpy(random.uniform(-1, 1, (count, 3)) * turns_deg)
    shifts = torch.from_numpy(random.uniform(-1, 1, (count, 3)) * shift_mm) / patient.spacing_mm
    poses = VoxelPoses(rotation_from_euler_deg(turns).float(), shifts.float())
    images = patient.acquire(*poses, protocol="paper", seed=3).images
    spacing = (patient.spacing_mm, patient.spacing_mm)
    frame = Frame(images[0], spacing, origin_mm=(0, 0))
    truth = np.stack([pose_from_voxels(*each, frame, patient.volume).matrix for each in zip(*poses, strict=True)])
    tracked = np.linalg.inv(WORLDS[0]) @ truth @ np.linalg.inv(PROBE)
    grey = (images * 255).round().to(torch.uint8)
    sweep = ProbeSweep(Path("made-up.npz"), grey, tracked, tuple(range(count)), spacing, "Tracker")
    true = Pose.from_matrix(PROBE, "Image", "Probe"), Pose.from_matrix(WORLDS[0], "Tracker", "Volume")
    return Scanned(sweep, patient.volume, *true, spacing)
