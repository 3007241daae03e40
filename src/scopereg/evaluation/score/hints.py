"""Hints: what poses would agree if one side counted otherwise, said to the user and never done for them.

Poses that are off by the same convention everywhere look like poor ones, and errors of half an image are believed.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch

from scopereg.geometry import SUCCESS_MM, Pose, ras_from_lps, weighted_kabsch_in_space
from scopereg.geometry.pose import Array
from scopereg.registration.against_tracker import check_motion

_EXPLAINS = 0.25  # of the median error: what another reading must come below
_NEARLY_BEST = 1.1  # readings within so many times the least: the simplest is told
_LEAST_FRAMES = 3  # one rigid motion fits fewer whatever they are
_LEAST_SPREAD_MM = 5.0  # of the places of frames: what lies in one place is fitted by anything
_RAS_VOLUME = np.diag([-1.0, -1.0, 1.0, 1.0])
_TURNS = {  # about the middle of the image
    "if one side's images were mirrored left to right (turned about the image's upright axis)": (-1.0, 1.0, -1.0),
    "if one side's images were upside down (turned about the image's level axis)": (1.0, -1.0, -1.0),
    "if one side's images were turned by 180 degrees": (-1.0, -1.0, 1.0),
}
_WORDS = {
    "inverse": "the transforms of one side went the other way, as ITK's do to resample (direction=)",
    "RAS": "one side counted in RAS, at both ends (space=RAS)",
    "RAS-volume": "one side counted the volume in RAS (space=RAS-volume)",
    "shifted": "one side counted the frame from its middle, the other from its first pixel (origin=centre)",
}


class Placed(NamedTuple):
    """Points of a frame, where a pose puts them, and where they belong."""

    image_to_world: Array  # (4, 4), as its file counts
    points_mm: Array  # (N, 3) in the frame's mm, as its file counts
    places_mm: Array  # (N, 3) in the world
    half_mm: Array | None = None  # from the first pixel to the middle of the image; None where there is no image


class Alternative(NamedTuple):
    """Another way to read a pose: how many things are read otherwise, in words, and the poses so."""

    changes: int
    words: str
    matrices: Array  # (F, 4, 4)


def hints_of(placed: Sequence[Placed], truth: Sequence[Pose] = ()) -> list[str]:
    """In words, what would bring the poses to where they belong, where that is one simple thing; none if they fit.

    `truth`: the poses that the places come from, for how they move from frame to frame.
    """
    error = _median_error(placed, np.stack([each.image_to_world for each in placed]))
    if error <= SUCCESS_MM:
        return []
    others = [(_median_error(placed, each.matrices), each) for each in _alternatives(placed)]
    least = min(found for found, _ in others)
    if least <= _EXPLAINS * error:
        near = [(each.changes, found, each.words) for found, each in others if found <= _NEARLY_BEST * least + 1e-6]
        _, found, words = min(near)
        return [f"the median error would be {found:.2f} mm instead of {error:.1f} mm {words}"]
    moved = [found for found in (_other_world(placed), _same_offset(placed)) if found is not None]
    left, words = min(moved, default=(error, ""))
    told = f"{words}: that would leave {left:.2f} mm of {error:.1f} mm" if left <= _EXPLAINS * error else ""
    return [hint for hint in (told, _motion(placed, truth)) if hint]


def _median_error(placed: Sequence[Placed], matrices: Array) -> float:
    """Median over frames of the mean distance of the points from where they belong."""
    apart = [
        np.linalg.norm(_applied(matrix, each.points_mm) - each.places_mm, axis=1).mean()
        for each, matrix in zip(placed, matrices, strict=True)
    ]
    return float(np.median(apart))


def _alternatives(placed: Sequence[Placed]) -> list[Alternative]:
    """Every combination of conventions, and images that are turned."""
    as_they_are = np.stack([each.image_to_world for each in placed])
    centred = all(each.half_mm is not None for each in placed)
    half = np.stack([np.zeros(3) if each.half_mm is None else each.half_mm for each in placed])
    found = []
    for inverse, space, way in itertools.product((False, True), ("", "RAS", "RAS-volume"), (0, 1, -1)):
        changes = [name for name in ("inverse" if inverse else "", space, "shifted" if way else "") if name]
        if not changes or (way and not centred):
            continue
        matrices = np.linalg.inv(as_they_are) if inverse else as_they_are
        matrices = np.stack([_in_space(matrix, space) for matrix in matrices])
        matrices = matrices @ _shifts(way * half)
        words = ", and ".join(_WORDS[name] for name in changes)
        found.append(Alternative(len(changes), f"if {words}", matrices))
    if centred:
        middles = np.stack([each.points_mm.mean(0) for each in placed])
        for words, signs in _TURNS.items():
            turn = np.diag([*signs, 1.0])
            found.append(Alternative(1, words, as_they_are @ _shifts(middles) @ turn @ _shifts(-middles)))
    return found


def _in_space(matrix: Array, space: str) -> Array:
    if space == "RAS":
        return ras_from_lps(matrix)
    return _RAS_VOLUME @ matrix if space else matrix


def _shifts(offsets: Array) -> Array:
    """Translations (F, 4, 4)."""
    matrices = np.tile(np.eye(4), (len(offsets), 1, 1))
    matrices[:, :3, 3] = offsets
    return matrices


def _other_world(placed: Sequence[Placed]) -> tuple[float, str] | None:
    """One motion of the whole world: the error that it leaves, and words for it."""
    matrices = np.stack([each.image_to_world for each in placed])
    found = np.concatenate([_applied(each.image_to_world, each.points_mm) for each in placed])
    fitted = _fitted(placed, found, np.concatenate([each.places_mm for each in placed]))
    if fitted is None:
        return None
    motion, angle_deg = fitted
    shift_mm = float(np.linalg.norm(_applied(motion, found.mean(0)) - found.mean(0)))
    return _median_error(placed, motion @ matrices), (
        f"all frames seem to be moved together, by {shift_mm:.1f} mm and {angle_deg:.1f} degrees, as where the two "
        "count in different worlds (world= takes one to the other)"
    )


def _same_offset(placed: Sequence[Placed]) -> tuple[float, str] | None:
    """The same of one motion in the axes of the frame."""
    matrices = np.stack([each.image_to_world for each in placed])
    wanted = [_applied(back, each.places_mm) for each, back in zip(placed, np.linalg.inv(matrices), strict=True)]
    fitted = _fitted(placed, np.concatenate([each.points_mm for each in placed]), np.concatenate(wanted))
    if fitted is None:
        return None
    motion, angle_deg = fitted
    middle = placed[0].points_mm.mean(0)
    x, y, z = _applied(motion, middle) - middle
    return _median_error(placed, matrices @ motion), (
        f"every frame seems to be off by the same in its own axes, x {x:+.1f} y {y:+.1f} z {z:+.1f} mm and "
        f"{angle_deg:.1f} degrees: check the calibration, and how images were cropped"
    )


def _applied(matrix: Array, points: Array) -> Array:
    moved: Array = points @ matrix[:3, :3].T + matrix[:3, 3]
    return moved


def _fitted(placed: Sequence[Placed], source: Array, goal: Array) -> tuple[Array, float] | None:
    """The best rigid motion of points and its angle; None where frames are too few, or all in one place."""
    middles = np.stack([each.places_mm.mean(0) for each in placed])
    spread = np.linalg.norm(middles - middles.mean(0), axis=1)
    if len(placed) < _LEAST_FRAMES or float(np.median(spread)) < _LEAST_SPREAD_MM:
        return None
    fit = weighted_kabsch_in_space(torch.from_numpy(source), torch.from_numpy(goal), torch.ones(len(source)))
    pose = Pose(fit.rotation.numpy(), fit.translation.numpy())
    return pose.matrix, pose.angle_to_deg(Pose.identity())


def _motion(placed: Sequence[Placed], truth: Sequence[Pose]) -> str:
    """How the poses move from frame to frame beside the truth, where that says what is wrong."""
    if not truth:
        return ""
    poses = [Pose.from_matrix(each.image_to_world) for each in placed]
    check = check_motion(poses, truth, placed[0].points_mm.mean(0).tolist())
    return "" if check is None or check.agrees else f"beside the truth, as a tracker, {check.words}"
