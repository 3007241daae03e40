"""Search: where a network looks beyond the offsets and the volumes that it was trained for.

A network finds frames around the middle of what it is given. One that makes several passes may begin anywhere: it
decodes the encoded volume as seen from a start, and goes on from where that leads (`starts`). Any network can be given
the volume as seen from another pose and finds the frames around that (`Windows`), in volumes much larger than it knows.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from scopereg.errors import ScopeRegError
from scopereg.geometry import Pose, VoxelPoses, compose_poses, resample_volume, rotation_from_euler_deg
from scopereg.images import Frame, Volume, pose_from_voxels, pose_to_voxels, seen_from
from scopereg.networks.encoders import STRIDE
from scopereg.networks.streaming import EncodedVolume
from scopereg.registration.grey import similarity_at
from scopereg.registration.result import RegistrationError, Result, apart_mm
from scopereg.registration.working_grid import MANY_VOXELS, frame_on_grid

if TYPE_CHECKING:
    from scopereg.registration.model import Registrar

UNLIKE = 1.5  # times as large or small as what the network was trained on: no longer what it knows
_LEAST_PART = 96  # voxels across a part of an encoded volume: smaller ones are little else than border
_TOGETHER = 8  # windows that the network is given at once
_INSIDE = 0.9  # share of a window that must lie in the volume, or the network sees what no calibration saw


@dataclass(frozen=True)
class WideOptions:
    """How far and how long to look."""

    shift_voxels: float = 12.0
    """Of a start that is shifted: a little more than what networks are trained for."""
    turn_deg: float = 12.0
    """Of a start that is turned."""
    step_voxels: float = 20.0
    """Between starts in a large volume, at most: networks find what lies within 10 of them."""
    looks: int = 8
    """Decoding passes from each start; three to five are enough within the offsets of the training."""
    kept: int = 3
    """Places that are given or refined: the one that is most like the frame need not be the right one."""
    again: int = 12
    """Places that are looked at from there, by a network of one pass or in a large volume."""
    kept_windows: int = 6
    """As `kept`, then: it takes more of them where the network is led about by single passes."""
    apart_mm: float = 1.0
    """Of two places that are not the same."""


def starts(options: WideOptions, room_voxels: tuple[float, float, float] = (0.0, 0.0, 0.0)) -> VoxelPoses:
    """The middle, shifts and turns: thirteen poses (13, ...) in centred voxels; then those all over the room (x, y, z).

    Room is how far starts may be from the middle of a volume that is larger than those of the training.
    """
    axes = torch.cat([torch.eye(3), -torch.eye(3)])
    still = torch.zeros(6, 3)
    shifts = torch.cat([torch.zeros(1, 3), options.shift_voxels * axes, still])
    turns = torch.cat([torch.zeros(1, 3), still, options.turn_deg * axes])
    spread = [_spread(room, options.step_voxels) for room in room_voxels]
    farther = torch.tensor([place for place in itertools.product(*spread) if any(place)]).reshape(-1, 3)
    shifts, turns = torch.cat([shifts, farther]), torch.cat([turns, torch.zeros_like(farther)])
    return VoxelPoses(rotation_from_euler_deg(turns), shifts)


def _spread(room: float, step: float) -> list[float]:
    """Evenly from one end to the other, the middle among them; a small room needs none but that."""
    count = math.ceil(room / step) if room > step / 3 else 0
    return torch.linspace(-room, room, 2 * count + 1).tolist() if count else [0.0]


class Windows:
    """A volume for a network that looks at parts of it; poses are those of the whole."""

    def __init__(
        self,
        model: Registrar,
        volume: Volume,
        *,
        shape: tuple[int, int, int] | None = None,
        encoded: EncodedVolume | None = None,
    ) -> None:
        """The volume is isotropic, with values in [0, 1].

        Windows have `shape` (D, H, W), or what the facts of the model say, see `window_shape`. `encoded` is the volume
        as the network prepared it, where somebody has that already.
        """
        self.model, self.volume = model, volume.to(model.device)
        self._given = encoded
        self.shape = shape or window_shape(model, volume)
        # What tells the size of a frame that the network is given.
        self._plane = Volume(torch.zeros(self.shape), volume.isotropic_spacing_mm)

    @property
    def covers(self) -> bool:
        """Whether a window is as large as the volume."""
        return self.shape == self.volume.shape

    @property
    def count(self) -> float:
        """How many windows the volume would make."""
        return math.prod(self.volume.shape) / math.prod(self.shape)

    @property
    def room_voxels(self) -> tuple[float, float, float]:
        """How far, in x, y, z, a window that lies in the volume can be from its middle."""
        depth, height, width = (max(n - own, 0) / 2 for n, own in zip(self.volume.shape, self.shape, strict=True))
        return width, height, depth

    def register(self, frame: Frame, start: Pose) -> Result:
        """The frame in the window around a start, with a verdict as if that were the volume.

        Where the window hangs out of the volume that is another matter: then offsets count from the middle of the
        volume, as ever.
        """
        begin = time.perf_counter()
        grid = frame_on_grid(frame, self._plane)
        where = pose_to_voxels(start, grid, self.volume)
        window = seen_from(self.volume, *where, self.shape)
        try:
            with self.model.prepare(window, recorded=False) as session:
                found = session.register(frame)
        except ScopeRegError as error:
            raise RegistrationError(
                f"{error.what} in the part of the volume around the start", where="start", fix="start elsewhere"
            ) from error
        if self._inside(where) >= _INSIDE:
            found = replace(found, seen_from=start)
        elif self.model.calibration is not None:
            placed = pose_to_voxels(found.pose, grid, self.volume)
            found = self.model.calibration.limited(found, *placed)
        return replace(found, time_ms=(time.perf_counter() - begin) * 1e3, volume=self.volume)

    @torch.inference_mode()
    def search(self, frame: Frame, options: WideOptions | None = None) -> Result:
        """The frame from starts all over the volume; takes some time.

        The place where the volume is most like the frame; its `alternatives` are others, the most alike first.
        """
        begin, options = time.perf_counter(), options or WideOptions()
        found = list(self._places(frame, options))
        if not found:
            raise RegistrationError(
                "nothing of the volume is like the frame", where="wide=", fix="check that they show the same anatomy"
            )
        found.sort(key=lambda result: result.similarity if math.isfinite(result.similarity) else -1.0, reverse=True)
        time_ms = (time.perf_counter() - begin) * 1e3
        best, *others = (replace(result, time_ms=time_ms) for result in found)
        return replace(best, alternatives=tuple(others))

    def _places(self, frame: Frame, options: WideOptions) -> Iterator[Result]:
        """The best places that lie apart, each looked at once more from there."""
        grid = frame_on_grid(frame, self._plane)
        image = grid.for_registration().array.to(self.model.device)
        poses, alike = _best(*self._first_look(image, options), options.again)
        after, more_alike = self._look(image, poses)
        better = more_alike > alike
        poses = VoxelPoses(
            torch.where(better[:, None, None], after.rotation, poses.rotation),
            torch.where(better[:, None], after.translation, poses.translation),
        )
        poses, _ = _best(poses, torch.where(better, more_alike, alike), options.again)
        kept: list[Pose] = []
        for rotation, translation in zip(*poses, strict=True):
            pose = pose_from_voxels(rotation, translation, grid, self.volume)
            if all(apart_mm(frame, pose, other) > options.apart_mm for other in kept):
                kept.append(pose)
                yield from self._last_look(frame, pose)
            if len(kept) == options.kept_windows:
                return

    def _last_look(self, frame: Frame, pose: Pose) -> Iterator[Result]:
        try:
            yield self.register(frame, pose)
        except RegistrationError:  # the volume has nothing there
            return

    def _first_look(self, image: Tensor, options: WideOptions) -> tuple[VoxelPoses, Tensor]:
        """As `_look`, from starts all over the volume; a large one is encoded once, and looked at in parts."""
        streaming = self.model.streaming
        large = math.prod(self.volume.shape) > 1.5 * MANY_VOXELS  # too large to be encoded as a whole
        if self.covers or streaming is None or large or min(self.shape[1:]) < _LEAST_PART:
            return self._look(image, starts(options, self.room_voxels))
        encoded = self._encoded
        corners = part_corners(self.shape, self.volume.shape, streaming.depth_stride, options.step_voxels)
        found = [streaming.locate_in_parts(encoded, image, part, self.shape) for part in corners.split(2 * _TOGETHER)]
        return self._compared(image, VoxelPoses(*(torch.cat(parts) for parts in zip(*found, strict=True))))

    @cached_property
    def _encoded(self) -> EncodedVolume:
        assert self.model.streaming is not None
        return self._given or self.model.streaming.prepare(self.volume.array, table=False)

    def _look(self, image: Tensor, first: VoxelPoses) -> tuple[VoxelPoses, Tensor]:
        """Where an image (H, W) is found from each start (N, ...), and how like it the volume is there (N,)."""
        device, reference = self.model.device, self.volume.array
        first = VoxelPoses(first.rotation.to(device), first.translation.to(device))
        found = []
        for rotation, translation in zip(*(part.split(_TOGETHER) for part in first), strict=True):
            count = len(rotation)
            windows = resample_volume(reference.expand(count, -1, -1, -1), rotation, translation, shape=self.shape)
            located = self.model.network(image.expand(count, -1, -1), windows)
            inside = VoxelPoses(located.rotation.float(), located.translation.float())
            found.append(compose_poses(VoxelPoses(rotation, translation), inside))
        return self._compared(image, VoxelPoses(*(torch.cat(parts) for parts in zip(*found, strict=True))))

    def _compared(self, image: Tensor, poses: VoxelPoses) -> tuple[VoxelPoses, Tensor]:
        """Poses (N, ...), and how like an image (H, W) the volume is there (N,)."""
        alike = similarity_at(image.expand(len(poses.rotation), -1, -1), self.volume.array, poses)
        return poses, alike.nan_to_num(-1.0)

    def _inside(self, where: VoxelPoses) -> float:
        """The share of a window that lies in the volume."""
        axes = [torch.arange(n, dtype=torch.float64)[::2] - (n - 1) / 2 for n in self.shape[::-1]]
        points = torch.cartesian_prod(*axes) @ where.rotation.double().cpu().T + where.translation.double().cpu()
        half = torch.tensor(self.volume.shape[::-1], dtype=torch.float64) / 2
        return float((points.abs() <= half).all(1).float().mean())


def window_shape(model: Registrar, volume: Volume) -> tuple[int, int, int]:
    """Of the windows a network was adapted to, of its training where the volume is much larger, else of the volume."""
    trained = model.facts.get("shape") or volume.shape
    large = any(now > UNLIKE * then for now, then in zip(volume.shape, trained, strict=True))
    usual = model.facts.get("window") or (trained if large else volume.shape)
    depth, height, width = (min(now, int(then)) for now, then in zip(volume.shape, usual, strict=True))
    return depth, height, width


def part_corners(
    part: tuple[int, int, int], volume: tuple[int, int, int], depth_stride: int, step_voxels: float
) -> Tensor:
    """First cells (N, 3) in z, y, x of parts all over an encoded volume, at most so far apart."""
    axes = []
    for size, whole, stride in zip(part, volume, (depth_stride, STRIDE, STRIDE), strict=True):
        # Both are padded to the encoder's stride.
        room = (whole + -whole % STRIDE) // stride - (size + -size % STRIDE) // stride
        count = math.ceil(room / max(step_voxels // stride, 1))
        axes.append(torch.linspace(0, room, count + 1).round().long())
    return torch.cartesian_prod(*axes)


def _best(poses: VoxelPoses, alike: Tensor, count: int) -> tuple[VoxelPoses, Tensor]:
    """The most alike first."""
    order = alike.argsort(descending=True)[:count]
    return VoxelPoses(poses.rotation[order], poses.translation[order]), alike[order]
