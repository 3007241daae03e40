"""Confidence: quality features that move the right way, bounds that hold, verdicts, calibrations that fit a model."""

from __future__ import annotations

import csv
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from synthetic_features import synthetic

import scopereg
from scopereg.cli import main
from scopereg.data import phantom
from scopereg.errors import ScopeRegError
from scopereg.geometry import VoxelPoses, rotation_from_euler_deg, sample_poses
from scopereg.images import Frame
from scopereg.io.pictures import png_bytes
from scopereg.networks import create
from scopereg.networks.weights import save_network
from scopereg.registration import model as models
from scopereg.registration.calibration import Calibration, features_of, path_beside, read_calibration
from scopereg.registration.confidence import (
    QUALITY_FEATURES,
    ErrorModel,
    QualityFeatures,
    Verdict,
    conformal_quantile,
    fit,
    folds_of,
)
from scopereg.registration.locator import Locator
from scopereg.registration.model import Registrar
from scopereg.registration.network import NetworkMethod
from scopereg.registration.refine import RefinedMethod
from scopereg.registration.result import Result

Case = Any  # of conftest.py
SHAPE = (32, 64, 64)
STRANGE = {"residual": 5.0, "mass": -30.0, "coarse": -0.9, "medium": -0.9}


@pytest.fixture(scope="module")
def patients() -> list[phantom.Phantom]:
    return [phantom.create("echo", seed=200_001 + n, shape=SHAPE) for n in range(2)]


def images_of(patient: phantom.Phantom, count: int = 2) -> torch.Tensor:
    return patient.acquire(*sample_poses(count, 5, SHAPE, torch.Generator().manual_seed(0)), seed=0).images


def example(fine: bool = False) -> ErrorModel:
    names = features_of(fine)
    return fit(names, *synthetic(400, 1, names))


def example_calibration(model: str, made_on: dict[str, Any] | None = None) -> Calibration:
    made = {stage: example() for stage in ("network", "refined")}
    return Calibration(model, made_on or {"dataset": "synthetic"}, made)


def assert_no_numbers(judged: Verdict | Result) -> None:
    assert all(math.isnan(number) for number in (judged.expected_mm, judged.bound_mm, judged.confidence))


def test_quality_features_tell_own_frames_from_others(bare: Registrar, patients: list[phantom.Phantom]) -> None:
    session = bare.prepare(patients[0].volume)
    noise = torch.rand(2, *SHAPE[1:], generator=torch.Generator().manual_seed(0))
    kinds = [images_of(patients[0]), images_of(patients[1]), noise]
    means = [session.examine(images).features.mean(0) for images in kinds]
    own, other, nothing = (dict(zip(QUALITY_FEATURES, mean, strict=True)) for mean in means)
    for name in ("coarse", "medium", "mass"):
        assert own[name] > other[name], name
        assert own[name] > nothing[name], name
    assert own["coarse"] > 0.3
    assert abs(nothing["coarse"]) < 0.3


def test_likeness_is_greatest_where_the_frame_lies(patients: list[phantom.Phantom]) -> None:
    poses = sample_poses(2, 5, SHAPE, torch.Generator().manual_seed(0))
    true = VoxelPoses(poses.rotation.float(), poses.translation.float())
    beside = VoxelPoses(true.rotation, true.translation + 4)
    away = VoxelPoses(true.rotation, true.translation + 500)
    quality = QualityFeatures(patients[0].volume.array)
    images = images_of(patients[0])
    assert (quality.at_poses(images, true) > quality.at_poses(images, beside)).all()
    assert (quality.at_poses(images, away) == -1).all()


def test_the_bound_holds_for_new_frames_and_few_of_them_are_flagged() -> None:
    """On average over calibrations, which is what conformal prediction promises."""
    signs, errors, _ = synthetic(1500, 99)
    close = errors <= 3
    verdicts, covered, stated = [], [], []
    for seed in range(20):
        known = fit(QUALITY_FEATURES, *synthetic(400, seed))
        found = [known.judge(row.tolist(), 1.0) for row in signs]
        covered.append(np.mean([e <= v.bound_mm for e, v in zip(errors, found, strict=True) if v.belongs]))
        stated += [known.expected_mm(row.tolist(), 1.0) for row in signs]
        verdicts += found
    assert 0.935 <= np.mean(covered) <= 0.97
    sure, expected = np.array([v.confidence for v in verdicts]), np.array(stated)
    assert 0.03 <= np.mean([not v.belongs for v in verdicts]) <= 0.07
    every = np.tile(close, 20)
    for low, high in ((0.05, 0.5), (0.5, 0.8), (0.8, 0.95)):
        inside = (sure > low) & (sure <= high)
        assert abs(every[inside].mean() - sure[inside].mean()) < 0.1
    assert (expected[: len(close)][~close][:, None] > expected[: len(close)][close]).mean() > 0.8


