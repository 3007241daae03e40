"""Displacement: how far the points of a frame lie from where its rigid pose puts them; and Deformation, all of that."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from scopereg.geometry import Pose
from scopereg.geometry.spline import PlaneSpline
from scopereg.images import Frame

if TYPE_CHECKING:
    from scopereg.io.transforms import Convention

Array = npt.NDArray[np.float64]

_APART = 8  # points of a field for each step between knots
_LONGEST_MM = 2.0  # step between these
_PLANES = 5  # of a field, across the frame
_ROOM_MM = 2.0  # beyond what is displaced
_LINES, _POINTS = 10, 5  # of a grid along the longer side, and points of a line between two of the other way
DRAWN = 3.0  # times as large as they are displacements are drawn, or nobody would see them
_ROUNDS = 60  # of the search for the point that was displaced to a place
_NEAR_MM = 1e-7  # of it
_SMALLER = 0.8  # what is left of a displacement that would fold, as often as need be


class Line(NamedTuple):
    """A line of a grid over the frame, in its own mm."""

    rest: Array  # (N, 2) where it was
    moved_mm: Array  # (N, 3) how far its points are displaced

    def drawn(self, factor: float) -> Array:
        """Where it is, with displacements in the plane drawn so many times as large."""
        there: Array = self.rest + factor * self.moved_mm[:, :2]
        return there


class Field(NamedTuple):
    """A displacement in a slab about the plane of a frame, on a lattice along the frame's axes."""

    vectors_mm: Array  # (planes, rows, columns, 3)
    first_mm: tuple[float, float, float]  # x, y, z of the first point
    step_mm: tuple[float, float, float]


@dataclass(frozen=True, eq=False)
class Displacement:
    """A smooth displacement of points of a frame's plane, in its own mm: x, y and off the plane, the same across it."""

    spline: PlaneSpline
    values_mm: Array  # (knots, 3)

    @classmethod
    def none(cls, spline: PlaneSpline) -> Displacement:
        """Everything stays where it is."""
        return cls(spline, np.zeros((spline.knots, 3)))

    def at(self, points_mm: Array) -> Array:
        """Displacements (N, 3) of points (N, 2 or 3). Beyond the frame those of its border go on."""
        return self._sums(points_mm, (0, 0))

    def slopes(self, points_mm: Array) -> Array:
        """How they change (N, 3, 2) along x and y."""
        return np.stack([self._sums(points_mm, (1, 0)), self._sums(points_mm, (0, 1))], 2)

    def jacobian(self, points_mm: Array) -> Array:
        """By how much areas of the plane grow (N); volumes alike, for nothing changes across it. 0 and less: a fold."""
        slopes = self.slopes(points_mm)
        stretched: Array = (1 + slopes[:, 0, 0]) * (1 + slopes[:, 1, 1]) - slopes[:, 0, 1] * slopes[:, 1, 0]
        return stretched

    def back(self, points_mm: Array) -> Array:
        """The points (N, 3) that are displaced to these, by a fixed point; without folds there is one for each."""
        found = np.array(points_mm, float)
        for _ in range(_ROUNDS):
            step = points_mm - self.at(found) - found
            found += step
            if np.abs(step).max(initial=0) < _NEAR_MM:
                break
        return found

    def unfolded(self, points_mm: Array, least: float) -> Displacement:
        """The same, made smaller until no area about these points shrinks to less than the `least` share of itself."""
        made = self
        while made.jacobian(points_mm).min() < least:
            made = Displacement(self.spline, made.values_mm * _SMALLER)
        return made

    def _sums(self, points_mm: Array, along: tuple[int, int]) -> Array:
        ends = zip(*self.spline.box_mm, strict=True)
        held = np.stack([points_mm[:, axis].clip(low, high) for axis, (low, high) in enumerate(ends)], 1)
        basis = self.spline.basis(torch.from_numpy(held), along).numpy()
        sums: Array = basis @ self.values_mm
        return sums


