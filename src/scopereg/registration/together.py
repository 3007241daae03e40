"""Together: frames of one rigid body located as one, a single pose from what all of them show.

How the pose is found stands in `registration.body_finder`, what to think of it in `registration.body_verdict`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from scopereg.errors import ScopeRegError
from scopereg.geometry import Pose
from scopereg.images import Frame, check_content
from scopereg.progress import timed
from scopereg.registration.body import Body
from scopereg.registration.body_finder import BodyFinder, without_fallback
from scopereg.registration.body_verdict import Judge, judge_frame, judge_whole, no_better_than, with_features
from scopereg.registration.network import network_of
from scopereg.registration.prepared import Found
from scopereg.registration.result import Result, apart_mm

if TYPE_CHECKING:
    from scopereg.registration.locator import Locator


@dataclass(frozen=True)
class Together:
    """What was found of frames that are one rigid body."""

    whole: Result  # BodyToVolume, with the verdict on all
    frames: tuple[Result, ...]  # ImageToVolume of each as the body has it, with the verdict on it
    alone: tuple[Found, ...]  # what the network finds of each frame by itself, from the start or where the body is
    apart_mm: tuple[float, ...]  # from there to where the body has it; NaN where it was not found by itself
    freed: tuple[Pose | None, ...]  # where each goes by itself from where the body has it; None for an empty one
    counts: tuple[bool, ...]  # whether a frame had a part in the pose
    image_to_body: tuple[Pose, ...]  # where each lies in the body, as it was told

    @property
    def pose(self) -> Pose:
        """`BodyToVolume`, LPS mm."""
        return self.whole.pose

    @property
    def ok(self) -> bool | None:
        """Whether the pose is reliable; None where it was not judged."""
        return self.whole.ok

    @property
    def freed_mm(self) -> tuple[float, ...]:
        """How far each frame goes by itself from where the body has it; NaN for an empty one."""
        rows = zip(self.frames, self.freed, strict=True)
        return tuple(apart_mm(one.frame, one.pose, pose) if one.frame else math.nan for one, pose in rows)

    def __str__(self) -> str:
        return f"{len(self.frames)} frames together: {self.whole}"


def locate_together(locator: Locator, body: Body, start: Pose | None) -> Together:
    """Frames of a body in the volume of a locator; around `start` (`BodyToVolume`), or wherever its method looks."""
    begin = time.perf_counter()
    body.check_room(locator.volume)
    network = network_of(without_fallback(locator.prepared))
    if start is not None and network is not None and network.wide:
        raise ScopeRegError("it looks all over the volume", where="wide=", fix="leave out wide=, or the start")
    unusable = {row: error for row, frame in enumerate(body.frames) if (error := _without_content(frame)) is not None}
    usable = [row for row in range(len(body)) if row not in unusable]
    if len(usable) < 2:
        raise next(iter(unusable.values()))
    ready = body.subset(usable)
    ready = Body(tuple(frame.for_registration() for frame in ready.frames), ready.image_to_body)
    finder = BodyFinder(locator, ready, start)
    with timed(f"brought {len(usable)} frames together"):
        finder.run()
    alone = {**unusable, **{usable[row]: one for row, one in finder.alone.items()}}
    return _finished(body, usable, [alone[row] for row in range(len(body))], finder, begin)


def _without_content(frame: Frame) -> ScopeRegError | None:
    try:
        check_content(frame)
    except ScopeRegError as error:
        return error.kept()
    return None


def _finished(body: Body, usable: Sequence[int], alone: Sequence[Found], finder: BodyFinder, begin: float) -> Together:
    """Verdicts, similarity, and the words that go with them."""
    judge = Judge.of(finder.prepared, finder.spacing_mm)
    frames = dict(enumerate(_frames_of(finder, judge)))
    counting = [one for row, one in frames.items() if finder.counts[row]]
    alike = [one.similarity for one in counting if math.isfinite(one.similarity)]
    whole = Result(
        finder.pose,
        f"{finder.locator.method.name}, {len(body)} frames together",
        (time.perf_counter() - begin) * 1e3,
        sum(alike) / len(alike) if alike else math.nan,
        notes=tuple(_notes(body, usable, finder)),
        volume=finder.locator.volume,
    )
    whole = judge_whole(whole, counting, finder, judge)
    place = {row: number for number, row in enumerate(usable)}
    told = [
        replace(
            no_better_than(whole, frames[place[row]])
            if row in place
            else _unusable(finder, body.pose_of(row, whole.pose)),
            frame=frame,
        )
        for row, frame in enumerate(body.frames)
    ]
    apart = [
        apart_mm(frame, one.pose if isinstance(one, Result) else None, at.pose)
        for frame, one, at in zip(body.frames, alone, told, strict=True)
    ]
    freed = [finder.freed[place[row]] if row in place else None for row in range(len(body))]
    counts = [row in place and finder.counts[place[row]] for row in range(len(body))]
    return Together(whole, tuple(told), tuple(alone), tuple(apart), tuple(freed), tuple(counts), body.image_to_body)


def _frames_of(finder: BodyFinder, judge: Judge | None) -> Iterator[Result]:
    """Each frame where the body has it, with its verdict."""
    method, locator = f"{finder.locator.method.name}, together", finder.locator
    for row, frame in enumerate(finder.body.frames):
        pose = finder.body.pose_of(row, finder.pose)
        result = with_features(finder, row, pose) or Result(pose, method, 0.0, math.nan)
        result = judge_frame(judge, result, finder.counts[row], finder.inside[row])
        yield replace(result, method=method, similarity=locator.alike.at(frame, pose), volume=locator.volume)


def _unusable(finder: BodyFinder, pose: Pose) -> Result:
    method = f"{finder.locator.method.name}, together"
    reason = "nothing of it can be compared"
    return Result(pose, method, 0.0, math.nan, reason=reason, volume=finder.locator.volume)


def _notes(body: Body, usable: Sequence[int], finder: BodyFinder) -> Iterator[str]:
    yield f"{len(body)} frames up to {body.extent_mm:.0f} mm apart are taken for one rigid body"
    empty = [str(row) for row in range(len(body)) if row not in usable]
    left = [(str(usable[row]), inside) for row, inside in enumerate(finder.inside) if not finder.counts[row]]
    for why, rows in (
        ("nothing is seen in it", empty),
        ("too little of it lies in the volume", [row for row, inside in left if not inside]),
        ("not like the volume where the others put it", [row for row, inside in left if inside]),
    ):
        if rows:
            yield f"frame{'s' * (len(rows) > 1)} {', '.join(rows)} had no part in the pose: {why}"
