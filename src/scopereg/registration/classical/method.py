"""ClassicalMethod: a classical peer, from the middle plane, from a start, or from the poses of another method."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from scopereg.errors import ScopeRegError
from scopereg.geometry import Pose
from scopereg.images import Frame, Volume, centre_pose
from scopereg.registration.classical import PEERS, Peer
from scopereg.registration.prepared import Found, Prepared
from scopereg.registration.result import RegistrationError, Result

if TYPE_CHECKING:
    from scopereg.registration.method import Method


class ClassicalMethod:
    """A peer of `PEERS`; its library is loaded here, so that no frame pays for that."""

    def __init__(self, name: str, before: Method | None = None) -> None:
        self.peer, self.before = PEERS[name], before
        self.name = name if before is None else f"{before.name} + {name}"
        self.peer.require()
        self.peer.warm_up()
        self.facts: dict[str, Any] = {"options": {key: str(value) for key, value in vars(self.peer.options).items()}}
        if before is not None:
            self.facts["start"] = before.facts

    def prepare(self, volume: Volume) -> PreparedClassical:
        return PreparedClassical(self.peer, volume, None if self.before is None else self.before.prepare(volume))


class PreparedClassical(Prepared):
    """A peer in the volume as it is; `before` tells where it starts."""

    batch_size, worth_a_process = 2, 8

    def __init__(self, peer: Peer, volume: Volume, before: Prepared | None = None) -> None:
        self.peer, self.volume, self.before = peer, volume, before
        self.notes = () if before is None else before.notes

    def locate(self, frames: Sequence[Frame], starts: Sequence[Pose | None]) -> list[Found]:
        if self.before is None:
            return [self._climb(frame, start) for frame, start in zip(frames, starts, strict=True)]
        found = self.before.locate(frames, starts)
        return [self._go_on(frame, result) for frame, result in zip(frames, found, strict=True)]

    def _go_on(self, frame: Frame, first: Found) -> Found:
        found = first if isinstance(first, ScopeRegError) else self._climb(frame, first.pose)
        if not isinstance(first, Result) or not isinstance(found, Result):
            return found
        return replace(
            found,
            method=f"{first.method}, {found.method}",
            time_ms=first.time_ms + found.time_ms,
            iterations=first.iterations + found.iterations,
            notes=(*first.notes, *found.notes),
        )

    def _climb(self, frame: Frame, start: Pose | None) -> Found:
        try:
            return self.peer.register(frame, self.volume, start, options=self.peer.options)
        except RegistrationError as error:
            error.start = start or centre_pose(frame, self.volume)
            return error
        except ScopeRegError as error:
            return error
