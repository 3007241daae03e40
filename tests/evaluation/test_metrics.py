"""Metrics against independent libraries, hand-made cases, and the cases that have no answer."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import pearsonr

from scopereg.errors import ScopeRegError
from scopereg.evaluation import metrics
from scopereg.geometry import VoxelPoses, sample_poses, sample_slice

SHAPE = (32, 128, 128)
GOLDEN = json.loads((Path(__file__).parent / "golden" / "metrics.json").read_text())  # and what made them


def poses(count: int = 4, magnitude: float = 10, seed: int = 0) -> VoxelPoses:
    return sample_poses(count, magnitude, SHAPE, torch.Generator().manual_seed(seed))


def identity(count: int) -> VoxelPoses:
    return VoxelPoses(torch.eye(3).expand(count, 3, 3), torch.zeros(count, 3))


def blobs(seed: int, shape: tuple[int, int, int] = (4, 48, 64), classes: int = 3) -> torch.Tensor:
    """Label maps of overlapping ellipses, some cut by the border of the image."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[: shape[1], : shape[2]]
    maps = np.zeros(shape, np.int64)
    for frame in maps:
        for label in range(1, classes + 1):
            cy, cx = rng.uniform(0, shape[1]), rng.uniform(0, shape[2])
            ry, rx = rng.uniform(4, 15, 2)
            frame[((y - cy) / ry) ** 2 + ((x - cx) / rx) ** 2 <= 1] = label
    return torch.from_numpy(maps)


def images(seed: int, shape: tuple[int, int, int] = (3, 40, 53)) -> tuple[torch.Tensor, torch.Tensor]:
    """Smooth images in 0..1 and a disturbed copy."""
    generator = torch.Generator().manual_seed(seed)
    first = torch.nn.functional.avg_pool2d(torch.rand(*shape, generator=generator), 5, 1, 2)
    first = (first - first.amin((1, 2), True)) / (first.amax((1, 2), True) - first.amin((1, 2), True))
    noise = 0.15 * torch.randn(*shape, generator=generator)
    return first, (0.8 * first + 0.1 + noise).clamp(0, 1)


# Pose errors


def test_success_includes_the_threshold_and_refuses_nan() -> None:
    assert metrics.is_success(torch.tensor([2.9, 3.0, 3.1])).tolist() == [True, True, False]
    assert metrics.is_success(torch.tensor([2.9, 3.0]), threshold_mm=2.95).tolist() == [True, False]
    with pytest.raises(ScopeRegError, match="batch row 1"):
        metrics.is_success(torch.tensor([1.0, float("nan")]))


# Overlap and surface distance


def test_dice_equals_a_plain_count() -> None:
    first, second = blobs(0), blobs(1)
    expected = []
    for a, b in zip(first.numpy(), second.numpy(), strict=True):
        scores = []
        for label in range(1, 4):
            size = (a == label).sum() + (b == label).sum()
            if size:
                scores.append(2 * ((a == label) & (b == label)).sum() / size)
        expected.append(np.mean(scores))
    assert metrics.dice(first, second).tolist() == pytest.approx(expected, rel=1e-6)
    assert metrics.dice(first.to(torch.uint8), second.to(torch.uint8)).tolist() == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("seed", range(12))
def test_hd95_equals_monai(seed: int) -> None:
    """In the classes that both maps have: MONAI gives infinity for the others."""
    first, second, spacing = blobs(seed), blobs(100 + seed), 0.3 + 0.1 * seed
    for row, by_class in enumerate(GOLDEN["hd95_mm"][seed]):
        labels = torch.tensor([int(label) for label in by_class])
        maps = [torch.where(torch.isin(m[row], labels), m[row], 0)[None] for m in (first, second)]
        expected = np.mean(list(by_class.values()))
        assert metrics.hd95_mm(*maps, spacing).item() == pytest.approx(expected, rel=1e-5)


