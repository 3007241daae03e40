"""Echo: a beating heart in the apical four-chamber view; the third axis runs from end-diastole to end-systole."""

from __future__ import annotations

import math
from types import MappingProxyType
from typing import NamedTuple

import torch
from torch import Tensor

from scopereg.data.phantom.anatomy.base import Anatomy, Tissue, paint_labels
from scopereg.data.phantom.anatomy.draws import Draws, Texture
from scopereg.data.phantom.anatomy.shapes import band, cover, ellipse, segment, union
from scopereg.data.phantom.fan import Fan
from scopereg.data.phantom.scanner import Scanner

_BLOOD_DB, _MUSCLE_DB, _OUTSIDE_DB, _FIBROUS_DB = -49.0, -22.0, -29.0, -11.0
_HIDDEN_DB = -40.0  # puts a reflection out
_TOP_MM = -39.4  # upper border of the usual field


class _Heart(NamedTuple):
    """Signed distances in mm at one set of points."""

    lv: Tensor
    endocardium: Tensor
    epicardium: Tensor
    myocardium: Tensor
    la: Tensor
    la_wall: Tensor  # the atrium without the cut at the valve
    base: Tensor  # above 0 on the atrial side of the valve
    rv: Tensor
    ra: Tensor
    heart: Tensor
    leaflets: Tensor
    annulus: Tensor
    grain: Tensor  # smooth noise for the echo of muscle
    cloud: Tensor  # smooth noise for everything around
    region: Tensor  # smooth noise over whole segments of the wall: good and bad windows


