"""Search: where in all of a volume a frame lies; windows of a volume, for networks that look at a part of it.

Where a network has a fine stage, its features tell places anywhere in the volume (`places`), and the network looks from
the best of them, which its verdict needs. Others look from many `starts` themselves.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from scopereg.errors import ScopeRegError
from scopereg.geometry import Pose, VoxelPoses, compose_poses, resample_volume, rotation_from_euler_deg
from scopereg.images import Frame, Volume, pose_from_voxels, pose_to_voxels, seen_from
from scopereg.registration.fine import PreparedFine
from scopereg.registration.grey import similarity_at
from scopereg.registration.places import Places, find_places
from scopereg.registration.result import RegistrationError, Result, apart_mm
from scopereg.registration.settings import SearchSettings
from scopereg.registration.working_grid import frame_on_grid

if TYPE_CHECKING:
    from scopereg.registration.model import Registrar
    from scopereg.registration.session import Session

UNLIKE = 1.5  # times as large or small as what the network was trained on: no longer what it knows
_LOOKED = 6  # windows that are kept, to judge refined poses
_TOGETHER = 8  # windows that the network is given at once
_INSIDE = 0.7  # share of a window that must lie in the volume: with less nobody looked at what verdicts are worth
CONTESTED = 0.05  # a place that stands out by less may be another one: what the network says of it is not enough


@dataclass(frozen=True)
class StartOptions:
    """Where networks without a fine stage look from, and how long."""

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


def starts(options: StartOptions, room_voxels: tuple[float, float, float] = (0.0, 0.0, 0.0)) -> VoxelPoses:
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


class Look(NamedTuple):
    """A place, and what the network found as it looked from there."""

    row: int  # of the places
    result: Result
    pose: VoxelPoses  # (1, ...), where it found the frame


def best_of_places(places: Places, looks: Sequence[Look], time_ms: float) -> Result:
    """The best place that the network confirms, with how far it stands out; its `alternatives` are the others."""
    if not looks:
        raise nothing_alike()
    ordered = sorted(looks, key=lambda look: (places.is_elsewhere(look.row, look.pose), look.row))
    best, *others = (
        doubted(replace(look.result, time_ms=time_ms, stands_out=places.stands_out(look.row))) for look in ordered
    )
    note = f"sought in all of the volume: at the next best place the features fit {best.stands_out:.0%} worse"
    return replace(best, alternatives=tuple(others), notes=(*best.notes, note))


def doubted(result: Result) -> Result:
    """The result of a search; not ok where another place is as good: which one is right nobody can tell."""
    if not (result.ok and result.stands_out < CONTESTED):
        return result
    return replace(result, ok=False, reason="another place in the volume fits the frame nearly as well")


def nothing_alike() -> RegistrationError:
    return RegistrationError(
        "nothing of the volume is like the frame", where="wide=", fix="check that they show the same anatomy"
    )


class Windows:
    """A volume for a network that looks at parts of it; poses are those of the whole."""

    def __init__(
        self,
        model: Registrar,
        volume: Volume,
        *,
        shape: tuple[int, int, int] | None = None,
        fine: Callable[[], PreparedFine | None] = lambda: None,
    ) -> None:
        """The volume is isotropic, with values in [0, 1].

        Windows have `shape` (D, H, W), or what the facts of the model say, see `window_shape`. `fine` gives the volume
        as the network's fine stage prepares it, when that is first needed; None where it has none.
        """
        self.model, self.volume = model, volume.to(model.device)
        self._fine = fine
        self._looked: tuple[tuple[Pose, Session], ...] = ()  # the latest windows, and from where
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
        (found,) = self.register_all([frame], start)
        return found

    def register_all(self, frames: Sequence[Frame], start: Pose) -> list[Result]:
        """As `register`, for frames that lie near one another: the window is that of the first at the start."""
        begin = time.perf_counter()
        grid = frame_on_grid(frames[0], self._plane)
        where = pose_to_voxels(start, grid, self.volume)
        try:
            session = self.model.prepare(seen_from(self.volume, *where, self.shape), recorded=False)
            found = session.register_all(frames)
        except ScopeRegError as error:
            raise RegistrationError(
                f"{error.what} in the part of the volume around the start", where="start", fix="start elsewhere"
            ) from error
        self._looked = ((start, session), *self._looked)[:_LOOKED]
        each_ms = (time.perf_counter() - begin) * 1e3 / len(frames)
        limited = (self.limited(replace(one, seen_from=start), each) for one, each in zip(found, frames, strict=True))
        return [replace(one, time_ms=each_ms, volume=self.volume) for one in limited]

    def limited(self, result: Result, frame: Frame) -> Result:
        """A result of a window with its verdict; of one that hangs out of the volume offsets count from its middle."""
        known = self.model.calibration
        if known is None or result.seen_from is None:
            return result
        grid = frame_on_grid(frame, self._plane)
        if self._inside(pose_to_voxels(result.seen_from, grid, self.volume)) >= _INSIDE:
            return result
        return known.limited(result, *pose_to_voxels(result.pose, grid, self.volume))

    def session_from(self, start: Pose, frame: Frame) -> Session:
        """The window around a start that a frame was sought in, to judge poses there as the calibration knows them."""
        for known, session in self._looked:
            if known is start:
                return session
        grid = frame_on_grid(frame, self._plane)
        window = seen_from(self.volume, *pose_to_voxels(start, grid, self.volume), self.shape)
        return self.model.prepare(window, recorded=False)

    @torch.inference_mode()
    def search(self, frame: Frame, settings: SearchSettings | None = None) -> Result:
        """The frame anywhere in the volume, without a start; its `alternatives` are other places, the best first."""
        begin, settings = time.perf_counter(), settings or SearchSettings()
        until = math.inf if settings.seconds is None else begin + settings.seconds
        grid = frame_on_grid(frame, self._plane)
        image = grid.for_network().array.to(self.model.device)
        fine = self._fine()
        if fine is None:
            found = list(self._from_starts(frame, grid, image, StartOptions()))
            if not found:
                raise nothing_alike()
            found.sort(key=lambda result: result.similarity if math.isfinite(result.similarity) else -1.0, reverse=True)
            time_ms = (time.perf_counter() - begin) * 1e3
            best, *others = (replace(result, time_ms=time_ms) for result in found)
            return replace(best, alternatives=tuple(others))
        places = find_places(fine, image, settings, until)
        looks: list[Look] = []
        for row in places.apart_from_one_another(settings.kept):
            if looks and (time.perf_counter() > until or places.stands_out(0) >= settings.stands_out):
                break
            pose = pose_from_voxels(places.poses.rotation[row], places.poses.translation[row], grid, self.volume)
            looks += [self._look_from(row, result, grid) for result in self._last_look(frame, pose)]
        return best_of_places(places, looks, (time.perf_counter() - begin) * 1e3)

    def _look_from(self, row: int, result: Result, grid: Frame) -> Look:
        where = pose_to_voxels(result.pose, grid, self.volume)
        pose = VoxelPoses(*(part[None].to(self.model.device, torch.float32) for part in where))
        return Look(row, result, pose)

    def _from_starts(self, frame: Frame, grid: Frame, image: Tensor, options: StartOptions) -> Iterator[Result]:
        """The best places that lie apart, each looked at once more from there."""
        poses, alike = _best(*self._look(image, starts(options, self.room_voxels)), options.again)
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
        poses = VoxelPoses(*(torch.cat(parts) for parts in zip(*found, strict=True)))
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


def _best(poses: VoxelPoses, alike: Tensor, count: int) -> tuple[VoxelPoses, Tensor]:
    """The most alike first."""
    order = alike.argsort(descending=True)[:count]
    return VoxelPoses(poses.rotation[order], poses.translation[order]), alike[order]
