"""BodyVerdict: what to think of the pose of a body, and of each of its frames there."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from scopereg.geometry import SUCCESS_MM, Pose
from scopereg.registration.body import Body
from scopereg.registration.calibration import NETWORK
from scopereg.registration.network import network_of
from scopereg.registration.prepared import Prepared
from scopereg.registration.refine import PreparedRefinement
from scopereg.registration.result import Result

AGREES_MM = 2 * SUCCESS_MM  # from where a frame was found by itself to where the body has it: no farther, they agree
_UNKNOWN = "nobody calibrated poses of several frames together"

if TYPE_CHECKING:
    from scopereg.registration.locator import Locator
    from scopereg.registration.together import Together


def judge_frames(
    locator: Locator,
    prepared: Prepared,
    body: Body,
    poses: Sequence[Pose],
    looks: Sequence[Result | None],
    usable: Sequence[bool],
) -> list[Result]:
    """Each frame where the body has it, with the verdict that a single frame at that pose would get."""
    return [_judged(locator, prepared, body, row, poses[row], looks[row], usable[row]) for row in range(len(body))]


def _judged(
    locator: Locator, prepared: Prepared, body: Body, row: int, pose: Pose, look: Result | None, usable: bool
) -> Result:
    method = f"{locator.method.name}, together"
    if not usable:
        return Result(
            pose,
            method,
            0.0,
            math.nan,
            reason="nothing of it can be compared",
            frame=body.frames[row],
            volume=locator.volume,
        )
    frame = body.frames[row].for_registration()
    network = network_of(prepared)
    if look is None or network is None:
        result = Result(pose, method, 0.0, math.nan)
    elif isinstance(prepared, PreparedRefinement):
        result = prepared.judge_refined(frame, replace(look, pose=pose), prepared.stage)
    else:
        result = network.judge_refined(frame, replace(look, pose=pose), NETWORK)
    similarity = locator.alike.at(frame, pose)
    return replace(result, method=method, similarity=similarity, frame=body.frames[row], volume=locator.volume)


def judge_whole(together: Together, locator: Locator, rivals: Sequence[tuple[float, Pose]]) -> Result:
    """The whole with its verdict. Nobody calibrated it yet: it tells what speaks against the pose, and else nothing."""
    doubt = doubts(together)
    if doubt:
        return replace(together.whole, ok=False, belongs=True, reason=doubt)
    return together.whole.without_verdict(_UNKNOWN)


def doubts(together: Together) -> str:
    """Why the pose of a body cannot be right for all of its frames; empty where nothing says so."""
    count, used = len(together.frames), sum(together.counts)
    if used * 2 <= count:
        return f"only {used} of {count} frames are like the volume where the body has them"
    judged = [one.ok for one, counts in zip(together.frames, together.counts, strict=True) if counts]
    if all(each is False for each in judged):
        return "no frame is reliable where the body has it"
    agree, told = agreement(together)
    if told >= 2 and agree < 2:
        return f"{told} frames were found by themselves, and {agree} of them where the body has it"
    return ""


def agreement(together: Together) -> tuple[int, int]:
    """How many frames were found by themselves where the body has them, and how many were found at all."""
    told = [each for each in together.apart_mm if math.isfinite(each)]
    return sum(each <= AGREES_MM for each in told), len(told)
