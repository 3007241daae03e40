"""`scopereg data phantom`: phantom patients as files that any viewer opens."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import track

from scopereg.data import phantom
from scopereg.devices import resolve_device
from scopereg.errors import ScopeRegError
from scopereg.geometry import sample_poses
from scopereg.images import Frame, pose_from_voxels
from scopereg.io.files import output_folder, write_bytes, write_text
from scopereg.io.pictures import grey_pixels, png_bytes
from scopereg.io.volumes import write_labels, write_volume
from scopereg.options.data import PhantomOptions
from scopereg.provenance import provenance, tensors_sha256


def run(options: PhantomOptions) -> int:
    console = Console()
    if options.count < 1:
        raise ScopeRegError(f"{options.count} patients", where="--count", fix="ask for at least one")
    if options.frames < 0:
        raise ScopeRegError(f"{options.frames} frames", where="--frames", fix="ask for none (0) or more")
    folder = output_folder(options.output)
    for index in track(range(options.count), "phantoms", console=console, transient=True):
        write_patient(folder / f"{options.anatomy}{options.seed + index:04d}", options, options.seed + index)
    console.print(f"{options.count} {options.anatomy} phantoms in {folder}", soft_wrap=True)
    return 0


def write_patient(folder: Path, options: PhantomOptions, seed: int) -> None:
    """volume.nii.gz, labels.nii.gz, frame_N.png and patient.json (spacing, poses, label names, how it was made)."""
    device = resolve_device(options.device)
    patient = phantom.create(
        options.anatomy, seed=seed, shape=options.shape, spacing_mm=options.spacing_mm, device=str(device)
    )
    volume = patient.volume.to("cpu")
    write_volume(volume, folder / "volume.nii.gz")
    write_labels(volume, folder / "labels.nii.gz")
    frames = []
    if options.frames > 0:
        generator = torch.Generator().manual_seed(seed)
        drawn = sample_poses(options.frames, options.magnitude, patient.shape, generator)
        acquired = patient.acquire(*drawn, protocol=options.protocol, seed=seed)
        for index, image in enumerate(acquired.images.cpu()):
            frame = Frame(image, spacing_mm=patient.spacing_mm)
            pose = pose_from_voxels(drawn.rotation[index], drawn.translation[index], frame, volume)
            name = f"frame_{index:02d}.png"
            write_bytes(folder / name, png_bytes(grey_pixels(image)))
            frames.append({"file": name, "origin_mm": frame.origin_mm, "image_to_volume": pose.matrix.tolist()})
    content = {
        "anatomy": options.anatomy,
        "spacing_mm": patient.spacing_mm,
        "protocol": options.protocol,
        "labels": {str(number): name for number, name in patient.label_names.items()},
        "frames": frames,
        "made_with": provenance(seed=seed, data_sha256=tensors_sha256(volume.array), device=str(device)),
    }
    write_text(folder / "patient.json", json.dumps(content, indent=2) + "\n")
