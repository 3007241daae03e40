"""The fine stage behind a network: its poses in sessions, its quality features, and its features as a likeness."""

from __future__ import annotations

import shutil
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

import scopereg
from scopereg.data import phantom
from scopereg.errors import ScopeRegError
from scopereg.geometry import VoxelPoses, mtre_mm, sample_poses
from scopereg.geometry.steps import inverse_positive, lever_voxels, moved
from scopereg.images import Frame, Volume, pose_from_voxels, pose_to_voxels
from scopereg.networks.fine import FineStage
from scopereg.networks.weights import SHIPPED, fine_beside, save_network
from scopereg.ops import descent
from scopereg.registration.confidence import FINE_FEATURES, at_pose, features_of
from scopereg.registration.fine import PreparedFine
from scopereg.registration.learned import Learned, make_learned
from scopereg.registration.likeness import Likeness, PreparedLikeness
from scopereg.registration.locator import Locator
from scopereg.registration.model import Registrar, load
from scopereg.registration.network import NetworkMethod
from scopereg.registration.places import find_places
from scopereg.registration.refine import Refiner
from scopereg.registration.result import apart_mm
from scopereg.registration.settings import SearchSettings

SHAPE = (32, 96, 96)


@pytest.fixture(scope="module")
def universal() -> Registrar:
    return load(calibrated=False)


@pytest.fixture(scope="module")
def patient() -> phantom.Phantom:
    return phantom.create("echo", seed=200_101, shape=SHAPE)


@pytest.fixture(scope="module")
def poses() -> VoxelPoses:
    drawn = sample_poses(3, 6, SHAPE, torch.Generator().manual_seed(4))
    return VoxelPoses(drawn.rotation.float(), drawn.translation.float())


@pytest.fixture(scope="module")
def images(patient: phantom.Phantom, poses: VoxelPoses) -> torch.Tensor:
    return patient.acquire(*poses, seed=1).images


@pytest.fixture(scope="module")
def prepared(universal: Registrar, patient: phantom.Phantom) -> PreparedFine:
    assert universal.fine is not None
    return PreparedFine(universal.fine, patient.volume.array)


def test_a_session_goes_on_from_the_network_by_the_fine_stage(
    universal: Registrar, patient: phantom.Phantom, images: torch.Tensor, poses: VoxelPoses
) -> None:
    assert universal.fine is not None
    found = universal.prepare(patient.volume).locate(images).poses
    alone = replace(universal, fine=None).prepare(patient.volume).locate(images).poses
    with torch.no_grad():
        twin = universal.fine(images, patient.volume.array[None], alone)
    torch.testing.assert_close(found.translation, twin.translation, rtol=0, atol=1e-3)
    torch.testing.assert_close(found.rotation, twin.rotation, rtol=0, atol=1e-4)
    errors, before = (mtre_mm(one, poses, SHAPE[1:], patient.spacing_mm) for one in (found, alone))
    assert errors.mean() < before.mean()


def test_features_of_the_fine_stage_tell_how_good_a_pose_is(
    prepared: PreparedFine, images: torch.Tensor, poses: VoxelPoses
) -> None:
    read = prepared.read(images)
    there = prepared.locate(read, poses)
    near = prepared.features(read, VoxelPoses(there.rotation, there.translation)).mean(0)
    away = moved(poses, torch.full((3, 6), 5.0), lever_voxels(*SHAPE[1:]))
    far = prepared.features(read, away).mean(0)
    disagreement, _, telling, _ = range(4)
    assert near[disagreement] < far[disagreement] - 0.3
    assert near[telling] > far[telling] + 0.1
    noise = prepared.features(prepared.read(torch.rand(3, *SHAPE[1:])), poses).mean(0)
    assert noise[disagreement] > near[disagreement] + 0.3


@pytest.mark.parametrize("told", [0.9, 1.0, 1.06])
def test_a_wrong_pixel_size_is_felt(prepared: PreparedFine, patient: phantom.Phantom, told: float) -> None:
    """Pixels that are said to be so many times as large as they are: it is told to a hundredth or two."""
    drawn = sample_poses(3, 3, SHAPE, torch.Generator().manual_seed(5))
    spacing_mm = patient.spacing_mm
    frames = [Frame(image, spacing_mm=spacing_mm * told) for image in patient.acquire(*drawn, seed=2).images]
    read = prepared.read(torch.stack([frame.resampled(spacing_mm, SHAPE[:0:-1]).array for frame in frames]))
    found = prepared.locate(read, VoxelPoses(drawn.rotation.float(), drawn.translation.float()))
    sizes = prepared.stretch(read, found)
    assert (sizes * told - 1).abs().median() < 0.02
    share = prepared.features(read, found)[:, 3].exp() - 0.005
    torch.testing.assert_close(share, (sizes - 1).abs().amax(1), rtol=1e-3, atol=1e-4)


