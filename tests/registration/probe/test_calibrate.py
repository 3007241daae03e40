"""ImageToProbe from a sweep and a volume: found, judged, told; sweeps that cannot tell it are refused or say so."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from patient_sweep import Scanned, scanned

from scopereg.errors import ScopeRegError
from scopereg.geometry import Pose
from scopereg.registration.model import Registrar
from scopereg.registration.probe.calibrate import ProbeSettings, calibrate_probe
from scopereg.registration.probe.calibrated import (
    KEPT_ASIDE,
    LEFT_OUT,
    USED,
    FrameResidual,
    ProbeCalibration,
    difference,
    doubts_of,
)
from scopereg.registration.probe.words import facts_of


@pytest.fixture(scope="module")
def patient() -> Scanned:
    return scanned()


@pytest.fixture(scope="module")
def found(patient: Scanned, narrow: Registrar) -> ProbeCalibration:
    """Without a start, one of the poses wrong."""
    poses = patient.sweep.probe_to_world.copy()
    poses[4] = poses[4] @ Pose.from_euler_deg((15, 0, -20), (9, 12, -7)).matrix
    return calibrate_probe([patient.with_poses(poses)], patient.volume, method=narrow, device="cpu")


@pytest.mark.slow
def test_it_is_found_without_a_start(found: ProbeCalibration, patient: Scanned) -> None:
    error = difference(found.image_to_probe, found.spacing_mm, patient.image_to_probe, patient.spacing_mm, found.shape)
    assert error["offset_mm"] < 1
    assert error["turn_deg"] < 1
    assert found.world_to_volume[0].angle_to_deg(patient.world_to_volume) < 1
    assert found.moved is None
    assert not found.world_known


@pytest.mark.slow
def test_a_pose_that_disagrees_is_left_out_and_told(found: ProbeCalibration) -> None:
    (out,) = found.of_state(LEFT_OUT)
    assert out.row == 4
    assert out.reason
    assert len(found.of_state(USED)) == 7
    assert all(np.isfinite(row.without_mm) for row in found.of_state(USED))
    assert len(found.of_state(KEPT_ASIDE)) == 2
    assert found.error_mm < 1
    words = facts_of(found)
    assert "7 used, 2 kept aside, 1 left out" in words["frames"]
    assert "kept aside" in words["error"]
    assert "moved" not in words


def test_sweeps_that_do_not_fit_are_refused(patient: Scanned) -> None:
    sweep, volume = patient.sweep, patient.volume
    wrong = [
        ([], "there are no sweeps"),
        ([replace(sweep, spacing_mm=None)], "size of a pixel"),
        ([sweep, replace(sweep, images=sweep.images[:, :50])], "pixels, those before"),
        ([sweep, replace(sweep, spacing_mm=(0.3, 0.3))], "pixels measure"),
        ([replace(sweep, images=sweep.images[:5], rows=(0, 1, 2, 3, 4))], "5 frames are tracked, and 8 are needed"),
    ]
    for sweeps, said in wrong:
        with pytest.raises(ScopeRegError, match=said):
            calibrate_probe(sweeps, volume)
    for settings, said in (({"most": 3}, "3 frames"), ({"aside": 0.9}, "a share of 0.9")):
        with pytest.raises(ScopeRegError, match=said):
            ProbeSettings(**settings)


def residual(state: str, apart_mm: float = 0.5, ok: bool | None = True) -> FrameResidual:
    return FrameResidual("a frame", 0, 0, state, apart_mm, ok=ok)


@pytest.mark.parametrize(
    ("frames", "said"),
    [
        ([residual(USED)] * 8, ""),
        ([residual(USED)] * 4, "only 4 frames agree"),
        ([residual(USED)] * 6 + [residual(LEFT_OUT)] * 8, "only 6 of 14"),
        ([residual(USED, ok=False)] * 6 + [residual(USED)] * 2, "only 2 of the 8"),
        ([residual(USED)] * 8 + [residual(KEPT_ASIDE, 7.0)] * 2, "7.0 mm from where it puts them"),
    ],
)
def test_what_speaks_against_a_calibration_is_said(frames: list[FrameResidual], said: str) -> None:
    assert said in " ".join(doubts_of(frames, least=5))
    assert bool(doubts_of(frames, least=5)) is bool(said)
