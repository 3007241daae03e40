"""Places: where in all of a volume a frame may lie, told by its features alone; no start is needed.

A first look compares the frame, turned in steps, with the volume at every shift at once. From the best hypotheses the
fine stage goes on, all in one batch. The place where the features of both agree best is the first.
"""

from __future__ import annotations

import itertools
import math
import time
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int64
from torch import Tensor

from scopereg.geometry import VoxelPoses, rotation_from_euler_deg
from scopereg.networks.anywhere import FarVolume, alike_everywhere, cells_voxels
from scopereg.networks.fine import FineFrame, distance, distances
from scopereg.registration.fine import PreparedFine
from scopereg.registration.settings import SearchSettings

_APART = 12.0  # voxels between hypotheses of the first look
_SAME = (4.0, 2.0, 1.0)  # voxels: nearer than that, they have come to one place; at each level
_STEPS = (6, 4, 3)  # at each level
_GO_ON = (16, 12, 12)  # places that are left after each level, at most
_ELSEWHERE = 16.0  # voxels from which on a place is another one
_MANY = 8  # times as many peaks as hypotheses: most lie beside better ones


class Places(NamedTuple):
    """Places of one frame, best first."""

    poses: VoxelPoses  # (K, ...), centred voxels
    apart: Float[Tensor, "k"]  # how far the features are apart
    lever: float

    def pose(self, row: int) -> VoxelPoses:
        """One of them, (1, ...)."""
        return VoxelPoses(self.poses.rotation[row : row + 1], self.poses.translation[row : row + 1])

    def is_elsewhere(self, row: int, pose: VoxelPoses) -> bool:
        """Whether a place is another one than a pose (1, ...)."""
        return float(distance(self.pose(row), pose, self.lever)) > _ELSEWHERE

    def stands_out(self, row: int) -> float:
        """By how much features agree better at a place than at any other, as a share of how far they are apart there.

        0 where another place is as good or better; 1 where there is none.
        """
        away = distance(self.poses, self.pose(row), self.lever) > _ELSEWHERE
        if not bool(away.any()):
            return 1.0
        rival = float(self.apart[away].min())
        return max(1 - float(self.apart[row]) / rival, 0.0) if rival > 0 else 0.0

    def apart_from_one_another(self, count: int) -> list[int]:
        """The best of them, none of which is the place of a better one."""
        rows: list[int] = []
        for row in range(len(self.apart)):
            if all(self.is_elsewhere(row, self.pose(other)) for other in rows):
                rows.append(row)
        return rows[:count]


