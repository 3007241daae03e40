"""Abdomen: the liver under a convex probe, with its vessels, the diaphragm and what lies beyond."""

from __future__ import annotations

from types import MappingProxyType
from typing import NamedTuple

import torch
from torch import Tensor

from scopereg.data.phantom.anatomy.base import Anatomy, Tissue, paint_labels
from scopereg.data.phantom.anatomy.draws import Draws, Texture
from scopereg.data.phantom.anatomy.shapes import band, cover, ellipsoid, sphere, tubes
from scopereg.data.phantom.fan import Fan
from scopereg.data.phantom.scanner import Scanner

_TOP_MM = -76.8  # upper border of the usual field
_FACE_MM = 42.0  # radius of the probe's face
_BLOOD_DB, _BILE_DB, _FAT_DB = -48.0, -56.0, -20.0
_HIDDEN_DB = -40.0  # puts a reflection out
_DIAPHRAGM_MM = 1.6  # half thickness of its label


class _Belly(NamedTuple):
    """Signed distances in mm at one set of points."""

    depth: Tensor  # below the skin
    liver: Tensor
    portal: Tensor
    hepatic: Tensor
    diaphragm: Tensor  # above 0 in the chest
    visceral: Tensor  # above 0 below the liver
    kidney: Tensor
    gallbladder: Tensor
    fine: Tensor
    coarse: Tensor
    region: Tensor


