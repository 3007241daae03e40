"""The classical peers find the pose, in any world frame and every time alike, and say so when they cannot."""

from __future__ import annotations

import sys
import tempfile
import types
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch

from scopereg.data import phantom
from scopereg.errors import ScopeRegError
from scopereg.geometry import Pose, VoxelPoses, rotation_from_euler_deg, sample_slice
from scopereg.images import Frame, Volume, pose_from_voxels, pose_to_voxels
from scopereg.registration.classical import (
    PEERS,
    ElastixOptions,
    Peer,
    centre_pose,
    register_elastix,
)
from scopereg.registration.classical.elastix import parameter_map
from scopereg.registration.method import create, names
from scopereg.registration.result import RegistrationError

needs_elastix = pytest.mark.skipif(
    find_spec("itk") is None, reason="elastix is not installed: pip install 'scopereg[baselines]'"
)
every_peer = pytest.mark.parametrize(
    "peer",
    [pytest.param(peer, id=name, marks=[needs_elastix] if name == "elastix" else []) for name, peer in PEERS.items()],
)


def textured(shape: tuple[int, int, int] = (24, 40, 40)) -> torch.Tensor:
    """Smooth random blobs: structure at several scales without any symmetry."""
    noise = torch.randn(1, 1, *(n // 4 + 1 for n in shape), generator=torch.Generator().manual_seed(0))
    smooth = torch.nn.functional.interpolate(noise, shape, mode="trilinear", align_corners=True)[0, 0]
    return (smooth - smooth.min()) / (smooth.max() - smooth.min()) + 0.05


@pytest.fixture(scope="module")
def patient() -> phantom.Phantom:
    return phantom.create("echo", seed=50_000)


def worlds() -> list[Volume]:
    tilted = rotation_from_euler_deg(torch.tensor([10.0, -35.0, 80.0]).double()).numpy()
    return [
        Volume(textured(), spacing_mm=0.8),
        Volume(textured(), spacing_mm=0.8, origin_mm=(40.0, -25.0, 110.0), direction=tilted),
    ]


def corners_apart_mm(pose: Pose, truth: Pose, frame: Frame) -> float:
    """Mean distance of the frame's corners."""
    size = [(n - 1) * step for n, step in zip(frame.shape[::-1], frame.spacing_mm, strict=True)]
    first = frame.origin_mm
    corners = np.array([[first[0] + x, first[1] + y, 0] for x in (0, size[0]) for y in (0, size[1])])
    return float(np.linalg.norm(pose.apply(corners) - truth.apply(corners), axis=1).mean())


@every_peer
@pytest.mark.parametrize("volume", worlds(), ids=["centred", "oblique"])
def test_a_cut_frame_is_found_again_in_any_world(volume: Volume, peer: Peer) -> None:
    rotation = rotation_from_euler_deg(torch.tensor([4.0, -3.0, 5.0]))
    translation = torch.tensor([2.0, -1.5, 2.0])
    # A frame that counts its millimetres from the top-left corner, as files do.
    cut = sample_slice(volume.array, rotation, translation)
    frame = Frame(0.7 * cut.square() + 0.1, spacing_mm=0.8, origin_mm=(0.0, 0.0))
    truth = pose_from_voxels(rotation, translation, frame, volume)
    result = peer.register(frame, volume)
    assert corners_apart_mm(centre_pose(frame, volume), truth, frame) > 2.0
    assert corners_apart_mm(result.pose, truth, frame) < 0.3
    assert result.pose.name == "ImageToVolume"
    assert PEERS[result.method].register is peer.register
    assert result.time_ms > 0
    assert result.iterations > 0
    assert result.similarity > 0.5


@every_peer
def test_large_tilts_about_all_axes_come_back_in_the_right_order(peer: Peer) -> None:
    """R = Rz Rx Ry and R = Rz Ry Rx differ by 3 degrees here: a wrong order of the angles shows."""
    volume = worlds()[1]
    frame = Frame(torch.ones(40, 40), spacing_mm=0.8)
    truth = pose_from_voxels(rotation_from_euler_deg(torch.tensor([15.0, -12.0, 20.0])), torch.zeros(3), frame, volume)
    cut = Frame(sample_slice(volume.array, *pose_to_voxels(truth, frame, volume)), spacing_mm=0.8)
    near = rotation_from_euler_deg(torch.tensor([3.0, 0.0, 1.0]).double()).numpy()
    start = Pose(truth.rotation @ near, truth.translation_mm)
    assert corners_apart_mm(peer.register(cut, volume, start).pose, truth, frame) < 0.1
    assert corners_apart_mm(peer.register(cut, volume).pose, truth, frame) < 0.1


@every_peer
def test_frames_of_a_phantom_are_found(peer: Peer, patient: phantom.Phantom) -> None:
    """Cut out of the volume within 0.1 mm; acquired anew with other speckle, gain and fan within 2.5 mm."""
    turn = rotation_from_euler_deg(torch.tensor([[3.0, -4.0, 4.0], [-4.0, 3.0, 2.0], [2.0, 4.0, -5.0]]))
    shift = torch.tensor([[4.0, -3.0, 2.0], [-3.0, 4.0, -4.0], [3.0, 4.0, 3.0]])
    found: dict[str, list[float]] = {"paper": [], "honest": []}
    for protocol, apart_mm in found.items():
        seen = patient.acquire(turn, shift, protocol=protocol, seed=1)
        for image, fan, rotation, translation in zip(seen.images, seen.fan, turn, shift, strict=True):
            frame = Frame(image, spacing_mm=patient.spacing_mm)
            truth = pose_from_voxels(rotation, translation, frame, patient.volume)
            assert corners_apart_mm(centre_pose(frame, patient.volume), truth, frame) > 3.5
            apart_mm.append(corners_apart_mm(peer.register(frame, patient.volume, seen=fan).pose, truth, frame))
    assert max(found["paper"]) < 0.1, found
    assert np.median(found["honest"]) < 2.5, found


@every_peer
def test_only_pixels_of_the_mask_count(peer: Peer) -> None:
    """A frame of two parts that lie in different places: the mask decides which of them is sought."""
    volume = worlds()[0]
    left, right = (
        VoxelPoses(
            rotation_from_euler_deg(sign * torch.tensor([1.0, -1.0, 2.0])), sign * torch.tensor([1.5, -1.0, 1.0])
        )
        for sign in (1, -1)
    )
    seen = torch.zeros(40, 40, dtype=torch.bool)
    seen[:, :20] = True
    frame = Frame(sample_slice(volume.array, *left).where(seen, sample_slice(volume.array, *right)), spacing_mm=0.8)
    for mask, poses in ((seen, left), (~seen, right)):
        truth = pose_from_voxels(*poses, frame, volume)
        assert corners_apart_mm(peer.register(frame, volume, seen=mask).pose, truth, frame) < 0.4


@every_peer
def test_two_runs_agree_to_the_last_bit_whatever_was_between(peer: Peer) -> None:
    volume = worlds()[0]
    frames = [
        Frame(sample_slice(volume.array, torch.eye(3), torch.tensor([1.0, 0.0, shift])), spacing_mm=0.8)
        for shift in (1.0, -1.0)
    ]
    first, _, again = (peer.register(frames[index], volume) for index in (0, 1, 0))
    assert np.array_equal(first.pose.matrix, again.pose.matrix)
    assert (first.similarity, first.iterations) == (again.similarity, again.iterations)


def test_the_centre_pose_is_the_identity_in_voxels() -> None:
    volume = worlds()[1]
    frame = Frame(torch.rand(40, 40), spacing_mm=0.8, origin_mm=(3.0, 4.0))
    rotation, translation = pose_to_voxels(centre_pose(frame, volume), frame, volume)
    assert torch.allclose(rotation, torch.eye(3), atol=1e-6)
    assert translation.abs().max() < 1e-5


@every_peer
def test_empty_images_are_refused(peer: Peer) -> None:
    volume = worlds()[0]
    with pytest.raises(RegistrationError, match="every value is 0"):
        peer.register(Frame(torch.zeros(8, 8), spacing_mm=1.0), volume)
    with pytest.raises(ScopeRegError, match="every value is 3") as caught:
        peer.register(Frame(torch.rand(8, 8), spacing_mm=1.0), Volume(torch.full((4, 4, 4), 3.0), 1.0))
    assert not isinstance(caught.value, RegistrationError)  # of the volume: no frame can be located in it


@every_peer
def test_a_start_far_outside_is_explained(peer: Peer) -> None:
    volume = worlds()[0]
    frame = Frame(torch.rand(40, 40), spacing_mm=0.8)
    with pytest.raises(RegistrationError, match=r"gave up: .*(inside|outside)") as caught:
        peer.register(frame, volume, Pose(np.eye(3), np.array([500.0, 0.0, 0.0])))
    assert "start nearer" in caught.value.fix
    assert "0x" not in str(caught.value)


@every_peer
@pytest.mark.parametrize("seen", [torch.ones(4, 4, dtype=torch.bool), torch.zeros(40, 40, dtype=torch.bool)])
def test_a_mask_that_does_not_fit_is_refused(peer: Peer, seen: torch.Tensor) -> None:
    frame = Frame(torch.rand(40, 40), spacing_mm=0.8)
    with pytest.raises(ScopeRegError, match="a mask of shape"):
        peer.register(frame, worlds()[0], seen=seen)


def test_correlation_counts_only_what_the_volume_sees() -> None:
    """A volume with a black border, a frame that looks past it: the border must not pull the frame inwards."""
    values = textured((24, 48, 48))
    poses = VoxelPoses(torch.eye(3), torch.tensor([5.0, 0.0, 0.0]))
    frame = Frame(sample_slice(values, *poses), spacing_mm=0.8)
    values[..., 38:] = 0
    volume = Volume(values, 0.8)
    truth = pose_from_voxels(*poses, frame, volume)
    peer = PEERS["simpleitk-ncc"]
    both, frame_only = (
        corners_apart_mm(
            peer.register(frame, volume, options=replace(peer.options, volume_mask=mask)).pose, truth, frame
        )
        for mask in (True, False)
    )
    assert both < 0.2
    assert frame_only > 4 * both


# elastix alone


def test_without_itk_elastix_tells_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "itk", None)
    volume = worlds()[0]
    frame = Frame(sample_slice(volume.array, torch.eye(3), torch.tensor([1.0, 0.0, 1.0])), spacing_mm=0.8)
    for use in (lambda: create("elastix"), lambda: PEERS["elastix"].register(frame, volume)):
        with pytest.raises(ScopeRegError, match="elastix is not installed") as caught:
            use()
        assert "pip install 'scopereg[baselines]'" in caught.value.fix
        assert not isinstance(caught.value, RegistrationError)  # or every frame would count as one that it missed
    assert "elastix" in names()


def test_itk_without_elastix_is_not_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "itk", types.ModuleType("itk"))
    with pytest.raises(ScopeRegError, match="elastix is not installed"):
        create("elastix")


