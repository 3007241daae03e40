"""`scopereg data phantom` and `data worlds`: patients that never were, as files that any viewer opens."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import torch
from rich.console import Console
from rich.progress import track
from torch import Tensor

from scopereg.data import phantom
from scopereg.data.worlds.sets import make_worlds
from scopereg.devices import resolve_device
from scopereg.errors import ScopeRegError
from scopereg.geometry import VoxelPoses, sample_poses
from scopereg.images import Frame, Volume, pose_from_voxels
from scopereg.io.files import output_folder, write_bytes, write_text
from scopereg.io.pictures import grey_pixels, png_bytes
from scopereg.io.volumes import write_labels, write_volume
from scopereg.options.data import PhantomOptions, WorldsOptions
from scopereg.provenance import provenance, tensors_sha256


def run(options: PhantomOptions) -> int:
    """Write phantom patients."""
    return _write_all(options, options.anatomy, write_patient)


def run_worlds(options: WorldsOptions) -> int:
    """Write random worlds."""
    return _write_all(options, "world", write_world)


Options = TypeVar("Options", PhantomOptions, WorldsOptions)


def _write_all(options: Options, name: str, write: Callable[[Path, Options, int], None]) -> int:
    console = Console()
    if options.count < 1:
        raise ScopeRegError(f"{options.count} patients", where="--count", fix="ask for at least one")
    if options.frames < 0:
        raise ScopeRegError(f"{options.frames} frames", where="--frames", fix="ask for none (0) or more")
    folder = output_folder(options.output)
    for index in track(range(options.count), f"{name}s", console=console, transient=True):
        write(folder / f"{name}{options.seed + index:04d}", options, options.seed + index)
    console.print(f"{options.count} {name}{'' if options.count == 1 else 's'} in {folder}", soft_wrap=True)
    return 0


def write_patient(folder: Path, options: PhantomOptions, seed: int) -> None:
    """volume.nii.gz, labels.nii.gz, frame_N.png and patient.json (spacing, poses, label names, how it was made)."""
    device = resolve_device(options.device)
    patient = phantom.create(
        options.anatomy, seed=seed, shape=options.shape, spacing_mm=options.spacing_mm, device=str(device)
    )
    volume = patient.volume.to("cpu")
    write_labels(volume, folder / "labels.nii.gz")
    drawn, images = None, torch.empty(0)
    if options.frames > 0:
        generator = torch.Generator().manual_seed(seed)
        drawn = sample_poses(options.frames, options.magnitude, patient.shape, generator)
        images = patient.acquire(*drawn, protocol=options.protocol, seed=seed).images.cpu()
    labels = {str(number): name for number, name in patient.label_names.items()}
    told = {"anatomy": options.anatomy, "protocol": options.protocol, "labels": labels}
    _write_case(folder / "patient.json", volume, images, drawn, told, seed, device)


def write_world(folder: Path, options: WorldsOptions, seed: int) -> None:
    """volume.nii.gz, frame_N.png and world.json (spacing, poses, how it was made)."""
    device = resolve_device(options.device)
    made = make_worlds(
        1,
        seed=seed,
        frames=max(options.frames, 1),
        magnitude=options.magnitude,
        shape=options.shape,
        device=device,
    )
    volume = Volume(made.images[0].float() / 255, made.spacing_mm)
    assert made.frames is not None
    drawn = VoxelPoses(made.frames.rotation[0], made.frames.translation[0])
    images = made.frames.images[0, : options.frames].float() / 255
    _write_case(folder / "world.json", volume, images, drawn, {"anatomy": "world"}, seed, device)


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
