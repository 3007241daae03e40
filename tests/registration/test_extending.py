"""A likeness of one's own, added from outside of the package: named, refined by, judged as any other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

import scopereg
from scopereg.errors import ScopeRegError
from scopereg.geometry import Pose, VoxelPoses, centred_axis, inside_fraction, sample_slice
from scopereg.geometry.steps import lever_voxels
from scopereg.registration import method as methods
from scopereg.registration.calibration import refined_by
from scopereg.registration.likeness import NOTHING_SHARED, Normal
from scopereg.registration.locator import Locator
from scopereg.registration.method import create, parse, register_likeness
from scopereg.registration.model import Registrar
from scopereg.registration.result import Result, apart_mm

Case = Any  # of conftest.py
_NOISE = 0.05  # usual difference of grey values where frame and volume show the same


class Differences:
    """A likeness: squared differences of grey values as they are."""

    name = "differences"
    spread = 3.0
    most_voxels: int | None = None

    def __init__(self, iterations: int = 12) -> None:
        self.iterations = iterations
        self.facts: dict[str, Any] = {"iterations": iterations}

    def prepare(self, volume: Tensor, known: Tensor | None = None) -> PreparedDifferences:
        return PreparedDifferences(volume, self.iterations)


class PreparedDifferences:
    def __init__(self, volume: Tensor, iterations: int) -> None:
        slopes = torch.stack([torch.gradient(volume, dim=axis)[0] for axis in (2, 1, 0)])  # along x, y, z
        self.channels, self.iterations = torch.cat([volume[None], slopes]), iterations

    def compare(self, frames: Tensor, seen: Tensor) -> Iterator[DifferencesComparison]:
        yield DifferencesComparison(self.channels, frames, seen, self.iterations)


class DifferencesComparison:
    longest_step, last_step = 2.0, 0.01

    def __init__(self, channels: Tensor, frames: Tensor, seen: Tensor, iterations: int) -> None:
        self.channels, self.frames, self.seen, self.iterations = channels, frames, seen, iterations
        self.shape = (frames.shape[1], frames.shape[2])
        self.lever = lever_voxels(*self.shape)
        y, x = torch.meshgrid(*(centred_axis(n) / self.lever for n in self.shape), indexing="ij")
        self.x, self.y = x, y

    def similarity(self, poses: VoxelPoses) -> Tensor:
        cut = sample_slice(self.channels[0], *poses, slice_shape=self.shape)
        apart = ((cut - self.frames).square() * self.seen).sum((1, 2)) / self.seen.sum((1, 2))
        inside = inside_fraction(*poses, self.channels.shape[1:], slice_shape=self.shape)
        return torch.where(inside > 0.3, 1 - apart.sqrt(), NOTHING_SHARED)

    def normal(self, poses: VoxelPoses) -> Normal:
        cut, *slopes = (sample_slice(one, *poses, slice_shape=self.shape) for one in self.channels)
        x, y, z = torch.einsum("kbhw,bkj->jbhw", torch.stack(slopes), poses.rotation)  # along the frame's axes
        moves = torch.stack([x, y, z, z * self.y, -z * self.x, y * self.x - x * self.y], -1).flatten(1, 2)
        weights = self.seen.flatten(1) / _NOISE**2
        apart = (cut - self.frames).flatten(1)
        return Normal(
            -(weights * apart.square()).sum(1) / 2,
            torch.einsum("bni,bn,bnj->bij", moves, weights, moves),
            torch.einsum("bni,bn,bn->bi", moves, weights, apart),
        )


@pytest.fixture
def differences(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(methods, "_LIKENESSES", dict(methods._LIKENESSES))
    register_likeness("differences", lambda device, far: Differences(20 if far else 12))


AWAY = Pose.from_euler_deg((1.5, -1.0, 1.2), (0.7, -0.8, 0.6), source="Image", target="Image")


@pytest.mark.usefixtures("differences")
def test_it_is_part_of_the_grammar() -> None:
    name = parse("universal:wide+refine=differences")
    assert (str(name), name.refines, name.steps) == ("universal:wide+refine=differences", True, ("refine=differences",))
    assert str(name.also(refine=True)) == str(name)
    assert methods.likenesses() == ("grey", "learned", "lc2", "differences")
    near, far = create("universal+refine=differences", "cpu"), create("identity+refine=differences", "cpu")
    assert near.name == "universal + refine=differences"
    assert (near.facts["likeness"], near.facts["iterations"], far.facts["iterations"]) == ("differences", 12, 20)


def test_grey_values_are_what_a_refinement_compares_when_nothing_is_said() -> None:
    assert parse("universal+refine=grey") == parse("universal+refine")
    assert "likeness" not in create("identity+refine", "cpu").facts
    with pytest.raises(ScopeRegError, match="unknown method 'universal\\+refine=differences'"):
        parse("universal+refine=differences")
    with pytest.raises(ScopeRegError, match="'grey' is taken"):
        register_likeness("grey", lambda device, far: Differences())


@pytest.mark.usefixtures("differences")
def test_it_leads_to_the_pose(case: Case) -> None:
    frame, true = case.frames[0], case.truth[0]  # it shares its speckle with the volume
    start = true @ AWAY
    found = scopereg.register(frame, case.volume, method="identity+refine=differences", start=start, device="cpu")
    assert apart_mm(frame, start, true) > 1
    assert apart_mm(frame, found.pose, true) < 0.1
    assert found.method == "identity, refined by differences"
    assert found.similarity > 0.95
    assert found.iterations > 2


@pytest.mark.usefixtures("differences")
def test_what_nobody_calibrated_has_no_verdict(case: Case, narrow: Registrar) -> None:
    """A calibration tells what the features of poses refined by grey values mean, not of these."""
    assert narrow.calibration is not None
    refining = methods.refined(methods.create(narrow), "differences", "cpu")
    (plain,) = Locator(case.volume, refining).locate_all(case.frames[:1])
    assert isinstance(plain, Result)
    assert (plain.ok, plain.belongs) == (None, None)
    assert plain.verdict == "not judged: narrow network, refined by differences is not calibrated"
    assert plain.features
    assert not Locator(case.volume, refining).prepared.judges
    known = dict(narrow.calibration.error_models)
    known[refined_by("differences")] = known["refined"]
    judged = replace(narrow, calibration=replace(narrow.calibration, error_models=known))
    refining = methods.refined(methods.create(judged), "differences", "cpu")
    (found,) = Locator(case.volume, refining).locate_all(case.frames[:1])
    assert isinstance(found, Result)
    assert found.ok is not None
    assert found.pose.is_close(plain.pose)