@needs_elastix
def test_elastix_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """No file, no word, no changed number of threads, and draws that nobody else can disturb."""
    import itk

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    volume = worlds()[0]
    frame = Frame(sample_slice(volume.array, torch.eye(3), torch.tensor([1.0, 0.0, 1.0])), spacing_mm=0.8)
    threads = itk.MultiThreaderBase.GetGlobalDefaultNumberOfThreads()
    poses = []
    for seed in (7, 8):
        itk.MersenneTwisterRandomVariateGenerator.GetInstance().SetSeed(seed)
        poses.append(register_elastix(frame, volume).pose.matrix)
    other = register_elastix(frame, volume, options=ElastixOptions(seed=1)).pose.matrix
    with pytest.raises(RegistrationError):
        register_elastix(frame, volume, Pose(np.eye(3), np.array([500.0, 0.0, 0.0])))
    assert np.array_equal(poses[0], poses[1])
    assert not np.array_equal(poses[0], other)
    assert itk.MultiThreaderBase.GetGlobalDefaultNumberOfThreads() == threads
    assert list(tmp_path.iterdir()) == []
    assert capfd.readouterr() == ("", "")


def test_the_slice_is_never_smoothed_along_its_missing_axis() -> None:
    found = parameter_map(ElastixOptions())
    assert found["FixedImagePyramidSchedule"] == tuple("440220110")
    assert found["MovingImagePyramidSchedule"] == tuple("444222111")
    assert found["ErodeMask"] == ("false",)