@dataclass(frozen=True, eq=False)
class Deformation:
    """What a rigid pose leaves: a point p of the frame shows the tissue at pose(step(p + displacement(p))).

    The displacement has no rigid part. Where the frame would lie a little elsewhere if it is taken for deformed, the
    `step` tells: the pose itself, which the verdict is on, stays as it is.
    """

    displacement: Displacement
    step: Pose  # ImageToImage
    significance: float  # logarithm of how much likelier what is seen becomes by it
    least_significance: float  # below which nothing is displaced
    spread_mm: float  # usual size of a displacement, as what is seen lets expect; 0 where none is significant
    low_mm: tuple[float, float]  # the frame's border
    high_mm: tuple[float, float]
    seen_mm: Array  # (N, 2) points of its field of view

    @property
    def is_significant(self) -> bool:
        """Whether anything is displaced at all."""
        return self.spread_mm > 0

    def apply(self, points_mm: Array) -> Array:
        """Where points (N, 3) of the frame lie before the pose puts them into the volume."""
        moved: Array = self.step.apply(points_mm + self.displacement.at(points_mm))
        return moved

    def undo(self, points_mm: Array) -> Array:
        """The points that `apply` brings to these (N, 3)."""
        return self.displacement.back(self.step.inverse().apply(points_mm))

    def grid(self) -> list[Line]:
        """Lines across and down over the frame, as far apart as they are easily told apart, displaced."""
        lengths = np.subtract(self.high_mm, self.low_mm)
        step = float(lengths.max()) / _LINES
        lines = []
        for along, aside in ((0, 1), (1, 0)):
            count, points = (max(round(float(lengths[axis]) / step), 1) for axis in (aside, along))
            for place in np.linspace(self.low_mm[aside], self.high_mm[aside], count + 1):
                rest = np.empty((points * _POINTS + 1, 2))
                rest[:, along] = np.linspace(self.low_mm[along], self.high_mm[along], len(rest))
                rest[:, aside] = place
                lines.append(Line(rest, self.displacement.at(rest)))
        return lines

    def field(self, *, inverse: bool = False) -> Field:
        """`apply` as a field of displacements, or `undo`, with room for every point of the frame on either way."""
        corners = np.stack([*np.meshgrid(*zip(self.low_mm, self.high_mm, strict=True)), np.zeros((2, 2))], -1)
        reach = np.abs(self.apply(self.seen_mm3) - self.seen_mm3).max(0)
        reach = np.maximum(reach, np.abs(self.step.apply(corners.reshape(-1, 3)) - corners.reshape(-1, 3)).max(0))
        room = reach + _ROOM_MM
        own = min(self.displacement.spline.step_mm / _APART, _LONGEST_MM)
        axes = [
            _axis(low - space, high + space, own)
            for low, high, space in zip((*self.low_mm, 0.0), (*self.high_mm, 0.0), room, strict=True)
        ]
        axes[2] = np.linspace(-room[2], room[2], _PLANES)
        z, y, x = np.meshgrid(*reversed(axes), indexing="ij")
        points = np.stack([x, y, z], -1).reshape(-1, 3)
        moved = (self.undo(points) if inverse else self.apply(points)) - points
        first, step = zip(*((float(axis[0]), float(axis[1] - axis[0])) for axis in axes), strict=True)
        return Field(moved.reshape(*x.shape, 3), first, step)

    def save(self, path: Path | str, *, convention: Convention = "slicer") -> Path:
        """Write it as ITK's displacement field (.h5, or .tfm as text), to be applied before the pose of the frame.

        In the convention `itk-resample` the file holds `apply`, in `slicer` `undo`, as the file of the pose does.
        """
        field = self.field(inverse=convention == "slicer")
        from scopereg.io.displacements import write_displacement_field  # files need SimpleITK, numbers do not

        return write_displacement_field(*field, path)

    @property
    def seen_mm3(self) -> Array:
        """The points of its field of view in space."""
        return np.pad(self.seen_mm, ((0, 0), (0, 1)))

    @property
    def facts(self) -> dict[str, Any]:
        """How large it is, ready for JSON: over the frame's field of view, without the step."""
        moved = self.displacement.at(self.seen_mm)
        lengths, jacobian = np.linalg.norm(moved, axis=1), self.displacement.jacobian(self.seen_mm)
        step = np.linalg.norm(self.step.apply(self.seen_mm3) - self.seen_mm3, axis=1)
        turn = math.degrees(math.acos(min(max((float(np.trace(self.step.rotation)) - 1) / 2, -1.0), 1.0)))
        return {
            "significant": self.is_significant,
            "significance": round(self.significance, 3),
            "least_significance": self.least_significance,
            "mean_mm": _rounded(lengths.mean()),
            "max_mm": _rounded(lengths.max()),
            "in_plane_mm": _rounded(np.linalg.norm(moved[:, :2], axis=1).mean()),
            "out_of_plane_mm": _rounded(np.abs(moved[:, 2]).mean()),
            "jacobian": [_rounded(jacobian.min()), _rounded(jacobian.max())],
            "folds": int((jacobian <= 0).sum()),
            "step_mm": _rounded(step.mean()),
            "step_deg": _rounded(turn),
            "knots_mm": _rounded(self.displacement.spline.step_mm),
        }

    @property
    def words(self) -> str:
        """The same in a line."""
        if not self.is_significant:
            return "none that stands out from the noise; the rigid pose is all there is to say"
        told = self.facts
        low, high = told["jacobian"]
        return (
            f"{told['mean_mm']:.1f} mm on average, {told['max_mm']:.1f} mm at most, of which "
            f"{told['out_of_plane_mm']:.1f} mm off the plane; areas change by factors of {low:.2f} to {high:.2f}; "
            f"beside it the frame would lie {told['step_mm']:.1f} mm elsewhere"
        )


def border_mm(frame: Frame) -> tuple[tuple[float, float], tuple[float, float]]:
    """The first and the last pixel of a frame, in its own mm."""
    low = (float(frame.origin_mm[0]), float(frame.origin_mm[1]))
    return low, (low[0] + frame.extent_mm[0], low[1] + frame.extent_mm[1])


def _axis(low: float, high: float, step: float) -> Array:
    """Evenly spaced places from end to end, no farther apart than a step."""
    return np.linspace(low, high, max(math.ceil((high - low) / step), 1) + 1)


def _rounded(value: float) -> float:
    return round(float(value), 4)
