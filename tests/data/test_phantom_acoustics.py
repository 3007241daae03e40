"""Acoustics: speckle, mirror echoes, shadows, from tissue along rays to amplitudes."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch

from scopereg.data import phantom
from scopereg.data.phantom.acoustics import (
    compress,
    envelope,
    path_loss_db,
    ray_cosine,
    scan_convert,
    specular_amplitude,
)
from scopereg.data.phantom.anatomy import prostate
from scopereg.data.phantom.anatomy.base import Tissue
from scopereg.data.phantom.fan import Fan
from scopereg.data.phantom.scanner import Scanner
from scopereg.data.phantom.speckle import sample_periodic, speckle_field
from scopereg.geometry import plane_points

RAYLEIGH_SNR = 1.91  # mean over standard deviation of a Rayleigh distribution


def flat_scanner() -> Scanner:
    """No clutter, no noise, no gain error: what is measured is the physics."""
    return Scanner.single(
        gain_db=0,
        dynamic_range_db=50,
        haze_db=-200,
        haze_reach_mm=1,
        clutter_db=-200,
        noise_db=-200,
        axial_mm=0.5,
        lateral_deg=0.8,
        tgc_db=0,
        edge_db=0,
    )


def test_speckle_is_rayleigh_before_compression() -> None:
    field = speckle_field(2, (96, 256), (0.9, 0.8), torch.Generator().manual_seed(0))
    assert (field.abs() ** 2).mean() == pytest.approx(1, abs=0.03)
    tissue = Tissue.background(torch.full((2, 96, 256), -20.0))
    fan = Fan.single(0, -40, 0, 40, 5, 90)
    echo = envelope(tissue, fan, flat_scanner(), field)
    assert echo.mean() / echo.std() == pytest.approx(RAYLEIGH_SNR, abs=0.06)
    assert (echo**2).mean().sqrt() == pytest.approx(0.1, rel=0.03)  # -20 dB


def test_speckle_widens_with_depth() -> None:
    fan = Fan.single(0, -40, 0, 40, 3, 84)
    rays, samples = fan.grid_size(0.6)
    field = speckle_field(6, (rays, samples), (1.5, 0.9), torch.Generator().manual_seed(1))
    tissue = Tissue.background(torch.full((6, rays, samples), -20.0))
    grey = compress(envelope(tissue, fan, flat_scanner(), field), flat_scanner())
    plane = plane_points((128, 128)) * 0.6
    image, _ = scan_convert(grey, fan, plane[..., 0], plane[..., 1])

    def lateral(rows: slice) -> float:
        middle = image[:, rows, 52:76]
        pair = torch.stack([middle[..., :-2].flatten(), middle[..., 2:].flatten()])
        return float(torch.corrcoef(pair)[0, 1])

    assert lateral(slice(90, 125)) > lateral(slice(30, 50)) + 0.15


def test_specular_echo_falls_with_the_angle() -> None:
    step_mm = torch.tensor([0.5])
    depth = torch.arange(100) * 0.5
    peaks = []
    for angle_deg in (0, 20, 40, 60):
        tissue = Tissue.background(torch.full((1, 1, 100), -40.0))
        distance = (depth - 25) * torch.cos(torch.deg2rad(torch.tensor(float(angle_deg))))
        assert ray_cosine(distance[None, None], step_mm)[0, 0, 50] == pytest.approx(
            float(torch.cos(torch.deg2rad(torch.tensor(float(angle_deg))))), abs=1e-4
        )
        tissue.reflect(distance[None, None], -10.0)
        peaks.append(float(specular_amplitude(tissue, step_mm).max()))
    assert peaks[0] == pytest.approx(10 ** (-10 / 20), rel=1e-3)
    assert all(after < 0.93 * before for before, after in pairwise(peaks))


def test_shadow_behind_a_reflector_and_enhancement_behind_fluid() -> None:
    tissue = Tissue.background(torch.full((1, 3, 50), -20.0))
    tissue.excess_db_per_mm[0, 0, 20:24] = 5.0
    tissue.excess_db_per_mm[0, 2, 20:40] = -0.2
    loss = path_loss_db(tissue, torch.tensor([0.5]))
    assert loss[0, :, 19].tolist() == [0, 0, 0]
    assert loss[0, :, 45].tolist() == pytest.approx([10, 0, -2], abs=1e-4)
    field = speckle_field(1, (3, 50), (0.0, 0.0), torch.Generator().manual_seed(0))
    echo = envelope(tissue, Fan.single(0, 0, 0, 10, 1, 25.5), flat_scanner(), field / field.abs())
    assert echo[0, 0, 30:].mean() < 0.7 * echo[0, 1, 30:].mean() < 0.75 * echo[0, 2, 42:].mean()


def test_calcifications_cast_shadows(monkeypatch: pytest.MonkeyPatch) -> None:
    shape = (10, 64, 64)
    dark = phantom.create("prostate", seed=6, shape=shape)
    monkeypatch.setattr(prostate, "_STONE_EXCESS_DB_PER_MM", 0.0)
    clear = phantom.create("prostate", seed=6, shape=shape)
    assert dark.volume.labels is not None
    change = clear.volume.array - dark.volume.array
    shadowed = change > 0.02
    assert shadowed.float().mean() > 0.002
    assert change[shadowed].mean() > 0.1
    assert (change.abs() > 0.02).float().mean() < 0.3  # and only there
    # The probe is below: shadows lie above the stones.
    assert shadowed.nonzero()[:, 1].float().mean() < (dark.volume.labels == 5).nonzero()[:, 1].float().mean()


def test_periodic_lookup_meets_the_lattice_and_wraps() -> None:
    lattice = speckle_field(1, (4, 5, 6), (0.5, 0.5, 0.5), torch.Generator().manual_seed(2))[0]
    z, a, r = torch.tensor([3 / 4, -1 / 4]), torch.tensor([1 / 5, 6 / 5]), torch.tensor([5 / 6, -1 / 6])
    values = sample_periodic(lattice, (z, a, r))
    assert torch.allclose(values, lattice[3, 1, 5].expand(2), atol=1e-5)


# Acquisition
