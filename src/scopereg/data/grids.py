"""Grids: volumes brought to other voxel sizes and shapes along their own axes, mirrored where they end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from scopereg.errors import ScopeRegError

Array = npt.NDArray[Any]
PERCENTILES = (1.0, 99.0)


def centred_start(size: int, step: float, count: int) -> float:
    """First position, in old voxels, of `count` new voxels with their middle on the middle of the old axis."""
    return (size - 1) / 2 - step * (count - 1) / 2


def regrid(array: Array, starts: Sequence[float], steps: Sequence[float], counts: Sequence[int]) -> Array:
    """Float32 values at positions start + step k of each axis, in old voxels.

    A coarser grid averages what each new voxel covers, a finer one interpolates linearly. Beyond its ends the array is
    mirrored.
    """
    values = array.astype(np.float32)
    # The axis that shrinks most comes first: less is left for the others.
    for axis in sorted(range(array.ndim), key=lambda a: counts[a] / array.shape[a]):
        values = _blended(values, _weights(starts[axis], steps[axis], counts[axis], values.shape[axis]), axis)
    return np.ascontiguousarray(values)


def regrid_labels(array: Array, starts: Sequence[float], steps: Sequence[float], counts: Sequence[int]) -> Array:
    """The nearest label at each of these positions, as uint8."""
    values = array
    for axis, (start, step, count) in enumerate(zip(starts, steps, counts, strict=True)):
        nearest = np.ceil(start + step * np.arange(count) - 0.5 - 1e-6).astype(np.int64)
        values = np.take(values, mirrored(nearest, values.shape[axis]), axis)
    return np.ascontiguousarray(values, np.uint8)


def mirrored(index: npt.NDArray[np.int64], size: int) -> npt.NDArray[np.int64]:
    """Indices of any whole numbers folded into 0 .. size - 1, the edge voxel repeated."""
    folded = index % (2 * size)
    return np.where(folded < size, folded, 2 * size - 1 - folded)


def inner(shape: Sequence[int], margin: Sequence[int]) -> tuple[slice, ...]:
    """Slices that leave out a margin on each side of each axis."""
    return tuple(slice(m, n - m) for n, m in zip(shape, margin, strict=True))


def to_uint8(values: Array, field: tuple[slice, ...], where: str) -> npt.NDArray[np.uint8]:
    """Values scaled so that the 1st and 99th percentile of the reference field become 0 and 255."""
    low, high = np.percentile(values[field], PERCENTILES)
    if not high > low:
        raise ScopeRegError(
            f"the image is empty: 98 % of its voxels are {low:g}",
            where=where,
            fix="check that the file holds an image and that the field lies on it",
        )
    scaled = (values - low) * (255 / (high - low))
    pixels: npt.NDArray[np.uint8] = scaled.clip(0, 255).round().astype(np.uint8)
    return pixels


def as_label_bytes(array: Array, where: str, highest: int = 255) -> npt.NDArray[np.uint8]:
    """Class numbers as uint8; fractions, negative numbers and classes above `highest` are refused."""
    labels: npt.NDArray[np.uint8] = array.clip(0, 255).astype(np.uint8)
    if not np.array_equal(labels, array) or int(labels.max()) > highest:
        raise ScopeRegError(
            f"labels run from {array.min():g} to {array.max():g}",
            where=where,
            fix=f"use whole class numbers from 0 to {highest}",
        )
    return labels


def _weights(start: float, step: float, count: int, size: int) -> npt.NDArray[np.float32]:
    """Row k holds the share of each old voxel in new voxel k, by how much of it the new one covers."""
    position = start + step * np.arange(count)[:, None]
    half = max(step, 1.0) / 2  # never narrower than an old voxel: covering one of them shifted is linear interpolation
    reach = np.arange(np.floor(position[0, 0] - half), np.ceil(position[-1, 0] + half) + 1)
    cover = np.minimum(position + half, reach + 0.5) - np.maximum(position - half, reach - 0.5)
    weights = np.zeros((size, count))
    np.add.at(weights, mirrored(reach.astype(np.int64), size), cover.clip(0).T)
    weights = np.where(weights > 1e-6 * half, weights, 0)
    return (weights / weights.sum(0)).T.astype(np.float32)


def _blended(values: Array, weights: npt.NDArray[np.float32], axis: int) -> Array:
    """Values along an axis summed with weights (new, old), few of which are not 0.

    Voxel by voxel and not as a matrix product, whose sums, and so the bytes of a set, depend on the number of threads.
    """
    order = np.argsort(weights == 0, axis=1, kind="stable")[:, : int((weights != 0).sum(1).max())]
    shares = np.take_along_axis(weights, order, 1)
    column = [1] * values.ndim
    column[axis] = len(weights)
    total = np.zeros((*values.shape[:axis], len(weights), *values.shape[axis + 1 :]), np.float32)
    for old, share in zip(order.T, shares.T, strict=True):
        total += np.take(values, old, axis) * share.reshape(column)
    return total
