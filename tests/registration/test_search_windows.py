"""Windows: frames found in volumes much larger than those that a network was trained on, and from any start."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch

import scopereg
from scopereg.data import phantom
from scopereg.errors import ScopeRegError
from scopereg.geometry import Pose, VoxelPoses, compose_poses, resample_volume, sample_poses
from scopereg.images import Frame, Volume, pose_from_voxels, pose_to_voxels, seen_from
from scopereg.networks import create
from scopereg.networks.weights import save_network
from scopereg.registration.calibration import BEYOND, largest_offset
from scopereg.registration.locator import Locator
from scopereg.registration.model import Registrar
from scopereg.registration.result import RegistrationError, Result, apart_mm
from scopereg.registration.search import StartOptions, Windows, starts, window_shape
from scopereg.registration.session import Session
from scopereg.registration.settings import SearchSettings
from scopereg.registration.tracker import Tracker


class Large(NamedTuple):
    """A phantom somewhere in a volume that shows next to nothing elsewhere, and frames of it."""

    volume: Volume
    phantom: Volume
    frames: list[Frame]
    truth: list[Pose]


def sized_model(device: str) -> Registrar:
    """The model for any organ, as if it knew volumes of 40 x 64 x 64 voxels of 0.8 mm alone."""
    model = scopereg.load("universal", device)
    facts = {name: fact for name, fact in model.facts.items() if name != "grid"}
    return replace(model, facts={**facts, "shape": [40, 64, 64], "spacing_mm": 0.8})


@pytest.fixture(scope="module")
def sized() -> Registrar:
    return sized_model("cpu")


@pytest.fixture(scope="module")
def large() -> Large:
    patient = phantom.create("prostate", seed=200_001)
    shifts = torch.linspace(-2, 2, 5)[:, None] * torch.tensor([1.0, 0.5, -1.0]) + torch.tensor([3.0, -2.0, 4.0])
    poses = VoxelPoses(
        sample_poses(1, 5, patient.shape, torch.Generator().manual_seed(3)).rotation.repeat(5, 1, 1), shifts
    )
    frames = [
        Frame(image, spacing_mm=patient.spacing_mm)
        for image in patient.acquire(*poses, protocol="paper", seed=3).images
    ]
    truth = [pose_from_voxels(*pose, frames[0], patient.volume) for pose in zip(*poses, strict=True)]
    # Farther off than the network looks, and the phantom ends short of the volume.
    corner, shape = (30, 6, 66), (80, 72, 136)
    array = 0.1 * torch.rand(shape, generator=torch.Generator().manual_seed(0))
    rows = [slice(first, first + n) for first, n in zip(corner, patient.shape, strict=True)]
    array[rows[0], rows[1], rows[2]] = patient.volume.array
    first = np.array(patient.volume.origin_mm) - np.array(corner[::-1]) * patient.spacing_mm
    return Large(Volume(array, patient.spacing_mm, first.tolist()), patient.volume, frames, truth)


@pytest.fixture(scope="module")
def known() -> dict[int, Result]:
    """What searches of the large volume have found, by frame."""
    return {}


@pytest.fixture
def searched(known: dict[int, Result], monkeypatch: pytest.MonkeyPatch) -> list[Frame]:
    """Frames that were searched for everywhere, which takes a while: where one test has done so, others know it."""
    seen: list[Frame] = []
    search = Windows.search

    def remembered(self: Windows, frame: Frame, settings: SearchSettings) -> Result:
        seen.append(frame)
        if id(frame) not in known:
            known[id(frame)] = search(self, frame, settings)
        return known[id(frame)]

    monkeypatch.setattr(Windows, "search", remembered)
    return seen


def test_starts_in_a_large_volume_leave_no_gap() -> None:
    options = StartOptions(step_voxels=20)
    alone, more = starts(options), starts(options, (37.0, 17.0, 43.5))
    assert torch.equal(more.translation[:13], alone.translation)
    assert len(more.translation) == 12 + 5 * 3 * 7  # the middle is there once
    assert torch.equal(more.rotation[13:], torch.eye(3).expand(len(more.rotation) - 13, 3, 3))
    for axis, room in enumerate((37.0, 17.0, 43.5)):
        places = torch.cat([more.translation[13:, axis], torch.zeros(1)]).unique()
        assert (float(places.min()), float(places.max())) == (-room, room)
        assert float(places.diff().max()) <= 20
    assert len(starts(options, (6.0, 0.0, 6.0)).translation) == 13  # a little more room than usual


def test_windows_are_as_large_as_what_the_network_knows(sized: Registrar) -> None:
    def shape(*volume: int, **facts: object) -> tuple[int, int, int]:
        model = replace(sized, facts={**sized.facts, **facts})
        return window_shape(model, Volume(torch.zeros(volume), 0.8))

    assert sized.facts["shape"] == [40, 64, 64]
    assert shape(40, 64, 64) == (40, 64, 64)
    assert shape(60, 80, 90) == (60, 80, 90)  # as it is: not much larger
    assert shape(61, 80, 90) == (40, 64, 64)
    assert shape(20, 200, 64) == (20, 64, 64)  # never more than there is
    assert shape(60, 80, 90, window=[16, 32, 100]) == (16, 32, 90)
    assert shape(400, 80, 90, shape=None) == (400, 80, 90)


def test_a_volume_seen_from_a_pose_lies_where_it_lay() -> None:
    generator = torch.Generator().manual_seed(0)
    turn = sample_poses(2, 20, (20, 24, 28), generator)
    volume = Volume(torch.rand(20, 24, 28, generator=generator), 2.0, (3, 4, 5), turn.rotation[0].double().numpy())
    seen = seen_from(volume, turn.rotation[1], turn.translation[1], (8, 10, 12))
    assert (seen.shape, seen.spacing_mm) == ((8, 10, 12), volume.spacing_mm)
    frame = Frame(torch.zeros(10, 12), spacing_mm=2.0, origin_mm=(1, 2))
    middle = pose_from_voxels(torch.eye(3), torch.zeros(3), frame, seen)
    assert middle.is_close(pose_from_voxels(turn.rotation[1], turn.translation[1], frame, volume), mm=1e-4, deg=1e-3)


def test_from_a_start_it_is_the_network_in_the_resampled_volume(sized: Registrar, large: Large) -> None:
    """The slow twin: resample, run the network and its fine stage, compose."""
    frame = large.frames[0]
    parts = Windows(sized, large.volume)
    assert not parts.covers
    assert parts.count == pytest.approx(80 * 72 * 136 / (40 * 64 * 64))
    assert parts.room_voxels == (36.0, 4.0, 20.0)
    near = pose_to_voxels(large.truth[0], frame, large.volume)
    first = VoxelPoses(near.rotation[None], near.translation[None] + torch.tensor([3.0, -4.0, 2.0]))
    with torch.inference_mode():
        window = resample_volume(large.volume.array[None], *first, shape=(40, 64, 64))
        assert sized.fine is not None
        found = sized.network(frame.array[None], window)
        found = sized.fine(frame.array[None], window, VoxelPoses(found.rotation, found.translation))
        expected = compose_poses(first, VoxelPoses(found.rotation, found.translation))
    start = pose_from_voxels(first.rotation[0], first.translation[0], frame, large.volume)
    result = parts.register(frame, start)
    wanted = pose_from_voxels(expected.rotation[0], expected.translation[0], frame, large.volume)
    assert result.pose.is_close(wanted, mm=0.02, deg=0.02)
    assert result.seen_from is start
    assert result.evidence is not None
    assert apart_mm(frame, result.pose, large.truth[0]) < 3
    assert Locator(large.volume, sized).locate(frame, start).pose.is_close(wanted, mm=0.02, deg=0.02)


@pytest.mark.slow
def test_a_frame_is_found_anywhere_in_a_large_volume(sized: Registrar, large: Large, searched: list[Frame]) -> None:
    frame, true = large.frames[0], large.truth[0]
    locator = Locator(large.volume, sized, wide=True, refine=True)
    found = locator.locate(frame)
    assert len(searched) == 1
    assert apart_mm(frame, found.pose, true) < 1
    assert found.method == "universal network, refined"
    assert 0 < found.stands_out <= 1
    assert any("sought in all of the volume" in note for note in found.notes)
    assert not any("a wide search" in note for note in locator.notes)
    assert any(
        "this one has 80 x 72 x 136: a wide search looks all over it" in n for n in Locator(large.volume, sized).notes
    )
    plain = locator.narrow().locate(frame)
    assert apart_mm(frame, plain.pose, true) > 10
    assert plain.ok is False


@pytest.mark.slow
def test_what_is_not_there_is_not_believed(sized: Registrar, large: Large) -> None:
    other = phantom.create("echo", seed=7, shape=(32, 64, 64))
    image = other.acquire(torch.eye(3)[None], torch.zeros(1, 3), seed=1).images[0]
    found = Locator(large.volume, sized, wide=True).locate(Frame(image, spacing_mm=0.8))
    assert found.ok is False


def test_verdicts_count_from_where_the_network_looked(sized: Registrar, large: Large) -> None:
    """Unless the window hangs far out of the volume: nobody looked at what verdicts are worth there."""
    frame, true = large.frames[2], large.truth[2]
    sure = sized.calibration
    assert sure is not None
    none = (0.0,) * 2 * len(sure.error_models["network"].features)
    made = {  # all errors are small, and nothing is a stranger
        name: replace(one, offset=-3.0, limits={}, own_weights=none, own_offset=20.0)
        for name, one in sure.error_models.items()
    }
    model = replace(sized, calibration=replace(sure, error_models=made))
    prepared = Locator(large.volume, model).prepared
    inside = prepared.volume_for(frame).windows.register(frame, true)  # type: ignore[attr-defined]
    assert inside.ok is True
    assert inside.seen_from is true
    refined = replace(inside, pose=true)
    adapted = Locator(large.volume, replace(model, facts={**model.facts, "window": [40, 64, 64]})).prepared
    assert adapted.volume_for(frame).window.shape == (40, 64, 64)  # type: ignore[attr-defined]
    assert adapted.judge_refined(frame, refined).ok is True
    alike = [one.judge_refined(frame, refined) for one in (prepared, adapted)]
    assert alike[0].features == pytest.approx(alike[1].features, abs=1e-4)
    far = prepared.volume_for(frame).session.judge_refined(frame, replace(refined, seen_from=None))  # type: ignore[attr-defined]
    assert (far.ok, far.belongs) == (None, None)
    assert "off the middle of the volume" in far.reason
    start = pose_from_voxels(torch.eye(3), torch.tensor([12.0, 12.0, 6.0]), frame, large.phantom)
    for reach in (3, 15):
        known = replace(sure, error_models=made, made_on={**sure.made_on, "magnitude": reach})
        small = Windows(replace(model, calibration=known), large.phantom)  # its windows are as large as itself
        placed = small.register(frame, start)
        assert placed.seen_from is start
        offset = largest_offset(*pose_to_voxels(placed.pose, frame, large.phantom))
        assert 3 * BEYOND < offset < 15
        assert placed.ok is (True if offset <= BEYOND * reach else None)


def test_a_refined_pose_is_judged_in_the_window_it_was_seen_from_though_that_hangs_out(
    sized: Registrar, large: Large
) -> None:
    """In the volume's middle it shares little with the frame, which would look like one of something else."""
    frame, true, spacing_mm = large.frames[2], large.truth[2], large.volume.isotropic_spacing_mm
    depth = float(pose_to_voxels(true, frame, large.volume).translation[2]) + large.volume.shape[0] / 2
    begin = round(depth) - 4  # of 40 planes of the window 16 lie before it
    first = (*large.volume.origin_mm[:2], large.volume.origin_mm[2] + begin * spacing_mm)
    volume = Volume(large.volume.array[begin:].clone(), spacing_mm, first)
    prepared = Locator(volume, sized).prepared
    windows = prepared.volume_for(frame).windows  # type: ignore[attr-defined]
    assert windows._inside(pose_to_voxels(true, frame, volume)) < 0.7
    found = windows.register(frame, true)
    judged = prepared.judge_refined(frame, found)
    assert [*judged.features.values()] == pytest.approx([*found.features.values()], abs=0.05)
    assert judged.belongs is found.belongs