def test_hd95_by_hand() -> None:
    # Bars one pixel high: all distances from either to the other are 5 rows of 0.5 mm.
    first, second = torch.zeros(1, 20, 20, dtype=torch.long), torch.zeros(1, 20, 20, dtype=torch.long)
    first[0, 3], second[0, 8] = 1, 1
    assert metrics.hd95_mm(first, second, 0.5).item() == pytest.approx(2.5)
    # A lone pixel far away is one of 21: just above the 95th percentile. Two of 22 are not.
    first[0, 19, 0] = 1
    assert metrics.hd95_mm(first, second, 0.5).item() == pytest.approx(2.5)
    first[0, 19, 19] = 1
    assert metrics.hd95_mm(first, second, 0.5).item() > 5


def test_hd95_in_chunks_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = blobs(5), blobs(6)
    whole = metrics.hd95_mm(first, second, 0.7)
    monkeypatch.setattr(metrics, "_MAX_DISTANCES", 500)
    assert torch.equal(metrics.hd95_mm(first, second, 0.7), whole)


def test_a_class_in_one_map_only_scores_zero_and_the_diagonal() -> None:
    first, second = torch.zeros(2, 30, 40, dtype=torch.long), torch.zeros(2, 30, 40, dtype=torch.long)
    first[:, 5:10, 5:10] = 1
    second[:, 5:10, 5:10] = 1
    second[1, 20:25, 20:25] = 7
    assert metrics.dice(first, second).tolist() == pytest.approx([1, 0.5])
    diagonal = 0.8 * np.hypot(29, 39)
    assert metrics.hd95_mm(first, second, 0.8).tolist() == pytest.approx([0, diagonal / 2])
    assert metrics.hd95_mm(second, first, 0.8).tolist() == pytest.approx([0, diagonal / 2])


def test_frames_without_any_class_are_an_error_or_nan_on_request() -> None:
    first = torch.zeros(3, 12, 12, dtype=torch.long)
    first[1, 3:6, 3:6] = 2
    for metric in (metrics.dice, lambda a, b, **kw: metrics.hd95_mm(a, b, 1.0, **kw)):
        with pytest.raises(ScopeRegError, match="only background: batch row 0, 2"):
            metric(first, first)
        assert metric(first, first, empty="nan").isnan().tolist() == [True, False, True]


@pytest.mark.unchecked_shapes
def test_bad_label_maps_are_errors() -> None:
    labels = blobs(0)
    for bad, message in [
        (labels[:2], "shapes are"),
        (labels[0], "shapes are"),
        (labels.float(), "float32"),
        (labels - 1, "negative: batch row 0, 1, 2, 3"),
    ]:
        with pytest.raises(ScopeRegError, match=message):
            metrics.dice(bad, labels)
        with pytest.raises(ScopeRegError, match=message):
            metrics.hd95_mm(bad, labels, 1.0)


# Likeness of images


def test_ncc_equals_scipy() -> None:
    first, second = images(0)
    expected = [pearsonr(a.flatten(), b.flatten()).statistic for a, b in zip(first, second, strict=True)]
    assert metrics.ncc(first, second).tolist() == pytest.approx(expected, rel=1e-5)
    assert metrics.ncc(first, -3 * first + 2).tolist() == pytest.approx([-1, -1, -1], rel=1e-5)


def test_a_constant_image_has_no_ncc() -> None:
    first, second = images(0)
    first[1] = 0.3
    second[2] = 1 / 3
    second[2, ::2] += 3e-8  # rounding noise, as trilinear weights leave in a constant volume
    with pytest.raises(ScopeRegError, match=r"constant.*: batch row 1, 2"):
        metrics.ncc(first, second)
    assert metrics.ncc(first, second, constant="nan").isnan().tolist() == [False, True, True]


def test_ssim_equals_scikit_image_where_the_window_fits() -> None:
    first, second = images(1)
    assert metrics.ssim(first, second).tolist() == pytest.approx(GOLDEN["ssim"], abs=2e-6)
    assert metrics.ssim(first.double(), second.double()).tolist() == pytest.approx(GOLDEN["ssim"], abs=1e-9)


