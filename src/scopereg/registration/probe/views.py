"""Views: a volume with its axes in another order, so that frames that lie across its planes are sought along them.

Features know frames that are tilted little against the planes of a volume. Which way frames lie in the volume of a
phantom nobody knows: its planes may be those of a scanner, or of a tracker's world. No voxel is changed.
"""

from __future__ import annotations

import numpy as np

from scopereg.images import Volume

VIEWS = (  # which axis each of x, y, z is, and its sign: frames along three planes, seen from both sides
    ((0, 1, 2), (1, 1, 1)),
    ((2, 0, 1), (1, 1, 1)),
    ((1, 2, 0), (1, 1, 1)),
    ((0, 1, 2), (-1, 1, -1)),
    ((2, 0, 1), (-1, 1, -1)),
    ((1, 2, 0), (-1, 1, -1)),
)


def view_of(volume: Volume, number: int) -> Volume:
    """The volume in the same place, its axes as one of `VIEWS` has them."""
    if number == 0:
        return volume
    axes, signs = VIEWS[number]
    array = volume.array.permute([2 - axis for axis in reversed(axes)])
    array = array.flip([2 - place for place, sign in enumerate(signs) if sign < 0]).contiguous()
    direction = np.stack([sign * volume.direction[:, axis] for axis, sign in zip(axes, signs, strict=True)], 1)
    spacing = [volume.spacing_mm[axis] for axis in axes]
    size = np.array(array.shape[::-1])
    first = volume.centre_mm - direction @ ((size - 1) / 2 * spacing)
    return Volume(array, spacing, first.tolist(), direction, frame_of_reference=volume.frame_of_reference)
