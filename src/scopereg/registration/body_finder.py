"""BodyFinder: the pose of a body in a volume, better and better.

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
from collections.abc import Sequence
from statistics import median
from typing import TYPE_CHECKING

import torch

from scopereg.errors import ScopeRegError
from scopereg.geometry import Pose
from scopereg.registration.body import BODY, Body
from scopereg.registration.body_ground import Ground, ground_along, ground_of, turned_deg
from scopereg.registration.body_likeness import BodyOnGround
from scopereg.registration.body_looks import looks_from
from scopereg.registration.body_search import likely_poses, spread_rows
from scopereg.registration.fallback import PreparedFallback
from scopereg.registration.network import network_of
from scopereg.registration.prepared import Found, Prepared
from scopereg.registration.refine import PreparedRefinement
from scopereg.registration.result import Result, apart_mm

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
_TURNED_DEG, _FAR_TURNED_DEG = 6.0, 40.0  # of a start: from there on it is worth a look along it; and needs one
_LEFT_OUT = 0.4  # of the others' likeness above that, below which a frame does not count


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


class BodyFinder:
    """The pose of a body around a start, or wherever its method looks; frames have grey values in [0, 1]."""

    def __init__(self, locator: Locator, body: Body, start: Pose | None) -> None:
        self.locator, self.body, self.start = locator, body, start
        self.prepared = without_fallback(locator.prepared)
        self.network = network_of(self.prepared)
        self._stand_on(ground_of(locator.volume, self.prepared, self.network, body))
        self.turned_deg = 0.0  # of the start, against the axes of the volume
        if start is not None and self.on_ground.tells_places:
            assert self.network is not None
            self.turned_deg = turned_deg(self.network, body, start)
            if self.turned_deg > _FAR_TURNED_DEG:
                self._turn_ground(start)
        self.weights = torch.ones(len(body))
        self.alone: dict[int, Found] = {}  # what each frame tells by itself
        self.looks: dict[int, Result] = {}  # what the network found from where the body is, by frame
        self.rivals: list[tuple[float, Pose]] = []  # other places, the best first
        self.freed: list[Pose] = []  # where each frame goes by itself from where the body has it
        self.inside = [True] * len(body)  # whether enough of each frame lies in the volume to be compared
        self.worth = self.mirrored_worth = 0.0  # how good the place is; and that of the mirror image of the body
        self.pose = Pose.identity(BODY, locator.volume.frame_of_reference)

    @property
    def spacing_mm(self) -> float:
        return self.ground.volume.isotropic_spacing_mm

    def _stand_on(self, ground: Ground) -> None:
        """What the body is compared with; hypotheses by some of its frames."""
        self.ground = ground
        self.on_ground = BodyOnGround(self.body, ground)
        few = spread_rows(len(self.body), _SCOUTS)
        all_of_them = len(few) == len(self.body)
        self.scouts = self.on_ground if all_of_them else BodyOnGround(self.body.subset(few), ground)

    def _turn_ground(self, start: Pose) -> bool:
        """The volume seen along the body; whether there is anything of it."""
        assert self.network is not None
        along = ground_along(self.network, self.body, start)
        if along is not None:
            self._stand_on(along)
        return along is not None

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
        self._look_back()

    @property
    def counts(self) -> list[bool]:
        """Whether each frame has a part in the pose."""
        return [float(weight) > 0 for weight in self.weights]

    @property
    def freed_mm(self) -> list[float]:
        """How far each frame goes by itself from where the body has it."""
        poses = enumerate(self.freed)
        return [apart_mm(self.body.frames[row], pose, self.body.pose_of(row, self.pose)) for row, pose in poses]

    @property
    def usual_freed_mm(self) -> float:
        """The same of those that count, in the middle."""
        return median([each for each, counts in zip(self.freed_mm, self.counts, strict=True) if counts] or [0.0])

    def _look_back(self) -> None:
        """What tells whether the pose can be right, once it is found."""
        likeness = self.on_ground.likeness(self.pose)
        self.worth, self.inside = worth_of(likeness, self.ground), (likeness > 0).tolist()
        self.freed = [self._nearest(row, pose) for row, pose in enumerate(self.on_ground.freed(self.pose))]
        if self.on_ground.tells_places:
            self.mirrored_worth = self._worth_of_mirrored()

    def _nearest(self, row: int, freed: Pose) -> Pose:
        """Where a frame goes by the features of all of the volume, or as the network looked at it: what is nearer.

        Either may be led astray where a frame shows little; where the body is wrong neither stays.
        """
        ways = [freed, self.looks[row].pose] if row in self.looks else [freed]
        frame, there = self.body.frames[row], self.body.pose_of(row, self.pose)
        return min(ways, key=lambda pose: apart_mm(frame, pose, there))

    def _worth_of_mirrored(self) -> float:
        """How good the place would be if the frames lay as their mirror image."""
        mirrored = self.body.mirrored()
        on_ground = self.on_ground.of_places(mirrored)
        start = mirrored.fitted([self.body.pose_of(row, self.pose) for row in range(len(self.body))], self.pose)
        return worth_of(on_ground.likeness(on_ground.descend(start, self.weights)), self.ground)

    def find_at_once(self) -> list[Pose]:
        """Poses by features of all frames at once, the best first; the best is the pose, as far as there is one."""
        if self.network is None or self.network.search.any_angle:
            return []
        likely = self._distinct(likely_poses(self.on_ground, self.start, self.network.search), _APART_VOXELS)
        if likely:
            self.pose, *_ = likely = self._best_of(likely[:_LIKELY])
            self.worth = self._score(self.pose)
        return likely

    def _find(self) -> None:
        """A first pose: by all frames at once or, where that is not sure, by what each of them tells as well."""
        begin = time.perf_counter()
        likely = self.find_at_once()
        seconds = None if self.network is None else self.network.search.seconds

        def done() -> bool:
            late = seconds is not None and time.perf_counter() - begin > seconds
            return bool(likely) and (late or self.worth >= _SURE)

        if not done() and likely and self.start is not None and _TURNED_DEG < self.turned_deg <= _FAR_TURNED_DEG:
            likely = self._along_start(likely)
        if done():
            return
        self.alone = dict(enumerate(_found_alone(self.locator, self.body, self.start)))
        told = _hypotheses(self.body, list(self.alone.values()), self.start, needed=not likely)
        self.pose, *_ = self._best_of([*likely, *told])

    def _along_start(self, before: list[Pose]) -> list[Pose]:
        """Likely poses where the volume is seen along the start, if the best of these is better."""
        assert self.start is not None
        pose, worth, rivals, ground = self.pose, self.worth, self.rivals, self.ground
        if self._turn_ground(self.start) and (likely := self.find_at_once()) and self.worth > worth:
            return likely
        self._stand_on(ground)
        self.pose, self.worth, self.rivals = pose, worth, rivals
        return before

    def apart_mm(self, one: Pose, other: Pose) -> float:
        """Mean distance of the frames under two poses of the body."""
        return sum(self.body.apart_mm(row, one, other) for row in range(len(self.body))) / len(self.body)

    def _score(self, pose: Pose) -> float:
        return worth_of(self.scouts.likeness(pose), self.ground)

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
        likeness = (worth_of(self.on_ground.likeness(pose), self.ground) for pose in (tried, self.pose))
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


def worth_of(likeness: torch.Tensor, ground: Ground) -> float:
    """How good a place of the body is."""
    return float(_above_any(likeness, ground).mean())
