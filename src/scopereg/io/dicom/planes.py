"""Parallel planes stacked to a volume: sorted by position, evenly spaced, none missing, none twice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from scopereg.errors import ScopeRegError

Array = npt.NDArray[np.float64]
_PARALLEL = 1e-3  # difference between direction cosines that rounding in headers explains
_SKEW = 5e-3  # length or cosine of axes beyond what rounding to two decimals explains
_UNEVEN = 0.02  # share of a step by which distances between planes may differ
_ROUNDING_MM = 2e-3  # of positions written with two or three decimals
_SHEAR = 0.01  # sideways drift per step forward, from which the volume is a sheared one


class Stack(NamedTuple):
    """A volume made of planes."""

    order: list[int]  # planes from the first to the last along z
    origin_mm: Array  # (3,)
    direction: Array  # columns are the x, y and z axes
    step_mm: float  # between planes


def stack_planes(positions_mm: Array, axes: Array, names: Sequence[str], where: str) -> Stack:
    """Order planes with first pixels at `positions_mm` (N, 3) and rows and columns along `axes` (N, 6).

    z runs along rows x columns, so that the axes are right-handed. Planes that turn, lie on each other, leave gaps or
    drift sideways are refused, named by `names`.
    """
    if len(positions_mm) < 2:
        raise ScopeRegError("it is a single slice, not a volume", where=where, fix="pass the folder with all slices")
    turned = np.abs(axes - axes[0]).max(1)
    if turned.max() > _PARALLEL:
        raise ScopeRegError(
            f"the slices are not parallel: {names[int(turned.argmax())]} is turned against {names[0]}",
            where=where,
            fix="pass the slices of one stack: scouts and other planes belong into folders of their own",
        )
    x_axis, y_axis = axes.mean(0)[:3], axes.mean(0)[3:]
    direction = _square_axes(x_axis, y_axis, where)
    along = positions_mm @ direction[:, 2]
    order = [int(row) for row in np.argsort(along, kind="stable")]
    _check_steps(along[order], [names[row] for row in order], where)
    first, last = positions_mm[order[0]], positions_mm[order[-1]]
    step = float((along[order[-1]] - along[order[0]]) / (len(order) - 1))
    aside = np.linalg.norm(direction[:, :2].T @ (last - first)) / (along[order[-1]] - along[order[0]])
    if aside > _SHEAR:
        raise ScopeRegError(
            f"the slices are shifted sideways by {aside:.3f} mm per mm: the volume is sheared (a tilted gantry)",
            where=where,
            fix="resample it to a square grid first, for example with 3D Slicer or dcm2niix",
        )
    return Stack(order, first, direction, step)


def _square_axes(x_axis: Array, y_axis: Array, where: str) -> Array:
    """Axes x, y, z as columns: the nearest square ones, as headers round them."""
    lengths = np.linalg.norm([x_axis, y_axis], axis=1)
    if np.abs(lengths - 1).max() > _SKEW or abs(float(x_axis @ y_axis)) > _SKEW:
        raise ScopeRegError(
            f"rows and columns are no directions at right angles: {np.round(x_axis, 4)} and {np.round(y_axis, 4)}",
            where=where,
            fix="export the images again",
        )
    left, _, right = np.linalg.svd(np.stack([x_axis, y_axis, np.cross(x_axis, y_axis)], 1))
    direction: Array = left @ right
    return direction


def _check_steps(along: Array, names: Sequence[str], where: str) -> None:
    steps = np.diff(along)
    usual = float(np.median(steps))
    same = np.flatnonzero(steps < max(_ROUNDING_MM / 2, 0.01 * usual))
    if len(same):
        one, other = names[same[0]], names[same[0] + 1]
        raise ScopeRegError(
            f"{len(same)} slices lie where another one does: {one} and {other}",
            where=where,
            fix="keep one of several copies, phases or time points",
        )
    uneven = np.abs(steps - usual)
    worst = int(uneven.argmax())
    if uneven[worst] > max(_UNEVEN * usual, _ROUNDING_MM):
        raise ScopeRegError(
            f"slices are missing or uneven: {names[worst]} and {names[worst + 1]} are {steps[worst]:.3g} mm apart, "
            f"most are {usual:.3g} mm",
            where=where,
            fix="copy the whole series again",
        )
