"""Diagnosis: what is wrong with a frame that is not ok, found by trying what people get wrong.

First the size of its pixels: learned features tell a step in it as they tell one of the pose. Where the frame still
fits badly, alternatives of it (mirrored, turned, inverted, of much larger or smaller pixels) go through the network in
a few batches. One is named only where it is clearly more alike than the frame as it is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple
from weakref import WeakKeyDictionary

import torch
import torch.nn.functional as F
from torch import Tensor

from scopereg.errors import ScopeRegError
from scopereg.geometry import Pose, VoxelPoses
from scopereg.images import Frame, Volume, pose_to_voxels, seen_from
from scopereg.progress import timed
from scopereg.registration.fine import PreparedFine
from scopereg.registration.grey import blur
from scopereg.registration.learned import make_learned
from scopereg.registration.locator import Locator
from scopereg.registration.network import PreparedNetwork, network_of
from scopereg.registration.result import Result
from scopereg.registration.session import Session
from scopereg.registration.working_grid import ENOUGH_VOXELS, FieldOfView, WorkingGrid, frame_on_grid, middle
from scopereg.threads import watched

MOST_FRAMES = 3  # of a batch that are diagnosed
_TOGETHER = 7  # frames through the network at once: more of them take more memory, not less time
_SIZES = (0.7, 0.83, 1.2, 1.45)  # of pixels, sought by the network; what lies between is fitted
_FITS, _ROUNDS, _COARSELY = 2, 10, 3  # sizes that a fit begins at, its rounds at most, and those of coarse features
_SETTLED = 0.003  # change of a size in the last round
_SWAP = 1.03  # pixels less square than that may have their sides swapped
_SIZE = 0.03  # relative difference of sizes that is worth a word

# Likeness as `PreparedFine.likeness` has it, about 0.95 at the right place and 0.6 at any other.
_SURE = 0.85  # of a frame that fits so well that nothing else is tried
_LEAST = 0.76  # of an alternative that is named
_MARGIN, _SIZE_MARGIN = 0.08, 0.02  # by which it is above that of the frame as it is
_OTHERS = 0.05  # by which it is above that of all alternatives of other kinds
_NOTHING = 0.74  # below which nothing fits
_OUTSIDE = 0.25  # share of the frame that lies outside of the volume and is worth a word
_COVERED = 0.1  # share of the picture that an overlay covers and is worth a word
_DARK, _LIT_SHARE = 0.04, 0.01  # of a frame that is nearly black: brightness that so few pixels reach
_GRAIN, _STRUCTURE = 3.0, 0.15  # pixels of a smoothing, and the share of the spread that structure keeps under it


@dataclass(frozen=True)
class Alternative:
    """What the frame may be instead: its pixels at other places, or inverted."""

    name: str
    matrix: tuple[float, float, float, float] = (1.0, 0.0, 0.0, 1.0)  # from its places to those of the frame, x, y
    inverted: bool = False

    @classmethod
    def sized(cls, across: float, down: float) -> Alternative:
        """Pixels so many times as wide and as high."""
        return cls("size", (1 / across, 0.0, 0.0, 1 / down))

    @property
    def across(self) -> float:
        return 1 / self.matrix[0]

    @property
    def down(self) -> float:
        return 1 / self.matrix[3]

    def words(self, frame: Frame) -> str:
        """As a hint."""
        if self.name != "size":
            return f"fits better {_WORDS[self.name]}"
        x, y = frame.spacing_mm
        across, down = self.across, self.down
        if _alike(across, down):
            size = math.sqrt(across * down)
            return f"fits better with pixels {size:.2f} times as large: {x * size:.3g} mm instead of {x:.3g} mm"
        if _alike(across, y / x) and _alike(down, x / y):
            return f"fits better with the width and height of pixels swapped: {y:.3g} x {x:.3g} mm"
        if not (_alike(across, 1) or _alike(down, 1)):
            sizes = f"{x * across:.3g} x {y * down:.3g} mm instead of {x:.3g} x {y:.3g} mm"
            return f"fits better with pixels {across:.2f} times as wide and {down:.2f} times as high: {sizes}"
        side, factor, own = ("wide", across, x) if _alike(down, 1) else ("high", down, y)
        return f"fits better with pixels {factor:.2f} times as {side}: {own * factor:.3g} mm instead of {own:.3g} mm"


def _alike(one: float, other: float) -> bool:
    """Two sizes that nobody needs to tell apart."""
    return abs(math.log(one / other)) <= _SIZE


_WORDS = {
    "mirrored": "mirrored left to right",
    "upset": "mirrored top to bottom",
    "half turn": "turned by 180 degrees",
    "right turn": "turned by 90 degrees to the right",
    "left turn": "turned by 90 degrees to the left",
    "inverted": "with black and white swapped",
}
_MADE = (
    Alternative("mirrored", (-1, 0, 0, 1)),
    Alternative("upset", (1, 0, 0, -1)),
    Alternative("half turn", (-1, 0, 0, -1)),
    Alternative("right turn", (0, 1, -1, 0)),
    Alternative("left turn", (0, -1, 1, 0)),
    Alternative("inverted", inverted=True),
)
AS_IT_IS = Alternative("as it is")


def alternatives_of(frame: Frame) -> tuple[Alternative, ...]:
    """Those that the network looks for."""
    x, y = frame.spacing_mm
    swapped = [Alternative.sized(y / x, x / y)] if max(x, y) > _SWAP * min(x, y) else []
    return (*_MADE, *swapped, *(Alternative.sized(size, size) for size in _SIZES))


class Tried(NamedTuple):
    """An alternative, and how alike frame and volume are with it."""

    alternative: Alternative
    likeness: float


def with_hints(locator: Locator, frame: Frame, result: Result, start: Pose | None = None) -> Result:
    """The result with what is wrong, where it is not ok."""
    return result if result.ok or result.hints else replace(result, hints=diagnose(locator, frame, result, start))


def diagnose(locator: Locator, frame: Frame, result: Result, start: Pose | None = None) -> tuple[str, ...]:
    """What is wrong with a frame whose pose is not ok, in words; nothing for one that is, or where nothing is clear.

    Alternatives are sought where the frame was: around its start, or the middle of the volume.
    """
    if result.ok:
        return ()
    try:
        with timed("tried what may be wrong"), watched():
            return (*_diagnosed(locator, frame, result, start), *_covered_words(frame))
    except ScopeRegError:  # a place where the volume has nothing to compare with
        return ()


def _diagnosed(locator: Locator, frame: Frame, result: Result, start: Pose | None) -> tuple[str, ...]:
    ready = frame.for_registration()
    if words := without_structure(ready):
        return (words,)
    network = network_of(locator.prepared)
    if network is None:
        return _outside_words(frame, locator.volume, result.pose)
    own, *others = try_alternatives(network, ready, result, start)
    best = clearest(own, others)
    if best is not None:
        return (best.words(frame),)
    if outside := _outside_words(frame, locator.volume, result.pose):
        return outside
    if max(tried.likeness for tried in (own, *others)) < _NOTHING:
        return ("nothing fits: another volume, a place that was not looked at, or a picture with much drawn over it",)
    return ()


def fitting_pixels(
    locator: Locator, frame: Frame, result: Result, start: Pose | None = None
) -> tuple[float, float] | None:
    """The size of pixels in mm with which a frame fits clearly better than with its own; None where there is none.

    It is sought as `diagnose` does, whatever the verdict; takes a second or some.
    """
    ready, network = frame.for_registration(), network_of(locator.prepared)
    if network is None or without_structure(ready):
        return None
    with timed("measured the size of pixels"), watched():
        own, *others = try_alternatives(network, ready, result, start)
    best = clearest(own, others)
    if best is None or best.name != "size":
        return None
    x, y = frame.spacing_mm
    return x * best.across, y * best.down


def clearest(own: Tried, others: Sequence[Tried]) -> Alternative | None:
    """The alternative that is clearly more alike than the frame as it is, and than those of other kinds."""
    best = max(others, key=lambda tried: tried.likeness, default=own)
    kind = best.alternative.name
    margin = _SIZE_MARGIN if kind == "size" else _MARGIN
    rest = [tried.likeness for tried in others if tried.alternative.name != kind]
    clear = best.likeness >= max(_LEAST, own.likeness + margin, max(rest, default=0.0) + _OTHERS)
    return best.alternative if clear else None


def try_alternatives(network: PreparedNetwork, frame: Frame, result: Result, start: Pose | None = None) -> list[Tried]:
    """How alike the frame is as it is, first, and under each alternative. Grey values are in [0, 1].

    Where it fits well as it is, or with pixels of another size, nothing else is tried.
    """
    place = _place_of(network, frame, start)
    picture = _Pictures(frame, place.window)
    here = _settled(place, picture, (AS_IT_IS,), _in_voxels(result.pose, picture.grid, place.window))
    sizes = _fitted(place, picture, here)
    if max(found.tried.likeness for found in (*here, *sizes)) >= _SURE:
        return [found.tried for found in (*here, *sizes)]
    wanted = (AS_IT_IS, *alternatives_of(frame))
    seen = _settled(place, picture, wanted, _located(place.session, picture, wanted))
    starts = sorted((one for one in seen if one.has_size), key=lambda one: one.tried.likeness, reverse=True)
    sizes += _fitted(place, picture, starts[:_FITS])
    own = max(here[0].tried, seen[0].tried, key=lambda tried: tried.likeness)
    return [own, *(found.tried for found in (*sizes, *seen[1:]))]


class _Found(NamedTuple):
    """An alternative where it fits best."""

    tried: Tried
    pose: VoxelPoses  # of one

    @property
    def has_size(self) -> bool:
        return self.tried.alternative.name in (AS_IT_IS.name, "size")


class _Place(NamedTuple):
    """The part of a volume that is looked at, coarse where the network knows many voxel sizes."""

    window: Volume
    session: Session
    fine: PreparedFine  # of the network, or that of the package


def _place_of(network: PreparedNetwork, frame: Frame, led: Pose | None) -> _Place:
    """The middle of the volume, or its part around a start."""
    sizes, field = network.model.sizes, FieldOfView.of(frame)
    key = (led, None if sizes is None else WorkingGrid.coarse(field, network.volume_for(frame).volume, sizes))
    known = _PLACES.get(network)
    if known is None or known[0] != key:  # frames of a batch are alike: the latest is enough
        _PLACES[network] = known = (key, _prepared(network, frame, led, key[1]))
    return known[1]


_PLACES: WeakKeyDictionary[PreparedNetwork, tuple[object, _Place]] = WeakKeyDictionary()


def _prepared(network: PreparedNetwork, frame: Frame, led: Pose | None, grid: WorkingGrid | None) -> _Place:
    ready = network.volume_for(frame)
    window, session = ready.window, ready.session
    if grid is not None:
        volume, _ = grid.place(ready.volume)
        window = middle(volume, grid.window) if led is None else _around(volume, frame, led, grid.window)
        session = network.model.prepare(window, recorded=False)
    elif led is not None:
        window = _around(ready.volume, frame, led, window.shape)
        session = network.model.prepare(window, recorded=False)
    if session.fine is not None:
        return _Place(window, session, session.fine)
    device = network.model.device
    stage = make_learned(device, far=False).stage
    voxels = window.for_registration().array.to(device)
    return _Place(window, session, PreparedFine(stage, voxels, section=window.section_voxels))


def _around(volume: Volume, frame: Frame, start: Pose, shape: tuple[int, int, int]) -> Volume:
    plane = Volume(torch.zeros(shape), volume.isotropic_spacing_mm)
    return seen_from(volume, *pose_to_voxels(start, frame_on_grid(frame, plane), volume), shape)


def _in_voxels(pose: Pose, grid: Frame, window: Volume) -> VoxelPoses:
    where = pose_to_voxels(pose, grid, window)
    return VoxelPoses(where.rotation[None].float(), where.translation[None].float())


class _Pictures:
    """The frame on the grid of a volume, and how it looks under alternatives."""

    def __init__(self, frame: Frame, window: Volume) -> None:
        whole = frame.to("cpu").resampled(window.isotropic_spacing_mm)
        self.tissue, self.seen = whole.tissue, whole.seen.float()
        self.grid = frame_on_grid(frame, window)
        self.shape = self.grid.shape

    def of(self, wanted: Sequence[Alternative]) -> tuple[Tensor, Tensor]:
        """Images (B, H, W), and what of them is seen."""
        height, width = self.tissue.shape
        y, x = (torch.arange(n, dtype=torch.float32) - (n - 1) / 2 for n in self.shape)
        places = torch.stack(torch.meshgrid(y, x, indexing="ij")[::-1], -1)  # (H, W, 2)
        matrices = torch.tensor([one.matrix for one in wanted]).reshape(-1, 1, 1, 2, 2)
        halves = torch.tensor([max((width - 1) / 2, 0.5), max((height - 1) / 2, 0.5)])
        grid = (matrices @ places.unsqueeze(-1)).squeeze(-1) / halves
        both = torch.stack([self.tissue, self.seen]).expand(len(wanted), -1, -1, -1)
        images, seen = F.grid_sample(both, grid, align_corners=True).unbind(1)
        counts = seen > 0.99
        inverted = torch.tensor([one.inverted for one in wanted])[:, None, None]
        images = torch.where(inverted, (1 - images).clamp(0, 1), images) * counts
        return images, counts


def _located(session: Session, picture: _Pictures, wanted: Sequence[Alternative]) -> VoxelPoses:
    found = [
        session.locate(picture.of(wanted[first : first + _TOGETHER])[0]).poses
        for first in range(0, len(wanted), _TOGETHER)
    ]
    return _joined(found)


def _joined(poses: Sequence[VoxelPoses]) -> VoxelPoses:
    return VoxelPoses(*(torch.cat([part.cpu() for part in parts]) for parts in zip(*poses, strict=True)))


def _settled(place: _Place, picture: _Pictures, every: Sequence[Alternative], poses: VoxelPoses) -> list[_Found]:
    """Alternatives where their features agree best, from poses near it."""
    read = place.fine.read(picture.of(every)[0].to(place.fine.device))
    there = place.fine.locate(read, VoxelPoses(*(part.to(place.fine.device) for part in poses)))
    likeness = place.fine.likeness(read, there).tolist()
    kept = VoxelPoses(*(part.cpu() for part in there))
    return [
        _Found(Tried(one, likeness[row]), VoxelPoses(*(part[row : row + 1] for part in kept)))
        for row, one in enumerate(every)
    ]


def _fitted(place: _Place, picture: _Pictures, starts: Sequence[_Found]) -> list[_Found]:
    """Pixel sizes at which the features agree best, from those of the starts; none that is nearly the frame's own."""
    if not starts:
        return []
    sizes = torch.tensor([[one.tried.alternative.across, one.tried.alternative.down] for one in starts])
    poses = _joined([one.pose for one in starts])
    for turn in range(_ROUNDS):
        every = [Alternative.sized(*row) for row in sizes.tolist()]
        read = place.fine.read(picture.of(every)[0].to(place.fine.device))
        there = place.fine.locate(read, VoxelPoses(*(part.to(place.fine.device) for part in poses)))
        stretched = place.fine.stretched(read, there, coarsely=turn < _COARSELY)
        poses, sizes = stretched.poses, sizes * stretched.factors.cpu()
        if turn >= _COARSELY and float((stretched.factors - 1).abs().max()) < _SETTLED:
            break
    found = _settled(place, picture, [Alternative.sized(*row) for row in sizes.tolist()], poses)
    return [
        one for one in found if not (_alike(one.tried.alternative.across, 1) and _alike(one.tried.alternative.down, 1))
    ]


