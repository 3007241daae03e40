"""Whether the page puts everything in its place: its cuts in a real browser against ITK and against plain voxels."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from browsing import Tab, drawn, red
from serving import NOTHING_SEARCHED, serve

from scopereg import Frame, Pose, Volume, io
from scopereg.io.placement import resliced_image
from scopereg.io.stored import StoredVolume
from scopereg.live.scene import Scene
from scopereg.live.sources import Reading, open_source
from scopereg.registration.result import Result


@dataclass(frozen=True)
class Turned:
    """A volume without any symmetry, with axes of its own, and a frame at a known pose in it."""

    volume: Volume
    frame: Frame
    pose: Pose


def _turned() -> Turned:
    z, y, x = np.meshgrid(np.linspace(0, 1, 24), np.linspace(0, 1, 30), np.linspace(0, 1, 36), indexing="ij")
    values = 0.25 * x + 0.35 * y**2 + 0.4 * z**3 * x
    axes = np.array([[0, 0, 1.0], [-1, 0, 0], [0, -1, 0]])  # columns: x runs to A, y to I, z to L
    tilt = Pose.from_euler_deg((4, -6, 8), (0, 0, 0)).rotation
    patient = {"anatomical": True}
    volume = StoredVolume(values, (0.8, 0.6, 1.1), (5, -7, 20), tilt @ axes, facts=patient)
    frame = Frame(np.random.default_rng(0).random((33, 41)), spacing_mm=(0.5, 0.45), origin_mm=(0, 0))
    turn = tilt @ axes @ Pose.from_euler_deg((20, -30, 15), (0, 0, 0)).rotation
    moved = volume.centre_mm - turn @ frame.centre_mm + [1.0, -1.5, 0.7]
    return Turned(volume, frame, Pose(turn, moved))


def test_cuts_lie_where_scopereg_has_them(tab: Tab, tmp_path: Path) -> None:
    """Frame and planes of a turned volume, against ITK's reslice and against its voxels put in order by hand."""
    case = _turned()

    def locate(_: Frame) -> Result:
        return Result(case.pose, "test", 1.0, 0.5, frame=case.frame, volume=scene.volume)

    scene = Scene(case.volume, "turned.nii.gz", NOTHING_SEARCHED)
    source: Any = open_source(f"plus:{_sequence(case.frame, case.pose, tmp_path)}", Reading(loop=True))
    with serve(tmp_path, source=source, register=locate, scene=scene) as served:
        tab.open(served.web.url)
        tab.click("pause")
        tab.until("scopereg.model.state.paused && scopereg.model.placed")
        drawn(tab)
        cut = np.array(tab.ask("[...scopereg.comparison.cut]")).reshape(case.frame.shape)
        shown = {name: red(tab, f"#{name} .picture") for name in ("axial", "coronal", "sagittal")}
        cursor = np.rint(tab.ask("scopereg.model.cursor")).astype(int)
        letters = tab.ask("[...document.querySelectorAll('#sagittal .letter')].map((e) => e.textContent)")
    wanted = resliced_image(case.volume, case.frame, case.pose).array[0] * 255
    assert (wanted > 0).mean() > 0.5
    assert (wanted == 0).any()  # some of it lies outside
    assert np.abs(cut - wanted).max() <= 1.5
    grey = np.rint(case.volume.numpy() * 255)
    # In LPS order by hand: L is z, P is -x, S is -y.
    patient = grey.transpose(1, 2, 0)[::-1, ::-1, :]  # S, P, L
    place = {"axial": 29 - cursor[1], "coronal": 35 - cursor[0], "sagittal": cursor[2]}
    np.testing.assert_array_equal(shown["axial"], patient[place["axial"]])  # down P, across L
    np.testing.assert_array_equal(shown["coronal"], patient[::-1, place["coronal"], :])  # down I, across L
    np.testing.assert_array_equal(shown["sagittal"], patient[::-1, :, place["sagittal"]])  # down I, across P
    assert letters == ["A", "P", "S", "I"]  # left, right, top, bottom


def _sequence(frame: Frame, pose: Pose, folder: Path) -> Path:
    return io.write_plus_sequence([frame] * 3, [pose] * 3, folder / "frames.igs.mha", times_s=[0, 0.04, 0.08])