def test_a_large_volume_is_looked_at_again_where_the_frame_was_found(sized: Registrar, large: Large) -> None:
    """In the middle of a volume that is large on all sides: the verdict is that of a volume that the network knows."""
    pad = 32
    array = torch.nn.functional.pad(large.phantom.array, [pad] * 6)
    around = Volume(array, 0.8, (np.array(large.phantom.origin_mm) - pad * 0.8).tolist())
    frame, true = large.frames[3], large.truth[3]
    prepared = Locator(around, sized).prepared
    (found,) = prepared.locate([frame], [None])
    assert not isinstance(found, ScopeRegError)
    assert found.seen_from is not None
    first = prepared.volume_for(frame).session.register(frame)  # type: ignore[attr-defined]
    assert found.seen_from.is_close(first.pose)
    assert apart_mm(frame, found.pose, true) < min(2, 0.8 * apart_mm(frame, first.pose, true))
    assert found.ok


@pytest.mark.slow
def test_a_probe_is_followed_through_a_large_volume(sized: Registrar, large: Large, searched: list[Frame]) -> None:
    """A wide search until it is found, then from where the motion puts the frames."""
    tracker = Tracker(Locator(large.volume, replace(sized, calibration=None), wide=True, refine=True))
    steps = [tracker.follow(frame, row / 10) for row, frame in enumerate(large.frames)]
    assert steps[0].state == "found"
    assert {step.state for step in steps[1:]} <= {"followed", "carried"}
    errors = [
        apart_mm(frame, step.result.pose, true)
        for frame, step, true in zip(large.frames, steps, large.truth, strict=True)
    ]
    assert max(errors) < 1
    assert steps[3].alone is not None
    assert apart_mm(large.frames[3], steps[3].alone.pose, large.truth[3]) > 10  # from the middle it is not found
    assert len(searched) == 1