def without_structure(frame: Frame) -> str:
    """Why nothing can be found in a frame with grey values in [0, 1]; empty where it shows something."""
    values = frame.tissue[frame.seen]
    if not values.numel() or float((values > _DARK).float().sum()) < _LIT_SHARE * frame.array.numel():
        return "the frame is nearly black: check gain, contact and what was exported"
    return "the frame shows no structure: noise, gel or air" if structure_share(frame) < _STRUCTURE else ""


def structure_share(frame: Frame) -> float:
    """Of the spread of grey values about their surroundings, what is left when speckle and noise are smoothed away."""
    coarse = frame.to("cpu").resampled(max(FieldOfView.of(frame).longer_mm / ENOUGH_VOXELS, min(frame.spacing_mm)))
    seen = coarse.seen[None].float()
    tissue, wide = coarse.tissue[None] * seen, 4 * _GRAIN
    apart = (tissue - blur(tissue, wide) / blur(seen, wide).clamp_min(1e-3)) * seen
    kept = blur(apart, _GRAIN) / blur(seen, _GRAIN).clamp_min(1e-3)
    return float((kept.square() * seen).sum() / apart.square().sum().clamp_min(1e-9))


def _covered_words(frame: Frame) -> tuple[str, ...]:
    share = frame.masked_share
    return (f"an overlay covers {share:.0%} of the picture, left out",) if share >= _COVERED else ()


def _outside_words(frame: Frame, volume: Volume, pose: Pose) -> tuple[str, ...]:
    share = share_outside(frame, volume, pose)
    return (f"{share:.0%} of the frame lies outside of the volume at the pose found",) if share >= _OUTSIDE else ()


def share_outside(frame: Frame, volume: Volume, pose: Pose) -> float:
    """Of what a frame shows, at a pose."""
    rows, columns = torch.nonzero(frame.seen, as_tuple=True)
    if not len(rows):
        return 0.0
    points = torch.stack([columns * frame.spacing_mm[0], rows * frame.spacing_mm[1], 0 * rows], 1).double().numpy()
    points[:, :2] += frame.origin_mm
    there = (pose.apply(points[::7]) - volume.centre_mm) @ volume.direction
    half = [max(n * step, step) / 2 for n, step in zip(volume.size, volume.spacing_mm, strict=True)]
    return float((abs(there) > half).any(1).mean())
