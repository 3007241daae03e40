"""Places: a frame anywhere in a volume much larger than itself, also turned; how far the best stands out; its time."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from typing import NamedTuple

import pytest
import torch

import scopereg
from scopereg.data import phantom
from scopereg.errors import ScopeRegError
from scopereg.geometry import Pose, VoxelPoses, rotation_from_euler_deg
from scopereg.images import Frame, Volume, pose_from_voxels
from scopereg.networks.anywhere import alike, alike_everywhere, cells_voxels
from scopereg.registration.fine import PreparedFine
from scopereg.registration.locator import Locator
from scopereg.registration.model import Registrar
from scopereg.registration.places import Places, find_places
from scopereg.registration.result import RegistrationError, Result, apart_mm
from scopereg.registration.search import CONTESTED, doubted
from scopereg.registration.settings import SearchSettings

SHAPE, CUT = (72, 176, 176), 40  # frames are the middle of planes


class Scene(NamedTuple):
    volume: Volume
    frame: Frame
    truth: Pose
    stranger: Frame


@pytest.fixture(scope="module")
def universal() -> Registrar:
    return scopereg.load("universal", "cpu")


@pytest.fixture(scope="module")
def scene() -> Scene:
    patient, other = (phantom.create("abdomen", seed=seed, shape=SHAPE) for seed in (200_302, 200_301))
    pose = VoxelPoses(rotation_from_euler_deg(torch.tensor([[-8.0, 11, -10]])), torch.tensor([[-28.0, 20, -8]]))
    frame, stranger = (
        Frame(one.acquire(*pose, seed=5).images[0][CUT:-CUT, CUT:-CUT], spacing_mm=one.spacing_mm)
        for one in (patient, other)
    )
    truth = pose_from_voxels(pose.rotation[0], pose.translation[0], frame, patient.volume)
    return Scene(patient.volume, frame, truth, stranger)


@pytest.fixture(scope="module")
def prepared(universal: Registrar, scene: Scene) -> PreparedFine:
    assert universal.fine is not None
    return PreparedFine(universal.fine, scene.volume.array)


def test_all_shifts_at_once_are_as_alike_as_one_after_the_other(prepared: PreparedFine, scene: Scene) -> None:
    read, far = prepared.read(scene.frame.array[None]).far, prepared.encoded.far
    turns = rotation_from_euler_deg(torch.tensor([[0.0, 0, 0], [12.0, -20, 7]]))
    cells = cells_voxels(far.lattice, torch.device("cpu"))
    some = torch.arange(3, len(cells), 17)
    with torch.inference_mode():
        found = alike_everywhere(read, far, turns).flatten(1)[:, some]
        for row, turn in enumerate(turns):
            wanted = alike(read, far, VoxelPoses(turn.expand(len(some), 3, 3), cells[some]))[0]
            torch.testing.assert_close(found[row], wanted, atol=1e-5, rtol=0)


def test_register_needs_no_start(universal: Registrar, scene: Scene) -> None:
    locator = Locator(scene.volume, universal)
    found = locator.locate(scene.frame)
    assert apart_mm(scene.frame, found.pose, scene.truth) < 2
    assert CONTESTED < found.stands_out <= 1
    assert found.seen_from is not None
    assert any("sought in all of the volume: at the next best place" in note for note in found.notes)
    assert found.facts["stands_out"] == found.stands_out
    near = locator.narrow().locate(scene.frame)
    assert apart_mm(scene.frame, near.pose, scene.truth) > 10  # from the middle it is not found
    assert math.isnan(near.stands_out)
    assert any("a wide search looks all over it" in note for note in near.notes)


def test_turned_by_any_angle(universal: Registrar, scene: Scene) -> None:
    """By a quarter, as if the probe was: the pose turns along."""
    turned = Frame(torch.rot90(scene.frame.array, 1), scene.frame.spacing_mm)
    locator = Locator(scene.volume, universal, any_angle=True)
    found = locator.locate(turned)
    height = scene.frame.extent_mm[1]  # a pixel (x, y) of the frame is (y, width - x) of the turned one, in mm
    quarter = Pose([[0, -1, 0], [1, 0, 0], [0, 0, 1]], [height, 0, 0], source="Image", target="Image")
    middle = turned.centre_mm
    away = found.pose.apply(middle) - scene.truth.apply(scene.frame.centre_mm)
    assert float((away**2).sum() ** 0.5) < 2
    axes = found.pose.rotation @ quarter.rotation.T
    angle = math.degrees(math.acos(min((float((axes.T @ scene.truth.rotation).trace()) - 1) / 2, 1.0)))
    assert angle < 3


def test_a_stranger_does_not_stand_out(universal: Registrar, scene: Scene, prepared: PreparedFine) -> None:
    own, strange = (
        find_places(prepared, frame.array, SearchSettings()).stands_out(0) for frame in (scene.frame, scene.stranger)
    )
    assert strange < own / 2
    found = Locator(scene.volume, universal).locate(scene.stranger)
    assert found.ok is not True


def test_the_time_is_bounded(universal: Registrar, scene: Scene, prepared: PreparedFine) -> None:
    """What is left is the first look; other turns and other places are not begun."""
    turned, settings = torch.rot90(scene.frame.array, 1), SearchSettings(any_angle=True)
    every = find_places(prepared, turned, settings)
    upright = find_places(prepared, turned, settings, until=time.perf_counter())
    assert not bool((_turns_deg(upright) > 60).any())
    assert float(_turns_deg(every)[0]) > 60
    found = Locator(scene.volume, universal, seconds=1e-3).locate(scene.frame)
    assert apart_mm(scene.frame, found.pose, scene.truth) < 2
    assert found.alternatives == ()


def _turns_deg(places: Places) -> torch.Tensor:
    """In the plane, of each place."""
    rotation = places.poses.rotation
    return torch.rad2deg(torch.atan2(rotation[:, 1, 0], rotation[:, 0, 0])).abs()


def test_places_stand_out_from_those_elsewhere_alone() -> None:
    shifts = torch.tensor([[0.0, 0, 0], [3.0, 0, 0], [0.0, 20, 0]])
    places = Places(VoxelPoses(torch.eye(3).repeat(3, 1, 1), shifts), torch.tensor([0.2, 0.21, 0.4]), 40.0)
    assert places.stands_out(0) == pytest.approx(0.5)
    assert places.stands_out(2) == 0
    assert places.apart_from_one_another(3) == [0, 2]
    alone = Places(VoxelPoses(*(part[:2] for part in places.poses)), places.apart[:2], 40.0)
    assert alone.stands_out(0) == 1
    found = Result(Pose.identity(), "none", 0.0, 0.5, ok=True, confidence=0.99, stands_out=CONTESTED / 2)
    assert doubted(found).ok is False
    assert "nearly as well" in doubted(found).reason
    assert doubted(replace(found, stands_out=2 * CONTESTED)).ok
    assert doubted(replace(found, stands_out=math.nan)).ok


def test_what_cannot_be_sought_is_said(universal: Registrar, scene: Scene) -> None:
    for wrong in ({"tilt_deg": -1.0}, {"tilt_step_deg": 0.0}, {"hypotheses": 0}, {"kept": 0}, {"seconds": 0.0}):
        with pytest.raises(ScopeRegError, match=f"{next(iter(wrong))} is "):
            SearchSettings(**wrong)  # type: ignore[arg-type]
    with pytest.raises(ScopeRegError, match="no features to compare turned frames by"):
        Locator(scene.volume, replace(universal, fine=None, calibration=None), any_angle=True)
    with pytest.raises(ScopeRegError, match="begins where it is told to"):
        Locator(scene.volume, "simpleitk-mi", any_angle=True)
    with pytest.raises(ScopeRegError, match="leave out wide=, or the start"):
        Locator(scene.volume, universal, any_angle=True).locate(scene.frame, scene.truth)


def test_what_shows_nothing_is_no_place(universal: Registrar, scene: Scene) -> None:
    """A black volume but for a corner: nowhere does it show half of the frame."""
    array = torch.zeros_like(scene.volume.array)
    array[:24, :48, :48] = scene.volume.array[24:48, 64:112, 64:112]
    volume = Volume(array, scene.volume.spacing_mm)
    with pytest.raises(RegistrationError, match="nothing of the volume is like the frame"):
        Locator(volume, universal).locate(scene.frame)