class Echo(Anatomy):
    """Apical four-chamber view: the apex at the top, right chambers on the left of the image."""

    name = "echo"
    label_names = MappingProxyType({1: "left ventricle", 2: "myocardium", 3: "left atrium"})
    usual_shape = (32, 128, 128)
    usual_spacing_mm = 0.616
    elevation_planes = 1.2
    detail_mm = 0.5

    def __init__(self, draws: Draws, sweep_mm: float, device: torch.device) -> None:
        self._sweep_mm = max(sweep_mm, 1e-3)
        self._tilt = math.radians(draws.uniform(-18, 14))
        self._length_mm = draws.uniform(46, 66)
        self._radius_mm = self._length_mm * draws.uniform(0.31, 0.37)
        # The valve is placed, so that the atrium is always seen; a long ventricle may leave the field at its apex.
        valve_x, valve_y = draws.uniform(-8, 8), draws.uniform(10, 25)
        self._apex_mm = (
            valve_x - self._length_mm * math.sin(self._tilt),
            valve_y - self._length_mm * math.cos(self._tilt),
        )
        self._wall_mm = draws.uniform(7, 10)
        self._bend = draws.uniform(-0.12, 0.12)
        self._asymmetry = draws.uniform(-0.05, 0.18)
        # Ejection: shares lost between end-diastole and end-systole.
        self._shortening = draws.uniform(0.10, 0.20)
        self._narrowing = draws.uniform(0.16, 0.36)
        self._thickening = draws.uniform(0.15, 0.40)
        self._atrium_mm = (draws.uniform(17, 24), draws.uniform(15, 21))
        self._atrium_shift_mm = draws.uniform(-3, 4)
        self._right_mm = (draws.uniform(20, 27), draws.uniform(10, 17))
        self._right_atrium_mm = (draws.uniform(15, 20), draws.uniform(12, 17))
        self._tenting_mm = draws.uniform(3, 8)
        self._lateral_drop_db = draws.uniform(1, 8)
        self._blood_db = _BLOOD_DB + draws.uniform(-4, 3)
        self._muscle_db = _MUSCLE_DB + draws.uniform(-3, 3)
        self._pericardium_db = draws.uniform(-10, -3)
        self._wander = Texture(draws, 2, 26.0, device)
        self._grain = Texture(draws, 2, 5.0, device)

    def tissue(self, x: Tensor, y: Tensor, z: Tensor, depth_mm: Tensor) -> Tissue:
        h = self._shapes(x, y, z)
        tissue = Tissue.background(_OUTSIDE_DB + 5 * h.cloud + 4 * h.region + 2 * h.grain, 0.05)
        tissue.paint(cover(h.heart, 0.8), self._muscle_db - 3 + 2.5 * h.grain)
        blood = self._blood_db + 1.5 * h.cloud
        for chamber in (h.rv, h.ra, h.la):
            tissue.paint(cover(chamber, 0.5), blood, -0.03)
        muscle = self._muscle_db + 4 * h.grain + 3 * h.cloud + 3.5 * h.region
        tissue.paint(cover(h.myocardium, 0.4), muscle)
        tissue.paint(cover(h.lv, 0.5), blood, -0.03)
        tissue.paint(0.8 * band(h.annulus, 2.3), _FIBROUS_DB + 3 * h.grain, 0.15)
        tissue.paint(0.9 * band(h.leaflets, 0.7), _FIBROUS_DB - 4 + 4 * h.grain)
        # Fibres run along the wall: little comes back where the beam does too.
        tissue.fibre_db = cover(h.myocardium, 0.6) * self._lateral_drop_db
        tissue.fibre_distance_mm = h.epicardium
        tissue.brighten(band(h.heart - 1.5, 1.3), 9.0)
        tissue.brighten(band(h.epicardium, 1.0) * cover(h.base), 4.0)
        tissue.reflect(h.heart - 1.5, self._pericardium_db + 2 * h.cloud, 0.7, 1.5)
        tissue.reflect(h.endocardium, -19 + 3 * h.grain + _HIDDEN_DB * cover(-1 - h.base, 1.0), 0.5)
        tissue.reflect(h.la_wall, -17 + _HIDDEN_DB * cover(h.base - 2, 1.0), 0.6)  # the wall ends at the valve
        tissue.reflect(h.ra, -20.0, 0.6)
        tissue.reflect(h.leaflets, -15.0, 0.5)
        return tissue

    def labels(self, x: Tensor, y: Tensor, z: Tensor, depth_mm: Tensor) -> Tensor:
        h = self._shapes(x, y, z)
        return paint_labels(h.lv, [(3, h.la < 0), (2, h.myocardium < 0), (1, h.lv < 0)])

    def fan(self, draws: Draws, device: torch.device) -> Fan:
        apex_y_mm = min(_TOP_MM - 3, self._apex_mm[1] - self._wall_mm) - draws.uniform(2, 9)
        far_mm = draws.uniform(88, 104) + _TOP_MM - apex_y_mm
        return Fan.single(
            0.6 * self._apex_mm[0] + draws.uniform(-4, 4),
            apex_y_mm,
            draws.uniform(-4, 4),
            draws.uniform(36, 44),
            2.0,
            far_mm,
            device=device,
        )

    def scanner(self, draws: Draws, device: torch.device) -> Scanner:
        side = 1.0 if draws.chance(0.7) else -1.0
        shadow = (side * draws.uniform(0.65, 1.0), draws.uniform(0.08, 0.25), draws.uniform(0, 16))
        return Scanner.single(
            gain_db=draws.uniform(-4, 4),
            dynamic_range_db=draws.uniform(46, 58),
            haze_db=draws.uniform(-24, -12),
            haze_reach_mm=draws.uniform(4, 10),
            clutter_db=draws.uniform(-54, -41),
            noise_db=draws.uniform(-54, -42),
            axial_mm=draws.uniform(0.3, 0.42),
            lateral_deg=draws.uniform(0.7, 1.15),
            tgc_db=draws.uniform(-2, 2),
            edge_db=draws.uniform(0, 8),
            shadow=shadow,
            device=device,
        )

    def _phase(self, z: Tensor) -> Tensor:
        """0 at end-diastole, 1 at end-systole; beyond the sweep the heart relaxes as it contracted."""
        return 0.5 - 0.5 * torch.cos(math.pi * (z / self._sweep_mm + 0.5))

    def _shapes(self, x: Tensor, y: Tensor, z: Tensor) -> _Heart:
        phase = self._phase(z)
        # The texture stays in place and changes slowly along the third axis, while the walls move through it.
        wander_u, wander_v = self._wander(x, y, z * 0.35)
        grain, cloud = self._grain(x, y, z * 0.5)
        sine, cosine = math.sin(self._tilt), math.cos(self._tilt)
        dx, dy = x - self._apex_mm[0], y - self._apex_mm[1]
        u = dx * sine + dy * cosine + 1.2 * wander_u  # from the apex to the base
        v = dx * cosine - dy * sine + 1.5 * wander_v  # from the right heart to the left
        v = v - self._bend * (u - self._length_mm / 2) ** 2 / self._length_mm
        length = self._length_mm * (1 - self._shortening * phase)
        radius = self._radius_mm * (1 - self._narrowing * phase)
        wall = self._wall_mm * (1 + self._thickening * phase) * (0.62 + 0.38 * torch.tanh(u / 18).clamp_min(0))

        bulge = v / (1 + self._asymmetry * torch.tanh(v / 8))
        smooth_endo = ellipse(u - 0.6 * length, bulge, 0.6 * length, radius)
        endo = smooth_endo + 0.8 * grain
        epi = smooth_endo - wall
        base = u - length + 0.004 * v * v
        lv = torch.maximum(endo, base)
        myo = torch.maximum(torch.maximum(epi, -endo), base)
        la, la_wall, ra, rv = self._other_chambers(u, v, length, radius + wall, epi, base, phase)
        heart = union(union(union(epi, rv - 3.5, 3.0), la - 2.0, 3.0), ra - 2.5, 3.0)
        leaflets, annulus = self._valve(u, v + 0.7 * grain, length, radius, phase)
        return _Heart(lv, endo, epi, myo, la, la_wall, base, rv, ra, heart, leaflets, annulus, grain, cloud, wander_u)

    def _other_chambers(
        self, u: Tensor, v: Tensor, length: Tensor, outer: Tensor, epi: Tensor, base: Tensor, phase: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Left atrium, its wall, right atrium, right ventricle."""
        fill = 0.92 + 0.14 * phase  # atria fill while the ventricles empty
        a, b = self._atrium_mm[0] * fill, self._atrium_mm[1] * fill
        la_wall = ellipse(u - length - 0.8 * a, v - self._atrium_shift_mm, a, b)
        la = torch.maximum(la_wall, -base)
        right_base = length - 5
        a_rv, b_rv = self._right_mm[0], self._right_mm[1] * (1 - 0.2 * phase)
        rv = ellipse(u - right_base + 0.55 * a_rv, v + outer + 0.72 * b_rv, a_rv, b_rv)
        rv = torch.maximum(torch.maximum(rv, 1.0 - epi), u - right_base)
        a_ra, b_ra = self._right_atrium_mm[0] * fill, self._right_atrium_mm[1] * fill
        ra = ellipse(u - right_base - 0.8 * a_ra, v - self._atrium_shift_mm + b + b_ra + 2.5, a_ra, b_ra)
        ra = torch.maximum(torch.maximum(ra, right_base + 1.5 - u), 2.5 - la)
        return la, la_wall, ra, rv

    def _valve(self, u: Tensor, v: Tensor, length: Tensor, radius: Tensor, phase: Tensor) -> tuple[Tensor, Tensor]:
        """Distances to the mitral leaflets and to the fibrous hinges at both ends of them."""
        hinge = 0.76 * radius
        open_share = torch.exp(-phase / 0.12)  # still closing at end-diastole
        depth = self._tenting_mm + 8 * open_share
        gap = 0.4 + 5 * open_share
        distances = []
        for side, stretch in ((-1.0, 1.12), (1.0, 0.88)):  # the anterior leaflet is the longer one
            root = (length, side * hinge)
            tip = (length - depth, 3 + side * gap)
            # A leaflet hangs through: its belly lies on the ventricle's side near the root.
            belly = (length - 0.55 * depth * stretch, side * hinge * 0.62)
            distances += [segment(u, v, root, belly), segment(u, v, belly, tip)]
        leaflets = torch.minimum(union(distances[0], distances[1], 2.0), union(distances[2], distances[3], 2.0))
        annulus = torch.minimum(
            torch.sqrt((u - length) ** 2 + (v + hinge + 2.5) ** 2),
            torch.sqrt((u - length) ** 2 + (v - hinge - 2.5) ** 2),
        )
        return leaflets, annulus
