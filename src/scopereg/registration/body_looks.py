"""BodyLooks: what a network finds of each frame of a body, as it looks from where the body has it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from scopereg.geometry import Pose
from scopereg.images import Frame, pose_to_voxels
from scopereg.registration.body import Body
from scopereg.registration.calibration import largest_offset
from scopereg.registration.network import PreparedNetwork, PreparedVolume
from scopereg.registration.prepared import Found
from scopereg.registration.result import RegistrationError
from scopereg.registration.working_grid import frame_on_grid

_NEAR = 8.0  # voxels and degrees: frames no farther from one another are looked at in one window


class _Group(NamedTuple):
    """Frames that lie near one another, and where the first of them lies."""

    ready: PreparedVolume
    pose: Pose
    rows: list[int]


def looks_from(network: PreparedNetwork, body: Body, poses: Sequence[Pose]) -> dict[int, Found]:
    """What it finds of each frame from its pose; an error where the volume has nothing there.

    A window of the volume is encoded once for all frames that lie near its middle.
    """
    found: dict[int, Found] = {}
    for group in _groups(network, body, poses):
        try:
            results = group.ready.windows.register_all([body.frames[row] for row in group.rows], group.pose)
            found |= zip(group.rows, results, strict=True)
        except RegistrationError as error:
            found |= dict.fromkeys(group.rows, error)
    return dict(sorted(found.items()))


def _groups(network: PreparedNetwork, body: Body, poses: Sequence[Pose]) -> Iterator[_Group]:
    left = {row: network.volume_for(frame) for row, frame in enumerate(body.frames)}
    while left:
        first, ready = next(iter(left.items()))
        rows = [row for row in left if left[row] is ready and _is_near(ready, body.frames, poses, first, row)]
        yield _Group(ready, poses[first], rows)
        left = {row: other for row, other in left.items() if row not in rows}


def _is_near(ready: PreparedVolume, frames: Sequence[Frame], poses: Sequence[Pose], first: int, row: int) -> bool:
    if row == first:
        return True
    one, other = frames[first], frames[row]
    if (one.shape, one.spacing_mm, one.origin_mm) != (other.shape, other.spacing_mm, other.origin_mm):
        return False
    grid = frame_on_grid(one, ready.window)
    there, here = (pose_to_voxels(poses[each], grid, ready.volume) for each in (first, row))
    back = there.rotation.T
    return largest_offset(back @ here.rotation, back @ (here.translation - there.translation)) <= _NEAR
