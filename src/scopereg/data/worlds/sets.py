"""Sets of worlds with frames of each, for validation, calibration and evaluation."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict

import torch

from scopereg.data.registry import WORLDS
from scopereg.data.seeds import generator_for
from scopereg.data.store import AcquiredFrames, VolumeSet, grey_bytes
from scopereg.data.worlds.ranges import Shape, WorldRanges, greatest_offset
from scopereg.data.worlds.world import draw_worlds
from scopereg.errors import ScopeRegError

USUAL_SHAPE: Shape = (32, 128, 128)
SPACING_MM = 1.0  # a world has no scale: its voxels are called a millimetre
_RANGES = WorldRanges()


def make_worlds(
    count: int,
    *,
    seed: int = 0,
    frames: int = 4,
    magnitude: float = 10.0,
    shape: Shape = USUAL_SHAPE,
    device: torch.device | str = "cpu",
    ranges: WorldRanges = _RANGES,
    progress: Callable[[int, int], None] | None = None,
) -> VolumeSet:
    """Worlds of seeds `seed` to `seed + count - 1` and `frames` frames of each, made on `device`, kept on the CPU.

    A seed gives the same world on one kind of device.
    """
    if count < 1 or frames < 1:
        raise ScopeRegError(
            f"{count} worlds with {frames} frames",
            where="make_worlds(count, frames)",
            fix="ask for at least one of each",
        )
    offset = greatest_offset(shape, magnitude, ranges)
    volumes, acquired = [], []
    for done in range(count):
        generator = generator_for("a world", seed + done, device=device)
        world = draw_worlds(1, frames, shape, generator, magnitude=offset, ranges=ranges)
        volumes.append(grey_bytes(world.volumes[0]))
        acquired.append((grey_bytes(world.frames), world.rotation.cpu(), world.translation.cpu()))
        if progress is not None:
            progress(done + 1, count)
    cases = tuple(f"world{seed + done:05d}" for done in range(count))
    facts = {
        "dataset": WORLDS,
        "seeds": [seed, seed + count - 1],
        "frames": frames,
        "magnitude": float(magnitude),
        "protocol": "honest",
        "device": torch.device(device).type,
        "ranges_sha256": ranges_sha256(ranges),
    }
    stacked = AcquiredFrames(*(torch.stack(parts) for parts in zip(*acquired, strict=True)))
    return VolumeSet(WORLDS, torch.stack(volumes), SPACING_MM, cases, cases, frames=stacked, facts=facts)


def ranges_sha256(ranges: WorldRanges) -> str:
    """Hash of all ranges: what worlds are drawn from, in place of a hash of data."""
    return hashlib.sha256(json.dumps(asdict(ranges), sort_keys=True).encode()).hexdigest()
