"""BodyReadings: what the places of frames beside one another may be instead, where they do not lie as they are said to.

A mirror image, other units, an image that lies elsewhere on its probe, a drift: each is a few numbers for all frames.
The one by which frames come to lie where they were found by themselves is named, if it explains most of what is left.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from scopereg.geometry import Pose, rotation_from_vector
from scopereg.geometry.hand_eye import hand_eye, hand_eye_of_turn
from scopereg.registration.body import Body

Array = npt.NDArray[np.float64]

MIRRORED = "fits better as its mirror image: the volume or the tracker's world is mirrored; check the axes of both"
LEAST_FRAMES = 4  # that were found by themselves
_WORTH_A_WORD_MM = 0.8  # that frames lie off, in the middle
_EXPLAINED = 0.5  # of that, which a reading must come below
_SIMPLER, _SIMPLER_MM = 1.3, 0.1  # times the best, and more: the first of the readings that come so near is taken
_SCALES_MM = (30.0, 30.0, 15.0, 15.0, 8.0, 8.0, 4.0, 4.0, 2.0, 2.0, 2.0, 2.0)  # from which on frames count less
_DAMPING = 1e-9  # share of the curvature: what nothing tells stays as it is
_TURNS = ((0, 0, 0), (180, 0, 0), (0, 180, 0), (0, 0, 180))  # degrees: how images and probes are often confused
_LEAST_MM, _LEAST_DEG = 1.5, 1.5  # of a calibration or a drift that is named
_SCALE = 0.08  # from one, of lengths that are worth a word


class Reading(NamedTuple):
    """The places of frames read in another way, and what that means."""

    image_to_body: list[Pose]
    apart_mm: float  # of frames from there, in the middle
    words: str
    simple: bool = False  # whether it has hardly more numbers than the pose of the body


def better_readings(body: Body, found: Mapping[int, Pose]) -> list[Reading]:
    """The readings that explain where frames were found, by row, the simplest first; none where none is clearly better.

    One of few numbers stands alone. A straight sweep hardly tells an image that is turned on its probe from a drift.
    """
    rows = sorted(found)
    if len(rows) < LEAST_FRAMES:
        return []
    fit = _Fit.of(body, rows, [found[row] for row in rows])
    off = fit.solved().apart_mm
    if off < _WORTH_A_WORD_MM:
        return []
    tried = [one for one in _readings(body, fit) if one.apart_mm < _EXPLAINED * off]
    best = min((one.apart_mm for one in tried), default=0.0)
    near = [one for one in tried if one.apart_mm <= _SIMPLER * best + _SIMPLER_MM]
    return near[:1] if near and near[0].simple else near


def off_mm(body: Body, found: Mapping[int, Pose]) -> float:
    """How far frames lie from where they were found, in the middle, with the body where most of them have it."""
    rows = sorted(found)
    return _Fit.of(body, rows, [found[row] for row in rows]).solved().apart_mm


def _readings(body: Body, fit: _Fit) -> Iterator[Reading]:
    """Other ways to read the places, the simplest first."""
    mirrored = body.mirrored()
    solved = replace(fit, told=_matrices([mirrored.image_to_body[row] for row in fit.rows])).solved()
    yield Reading(list(mirrored.image_to_body), solved.apart_mm, MIRRORED, simple=True)
    solved = replace(fit, scale=fit.scale_of_lengths()).solved(scaled=True)
    if abs(solved.scale - 1) > _SCALE:
        words = f"{solved.scale:.2g} times the distances between frames: check the unit of the poses, mm"
        yield Reading(solved.read(body), solved.apart_mm, f"fits better with {words}", simple=True)
    solved = min((begin.solved(on_probe=True) for begin in fit.on_other_probes()), key=lambda one: one.apart_mm)
    shift_mm, turn_deg = solved.probe_size
    if shift_mm >= _LEAST_MM or turn_deg >= _LEAST_DEG:
        words = f"turned by {turn_deg:.0f} degrees and shifted by {shift_mm:.0f} mm on its probe"
        end = "check ImageToProbe, or calibrate the probe"
        yield Reading(solved.read(body), solved.apart_mm, f"fits better with an image {words}: {end}")
    solved = fit.solved(drifting=True)
    shift_mm, turn_deg = solved.drift_size
    if shift_mm >= _LEAST_MM or turn_deg >= _LEAST_DEG:
        words = f"drift by {shift_mm:.0f} mm and {turn_deg:.0f} degrees from the first frame to the last: take frames"
        end = "of a shorter part of the sweep, and check the tracker"
        yield Reading(solved.read(body), solved.apart_mm, f"fits better with poses that {words} {end}")


@dataclass(frozen=True, eq=False)
class _Fit:
    """Frames at W B T X, where they are found at F: all that may be sought is in it. Points are those of mTRE."""

    rows: tuple[int, ...]  # of the body
    count: int  # frames of the body
    told: Array  # T (N, 4, 4)
    found: Array  # F (N, 4, 4)
    points: Array  # (N, P, 3), in mm of the frames
    whole: Array  # B
    probe: Array  # X, about the middle of the first frame
    drift: Array  # (6,), W at the last frame less that at the first: a shift, and a turn about the frames' middle
    scale: float = 1.0  # of the distances in T

    @classmethod
    def of(cls, body: Body, rows: list[int], poses: list[Pose]) -> _Fit:
        told, found = _matrices([body.image_to_body[row] for row in rows]), _matrices(poses)
        points = np.stack([body.targets_mm(row) for row in rows])
        return cls(tuple(rows), len(body), told, found, points, np.eye(4), np.eye(4), np.zeros(6))

    @property
    def shares(self) -> Array:
        """How much of a drift each frame has."""
        return np.array(self.rows) / max(self.count - 1, 1) - 0.5

    @property
    def middle_mm(self) -> Array:
        middle: Array = _moved(self.found, self.points).mean((0, 1))
        return middle

    def predicted(self) -> Array:
        """`ImageToVolume` (N, 4, 4)."""
        return self._wandered(self.shares) @ self.whole @ _scaled(self.told, self.scale) @ self.probe

    def _wandered(self, shares: Array) -> Array:
        return np.stack([_step(share * self.drift, self.middle_mm) for share in shares])

    def read(self, body: Body) -> list[Pose]:
        """The places of all frames of the body, as they are read here."""
        shares = np.arange(self.count) / max(self.count - 1, 1) - 0.5
        told = _scaled(_matrices(body.image_to_body), self.scale)
        made = np.linalg.inv(self.whole) @ self._wandered(shares) @ self.whole @ told @ self.probe
        return [
            Pose.from_matrix(one, old.source, old.target) for one, old in zip(made, body.image_to_body, strict=True)
        ]

    @property
    def each_mm(self) -> Array:
        """How far each frame lies from where it was found (N,)."""
        far: Array = np.linalg.norm(_moved(self.predicted(), self.points) - _moved(self.found, self.points), axis=-1)
        return far.mean(1)

    @property
    def apart_mm(self) -> float:
        return float(np.median(self.each_mm))

    @property
    def probe_size(self) -> tuple[float, float]:
        """Shift of the middle of the image in mm, and turn in degrees."""
        middle = self.points[0].mean(0)
        turned = float(np.clip((np.trace(self.probe[:3, :3]) - 1) / 2, -1, 1))
        shift = self.probe[:3, :3] @ middle + self.probe[:3, 3] - middle
        return float(np.linalg.norm(shift)), math.degrees(math.acos(turned))

    @property
    def drift_size(self) -> tuple[float, float]:
        return float(np.linalg.norm(self.drift[:3])), math.degrees(float(np.linalg.norm(self.drift[3:])))

    def scale_of_lengths(self) -> float:
        """Distances between frames as they were found, over those that are told."""
        pairs = np.triu_indices(len(self.rows), 1)
        places = (_moved(each, self.points).mean(1) for each in (self.found, self.told))
        found, told = (np.linalg.norm(each[:, None] - each[None], axis=-1)[pairs] for each in places)
        far = told >= np.median(told)
        return float(np.median(found[far] / np.maximum(told[far], 1e-9)))

    def on_other_probes(self) -> Iterator[_Fit]:
        """With the image where poses tell it in closed form, and with it turned half about."""
        yield self
        yield replace(self, probe=hand_eye(self.told, self.found).x)
        for turn in _TURNS:
            rotation = Pose.from_euler_deg(turn, (0, 0, 0)).rotation
            yield replace(self, probe=hand_eye_of_turn(self.told, self.found, rotation).x)

    def solved(self, *, on_probe: bool = False, drifting: bool = False, scaled: bool = False) -> _Fit:
        """Least squares from here, in which frames count less the farther they are off."""
        fit = self._begun()
        for scale_mm in _SCALES_MM:
            weights = np.repeat(1 / (1 + (fit.each_mm / scale_mm) ** 2), 3 * self.points.shape[1])
            design, left = fit._equations(on_probe=on_probe, drifting=drifting, scaled=scaled)
            matrix = (design * weights[:, None]).T @ design
            matrix += np.diag(_DAMPING * matrix.diagonal() + 1e-9)
            step = np.linalg.solve(matrix, (design * weights[:, None]).T @ left)
            fit = fit._stepped(step, on_probe=on_probe, drifting=drifting, scaled=scaled)
        return fit

    def _begun(self) -> _Fit:
        """With the body where that frame has it with which most others agree."""
        told = _scaled(self.told, self.scale) @ self.probe
        starts = [replace(self, whole=one) for one in self.found @ np.linalg.inv(told)]
        return min(starts, key=lambda fit: fit.apart_mm)

    def _equations(self, *, on_probe: bool, drifting: bool, scaled: bool) -> tuple[Array, Array]:
        """How points move by a step (N P 3, unknowns), and how far they have to (N P 3,)."""
        poses = self.predicted()
        places = _moved(poses, self.points)
        left = _moved(self.found, self.points) - places
        about = _turning(places - self.middle_mm)
        shifts = np.broadcast_to(np.eye(3), about.shape)
        parts = [shifts, about]
        if on_probe:
            turned = poses[:, None, :3, :3]
            parts += [np.broadcast_to(turned, about.shape), turned @ _turning(self.points - self.points[0].mean(0))]
        if drifting:
            shares = self.shares[:, None, None, None]
            parts += [shares * shifts, shares * about]
        if scaled:
            along = (self.whole[:3, :3] @ self.told[:, :3, 3, None])[..., 0]
            parts.append(np.broadcast_to(along[:, None, :, None], (*places.shape, 1)))
        design = np.concatenate(parts, -1)
        return design.reshape(-1, design.shape[-1]), left.ravel()

    def _stepped(self, step: Array, *, on_probe: bool, drifting: bool, scaled: bool) -> _Fit:
        fit = replace(self, whole=_step(step[:6], self.middle_mm) @ self.whole)
        if on_probe:
            fit = replace(fit, probe=self.probe @ _step(step[6:12], self.points[0].mean(0)))
        if drifting:
            fit = replace(fit, drift=self.drift + step[6:12])
        if scaled:
            fit = replace(fit, scale=self.scale + float(step[6]))
        return fit


def _matrices(poses: list[Pose] | tuple[Pose, ...]) -> Array:
    return np.stack([pose.matrix for pose in poses])


def _scaled(matrices: Array, scale: float) -> Array:
    """With so many times the shifts."""
    scaled = matrices.copy()
    scaled[:, :3, 3] *= scale
    return scaled


def _moved(matrices: Array, points: Array) -> Array:
    """Points (N, P, 3) by matrices (N, 4, 4)."""
    placed: Array = points @ matrices[:, :3, :3].transpose(0, 2, 1) + matrices[:, None, :3, 3]
    return placed


def _turning(arms: Array) -> Array:
    """How points (..., 3) move by a small turn (..., 3, 3): w x arm."""
    x, y, z = np.moveaxis(arms, -1, 0)
    zero = np.zeros_like(x)
    rows = [[zero, z, -y], [-z, zero, x], [y, -x, zero]]
    return np.stack([np.stack(row, -1) for row in rows], -2)


def _step(step: Array, middle: Array) -> Array:
    """A shift, and a turn about a place, as a matrix."""
    made = np.eye(4)
    made[:3, :3] = rotation_from_vector(torch.from_numpy(np.array(step[3:]))[None])[0].numpy()
    made[:3, 3] = middle - made[:3, :3] @ middle + step[:3]
    return made
