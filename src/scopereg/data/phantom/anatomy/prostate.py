"""Prostate: transrectal view, the probe below; the third axis runs from the apex of the gland to the bladder."""

from __future__ import annotations

import math
from types import MappingProxyType
from typing import NamedTuple

import torch
from torch import Tensor

from scopereg.data.phantom.anatomy.base import Anatomy, Tissue, paint_labels
from scopereg.data.phantom.anatomy.draws import Draws, Texture
from scopereg.data.phantom.anatomy.shapes import band, cover, ellipsoid, sphere, tubes, union
from scopereg.data.phantom.fan import Fan
from scopereg.data.phantom.scanner import Scanner

_PROBE_Y_MM = 27.0  # axis of the probe, just below the usual field
_FAT_DB, _MUSCLE_DB, _STONE_DB, _FLUID_DB = -19.0, -31.0, 2.0, -52.0
_STONE_EXCESS_DB_PER_MM = 5.0
_STONE_MM = (0.9, 1.6)  # radii


class _Pelvis(NamedTuple):
    """Signed distances in mm at one set of points."""

    gland: Tensor
    transition: Tensor
    urethra: Tensor
    stones: Tensor
    probe: Tensor  # above 0 outside of the probe
    vesicles: Tensor
    bladder: Tensor
    muscle: Tensor
    fine: Tensor
    coarse: Tensor
    nodules: Tensor


