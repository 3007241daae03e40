"""What does not count of a volume has no part in a pose, whatever it shows; frames are sought where voxels count."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from scopereg.errors import ScopeRegError
from scopereg.geometry import Pose
from scopereg.images import Frame, Volume
from scopereg.registration.locator import Locator
from scopereg.registration.model import Registrar

Case = Any  # of conftest.py


def ball(shape: tuple[int, ...], share: float, middle: tuple[float, float, float] = (0, 0, 0)) -> torch.Tensor:
    """Half axes of so much of each side, about a middle in sides."""
    axes = torch.meshgrid(*(torch.linspace(-0.5, 0.5, n) for n in shape), indexing="ij")
    return sum((axis - at).square() for axis, at in zip(axes, middle, strict=True)) <= share**2


def with_other_surroundings(volume: Volume) -> Volume:
    assert volume.mask is not None
    noise = torch.rand(volume.shape, generator=torch.Generator().manual_seed(1))
    return replace(volume, array=torch.where(volume.mask, volume.array, noise))


@pytest.fixture(scope="module")
def masked(case: Case) -> Volume:
    return replace(case.volume, mask=ball(case.volume.shape, 0.45))


def near(case: Case, row: int) -> Pose:
    return Pose(case.truth[row].rotation, case.truth[row].translation_mm + 0.6)


@pytest.mark.parametrize("method", ["identity+refine", "identity+refine=learned", "simpleitk-mi", "simpleitk-ncc"])
def test_what_does_not_count_has_no_part_in_a_pose(case: Case, masked: Volume, method: str) -> None:
    """The same to the last digit, whatever lies there."""
    found = [
        Locator(volume, method, device="cpu").locate(case.frames[0], near(case, 0))
        for volume in (masked, with_other_surroundings(masked))
    ]
    assert found[0].pose.matrix.tolist() == found[1].pose.matrix.tolist()
    assert found[0].similarity == found[1].similarity
    assert case.error_mm(0, found[0].pose) < (0.8 if method in ("identity+refine", "simpleitk-mi") else 1.5)


def test_a_network_sees_it_black(case: Case, masked: Volume, narrow: Registrar) -> None:
    found = [
        Locator(volume, narrow, refine=True).locate(case.frames[0])
        for volume in (masked, with_other_surroundings(masked))
    ]
    assert found[0].pose.matrix.tolist() == found[1].pose.matrix.tolist()
    assert found[0].features == found[1].features
    assert case.error_mm(0, found[0].pose) < 2


def test_a_mask_smaller_than_the_frame_is_enough(case: Case) -> None:
    """A tenth of the frame can be covered at most: less is asked for."""
    small = replace(case.volume, mask=ball(case.volume.shape, 0.2))
    with pytest.raises(ScopeRegError, match="too little of the frame lies in the volume"):
        Locator(replace(small, array=small.tissue, mask=None), "identity+refine").locate(case.frames[0], far(case))
    found = Locator(small, "identity+refine").locate(case.frames[0], near(case, 0))
    assert case.error_mm(0, found.pose) < 1


def far(case: Case) -> Pose:
    """Where the frame hardly meets the volume."""
    return Pose(case.truth[0].rotation, case.truth[0].translation_mm + case.truth[0].rotation @ (55.0, 45.0, 0.0))


def test_frames_are_sought_where_voxels_count(case: Case, narrow: Registrar) -> None:
    """What the network is given is the same as of a volume that ends where the mask does."""
    wide = torch.nn.functional.pad(case.volume.array, (64, 0, 32, 0), value=0.7)
    mask = torch.zeros(wide.shape, dtype=torch.bool)
    mask[:, 32:, 64:] = True
    shift_mm = case.volume.direction @ (np.array([64, 32, 0]) * case.volume.spacing_mm)
    first = (case.volume.origin_mm - shift_mm).tolist()
    volume = Volume(wide, case.volume.spacing_mm, first, case.volume.direction, mask=mask)
    seen, wanted = (
        Locator(one, narrow).prepared.volume_for(case.frames[0]).window  # type: ignore[attr-defined]
        for one in (volume, case.volume)
    )
    assert seen.centre_mm == pytest.approx(wanted.centre_mm)
    torch.testing.assert_close(seen.array, wanted.array, atol=1e-4, rtol=0)


def test_a_mask_that_leaves_nothing_is_an_error(case: Case) -> None:
    nothing = torch.zeros(case.volume.shape, dtype=torch.bool)
    with pytest.raises(ScopeRegError, match="its mask leaves out every voxel"):
        Locator(replace(case.volume, mask=nothing), "identity")
    with pytest.raises(ScopeRegError, match="the volume has the shape"):
        replace(case.volume, mask=nothing[1:])


def test_frames_with_masks_in_volumes_with_masks(case: Case, masked: Volume) -> None:
    frame = case.frames[0]
    kept = torch.ones(frame.shape, dtype=torch.bool)
    kept[:, :30] = False
    drawn = Frame(torch.where(kept, frame.array, 1.0), frame.spacing_mm, frame.origin_mm, mask=kept)
    found = Locator(masked, "identity+refine").locate(drawn, near(case, 0))
    assert case.error_mm(0, found.pose) < 1
