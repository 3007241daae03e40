"""ProbeLikeness: how alike frames are to the volume where X, Z and their pixels put them, and what makes them more so.

The equations of frames (`registration.likeness`), with those of the size of their pixels, are brought to the numbers of
one step of all (`chain.moves`) and summed, as a body's are (`registration.body_likeness`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from scopereg.devices import resolve_device
from scopereg.geometry import VoxelPoses
from scopereg.images import Frame, unit_range
from scopereg.registration.body_likeness import Ground
from scopereg.registration.grey import Grey
from scopereg.registration.learned import LearnedVolume
from scopereg.registration.likeness import Comparison, Stretchable
from scopereg.registration.locator import Locator
from scopereg.registration.network import network_of
from scopereg.registration.probe.chain import OF_X, STRETCHES, Array, Chain, Rows, moves, pivots_of, shifted
from scopereg.registration.refine import PreparedRefinement
from scopereg.registration.working_grid import isotropic
from scopereg.threads import look

_FIRST_DAMPING, _LESS, _MORE = 1e-3, 0.3, 8.0
_STEADY = 1e-9  # share of the largest curvature: what nothing tells stays as it is
_NUMBERS = OF_X + STRETCHES  # that the equations of a frame have
_SAME = 1e-3  # relative change of the size of pixels up to which frames are not read anew


def ground_of(locator: Locator, frame: Frame) -> Ground:
    """What refines poses of a method; else the features of its network, or grey values."""
    prepared = locator.prepared
    if isinstance(prepared, PreparedRefinement):
        refiner = prepared.refiner
        return Ground(prepared.volume, refiner.prepared, refiner.trust, refiner.device)
    network = network_of(prepared)
    fine = None if network is None else network.volume_for(frame).fine
    if network is not None and fine is not None:
        return Ground(network.volume_for(frame).volume, LearnedVolume(fine.stage, fine.encoded), 0.0, fine.device)
    device = resolve_device("cpu")
    volume, _ = isotropic(replace(locator.volume, array=unit_range(locator.volume.array)))
    return Ground(volume, Grey().prepare(volume.array.to(device)), 0.0, device)


@dataclass(frozen=True)
class Holds:
    """What is not sought."""

    world: bool = False
    pixels: bool = False


@dataclass(frozen=True, eq=False)
class Equations:
    """Of every frame, for steps of all in mm: `chain.moves`, and curvature and slope along the numbers of a frame."""

    merit: Array  # (N,)
    design: Array  # (N, 8, P)
    matrix: Array  # (N, 8, 8)
    slope: Array  # (N, 8)

    def total(self, weights: Array) -> tuple[float, Array, Array]:
        """Merit, curvature (P, P) and slope (P,) of all."""
        matrix = np.einsum("n,nki,nkl,nlj->ij", weights, self.design, self.matrix, self.design)
        slope = np.einsum("n,nki,nk->i", weights, self.design, self.slope)
        return float((weights * self.merit).sum()), matrix, slope

    def slopes(self, weights: Array) -> Array:
        """What each frame says of a step (N, P)."""
        return np.einsum("n,nki,nk->ni", weights, self.design, self.slope)


class ProbeOnGround:
    """Frames on the voxels of a ground, compared wherever a chain puts them."""

    @torch.no_grad()
    def __init__(self, frames: Sequence[Frame], tracked: Array, worlds: Rows, ground: Ground, holds: Holds) -> None:
        """Frames of one size, with grey values in [0, 1]; each is in one of the worlds."""
        self.frames, self.tracked, self.worlds = tuple(frames), tracked, worlds
        self.ground, self.holds = ground, holds
        self._spacing_mm, self._levels = (0.0, 0.0), list[Comparison]()

    def _read(self, chain: Chain) -> list[Comparison]:
        """Comparisons of the frames with pixels of the size that a chain says, or nearly so."""
        if not np.allclose(chain.grid.spacing_mm, self._spacing_mm, rtol=_SAME, atol=0):
            step = self.ground.volume.isotropic_spacing_mm
            fine = [replace(frame, spacing_mm=chain.grid.spacing_mm).resampled(step) for frame in self.frames]
            images, seen = (
                torch.stack([getattr(frame, what) for frame in fine]).to(self.ground.device, torch.float32)
                for what in ("tissue", "seen")
            )
            self._levels = list(self.ground.prepared.compare(images, seen))
            self._spacing_mm = chain.grid.spacing_mm
        return self._levels

    @torch.no_grad()
    def descend(self, chain: Chain, weights: Array, *, levels: slice = slice(None)) -> Chain:
        """Where the likeness of all frames leads, level by level; no less alike than at the start."""
        for number in range(len(self._read(chain)))[levels]:
            chain = self._descend_at(number, chain, weights)
        return chain

    def _descend_at(self, number: int, chain: Chain, weights: Array) -> Chain:
        """Levenberg-Marquardt at one level, from frames read with the pixels of the start."""
        level = self._read(chain)[number]
        damping, now = _FIRST_DAMPING, self.equations(chain, number)
        merit, matrix, slope = now.total(weights)
        for _ in range(level.iterations):
            look()
            step = self._step(now, matrix, slope, damping, level)
            tried = chain.moved(step, self._pivots(chain))
            then = self.equations(tried, number)
            totals = then.total(weights)
            if totals[0] > merit:
                chain, now, damping = tried, then, damping * _LESS
                merit, matrix, slope = totals
            else:
                damping *= _MORE
            if np.linalg.norm(now.design @ step, axis=1).max() < level.last_step * self._voxel_mm:
                break
        return chain

    @property
    def _voxel_mm(self) -> float:
        return self.ground.volume.isotropic_spacing_mm

    def _pivots(self, chain: Chain) -> Array:
        return pivots_of(chain, self.tracked, self.worlds)

    def _step(self, now: Equations, matrix: Array, slope: Array, damping: float, level: Comparison) -> Array:
        free = self.free(len(slope))
        inner = matrix[np.ix_(free, free)]
        steady = np.diag(damping * inner.diagonal() + _STEADY * inner.diagonal().max() + 1e-12)
        step = np.zeros(len(slope))
        step[free] = -np.linalg.solve(inner + steady, slope[free])
        longest = float(np.linalg.norm((now.design @ step)[:, :OF_X], axis=1).max())
        most_mm = level.longest_step * self._voxel_mm
        return step * min(1.0, most_mm / max(longest, 1e-12))

    def free(self, count: int) -> Rows:
        """The numbers of a step that are sought."""
        sought = np.ones(count, bool)
        sought[OF_X:-STRETCHES] = not self.holds.world
        sought[-STRETCHES:] = not self.holds.pixels
        return np.flatnonzero(sought)

    @torch.no_grad()
    def equations(self, chain: Chain, number: int = -1) -> Equations:
        """At a level, by default the finest that is descended."""
        level = self._levels_with_steps()[number] if number < 0 else self._levels[number]
        poses = self._voxel_poses(chain)
        if isinstance(level, Stretchable) and not self.holds.pixels:
            factors = np.array(chain.grid.spacing_mm) / self._spacing_mm
            scale = torch.tensor([*factors, 1.0], dtype=torch.float32, device=self.ground.device)
            at = level.stretched(VoxelPoses(poses.rotation * scale, poses.translation))
        else:
            at = level.normal(poses)
        size = at.matrix.shape[1]
        lever = level.lever / chain.grid.lever_mm
        to_voxels = np.array([1 / self._voxel_mm] * 3 + [lever] * (size - 3))
        matrix, slope = np.zeros((len(poses.rotation), _NUMBERS, _NUMBERS)), np.zeros((len(poses.rotation), _NUMBERS))
        matrix[:, :size, :size] = _host(at.matrix) * to_voxels * to_voxels[:, None]
        slope[:, :size] = _host(at.slope) * to_voxels
        design = moves(chain, self.tracked, self.worlds, self._pivots(chain))
        return Equations(_host(at.merit), design, matrix, slope)

    def _levels_with_steps(self) -> list[Comparison]:
        return [level for level in self._levels if level.iterations]

    @torch.no_grad()
    def similarity(self, chain: Chain) -> Array:
        """How alike each frame is to the volume (N,), at the finest level."""
        return _host(self._read(chain)[-1].similarity(self._voxel_poses(chain)))

    def _voxel_poses(self, chain: Chain) -> VoxelPoses:
        volume = self.ground.volume
        places = chain.predicted(self.tracked, self.worlds) @ shifted(chain.grid.middle_mm)
        rotation = volume.direction.T @ places[:, :3, :3]
        offset = (places[:, :3, 3] - volume.centre_mm) @ volume.direction / self._voxel_mm
        told = (torch.tensor(each, dtype=torch.float32, device=self.ground.device) for each in (rotation, offset))
        return VoxelPoses(*told)


def _host(values: Tensor) -> Array:
    return values.detach().cpu().double().numpy()