class Prostate(Anatomy):
    """Gland with zones, urethra, calcifications and the rectal wall around the probe."""

    name = "prostate"
    label_names = MappingProxyType(
        {1: "peripheral zone", 2: "transition zone", 3: "urethra", 4: "rectal wall", 5: "calcification"}
    )
    usual_shape = (40, 64, 64)
    usual_spacing_mm = 0.8
    elevation_planes = 1.0
    detail_mm = 0.5

    def __init__(self, draws: Draws, sweep_mm: float, device: torch.device) -> None:
        self._probe_mm = draws.uniform(8.5, 10.5)
        self._wall_mm = draws.uniform(2.8, 4.2)
        half_height = draws.uniform(11.5, 15.5)
        gap = draws.uniform(0.8, 2.2)
        y = _PROBE_Y_MM - self._probe_mm - self._wall_mm - gap - half_height
        self._centre = (draws.uniform(-3.5, 3.5), y + 0.8, draws.uniform(-4, 4))
        self._radii = (draws.uniform(18, 23), half_height, draws.uniform(15, 20))
        self._tilt = math.tan(math.radians(draws.uniform(-16, 8)))  # of the gland's long axis in the sagittal plane
        self._swell = draws.uniform(0.52, 0.78)  # size of the transition zone: hyperplasia with age
        self._anterior_mm = draws.uniform(2.0, 4.0)
        self._urethra_mm = draws.uniform(1.8, 2.6)
        self._urethra_bend_mm = draws.uniform(2, 5)
        self._zone_db = (draws.uniform(-23, -19), draws.uniform(-30, -25))  # peripheral, transition
        self._capsule_db = draws.uniform(-14, -8)
        self._vesicle_tilt_mm = draws.uniform(-2, 2)
        self._bladder = (draws.uniform(-4, 4), -17 + draws.uniform(-3, 3), 27 + draws.uniform(-2, 5))
        self._stones = self._place_stones(draws)
        self._wander = Texture(draws, 3, 16.0, device)
        self._grain = Texture(draws, 2, 4.0, device)

    def tissue(self, x: Tensor, y: Tensor, z: Tensor, depth_mm: Tensor) -> Tissue:
        p = self._shapes(x, y, z, depth_mm)
        tissue = Tissue.background(_FAT_DB - 5 + 3.5 * p.coarse + 2.5 * p.fine, 0.0)
        tissue.paint(cover(p.muscle, 0.8), _MUSCLE_DB + 2 * p.coarse, 0.05)
        tissue.paint(cover(p.vesicles, 0.5), -36 + 4 * p.fine, -0.05)
        tissue.paint(cover(p.bladder - 2.5, 0.5), _MUSCLE_DB + 4 + 2 * p.fine)
        tissue.paint(cover(p.bladder, 0.4), _FLUID_DB, -0.2)
        tissue.paint(cover(p.gland, 0.35), self._zone_db[0] + 1.2 * p.fine + 1.5 * p.coarse)
        # Hyperplastic nodules: dark and bright patches with rims.
        tissue.paint(cover(p.transition, 0.5), self._zone_db[1] + 3.5 * p.nodules + 2 * p.fine)
        tissue.brighten(band(p.transition, 0.7), 3.0)
        tissue.brighten(band(p.gland, 0.6), 5.0)
        tissue.paint(cover(p.urethra - 1.2, 0.4), self._zone_db[0] + 3)
        tissue.paint(cover(p.urethra, 0.4), -40.0)
        self._paint_rectum(tissue, p)
        tissue.paint(cover(p.stones - 0.2, 0.2), _STONE_DB, _STONE_EXCESS_DB_PER_MM)
        tissue.reflect(p.gland, self._capsule_db + 2 * p.coarse, 0.45)
        tissue.reflect(p.bladder, -10.0, 0.6)
        tissue.reflect(p.transition, -20.0, 0.4)
        return tissue

    def labels(self, x: Tensor, y: Tensor, z: Tensor, depth_mm: Tensor) -> Tensor:
        p = self._shapes(x, y, z, depth_mm)
        in_gland = p.gland < 0
        wall = (p.probe > 0) & (p.probe < self._wall_mm) & ~in_gland
        layers = [(1, in_gland), (2, in_gland & (p.transition < 0)), (3, in_gland & (p.urethra < 0)), (4, wall)]
        return paint_labels(p.gland, [*layers, (5, p.stones < 0)])

    def fan(self, draws: Draws, device: torch.device) -> Fan:
        return Fan.single(
            draws.uniform(-1, 1),
            _PROBE_Y_MM + draws.uniform(-0.5, 0.5),
            180 + draws.uniform(-4, 4),
            draws.uniform(58, 72),
            self._probe_mm,
            draws.uniform(58, 66),
            device=device,
        )

    def scanner(self, draws: Draws, device: torch.device) -> Scanner:
        gas = (draws.uniform(-1, 1), draws.uniform(0.05, 0.12), draws.uniform(8, 20) if draws.chance(0.3) else 0.0)
        return Scanner.single(
            gain_db=draws.uniform(-4, 3),
            dynamic_range_db=draws.uniform(46, 56),
            haze_db=draws.uniform(-28, -18),
            haze_reach_mm=draws.uniform(1.5, 3.5),
            clutter_db=draws.uniform(-54, -44),
            noise_db=draws.uniform(-54, -44),
            axial_mm=draws.uniform(0.26, 0.4),
            lateral_deg=draws.uniform(0.5, 0.85),
            tgc_db=draws.uniform(-2, 3),
            edge_db=draws.uniform(2, 10),
            shadow=gas,
            device=device,
        )

    def _place_stones(self, draws: Draws) -> list[tuple[tuple[float, float, float], float]]:
        """Centres and radii of calcifications, in clusters between the zones on the rectal side of the urethra."""
        stones = []
        for cluster in range(draws.integer(2, 4)):
            side = -1.0 if cluster % 2 else 1.0
            angle = side * draws.uniform(0.15, 1.0)
            # The first cluster lies in the middle of the sweep, so that every volume has one.
            depth = draws.uniform(-4, 4) - self._centre[2] if cluster == 0 else draws.uniform(-11, 11)
            for _ in range(draws.integer(2, 4)):
                reach = self._swell * draws.uniform(0.92, 1.1)
                centre = (
                    self._radii[0] * reach * math.sin(angle) + draws.uniform(-1.5, 1.5),
                    self._radii[1] * reach * math.cos(angle) - self._anterior_mm + draws.uniform(-1, 1),
                    depth + draws.uniform(-2.5, 2.5),
                )
                stones.append((centre, draws.uniform(*_STONE_MM)))
        return stones

    def _paint_rectum(self, tissue: Tissue, p: _Pelvis) -> None:
        """Five layers around the probe, bright and dark in turn, in a coupling fluid."""
        tissue.paint(cover(p.probe - self._wall_mm, 0.3), _MUSCLE_DB + 1 + 1.5 * p.fine)
        for share, peak_db in ((0.1, -8.0), (0.55, -12.0), (1.0, -13.0)):
            tissue.paint(band(p.probe - share * self._wall_mm, 0.45), peak_db + 1.5 * p.fine)
        tissue.paint(cover(p.probe + 0.6, 0.3), _FLUID_DB + 8)

    def _shapes(self, x: Tensor, y: Tensor, z: Tensor, depth_mm: Tensor) -> _Pelvis:
        wander_x, wander_y, nodules = self._wander(x, y, z)
        fine, coarse = self._grain(x, y, z)
        probe = depth_mm + 0.3 * wander_y
        px, pz = x - self._centre[0] + 0.9 * wander_x, z - self._centre[2]
        py = y - self._centre[1] + 0.9 * wander_y + self._tilt * pz
        px, py = torch.broadcast_tensors(px, py)
        origin = (0.0, 0.0, 0.0)
        # A chestnut: flattened towards the rectum, notched in the midline.
        flat = torch.where(py > 0, py * 1.12 + 0.0022 * py * (18 - px.abs()), py * 1.02)
        gland = ellipsoid(px, flat, pz, origin, self._radii)
        inner = tuple(self._swell * r for r in self._radii)
        lobes = ellipsoid(
            px.abs() - 0.42 * inner[0], py + self._anterior_mm, pz, origin, (0.66 * inner[0], inner[1], 1.05 * inner[2])
        )
        transition = torch.maximum(lobes + 0.5 * nodules, gland + 1.0)
        bend = self._urethra_bend_mm * (1 - (pz / self._radii[2]) ** 2)
        urethra = torch.sqrt(px**2 + (py + 4.5 - bend) ** 2) - self._urethra_mm
        stones = torch.full_like(gland, math.inf)
        for centre, radius in self._stones:
            stones = torch.minimum(stones, sphere(px, py, pz, centre, radius))
        stones = torch.maximum(stones, gland + 1.0)
        vesicles, bladder, muscle = self._neighbours(px, py, pz, x, y, z, gland, probe)
        return _Pelvis(
            gland, transition, urethra, stones + 0.25 * fine, probe, vesicles, bladder, muscle, fine, coarse, nodules
        )

    def _neighbours(
        self, px: Tensor, py: Tensor, pz: Tensor, x: Tensor, y: Tensor, z: Tensor, gland: Tensor, probe: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Seminal vesicles behind the base, bladder above it, levator muscles at the sides."""
        reach, back = 0.92 * self._radii[2], 0.62 * self._radii[1]
        turns = [(1.0, 0.5), (9.0, -1.5), (16.0, 1.0), (23.0, -3.0)]
        points = torch.tensor([(u, back + v + self._vesicle_tilt_mm, reach + 0.22 * u) for u, v in turns])
        ends = torch.tensor([[4.0, 4.6], [4.6, 4.4], [4.4, 2.5]])
        vesicles = tubes(px.abs(), py.expand_as(gland), pz.expand_as(gland), points[:-1], points[1:], ends)
        vesicles = torch.maximum(vesicles, 0.8 - gland)
        bladder = torch.maximum(ellipsoid(x, y, z, self._bladder, (26, 17, 17)), 1.5 - gland)
        sling = ellipsoid(px.abs() - 32, py - 2, pz, (0.0, 0.0, 0.0), (7, 22, 60))
        front = ellipsoid(px, py + 27, pz, (0.0, 0.0, 0.0), (20, 7, 60))  # dorsal veins and the symphysis' foot
        muscle = torch.maximum(union(sling, front, 4.0), torch.maximum(1.5 - gland, self._wall_mm - probe))
        return vesicles, bladder, muscle
