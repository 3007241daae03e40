"""Sets of phantom patients, each with frames acquired in it under the honest protocol."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from scopereg.data import phantom
from scopereg.data.seeds import generator_for
from scopereg.data.store import AcquiredFrames, VolumeSet, grey_bytes
from scopereg.errors import ScopeRegError
from scopereg.geometry import check_magnitude, sample_poses

PROTOCOL = "honest"


def make_phantoms(
    anatomy: str,
    count: int,
    *,
    seed: int = 0,
    frames: int = 32,
    magnitude: float = 10.0,
    device: torch.device | str = "cpu",
    shape: tuple[int, int, int] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> VolumeSet:
    """Patients of seeds `seed` to `seed + count - 1` and `frames` frames of each, kept on the CPU.

    Made on `device`. A seed gives the same patients and poses on every device, the same speckle on one kind of device.
    """
    if count < 1 or frames < 0:
        raise ScopeRegError(
            f"{count} patients with {frames} frames",
            where="make_phantoms(count, frames)",
            fix="ask for at least one patient, and for 0 frames or more",
        )
    check_magnitude(magnitude, "make_phantoms")
    volumes, labels, acquired = [], [], []
    names, spacing_mm = {}, 0.0
    for done in range(count):
        patient = phantom.create(anatomy, seed=seed + done, shape=shape, device=device)
        assert patient.volume.labels is not None
        volumes.append(grey_bytes(patient.volume.array))
        labels.append(patient.volume.labels.to("cpu", torch.uint8))
        if frames:
            acquired.append(_acquire(patient, frames, magnitude))
        names, spacing_mm = dict(patient.label_names), patient.spacing_mm
        if progress is not None:
            progress(done + 1, count)
    cases = tuple(f"{anatomy}{seed + done:04d}" for done in range(count))
    facts = {
        "dataset": "phantom",
        "anatomy": anatomy,
        "seeds": [seed, seed + count - 1],
        "frames": frames,
        "magnitude": float(magnitude),
        "protocol": PROTOCOL,
        "device": torch.device(device).type,
        "classes": ["background", *(names[number] for number in sorted(names))],
    }
    stacked = AcquiredFrames(*(torch.stack(parts) for parts in zip(*acquired, strict=True))) if acquired else None
    images, classes = torch.stack(volumes), torch.stack(labels)
    return VolumeSet(anatomy, images, spacing_mm, cases, cases, labels=classes, frames=stacked, facts=facts)


def _acquire(patient: phantom.Phantom, count: int, magnitude: float) -> tuple[Tensor, Tensor, Tensor]:
    """Frames (F, H, W) uint8 of one patient with their rotations (F, 3, 3) and translations (F, 3)."""
    # Drawn on the CPU, where they are the same whatever the device.
    generator = generator_for(f"poses of the set of {patient.anatomy}", patient.seed)
    poses = sample_poses(count, magnitude, patient.shape, generator)
    images = patient.acquire(*poses, protocol=PROTOCOL, seed=patient.seed).images
    return grey_bytes(images), poses.rotation.float(), poses.translation.float()
