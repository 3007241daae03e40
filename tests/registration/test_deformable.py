"""The deformation that a rigid pose leaves: its equations against plain ones, and worlds whose deformation is known."""

from __future__ import annotations

import math
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import SimpleITK as sitk
import torch
from plain_deformation import most_probable, plain_sums

from scopereg.data import phantom
from scopereg.errors import ScopeRegError
from scopereg.geometry import Pose, VoxelPoses
from scopereg.geometry.elastic import navier_cauchy
from scopereg.geometry.spline import PlaneSpline
from scopereg.images import Frame, Volume, pose_from_voxels
from scopereg.io.transforms import Convention
from scopereg.registration.deformable.displacement import Deformation, Displacement
from scopereg.registration.deformable.elasticity import elastic_energy, lattice_mm
from scopereg.registration.deformable.equations import Elastic, Points, rigid_moves, summed
from scopereg.registration.deformable.fitting import Deformer, DeformOptions
from scopereg.registration.likeness import Pointwise
from scopereg.training.losses import elasticity_loss, slice_field

Triple = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
SPLINE = PlaneSpline.over((0.0, 0.0), (30.0, 20.0), 10.0)
WIDTH_MM = 60.0


def drawn(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(5), dtype=torch.float64)


def some_points() -> Points:
    places = torch.rand(11, 2, generator=torch.Generator().manual_seed(2), dtype=torch.float64) * 20
    root = drawn(11, 3, 3)
    return Points(SPLINE.basis(places), rigid_moves(places, 9.0), root @ root.transpose(1, 2), drawn(11, 3))


def test_sums_over_points_are_the_plain_ones() -> None:
    for fast, plain in zip(summed(some_points()), plain_sums(some_points()), strict=True):
        assert fast.numpy() == pytest.approx(plain.numpy(), abs=1e-10)


def test_what_is_most_probable_solves_the_plain_system() -> None:
    equations, energy = summed(some_points()), elastic_energy(SPLINE, 8.0)
    places, _ = lattice_mm(SPLINE)
    turns = rigid_moves(places, 9.0)
    elastic = Elastic(energy, SPLINE.basis(places), turns)
    zero = torch.zeros(3 * SPLINE.knots, dtype=torch.float64)
    found = elastic.solve(equations, zero, torch.zeros(6).double(), torch.tensor([0.7]).double(), 0.4)
    plain = most_probable(equations, elastic.free, energy, 0.7, 0.4)
    assert torch.cat([found.values, found.step]).numpy() == pytest.approx(plain.numpy(), rel=1e-5, abs=1e-7)
    moved = SPLINE.basis(places) @ found.values.view(-1, 3)
    assert torch.einsum("nim,ni->m", turns, moved).numpy() == pytest.approx(0, abs=1e-8), "no rigid part"


def test_energy_is_the_loss_of_the_package_and_of_slopes() -> None:
    values, length_mm = drawn(SPLINE.knots, 3), 8.0
    places, (rows, columns) = lattice_mm(SPLINE)
    field = (SPLINE.basis(places) @ values).T.reshape(1, 3, rows, columns)
    cells = length_mm / (SPLINE.step_mm / 4)
    slopes = Displacement(SPLINE, values.numpy()).slopes(places.numpy())
    squares = 30 * 20 / length_mm**2
    loss = float(elasticity_loss(slice_field(field) + field))
    wanted = squares * (loss * cells**4 + np.square(slopes).sum((1, 2)).mean() * length_mm**2)
    energy = values.flatten() @ elastic_energy(SPLINE, length_mm) @ values.flatten()
    assert float(energy) == pytest.approx(wanted, rel=1e-9)


def test_an_even_stretch_is_an_elastic_body_at_rest() -> None:
    y, x = torch.meshgrid(torch.arange(6.0), torch.arange(7.0), indexing="ij")
    assert float(navier_cauchy(torch.stack([0.1 * x, -0.2 * y + x, 3 * x])[None]).abs().max()) < 1e-5


def pressed(x: torch.Tensor, y: torch.Tensor) -> Triple:
    """Tissue under a probe at the top that is pressed by up to 5 mm: it gives way less and less with depth."""
    depth = (y + WIDTH_MM / 2).clamp_min(0)
    less = torch.exp(-depth / (0.4 * WIDTH_MM)) * torch.exp(-((x / (0.6 * WIDTH_MM)) ** 2))
    return -0.05 * x * less, 5 * (1 - less), 0 * x


class Scene(NamedTuple):
    """A volume with a frame of it as it was, and one of pressed tissue."""

    deformer: Deformer
    volume: Volume
    frames: list[Frame]  # as it was, pressed
    pose: Pose  # true of the first
    best: Pose  # rigid of the second

    def left_mm(self, deformation: Deformation, pose: Pose, *, rigid: bool = False) -> float:
        """Mean distance of pressed tissue from where it is said to lie."""
        points = deformation.seen_mm3
        x, y = torch.from_numpy(points[:, :2].T.copy())
        true = self.pose.apply(points + torch.stack(pressed(x, y), 1).numpy())
        found = pose.apply(points if rigid else deformation.apply(points))
        return float(np.linalg.norm(found - true, axis=1).mean())