def test_strangers_are_told_from_own_frames_and_doubts_count() -> None:
    """Strangers that differ in one feature alone, some of them hardly."""
    features, errors, patients = synthetic(400, 1)
    draw = np.random.default_rng(2)
    strange = draw.normal(size=(600, features.shape[1]))
    strange[:, 2] -= draw.uniform(1, 6, size=600)
    known, naive = (
        fit(QUALITY_FEATURES, features, errors, patients, strange),
        fit(QUALITY_FEATURES, features, errors, patients),
    )
    own = [known.own(row.tolist()) for row in synthetic(400, 3)[0]]
    others = [known.own(row.tolist()) for row in strange]
    assert np.mean(own) > 0.8 > 0.2 > np.mean(others)
    taken, before = (np.mean([model.judge(row.tolist(), 1.0).ok for row in strange]) for model in (known, naive))
    assert taken < 0.1 < before
    row = list(known.centre)
    row[2] -= 1.2 * known.scale[2]
    doubtful, sure = known.judge(row, 0.1), naive.judge(row, 0.1)
    assert (sure.ok, sure.reason) == (True, "")
    assert (doubtful.ok, doubtful.belongs, doubtful.confidence < sure.confidence) == (False, True, True)
    row[2] -= 1.5 * known.scale[2]
    assert "may be of another place or size" in doubtful.reason
    assert known.judge(row, 0.1).reason == "the network found little of the frame in this volume"
    better = list(known.centre)
    better[2] += 4 * known.scale[2]  # what is better than usual never speaks against a frame
    assert known.own(better) >= known.own(list(known.centre))


def test_the_bound_holds_in_each_group_and_in_voxels_of_any_size() -> None:
    features, errors, patients = synthetic(600, 4)
    hard = np.arange(600) % 3 == 0
    errors = np.where(hard, errors * np.exp(np.random.default_rng(1).normal(size=600)), errors)
    groups = ["hard" if one else "easy" for one in hard]
    known, pooled = (fit(QUALITY_FEATURES, features, errors, patients, groups=one) for one in (groups, None))
    assert known.bound_score > pooled.bound_score
    bounds = np.array([known.expected_mm(row.tolist(), 0.5) * known.bound_score for row in features])
    for group in (hard, ~hard):
        assert (errors * 0.5 <= bounds)[group].mean() >= 0.93
    row = features[0].tolist()
    assert known.expected_mm(row, 0.5) == pytest.approx(0.5 * known.expected_voxels(row))
    assert known.judge(list(known.centre), 0.1).confidence > known.judge(list(known.centre), 3.0).confidence


def test_a_bound_of_few_scores_is_their_largest() -> None:
    assert conformal_quantile([1.0, 3.0, 2.0], 0.95) == 3.0
    assert conformal_quantile(list(range(1, 100)), 0.95) == 95


def test_patients_stay_together_and_few_are_refused() -> None:
    folds = folds_of([*"abacbcdefg"])
    assert (folds[0], folds[1]) == (folds[2], folds[4])
    assert sorted(set(folds)) == [0, 1, 2, 3, 4]
    with pytest.raises(ScopeRegError, match="too few"):
        fit(QUALITY_FEATURES, *synthetic(30, 0))


def test_thinned_scores_are_no_less_cautious() -> None:
    many = fit(QUALITY_FEATURES, *synthetic(4000, 1))
    assert len(many.scores) == 200
    assert list(many.scores) == sorted(many.scores)
    signs, errors, _ = synthetic(4000, 3)
    verdicts = [many.judge(row.tolist(), 1.0) for row in signs]
    assert np.mean([e <= v.bound_mm for v, e in zip(verdicts, errors, strict=True) if v.belongs]) > 0.94


