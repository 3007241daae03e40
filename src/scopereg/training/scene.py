"""Scene: a volume as a probe meets it; windows of it and frames in them are drawn where they show something.

A window is what the network is given: the whole volume where that is about as large as those it was trained on, else
a part around some start, as `register` with a start and the evaluation of sweeps give it. Empty places of the volume
are painted over from what lies around them: a frame does not end where a volume does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from scopereg.data.mismatch import Rays, draw_rays, honest_frames
from scopereg.data.seeds import generator_for
from scopereg.errors import ScopeRegError
from scopereg.geometry import (
    MIN_INSIDE,
    VoxelPoses,
    compose_poses,
    invert_poses,
    mtre_mm,
    place_plane,
    resample_volume,
    rotation_from_euler_deg,
    sample_points,
    sample_poses,
    sample_slice,
)
from scopereg.geometry.slicing import Padding
from scopereg.images import Volume, field_of_view
from scopereg.networks.encoders import STRIDE
from scopereg.networks.recipe import Batch
from scopereg.networks.scope_reg import ScopeReg
from scopereg.training.settings import TrainSettings
from scopereg.training.source import Source

Shape = tuple[int, int, int]

LARGER = 1.5  # times the volumes of the training: from here on the network is given windows
TURN_DEG = (20.0, 10.0, 10.0)  # of a window against the volume's axes x, y, z: probes are tilted about their long side
COVERED = 0.85  # share of a frame that lies on a picture: a real one does as a whole
TRIES = 6  # poses and fans drawn for a frame, of which the first that is covered is taken
_COARSE = 4  # pixels from point to point where covers are measured
_ANCHORS, _LEAST_ANCHORS = 2048, 16  # places tried for windows, and how many must be good


@dataclass(frozen=True, eq=False)
class Scene:
    """A volume (D, H, W) on a device, with what frames are cut from and where windows lie."""

    volume: Tensor  # in [0, 1], as the network is given it
    content: Tensor  # 1 where there is a picture, else 0
    filled: Tensor  # the volume with its empty places filled: a frame does not end where a volume does
    window: Shape  # voxels that the network is given at once
    magnitude: float
    anchors: VoxelPoses | None  # of frames that are covered, for windows around them; None: the window is the volume

    @classmethod
    def of(cls, volume: Volume, trained: Shape, magnitude: float, seed: int, device: torch.device) -> Scene:
        """The scene of an isotropic volume in [0, 1], for a network that was trained on volumes of shape `trained`."""
        window = window_shape(volume.shape, trained)
        if min(window) < STRIDE:
            size, mm = " x ".join(map(str, volume.shape)), volume.isotropic_spacing_mm
            raise ScopeRegError(
                f"it has {size} voxels of {mm:.3g} mm: too small to adapt to",
                where="adapt(volume)",
                fix=f"pass a volume of at least {STRIDE} voxels on each axis, or a finer spacing_mm=",
            )
        content = pictured(volume.array)
        filled = fill_empty(volume.array, content)
        generator = generator_for("places to adapt at", seed)
        anchors = None
        if window == volume.shape:
            _check_content(content, window, magnitude, generator)
        else:
            anchors = VoxelPoses(*(part.to(device) for part in _find_anchors(content, window, generator)))
        own, there, whole = (part.float().to(device) for part in (volume.array, content, filled))
        return cls(own, there, whole, window, magnitude, anchors)

    @torch.no_grad()
    def draw(self, windows: int, frames: int, generator: torch.Generator, *, unseen: bool = False) -> Batch:
        """So many windows, and frames in each, with poses in it; `unseen` adds what no network is trained on."""
        count, shape = windows * frames, (self.window[1], self.window[2])
        places = self._places(windows, generator)
        poses = sample_poses(count * TRIES, self.magnitude, self.window, generator)
        rays = draw_rays(count * TRIES, shape, generator)
        there = compose_poses(_repeated(places, frames * TRIES), poses)
        covers = cover(self.content, there, rays.inside, self.padding).unflatten(0, (count, TRIES))
        # The first try that is covered, else the best.
        rows = torch.arange(count, device=covers.device) * TRIES + covers.clamp_max(COVERED).argmax(1)
        poses, there, rays = _rows(poses, rows), _rows(there, rows), Rays(*(part[rows] for part in rays))
        whole = sample_slice(self.filled, *there, slice_shape=shape, padding="reflection")
        slices, _ = honest_frames(whole.clamp(0, 1), generator, unseen=unseen, rays=rays)
        return Batch(slices, self._seen_from(places), *poses)

    @property
    def padding(self) -> Padding:
        """What lies beside the volume: of a window that it is part of nothing, of the whole what frames show there."""
        return "reflection" if self.anchors is None else "zeros"

    def _places(self, count: int, generator: torch.Generator) -> VoxelPoses:
        """Poses (count, ...) of windows in the volume, each near a frame that is covered."""
        if self.anchors is None:
            still = torch.eye(3, device=generator.device).repeat(count, 1, 1)
            return VoxelPoses(still, torch.zeros(count, 3, device=generator.device))
        rows = torch.randint(len(self.anchors.rotation), (count,), generator=generator, device=generator.device)
        near = sample_poses(count, self.magnitude, self.window, generator)
        return compose_poses(_rows(self.anchors, rows), invert_poses(near))

    def _seen_from(self, places: VoxelPoses) -> Tensor:
        volumes = self.volume.expand(len(places.rotation), -1, -1, -1)
        return volumes if self.anchors is None else resample_volume(volumes, *places, shape=self.window)


def window_shape(shape: Shape, trained: Shape) -> Shape:
    """What a network is given of a volume of `shape`: all, or where that is much larger than in its training a part."""
    if all(n <= LARGER * usual for n, usual in zip(shape, trained, strict=True)):
        return shape
    depth, height, width = (min(n, usual) for n, usual in zip(shape, trained, strict=True))
    return depth, height, width


def cover(content: Tensor, poses: VoxelPoses, inside: Tensor, padding: Padding = "zeros") -> Tensor:
    """Share (N,) of what frames at poses (N, ...) show, `inside` (N, H, W) of their fans, that is content (D, H, W)."""
    return _coarse_cover(content, poses, F.avg_pool2d(inside.float(), _COARSE), padding)


def _coarse_cover(content: Tensor, poses: VoxelPoses, shown: Tensor, padding: Padding = "zeros") -> Tensor:
    """The same with fans (N, H / 4, W / 4), 0 to 1."""
    points = place_plane(poses.rotation * _COARSE, poses.translation, (shown.shape[1], shown.shape[2]))
    there = sample_points(content.float()[None], points[None], padding=padding)[0]
    return (there * shown).sum((1, 2)) / shown.sum((1, 2)).clamp_min(1)


def _repeated(poses: VoxelPoses, times: int) -> VoxelPoses:
    return VoxelPoses(*(part.repeat_interleave(times, 0) for part in poses))


def _rows(poses: VoxelPoses, rows: Tensor) -> VoxelPoses:
    return VoxelPoses(*(part[rows] for part in poses))


def _find_anchors(content: Tensor, window: Shape, generator: torch.Generator) -> VoxelPoses:
    """Poses of frames in the volume that are covered, or the best where few are; an error where there are none."""
    half = torch.tensor([(n - 1) / 2 for n in reversed(content.shape)])
    draw = 2 * torch.rand(_ANCHORS, 6, generator=generator) - 1
    poses = VoxelPoses(rotation_from_euler_deg(draw[:, 3:] * torch.tensor(TURN_DEG)), draw[:, :3] * half)
    shown = draw_rays(_ANCHORS, (window[1] // _COARSE, window[2] // _COARSE), generator).inside.float()
    order = _coarse_cover(content, poses, shown).sort(descending=True, stable=True)
    good = int((order.values >= COVERED).sum())
    if good < _LEAST_ANCHORS:
        good = min(_LEAST_ANCHORS, int((order.values >= MIN_INSIDE).sum()))
    _check_enough(good, content)
    return _rows(poses, order.indices[:good])


def _check_content(content: Tensor, window: Shape, magnitude: float, generator: torch.Generator) -> None:
    """An error where frames near the middle of the volume would show next to nothing."""
    count = 8 * _LEAST_ANCHORS
    poses = sample_poses(count, magnitude, window, generator)
    shown = torch.ones(count, window[1] // _COARSE, window[2] // _COARSE)
    _check_enough(int((_coarse_cover(content, poses, shown) >= MIN_INSIDE / 2).sum()), content)


def _check_enough(good: int, content: Tensor) -> None:
    if good < _LEAST_ANCHORS:
        raise ScopeRegError(
            f"only {float(content.float().mean()):.1%} of it holds a picture: too empty to adapt to",
            where="adapt(volume)",
            fix="crop the volume to what was scanned, and check that it is the right file",
        )


_HELD_OUT_WINDOWS = 4


class SceneSource(Source):
    """Endless batches: every step has one window, encoded once, and all its frames in it."""

    def __init__(self, scene: Scene, settings: TrainSettings) -> None:
        super().__init__(scene.volume.device, settings)
        self.scene = scene

    @torch.no_grad()
    def draw(self, index: int) -> Batch:
        generator = generator_for("frames to adapt with", self.settings.seed, index, device=self.device)
        return self.scene.draw(self.steps_at_once, self.settings.batch, generator)


class HeldOut(NamedTuple):
    """Frames to choose the best weights with: of one seed, with differences that are never learned from."""

    batches: tuple[Batch, ...]
    spacing_mm: float

    @classmethod
    def of(cls, scene: Scene, count: int, seed: int, spacing_mm: float) -> HeldOut:
        """About `count` frames, in some windows where the network is given windows."""
        windows = 1 if scene.anchors is None else min(_HELD_OUT_WINDOWS, count)
        device = scene.volume.device
        batches = []
        for row in range(windows):
            generator = generator_for("held-out frames", seed, row, device=device)
            batches.append(scene.draw(1, -(-count // windows), generator, unseen=True))
        return cls(tuple(batches), spacing_mm)

    @property
    def frames(self) -> int:
        return sum(len(batch.slices) for batch in self.batches)

    @torch.no_grad()
    def errors_mm(self, network: ScopeReg) -> Tensor:
        """mTRE (N,) in mm, in evaluation mode and single precision."""
        training = network.training
        network.eval()
        found = [self._errors_mm(network, batch) for batch in self.batches]
        network.train(training)
        return torch.cat(found)

    def _errors_mm(self, network: ScopeReg, batch: Batch) -> Tensor:
        result = network(batch.slices, batch.volumes)
        height, width = batch.slices.shape[1:]
        return mtre_mm(VoxelPoses(result.rotation, result.translation), batch.poses, (height, width), self.spacing_mm)


_DARK = 1 / 255  # grey values below it are no picture: one step of the bytes that volumes are stored as


def pictured(volume: Tensor) -> Tensor:
    """Where a volume (D, H, W) in [0, 1] holds a picture, bool: between its first and last grey along every axis.

    Black blood and shadows inside of a fan count, black surroundings and the corners beside a sweep do not.
    """
    lit = (volume > _DARK).to(torch.uint8)
    return field_of_view(lit) & field_of_view(lit.movedim(0, -1)).movedim(-1, 0)


def fill_empty(volume: Tensor, content: Tensor) -> Tensor:
    """The volume (D, H, W) as it is where there is `content` (bool), elsewhere a smooth continuation of that."""
    values, weights = (volume * content)[None, None], content.to(volume.dtype)[None, None]
    finest = [(values, weights)]
    while max(values.shape[2:]) > 1:
        block = [min(2, n) for n in values.shape[2:]]
        values, weights = (F.avg_pool3d(x, block, ceil_mode=True) for x in (values, weights))
        finest.append((values, weights))
    filled = values / weights.clamp_min(1e-6)
    for values, weights in reversed(finest[:-1]):
        around = F.interpolate(filled, values.shape[2:], mode="trilinear", align_corners=False)
        filled = values + around * (1 - weights)  # values are means over the block, empty voxels counted as 0
    return filled[0, 0]
