"""BodyDiagnosis: what is wrong with frames that do not lie in a volume as they are said to, by trying it.

First how their places may be read otherwise: where frames were found by themselves tells that, and all frames must be
clearly more alike to the volume so. Then the size of pixels, and whatever may be wrong with a single frame.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch

from scopereg.geometry import Pose
from scopereg.progress import timed
from scopereg.registration.body import BODY, Body
from scopereg.registration.body_finder import BodyFinder, worth_of
from scopereg.registration.body_readings import MIRRORED, better_readings
from scopereg.registration.diagnosis import Alternative, diagnose
from scopereg.registration.locator import Locator
from scopereg.registration.result import Result
from scopereg.registration.together import Together
from scopereg.threads import watched

_CLEARLY = 0.005  # likeness that a reading must add
_FOUND, _MORE = 0.12, 0.05  # likeness of a mirror image that was found elsewhere, and by how much it is above
_SIZE = 0.03  # relative difference of pixel sizes that is worth a word
_AGREEING = 0.6  # share of frames whose pixels are off to the same side
_SINGLE = 2  # frames that are looked at by themselves


def with_hints(locator: Locator, found: Together, start: Pose | None = None) -> Together:
    """What `locate_together` found, with what is wrong, as far as that is clear."""
    return replace(found, whole=replace(found.whole, hints=diagnose_together(locator, found, start)))


@watched()
def diagnose_together(locator: Locator, found: Together, start: Pose | None = None) -> tuple[str, ...]:
    """What is wrong, in words. Of a body that is ok, whether its places may be read still better."""
    body = Body.of([one.frame for one in found.frames if one.frame is not None], found.image_to_body)
    usable = [row for row, pose in enumerate(found.freed) if pose is not None]
    ready = body.subset(usable)
    ready = Body(tuple(frame.for_registration() for frame in ready.frames), ready.image_to_body)
    begin = (
        None if start is None else Pose(start.rotation, start.translation_mm, BODY, locator.volume.frame_of_reference)
    )
    finder = BodyFinder(locator, ready, begin)
    with timed("looked for what is wrong with the frames together"):
        hints = tuple(_of_places(finder, found, usable))
        if found.ok is not False:
            return hints
        hints = hints or tuple(_mirrored_elsewhere(finder, found)) or tuple(_sizes(finder, found))
    return hints or tuple(_of_single(locator, found, body, start))


def _of_places(finder: BodyFinder, found: Together, usable: Sequence[int]) -> Iterator[str]:
    """Other readings of the places under which all frames are more alike."""
    alike = worth_of(finder.on_ground.likeness(found.pose), finder.ground)
    poses = _found_poses(found)
    told = {number: poses[row] for number, row in enumerate(usable) if row in poses}
    for reading in better_readings(finder.body, told):
        read = Body(finder.body.frames, tuple(reading.image_to_body))
        part = read.subset(sorted(told))
        start = part.fitted([told[row] for row in sorted(told)], found.pose)
        on_ground = finder.on_ground.of_places(read)
        there = on_ground.descend(start, torch.ones(len(read)))
        if worth_of(on_ground.likeness(there), finder.ground) > alike + _CLEARLY:
            yield reading.words


def _found_poses(found: Together) -> dict[int, Pose]:
    """Where frames are found without the others, by row: near where these have them, or wherever they were alone."""
    poses = {row: pose for row, pose in enumerate(found.freed) if pose is not None and found.counts[row]}
    for row, one in enumerate(found.alone):
        if row not in poses and isinstance(one, Result) and one.belongs is not False:
            poses[row] = one.pose
    return poses


def _mirrored_elsewhere(finder: BodyFinder, found: Together) -> Iterator[str]:
    """A volume that is mirrored has its frames at other places: the mirror image of the body is sought there."""
    other = BodyFinder(finder.locator, finder.body.mirrored(), finder.start)
    here = worth_of(finder.on_ground.likeness(found.pose), finder.ground)
    if other.find_at_once() and other.worth > max(_FOUND, here + _MORE):
        yield MIRRORED


def _sizes(finder: BodyFinder, found: Together) -> Iterator[str]:
    """Pixels of another size, if most frames say so."""
    if worth_of(finder.on_ground.likeness(found.pose), finder.ground) < _FOUND:
        return  # of another place the size says nothing
    factors = finder.on_ground.stretches(found.pose)
    across, down = factors.median(0).values.tolist()
    off = torch.tensor([across - 1, down - 1])
    largest = int(off.abs().argmax())
    same = ((factors[:, largest] - 1) * off[largest] > 0).float().mean()
    if float(off[largest].abs()) >= _SIZE and float(same) >= _AGREEING:
        yield Alternative.sized(across, down).words(finder.body.frames[0])


def _of_single(locator: Locator, found: Together, body: Body, start: Pose | None) -> Iterator[str]:
    """What is wrong with single frames, if more than one says so: each is tried mirrored, turned and so on."""
    rows = sorted(range(len(body)), key=lambda row: (not found.counts[row], row))[:_SINGLE]
    said = []
    for row in rows:
        begin = None if start is None else Pose(start.rotation, start.translation_mm, BODY, found.pose.target)
        first = None if begin is None else body.pose_of(row, begin)
        alone = found.alone[row]
        if isinstance(alone, Result):
            said.append(diagnose(locator, body.frames[row], alone, first))
    yield from dict.fromkeys(hint for hint in (said[0] if said else ()) if all(hint in other for other in said[1:]))
