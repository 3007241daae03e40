# mypy: disable-error-code="import-untyped, import-not-found, untyped-decorator"
"""The numba kernels of `splat`, imported by it alone.

Conditions within the loops over neighbours, not bounds of them: these would not be unrolled, and take twice as long.
"""

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
        ax, ay, az = points[0, n] - np.float32(x), points[1, n] - np.float32(y), points[2, n] - np.float32(z)
        value = values[n]
        for dz in range(2):
            k = z + dz
            if k < 0 or k >= depth:
                continue
            wz = weight * (az if dz else one - az)
            for dy in range(2):
                j = y + dy
                if j < low or j >= high:
                    continue
                share = wz * (ay if dy else one - ay)
                near, far = share * (one - ax), share * ax
                if x >= 0:
                    totals[k, j, x, 0] += near * value
                    totals[k, j, x, 1] += near
                if x + 1 < width:
                    totals[k, j, x + 1, 0] += far * value
                    totals[k, j, x + 1, 1] += far


@compiled()
def peak_kernel(peaks: Floats, points: Floats, values: Floats, low: int, high: int, least: float) -> None:
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
        ax, ay, az = points[0, n] - np.float32(x), points[1, n] - np.float32(y), points[2, n] - np.float32(z)
        value = values[n]
        for dz in range(2):
            k = z + dz
            if k < 0 or k >= depth:
                continue
            wz = az if dz else one - az
            for dy in range(2):
                j = y + dy
                if j < low or j >= high:
                    continue
                share = wz * (ay if dy else one - ay)
                if x >= 0 and share * (one - ax) >= least and value > peaks[k, j, x]:
                    peaks[k, j, x] = value
                if x + 1 < width and share * ax >= least and value > peaks[k, j, x + 1]:
                    peaks[k, j, x + 1] = value
