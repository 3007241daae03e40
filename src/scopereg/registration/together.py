"""Together: frames of one rigid body located as one, a single pose from what all of them show.

Where the body may lie is told by features of all frames at once (`registration.body_search`). Only where nothing of
that is sure does each frame go by itself through the network, and tells where the body would lie then. Hypotheses are
scored on all frames, the best go down the summed likeness of all, and from there the network looks at every frame. What
it finds, and how much each cell says, goes into one weighted fit of the body. Frames that are not like the volume where
the others put them are left out.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from scopereg.devices import resolve_device
from scopereg.errors import ScopeRegError
from scopereg.geometry import Pose
from scopereg.images import Frame, check_content
from scopereg.progress import timed
from scopereg.registration.body import BODY, Body
from scopereg.registration.body_likeness import BodyOnGround, Ground
from scopereg.registration.body_looks import looks_from
from scopereg.registration.body_search import likely_poses, spread_rows
from scopereg.registration.body_verdict import judge_frames, judge_whole
from scopereg.registration.fallback import PreparedFallback
from scopereg.registration.grey import WIDE, Grey
from scopereg.registration.learned import LearnedVolume
from scopereg.registration.network import PreparedNetwork, network_of
from scopereg.registration.prepared import Found, Prepared
from scopereg.registration.refine import PreparedRefinement
from scopereg.registration.result import Result, apart_mm
from scopereg.registration.working_grid import isotropic

if TYPE_CHECKING:
    from scopereg.registration.locator import Locator

_SAME_VOXELS = 3.0  # nearer than that, hypotheses are one
_APART_VOXELS = 8.0  # of likely poses, of which many are one place
_LIKELY = 6  # of these that go down
_MOST, _KEPT = 24, 3  # hypotheses that are compared, and those that go down all levels
_SCOUTS = 7  # frames that hypotheses are compared by
_COARSE = 2  # levels of the first descent
_LOOKS = 2  # times that the network looks again from where all frames lie together
_SETTLED_VOXELS = 0.3  # motion of the body by a look after which there is no other
_ANY_PLACE = 0.6  # likeness of learned features at any place; of grey values there is none
_SURE = 0.15  # likeness above that, of a place that need not be sought by each frame itself
_LEFT_OUT = 0.4  # of the others' likeness above that, below which a frame does not count


@dataclass(frozen=True)
class Together:
    """What was found of frames that are one rigid body."""

    whole: Result  # BodyToVolume, with the verdict on all
    frames: tuple[Result, ...]  # ImageToVolume of each as the body has it, with the verdict on it
    alone: tuple[Found, ...]  # what the network finds of each frame by itself, from the start or where the body is
    apart_mm: tuple[float, ...]  # from there to where the body has it; NaN where it was not found by itself
    counts: tuple[bool, ...]  # whether a frame had a part in the pose

    @property
    def pose(self) -> Pose:
        """`BodyToVolume`, LPS mm."""
        return self.whole.pose

    @property
    def ok(self) -> bool | None:
        """Whether the pose is reliable; None where it was not judged."""
        return self.whole.ok

    def __str__(self) -> str:
        return f"{len(self.frames)} frames together: {self.whole}"


def locate_together(locator: Locator, body: Body, start: Pose | None) -> Together:
    """Frames of a body in the volume of a locator; around `start` (`BodyToVolume`), or wherever its method looks."""
    begin = time.perf_counter()
    body.check_room(locator.volume)
    unusable = {row: error for row, frame in enumerate(body.frames) if (error := _without_content(frame)) is not None}
    usable = [row for row in range(len(body)) if row not in unusable]
    if len(usable) < 2:
        raise next(iter(unusable.values()))
    ready = body.subset(usable)
    ready = Body(tuple(frame.for_registration() for frame in ready.frames), ready.image_to_body)
    search = _Search(locator, ready, start)
    with timed(f"brought {len(usable)} frames together"):
        search.run()
    alone = {**unusable, **{usable[row]: one for row, one in search.alone.items()}}
    return _finished(locator, body, usable, [alone[row] for row in range(len(body))], search, begin)


def _without_content(frame: Frame) -> ScopeRegError | None:
    try:
        check_content(frame)
    except ScopeRegError as error:
        return error
    return None


def _found_alone(locator: Locator, body: Body, start: Pose | None) -> list[Found]:
    """Each frame by itself: other ways to find it take long, and the others may know better."""
    near = copy.copy(locator)
    near.prepared = without_fallback(locator.prepared)
    starts = [None if start is None else body.pose_of(row, start) for row in range(len(body))]
    return near.locate_all(body.frames, starts)


def without_fallback(prepared: Prepared) -> Prepared:
    """A method without what it tries where its pose is not ok."""
    while isinstance(prepared, PreparedFallback):
        prepared = prepared.before
    return prepared


def _hypotheses(body: Body, found: Sequence[Found], start: Pose | None, *, needed: bool) -> list[Pose]:
    """Where the body lies by each frame and its other places, those first that a frame is surest of; and the start.

    Where they are `needed`, and there are none, that is an error.
    """
    told = [(row, one) for row, one in enumerate(found) if isinstance(one, Result)]
    told.sort(key=lambda pair: -(pair[1].confidence if math.isfinite(pair[1].confidence) else 0.0))
    first = [body.told_by(row, one.pose) for row, one in told]
    others = [body.told_by(row, place.pose) for row, one in told for place in one.alternatives]
    agreed = [body.fit(told, pose) for pose in first]
    every = [*first, *agreed, *([] if start is None else [start]), *others]
    if needed and not every:
        raise next(one for one in found if isinstance(one, ScopeRegError))
    return every


class _Search:
    """The pose of a body, better and better; frames have grey values in [0, 1]."""

    def __init__(self, locator: Locator, body: Body, start: Pose | None) -> None:
        self.locator, self.body, self.start = locator, body, start
        self.prepared = without_fallback(locator.prepared)
        self.network = network_of(self.prepared)
        self.ground = _ground_of(locator, self.prepared, self.network, body)
        self.on_ground = BodyOnGround(body, self.ground)
        few = spread_rows(len(body), _SCOUTS)
        self.scouts = self.on_ground if len(few) == len(body) else BodyOnGround(body.subset(few), self.ground)
        self.weights = torch.ones(len(body))
        self.alone: dict[int, Found] = {}  # what each frame tells by itself
        self.looks: dict[int, Result] = {}  # what the network found from where the body is, by frame
        self.rivals: list[tuple[float, Pose]] = []  # other places, the best first
        self.pose = Pose.identity(BODY, locator.volume.frame_of_reference)

    @property
    def spacing_mm(self) -> float:
        return self.ground.volume.isotropic_spacing_mm

    def run(self) -> None:
        self._find()
        self._weigh()
        self.pose = self.on_ground.descend(self.pose, self.weights)
        for _ in range(_LOOKS if self.network is not None else 0):
            before = self.pose
            self._look_again()
            if self.apart_mm(before, self.pose) < _SETTLED_VOXELS * self.spacing_mm:
                break
        self._weigh()
        self.pose = self._refined(self.pose)

    def _find(self) -> None:
        """A first pose: by all frames at once or, where that is not sure, by what each of them tells as well."""
        likely: list[Pose] = []
        if self.network is not None and not self.network.search.any_angle:
            found = likely_poses(self.on_ground, self.start, self.network.search)
            likely = self._distinct(found, _APART_VOXELS)[:_LIKELY]
        if likely:
            self.pose, *_ = likely = self._best_of(likely)
        if likely and self._score(self.pose) >= _SURE:
            return
        self.alone = dict(enumerate(_found_alone(self.locator, self.body, self.start)))
        told = _hypotheses(self.body, list(self.alone.values()), self.start, needed=not likely)
        self.pose, *_ = self._best_of([*likely, *told])

    def apart_mm(self, one: Pose, other: Pose) -> float:
        """Mean distance of the frames under two poses of the body."""
        return sum(self.body.apart_mm(row, one, other) for row in range(len(self.body))) / len(self.body)

    def _score(self, pose: Pose) -> float:
        return _worth(self.scouts.likeness(pose), self.ground)

    def _best_of(self, hypotheses: Sequence[Pose]) -> list[Pose]:
        """The hypotheses that are most like the volume once all frames have gone down, the best first."""
        alike = torch.ones(len(self.scouts.body))
        coarse = [self.scouts.descend(pose, alike, levels=_COARSE) for pose in self._distinct(hypotheses)]
        ordered = sorted(coarse, key=self._score, reverse=True)
        fine = [self.scouts.descend(pose, alike) for pose in self._distinct(ordered)[:_KEPT]]
        scored = sorted(((self._score(pose), pose) for pose in fine), key=lambda pair: pair[0], reverse=True)
        self.rivals = [pair for pair in scored[1:] if self._elsewhere(pair[1], scored[0][1])]
        return [pose for _, pose in scored]

    def _distinct(self, poses: Sequence[Pose], voxels: float = _SAME_VOXELS) -> list[Pose]:
        kept: list[Pose] = []
        for pose in poses:
            if all(self._elsewhere(pose, other, voxels) for other in kept) and len(kept) < _MOST:
                kept.append(pose)
        return kept

    def _elsewhere(self, one: Pose, other: Pose, voxels: float = _SAME_VOXELS) -> bool:
        return self.apart_mm(one, other) > voxels * self.spacing_mm

    def _weigh(self) -> None:
        """Frames that are less like the volume than the others count less, and not at all from some point on."""
        above = _above_any(self.on_ground.likeness(self.pose), self.ground)
        usual = float(above[above > 0].median()) if bool((above > 0).any()) else 0.0
        if usual <= 0:
            self.weights = torch.ones(len(self.body))
            return
        share = (above / usual).clamp_max(1.0)
        self.weights = torch.where(share >= _LEFT_OUT, share.square(), 0.0)

    def _look_again(self) -> None:
        """The network once more at every frame, from where the body is; kept where all frames are more alike then."""
        assert self.network is not None
        poses = [self.body.pose_of(row, self.pose) for row in range(len(self.body))]
        found = looks_from(self.network, self.body, poses)
        self.looks = {row: one for row, one in found.items() if isinstance(one, Result)}
        self.alone = self.alone or found
        if not self.looks:
            return
        told = [pair for pair in self.looks.items() if self.weights[pair[0]] > 0]
        agreed = self.body.fit(told or list(self.looks.items()), self.pose)
        tried = self.on_ground.descend(agreed, self.weights)
        likeness = (_worth(self.on_ground.likeness(pose), self.ground) for pose in (tried, self.pose))
        if next(likeness) > next(likeness):
            self.pose = tried

    def _refined(self, pose: Pose) -> Pose:
        """By the likeness of the method's own refinement, where it has one."""
        if not isinstance(self.prepared, PreparedRefinement):
            return pose
        refiner = self.prepared.refiner
        ground = Ground(self.prepared.volume, refiner.prepared, refiner.trust, refiner.device)
        return BodyOnGround(self.body, ground).descend(pose, self.weights)


