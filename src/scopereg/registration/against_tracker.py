"""AgainstTracker: whether poses that were found move as the tracker says, or mirrored, with swapped axes, or too far.

How a frame moved from one image to the next, told in its own axes, does not depend on where the tracker's world lies:
F1^-1 F2 = T1^-1 T2 for poses found (F) and tracked (T). One frame cannot tell a volume from its mirror image through
the plane; a sweep can: then the motion through the plane, and the turns about both axes in it, change their sign.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from scopereg.geometry import Pose, vector_from_rotation

Array = npt.NDArray[np.float64]

LEAST_POSES = 6
_MOST_POSES = 60  # of a sweep, evenly from all over it
_LEVER_MM = 40.0  # turns are told as ways of a point so far from the middle of the frame
_LEAST_MOTION_MM = 5.0  # between two frames: less tells nothing
_MOVED_ALIKE = 0.35  # of the motion: median difference up to which motions agree
_CLEARER = 0.6  # of the difference as it is: what another reading must come below
_NEARLY_BEST = 1.1  # readings whose difference is within so many times the least: the simplest is taken
_SCALE = 0.08  # from one: relative difference of lengths that is worth a word


@dataclass(frozen=True)
class MotionCheck:
    """How the motion found compares with the tracker's."""

    pairs: int
    motion_mm: float  # median, of the tracker's
    apart_mm: float  # median difference as the poses are
    signs: tuple[tuple[int, ...], ...]  # the axes of the found motion in those of the tracker's, that fits best
    scale: float  # lengths found, over the tracker's
    best_mm: float  # median difference under these
    words: str  # what does not agree; empty where all does

    @property
    def agrees(self) -> bool:
        return not self.words

    @property
    def in_words(self) -> str:
        """What agrees or does not, in one line."""
        if self.words:
            return f"{self.words} ({self.pairs} pairs of frames)"
        apart = f"{self.apart_mm:.1f} mm apart over motions of {self.motion_mm:.0f} mm"
        return f"the poses found move as it says, {apart} ({self.pairs} pairs of frames)"


def check_motion(found: Sequence[Pose], tracked: Sequence[Pose], centre_mm: Sequence[float]) -> MotionCheck | None:
    """Poses found beside the tracker's, of the same frames; None where there are too few, or the probe hardly moved.

    `centre_mm` is the middle of the frame in its own mm: mirrored frames are mirrored about it.
    """
    if len(found) < LEAST_POSES:
        return None
    chosen = np.unique(np.linspace(0, len(found) - 1, _MOST_POSES).round().astype(int))
    one, other = (_motions([poses[row] for row in chosen], centre_mm) for poses in (found, tracked))
    lengths = np.linalg.norm(other, axis=1)
    told = lengths >= max(_LEAST_MOTION_MM, float(np.median(lengths)))
    if int(told.sum()) < LEAST_POSES:
        return None
    one, other = one[told], other[told]
    readings = [(axes, *_difference(one, other, axes)) for axes in _axes()]
    motion = float(np.median(np.linalg.norm(other, axis=1)))
    least = min(difference for _, _, difference in readings)
    axes, scale, best = next(reading for reading in readings if reading[2] <= _NEARLY_BEST * least + 1e-9)
    as_it_is = float(np.median(np.linalg.norm(one - other, axis=1)))
    words = _words(axes, scale, best, as_it_is, motion)
    signs = tuple(tuple(int(value) for value in row) for row in axes)
    return MotionCheck(len(one), motion, as_it_is, signs, scale, best, words)


def _motions(poses: Sequence[Pose], centre_mm: Sequence[float]) -> Array:
    """Motions (pairs, 6) of all pairs, each in the axes of its first frame: shifts, and turns as ways of a lever."""
    rotation = np.stack([pose.rotation for pose in poses])
    middle = np.stack([pose.apply(np.asarray(centre_mm)) for pose in poses])
    first, second = np.array(list(itertools.combinations(range(len(poses)), 2))).T
    back = rotation[first].transpose(0, 2, 1)
    shifts = (back @ (middle[second] - middle[first])[..., None])[..., 0]
    turns = vector_from_rotation(torch.from_numpy(back @ rotation[second])).numpy()
    return np.concatenate([shifts, _LEVER_MM * turns], 1)