def best_pose(frame: Frame, pose: Pose) -> Pose:
    """The rigid pose that leaves least of the pressed frame, of the pose that it had before."""
    y, x = (torch.arange(-30.0, 31.0, 2.0, dtype=torch.float64),) * 2
    y, x = (part.flatten() for part in torch.meshgrid(y, x, indexing="ij"))
    points = torch.stack([x, y, 0 * x], 1).numpy()
    true = pose.apply(points + torch.stack(pressed(x, y), 1).numpy())
    middles = points.mean(0), true.mean(0)
    left, _, right = np.linalg.svd((true - middles[1]).T @ (points - middles[0]))
    turn = left @ np.diag([1, 1, np.linalg.det(left @ right)]) @ right
    return Pose(turn, middles[1] - turn @ middles[0], "Image", "Volume")


@pytest.fixture(scope="module")
def scene() -> Scene:
    patient = phantom.create("echo", seed=20_031, shape=(24, 96, 96), spacing_mm=WIDTH_MM / 96)
    place = VoxelPoses(torch.eye(3)[None], torch.tensor([[1.0, -2.0, 3.0]]))
    images = [
        patient.acquire(*place, "same-scanner", seed=4, speckle_correlation=0.9, displaced=displaced).images[0]
        for displaced in (None, pressed)
    ]
    frames = [Frame(image, patient.spacing_mm).for_registration() for image in images]
    pose = pose_from_voxels(place.rotation[0], place.translation[0], frames[0], patient.volume)
    return Scene(
        Deformer(patient.volume.for_registration(), "cpu"), patient.volume, frames, pose, best_pose(frames[1], pose)
    )


@pytest.fixture(scope="module")
def found(scene: Scene) -> Deformation:
    return scene.deformer.deform(scene.frames[1], scene.best)


def test_pressed_tissue_lies_where_it_was_at_most_half_as_far_off(scene: Scene, found: Deformation) -> None:
    rigid = scene.left_mm(found, scene.best, rigid=True)
    assert rigid > 0.5
    assert scene.left_mm(found, scene.best) < 0.5 * rigid
    told = found.facts
    assert told["significant"] is True
    assert told["folds"] == 0
    assert 0.5 < told["jacobian"][0] < told["jacobian"][1] < 2
    moves = rigid_moves(torch.from_numpy(found.seen_mm - found.seen_mm.mean(0)), 30.0)
    rest = torch.einsum("nim,ni->m", moves, torch.from_numpy(found.displacement.at(found.seen_mm))) / len(moves)
    assert float(rest.abs().max()) < 1e-6, "no rigid part"


def test_a_rigid_frame_stays_where_it_is(scene: Scene) -> None:
    told = scene.deformer.deform(scene.frames[0], scene.pose)
    assert not told.is_significant
    assert (told.facts["max_mm"], told.facts["step_mm"]) == (0, 0)
    assert "none" in told.words
    assert np.allclose(told.apply(told.seen_mm3), told.seen_mm3, atol=1e-9)


def test_a_displacement_that_would_fold_is_held_back() -> None:
    wild = Displacement(SPLINE, 8 * drawn(SPLINE.knots, 3).numpy())
    points = lattice_mm(SPLINE)[0].numpy()
    assert wild.jacobian(points).min() < 0
    held = wild.unfolded(points, 0.2)
    assert held.jacobian(points).min() >= 0.2
    assert np.allclose(held.values_mm / wild.values_mm, held.values_mm[0, 0] / wild.values_mm[0, 0])


@pytest.mark.parametrize("convention", ["slicer", "itk-resample"])
@pytest.mark.parametrize("ending", [".h5", ".tfm"])
def test_simpleitk_applies_the_file_as_we_do(
    found: Deformation, tmp_path: Path, convention: Convention, ending: str
) -> None:
    transform = sitk.ReadTransform(str(found.save(tmp_path / f"a{ending}", convention=convention)))
    points = found.seen_mm3[::7]
    if convention == "slicer":  # the file leads back, as that of the pose does
        points = found.apply(points)
    ours = (found.undo if convention == "slicer" else found.apply)(points)
    theirs = np.array([transform.TransformPoint(point) for point in points.tolist()])
    assert np.abs(ours - points).max() > 0.5
    assert theirs == pytest.approx(ours, abs=0.02)


def test_deformation_and_pose_cut_the_volume_as_the_frame_shows_it(
    scene: Scene, found: Deformation, tmp_path: Path
) -> None:
    pose = scene.best
    pose.save(tmp_path / "pose.tfm", convention="itk-resample")
    found.save(tmp_path / "pose.deformation.h5", convention="itk-resample")
    both = sitk.CompositeTransform(
        [sitk.ReadTransform(str(tmp_path / name)) for name in ("pose.tfm", "pose.deformation.h5")]
    )
    points = found.seen_mm3[::5]
    theirs = np.array([both.TransformPoint(point) for point in points.tolist()])
    assert theirs == pytest.approx(pose.apply(found.apply(points)), abs=0.02)


