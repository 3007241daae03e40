# mypy: disable-error-code="import-untyped, import-not-found, untyped-decorator"
"""The numba kernel of `correlation`, imported by it alone."""

from __future__ import annotations

import math

import numpy as np

from scopereg.ops.scan.cpu_vectors import Floats, compiled


@compiled()
def correlation_kernel(
    volume: Floats,
    points: Floats,
    values: Floats,
    shifts: Floats,
    found: Floats,
    covered: Floats,
    first: int,
    last: int,
    even: float,
) -> None:
    """Shifts `first` to `last`; `found` and `covered` are filled in place."""
    depth, height, width = volume.shape
    one, count = np.float32(1), points.shape[1]
    for s in range(first, last):
        known, sum_a, sum_b, sum_aa, sum_bb, sum_ab = 0, 0.0, 0.0, 0.0, 0.0, 0.0
        for n in range(count):
            px, py, pz = points[0, n] + shifts[s, 0], points[1, n] + shifts[s, 1], points[2, n] + shifts[s, 2]
            x, y, z = math.floor(px), math.floor(py), math.floor(pz)
            if x < 0 or y < 0 or z < 0 or x + 1 >= width or y + 1 >= height or z + 1 >= depth:
                continue
            ax, ay, az = px - np.float32(x), py - np.float32(y), pz - np.float32(z)
            bx, by = one - ax, one - ay
            near, far = volume[z], volume[z + 1]
            low = by * (bx * near[y, x] + ax * near[y, x + 1]) + ay * (bx * near[y + 1, x] + ax * near[y + 1, x + 1])
            high = by * (bx * far[y, x] + ax * far[y, x + 1]) + ay * (bx * far[y + 1, x] + ax * far[y + 1, x + 1])
            seen = (one - az) * low + az * high
            if math.isnan(seen):
                continue
            a, b = float(seen), float(values[n])
            known += 1
            sum_a += a
            sum_b += b
            sum_aa += a * a
            sum_bb += b * b
            sum_ab += a * b
        covered[s] = known / count if count else 0.0
        if known:
            mean_a, mean_b = sum_a / known, sum_b / known
            spread = (sum_aa / known - mean_a * mean_a) * (sum_bb / known - mean_b * mean_b)
            if spread > even:
                found[s] = (sum_ab / known - mean_a * mean_b) / math.sqrt(spread)
