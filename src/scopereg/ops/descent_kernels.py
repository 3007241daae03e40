# mypy: disable-error-code="import-untyped, import-not-found"
"""The numba kernel of `ops.descent`: rows of a table read between cells, equations summed up, steps taken."""

from __future__ import annotations

from typing import Any

import numpy as np

from scopereg.ops.scan.cpu_vectors import compiled

# Sums may be taken in any order, so that they fill vectors; what is not a number stays so.
_FREELY = {"reassoc", "contract", "nsz"}


@compiled(fastmath=_FREELY)
def descend(
    first: Any,
    last: Any,
    each: Any,
    table: Any,
    shape: Any,
    start: Any,
    stride: Any,
    vectors: Any,
    weights: Any,
    points: Any,
    steps: Any,
    damping: Any,
    floor: Any,
    sharpness: Any,
    lever: Any,
    longest: Any,
    largest: Any,
    rotation: Any,
    translation: Any,
    sizes: Any,
) -> None:
    """Frames `first` to `last`, `each` in a row for each volume; poses and sizes are changed in place."""
    sample, unknowns = np.empty(table.shape[2], np.float32), len(damping)
    matrix, slope, sized = np.empty((unknowns, unknowns)), np.empty(unknowns), np.empty((3, 3))
    for frame in range(first, last):
        for _ in range(steps):
            for i in range(3):
                sized[i, 0] = rotation[frame, i, 0] * sizes[frame, 0]
                sized[i, 1] = rotation[frame, i, 1] * sizes[frame, 1]
                sized[i, 2] = rotation[frame, i, 2]
            matrix[:], slope[:] = 0.0, 0.0
            _gather(
                *(table[frame // each], shape, start, stride, vectors[frame], weights[frame], points),
                *(sharpness, lever, sized, translation[frame], sample, matrix, slope),
            )
            for i in range(unknowns):
                matrix[i, i] += matrix[i, i] * damping[i] + floor[i]
            _solve(matrix, slope)
            _move(slope[:6], lever, longest, rotation[frame], translation[frame])
            for i in range(6, unknowns):
                sizes[frame, i - 6] *= 1 - max(-largest, min(slope[i] / lever, largest))


@compiled(fastmath=_FREELY)
def _gather(
    table: Any,
    shape: Any,
    start: Any,
    stride: Any,
    vectors: Any,
    weights: Any,
    points: Any,
    sharpness: Any,
    lever: Any,
    rotation: Any,
    translation: Any,
    sample: Any,
    matrix: Any,
    slope: Any,
) -> None:
    """The equations of a step of one frame: mean over its points."""
    count, channels = vectors.shape
    depth, height, width = shape
    among, turned, pushed = np.empty((3, 3)), np.empty((3, 3)), np.empty((3, 8))
    unknowns = len(slope)
    along, own = np.empty(3), np.empty(3)
    for n in range(count):
        if weights[n] == 0:
            continue
        x, y = points[n, 0], points[n, 1]
        cell_x = (rotation[0, 0] * x + rotation[0, 1] * y + translation[0]) / stride - start[2]
        cell_y = (rotation[1, 0] * x + rotation[1, 1] * y + translation[1]) / stride - start[1]
        cell_z = (rotation[2, 0] * x + rotation[2, 1] * y + translation[2]) / stride - start[0]
        inside = 0 <= cell_x <= width - 1 and 0 <= cell_y <= height - 1 and 0 <= cell_z <= depth - 1
        if not inside:
            continue
        low_x, low_y, low_z = (
            min(int(cell_x), max(width - 2, 0)),
            min(int(cell_y), max(height - 2, 0)),
            min(int(cell_z), max(depth - 2, 0)),
        )
        right, down, deep = np.float32(cell_x - low_x), np.float32(cell_y - low_y), np.float32(cell_z - low_z)
        step_x, step_y, step_z = min(1, width - 1), width * min(1, height - 1), width * height * min(1, depth - 1)
        at = (low_z * height + low_y) * width + low_x
        one = np.float32(1)
        a, b = (one - deep) * (one - down), (one - deep) * down
        c, d = deep * (one - down), deep * down
        rows = (at, at + step_y, at + step_z, at + step_z + step_y)
        _read(table, rows, step_x, (a, b, c, d), right, sample)
        apart = np.float32(0)
        for k in range(channels):
            sample[k] -= vectors[n, k]
            apart += sample[k] * sample[k]
        weight = weights[n] / (1 + np.exp(-np.float64(sample[channels]))) / (1 + apart * sharpness)
        _products(sample, channels, among, along)
        # From the volume's axes to the frame's.
        for i in range(3):
            for j in range(3):
                turned[i, j] = (
                    among[i, 0] * rotation[0, j] + among[i, 1] * rotation[1, j] + among[i, 2] * rotation[2, j]
                )
            own[i] = rotation[0, i] * along[0] + rotation[1, i] * along[1] + rotation[2, i] * along[2]
        x, y = x / lever, y / lever
        for i in range(3):
            for j in range(3):
                pushed[i, j] = (
                    rotation[0, i] * turned[0, j] + rotation[1, i] * turned[1, j] + rotation[2, i] * turned[2, j]
                )
            # A turn moves a point by the cross product with its axis.
            pushed[i, 3] = y * pushed[i, 2]
            pushed[i, 4] = -x * pushed[i, 2]
            pushed[i, 5] = x * pushed[i, 1] - y * pushed[i, 0]
            # A stretch moves it along its own axis.
            pushed[i, 6] = x * pushed[i, 0]
            pushed[i, 7] = y * pushed[i, 1]
        for j in range(unknowns):
            matrix[0, j] += weight * pushed[0, j]
            matrix[1, j] += weight * pushed[1, j]
            matrix[2, j] += weight * pushed[2, j]
            matrix[3, j] += weight * y * pushed[2, j]
            matrix[4, j] -= weight * x * pushed[2, j]
            matrix[5, j] += weight * (x * pushed[1, j] - y * pushed[0, j])
        slope[0] += weight * own[0]
        slope[1] += weight * own[1]
        slope[2] += weight * own[2]
        slope[3] += weight * y * own[2]
        slope[4] -= weight * x * own[2]
        slope[5] += weight * (x * own[1] - y * own[0])
        if unknowns > 6:
            for j in range(unknowns):
                matrix[6, j] += weight * x * pushed[0, j]
                matrix[7, j] += weight * y * pushed[1, j]
            slope[6] += weight * x * own[0]
            slope[7] += weight * y * own[1]
    matrix /= count
    slope /= count


@compiled(fastmath=_FREELY)
def _read(table: Any, rows: Any, step: Any, shares: Any, right: Any, sample: Any) -> None:
    """The row of a place between eight cells: four pairs along x, each with its share."""
    left = np.float32(1) - right
    a0, a1 = shares[0] * left, shares[0] * right
    b0, b1 = shares[1] * left, shares[1] * right
    c0, c1 = shares[2] * left, shares[2] * right
    d0, d1 = shares[3] * left, shares[3] * right
    r0, r1, r2, r3 = rows
    for k in range(len(sample)):
        sample[k] = (
            a0 * table[r0, k]
            + a1 * table[r0 + step, k]
            + b0 * table[r1, k]
            + b1 * table[r1 + step, k]
            + c0 * table[r2, k]
            + c1 * table[r2 + step, k]
            + d0 * table[r3, k]
            + d1 * table[r3 + step, k]
        )


@compiled(fastmath=_FREELY)
def _products(sample: Any, channels: Any, among: Any, along: Any) -> None:
    """Of the slopes along x, y, z with each other, and with how far features are apart."""
    at_x, at_y, at_z = channels + 1, 2 * channels + 1, 3 * channels + 1
    xx = xy = xz = yy = yz = zz = x = y = z = np.float32(0)
    for k in range(channels):
        by_x, by_y, by_z, apart = sample[at_x + k], sample[at_y + k], sample[at_z + k], sample[k]
        xx += by_x * by_x
        xy += by_x * by_y
        xz += by_x * by_z
        yy += by_y * by_y
        yz += by_y * by_z
        zz += by_z * by_z
        x += by_x * apart
        y += by_y * apart
        z += by_z * apart
    among[0, 0], among[0, 1], among[0, 2] = xx, xy, xz
    among[1, 0], among[1, 1], among[1, 2] = xy, yy, yz
    among[2, 0], among[2, 1], among[2, 2] = xz, yz, zz
    along[0], along[1], along[2] = x, y, z


@compiled()
def _solve(matrix: Any, right: Any) -> None:
    """Gauss and Jordan's elimination of a positive definite matrix, which needs no pivoting; `right` becomes x."""
    count = len(right)
    for k in range(count):
        pivot = matrix[k, k]
        for j in range(count):
            matrix[k, j] /= pivot
        right[k] /= pivot
        for i in range(count):
            if i != k:
                factor = matrix[i, k]
                for j in range(count):
                    matrix[i, j] -= factor * matrix[k, j]
                right[i] -= factor * right[k]


@compiled()
def _move(found: Any, lever: Any, longest: Any, rotation: Any, translation: Any) -> None:
    """A pose after the step against what was found, no longer than allowed: see `geometry.steps.moved`."""
    length = np.sqrt((found * found).sum())
    share = -longest / max(length, longest)
    shift, turn = share * found[:3], share * found[3:] / lever
    for i in range(3):
        translation[i] += rotation[i, 0] * shift[0] + rotation[i, 1] * shift[1] + rotation[i, 2] * shift[2]
    angle = np.sqrt((turn * turn).sum())
    sine, cosine = 1.0, 0.5  # sin a / a and (1 - cos a) / a^2 at zero
    if angle > 1e-8:
        sine, half = np.sin(angle) / angle, np.sin(angle / 2) / (angle / 2)
        cosine = half * half / 2
    x, y, z = turn
    cross = np.array([[0.0, -z, y], [z, 0.0, -x], [-y, x, 0.0]])
    before = rotation.copy()
    for i in range(3):
        for j in range(3):
            total = 0.0
            for k in range(3):
                square = 0.0
                for m in range(3):
                    square += cross[k, m] * cross[m, j]
                total += before[i, k] * ((1.0 if k == j else 0.0) + sine * cross[k, j] + cosine * square)
            rotation[i, j] = total
