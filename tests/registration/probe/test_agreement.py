"""X and Z from poses of which some are wrong; what the motion does not tell; why poses do not agree at all."""

from __future__ import annotations

import numpy as np
import pytest
from probe_scene import GRID, PROBE, WORLDS, error_of, scene

from scopereg.geometry import Pose
from scopereg.registration.probe.agreement import AGREES_MM, Pairs, agree, fit
from scopereg.registration.probe.chain import chain_of
from scopereg.registration.probe.nothing import no_agreement
from scopereg.registration.result import Result


def test_without_noise_it_is_exact() -> None:
    pairs, true = scene()
    found = agree(pairs)
    assert error_of(found, true) == pytest.approx((0, 0), abs=1e-4)
    assert np.allclose(found.z, true.z, atol=1e-4)


def test_wrong_poses_do_no_harm() -> None:
    pairs, true = scene(noise_mm=0.2, noise_deg=0.2, wrong=5, count=18)
    found = agree(pairs)
    offset, turn = error_of(found, true)
    assert offset < 1.5
    assert turn < 0.6
    assert int((pairs.apart_mm(found) < AGREES_MM).sum()) == 13


def test_every_sweep_may_have_a_world_of_its_own() -> None:
    pairs, true = scene(worlds=2, count=20, noise_mm=0.1, noise_deg=0.1, wrong=3)
    found = agree(pairs)
    offset, turn = error_of(found, true)
    assert offset < 1.0
    assert turn < 0.5
    assert len(found.z) == 2


def test_where_the_world_is_known_no_turns_are_needed() -> None:
    pairs, true = scene((0, 0, 0), noise_mm=0.2, noise_deg=0.2, wrong=4)
    offset, turn = error_of(agree(pairs, np.stack(WORLDS[:1])), true)
    assert offset < 0.5
    assert turn < 0.3


def test_without_turns_frames_are_still_foretold() -> None:
    pairs, true = scene((0, 0, 0), noise_mm=0.1, noise_deg=0.1)
    found = agree(pairs)
    assert error_of(found, true)[1] < 0.5  # the shifts tell how the image is turned, and nothing of its offset
    assert np.median(pairs.apart_mm(found)) < 0.5


def test_what_nothing_tells_stays_as_it_was_before() -> None:
    pairs, true = scene((0, 0, 0))
    begin = chain_of(PROBE @ Pose.from_euler_deg((0, 0, 0), (4, -3, 2)).matrix, WORLDS[:1], GRID)
    found = agree(pairs, begin=begin)
    assert error_of(found, begin)[0] < 0.05
    assert np.median(pairs.apart_mm(found)) < 0.05
    assert error_of(found, true)[0] == pytest.approx(np.linalg.norm((4, -3, 2)), abs=0.05)


def test_information_says_what_counts() -> None:
    """Poses that are known in one direction alone, and far off in the others."""
    pairs, true = scene(count=30)
    random = np.random.default_rng(2)
    off = pairs.found.copy()
    off[:, :3, 3] += off[:, :3, 0] * random.normal(0, 1.5, (30, 1))
    information = np.broadcast_to(np.diag([1e-4, 1, 1, 1, 1, 1]), (30, 6, 6))
    told = Pairs(pairs.tracked, off, pairs.worlds, GRID)
    assert error_of(fit(told, true, information=information), true)[0] < 0.1 < error_of(fit(told, true), true)[0]


def as_results(pairs: Pairs, ok: bool) -> list[Result]:
    return [Result(Pose.from_matrix(each), "made up", 1.0, 0.5, ok=ok) for each in pairs.found]


def said_of(pairs: Pairs, ok: bool = True, known: bool = False) -> str:
    z = np.stack(WORLDS[:1]) if known else None
    chain = agree(pairs, z)
    agreeing = int((pairs.apart_mm(chain) < AGREES_MM).sum())
    return str(no_agreement(pairs, chain, z, agreeing, as_results(pairs, ok)))


def test_a_mirrored_volume_is_told() -> None:
    pairs, _ = scene()
    mirror = np.diag([-1.0, 1, 1, 1])
    flat = np.diag([1.0, 1, -1, 1])  # a plane is the same from behind
    assert "the volume is mirrored" in said_of(Pairs(pairs.tracked, mirror @ pairs.found @ flat, pairs.worlds, GRID))


def test_a_tracker_in_centimetres_is_told() -> None:
    pairs, _ = scene()
    tracked = pairs.tracked.copy()
    tracked[:, :3, 3] /= 10
    assert "cm instead of mm" in said_of(Pairs(tracked, pairs.found, pairs.worlds, GRID))


@pytest.mark.parametrize(
    ("ok", "known", "said"),
    [
        (True, False, "not those of one rigid body"),
        (True, True, "with the world's pose that is given"),
        (False, False, "may be of another object"),
    ],
)
def test_other_poses_are_those_of_no_rigid_body(ok: bool, known: bool, said: str) -> None:
    pairs, _ = scene(wrong=16)
    assert said in said_of(pairs, ok, known)