def _above_any(likeness: torch.Tensor, ground: Ground) -> torch.Tensor:
    """By how much frames are more alike than they would be anywhere; a frame outside of the volume says nothing."""
    return (likeness - (_ANY_PLACE if ground.fine is not None else 0.0)).clamp_min(0.0)


def _worth(likeness: torch.Tensor, ground: Ground) -> float:
    """How good a place of the body is."""
    return float(_above_any(likeness, ground).mean())


def _ground_of(locator: Locator, prepared: Prepared, network: PreparedNetwork | None, body: Body) -> Ground:
    """The learned features of the network's fine stage; else grey values, as a refinement prepared them or anew."""
    largest = max(body.frames, key=lambda frame: math.prod(frame.extent_mm))
    if network is not None and network.model.fine is not None:
        ready = network.volume_for(largest)
        fine = ready.fine
        assert fine is not None
        return Ground(ready.volume, LearnedVolume(fine.stage, fine.encoded, fine.section), 0.0, fine.device, fine)
    if isinstance(prepared, PreparedRefinement):
        refiner = prepared.refiner
        return Ground(prepared.volume, refiner.prepared, refiner.trust, refiner.device)
    device = resolve_device("cpu")
    volume, _ = isotropic(locator.volume.for_registration())
    grey = Grey(WIDE)
    return Ground(volume, grey.prepare(volume.array.to(device), volume.known), 1 / grey.spread**2, device)


