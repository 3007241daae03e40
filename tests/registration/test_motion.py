"""The motion of a probe: what it predicts, how it is drawn towards what is measured, and how sure it is."""

from __future__ import annotations

import numpy as np
import pytest

from scopereg.errors import ScopeRegError
from scopereg.geometry import Pose
from scopereg.images import Frame
from scopereg.registration.settings import MotionSettings, TrackSettings
from scopereg.registration.tracker import Motion, contact_mm

MIDDLE_MM = (30.0, 20.0)
START = Pose.from_euler_deg((20, -35, 50), (4, -7, 11))
CHANGE = np.array([1.5, -2.0, 0.7, 3.0, -4.0, 8.0])  # shifts and turns at the lever, mm


def begun(error_mm: float = 1.0, **settings: float) -> Motion:
    return Motion.begin(START, 0.0, error_mm, MIDDLE_MM, MotionSettings(**settings))


def middle(pose: Pose) -> np.ndarray:
    return np.asarray(pose.apply(np.array([*MIDDLE_MM, 0.0])))


def followed(change_a_step: np.ndarray, steps: int, error_mm: float = 0.05) -> Motion:
    """A motion that was measured exactly, the same change after every tenth of a second."""
    motion = begun(error_mm)
    truth = motion
    for step in range(1, steps + 1):
        truth = Motion.begin(truth.moved(change_a_step), 0.0, error_mm, MIDDLE_MM, MotionSettings())
        motion = motion.predicted(step / 10).updated(truth.pose, error_mm)
    return motion


def test_a_change_leads_where_the_difference_says() -> None:
    """Away and moved undo each other, both ways."""
    motion = begun()
    there = motion.moved(CHANGE)
    assert motion.away(there) == pytest.approx(CHANGE, abs=1e-9)
    other = Pose.from_euler_deg((-60, 10, 120), (40, 3, -22))
    assert motion.moved(motion.away(other)).is_close(other, mm=1e-9, deg=1e-6)
    assert motion.away(START) == pytest.approx(np.zeros(6), abs=1e-9)


def test_a_picture_of_another_depth_lies_where_the_probe_touches() -> None:
    """A fan in the middle of a picture: half of the depth, other pixels, another place on the screen."""

    def fan(width: int, height: int, pixel_mm: float, first: tuple[int, int]) -> Frame:
        pixels = np.zeros((height, width), np.float32)
        left, top = first
        pixels[top : height - 4, left : width - left] = 0.5
        return Frame(pixels, pixel_mm, (0, 0))

    deep, shallow = fan(81, 60, 1.0, (10, 5)), fan(121, 110, 0.4, (8, 20))
    motion = followed(CHANGE / 10, 10)
    anew = motion.seen_anew(deep, shallow, 2.0)
    assert contact_mm(deep) == pytest.approx([40, 5, 0])
    assert contact_mm(shallow) == pytest.approx([24, 8, 0])
    assert anew.pose.apply(contact_mm(shallow)) == pytest.approx(motion.pose.apply(contact_mm(deep)))
    assert anew.pose.rotation == pytest.approx(motion.pose.rotation)
    assert anew.middle_mm == pytest.approx((24.0, 21.8))
    assert anew.time_s == 2.0
    assert not anew.velocity.any()
    # In the plane it is known less surely than across it: a shift there belongs to the motion, one across does not.
    assert anew.distance(anew.moved(np.array([15.0, 15, 0, 0, 0, 0])), 1.0) < motion.settings.gate
    assert anew.distance(anew.moved(np.array([0, 0, 25.0, 0, 0, 0])), 1.0) > motion.settings.gate


def test_the_middle_of_the_frame_is_what_turns() -> None:
    """A turn leaves the middle where it is, and a point at the lever goes as far as the number says."""
    turned = begun(lever_mm=50.0).moved(np.array([0, 0, 0, 0, 0, 2.0]))
    assert middle(turned) == pytest.approx(middle(START), abs=1e-12)
    beside = np.array([MIDDLE_MM[0] + 50.0, MIDDLE_MM[1], 0.0])
    assert np.linalg.norm(turned.apply(beside) - START.apply(beside)) == pytest.approx(2.0, rel=1e-3)
    shifted = begun().moved(np.array([0, 0, 5.0, 0, 0, 0]))
    assert middle(shifted) - middle(START) == pytest.approx(5.0 * START.rotation[:, 2])