def test_ssim_equals_torchmetrics_inside() -> None:
    torchmetrics = pytest.importorskip("torchmetrics.functional.image")
    first, second = images(2)
    # Its mean counts the reflected border too, so take the map and cut that off.
    _, whole = torchmetrics.structural_similarity_index_measure(
        first[:, None], second[:, None], sigma=1.5, kernel_size=11, data_range=1.0, return_full_image=True
    )
    expected = whole[:, 0, 5:-5, 5:-5].mean((1, 2))
    assert metrics.ssim(first, second).tolist() == pytest.approx(expected.tolist(), abs=1e-5)


def test_ssim_of_constant_images_is_the_luminance_term() -> None:
    first, second = torch.full((1, 16, 16), 0.2), torch.full((1, 16, 16), 0.6)
    expected = (2 * 0.2 * 0.6 + 1e-4) / (0.2**2 + 0.6**2 + 1e-4)
    assert metrics.ssim(first, second).item() == pytest.approx(expected, rel=1e-4)
    assert metrics.ssim(first, first).item() == pytest.approx(1)


def test_ssim_refuses_what_has_no_meaning() -> None:
    first, second = images(3)
    with pytest.raises(ScopeRegError, match="window 11 x 11"):
        metrics.ssim(first[:, :10], second[:, :10])
    with pytest.raises(ScopeRegError, match=r"span up to 255.*range is 1: batch row 0, 1, 2"):
        metrics.ssim(first * 255, second * 255)
    scaled = metrics.ssim(first * 255, second * 255, data_range=255)
    assert scaled.tolist() == pytest.approx(metrics.ssim(first, second).tolist(), abs=1e-5)
    for bad in (0.0, -1.0, float("nan")):
        with pytest.raises(ScopeRegError, match="data_range"):
            metrics.ssim(first, second, data_range=bad)


@pytest.mark.parametrize("metric", [metrics.ncc, metrics.ssim])
@pytest.mark.unchecked_shapes
def test_bad_images_are_errors(metric) -> None:
    first, second = images(4)
    broken = second.index_fill(0, torch.tensor([1]), float("nan"))
    with pytest.raises(ScopeRegError, match=r"\(true\).*NaN or infinity: batch row 1"):
        metric(first, broken)
    for bad in (first[:2], first[0], first[None]):
        with pytest.raises(ScopeRegError, match="shapes are"):
            metric(bad, second)


# All at once

COLUMNS = {"mtre_mm", "trans_err_mm", "rot_err_deg", "geodesic_deg", "success", "ncc", "ssim", "dice", "hd95_mm"}


def scene() -> tuple[torch.Tensor, torch.Tensor]:
    """A smooth volume (16, 32, 40) and its label ball."""
    z, y, x = torch.meshgrid(*(torch.arange(n) - (n - 1) / 2 for n in (16, 32, 40)), indexing="ij")
    volume = 0.5 + 0.25 * torch.sin(x / 4) * torch.cos(y / 5) + 0.02 * z
    return volume, ((x**2 + y**2 + (2 * z) ** 2) < 100).to(torch.uint8)


def test_frame_metrics_of_the_true_pose_are_perfect() -> None:
    volume, labels = scene()
    true = sample_poses(5, 3, (16, 32, 40), torch.Generator().manual_seed(0))
    frames = sample_slice(volume, *true)
    found = metrics.frame_metrics(true, true, volume=volume, frames=frames, spacing_mm=0.8, labels=labels)
    assert set(found) == COLUMNS
    assert all(column.shape == (5,) for column in found.values())
    for name in ("success", "ncc", "ssim", "dice"):
        assert found[name].tolist() == pytest.approx([1] * 5, abs=1e-5)
    for name in ("mtre_mm", "trans_err_mm", "rot_err_deg", "hd95_mm"):
        assert found[name].tolist() == [0] * 5