@pytest.mark.parametrize(
    ("feature", "words"),
    [
        ("residual", "does not lie in a plane: 74.2 mm"),
        ("mass", "found little of the frame"),
        ("coarse", "does not look like this volume at the pose found"),
        ("medium", "does not look like this volume at the pose found"),
    ],
)
def test_a_frame_out_of_distribution_gets_a_reason(feature: str, words: str) -> None:
    known = replace(example(), scale=(1.0,) * len(QUALITY_FEATURES), limits=dict.fromkeys(STRANGE, 0.0))
    features = [0.0] * len(QUALITY_FEATURES)
    features[QUALITY_FEATURES.index(feature)] = STRANGE[feature]
    verdict = known.judge(features, 0.5)
    assert words in verdict.reason
    assert (verdict.belongs, verdict.ok) == (False, False)
    assert_no_numbers(verdict)


def test_a_frame_that_belongs_may_still_be_too_unsure() -> None:
    known = example()
    fine = known.judge(list(known.centre), 1.0)
    assert (fine.ok, fine.reason) == (True, "")
    assert 0.8 <= fine.confidence < 1 < fine.bound_mm / fine.expected_mm
    unsure = replace(known, offset=known.offset + 1.0).judge(list(known.centre), 1.0)
    assert (unsure.belongs, unsure.ok) == (True, False)
    assert 0 < unsure.confidence < 0.8
    assert "an error above 3 mm is too likely" in unsure.reason
    lost = known.judge([math.nan] * len(QUALITY_FEATURES), 1.0)
    assert (lost.ok, lost.belongs) == (False, False)
    assert_no_numbers(lost)
    assert "nothing of the frame" in lost.reason
    assert known.expected_mm([math.nan] * len(QUALITY_FEATURES), 1.0) == 1000
    for far in (1e9, -1e9):
        assert math.isfinite(known.expected_mm([far] * len(QUALITY_FEATURES), 1.0))


def test_a_calibration_survives_its_file(tmp_path: Path) -> None:
    made = example_calibration("abc")
    again = read_calibration(made.save(tmp_path / "a.calibration.json"))
    assert again == made
    assert again.error_models["refined"].features == QUALITY_FEATURES
    assert [path.name for path in tmp_path.iterdir()] == ["a.calibration.json"]


def _set(content: dict[str, Any], *places: str, value: Any) -> None:
    for place in places[:-1]:
        content = content[place]
    content[places[-1]] = value


@pytest.mark.parametrize(
    ("places", "value"),
    [
        (("format",), "another"),
        (("gauges", "network"), {}),
        (("gauges", "network", "scores"), [2.0, 1.0]),
        (("gauges", "network", "scores"), []),
        (("gauges", "network", "weights"), [1.0]),
        (("gauges", "network", "own_weights"), [1.0] * 5),
        (("gauges", "network", "own_offset"), "much"),
        (("gauges", "network", "bound_score"), -1.0),
        (("gauges", "refined", "offset"), float("nan")),
        (("gauges", "refined", "scale"), [0.0] * 5),
        (("gauges", "refined", "limits"), {"mass": 0.0}),
        (("gauges",), {}),
        (("gauges",), []),
        (("gauges", "network", "weights"), [1e308] * 5),
        (("gauges", "network", "weights"), [True] * 5),
        (("gauges", "network", "scores"), "123"),
        (("gauges", "refined", "offset"), -1e300),
        (("made_on",), [1]),
        (("made_on", "magnitude"), "ten"),
        (("made_on", "parts"), [1, 2]),
        (("model",), 5),
    ],
)
def test_a_damaged_calibration_is_refused(tmp_path: Path, places: tuple[str, ...], value: Any) -> None:
    path = example_calibration("abc").save(tmp_path / "a.calibration.json")
    content = json.loads(path.read_text())
    _set(content, *places, value=value)
    path.write_text(json.dumps(content))
    with pytest.raises(ScopeRegError, match="no calibration of this version"):
        read_calibration(path)
    path.write_text("[" * 100_000)
    with pytest.raises(ScopeRegError, match="no calibration of this version: it is nested deeper"):
        read_calibration(path)
    path.write_text(json.dumps(content)[:-40])
    with pytest.raises(ScopeRegError, match="no calibration of this version"):
        read_calibration(path)


