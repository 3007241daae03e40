"""RefinedMethod: another method, and refinement of what it finds."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from scopereg.devices import resolve_device
from scopereg.errors import ScopeRegError
from scopereg.geometry import Pose
from scopereg.images import Frame, Volume
from scopereg.registration.identity import Identity
from scopereg.registration.prepared import Found, Prepared
from scopereg.registration.refine import WIDE, RefineOptions, Refiner, refine_in
from scopereg.registration.result import RegistrationError, Result
from scopereg.registration.session import confidence
from scopereg.registration.working_grid import isotropic

if TYPE_CHECKING:
    from scopereg.registration.method import Method

REFINE = "refine"


class RefinedMethod:
    """What the method before found, polished by the similarity of frame and volume."""

    def __init__(self, before: Method, device: str = "auto") -> None:
        self.before, self.device = before, resolve_device(device)
        self.name = f"{before.name} + {REFINE}"
        self.alone = isinstance(before, Identity)  # nothing was found yet: the refinement looks wider
        self.options = WIDE if self.alone else RefineOptions()
        self.facts: dict[str, Any] = {"start": before.facts, "options": str(self.options), "device": str(self.device)}

    def prepare(self, volume: Volume) -> PreparedRefinement:
        return PreparedRefinement(self, self.before.prepare(volume), volume)


class PreparedRefinement(Prepared):
    """The volume of the method before, and an isotropic one to refine in."""

    refines = True

    def __init__(self, method: RefinedMethod, before: Prepared, volume: Volume) -> None:
        self.before, self.alone = before, method.alone
        self.volume, note = isotropic(volume)
        self.notes = tuple(dict.fromkeys((*before.notes, *((note,) if note else ()))))
        self.refiner = Refiner(self.volume.array.to(method.device), method.options)
        self.batch_size, self.worth_a_process = before.batch_size, before.worth_a_process
        self.judges, self.might_look_wider = before.judges, before.might_look_wider

    def narrow(self) -> PreparedRefinement:
        same = copy.copy(self)
        same.before = self.before.narrow()
        return same

    def reaches(self, frame: Frame, pose: Pose) -> bool:
        return self.before.reaches(frame, pose)

    def judge_refined(self, frame: Frame, result: Result) -> Result:
        return self.before.judge_refined(frame, result)

    def locate(self, frames: Sequence[Frame], starts: Sequence[Pose | None]) -> list[Found]:
        found = self.before.locate(frames, starts)
        return [self._finish(frame, one) for frame, one in zip(frames, found, strict=True)]

    def refine_from(self, frame: Frame, start: Result) -> Result | None:
        try:
            return self.judge_refined(frame, self._refine(frame, start))
        except RegistrationError:
            return None

    def _finish(self, frame: Frame, found: Found) -> Found:
        if isinstance(found, ScopeRegError):
            return found
        try:
            return self.judge_refined(frame, self._best_refined(frame, found))
        except RegistrationError as error:
            if self.alone:
                return error
            return replace(found, notes=(*found.notes, f"not refined: {error.what}"))

    def _best_refined(self, frame: Frame, found: Result) -> Result:
        """The place found or, of a wide search, whichever of the places is most like the frame once refined."""
        refined: list[Result] = []
        failures: list[RegistrationError] = []
        for place in (found, *found.alternatives):
            try:
                refined.append(self._refine(frame, place))
            except RegistrationError as error:
                failures.append(error)
        if not refined:
            raise failures[0]
        refined.sort(key=lambda result: result.similarity, reverse=True)
        taken_ms = found.time_ms + sum(result.time_ms - found.time_ms for result in refined)
        return replace(refined[0], time_ms=taken_ms, notes=found.notes, alternatives=tuple(refined[1:]))

    def _refine(self, frame: Frame, start: Result) -> Result:
        begin = time.perf_counter()
        pose, found = refine_in(self.refiner, self.volume, frame, start.pose)
        similarity = float(found.similarity[0])
        if similarity <= -1:
            raise RegistrationError(
                "too little of the frame lies in the volume at the start",
                where="refinement",
                fix="start nearer: from another pose, or with a method that searches",
            )
        return replace(
            start,
            pose=pose,
            method=f"{start.method}, refined",
            time_ms=start.time_ms + (time.perf_counter() - begin) * 1e3,
            similarity=similarity,
            iterations=start.iterations + found.iterations,
            # That of the pose before says nothing of this one; a calibration judges it anew.
            confidence=start.confidence if math.isnan(start.confidence) else confidence(similarity),
        )