def test_a_start_outside_fails_alone(sized: Registrar, large: Large) -> None:
    frame = large.frames[0]
    away = pose_from_voxels(torch.eye(3), torch.tensor([0.0, 0.0, 500.0]), frame, large.volume)
    locator = Locator(large.volume, sized)
    bad, good = locator.locate_all([frame, frame], [away, large.truth[0]])
    assert isinstance(bad, RegistrationError)
    assert "around the start" in bad.what
    assert not isinstance(good, ScopeRegError)
    assert apart_mm(frame, good.pose, large.truth[0]) < 3


@pytest.mark.parametrize(("looks", "wanted"), [(1, Windows), (2, Session)])
def test_a_network_that_looks_once_is_given_windows(
    looks: int, wanted: type, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It cannot look again at what is encoded, however small the volume is."""
    volume, frame = Volume(torch.rand(16, 32, 32), 1.0), Frame(torch.rand(32, 32), 1.0)
    asked: list[type] = []

    def search(self: object, frame: Frame, *_: object) -> Result:
        asked.append(type(self))
        return Result(pose_from_voxels(torch.eye(3), torch.zeros(3), frame, volume), "none", 0.0, 0.0)

    for kind in (Windows, Session):
        monkeypatch.setattr(kind, "search", search)
    torch.manual_seed(0)
    network, facts = create("scope-reg", looks=looks), {"shape": [16, 32, 32], "spacing_mm": 1.0}
    path = save_network(network, tmp_path / "mine.safetensors", name="scope-reg", options={"looks": looks}, facts=facts)
    Locator(volume, str(path), wide=True, device="cpu").locate(frame)
    assert asked == [wanted]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
def test_a_gpu_finds_the_same_place_in_a_large_volume(large: Large) -> None:
    frame = large.frames[2]
    cpu, gpu = (
        Locator(large.volume, sized_model(device), wide=True, refine=True).locate(frame) for device in ("cpu", "cuda")
    )
    assert apart_mm(frame, cpu.pose, gpu.pose) < 0.5
    assert cpu.ok == gpu.ok