class Abdomen(Anatomy):
    """Liver with portal and hepatic veins between the abdominal wall, the diaphragm, kidney and gut."""

    name = "abdomen"
    label_names = MappingProxyType({1: "liver", 2: "portal vein", 3: "hepatic vein", 4: "diaphragm"})
    usual_shape = (32, 128, 128)
    usual_spacing_mm = 1.2
    elevation_planes = 1.0
    detail_mm = 0.8

    def __init__(self, draws: Draws, sweep_mm: float, device: torch.device) -> None:
        side = 1.0 if draws.chance(0.5) else -1.0  # which side of the image is cranial
        self._skin_y_mm = _TOP_MM + draws.uniform(3, 8)
        self._layers_mm = (2.0, 2 + draws.uniform(3, 11), draws.uniform(14, 22))  # skin, fat, muscle
        radius = draws.uniform(75, 110)
        aside = side * draws.uniform(5, 60)  # the dome comes towards the probe on the cranial side
        self._dome = ((aside, draws.uniform(25, 62) - radius, draws.uniform(-12, 12)), radius)
        self._slope = (side * draws.uniform(0.3, 1.0), 1.0, draws.uniform(-0.35, 0.35))  # of the lower surface
        self._edge_mm = draws.uniform(15, 45)
        x = side * draws.uniform(15, 40)
        self._kidney = (
            (x, self._dome_y_mm(x) - draws.uniform(16, 30), draws.uniform(-18, 18)),
            (draws.uniform(22, 27), draws.uniform(12, 16), draws.uniform(24, 34)),
        )
        self._has_gallbladder = draws.chance(0.55)
        x = side * draws.uniform(0, 30)
        self._gallbladder = (
            (x, min(self._edge_mm - 12, self._dome_y_mm(x) - 25) - draws.uniform(0, 14), draws.uniform(-14, 14)),
            (draws.uniform(8, 12), draws.uniform(11, 18), draws.uniform(9, 13)),
        )
        self._portal = self._grow_portal(draws, side)
        self._hepatic = self._grow_hepatic(draws, side)
        self._liver_db = draws.uniform(-29, -24)
        self._liver_excess = draws.uniform(0.0, 0.07)  # fat in the liver swallows sound
        self._wall_db = draws.uniform(-15, -10)
        self._dome_db = draws.uniform(-4, 2)
        self._wander = Texture(draws, 2, 40.0, device)
        self._grain = Texture(draws, 2, 8.0, device)

    def tissue(self, x: Tensor, y: Tensor, z: Tensor, depth_mm: Tensor) -> Tissue:
        b = self._shapes(x, y, z, depth_mm)
        # Beyond the diaphragm there is lung: what shows is the liver's mirror image, fading.
        mirrored_db = cover(-b.diaphragm, 0.7) * (-7 - 0.7 * b.diaphragm.clamp(0, 26))
        # Gut and fat below the liver: coarse, bright and dirty.
        tissue = Tissue.background(_FAT_DB - 5 + 5 * b.coarse + 2 * b.fine, 0.12)
        tissue.paint(cover(b.kidney - 2.5, 0.8), _FAT_DB + 3)
        tissue.paint(cover(b.kidney, 0.6), -32 + 2 * b.fine)
        tissue.paint(cover(b.kidney + 9, 1.5), _FAT_DB + 2 * b.coarse)
        tissue.reflect(b.kidney, -14 + mirrored_db, 0.9)
        self._paint_liver(tissue, b)
        if self._has_gallbladder:
            tissue.paint(cover(b.gallbladder - 1.6, 0.5), _FAT_DB)
            tissue.paint(cover(b.gallbladder, 0.5), _BILE_DB, -0.15)
            tissue.reflect(b.gallbladder, -12 + mirrored_db, 0.9)
        in_kidney_db = _HIDDEN_DB * cover(b.kidney, 0.5)
        tissue.reflect(b.visceral, -10 + 4 * b.coarse + mirrored_db + in_kidney_db, 0.9)
        hidden_db = mirrored_db + _HIDDEN_DB * cover(-1 - b.liver, 0.5)  # vessels end where the liver does
        tissue.reflect(b.portal, self._wall_db + 3 + hidden_db, 0.7)
        tissue.reflect(b.hepatic, -20 + hidden_db, 0.6)
        tissue.echo_db = tissue.echo_db + mirrored_db
        bare = cover(b.visceral - 2, 2.0)  # gut hides the rest of the diaphragm
        tissue.paint(0.9 * bare * band(b.diaphragm, 1.0), -13 + 2 * b.coarse, 0.5)
        tissue.reflect(b.diaphragm, self._dome_db + 4 * b.coarse + 3 * b.region - 16 * (1 - bare), 1.1, 3.0)
        self._paint_wall(tissue, b)
        return tissue

    def labels(self, x: Tensor, y: Tensor, z: Tensor, depth_mm: Tensor) -> Tensor:
        b = self._shapes(x, y, z, depth_mm)
        body = y > self._skin_y_mm  # beside the curved face there is air above the skin
        liver = body & (b.liver < 0) & (b.diaphragm < 0)
        dome = body & (b.diaphragm.abs() < _DIAPHRAGM_MM) & (b.depth > self._layers_mm[2]) & (b.visceral < 0)
        return paint_labels(b.liver, [(1, liver), (3, liver & (b.hepatic < 0)), (2, liver & (b.portal < 0)), (4, dome)])

    def fan(self, draws: Draws, device: torch.device) -> Fan:
        far_mm = _FACE_MM + draws.uniform(132, 150)
        apex_y_mm = self._skin_y_mm - _FACE_MM
        return Fan.single(
            draws.uniform(-4, 4),
            apex_y_mm,
            draws.uniform(-3, 3),
            draws.uniform(26, 33),
            _FACE_MM,
            far_mm,
            device=device,
        )

    def scanner(self, draws: Draws, device: torch.device) -> Scanner:
        side = 1.0 if draws.chance(0.5) else -1.0
        rib = (side * draws.uniform(0.5, 1.0), draws.uniform(0.08, 0.2), draws.uniform(0, 26))
        return Scanner.single(
            gain_db=draws.uniform(-5, 2),
            dynamic_range_db=draws.uniform(46, 58),
            haze_db=draws.uniform(-26, -16),
            haze_reach_mm=draws.uniform(5, 12),
            clutter_db=draws.uniform(-56, -46),
            noise_db=draws.uniform(-54, -44),
            axial_mm=draws.uniform(0.5, 0.75),
            lateral_deg=draws.uniform(0.4, 0.65),
            tgc_db=draws.uniform(-1, 5),
            edge_db=draws.uniform(0, 10),
            shadow=rib,
            device=device,
        )

    def _dome_y_mm(self, x: float) -> float:
        """Depth of the diaphragm in the middle plane."""
        (cx, cy, _), radius = self._dome
        return cy + max(radius**2 - (x - cx) ** 2, 0.0) ** 0.5

    def _grow_portal(self, draws: Draws, side: float) -> tuple[Tensor, Tensor, Tensor]:
        tree = VesselTree()
        hilum = torch.tensor([side * draws.uniform(0, 22), draws.uniform(-18, 10), draws.uniform(-8, 8)])
        for turn in (-1.0, 0.0, 1.0):  # the right, the umbilical and the left branch
            heading = torch.tensor(
                [-side * draws.uniform(0.3, 1.0), draws.uniform(-0.7, 0.5), turn * draws.uniform(0.1, 0.6)]
            )
            tree.grow(draws, hilum, heading, draws.uniform(22, 34), draws.uniform(4.4, 6.2), 3)
        return tree.tubes()

    def _grow_hepatic(self, draws: Draws, side: float) -> tuple[Tensor, Tensor, Tensor]:
        tree = VesselTree()
        (x, _, z), _ = self._dome
        at = x / 2 + draws.uniform(-15, 15)
        cava = torch.tensor([at, self._dome_y_mm(at) - 7, z + draws.uniform(-8, 8)])
        for fan in (-0.9, 0.0, 0.9):  # right, middle and left vein converge below the diaphragm
            heading = torch.tensor([fan + draws.uniform(-0.3, 0.3), -1.0, draws.uniform(-0.5, 0.5)])
            tree.grow(draws, cava, heading, draws.uniform(34, 48), draws.uniform(3.8, 5.6), 3, 0.6)
        return tree.tubes()

    def _paint_liver(self, tissue: Tissue, b: _Belly) -> None:
        """Even parenchyma; portal veins in bright sheaths, hepatic veins without."""
        triads_db = 7 * cover(2.0 - b.fine, 0.1)  # small vessels cut across: a bright dash each
        even_db = self._liver_db + b.fine + 0.8 * b.coarse + 1.5 * b.region
        tissue.paint(cover(b.liver, 0.6), even_db + triads_db, self._liver_excess)
        tissue.paint(cover(torch.maximum(b.portal - 1.9, b.liver), 0.6), self._wall_db + 2 * b.fine)
        tissue.paint(cover(torch.maximum(b.portal, b.liver), 0.5), _BLOOD_DB, -0.08)
        tissue.paint(cover(torch.maximum(b.hepatic, b.liver), 0.5), _BLOOD_DB - 2, -0.08)

    def _paint_wall(self, tissue: Tissue, b: _Belly) -> None:
        """Skin, fat with its septa, muscle with its sheaths."""
        skin, fat, muscle = self._layers_mm
        tissue.paint(cover(b.depth - muscle, 0.5), -29 + 4 * torch.sin(b.depth * 2.2 + b.coarse) + 1.5 * b.fine)
        tissue.paint(cover(b.depth - fat, 0.5), -33 + 5 * torch.sin(b.depth * 1.7 + 2 * b.coarse))
        tissue.paint(band(b.depth - skin / 2, skin / 2), -12.0)
        sheaths = ((fat, -6.0), (0.7 * fat + 0.3 * muscle, -14.0), (0.4 * fat + 0.6 * muscle, -12.0), (muscle, -5.0))
        for border, peak_db in sheaths:
            tissue.reflect(b.depth - border, peak_db + 4 * b.coarse + 2 * b.region, 0.6)

    def _shapes(self, x: Tensor, y: Tensor, z: Tensor, depth_mm: Tensor) -> _Belly:
        wander_x, wander_y = self._wander(x, y, z)
        fine, coarse = self._grain(x, y, z)
        px, py = x + 3.0 * wander_x, y + 3.0 * wander_y
        depth = depth_mm + 1.2 * wander_y + 0.4 * coarse
        centre, radius = self._dome
        diaphragm = sphere(px, py, z, centre, radius)
        # Sound that meets the diaphragm comes back from the liver: points in the chest look at their mirror image.
        inverted = torch.where(diaphragm > 0, (radius - diaphragm) / (radius + diaphragm), 1.0)
        mx, my, mz = (c + (p - c) * inverted for p, c in zip((px, py, z), centre, strict=True))
        slope = torch.tensor(self._slope)
        nx, ny, nz = (slope / slope.norm()).tolist()
        visceral = nx * mx + ny * my + nz * mz - self._edge_mm + 2 * wander_x
        kidney = ellipsoid(mx, my, mz, *self._kidney)
        gallbladder = ellipsoid(mx, my, mz, *self._gallbladder)
        liver = torch.maximum(torch.maximum(visceral, 3.0 - kidney), self._layers_mm[2] - depth)
        if self._has_gallbladder:
            liver = torch.maximum(liver, 1.6 - gallbladder)
        portal, hepatic = tubes(mx, my, mz, *self._portal), tubes(mx, my, mz, *self._hepatic)
        return _Belly(depth, liver, portal, hepatic, diaphragm, visceral, kidney, gallbladder, fine, coarse, wander_x)