@pytest.mark.parametrize("change", [CHANGE * [1, 1, 1, 0, 0, 0], CHANGE * [0, 0, 0, 1, 1, 1], CHANGE])
def test_a_constant_velocity_is_predicted_exactly(change: np.ndarray) -> None:
    """After it was seen for a while, the next pose is known before it is measured."""
    motion = followed(change / 10, 40)
    assert motion.velocity == pytest.approx(change, rel=1e-3, abs=1e-3)
    exact = motion.moved(change / 10)
    assert motion.predicted(4.1).pose.is_close(exact, mm=1e-3, deg=1e-3)
    assert motion.predicted(4.1).time_s == 4.1


def test_a_pose_at_rest_stays_and_grows_unsure() -> None:
    motion = begun(0.5)
    later, much_later = motion.predicted(0.1), motion.predicted(1.0)
    assert much_later.pose.is_close(START, mm=1e-12, deg=1e-9)
    assert motion.error_mm == pytest.approx(0.5 * np.sqrt(6))
    assert motion.error_mm < later.error_mm < much_later.error_mm


@pytest.mark.parametrize(("error_mm", "low", "high"), [(0.01, 0.99, 1.0), (1.0, 0.2, 0.95), (100.0, 0.0, 0.01)])
def test_an_update_is_drawn_towards_the_surer_side(error_mm: float, low: float, high: float) -> None:
    motion = begun(1.0).predicted(0.05)
    measured = motion.moved(CHANGE)
    share = motion.away(motion.updated(measured, error_mm).pose) / CHANGE
    assert np.all((share >= low) & (share <= high)), share


def test_an_update_makes_surer_and_gives_a_velocity() -> None:
    motion = begun(1.0).predicted(0.1)
    after = motion.updated(motion.moved(CHANGE), 1.0)
    assert after.error_mm < min(motion.error_mm, np.sqrt(6))
    assert np.all(np.sign(after.velocity) == np.sign(CHANGE))


def test_covariances_stay_symmetric_and_positive() -> None:
    """Also after hundreds of steps with very sure and very unsure measurements, and long gaps."""
    generator = np.random.default_rng(0)
    motion = begun()
    for step in range(300):
        motion = motion.predicted(motion.time_s + (5.0 if step % 50 == 49 else 0.03))
        measured = motion.moved(generator.normal(size=6))
        motion = motion.updated(measured, (0.05, 1.0, 30.0)[step % 3])
        assert np.allclose(motion.covariance, motion.covariance.T, rtol=0, atol=1e-9)
        assert np.linalg.eigvalsh(motion.covariance).min() > 0


def test_a_hand_may_change_its_mind() -> None:
    """However long a motion stood still, it is caught up with when it goes on; not so if hands are said to be slow."""
    after = []
    for acceleration in (40.0, 0.1):
        motion = begun(0.5, acceleration_mm_s2=acceleration)
        for step in range(1, 101):
            motion = motion.predicted(step / 10).updated(START, 0.5)
        moved = motion.moved(CHANGE)
        for step in range(101, 104):
            motion = motion.predicted(step / 10).updated(moved, 0.5)
        after.append(np.linalg.norm(motion.away(moved)) / np.linalg.norm(CHANGE))
    assert after[0] < 0.3
    assert after[1] > 0.8


def test_the_distance_counts_in_standard_deviations() -> None:
    """Six numbers off by one deviation each are six; twice as far is four times that."""
    motion = begun(0.6)
    one = np.full(6, np.hypot(0.6, 0.8))
    assert motion.distance(motion.moved(one), 0.8) == pytest.approx(6.0)
    assert motion.distance(motion.moved(2 * one), 0.8) == pytest.approx(24.0)
    assert motion.predicted(1.0).distance(motion.moved(one), 0.8) < 1.0  # by then it may be anywhere near


def test_a_jump_is_beyond_the_gate_and_the_next_step_is_not() -> None:
    motion = followed(CHANGE / 10, 20, error_mm=0.5).predicted(2.1)
    assert motion.distance(motion.moved(np.full(6, 0.3)), 0.5) < motion.settings.gate
    assert motion.distance(motion.moved(np.full(6, 10.0)), 0.5) > motion.settings.gate


@pytest.mark.parametrize(
    ("name", "value"),
    [("gate", 0), ("lever_mm", float("nan")), ("patience", -1), ("agreeing", 0), ("refined_error_mm", float("inf"))],
)
def test_settings_that_make_no_sense_are_refused(name: str, value: float) -> None:
    with pytest.raises(ScopeRegError, match=name):
        TrackSettings(**{name: value})
