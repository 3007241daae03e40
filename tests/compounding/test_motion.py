"""How a probe went: steps across its planes, the way in all, leaps."""

from __future__ import annotations

import numpy as np
import pytest
from swept import moved, poses_of, sweep_of

from scopereg.compounding.motion import motion_of


def test_steps_and_way() -> None:
    motion = motion_of(sweep_of(poses_of(20, step_mm=0.7, rocking_deg=0.0)))
    assert motion.step_mm == pytest.approx(0.7, abs=0.01)
    assert motion.pace_mm == pytest.approx(0.7, abs=0.01)
    assert motion.path_mm == pytest.approx(19 * 0.7, abs=0.2)
    assert (motion.leaps, motion.repeated) == ((), 0)


def test_jitter_adds_to_steps_but_little_to_the_pace() -> None:
    poses = poses_of(40, step_mm=0.5)
    motion = motion_of(sweep_of(poses, moved(poses, np.random.default_rng(0).normal(0, 1.0, (40, 3)))))
    assert motion.pace_mm < 0.8
    assert motion.path_mm > 2 * 20


def test_one_frame_alone_and_one_place() -> None:
    assert motion_of(sweep_of(poses_of(1))).path_mm == 0
    still = motion_of(sweep_of(poses_of(5), [poses_of(5)[0]] * 5))
    assert (still.step_mm, still.repeated) == (0, 4)


def test_a_jump_to_another_place_is_no_leap() -> None:
    """The probe was lifted and set down: nothing of it is left out."""
    shifts = np.zeros((20, 3))
    shifts[9:] = 60.0
    poses = poses_of(20)
    assert motion_of(sweep_of(poses, moved(poses, shifts))).leaps == ()
    shifts = np.zeros((20, 3))
    shifts[9] = 60.0
    assert motion_of(sweep_of(poses, moved(poses, shifts))).leaps == (9,)
