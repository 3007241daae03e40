"""Two phantom patients as files, and a network that is ready to find frames in the first; no tests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from serving import Served, serve

from scopereg import Frame, io
from scopereg.data import phantom
from scopereg.data.poses import sample_sweep
from scopereg.images import pose_from_voxels
from scopereg.live.scene import Plan, Scene
from scopereg.live.sources import Reading, open_source

COUNT = 8  # frames of a sweep


@dataclass(frozen=True)
class Patients:
    """NAME.igs.mha and volumes/NAME.nii.gz of each."""

    folder: Path
    scene: Scene  # the network in the first volume
    names = ("first", "second")

    @property
    def volumes(self) -> Path:
        return self.folder / "volumes"

    @contextmanager
    def serve(self, folder: Path, sweep: str = "first", **options: Any) -> Iterator[Served]:
        """The sweep of one of them, over and over, found in the first volume."""
        source: Any = open_source(f"plus:{self.folder / sweep}.igs.mha", Reading(loop=True))
        with serve(folder, source=source, register=self.scene.register, scene=self.scene, **options) as served:
            yield served


def make_patients(folder: Path, model: str) -> Patients:
    """With a model to locate their frames; takes some seconds."""
    volumes = {}
    for seed, name in enumerate(Patients.names):
        patient = phantom.create("echo", seed=200_010 + seed)
        poses = sample_sweep(COUNT, 8.0, patient.shape, torch.Generator().manual_seed(1))
        images = patient.acquire(*poses, protocol="honest", seed=3).images
        frames = [Frame(image, spacing_mm=patient.spacing_mm) for image in images]
        truth = [
            pose_from_voxels(poses.rotation[row], poses.translation[row], frame, patient.volume)
            for row, frame in enumerate(frames)
        ]
        times_s = [row / 25 for row in range(COUNT)]
        io.write_plus_sequence(frames, truth, folder / f"{name}.igs.mha", times_s=times_s)
        io.write_volume(patient.volume, folder / "volumes" / f"{name}.nii.gz")
        volumes[name] = patient.volume
    return Patients(folder, Scene(volumes["first"], "first.nii.gz", Plan(model, device="cpu")))