def test_frame_metrics_are_the_single_metrics() -> None:
    volume, labels = scene()
    predicted, true = (sample_poses(4, 4, (16, 32, 40), torch.Generator().manual_seed(s)) for s in (1, 2))
    frames = sample_slice(volume, *true, slice_shape=(24, 36))
    settings = {"frames": frames, "spacing_mm": 0.8, "threshold_mm": 2.0}
    found = metrics.frame_metrics(predicted, true, volume=volume, labels=labels, **settings)
    planes = [sample_slice(labels, *p, slice_shape=(24, 36), mode="nearest").long() for p in (predicted, true)]
    assert torch.equal(found["mtre_mm"], metrics.mtre_mm(predicted, true, (24, 36), 0.8))
    assert torch.equal(found["success"], (found["mtre_mm"] <= 2).float())
    assert torch.equal(found["dice"], metrics.dice(*planes))
    assert torch.equal(found["hd95_mm"], metrics.hd95_mm(*planes, 0.8))
    assert torch.equal(found["ssim"], metrics.ssim(sample_slice(volume, *predicted, slice_shape=(24, 36)), frames))
    assert found["dice"].max() < 1
    # One volume per frame gives the same as one for all; without labels two columns are gone.
    volumes, maps = (v.expand(4, -1, -1, -1) for v in (volume, labels))
    each = metrics.frame_metrics(predicted, true, volume=volumes, labels=maps, **settings)
    assert all(torch.allclose(each[name], found[name], atol=1e-6) for name in COLUMNS)
    without = metrics.frame_metrics(predicted, true, volume=volume, **settings)
    assert set(without) == COLUMNS - {"dice", "hd95_mm"}


def test_frame_metrics_give_nan_only_for_what_has_no_answer() -> None:
    volume, labels = scene()
    true = VoxelPoses(torch.eye(3).expand(2, 3, 3), torch.tensor([[0.0, 0, 0], [0, 0, 7]]))
    outside = VoxelPoses(true.rotation, torch.tensor([[0.0, 0, 50], [0, 0, 50]]))
    frames = sample_slice(volume, *true)
    found = metrics.frame_metrics(outside, true, volume=volume, frames=frames, spacing_mm=1.0, labels=labels)
    assert found["ncc"].isnan().tolist() == [True, True]  # the predicted plane is black
    assert found["dice"].isnan().tolist() == [False, True]  # the true plane of the second misses the ball too
    assert found["dice"][0] == 0
    assert found["hd95_mm"][0] == pytest.approx(np.hypot(31, 39))
    assert found["ssim"].isfinite().all()
    assert found["success"].tolist() == [0, 0]


@pytest.mark.unchecked_shapes
def test_frame_metrics_refuse_bad_input() -> None:
    volume, labels = scene()
    good = sample_poses(2, 3, (16, 32, 40), torch.Generator().manual_seed(0))
    frames = sample_slice(volume, *good)
    settings = {"volume": volume, "frames": frames, "spacing_mm": 1.0}
    nan = VoxelPoses(good.rotation, good.translation * torch.tensor([[1.0], [float("nan")]]))
    with pytest.raises(ScopeRegError, match="batch row 1"):
        metrics.frame_metrics(nan, good, **settings)
    with pytest.raises(ScopeRegError, match="frames"):
        metrics.frame_metrics(good, good, **{**settings, "frames": frames[:1]})
    with pytest.raises(ScopeRegError, match="labels"):
        metrics.frame_metrics(good, good, **settings, labels=labels[:4])
    with pytest.raises(ScopeRegError, match="labels"):
        metrics.frame_metrics(good, good, **settings, labels=labels.float())
    with pytest.raises(ScopeRegError, match="NaN or infinity"):
        metrics.frame_metrics(good, good, **{**settings, "volume": volume * float("nan")})


def test_imports_stay_light() -> None:
    code = (
        "import sys, scopereg.geometry, scopereg.evaluation.metrics;"
        "heavy = {'SimpleITK', 'scipy', 'monai', 'skimage', 'torchmetrics', 'pandas', 'matplotlib'} & set(sys.modules);"
        "sys.exit(f'loaded {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
