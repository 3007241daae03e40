"""Frames that are chosen from one sweep or several, which are kept aside, and what is noted."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from probe_scene import scene

from scopereg.geometry import Pose
from scopereg.io.probe_sweeps import ProbeSweep
from scopereg.registration.probe.chosen import Chosen


def sweep(name: str, count: int) -> ProbeSweep:
    pairs, _ = scene(count=count)
    images = torch.randint(0, 255, (count, 12, 16), dtype=torch.uint8, generator=torch.Generator().manual_seed(count))
    rows = tuple(range(0, 2 * count, 2))
    return ProbeSweep(Path(name), images, pairs.tracked, rows, (0.3, 0.4), "Reference")


def test_frames_are_taken_evenly_from_all_sweeps() -> None:
    sweeps = [sweep("a.igs.mha", 20), replace(sweep("b.igs.mha", 10), facts={"dropped": {"x": 2}, "notes": ["hm"]})]
    chosen = Chosen.of(sweeps, most=15, aside=0.2, own_worlds=False)
    assert len(chosen.frames) == len(chosen.tracked) == 15
    assert [number for number, _ in chosen.places].count(0) == 10
    assert chosen.labels[-1] == "b.igs.mha frame 18"
    assert chosen.places[-1] == (1, 18)
    assert chosen.count_of_worlds == 1
    assert chosen.notes == ("hm", "15 of 30 frames are tried, evenly from all", chosen.notes[2])
    assert "2 frames are left out" in chosen.notes[2]
    assert chosen.frames[0].spacing_mm == (0.3, 0.4)
    assert np.allclose(chosen.tracked[-1], sweeps[1].probe_to_world[-1])


def test_every_sweep_may_have_a_world_of_its_own() -> None:
    chosen = Chosen.of([sweep("a.npz", 9), sweep("b.npz", 9)], most=30, aside=0.2, own_worlds=True)
    assert chosen.count_of_worlds == 2
    assert chosen.worlds.tolist() == [0] * 9 + [1] * 9
    assert chosen.names == ("Reference", "Reference")


@pytest.mark.parametrize(("share", "count"), [(0.0, 0), (0.2, 4), (0.5, 10)])
def test_those_kept_aside_lie_between_the_others(share: float, count: int) -> None:
    chosen = Chosen.of([sweep("a.npz", 20)], most=20, aside=share, own_worlds=False)
    assert len(chosen.aside) == count
    assert sorted([*chosen.aside, *chosen.tried]) == list(range(20))
    if share == 0.2:
        assert not {0, 19} & set(chosen.aside.tolist())
        assert np.diff(chosen.aside).min() > 1


def test_a_calibration_from_before_is_taken_apart() -> None:
    pose = Pose.from_euler_deg((10, 20, 30), (1, 2, 3), "Image", "Probe")
    before = replace(sweep("a.npz", 9), before=pose.matrix @ np.diag([0.3, 0.4, 0.35, 1]))
    chosen = Chosen.of([before], most=30, aside=0, own_worlds=False)
    assert chosen.before is not None
    assert chosen.before[0].is_close(pose, mm=1e-6, deg=1e-5)
    assert chosen.before[1] == pytest.approx((0.3, 0.4))
