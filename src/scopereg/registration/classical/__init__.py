"""Classical slice-to-volume registration: a similarity, climbed from a start pose, by SimpleITK or elastix."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from scopereg.images import centre_pose
from scopereg.registration.classical.elastix import ElastixOptions, register_elastix, require_elastix, warm_up
from scopereg.registration.classical.simple_itk import (
    METHOD,
    CorrelationOptions,
    MutualInformationOptions,
    register_correlation,
    register_mutual_information,
)
from scopereg.registration.result import Result

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
