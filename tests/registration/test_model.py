"""Models of the package find frames that they never saw, in any spacing, and say what they are."""

from __future__ import annotations

import inspect
from pathlib import Path

import numpy as np
import pytest
import torch

import scopereg
from scopereg.commands.adapt import AdaptOptions
from scopereg.commands.calibrate import CalibrateOptions
from scopereg.commands.evaluate import EvaluateOptions
from scopereg.commands.export import ExportOptions
from scopereg.commands.live import LiveOptions
from scopereg.commands.register import RegisterOptions
from scopereg.commands.track import TrackOptions
from scopereg.data import phantom
from scopereg.errors import ScopeRegError
from scopereg.geometry import VoxelPoses, mtre_mm, sample_poses
from scopereg.images import Frame, Volume, pose_to_voxels, unit_range
from scopereg.live.scene import Plan
from scopereg.networks import create
from scopereg.networks.weights import save_network
from scopereg.registration.locator import Locator
from scopereg.registration.model import Registrar, load, names
from scopereg.registration.settings import DEFAULT
from scopereg.registration.working_grid import frame_on_grid


@pytest.fixture(scope="module")
def patient() -> phantom.Phantom:
    return phantom.create("echo", seed=200_001)


def test_models_of_the_package_have_cards_and_calibrations() -> None:
    assert names() == ("universal",)
    for name in names():
        model = load(name, device="cpu")
        assert "Not for clinical use" in model.card
        assert model.calibration is not None


def test_every_verb_and_call_takes_the_default_model() -> None:
    assert DEFAULT in names()
    assert load(device="cpu").name == DEFAULT
    given = [inspect.signature(call).parameters["method"].default for call in (scopereg.register, Locator)]
    given += [options().method for options in (RegisterOptions, TrackOptions, LiveOptions, Plan)]
    given += [AdaptOptions().base, CalibrateOptions().model, ExportOptions().model, EvaluateOptions().methods[-1]]
    assert set(given) == {DEFAULT}


@pytest.mark.parametrize("anatomy", phantom.names())
@pytest.mark.parametrize("name", names())
def test_every_model_brings_unseen_frames_closer_and_has_a_card(name: str, anatomy: str) -> None:
    model = load(name, device="cpu")
    patient = phantom.create(anatomy, seed=200_000)
    poses = sample_poses(6, 10, patient.shape, torch.Generator().manual_seed(1))
    images = patient.acquire(*poses, seed=1).images
    with torch.inference_mode():
        result = model.network(images, patient.volume.array[None])
    found = VoxelPoses(result.rotation, result.translation)
    nothing = VoxelPoses(torch.eye(3).expand(6, 3, 3), torch.zeros(6, 3))
    errors, starts = (mtre_mm(p, poses, patient.shape[1:], patient.spacing_mm) for p in (found, nothing))
    assert errors.mean() < 0.5 * starts.mean()
    for needed in ("Not for clinical use", "scopereg train", "honest", "seed"):
        assert needed in model.card
    assert model.facts["settings"]["protocol"] == "honest"


def test_registering_gives_the_network_s_pose_in_millimetres(bare: Registrar, patient: phantom.Phantom) -> None:
    poses = sample_poses(1, 10, patient.shape, torch.Generator().manual_seed(2))
    image = patient.acquire(*poses, seed=2).images[0]
    frame = Frame(image, spacing_mm=patient.spacing_mm)
    found = pose_to_voxels(bare.register(frame, patient.volume).pose, frame, patient.volume)
    with torch.inference_mode():
        result = bare.network(image[None], patient.volume.array[None])
    torch.testing.assert_close(found.rotation, result.rotation[0], atol=1e-4, rtol=0)
    torch.testing.assert_close(found.translation, result.translation[0], atol=1e-3, rtol=0)


def test_a_finer_frame_of_another_size_is_found_at_the_same_place(narrow: Registrar, patient: phantom.Phantom) -> None:
    poses = sample_poses(1, 5, patient.shape, torch.Generator().manual_seed(3))
    coarse = patient.acquire(*poses, protocol="same-scanner", seed=3).images[0]
    fine = patient.acquire(*poses, protocol="same-scanner", seed=3, slice_shape=(90, 111)).images[0]
    whole = narrow.register(Frame(coarse, spacing_mm=patient.spacing_mm), patient.volume)
    part = narrow.register(Frame(fine, spacing_mm=patient.spacing_mm), patient.volume)
    assert np.abs(whole.pose.matrix[:3, 3] - part.pose.matrix[:3, 3]).max() < 2.5


@pytest.mark.parametrize("size", [(128, 128), (90, 111), (140, 150)])
def test_a_frame_keeps_its_place_in_millimetres_on_the_volume_s_grid(size: tuple[int, int]) -> None:
    volume = Volume(torch.rand(8, 128, 128), 1.0)
    x = torch.arange(size[1], dtype=torch.float32).expand(size)
    frame = Frame(x + 1, spacing_mm=1.0, origin_mm=(5.0, -7.0))  # the value tells the place
    on_grid = frame_on_grid(frame, volume)
    assert on_grid.shape == (128, 128)
    assert on_grid.centre_mm == pytest.approx(frame.centre_mm)
    column_mm = on_grid.origin_mm[0] + torch.arange(128)
    inside = (column_mm >= 5) & (column_mm <= 5 + size[1] - 1)
    torch.testing.assert_close(on_grid.array[64][inside], column_mm[inside] - 5 + 1, atol=1e-3, rtol=0)


@pytest.mark.parametrize(("size", "step_mm"), [((40, 41), 0.8), ((63, 64), 0.5), ((200, 131), 0.17)])
def test_a_frame_ends_where_it_ends_and_has_no_dark_border(size: tuple[int, int], step_mm: float) -> None:
    on_grid = frame_on_grid(Frame(torch.ones(size), step_mm), Volume(torch.rand(8, 128, 128), 0.5))
    assert bool(((on_grid.array == 0) | (on_grid.array > 0.999)).all())
    area_mm2 = float(on_grid.array.sum()) * 0.5**2
    assert area_mm2 == pytest.approx(size[0] * size[1] * step_mm**2, rel=0.06)


def test_values_in_the_unit_range_stay_and_others_are_scaled() -> None:
    unit = torch.rand(9, 9)
    assert unit_range(unit).equal(unit)
    wide = torch.arange(1000.0).reshape(10, 100)
    scaled = unit_range(wide)
    assert scaled.min() == 0
    assert scaled.max() == 1
    assert scaled.flatten()[500] == pytest.approx(0.5, abs=0.01)


def test_weights_of_one_s_own_load_by_path(tmp_path: Path) -> None:
    path = save_network(create("scope-reg"), tmp_path / "mine.safetensors", name="scope-reg", facts={"seed": 1})
    model = load(path, device="cpu")
    assert model.name == "mine"
    assert model.facts == {"seed": 1}
    assert "no model card" in model.card


def test_unknown_models_and_empty_frames_are_explained(narrow: Registrar, patient: phantom.Phantom) -> None:
    with pytest.raises(ScopeRegError, match="did you mean 'universal'"):
        load("univresal")
    with pytest.raises(ScopeRegError, match=r"no model 'echo'\n.*use one of universal, or the path"):
        load("echo")  # a phantom, no model
    with pytest.raises(ScopeRegError, match="no such file"):
        load("missing.safetensors")
    with pytest.raises(ScopeRegError, match="every value is 0"):
        narrow.register(Frame(torch.zeros(128, 128), spacing_mm=0.616), patient.volume)