def test_weights_find_their_own_calibration_and_refuse_another(narrow: Registrar, tmp_path: Path) -> None:
    torch.manual_seed(0)
    weights = save_network(create("scope-reg"), tmp_path / "mine.safetensors", name="scope-reg")
    plain = scopereg.load(weights, device="cpu")
    assert plain.calibration is None
    beside = path_beside(weights)
    assert beside.name == "mine.calibration.json"
    made = example_calibration(plain.fingerprint)
    made.save(beside)
    for fine in (True, False):  # there is none that the calibration would be of
        assert scopereg.load(weights, device="cpu", fine=fine).calibration == made
    example_calibration(narrow.fingerprint).save(beside)
    with pytest.raises(ScopeRegError, match="of another model"):
        scopereg.load(weights, device="cpu")


@pytest.mark.parametrize("name", models.names())
def test_every_model_of_the_package_is_calibrated(name: str) -> None:
    model = scopereg.load(name, device="cpu")
    assert model.calibration is not None
    assert model.calibration.model == model.fingerprint
    made_on = model.calibration.made_on
    assert (made_on["dataset"], made_on["protocol"]) == ("echo + prostate + abdomen + worlds", "honest")
    usual = model.calibration.error_models["network"]
    assert len(usual.scores) >= 100
    assert usual.own_offset > 0
    verdict = usual.judge(list(usual.centre), 1.0)
    assert verdict.belongs
    assert 0 < verdict.expected_mm < verdict.bound_mm < 30


@pytest.mark.parametrize("fine", [True, False])
def test_a_session_judges_only_with_a_calibration(
    narrow: Registrar, bare: Registrar, patients: list[phantom.Phantom], fine: bool
) -> None:
    model = narrow if fine else replace(bare, calibration=example_calibration(bare.fingerprint))
    frame = Frame(images_of(patients[0])[0], spacing_mm=patients[0].spacing_mm)
    plain = replace(model, calibration=None).prepare(patients[0].volume).register(frame)
    assert (plain.ok, plain.features) == (None, {})
    assert plain.reason == plain.verdict == "not judged: narrow network is not calibrated"
    assert math.isnan(plain.confidence)
    assert "expected" not in str(plain)
    assert plain.facts["expected_mm"] is None
    session = model.prepare(patients[0].volume)
    judged = session.register(frame)
    assert np.abs(judged.pose.matrix - plain.pose.matrix).max() < 1e-3
    assert tuple(judged.features) == features_of(fine)
    assert judged.belongs is False or 0 < judged.expected_mm < judged.bound_mm
    assert judged.ok is not None
    assert judged.verdict in str(judged)
    assert json.loads(json.dumps(judged.facts, allow_nan=False))["ok"] is judged.ok
    assert session.locate(frame.array[None]).features.shape == (1, 0)


def test_a_pose_beyond_those_of_the_calibration_is_not_judged() -> None:
    made = example_calibration("model", {"dataset": "synthetic", "magnitude": 10.0})
    fine = [*made.error_models["network"].centre]
    turned = rotation_from_euler_deg(torch.tensor([0.0, -14.0, 3.0]))
    for rotation, shift, inside in (
        (torch.eye(3), torch.tensor([10.0, -10.9, 0.0]), True),
        (torch.eye(3), torch.tensor([0.0, 0.0, -11.1]), False),
        (turned, torch.zeros(3), False),
    ):
        verdict = made.judge("network", fine, 1.0, rotation, shift)
        judged = made.error_models["network"].judge(fine, 1.0)
        assert judged.ok
        if inside:
            assert verdict == judged
        else:
            assert (verdict.ok, verdict.belongs) == (None, None)
            assert_no_numbers(verdict)
    where = "14 voxels or degrees off the middle of the volume"
    assert verdict.reason == f"not judged: {where}, and errors are known up to 10"
    strange = made.judge("network", [math.nan] * 5, 1.0, turned, torch.zeros(3))
    assert (strange.ok, strange.belongs) == (False, False)  # refused for what it looks like, wherever it lies
    unknown = example_calibration("model").judge("refined", fine, 1.0, turned, torch.zeros(3))  # as older files are
    assert unknown.ok


def test_noise_is_not_ok(narrow: Registrar, patients: list[phantom.Phantom]) -> None:
    noise = Frame(torch.rand(SHAPE[1:], generator=torch.Generator().manual_seed(0)), spacing_mm=patients[0].spacing_mm)
    result = narrow.prepare(patients[0].volume).register(noise)
    assert (result.belongs, result.ok) == (False, False)
    assert_no_numbers(result)
    assert result.reason


