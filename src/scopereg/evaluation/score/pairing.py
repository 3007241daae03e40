"""Pairs: which frame of the poses is which of the truth, by the names of their files and their numbers in them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from scopereg.errors import ScopeRegError, listed
from scopereg.evaluation.score.posed import PosedFrame, PosedFrames
from scopereg.io.transforms import ENDINGS
from scopereg.registration.batch import plain_name

Key = tuple[str, int]


class Pairs(NamedTuple):
    """Frames that both sides have, and those of one side alone."""

    both: tuple[tuple[PosedFrame, PosedFrame], ...]
    poses_alone: tuple[PosedFrame, ...]
    truth_alone: tuple[PosedFrame, ...]
    notes: tuple[str, ...] = ()


def pair_frames(poses: PosedFrames, truth: PosedFrames) -> Pairs:
    """Each frame of the poses with that of the truth; frames of the truth without a pose there count as not there.

    The whole name counts first, then that without folders, then without ending. Where each side is of one file alone,
    their names need not agree: numbers do. An error where a name may mean several frames, or nothing is in common.
    """
    known = truth.placed
    pairs = _by_keys(poses.frames, known, str(truth.source))
    notes: tuple[str, ...] = ()
    if not pairs:
        pairs = _by_numbers(poses.frames, known)
        notes = (f"{poses.frames[0].file} is taken for {known[0].file}: frames go by their numbers",) if pairs else ()
    if not pairs:
        raise ScopeRegError(
            f"it has no frame of {poses.source}: {_some(known)} there, {_some(poses.frames)} here",
            where=str(truth.source),
            fix="name files alike on both sides: names and numbers of frames tell which belong together",
        )
    mine, theirs = {id(one) for one, _ in pairs}, {id(other) for _, other in pairs}
    return Pairs(
        tuple(pairs),
        tuple(frame for frame in poses.frames if id(frame) not in mine),
        tuple(frame for frame in known if id(frame) not in theirs),
        notes,
    )


def by_name(frames: Sequence[PosedFrame]) -> dict[Key, list[PosedFrame]]:
    """Frames by all that they may be called."""
    called: dict[Key, list[PosedFrame]] = {}
    for frame in frames:
        for key in dict.fromkeys(_keys_of(frame)):
            called.setdefault(key, []).append(frame)
    return called


def _keys_of(frame: PosedFrame) -> Iterator[Key]:
    """What a frame may be called elsewhere, the surest first."""
    name = frame.file.replace("\\", "/")
    for key in ((name, frame.index), *([frame.also] if frame.also is not None else [])):
        base = key[0].rpartition("/")[2]
        yield from dict.fromkeys((key, (base, key[1]), (_stem(key[0]), key[1]), (_stem(base), key[1])))


def _stem(name: str) -> str:
    """Without ending, whether it is that of a pose, an image or a sweep."""
    ending = next((ending for ending in (*ENDINGS, ".npz") if name.lower().endswith(ending)), "")
    return name[: len(name) - len(ending)] if ending else plain_name(name)


def _by_keys(
    poses: Sequence[PosedFrame], truth: Sequence[PosedFrame], where: str
) -> list[tuple[PosedFrame, PosedFrame]]:
    called, pairs, taken = by_name(truth), [], dict[int, PosedFrame]()
    for frame in poses:
        meant = next((called[key] for key in _keys_of(frame) if key in called), [])
        if len(meant) > 1:
            raise _unclear(frame, meant, where)
        if meant:
            if other := taken.get(id(meant[0])):
                raise _unclear(meant[0], [other, frame], where)
            taken[id(meant[0])] = frame
            pairs.append((frame, meant[0]))
    return pairs


def _unclear(frame: PosedFrame, meant: Sequence[PosedFrame], where: str) -> ScopeRegError:
    return ScopeRegError(
        f"{frame.label} may be {' or '.join(each.label for each in meant[:3])}",
        where=where,
        fix="name files alike on both sides, with their folders where names stand twice",
    )


def _by_numbers(poses: Sequence[PosedFrame], truth: Sequence[PosedFrame]) -> list[tuple[PosedFrame, PosedFrame]]:
    """Frames of one file on each side by their numbers; one alone is not taken for the first of several."""
    one_file = len({frame.file for frame in poses}) == 1 == len({frame.file for frame in truth})
    if not one_file or (len(poses) == 1) != (len(truth) == 1):
        return []
    numbered = {frame.index: frame for frame in truth}
    return [(frame, numbered[frame.index]) for frame in poses if frame.index in numbered]


def _some(frames: Sequence[PosedFrame]) -> str:
    return listed([frame.label for frame in frames], 3)
