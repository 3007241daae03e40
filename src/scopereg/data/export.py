"""Export: phantom patients and random worlds as files that any viewer opens."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from scopereg.data import phantom
from scopereg.data.frames import Protocol
from scopereg.data.worlds.sets import make_worlds
from scopereg.devices import resolve_device
from scopereg.geometry import VoxelPoses, sample_poses
from scopereg.geometry.beam import Thickness
from scopereg.images import Frame, Volume, pose_from_voxels
from scopereg.io.files import write_bytes, write_text
from scopereg.io.pictures import grey_pixels, png_bytes
from scopereg.io.volumes import write_labels, write_volume
from scopereg.provenance import provenance, tensors_sha256


def write_patient(
    folder: Path,
    anatomy: str,
    seed: int,
    *,
    frames: int,
    magnitude: float,
    protocol: Protocol,
    shape: tuple[int, int, int] | None = None,
    spacing_mm: float | None = None,
    thickness_mm: float | str | None = None,
    device: str = "auto",
) -> None:
    """volume.nii.gz, labels.nii.gz, frame_N.png and patient.json (spacing, poses, label names, how it was made)."""
    made_on = resolve_device(device)
    patient = phantom.create(anatomy, seed=seed, shape=shape, spacing_mm=spacing_mm, device=str(made_on))
    volume = patient.volume.to("cpu")
    write_labels(volume, folder / "labels.nii.gz")
    drawn, images = None, torch.empty(0)
    if frames > 0:
        generator = torch.Generator().manual_seed(seed)
        drawn = sample_poses(frames, magnitude, patient.shape, generator)
        images = patient.acquire(*drawn, protocol=protocol, seed=seed, thickness_mm=thickness_mm).images.cpu()
    labels = {str(number): name for number, name in patient.label_names.items()}
    told: dict[str, Any] = {"anatomy": anatomy, "protocol": protocol, "labels": labels}
    if (thickness := Thickness.of(thickness_mm)) is not None:
        told["thickness"] = thickness.words
    _write_case(folder / "patient.json", volume, images, drawn, told, seed, made_on)


def write_world(
    folder: Path,
    seed: int,
    *,
    frames: int,
    magnitude: float,
    shape: tuple[int, int, int],
    device: str = "auto",
) -> None:
    """volume.nii.gz, frame_N.png and world.json (spacing, poses, how it was made)."""
    made_on = resolve_device(device)
    made = make_worlds(
        1,
        seed=seed,
        frames=max(frames, 1),
        magnitude=magnitude,
        shape=shape,
        device=made_on,
    )
    volume = Volume(made.images[0].float() / 255, made.spacing_mm)
    assert made.frames is not None
    drawn = VoxelPoses(made.frames.rotation[0], made.frames.translation[0])
    images = made.frames.images[0, :frames].float() / 255
    _write_case(folder / "world.json", volume, images, drawn, {"anatomy": "world"}, seed, made_on)


def _write_case(
    path: Path,
    volume: Volume,
    images: Tensor,
    poses: VoxelPoses | None,
    told: dict[str, Any],
    seed: int,
    device: torch.device,
) -> None:
    """The volume, its frames (F, H, W) and a file that tells what they are, last: it is there when all else is."""
    folder = path.parent
    write_volume(volume, folder / "volume.nii.gz")
    frames = []
    for index, image in enumerate(images):
        assert poses is not None
        frame = Frame(image, spacing_mm=volume.isotropic_spacing_mm)
        pose = pose_from_voxels(poses.rotation[index], poses.translation[index], frame, volume)
        name = f"frame_{index:02d}.png"
        write_bytes(folder / name, png_bytes(grey_pixels(image)))
        frames.append({"file": name, "origin_mm": frame.origin_mm, "image_to_volume": pose.matrix.tolist()})
    content = {
        **told,
        "spacing_mm": volume.isotropic_spacing_mm,
        "frames": frames,
        "made_with": provenance(seed=seed, data_sha256=tensors_sha256(volume.array), device=str(device)),
    }
    write_text(path, json.dumps(content, indent=2) + "\n")
