"""Fallback: other ways that are tried for a frame whose pose is not ok, the step `+fallback`; how finds are judged.

A way (`Way`) tells places where a frame may lie. Which ways there are, and in what order, is declared once, in
`registration.method`; `register_fallback` there adds one. A place is no pose yet: the method before looks again from
there, so that quality features and verdict are those that its calibration knows. Who tries often finds something that
looks right sooner or later. So a find is judged more strictly the more was tried (`after_tries`), and it is not ok as
long as another place is more alike (`best_of`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from scopereg.devices import resolve_device
from scopereg.errors import ScopeRegError
from scopereg.geometry import SUCCESS_MM, Pose
from scopereg.images import Frame, Volume
from scopereg.progress import announce
from scopereg.registration.calibration import REFINED, Stage
from scopereg.registration.confidence import ENOUGH
from scopereg.registration.prepared import Found, Prepared
from scopereg.registration.result import NOT_JUDGED, Result, apart_mm
from scopereg.registration.similarity import Similarity
from scopereg.registration.working_grid import isotropic

if TYPE_CHECKING:
    from scopereg.registration.method import Method

FALLBACK = "fallback"
_SAME_ALIKE = 0.01  # similarity by which poses of one place differ, however they were refined


class Way(Protocol):
    """Another way to find frames in one volume."""

    words: str  # how messages call it
    polished: bool  # whether its places are refined already, as the method before refines

    def places(self, frame: Frame, start: Pose | None, best: Result | None) -> Iterator[Found]:
        """Where the frame may lie; `best` is the most alike pose so far, `start` where the search was told to begin."""
        ...


MakeWay = Callable[[Prepared, Volume, str], Way | None]  # before, volume, device; None where it could find nothing new


class AgainWay:
    """The method before once more, from where it found the frame: the cheapest way."""

    words, polished = "a second look from there", True

    @classmethod
    def make(cls, before: Prepared, volume: Volume, device: str) -> AgainWay:
        return cls()

    def places(self, frame: Frame, start: Pose | None, best: Result | None) -> Iterator[Found]:
        if best is not None:
            yield replace(best, seen_from=None)  # wherever it was seen from, it was not from there


class WiderWay:
    """The method before, looking all over the volume; nothing new where it has done so already."""

    words, polished = "the wide search", True

    def __init__(self, wider: Prepared) -> None:
        self.wider = wider

    @classmethod
    def make(cls, before: Prepared, volume: Volume, device: str) -> WiderWay | None:
        """None where it looks so already, or cannot."""
        wider = before.wider()
        return None if wider is None else cls(wider)

    def places(self, frame: Frame, start: Pose | None, best: Result | None) -> Iterator[Found]:
        if best is None or not math.isfinite(best.stands_out):
            yield from self.wider.locate([frame], [None])


class MethodWay:
    """Any method, from the best pose so far and from the start. Its volume is prepared when it is first asked."""

    polished = False

    def __init__(self, words: str, make: Callable[[], Method], volume: Volume) -> None:
        self.words, self._make, self._volume = words, make, volume
        self._prepared: Prepared | None = None

    def places(self, frame: Frame, start: Pose | None, best: Result | None) -> Iterator[Found]:
        if self._prepared is None:
            self._prepared = self._make().prepare(self._volume)
        for begin in [start] if best is None else [best.pose, start]:
            yield from self._prepared.locate([frame], [begin])


class FallbackMethod:
    """The method before and, where its pose is not ok, other ways after it."""

    def __init__(
        self, before: Method, device: str, ways: Mapping[str, MakeWay], *, seconds: float | None = None
    ) -> None:
        """After so many `seconds` of a frame no other way is begun."""
        if seconds is not None and not seconds > 0:
            raise ScopeRegError(f"got {seconds:g}", where="seconds=", fix="pass a number above 0, or leave it out")
        self.before, self.device, self.ways, self.seconds = before, device, dict(ways), seconds
        self.name = f"{before.name} + {FALLBACK}"
        self.facts: dict[str, Any] = {"start": before.facts, "ways": list(ways)}
        if seconds is not None:
            self.facts["seconds"] = seconds

    def prepare(self, volume: Volume) -> PreparedFallback:
        return PreparedFallback(self, self.before.prepare(volume), volume)


class PreparedFallback(Prepared):
    """The volume of the method before, and whatever other ways make of it."""

    worth_a_process, measures = 4, True

    def __init__(self, method: FallbackMethod, before: Prepared, volume: Volume) -> None:
        self.before, self.seconds = before, method.seconds
        self.alike: Similarity = before.alike or Similarity(isotropic(volume)[0], resolve_device(method.device))
        self._near = before.narrow()  # looks again from a place
        # Where nobody judges, nobody knows what is to be sought again.
        made = [make(before, volume, method.device) for make in method.ways.values()] if before.judges else []
        self.ways: list[Way] = [way for way in made if way is not None]
        self.notes, self.batch_size, self.judges = before.notes, before.batch_size, before.judges
        self.refines = before.refines

    def narrow(self) -> Prepared:
        """What follows a probe has no time for other ways."""
        return self.before.narrow()

    def is_ready(self, frame: Frame) -> bool:
        return self.before.is_ready(frame)

    def get_ready(self, frame: Frame) -> None:
        self.before.get_ready(frame)

    def reaches(self, frame: Frame, pose: Pose) -> bool:
        return self.before.reaches(frame, pose)

    def can_judge(self, stage: Stage) -> bool:
        return self.before.can_judge(stage)

    def judge_refined(self, frame: Frame, result: Result, stage: Stage = REFINED) -> Result:
        return self.before.judge_refined(frame, result, stage)

    def refine_from(self, frame: Frame, start: Result) -> Result | None:
        return self.before.refine_from(frame, start)

    def locate(self, frames: Sequence[Frame], starts: Sequence[Pose | None]) -> list[Found]:
        found = self.before.locate(frames, starts)
        return [self._locate(*row) for row in zip(frames, starts, found, strict=True)]

    def _locate(self, frame: Frame, start: Pose | None, first: Found) -> Found:
        first = self.alike.of(frame, first) if isinstance(first, Result) else first
        return self._go_on(frame, start, first) if self._should(first) else first

    def _should(self, found: Found) -> bool:
        return bool(self.ways) and not (isinstance(found, Result) and found.ok)

    def _go_on(self, frame: Frame, start: Pose | None, first: Found) -> Found:
        """One way after the other, until a pose is ok or the time is up."""
        attempts = Attempts(frame, first)
        for way in self.ways:
            if self.seconds is not None and attempts.seconds >= self.seconds:
                attempts.stopped = True
                break
            announce(f"{attempts.state}; {way.words} is tried")
            self._try(way, frame, start, attempts)
            if attempts.is_ok:
                break
        return attempts.found()

    def _try(self, way: Way, frame: Frame, start: Pose | None, attempts: Attempts) -> None:
        """All places of a way until one is ok; what it cannot do must not cost what was found before."""
        attempts.tried.append(way.words)
        nothing = True
        try:
            for place in way.places(frame, start, attempts.best):
                nothing = False
                if isinstance(place, Result):
                    attempts.add(way.words, self._seen_from(frame, place, way.polished))
                if attempts.is_ok:
                    return
        except ScopeRegError as error:
            attempts.tried[-1] += f" ({error.what})"
        else:
            if nothing:
                attempts.tried.pop()

    def _seen_from(self, frame: Frame, place: Result, polished: bool) -> list[Result]:
        """A place as the method before sees the frame from there, with its verdict.

        Where it sees the frame somewhere else the place as it was told is another result, which nobody confirmed.
        """
        place = self.alike.of(frame, place)
        if place.seen_from is not None and place.ok is not None:
            return [place]
        bare = replace(place.without_verdict(), features={}, seen_from=None)
        there = bare if polished else self.before.refine_from(frame, bare) or bare
        there = replace(there, similarity=self.alike.at(frame, there.pose))
        (again,) = self._near.locate([frame], [there.pose])
        if not isinstance(again, Result):
            return [_unconfirmed(there, None, again.what)]
        again = replace(self.alike.of(frame, again), stands_out=place.stands_out)
        same = apart_mm(frame, again.pose, there.pose) <= SUCCESS_MM
        if same and not there.similarity > again.similarity:
            return [again]
        if same and self.refines:
            moved = replace(again, pose=there.pose, similarity=there.similarity)
            return [self.before.judge_refined(frame, moved, self.before.stage)]
        return [again, _unconfirmed(there, again, again.reason)]


def _unconfirmed(there: Result, again: Result | None, why: str) -> Result:
    """A place that is no more than told: it is not ok, and the frame may not even be one of the volume's."""
    belongs = False if again is not None and again.belongs is False else None
    reason = "the network does not find the frame there" + (f": {why.removeprefix(NOT_JUDGED)}" if why else "")
    basis = "" if again is None else again.calibrated_on
    return replace(there, belongs=belongs, ok=False, reason=reason, calibrated_on=basis)