def _finished(
    locator: Locator, body: Body, usable: Sequence[int], alone: Sequence[Found], search: _Search, begin: float
) -> Together:
    """Verdicts, similarity, and the words that go with them."""
    place = {row: number for number, row in enumerate(usable)}
    counts = [row in place and float(search.weights[place[row]]) > 0 for row in range(len(body))]
    poses = [body.pose_of(row, search.pose) for row in range(len(body))]
    apart = [
        apart_mm(frame, one.pose if isinstance(one, Result) else None, pose)
        for frame, one, pose in zip(body.frames, alone, poses, strict=True)
    ]
    looks = [search.looks.get(place[row]) if row in place else None for row in range(len(body))]
    frames = judge_frames(locator, search.prepared, body, poses, looks, [row in place for row in range(len(body))])
    elapsed_ms = (time.perf_counter() - begin) * 1e3
    alike = [one.similarity for one, used in zip(frames, counts, strict=True) if used and math.isfinite(one.similarity)]
    whole = Result(
        search.pose,
        f"{locator.method.name}, {len(body)} frames together",
        elapsed_ms,
        sum(alike) / len(alike) if alike else math.nan,
        notes=tuple(_notes(body, counts, place)),
        volume=locator.volume,
    )
    together = Together(whole, tuple(frames), tuple(alone), tuple(apart), tuple(counts))
    return replace(together, whole=judge_whole(together, locator, search.rivals))


def _notes(body: Body, counts: Sequence[bool], usable: dict[int, int]) -> Iterator[str]:
    yield f"{len(body)} frames up to {body.extent_mm:.0f} mm apart are taken for one rigid body"
    out = [str(row) for row, used in enumerate(counts) if not used]
    if out:
        plural = "s" * (len(out) != 1)
        yield f"frame{plural} {', '.join(out)} had no part in the pose: not like the volume where the others put them"