_BENDS = 2  # tubes per branch with children: vessels are never straight
_SHORTER, _THINNER = 0.8, 0.8  # a child branch compared with its parent

_FLATTER = (1.0, 1.0, 0.6)  # scanning planes are chosen along the vessels, so these run more in the planes


class VesselTree:
    """Tubes: starts and ends (K, 3) in mm, radii (K, 2) in mm at both ends."""

    def __init__(self) -> None:
        self._starts: list[Tensor] = []
        self._ends: list[Tensor] = []
        self._radii: list[tuple[float, float]] = []

    def grow(
        self,
        draws: Draws,
        root_mm: Tensor,
        direction: Tensor,
        length_mm: float,
        radius_mm: float,
        generations: int,
        spread: float = 0.75,
    ) -> None:
        """Add a branch and all its children; `spread` is how far children turn away, 0..1."""
        place, heading, radius = root_mm, direction / direction.norm(), radius_mm
        bends = _BENDS if generations > 1 else 1
        for _ in range(bends):
            heading = _turned(heading, draws.direction(), 0.22)
            end = place + heading * (length_mm / bends)
            thinner = radius * draws.uniform(0.86, 0.96)
            self._starts.append(place)
            self._ends.append(end)
            self._radii.append((radius, thinner))
            place, radius = end, thinner
        if generations <= 1:
            return
        side = torch.linalg.cross(heading, draws.direction()) * torch.tensor(_FLATTER)
        side = side / side.norm().clamp_min(1e-3)
        for sign in (1.0, -1.0):
            child = _turned(heading, sign * side, spread * draws.uniform(0.6, 1.3))
            length, thin = length_mm * _SHORTER * draws.uniform(0.8, 1.2), radius * _THINNER * draws.uniform(0.85, 1.15)
            self.grow(draws, place, child, length, thin, generations - 1, spread)

    def tubes(self) -> tuple[Tensor, Tensor, Tensor]:
        """Starts, ends and radii for `shapes.tubes`."""
        return torch.stack(self._starts), torch.stack(self._ends), torch.tensor(self._radii)


def _turned(direction: Tensor, towards: Tensor, amount: float) -> Tensor:
    mixed = direction + amount * towards
    return mixed / mixed.norm().clamp_min(1e-6)
