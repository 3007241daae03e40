"""WorldSource: training batches of random worlds, drawn on the device; from easy to hard, in several shapes.

Phantoms may be mixed in: a few hundred stored patients beside worlds without end.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from scopereg.data.seeds import stream_seed
from scopereg.data.store import MANIFEST, AcquiredFrames, VolumeSet, open_set
from scopereg.data.worlds import WorldRanges, draw_worlds
from scopereg.data.worlds.ranges import Shape, greatest_offset
from scopereg.data.worlds.recorded import RecordedWorlds
from scopereg.data.worlds.sets import make_worlds
from scopereg.errors import ScopeRegError
from scopereg.networks.recipe import Batch
from scopereg.training.settings import TrainSettings
from scopereg.training.source import FrameSource, Source

VALIDATION_MAGNITUDE = 10.0
VALIDATION_WORLDS, VALIDATION_FRAMES, VALIDATION_SEED = 48, 4, 1_000_000  # training draws from other streams
STAGES = 8  # of the curriculum
COARSE_SIDE, FINE_SIDE = 80, 160  # voxels along the longer side of planes: up to the first, phantoms are too coarse
PHANTOM_SHARE = 1 / 5  # of the batches, where there are phantoms
_EASIEST_OFFSET = 0.3  # of the magnitude, where the curriculum begins


class WorldSource(Source):
    """Batches of worlds. All steps of one draw have one shape; `rank` separates the processes of one run."""

    def __init__(
        self,
        device: torch.device,
        settings: TrainSettings,
        rank: int = 0,
        ranges: WorldRanges | None = None,
        phantoms: Sequence[VolumeSet] = (),
    ) -> None:
        super().__init__(device, settings)
        self.rank, self.ranges = rank, ranges or WorldRanges()
        self.phantoms = [FrameSource(volumes.to(device), settings, rank) for volumes in phantoms]
        self._recorded = RecordedWorlds(device) if device.type == "cuda" and settings.capture else None

    def draw(self, index: int) -> Batch:
        settings = self.settings
        difficulty = self.difficulty(index * self.steps_at_once)
        picks = random.Random(stream_seed("phantoms among worlds", settings.seed, index))
        if self.phantoms and difficulty == 1 and picks.random() < PHANTOM_SHARE:
            return picks.choice(self.phantoms).draw(index)
        ranges = self.ranges.eased(difficulty)
        shape = self.shape(index)
        largest = settings.magnitude * (_EASIEST_OFFSET + (1 - _EASIEST_OFFSET) * difficulty)
        sizes = (self.steps_at_once * settings.batch // settings.frames_per_volume, settings.frames_per_volume, shape)
        within: dict[str, Any] = {"magnitude": greatest_offset(shape, largest, ranges), "ranges": ranges}
        seed = stream_seed("training worlds", settings.seed, self.rank, index)
        if self._recorded is not None:
            drawn = self._recorded.draw(seed, *sizes, **within)
        else:
            drawn = draw_worlds(*sizes, torch.Generator(self.device).manual_seed(seed), **within)
        return Batch(drawn.frames, drawn.volumes, drawn.rotation, drawn.translation)

    def difficulty(self, step: int) -> float:
        """How hard worlds are at a step, 0 to 1, in a few stages: each of them is recorded once."""
        if not self.settings.curriculum:
            return 1.0
        return min(1.0, math.floor(step / self.settings.curriculum * STAGES) / STAGES)

    def shape(self, index: int) -> Shape:
        """The shape of a draw, by seed and index alone; the same on all processes, which wait for each other."""
        shapes, chances = zip(*self.ranges.shapes, strict=True)
        picks = random.Random(stream_seed("shapes of worlds", self.settings.seed, index))
        (shape,) = picks.choices(shapes, chances)
        return tuple(shape)


def stored_phantoms(folder: Path | None) -> list[VolumeSet]:
    """The sets in a folder, as registration shows them; an error where there are none, or some without frames."""
    if folder is None:
        return []
    found = [open_set(path.parent) for path in sorted(folder.glob(f"*/{MANIFEST}"))]
    if not found or any(volumes.frames is None for volumes in found):
        raise ScopeRegError(
            "it holds no sets of phantoms with frames",
            where=str(folder),
            fix="store some there: save_set(make_phantoms(anatomy, count), folder / anatomy)",
        )
    return [shown for volumes in found for shown in as_registered(volumes)]


def as_registered(volumes: VolumeSet) -> list[VolumeSet]:
    """A set in the sizes in which registration shows it to a network: as it is, and interpolated to more voxels.

    Planes of few voxels are only ever seen interpolated, see docs/register.md.
    """
    side = max(volumes.shape[1:])
    if side <= COARSE_SIDE:
        return [finer(volumes, 2)]
    factor = FINE_SIDE / side
    whole = all((factor * n).is_integer() for n in (*volumes.shape, *volumes.margin))
    return [volumes, finer(volumes, factor)] if factor > 1 and whole else [volumes]


def finer(volumes: VolumeSet, factor: float) -> VolumeSet:
    """A set with `factor` times the voxels on every axis of volumes and frames; whole numbers of them."""
    frames = volumes.frames
    assert frames is not None
    z, y, x = (round(factor * n) for n in volumes.margin)
    return replace(
        volumes,
        images=_interpolated(volumes.images, factor, "trilinear"),
        spacing_mm=volumes.spacing_mm / factor,
        margin=(z, y, x),
        labels=None,
        frames=AcquiredFrames(
            _interpolated(frames.images, factor, "bilinear"), frames.rotation, factor * frames.translation
        ),
    )


def _interpolated(images: Tensor, factor: float, mode: str) -> Tensor:
    """Images (N, F, ...) or volumes (N, ...), uint8, with `factor` times the voxels on every axis."""
    made = []
    for image in images:
        channels = image[None, None] if mode == "trilinear" else image[None]
        fine = F.interpolate(channels.float(), scale_factor=factor, mode=mode, align_corners=False)[0]
        made.append((fine[0] if mode == "trilinear" else fine).round().to(torch.uint8))
    return torch.stack(made)


def validation_worlds(
    shape: Shape, ranges: WorldRanges, device: torch.device, magnitude: float = VALIDATION_MAGNITUDE
) -> VolumeSet:
    """Worlds that are never trained on, with frames of each."""
    return make_worlds(
        VALIDATION_WORLDS,
        seed=VALIDATION_SEED,
        frames=VALIDATION_FRAMES,
        magnitude=magnitude,
        shape=shape,
        device=device,
        ranges=ranges,
    )


def grid_facts(ranges: WorldRanges, magnitude: float) -> dict[str, Any]:
    """The sizes in voxels that a network trained on these worlds knows, for whoever makes grids for it."""
    planes = [shape[0] for shape, _ in ranges.shapes]
    sides = [side for shape, _ in ranges.shapes for side in shape[1:]]
    return {
        "frame_voxels": [min(sides), max(sides)],
        "volume_voxels": [min(planes), max(max(planes), max(sides))],
        "magnitude_voxels": magnitude,
    }
