# mypy: disable-error-code="import-untyped, import-not-found, untyped-decorator"
"""The numba kernel of `shifts`, imported by it alone."""

from __future__ import annotations

import math

import numpy as np

from scopereg.ops.scan.cpu_vectors import Floats, compiled


@compiled(fastmath=True)
def shifted_sums_kernel(tables: Floats, shifts: Floats, sums: Floats, first: int, last: int) -> None:
    """Sums (R, D, H, W) from `first` to `last`; tables (N, D + 1, H + 1, W + 1) have a border that counts for nothing.

    A row of a sum stays in the cache while the four rows of a table that it takes run by.
    """
    depth, height, width = sums.shape[1:]
    one = np.float32(1)
    for r in range(first, last):
        for n in range(len(tables)):
            ix, iy, iz = (math.floor(shifts[r, n, 0]), math.floor(shifts[r, n, 1]), math.floor(shifts[r, n, 2]))
            ax, ay, az = (
                np.float32(shifts[r, n, 0] - ix),
                np.float32(shifts[r, n, 1] - iy),
                np.float32(shifts[r, n, 2] - iz),
            )
            bx = one - ax
            wa, wb, wc, wd = (one - ay) * (one - az), ay * (one - az), (one - ay) * az, ay * az
            # The last cell is read between it and the border only where the shift is whole.
            left, right = max(0, -ix), min(width, width - ix - (ax > 0))
            count = right - left
            for z in range(max(0, -iz), min(depth, depth - iz - (az > 0))):
                for y in range(max(0, -iy), min(height, height - iy - (ay > 0))):
                    row = sums[r, z, y, left:right]
                    start = left + ix
                    a = tables[n, z + iz, y + iy, start:]
                    b = tables[n, z + iz, y + iy + 1, start:]
                    c = tables[n, z + iz + 1, y + iy, start:]
                    d = tables[n, z + iz + 1, y + iy + 1, start:]
                    for x in range(count):
                        row[x] += bx * (wa * a[x] + wb * b[x] + wc * c[x] + wd * d[x]) + ax * (
                            wa * a[x + 1] + wb * b[x + 1] + wc * c[x + 1] + wd * d[x + 1]
                        )
