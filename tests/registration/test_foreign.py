"""In a volume of another modality no calibration made on ultrasound judges a pose, whatever found it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from patient_files import Case

from scopereg.registration.locator import Locator
from scopereg.registration.model import Registrar


@pytest.mark.parametrize("how", [{}, {"refine": True, "fallback": True}])
def test_a_calibrated_network_gives_no_verdict_and_says_why(
    case: Case, narrow: Registrar, how: dict[str, bool]
) -> None:
    volume = replace(case.volume, modality="mr")
    locator = Locator(volume, narrow, device="cpu", **how)
    found = locator.locate(case.frames[0])
    assert found.ok is None
    assert "not of MR" in found.reason
    assert found.confidence != found.confidence, "a number would look like one of a calibration"
    assert ("refined by lc2" in found.method) == bool(how)
    assert not locator.prepared.judges
    assert any("volume is MR" in note for note in locator.notes)


def test_grey_values_are_refined_in_ultrasound_alone(case: Case) -> None:
    for modality, words in (("us", "refined"), ("ct", "refined by lc2")):
        volume = replace(case.volume, modality=modality)
        found = Locator(volume, "identity+refine", device="cpu").locate(case.frames[0], case.truth[0])
        assert found.method.endswith(words)
