"""Mutual information through SimpleITK finds the pose, in any world frame, and says so when it cannot."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from scopereg.errors import ScopeRegError
from scopereg.geometry import Pose, rotation_from_euler_deg, sample_slice
from scopereg.images import Frame, Volume, pose_from_voxels, pose_to_voxels
from scopereg.registration.classical import centre_pose, register_mutual_information


def textured(shape: tuple[int, int, int] = (24, 40, 40)) -> torch.Tensor:
    """Smooth random blobs: structure at several scales without any symmetry."""
    noise = torch.randn(1, 1, *(n // 4 + 1 for n in shape), generator=torch.Generator().manual_seed(0))
    smooth = torch.nn.functional.interpolate(noise, shape, mode="trilinear", align_corners=True)[0, 0]
    return (smooth - smooth.min()) / (smooth.max() - smooth.min()) + 0.05


def worlds() -> list[Volume]:
    tilted = rotation_from_euler_deg(torch.tensor([10.0, -35.0, 80.0]).double()).numpy()
    return [
        Volume(textured(), spacing_mm=0.8),
        Volume(textured(), spacing_mm=0.8, origin_mm=(40.0, -25.0, 110.0), direction=tilted),
    ]


@pytest.mark.parametrize("volume", worlds(), ids=["centred", "oblique"])
def test_a_cut_frame_is_found_again_in_any_world(volume: Volume) -> None:
    rotation = rotation_from_euler_deg(torch.tensor([4.0, -3.0, 5.0]))
    translation = torch.tensor([2.0, -1.5, 2.0])
    # A frame that counts its millimetres from the top-left corner, as files do.
    cut = sample_slice(volume.array, rotation, translation)
    frame = Frame(0.7 * cut.square() + 0.1, spacing_mm=0.8, origin_mm=(0.0, 0.0))
    truth = pose_from_voxels(rotation, translation, frame, volume)
    corners = np.array([[x, y, 0] for x in (0, 31.2) for y in (0, 31.2)])

    def error_mm(pose: Pose) -> float:
        return float(np.linalg.norm(pose.apply(corners) - truth.apply(corners), axis=1).mean())

    result = register_mutual_information(frame, volume)
    assert error_mm(centre_pose(frame, volume)) > 2.0
    assert error_mm(result.pose) < 0.3
    assert result.pose.name == "ImageToVolume"
    assert result.time_ms > 0
    assert result.iterations > 0


def test_two_runs_agree_to_the_last_bit() -> None:
    volume = worlds()[0]
    frame = Frame(sample_slice(volume.array, torch.eye(3), torch.tensor([1.0, 0.0, 1.0])), spacing_mm=0.8)
    first, second = (register_mutual_information(frame, volume).pose.matrix for _ in range(2))
    assert np.array_equal(first, second)


def test_the_centre_pose_is_the_identity_in_voxels() -> None:
    volume = worlds()[1]
    frame = Frame(torch.rand(40, 40), spacing_mm=0.8, origin_mm=(3.0, 4.0))
    rotation, translation = pose_to_voxels(centre_pose(frame, volume), frame, volume)
    assert torch.allclose(rotation, torch.eye(3), atol=1e-6)
    assert translation.abs().max() < 1e-5


def test_empty_images_are_refused() -> None:
    volume = worlds()[0]
    with pytest.raises(ScopeRegError, match="every value is 0"):
        register_mutual_information(Frame(torch.zeros(8, 8), spacing_mm=1.0), volume)
    with pytest.raises(ScopeRegError, match="every value is 3"):
        register_mutual_information(Frame(torch.rand(8, 8), spacing_mm=1.0), Volume(torch.full((4, 4, 4), 3.0), 1.0))


def test_a_start_far_outside_is_explained() -> None:
    volume = worlds()[0]
    frame = Frame(torch.rand(40, 40), spacing_mm=0.8)
    with pytest.raises(ScopeRegError, match="SimpleITK gave up") as caught:
        register_mutual_information(frame, volume, Pose(np.eye(3), [500.0, 0.0, 0.0]))
    assert "start nearer" in caught.value.fix


@pytest.mark.parametrize("seen", [torch.ones(4, 4, dtype=torch.bool), torch.zeros(40, 40, dtype=torch.bool)])
def test_a_mask_that_does_not_fit_is_refused(seen: torch.Tensor) -> None:
    frame = Frame(torch.rand(40, 40), spacing_mm=0.8)
    with pytest.raises(ScopeRegError, match="a mask of shape"):
        register_mutual_information(frame, worlds()[0], seen=seen)
