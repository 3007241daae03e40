"""Sets of phantoms: the patients of their seeds, with frames that belong to their poses."""

from __future__ import annotations

import pytest
import torch

from scopereg.data import phantom
from scopereg.data.phantom.sets import make_phantoms
from scopereg.data.store import VolumeSet
from scopereg.errors import ScopeRegError
from scopereg.geometry import MIN_INSIDE, inside_fraction

SHAPE = (10, 48, 48)


@pytest.fixture(scope="module")
def volumes() -> VolumeSet:
    return make_phantoms("prostate", 2, seed=3, frames=3, magnitude=5, shape=SHAPE)


def test_volumes_are_those_of_their_seeds(volumes: VolumeSet) -> None:
    assert (volumes.name, volumes.cases, volumes.patients) == ("prostate", *(("prostate0003", "prostate0004"),) * 2)
    assert (volumes.shape, volumes.margin) == (SHAPE, (0, 0, 0))
    assert volumes.labels is not None
    for row, seed in enumerate((3, 4)):
        patient = phantom.create("prostate", seed=seed, shape=SHAPE)
        assert volumes.spacing_mm == pytest.approx(patient.spacing_mm)
        assert (volumes.references(torch.tensor([row]))[0] - patient.volume.array).abs().max() < 0.51 / 255
        assert patient.volume.labels is not None
        assert torch.equal(volumes.labels[row], patient.volume.labels.to(torch.uint8))


def test_frames_are_those_of_their_poses(volumes: VolumeSet) -> None:
    frames = volumes.frames
    assert frames is not None
    assert tuple(frames.images.shape) == (2, 3, 48, 48)
    assert frames.translation.abs().max() <= 5
    assert not torch.equal(frames.translation[0], frames.translation[1])
    assert (inside_fraction(frames.rotation[0], frames.translation[0], SHAPE) >= MIN_INSIDE).all()
    patient = phantom.create("prostate", seed=4, shape=SHAPE)
    again = patient.acquire(frames.rotation[1], frames.translation[1], protocol="honest", seed=4).images
    assert (again - frames.images[1].float() / 255).abs().max() < 0.51 / 255


def test_a_patient_is_the_same_in_every_set(volumes: VolumeSet) -> None:
    steps: list[tuple[int, int]] = []
    one = make_phantoms(
        "prostate", 1, seed=4, frames=3, magnitude=5, shape=SHAPE, progress=lambda *step: steps.append(step)
    )
    assert one.sha256() == volumes.subset([1]).sha256()
    assert steps == [(1, 1)]


def test_sets_without_frames_and_wrong_numbers() -> None:
    assert make_phantoms("echo", 1, frames=0, shape=SHAPE).frames is None
    with pytest.raises(ScopeRegError, match="0 patients"):
        make_phantoms("echo", 0)
    with pytest.raises(ScopeRegError, match="magnitude"):
        make_phantoms("echo", 1, magnitude=-1)
    with pytest.raises(ScopeRegError, match="unknown anatomy"):
        make_phantoms("knee", 1)