@dataclass(frozen=True)
class Find:
    """A pose, and the way that led to it."""

    result: Result
    by: str = ""  # words of the way; empty for the method itself

    @property
    def alike(self) -> float:
        return self.result.similarity if math.isfinite(self.result.similarity) else -math.inf


class Attempts:
    """All that was tried for one frame."""

    def __init__(self, frame: Frame, first: Found) -> None:
        self.frame, self.first, self._begun = frame, first, time.perf_counter()
        self.finds = [Find(first)] if isinstance(first, Result) else []
        self.tried: list[str] = []
        self.places = [find.result.pose for find in self.finds]  # that were judged, apart from one another
        self.stopped = False

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self._begun

    @property
    def best(self) -> Result | None:
        return best_of(self.frame, self.finds).result if self.finds else None

    @property
    def is_ok(self) -> bool:
        return self.best is not None and self.best.ok is True

    @property
    def state(self) -> str:
        """In words, how it stands."""
        if self.best is None:
            return "not found"
        return f"{_in_short(self.best)}, after {self.seconds:.0f} s"

    def add(self, by: str, results: Sequence[Result]) -> None:
        """What a way led to, judged as one of so many places; the same place once more is no new chance."""
        for result in results:
            if all(apart_mm(self.frame, result.pose, pose) > SUCCESS_MM for pose in self.places):
                self.places.append(result.pose)
            self.finds.append(Find(after_tries(result, len(self.places)), by))

    def found(self) -> Found:
        """The best, and in its notes what was tried."""
        if not self.finds:
            return self.first
        best = best_of(self.frame, self.finds)
        taken_ms = self.seconds * 1e3 + (self.first.time_ms if isinstance(self.first, Result) else 0.0)
        others = tuple(find.result for find in self.finds if find.result is not best.result)
        method = f"{best.result.method}, found by {best.by}" if best.by else best.result.method
        first = self.first.notes if isinstance(self.first, Result) else ()
        notes = tuple(dict.fromkeys((*first, *best.result.notes, self._note(best))))
        told = replace(best.result, method=method, time_ms=taken_ms, notes=notes, alternatives=others)
        return told if told.ok else self._no_milder(told)

    def _no_milder(self, told: Result) -> Result:
        """A frame that looked like one of something else stays so unless it looks like the volume elsewhere."""
        seen = [find.result for find in self.finds]
        strange = next((result for result in seen if result.belongs is False), None)
        if strange is None or told.belongs is False or any(result.belongs for result in seen):
            return told
        return replace(told, ok=False, belongs=False, reason=strange.reason)

    def _note(self, best: Find) -> str:
        before = f"{self.first.method}: {_in_short(self.first)}" if isinstance(self.first, Result) else self.first.what
        end = ", then the time was up" if self.stopped else ""
        taken = f"this pose was found by {best.by}" if best.by else "this pose is as good as any"
        return f"{before}; tried too: {', '.join(self.tried)} ({self.seconds:.0f} s{end}): {taken}"


def _in_short(result: Result) -> str:
    """The verdict without its numbers."""
    return result.reason if result.ok is None else f"not ok: {result.reason}"


def after_tries(result: Result, tries: int) -> Result:
    """A result at the last of so many places that were tried: each may look right by chance, and the chances add up."""
    if not math.isfinite(result.confidence):
        return result
    sure = max(1 - tries * (1 - result.confidence), 0.0)
    if not result.ok or sure >= ENOUGH:
        return replace(result, confidence=sure)
    reason = f"one of {tries} places that were tried, of which one may look right by chance: {sure:.0%} sure"
    return replace(result, confidence=sure, ok=False, reason=reason)


def best_of(frame: Frame, finds: Sequence[Find]) -> Find:
    """The most alike of the poses that are ok, or else of all. None is ok while another one is clearly more alike."""
    most = max(finds, key=lambda find: find.alike)
    good = [find for find in finds if find.result.ok]
    if not good:
        return most
    best = max(good, key=lambda find: find.alike)
    same_place = apart_mm(frame, best.result.pose, most.result.pose) <= SUCCESS_MM
    return best if best.alike >= most.alike - (_SAME_ALIKE if same_place else 0.0) else most
