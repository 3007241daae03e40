"""Slices: as thick as told, or as a lens of fixed focus makes them at a depth."""

from __future__ import annotations

import pytest
import torch

from scopereg.errors import ScopeRegError
from scopereg.geometry.beam import FWHM, TAPS, WEIGHTS, Thickness


def test_an_estimated_slice_narrows_to_the_focus_and_scales_with_the_depth() -> None:
    """The formula of docs/refinement.md at the probe, at the focus and at the far end."""
    depths = torch.linspace(0, 150, 31)
    widths = Thickness(None).at_mm(depths, 150.0)
    assert widths[[0, 15, 30]].tolist() == pytest.approx([7.5, 3.0, 150 * (0.05**2 + 0.04**2) ** 0.5])
    assert 0.35 * 150 < float(depths[widths.argmin()]) <= 75
    torch.testing.assert_close(Thickness(None).at_mm(depths / 3, 50.0), widths / 3)
    assert torch.equal(Thickness(2.5).at_mm(depths, 150.0), torch.full_like(depths, 2.5))


def test_taps_are_those_of_a_gaussian() -> None:
    taps, weights = torch.tensor(TAPS), torch.tensor(WEIGHTS)
    assert float(weights.sum()) == pytest.approx(1)
    assert float((weights * taps).sum()) == pytest.approx(0)
    assert float((weights * taps.square()).sum().sqrt()) == pytest.approx(0.9, abs=0.1)  # its ends are cut off
    assert pytest.approx(2.3548) == FWHM


@pytest.mark.parametrize("told", [None, 0, "0", 0.0])
def test_no_thickness_is_none(told: object) -> None:
    assert Thickness.of(told) is None  # type: ignore[arg-type]


def test_what_is_told_is_read() -> None:
    assert Thickness.of("Estimated") == Thickness(None)
    assert Thickness.of("2.5") == Thickness.of(2.5) == Thickness(2.5)
    assert Thickness(None).words == "estimated"
    assert Thickness(2.5).words == "2.5 mm"
    for wrong in ("thick", -1.0, "nan", 51, "inf"):
        with pytest.raises(ScopeRegError, match="the thickness is") as caught:
            Thickness.of(wrong)
        assert caught.value.where == "thickness_mm="
