"""Frames under both protocols: cut from the reference alone, or out of its surroundings without a trace of the pose."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from scopereg.data import frames
from scopereg.data.frames import cut_frames, reference_field
from scopereg.errors import ScopeRegError
from scopereg.geometry import VoxelPoses, place_plane, sample_poses, sample_slice

SHAPE, MARGIN = (8, 16, 20), (1, 4, 5)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def images(count: int = 2) -> Tensor:
    """Noise with surroundings, never black."""
    stored = [n + 2 * m for n, m in zip(SHAPE, MARGIN, strict=True)]
    return 0.1 + 0.9 * torch.rand(count, *stored, generator=seeded(5))


def poses(count: int = 6, magnitude: float = 8) -> VoxelPoses:
    return sample_poses(count, magnitude, SHAPE, seeded(6))


def without_mismatch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "honest_frames", lambda whole, generator, unseen: (whole, None))


def test_the_reference_field_lies_in_the_middle() -> None:
    assert torch.equal(reference_field(images(), MARGIN), images()[:, 1:9, 4:20, 5:25])


def test_paper_frames_are_slices_of_the_reference_with_zeros_outside() -> None:
    cut = cut_frames(images(), MARGIN, poses(), "paper", seeded())
    references = reference_field(images(), MARGIN).repeat_interleave(3, 0)
    torch.testing.assert_close(cut, sample_slice(references, *poses()))
    assert (cut == 0).any()


def test_honest_frames_are_cut_at_the_same_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever the reference reaches, both protocols show the same before the mismatch."""
    without_mismatch(monkeypatch)
    honest = cut_frames(images(), MARGIN, poses(), "honest", seeded())
    paper = cut_frames(images(), MARGIN, poses(), "paper", seeded())
    half = (torch.tensor(SHAPE[::-1]) - 1) / 2
    inside = (place_plane(*poses(), SHAPE[1:]).abs() <= half - 1e-3).all(-1)
    assert inside.float().mean() > 0.3
    torch.testing.assert_close(honest[inside], paper[inside], atol=1e-5, rtol=0)


def test_honest_frames_show_the_surroundings_where_the_reference_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    without_mismatch(monkeypatch)
    field = images()
    field[:, 1:9, 4:20, 5:25] = 0  # a black reference in bright surroundings
    cut = cut_frames(field, MARGIN, poses(), "honest", seeded())
    half = (torch.tensor(SHAPE[::-1]) - 1) / 2
    beyond = (place_plane(*poses(), SHAPE[1:]).abs() >= half + 1).any(-1)
    assert beyond.any()
    assert cut[beyond].min() >= 0.1 - 1e-5


def test_an_honest_frame_of_a_uniform_volume_tells_nothing_of_its_pose() -> None:
    """Whatever a border would leave in the frame, a wedge of zeros above all, would depend on the pose."""
    uniform = torch.full_like(images(), 0.5)
    near, far = poses(6, 0.1), poses(6, 12)
    honest = [cut_frames(uniform, MARGIN, there, "honest", seeded(1)) for there in (near, far)]
    torch.testing.assert_close(honest[0], honest[1], atol=1e-4, rtol=0)
    paper = [cut_frames(uniform, MARGIN, there, "paper", seeded(1)) for there in (near, far)]
    assert (paper[0] - paper[1]).abs().max() > 0.4  # which is what the paper's frames do


def test_unseen_mismatch_is_added_on_request() -> None:
    plain, unseen = (cut_frames(images(), MARGIN, poses(), "honest", seeded(1), unseen=flag) for flag in (False, True))
    assert not torch.equal(plain, unseen)


def test_other_protocols_are_refused() -> None:
    with pytest.raises(ScopeRegError, match="did you mean 'honest'"):
        cut_frames(images(), MARGIN, poses(), "honset", seeded())  # type: ignore[arg-type]