class Hypotheses(NamedTuple):
    """Poses of frames that the first look tells."""

    poses: VoxelPoses
    rows: Int64[Tensor, "k"]  # of the frames that they are of: one for each turn in the plane
    worth: Float[Tensor, "k"]

    def pick(self, rows: Tensor) -> Hypotheses:
        poses = VoxelPoses(self.poses.rotation[rows], self.poses.translation[rows])
        return Hypotheses(poses, self.rows[rows], self.worth[rows])

    @classmethod
    def joined(cls, parts: list[Hypotheses]) -> Hypotheses:
        poses = VoxelPoses(*(torch.cat(part) for part in zip(*(one.poses for one in parts), strict=True)))
        return cls(poses, torch.cat([one.rows for one in parts]), torch.cat([one.worth for one in parts]))

    def apart(self, count: int, voxels: float, lever: float) -> list[int]:
        """Rows of the best that lie so far apart from one another."""
        order = self.worth.argsort(descending=True, stable=True)
        near = (distances(self.poses, lever)[order][:, order] < voxels).cpu().numpy()  # waits for a GPU once
        rows = order[self.worth[order] > -math.inf].tolist()
        chosen, free = list[int](), np.ones(len(order), dtype=bool)
        for place, row in enumerate(rows):
            if len(chosen) == count:
                break
            if free[place]:
                chosen.append(row)
                free &= ~near[place]
        return chosen

    def spread(self, count: int, voxels: float, lever: float) -> Hypotheses:
        """The best that lie apart from one another; half of them elsewhere than all better ones, if there are such."""
        elsewhere = self.apart(count // 2, _ELSEWHERE, lever)
        others = [row for row in self.apart(count, voxels, lever) if row not in elsewhere]
        rows = torch.tensor([*elsewhere, *others][:count], dtype=torch.int64, device=self.worth.device)
        return self.pick(rows[self.worth[rows].argsort(descending=True)])


@torch.inference_mode()
def find_places(
    fine: PreparedFine, image: Float[Tensor, "h w"], settings: SearchSettings, until: float = math.inf
) -> Places:
    """Places of an image on the grid of a volume; no other turn is begun after the time `until` (`perf_counter`)."""
    turns = _turns_deg(settings)
    reads, found = list[FineFrame](), list[Hypotheses]()
    tilts = tilts_of(settings).to(image.device)
    for row, turn in enumerate(turns):
        if row and time.perf_counter() > until:
            break
        reads.append(fine.read(_turned(image, turn)[None] if settings.any_angle else image[None]))
        found.append(first_look(reads[-1], fine.encoded.far, tilts, row, settings.hypotheses))
    lever = reads[0].lever
    hypotheses = Hypotheses.joined(found).spread(settings.hypotheses, _APART, lever)
    hypotheses = _refined(fine, FineFrame.joined(reads), hypotheses)
    plane = torch.zeros(len(turns), 3, device=image.device)
    plane[:, 2] = torch.tensor(turns)
    turned = rotation_from_euler_deg(plane)[hypotheses.rows]
    poses = VoxelPoses(hypotheses.poses.rotation @ turned, hypotheses.poses.translation)
    return Places(poses, -hypotheses.worth, lever)


def first_look(read: FineFrame, volume: FarVolume, tilts: Tensor, row: int, count: int) -> Hypotheses:
    """Peaks of one frame, the `row` of its turn, over all shifts, of each tilt."""
    alike = alike_everywhere(read.far, volume, tilts)
    peaks = alike.where(alike >= F.max_pool3d(alike.unsqueeze(1), 3, 1, 1)[:, 0], -math.inf).flatten()
    worth, index = peaks.topk(min(_MANY * count, len(peaks)))
    cells = cells_voxels(volume.lattice, peaks.device)
    poses = VoxelPoses(tilts[index // len(cells)], cells[index % len(cells)])
    return Hypotheses(poses, torch.full_like(index, row), worth).spread(count, _APART, read.lever)


def _refined(fine: PreparedFine, read: FineFrame, found: Hypotheses) -> Hypotheses:
    """Where each level of the fine stage brings them, and what it finds there; the best that lie apart go on."""
    for level, (steps, same, most) in enumerate(zip(_STEPS, _SAME, _GO_ON, strict=True)):
        if not len(found.rows):
            break
        frames = read.pick(found.rows)
        poses = fine.stage.settle_at(level, frames, fine.encoded, found.poses, steps)
        found = Hypotheses(poses, found.rows, -fine.apart(frames, poses, level)).spread(most, same, read.lever)
    return found


def tilts_of(settings: SearchSettings) -> Float[Tensor, "r 3 3"]:
    """Turns about the volume's axes; that in the plane too, unless frames are turned by it as images."""
    count = math.ceil(settings.tilt_deg / settings.tilt_step_deg)
    steps = torch.linspace(-settings.tilt_deg, settings.tilt_deg, 2 * count + 1).tolist()
    plane = [0.0] if settings.any_angle else steps
    return rotation_from_euler_deg(torch.tensor(list(itertools.product(steps, steps, plane))))


def _turns_deg(settings: SearchSettings) -> list[float]:
    """Turns in the plane, small ones first."""
    if not settings.any_angle:
        return [0.0]
    count = math.ceil(360 / settings.turn_step_deg)
    turns = [360 / count * n for n in range(count)]
    return sorted((turn if turn <= 180 else turn - 360 for turn in turns), key=abs)


def _turned(image: Float[Tensor, "h w"], turn_deg: float) -> Float[Tensor, "s s"]:
    """The image turned about its middle, on a square that is as large as its longer side: a pixel p lies at R p."""
    side = max(image.shape)
    axis = torch.arange(side, device=image.device) - (side - 1) / 2
    y, x = torch.meshgrid(axis, axis, indexing="ij")
    cos, sin = math.cos(math.radians(turn_deg)), math.sin(math.radians(turn_deg))
    height, width = image.shape
    grid = torch.stack([2 * (cos * x + sin * y) / width, 2 * (cos * y - sin * x) / height], -1)
    return F.grid_sample(image[None, None], grid[None], align_corners=False)[0, 0]
