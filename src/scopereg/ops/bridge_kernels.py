# mypy: disable-error-code="import-untyped, import-not-found, untyped-decorator"
"""The numba kernel of `bridges`, imported by it alone."""

from __future__ import annotations

from typing import Any

import numpy as np

from scopereg.ops.scan.cpu_vectors import Floats, compiled


@compiled()
def bridge_kernel(
    values: Floats, solid: Any, gaps: Any, first: int, last: int, start: int, stop: int, most: int
) -> None:
    """Lines along the middle axis of all three (L, N, B): blocks `first` to `last`, and in each `start` to `stop`."""
    length = values.shape[1]
    for block in range(first, last):
        end = np.full(stop - start, -1, np.int32)  # the last solid voxel of each line so far
        for n in range(length):
            for b in range(start, stop):
                if not solid[block, n, b]:
                    continue
                before = end[b - start]
                gap = n - before
                end[b - start] = n
                if before < 0 or gap < 2 or gap > most + 1:
                    continue
                low, step = values[block, before, b], values[block, n, b] - values[block, before, b]
                for k in range(before + 1, n):
                    if gaps[block, k, b] == 0 or gap < gaps[block, k, b]:
                        gaps[block, k, b] = gap
                        values[block, k, b] = low + np.float32(k - before) / np.float32(gap) * step
