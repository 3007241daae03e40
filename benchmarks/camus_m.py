"""The set CAMUS-M of docs/results.md, from stacks of morphed frames.

    python benchmarks/camus_m.py STILLS STACK LABELS -o sets/camus-m

STILLS is the .npz file with the real frames, of which the patients' numbers are read; STACK and LABELS are .npy files
(patients, 32, 176, 176) of uint8, surroundings included, depth along the last axis. Every volume is scaled as the
loader of CAMUS scales it. Volumes are called by their patient, and poses of the evaluation are drawn by these names:
a set with other names has other poses.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch

from scopereg.data.camus import CLASSES, FIELD_MM, SURROUNDINGS
from scopereg.data.grids import inner, to_uint8
from scopereg.data.store import VolumeSet, save_set

SIZE = 128


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stills", type=Path)
    parser.add_argument("stack", type=Path)
    parser.add_argument("labels", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True)
    options = parser.parse_args()
    with np.load(options.stills) as stills:
        patients = [f"patient{number:04d}" for number in stills["patient"]]
    made = camus_m(upright(options.stack), upright(options.labels), patients)
    save_set(made, options.output)
    print(made, made.sha256())


def upright(path: Path) -> torch.Tensor:
    """A stack (N, F, S, S) with depth downwards."""
    return torch.from_numpy(np.load(path)).transpose(2, 3).contiguous()


def camus_m(stack: torch.Tensor, labels: torch.Tensor, patients: list[str]) -> VolumeSet:
    margin = (0, *[round(SIZE * SURROUNDINGS / 2)] * 2)
    field = inner(stack.shape[1:], margin)
    scaled = [to_uint8(v.numpy().astype(np.float32), field, name) for v, name in zip(stack, patients, strict=True)]
    images = torch.from_numpy(np.stack(scaled))
    facts = {"classes": list(CLASSES)}
    return VolumeSet("CAMUS-M", images, FIELD_MM / SIZE, patients, patients, margin, labels, facts=facts)


if __name__ == "__main__":
    main()