def test_results_have_these_features_and_keep_those_of_the_network_when_refined(
    universal: Registrar, patient: phantom.Phantom, images: torch.Tensor
) -> None:
    frame = Frame(images[0], spacing_mm=patient.spacing_mm)
    with replace(universal, observed=True).prepare(patient.volume) as session:
        found = session.register(frame)
        assert tuple(found.features) == features_of(fine=True)
        where = pose_to_voxels(found.pose, frame, patient.volume)
        moved_on = pose_from_voxels(where.rotation, where.translation + 3, frame, patient.volume)
        refined = session.judge_refined(frame, replace(found, pose=moved_on))
    changed = [name for name in found.features if found.features[name] != refined.features[name]]
    assert changed == list(features_of(fine=True))[at_pose(fine=True)]
    assert found.features["disagreement"] < refined.features["disagreement"]
    assert not set(FINE_FEATURES) & set(features_of())


def test_a_network_can_be_had_without_it_and_is_not_judged_then(tmp_path: Path) -> None:
    bare = load(fine=False)
    assert bare.fine is None
    assert bare.calibration is None
    assert bare.fingerprint != load(calibrated=False).fingerprint
    assert NetworkMethod(bare).facts != NetworkMethod(load()).facts  # results of both are not told as of one
    own = Path(shutil.copy(str(SHIPPED / "universal.safetensors"), tmp_path / "own.safetensors"))
    assert load(own).fine is None
    torch.manual_seed(0)
    save_network(FineStage(), fine_beside(own), name="fine-stage")
    assert isinstance(load(own).fine, FineStage)
    shutil.copy(own, fine_beside(own))
    with pytest.raises(ScopeRegError, match="it holds a ScopeReg"):
        load(own)


def test_its_features_are_a_likeness_that_leads_home(
    prepared: PreparedFine, patient: phantom.Phantom, images: torch.Tensor, poses: VoxelPoses
) -> None:
    likeness = Learned(prepared.stage)
    assert isinstance(likeness, Likeness)
    assert isinstance(likeness.prepare(patient.volume.array), PreparedLikeness)
    assert make_learned(torch.device("cpu"), far=True).facts == likeness.facts
    start = moved(poses, torch.tensor([[4.0, -3.0, 4.0, 3.0, -4.0, 3.0]]).expand(3, -1), lever_voxels(*SHAPE[1:]))
    found = Refiner(patient.volume.array, likeness).refine(images, start)
    errors, before = (mtre_mm(one, poses, SHAPE[1:], patient.spacing_mm) for one in (found.poses, start))
    assert before.min() > 3
    assert errors.mean() < 2
    assert (found.similarity > found.similarity_before).all()
    empty = Refiner(torch.zeros(SHAPE), likeness).refine(images, VoxelPoses(poses.rotation, poses.translation + 500))
    assert (empty.similarity == -1).all()


def test_the_learned_merit_rises_along_its_slope(
    prepared: PreparedFine, patient: phantom.Phantom, images: torch.Tensor, poses: VoxelPoses
) -> None:
    """The equations are those of a robust mean, whose weights stand still: their step is uphill."""
    for comparison in Learned(prepared.stage).prepare(patient.volume.array).compare(images, torch.ones_like(images)):
        away = moved(poses, torch.full((3, 6), 1.5), comparison.lever)
        with torch.no_grad():
            at = comparison.normal(away)
            uphill = torch.nn.functional.normalize(-at.slope, dim=1) * 0.05
            higher = comparison.normal(moved(away, uphill, comparison.lever)).merit
        assert (higher > at.merit).all()


