"""Classical slice-to-volume registration: a similarity, climbed from a start pose, by SimpleITK or elastix."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from scopereg.errors import ScopeRegError
from scopereg.geometry import Pose
from scopereg.images import Frame, Volume, centre_pose
from scopereg.registration.classical.elastix import ElastixOptions, register_elastix, require_elastix, warm_up
from scopereg.registration.classical.simple_itk import (
    METHOD,
    CorrelationOptions,
    MutualInformationOptions,
    register_correlation,
    register_mutual_information,
)
from scopereg.registration.prepared import Found, Prepared
from scopereg.registration.result import RegistrationError, Result

if TYPE_CHECKING:
    from scopereg.registration.method import Method

__all__ = [
    "METHOD",
    "PEERS",
    "CorrelationOptions",
    "ElastixOptions",
    "MutualInformationOptions",
    "Peer",
    "centre_pose",
    "register_correlation",
    "register_elastix",
    "register_mutual_information",
]


def _nothing() -> None:
    """SimpleITK is always there, and at once."""


class Peer(NamedTuple):
    """A classical method: all are called alike, `register(frame, volume, start, options, seen=mask)`."""

    register: Callable[..., Result]
    options: Any  # a frozen dataclass
    require: Callable[[], object] = _nothing  # a ScopeRegError where its library is missing
    warm_up: Callable[[], object] = _nothing  # loads the library: not the time of a frame


PEERS = {
    "simpleitk-mi": Peer(register_mutual_information, MutualInformationOptions()),
    "simpleitk-ncc": Peer(register_correlation, CorrelationOptions()),
    "elastix": Peer(register_elastix, ElastixOptions(), require_elastix, warm_up),
}


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
            found = self.peer.register(frame, self.volume, start, options=self.peer.options)
            return replace(found, features={"own_measure": found.similarity})
        except RegistrationError as error:
            error.start = start or centre_pose(frame, self.volume)
            return error.kept()
        except ScopeRegError as error:
            return error.kept()
