"""Pose sets for tests: those that every method is measured at, and probe sweeps; training draws live in geometry."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from scopereg.data.seeds import generator_for
from scopereg.errors import ScopeRegError
from scopereg.geometry import (
    MIN_INSIDE,
    VoxelPoses,
    check_magnitude,
    euler_deg_from_rotation,
    inside_fraction,
    rotation_from_euler_deg,
    sample_poses,
)
from scopereg.io.arrays import BROKEN_ARCHIVE, read_npy_header
from scopereg.io.files import atomic_path
from scopereg.io.records import Record
from scopereg.provenance import tensors_sha256

MAGNITUDES = (10.0, 15.0, 20.0, 25.0)  # voxels and degrees: the capture range of the paper
FRAMES_PER_CASE = 4


def evaluation_poses(
    cases: Sequence[str],
    shape: tuple[int, int, int],
    magnitude: float,
    *,
    frames: int = FRAMES_PER_CASE,
    seed: int = 0,
) -> VoxelPoses:
    """The poses (N * frames, ...) that every method is measured at, `frames` in a row for each of N cases.

    Drawn on the CPU from a generator of each case's own: a part of the cases gets the same poses as all of them.
    """
    if not cases:
        raise ScopeRegError("there are no cases", where="evaluation_poses(cases)", fix="name at least one")
    drawn = []
    for case in cases:
        generator = generator_for(f"evaluation poses of {case}", seed, round(magnitude * 1000))
        drawn.append(sample_poses(frames, magnitude, shape, generator))
    rotations, translations = zip(*drawn, strict=True)
    return VoxelPoses(torch.cat(rotations), torch.cat(translations))


def write_poses(path: Path, cases: Sequence[str], shape: tuple[int, int, int]) -> dict[str, Any]:
    """Store the evaluation poses of every magnitude as .npz, and give what a manifest tells of them.

    A magnitude that a volume is too small for is left out and its reason told.
    """
    arrays: dict[str, Any] = {"cases": np.array(cases)}
    hashes, left_out = {}, {}
    for magnitude in MAGNITUDES:
        key = _key(magnitude)
        try:
            poses = evaluation_poses(cases, shape, magnitude)
        except ScopeRegError as error:
            left_out[key] = error.what
            continue
        arrays |= {f"{key}_rotation": poses.rotation.numpy(), f"{key}_translation": poses.translation.numpy()}
        hashes[key] = tensors_sha256(*poses)
    with atomic_path(path) as temporary, temporary.open("wb") as file:
        np.savez(file, **arrays)
    facts = {"file": path.name, "frames": FRAMES_PER_CASE, "seed": 0, "min_inside": MIN_INSIDE, "sha256": hashes}
    return facts | ({"left_out": left_out} if left_out else {})


@dataclass(frozen=True)
class StoredPoses:
    """The evaluation poses beside a set, read when they are first asked for."""

    path: Path
    facts: dict[str, Any]  # of the manifest
    cases: tuple[str, ...]  # volumes of the set as it was stored
    _read: dict[str, VoxelPoses] = field(default_factory=dict, repr=False, compare=False)

    def of(self, case: str, magnitude: float, frames: int, seed: int) -> VoxelPoses | None:
        """The stored poses (frames, ...) of a volume; None where those asked for are not among them."""
        facts, key = self.facts, _key(magnitude)
        told = (facts["frames"], facts["seed"], facts["min_inside"])
        if told != (frames, seed, MIN_INSIDE) or key not in facts["sha256"] or case not in self.cases:
            return None
        if key not in self._read:
            self._read[key] = read_poses(self.path, facts, magnitude, len(self.cases))
        row = self.cases.index(case) * frames
        return VoxelPoses(*(part[row : row + frames] for part in self._read[key]))


def check_pose_facts(told: Record) -> None:
    """An error unless a manifest tells of evaluation poses what `write_poses` gave it."""
    if told.text("file") != Path(told.text("file")).name:
        raise told.wrong("file", "the name of a file in this folder")
    told.whole("frames", 1, 10_000)
    told.whole("seed")
    told.number("min_inside", 0, 1)
    for key in told.record("sha256").values:
        told.record("sha256").text(key)


def read_poses(path: Path, facts: dict[str, Any], magnitude: float, volumes: int) -> VoxelPoses:
    """The stored evaluation poses (N * frames, ...) of N volumes at a magnitude, if they are those `facts` tell of."""
    key = _key(magnitude)
    if key not in facts["sha256"]:
        found = ", ".join(name.removeprefix("pm") for name in facts["sha256"])
        reason = facts.get("left_out", {}).get(key, f"there are {found}")
        raise ScopeRegError(
            f"no poses of magnitude {magnitude:g} are stored: {reason}",
            where=str(path),
            fix="use one of the stored magnitudes, or draw poses with evaluation_poses",
        )
    count = volumes * facts["frames"]
    try:
        with zipfile.ZipFile(path) as archive:
            rotation = _array(archive, f"{key}_rotation", (count, 3, 3))
            translation = _array(archive, f"{key}_translation", (count, 3))
    except BROKEN_ARCHIVE as error:
        raise ScopeRegError(f"it cannot be read: {error}", where=str(path), fix="prepare the data again") from None
    poses = VoxelPoses(rotation, translation)
    if tensors_sha256(*poses) != facts["sha256"][key]:
        raise ScopeRegError(
            f"the poses of magnitude {magnitude:g} are not those that were written",
            where=str(path),
            fix="prepare the data again",
        )
    return poses


def _array(archive: zipfile.ZipFile, name: str, shape: tuple[int, ...]) -> Tensor:
    """An array of float32 in an archive, if it has this shape; no more of it is read than that."""
    with archive.open(f"{name}.npy") as file:
        header = read_npy_header(file)
        if (header.shape, header.dtype) != (shape, np.dtype("<f4")):
            raise ValueError(f"{name} holds {header.dtype} of shape {header.shape}, not float32 of {shape}")
        values = file.read(header.size + 1)  # to the end, where the archive compares its checksum
    if len(values) != header.size:
        raise ValueError(f"{name} does not hold the {header.size} bytes that its header tells")
    return torch.frombuffer(bytearray(values), dtype=torch.float32).reshape(shape)


def _key(magnitude: float) -> str:
    return f"pm{magnitude:g}"


def sample_sweep(
    count: int, magnitude: float, shape: tuple[int, int, int], generator: torch.Generator | None = None
) -> VoxelPoses:
    """Poses (count, ...) along a smooth hand-held sweep within +-magnitude (voxels, degrees) of the volume's middle.

    A Catmull-Rom curve through random poses, on each of the six numbers; like every pose of this package, those of
    a sweep keep 35 % of the slice inside the volume of `shape` (D, H, W).
    """
    if count < 1:
        raise ScopeRegError(f"{count} frames were asked for", where="sample_sweep(count)", fix="ask for at least one")
    check_magnitude(magnitude, "sample_sweep")
    for _ in range(100):
        # Four knots with margins: the curve may overshoot its knots by an eighth of their distance.
        rotation, translation = sample_poses(4, 0.8 * magnitude, shape, generator)
        knots = torch.cat([translation, euler_deg_from_rotation(rotation)], -1)  # (4, 6)
        curve = _catmull_rom(knots, count).clamp(-magnitude, magnitude)
        poses = VoxelPoses(rotation_from_euler_deg(curve[:, 3:]), curve[:, :3])
        if bool((inside_fraction(*poses, shape) >= MIN_INSIDE).all()):
            return poses
    raise ScopeRegError(
        f"no sweep at magnitude {magnitude:g} stays inside a volume of shape {tuple(shape)}",
        where="sample_sweep(magnitude)",
        fix="use a smaller magnitude or a larger volume",
    )


def _catmull_rom(knots: torch.Tensor, count: int) -> torch.Tensor:
    """Points (count, N) on a curve through all knots (K, N), evenly spaced in the curve's parameter."""
    last = len(knots) - 1
    padded = torch.cat([2 * knots[:1] - knots[1:2], knots, 2 * knots[-1:] - knots[-2:-1]])
    position = torch.linspace(0, last, count, device=knots.device)
    segment = position.floor().clamp(max=last - 1).long()
    s = (position - segment)[:, None]
    p0, p1, p2, p3 = (padded[segment + k] for k in range(4))
    return 0.5 * (2 * p1 + (p2 - p0) * s + (2 * p0 - 5 * p1 + 4 * p2 - p3) * s**2 + (3 * p1 - p0 - 3 * p2 + p3) * s**3)
