# mypy: disable-error-code="import-untyped, import-not-found, untyped-decorator"
"""The numba kernels of `splat`, imported by it alone."""

from __future__ import annotations

import math

import numpy as np

from scopereg.ops.scan.cpu_vectors import Floats, compiled


@compiled()
def splat_kernel(totals: Floats, points: Floats, values: Floats, low: int, high: int, weight: float) -> None:
    """Totals (D, H, W, 2) in rows `low` to `high` of y alone: no two threads write to the same voxel."""
    depth, _, width = totals.shape[:3]
    one, weight = np.float32(1), np.float32(weight)
    for n in range(points.shape[1]):
        y = math.floor(points[1, n])
        if y < low - 1 or y >= high:
            continue
        x, z = math.floor(points[0, n]), math.floor(points[2, n])
        if x < -1 or x >= width or z < -1 or z >= depth:
            continue
        ax, ay, az = (
            points[0, n] - np.float32(x),
            points[1, n] - np.float32(y),
            points[2, n] - np.float32(z),
        )
        for dz in range(max(0, -z), min(2, depth - z)):
            wz = weight * (az if dz else one - az)
            for dy in range(max(0, low - y), min(2, high - y)):
                share = wz * (ay if dy else one - ay)
                row = totals[z + dz, y + dy]
                if x >= 0:
                    row[x, 0] += share * (one - ax) * values[n]
                    row[x, 1] += share * (one - ax)
                if x + 1 < width:
                    row[x + 1, 0] += share * ax * values[n]
                    row[x + 1, 1] += share * ax


@compiled()
def peak_kernel(peaks: Floats, points: Floats, values: Floats, low: int, high: int, near: float) -> None:
    """Peaks (D, H, W) in rows `low` to `high` of y alone."""
    depth, _, width = peaks.shape
    one = np.float32(1)
    for n in range(points.shape[1]):
        y = math.floor(points[1, n])
        if y < low - 1 or y >= high:
            continue
        x, z = math.floor(points[0, n]), math.floor(points[2, n])
        if x < -1 or x >= width or z < -1 or z >= depth:
            continue
        ax, ay, az = (
            points[0, n] - np.float32(x),
            points[1, n] - np.float32(y),
            points[2, n] - np.float32(z),
        )
        for dz in range(max(0, -z), min(2, depth - z)):
            wz = az if dz else one - az
            for dy in range(max(0, low - y), min(2, high - y)):
                share = wz * (ay if dy else one - ay)
                for dx in range(max(0, -x), min(2, width - x)):
                    if share * (ax if dx else one - ax) >= near and values[n] > peaks[z + dz, y + dy, x + dx]:
                        peaks[z + dz, y + dy, x + dx] = values[n]
