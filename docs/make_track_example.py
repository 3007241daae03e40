"""Write the sweep of docs/track.md: a phantom patient, sixty tracked frames, two runs of which show nothing.

Run from the repository root: python docs/make_track_example.py; docs/make_page_pictures.py makes a picture of it.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from scopereg import io
from scopereg.data import phantom
from scopereg.data.poses import sample_sweep
from scopereg.geometry import Pose
from scopereg.images import Frame, pose_from_voxels
from scopereg.io.pictures import grey_pixels
from scopereg.io.plus_sequence import write_plus_images

OUT = Path("out/track-example")
SEED, FRAMES, RATE = 60_000, 60, 10
NOISE = (*range(24, 28), *range(42, 51))  # the probe is lifted


def main() -> None:
    patient = phantom.create("echo", seed=SEED)
    poses = sample_sweep(FRAMES, 10, patient.shape, torch.Generator().manual_seed(SEED))
    pixels = np.stack([grey_pixels(image) for image in patient.acquire(*poses, seed=SEED).images])
    generator = np.random.default_rng(0)
    for row in NOISE:
        pixels[row] = generator.integers(0, 255, pixels[row].shape)
    first = Frame(torch.zeros(patient.shape[1:]), spacing_mm=patient.spacing_mm, origin_mm=(0, 0))
    placed = [pose_from_voxels(*pose, first, patient.volume) for pose in zip(*poses, strict=True)]
    tracked = [Pose(pose.rotation, pose.translation_mm, "Image", "Reference") for pose in placed]
    times = [row / RATE for row in range(FRAMES)]
    io.write_volume(patient.volume, OUT / "volume.nii.gz")
    write_plus_images(pixels, tracked, OUT / "sweep.igs.mha", spacing_mm=first.spacing_mm, times_s=times)


if __name__ == "__main__":
    main()