def test_networks_without_quality_features_say_so(tmp_path: Path, patients: list[phantom.Phantom]) -> None:
    torch.manual_seed(0)
    path = save_network(create("tri-plane"), tmp_path / "other.safetensors", name="tri-plane")
    other = scopereg.load(path, device="cpu")
    with pytest.raises(ScopeRegError, match="tells no quality features"):
        other.prepare(patients[0].volume).examine(images_of(patients[0]))
    assert main(["calibrate", str(path), "echo", "--device", "cpu"]) == 2


def test_a_refined_pose_is_judged_anew(case: Case, narrow_file: Path) -> None:
    locator = Locator(case.volume, str(narrow_file), refine=True, device="cpu")
    refined = locator.locate(case.frames[0])
    (plain,) = locator.prepared.before.locate([case.frames[0]], [None])  # type: ignore[attr-defined]
    assert not isinstance(plain, ScopeRegError)
    assert refined.ok is not None
    assert refined.features["medium"] > plain.features["medium"]
    assert refined.features["mass"] == pytest.approx(plain.features["mass"], abs=1e-3)
    assert refined.expected_mm != plain.expected_mm


def test_the_command_tells_what_to_think_of_the_pose(
    case: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    volume = case.folder / "volume.nii.gz"
    words = ["register", str(case.folder / "frame.dcm"), str(volume), "-o", str(tmp_path / "pose.json")]
    assert main([*words, "--device", "cpu"]) == 0
    said = capsys.readouterr().out
    assert "ok" in said
    assert "expected error" in said
    record = json.loads((tmp_path / "pose.json").read_text())["result"]
    assert record["expected_mm"] > 0
    assert tuple(record["signs"]) == features_of(fine=True)
    noise = np.random.default_rng(0).integers(1, 255, (96, 96), dtype=np.uint8)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "noise.png").write_bytes(png_bytes(noise))
    batch = ["register", str(tmp_path / "in"), str(volume), "-o", str(tmp_path / "out"), "--pixel-mm", "0.82"]
    assert main([*batch, "--device", "cpu"]) == 0  # not ok is a result, no failure
    assert "not ok  noise.png: " in capsys.readouterr().out
    with (tmp_path / "out" / "poses.csv").open() as file:
        (row,) = csv.DictReader(file)
    assert row["ok"] == "no"
    assert [row[name] for name in ("belongs", "expected_mm", "bound_mm", "confidence")] == ["no", "", "", ""]
    assert row["reason"] in (tmp_path / "out" / "report.html").read_text()


def test_methods_of_a_network_tell_its_confidence(narrow: Registrar, patients: list[phantom.Phantom]) -> None:
    volume, spacing_mm = patients[0].volume, patients[0].spacing_mm
    frames = [Frame(image, spacing_mm=spacing_mm) for image in images_of(patients[0])]
    method, plain = NetworkMethod(narrow), NetworkMethod(replace(narrow, calibration=None))
    assert "calibration" in method.facts
    assert "calibration" not in plain.facts
    judged, refined, without = (
        [one for one in Locator(volume, own).locate_all(frames) if isinstance(one, Result)]
        for own in (method, RefinedMethod(method, "cpu"), plain)
    )
    assert len(judged) == len(refined) == len(without) == len(frames)
    for one, after, bare in zip(judged, refined, without, strict=True):
        assert all(0 <= found.confidence <= 1 for found in (one, after))
        assert one.ok is not None
        assert after.verdict
        assert after.verdict != one.verdict
        assert (bare.ok, bare.verdict) == (None, "not judged: narrow network is not calibrated")
        assert math.isnan(bare.confidence)
        assert one.pose.is_close(bare.pose, mm=0.01, deg=0.05)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
def test_a_gpu_s_session_sees_the_same_quality_features(patients: list[phantom.Phantom]) -> None:
    images = images_of(patients[0])
    cpu, gpu = (scopereg.load(device=d).prepare(patients[0].volume) for d in ("cpu", "cuda"))
    wanted = cpu.examine(images).features
    for _ in range(2):  # recorded, then replayed
        torch.testing.assert_close(gpu.examine(images).features, wanted, rtol=0.02, atol=0.05)
    frames = [Frame(image, spacing_mm=patients[0].spacing_mm) for image in images]
    for one, other in zip(gpu.register_all(frames), cpu.register_all(frames), strict=True):
        assert one.expected_mm == pytest.approx(other.expected_mm, rel=0.05)