def test_undo_undoes(found: Deformation) -> None:
    points = found.seen_mm3[::5]
    assert found.undo(found.apply(points)) == pytest.approx(points, abs=1e-5)


def test_points_of_learned_features_sum_to_their_rigid_equations(scene: Scene) -> None:
    frame = scene.frames[0].resampled(scene.deformer.volume.isotropic_spacing_mm)
    comparison = list(scene.deformer.learned.compare(frame.tissue[None], frame.seen[None].float()))[1]
    poses = VoxelPoses(torch.eye(3)[None], torch.tensor([[1.5, -2.0, 3.0]]))
    with torch.no_grad():
        local = comparison.local(poses, torch.zeros(1, len(comparison.places), 3))
        whole = comparison.normal(poses)
    turns = rigid_moves(comparison.places, comparison.lever)
    summed_up = torch.einsum("nil,nij,njm->lm", turns, local.matrix[0], turns)
    # Both are the same but for a factor: by what is compared, and by how far apart features usually are.
    factor = float(summed_up[0, 0] / whole.matrix[0, 0, 0])
    assert summed_up.numpy() == pytest.approx(factor * whole.matrix[0].numpy(), rel=1e-3, abs=1e-2 * factor)
    slope = torch.einsum("nil,ni->l", turns, local.slope[0])
    assert slope.numpy() == pytest.approx(factor * whole.slope[0].numpy(), rel=1e-3, abs=1e-3 * factor)
    assert isinstance(comparison, Pointwise)


def test_points_of_grey_values_are_read_pixel_by_pixel(scene: Scene) -> None:
    frame = scene.frames[1].resampled(scene.deformer.volume.isotropic_spacing_mm)
    comparison = next(iter(scene.deformer.grey.compare(frame.tissue[None], frame.seen[None].float())))
    poses = VoxelPoses(torch.eye(3)[None], torch.tensor([[1.5, -2.0, 3.0]]))
    off = 0.3 * drawn(1, len(comparison.places), 3).float()
    local = comparison.local(poses, off)
    volume, middle = comparison.volume, [(n - 1) / 2 for n in reversed(comparison.volume.shape[1:])]

    def read(place: list[float]) -> list[float]:
        """Values of the volume's channels between the eight voxels about a place."""
        low = [math.floor(at + half) for at, half in zip(place, middle, strict=True)]
        share = [at + half - first for at, half, first in zip(place, middle, low, strict=True)]
        total = torch.zeros(len(volume))
        for corner in np.ndindex(2, 2, 2):
            x, y, z = (first + step for first, step in zip(low, corner, strict=True))
            weight = math.prod(part if step else 1 - part for part, step in zip(share, corner, strict=True))
            if all(0 <= at < n for at, n in zip((z, y, x), volume.shape[1:], strict=True)):
                total += weight * volume[:, z, y, x]
        return total.tolist()

    places = torch.nn.functional.pad(comparison.places, (0, 1)) + off[0] + poses.translation[0]
    found = np.array([read(place) for place in places.tolist()])
    both = comparison.seen[0].numpy() * (found[:, 1] > 0.99)
    cut, shown = found[:, 0], comparison.frames[0].numpy()
    cut_mean, cut_spread = np.average(cut, weights=both), math.sqrt(np.cov(cut, aweights=both, ddof=0))
    mean, spread = np.average(shown, weights=both), math.sqrt(np.cov(shown, aweights=both, ddof=0))
    cut, shown = (cut - cut_mean) / cut_spread, (shown - mean) / spread
    alike = np.average(cut * shown, weights=both)
    rest, variance = shown - alike * cut, 1 - alike**2
    for n in range(0, len(both), 97):
        weight = both[n] * comparison.each / variance / (1 + rest[n] ** 2 / (4 * variance))
        slope = alike * found[n, 2:] / cut_spread
        assert local.matrix[0, n].numpy() == pytest.approx(weight * np.outer(slope, slope), rel=2e-3, abs=1e-4)
        assert local.slope[0, n].numpy() == pytest.approx(-weight * rest[n] * slope, rel=2e-3, abs=1e-4)
    assert 0.3 < alike < 0.95
    assert both.sum() > 500


@pytest.mark.parametrize(
    "wrong",
    [
        {"knots": 0.0},
        {"spread_mm": math.nan},
        {"learned": 0.0, "grey": 0.0},
        {"least_jacobian": 1.0},
        {"iterations": 0},
    ],
)
def test_settings_that_are_none_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ScopeRegError, match=next(iter(wrong))):
        DeformOptions(**wrong)  # type: ignore[arg-type]


def test_a_frame_without_content_is_refused(scene: Scene) -> None:
    with pytest.raises(ScopeRegError, match="empty"):
        scene.deformer.deform(Frame(torch.zeros(40, 40), 1.0), scene.pose)
