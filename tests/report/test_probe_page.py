"""The page of a probe's calibration, also of one that the motion does not determine."""

from __future__ import annotations

import numpy as np
import torch

from scopereg.geometry import Pose
from scopereg.images import Frame, Volume
from scopereg.registration.probe.calibrated import (
    KEPT_ASIDE,
    LEFT_OUT,
    NOT_FOUND,
    USED,
    FrameResidual,
    ProbeCalibration,
)
from scopereg.registration.probe.certainty import Certainty
from scopereg.report.probe_page import make_page


def calibration(undetermined: tuple[str, ...] = ()) -> ProbeCalibration:
    random = np.random.default_rng(0)
    states = [USED] * 12 + [KEPT_ASIDE] * 4 + [LEFT_OUT] * 2
    frames = [
        FrameResidual(f"sweep.igs.mha frame {row}", 0, row, state, float(random.gamma(2, 0.4)), 0.8, 0.7, ok=True)
        for row, state in enumerate(states)
    ]
    frames.append(FrameResidual("sweep.igs.mha frame 18", 0, 18, NOT_FOUND, reason="it holds <nothing>"))
    wide = 5000.0 if undetermined else 0.8
    known = Certainty((0.4, 0.6, wide), (0.3, 0.4, 0.5), (1.2, 1.2), wide, 0.6, undetermined)
    pose = Pose.from_euler_deg((10, 20, 30), (1, 2, 3), "Image", "Probe")
    before = (Pose.from_euler_deg((12, 20, 30), (1, 4, 3), "Image", "Probe"), (0.2, 0.21))
    world = Pose.identity("Reference", "Volume")
    return ProbeCalibration(
        pose,
        (0.2, 0.2),
        (40, 50),
        (world,),
        known,
        tuple(frames),
        False,
        before=before,
        places=(Pose.identity(),) * len(frames),
    )


def test_all_of_it_is_shown() -> None:
    page = make_page(calibration(), {"method": "universal"}).html()
    assert "Not to be relied on" not in page
    assert page.count("<figure>") == 1
    assert "&lt;nothing&gt;" in page
    assert "2.0 degrees from the calibration before" in page
    assert "12 of 19" in page


def test_some_frames_are_shown_beside_the_volume() -> None:
    noise = torch.rand(20, 60, 60, generator=torch.Generator().manual_seed(0))
    volume, asked = Volume(noise, 0.2), list[FrameResidual]()

    def frame_of(row: FrameResidual) -> Frame:
        asked.append(row)
        return Frame(noise[0, :40, :50], 0.2, origin_mm=(0, 0))

    page = make_page(calibration(), {}, volume, frame_of).html()
    assert [row.state for row in asked] == [USED] * 2 + [KEPT_ASIDE] * 2 + [LEFT_OUT]
    assert page.count("<img") == 3 * len(asked)
    assert max(row.apart_mm for row in calibration().of_state(USED)) in [row.apart_mm for row in asked]


def test_what_is_not_determined_is_said_first() -> None:
    page = make_page(calibration(("the offset through its plane (z)",)), {}).html()
    assert page.index("Not to be relied on") < page.index("What was found")
    assert "The motion does not determine the offset through its plane (z)." in page
    assert "5000" not in page