def _axes() -> list[Array]:
    """All ways to name three axes, mirrored ones among them: as they are, one or two mirrored, then swapped ones."""
    every = []
    for order in itertools.permutations(range(3)):
        for signs in itertools.product((1, -1), repeat=3):
            axes = np.zeros((3, 3))
            axes[range(3), order] = signs
            every.append(axes)
    return sorted(every, key=lambda axes: (int((np.diag(axes) == 0).sum()), int((axes < 0).sum())))


def _difference(one: Array, other: Array, axes: Array) -> tuple[float, float]:
    """The scale of lengths, and the median difference, with the tracker's axes read as others."""
    shifts = other[:, :3] @ axes.T
    turns = other[:, 3:] @ axes.T * np.linalg.det(axes)  # a turn is mirrored the other way
    along = (one[:, :3] * shifts).sum(1)
    length = np.square(shifts).sum(1)
    far = length >= np.median(length)
    scale = float(np.median(along[far] / np.maximum(length[far], 1e-9)))
    scale = scale if scale > 0.2 else 1.0
    apart = np.concatenate([one[:, :3] - scale * shifts, one[:, 3:] - turns], 1)
    return scale, float(np.median(np.linalg.norm(apart, axis=1)))


def _words(axes: Array, scale: float, best: float, as_it_is: float, motion: float) -> str:
    if as_it_is <= _MOVED_ALIKE * motion and abs(scale - 1) <= _SCALE and np.array_equal(axes, np.eye(3)):
        return ""
    if best > _MOVED_ALIKE * motion:
        return (
            f"the poses found do not move as the tracker says: {as_it_is:.0f} mm apart where it moved {motion:.0f} mm; "
            "the volume may be another one, or the frames may not be found"
        )
    told = [_AXES_WORDS.get(_key(axes), "")] if _key(axes) in _AXES_WORDS else []
    if not told and not np.array_equal(axes, np.eye(3)):
        told = [f"with other axes: {_named(axes)}; check the calibration, and the orientation of image and volume"]
    if abs(scale - 1) > _SCALE:
        told.append(
            f"{scale:.2f} times as far as the tracker says: check the size of pixels and voxels, and the tracker's unit"
        )
    if not told or (np.array_equal(axes, np.eye(3)) and abs(scale - 1) <= _SCALE):
        return ""
    if not np.array_equal(axes, np.eye(3)) and best > _CLEARER * as_it_is:
        return ""
    return "the poses found move " + ", and ".join(told)


def _key(axes: Array) -> tuple[int, ...]:
    """The signs of axes that are not swapped; empty for others."""
    diagonal = np.diag(axes)
    return tuple(int(value) for value in diagonal) if diagonal.all() else ()


_AXES_WORDS: dict[tuple[int, ...], str] = {
    (1, 1, -1): "mirrored through the plane: the volume is mirrored along the direction of the sweep",
    (-1, 1, 1): "mirrored left to right: the calibration takes the image for its mirror image",
    (1, -1, 1): "mirrored top to bottom: the calibration takes the image for one that is upside down",
    (-1, 1, -1): "as if frames were mirrored left to right",
    (1, -1, -1): "as if frames were mirrored top to bottom",
    (-1, -1, 1): "as if frames were turned by 180 degrees",
    (-1, -1, -1): "mirrored through a point: the volume or the calibration is mirrored",
}


def _named(axes: Array) -> str:
    """Which axis of the tracker each found one is."""
    names = []
    for name, row in zip("xyz", axes, strict=True):
        place = int(np.abs(row).argmax())
        names.append(f"{name} is {'-' if row[place] < 0 else ''}{'xyz'[place]}")
    return ", ".join(names)
