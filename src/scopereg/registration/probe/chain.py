"""Chain: an image on a probe, the probe in a tracker's world, that world in the volume; and steps of all of them.

A frame is predicted at Z T X: X is `ImageToProbe` without the size of pixels, T the tracker's `ProbeToWorld`, Z
`WorldToVolume`. A step has three shifts and three turns of X, about the middle of the image and in its axes; as many of
Z, for each world, about the middle of its frames; and two stretches of the pixels. All are in mm: turns and stretches
are ways of a point at a lever, so that a unit of each moves points of a frame about equally far.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import torch

from scopereg.geometry import rotation_from_vector, target_points, vector_from_rotation

Array = npt.NDArray[np.float64]
Rows = npt.NDArray[np.intp]

OF_X = 6  # numbers of a step of X, and of each Z
STRETCHES = 2


@dataclass(frozen=True, eq=False)
class Grid:
    """The pixels of the frames, all of one size; mm count from the first of them."""

    shape: tuple[int, int]  # H, W
    spacing_mm: tuple[float, float]  # x, y

    @property
    def middle_mm(self) -> Array:
        height, width = self.shape
        return np.array([(width - 1) / 2 * self.spacing_mm[0], (height - 1) / 2 * self.spacing_mm[1], 0.0])

    @property
    def lever_mm(self) -> float:
        """Distance of the pixels from the middle, root mean square."""
        height, width = self.shape
        squared = (width**2 - 1) * self.spacing_mm[0] ** 2 + (height**2 - 1) * self.spacing_mm[1] ** 2
        return max(math.sqrt(squared / 12), 1e-6)

    @property
    def targets_mm(self) -> Array:
        """The five points that distances are measured at (as in mTRE)."""
        targets: Array = target_points(self.shape, dtype=torch.float64).numpy() * (*self.spacing_mm, 0.0)
        return targets + self.middle_mm

    def stretched(self, factors: Array) -> Grid:
        x, y = self.spacing_mm
        return Grid(self.shape, (x * float(factors[0]), y * float(factors[1])))


@dataclass(frozen=True, eq=False)
class Chain:
    """X, and Z for each world."""

    x: Array  # (4, 4)
    z: Array  # (worlds, 4, 4)
    grid: Grid

    def predicted(self, tracked: Array, worlds: Rows) -> Array:
        """`ImageToVolume` (N, 4, 4) of frames whose probe is at `tracked`, each in one of the worlds."""
        poses: Array = self.z[worlds] @ tracked @ self.x
        return poses

    def moved(self, step: Array, pivots: Array) -> Chain:
        """After a step; `pivots` (worlds, 3) are the places that worlds turn about."""
        lever = self.grid.lever_mm
        grid = self.grid.stretched(1 + step[-STRETCHES:] / lever)
        # The middle of the image stays where it is when its pixels grow.
        x = about(self.grid.middle_mm, self.x, step[:OF_X], lever) @ shifted(self.grid.middle_mm - grid.middle_mm)
        of_worlds = step[OF_X:-STRETCHES].reshape(-1, OF_X)
        z = [about(pivot, pose, own, lever) for pivot, pose, own in zip(pivots, self.z, of_worlds, strict=True)]
        return Chain(x, np.stack(z), grid)

    def with_pixels(self, spacing_mm: tuple[float, float]) -> Chain:
        """The same with pixels of another size, the middle of the image where it was."""
        grid = replace(self.grid, spacing_mm=spacing_mm)
        return Chain(self.x @ shifted(self.grid.middle_mm - grid.middle_mm), self.z, grid)


def about(pivot: Array, pose: Array, step: Array, lever_mm: float) -> Array:
    """A pose after a step of shifts and turns in its own axes, turned about a place of them."""
    inner = np.eye(4)
    inner[:3, :3] = rotation_from_vector(torch.from_numpy(step[3:] / lever_mm)).numpy()
    inner[:3, 3] = step[:3]
    moved: Array = pose @ shifted(pivot) @ inner @ shifted(-pivot)
    return moved


def shifted(by_mm: Array) -> Array:
    matrix = np.eye(4)
    matrix[:3, 3] = by_mm
    return matrix


def inverse(matrices: Array) -> Array:
    """Of rigid matrices (..., 4, 4)."""
    made = np.zeros_like(matrices)
    back = np.swapaxes(matrices[..., :3, :3], -1, -2)
    made[..., :3, :3] = back
    made[..., :3, 3] = -(back @ matrices[..., :3, 3, None])[..., 0]
    made[..., 3, 3] = 1
    return made


def steps_between(first: Array, second: Array, grid: Grid) -> Array:
    """Steps (N, 6) of frames in their own axes about their middles, from poses (N, 4, 4) to others."""
    middle = shifted(grid.middle_mm)
    between = inverse(first @ middle) @ second @ middle
    turns = vector_from_rotation(torch.from_numpy(between[:, :3, :3])).numpy()
    steps: Array = np.concatenate([between[:, :3, 3], grid.lever_mm * turns], 1)
    return steps


def distances_mm(first: Array, second: Array, grid: Grid) -> Array:
    """Mean distance (...) of the targets of frames under two poses (..., 4, 4) each."""
    targets = np.append(grid.targets_mm, np.ones((5, 1)), 1)
    apart = ((first - second) @ targets.T)[..., :3, :]
    mean: Array = np.linalg.norm(apart, axis=-2).mean(-1)
    return mean


def pivots_of(chain: Chain, tracked: Array, worlds: Rows) -> Array:
    """The middle of the frames of each world, in its mm (worlds, 3)."""
    places = (tracked @ chain.x @ shifted(chain.grid.middle_mm))[:, :3, 3]
    return np.stack([places[worlds == world].mean(0) for world in range(len(chain.z))])


def moves(chain: Chain, tracked: Array, worlds: Rows, pivots: Array) -> Array:
    """How steps of frames (6, in their own axes about their middles) and stretches (2) follow from a step of all.

    (N, 8, numbers of a step). A world that shifts by s and turns by w about its pivot takes a frame at r from there
    along by s + w x r, and turns it by w.
    """
    count, lever = len(tracked), chain.grid.lever_mm
    places = tracked @ chain.x @ shifted(chain.grid.middle_mm)
    back, away = places[:, :3, :3].transpose(0, 2, 1), places[:, :3, 3] - pivots[worlds]
    made = np.zeros((count, OF_X + STRETCHES, OF_X * (1 + len(chain.z)) + STRETCHES))
    made[:, :OF_X, :OF_X] = np.eye(OF_X)
    rows, three = np.arange(count)[:, None, None], np.arange(3)
    columns = (OF_X * (1 + worlds))[:, None, None] + three
    made[rows, three[:, None], columns] = back
    made[rows, three[:, None], columns + 3] = -back @ cross(away) / lever
    made[rows, three[:, None] + 3, columns + 3] = back
    made[:, OF_X:, -STRETCHES:] = np.eye(STRETCHES)
    return made


def cross(vectors: Array) -> Array:
    """The matrices (N, 3, 3) of cross products with vectors (N, 3) from the left."""
    made, (x, y, z) = np.zeros((len(vectors), 3, 3)), vectors.T
    made[:, 2, 1], made[:, 0, 2], made[:, 1, 0] = x, y, z
    return made - made.transpose(0, 2, 1)


def chain_of(x: Array, z: Sequence[Array], grid: Grid) -> Chain:
    return Chain(np.asarray(x, np.float64), np.stack([np.asarray(each, np.float64) for each in z]), grid)