def test_inverse_of_positive_matrices() -> None:
    factors = torch.rand(4, 6, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    matrices = factors @ factors.transpose(1, 2) + torch.eye(6)
    torch.testing.assert_close(inverse_positive(matrices), torch.linalg.inv(matrices))


def test_any_method_can_be_refined_by_it(patient: phantom.Phantom, images: torch.Tensor, poses: VoxelPoses) -> None:
    frame = Frame(images[0], spacing_mm=patient.spacing_mm)
    near = moved(poses, torch.full((3, 6), 2.0), lever_voxels(*SHAPE[1:]))
    start = pose_from_voxels(near.rotation[0], near.translation[0], frame, patient.volume)
    found = scopereg.register(frame, patient.volume, method="identity+refine=learned", start=start)
    where = pose_to_voxels(found.pose, frame, patient.volume)
    ours = VoxelPoses(where.rotation[None].float(), where.translation[None].float())
    true = VoxelPoses(poses.rotation[:1], poses.translation[:1])
    assert float(mtre_mm(ours, true, SHAPE[1:], patient.spacing_mm)) < 2
    assert found.method.endswith("refined by learned")


def test_what_does_not_count_is_black_and_part_of_no_likeness(
    universal: Registrar, prepared: PreparedFine, patient: phantom.Phantom, images: torch.Tensor, poses: VoxelPoses
) -> None:
    """Whatever is written over a frame: pose, features and learned likeness are those of the frame without it."""
    masks = torch.ones_like(images, dtype=torch.bool)
    masks[:, 20:40, 30:60] = False
    noise = torch.rand(images.shape, generator=torch.Generator().manual_seed(3))
    written = torch.where(masks, images, noise)
    with replace(universal, observed=True).prepare(patient.volume) as session:
        clean, other = (session.examine(each, masks) for each in (images * masks, written))
        torch.testing.assert_close(other.poses.translation, clean.poses.translation)
        torch.testing.assert_close(other.features, clean.features)
        at = session.features_at(written, poses, masks)
        torch.testing.assert_close(at, session.features_at(images * masks, poses, masks))
        frames = [Frame(each[0], patient.spacing_mm, mask=masks[0]) for each in (images, written)]
        one, same = (session.register(frame) for frame in frames)
    assert one.pose.is_close(same.pose, mm=1e-4, deg=1e-4)
    assert one.features == pytest.approx(same.features)
    likeness = Learned(prepared.stage).prepare(patient.volume.array)
    told = [
        [comparison.similarity(poses) for comparison in likeness.compare(each, masks.float())]
        for each in (images, written)
    ]
    torch.testing.assert_close(*told)


def test_where_a_volume_has_no_picture_it_is_black_to_the_likeness(
    prepared: PreparedFine, patient: phantom.Phantom
) -> None:
    known = torch.ones(SHAPE, dtype=torch.bool)
    known[:, :, :20] = False
    shown, cut = (
        Learned(prepared.stage).prepare(volume, there).encoded.levels[2].table
        for volume, there in ((patient.volume.array, known), (patient.volume.array * known, None))
    )
    assert torch.equal(shown, cut)


@pytest.mark.parametrize("shape", [(4, 8, 8), (1, 9, 17), (3, 40, 24)])
def test_tiny_volumes_are_prepared_too(prepared: PreparedFine, shape: tuple[int, int, int]) -> None:
    """However little there is to compare: a pose comes out, and it is a number."""
    volume = torch.rand(shape, generator=torch.Generator().manual_seed(1))
    small = PreparedFine(prepared.stage, volume)
    start = VoxelPoses.identity(2, volume.device)
    for frames in (volume[:1].expand(2, -1, -1), torch.zeros(2, *shape[1:])):
        read = small.read(frames)
        found = small.locate(read, start)
        assert found.translation.isfinite().all()
        assert small.features(read, found).isfinite().all()
    assert (found.translation == 0).all()  # of a frame that shows nothing


def test_a_frame_of_another_size_and_a_volume_of_long_voxels_are_found_as_well(
    universal: Registrar, patient: phantom.Phantom, images: torch.Tensor, poses: VoxelPoses
) -> None:
    """They are brought to one grid, on which the fine stage goes on from the network."""
    step = patient.spacing_mm
    long = Volume(patient.volume.array[::2], (step, step, 2 * step), patient.volume.origin_mm)
    locator, errors = Locator(long, universal), []
    for row, image in enumerate(images):
        whole = Frame(image, spacing_mm=step)
        true = pose_from_voxels(poses.rotation[row], poses.translation[row], whole, patient.volume)
        part = whole.cut(8, 0, 92, 80)
        frame = Frame(part.array[:, ::2], (2 * step, step), part.origin_mm)
        errors.append(apart_mm(frame, locator.locate(frame).pose, true))
    assert sum(errors) / len(errors) < 3  # with half of the columns and planes: 2.3


@pytest.mark.skipif(find_spec("numba") is None, reason="needs numba")
def test_the_size_of_pixels_is_sought_alike_by_kernel_and_twin(
    prepared: PreparedFine, images: torch.Tensor, poses: VoxelPoses, monkeypatch: pytest.MonkeyPatch
) -> None:
    with torch.no_grad():
        read = prepared.read(images)
        there = prepared.locate(read, poses)
        fast = prepared.stretch(read, there)
        monkeypatch.setattr(descent, "serves", lambda table: False)
        torch.testing.assert_close(fast, prepared.stretch(read, there), rtol=0, atol=1e-4)
    assert (fast - 1).abs().max() > 1e-3


def test_a_closed_session_has_no_fine_stage_left(universal: Registrar, patient: phantom.Phantom) -> None:
    session = universal.prepare(patient.volume)
    session.close()
    assert session.fine is None
    with pytest.raises(ScopeRegError, match="the session is closed"):
        session.features_at(torch.zeros(1, *SHAPE[1:]), VoxelPoses.identity(1, torch.device("cpu")))


def test_a_search_begins_and_ends_with_the_fine_stage(
    universal: Registrar, prepared: PreparedFine, patient: phantom.Phantom, images: torch.Tensor
) -> None:
    """The network looks from the best place that the features tell, and the fine stage goes on from there."""
    frame = Frame(images[0], spacing_mm=patient.spacing_mm)
    with universal.prepare(patient.volume) as session:
        found = session.search(frame, SearchSettings(kept=1))
        coarse = session._locate_from(images[0], *find_places(prepared, images[0], SearchSettings()).pose(0), 1)
    there = prepared.locate(prepared.read(images[:1]), VoxelPoses(coarse.rotation, coarse.translation))
    where = pose_to_voxels(found.pose, frame, patient.volume)
    torch.testing.assert_close(where.translation, there.translation[0], atol=1e-3, rtol=0)
    assert 0 < found.stands_out <= 1
