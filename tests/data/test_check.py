"""What `scopereg data check` tells of a folder: what it is, what is wrong, how to train on it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import SimpleITK as sitk

from scopereg.cli import main
from scopereg.data import fingerprint
from scopereg.data.builder import build_set
from scopereg.data.camus import plan_camus
from scopereg.data.folder import FileGrid, load_folder
from scopereg.data.proposal import Usual, propose
from scopereg.errors import ScopeRegError

RNG = np.random.default_rng(5)


def write(path: Path, array: Any = None, spacing: Any = 1.0, direction: Any = None) -> Path:
    array = RNG.integers(0, 200, (16, 24, 32)).astype(np.uint8) if array is None else array
    image = sitk.GetImageFromArray(np.ascontiguousarray(array), isVector=False)
    image.SetSpacing([float(spacing)] * image.GetDimension() if np.ndim(spacing) == 0 else spacing)
    if direction is not None:
        image.SetDirection(np.asarray(direction, float).ravel().tolist())
    path.parent.mkdir(parents=True, exist_ok=True)
    sitk.WriteImage(image, str(path))
    return path


def write_camus(root: Path, number: int, **options: Any) -> Path:
    stem = f"patient{number:04d}"
    pixels = RNG.integers(0, 256, (5, 60, 80)).astype(np.uint8)
    write(root / stem / f"{stem}_4CH_half_sequence.nii.gz", pixels, (1.5, 1.5, 1.0), **options)
    write(root / stem / f"{stem}_4CH_half_sequence_gt.nii.gz", pixels // 64, (1.5, 1.5, 1.0), **options)
    (root / stem / "Info_4CH.cfg").write_text("ED: 1\nES: 5\n")
    return root / stem


def check(path: Path, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict[str, Any]]:
    status = main(["data", "check", str(path), "--json", *words])
    return status, json.loads(capsys.readouterr().out)


def problems_of(report: dict[str, Any]) -> dict[str, str]:
    return {Path(where).name: what for where, what in report["problems"]}


def test_every_file_is_described(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "p1/a.nii.gz", spacing=(0.5, 0.5, 2.0))
    write(tmp_path / "p1/a_seg.nii.gz", np.ones((16, 24, 32), np.uint8), (0.5, 0.5, 2.0))
    write(tmp_path / "p2/b.mha", RNG.normal(0, 3, (16, 24, 32)).astype(np.float32), direction=np.diag([-1, -1, 1]))
    write(tmp_path / "p2/b_seg.mha", np.zeros((16, 24, 32), np.uint8), direction=np.diag([-1, -1, 1]))
    status, report = check(tmp_path, capsys)
    assert (status, report["ok"], report["layout"]) == (0, True, "folder")
    assert (report["cases"], report["patients"]) == (2, 2)
    first = report["files"][0]
    assert (first["file"], first["shape"], first["spacing_mm"]) == ("p1/a.nii.gz", [16, 24, 32], [2.0, 0.5, 0.5])
    assert (first["orientation"], first["lowest"], first["highest"]) == ("LPS", 0, 199)
    third = report["files"][2]
    assert (third["orientation"], "float" in third["numbers"]) == ("RAS", True)
    assert third["lowest"] < -5
    assert report["remarks"] == ["volumes are oriented differently, and used as stored: LPS (1), RAS (1)"]


def test_everything_that_is_wrong_is_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in "abcdefg":
        write(tmp_path / f"{name}.nii.gz")
        write(tmp_path / f"{name}_seg.nii.gz", RNG.integers(0, 3, (16, 24, 32)).astype(np.uint8))
    (tmp_path / "b.nii.gz").write_bytes((tmp_path / "b.nii.gz").read_bytes()[:-300])
    (tmp_path / "c.nii.gz").write_bytes(b"no image")
    (tmp_path / "d_seg.nii.gz").unlink()
    write(tmp_path / "e_seg.nii.gz", np.zeros((16, 24, 30), np.uint8))
    (tmp_path / "f.nii.gz").write_bytes((tmp_path / "a.nii.gz").read_bytes())
    write(tmp_path / "g_seg.nii.gz", np.full((16, 24, 32), 0.5, np.float32))
    write(tmp_path / "picture.nii.gz", np.ones((24, 32), np.uint8))
    write(tmp_path / "zeros.nii.gz", np.zeros((16, 24, 32), np.uint8))
    write(tmp_path / "turned.nii.gz")
    write(tmp_path / "turned_seg.nii.gz", np.zeros((16, 24, 32), np.uint8), direction=np.diag([-1, 1, 1]))
    status, report = check(tmp_path, capsys)
    assert status == 1
    found = [f"{Path(where).name}: {what}" for where, what in report["problems"]]
    for words in (
        "b.nii.gz: it is damaged or cut short",
        "c.nii.gz: ",
        "d: no labels",
        "e_seg.nii.gz: labels of shape (16, 24, 30) for an image of (16, 24, 32)",
        "a.nii.gz: the same content as f.nii.gz",
        "g_seg.nii.gz: labels run from 0.5",
        "picture.nii.gz: it has 32 x 24 voxels: no volume",
        "zeros.nii.gz: every voxel is 0",
        "turned: the labels are RPS, their volume is LPS",
    ):
        assert any(line.startswith(words) for line in found), words
    assert len(found) == 11  # picture and zeros have no labels either
    assert main(["data", "check", str(tmp_path)]) == 1
    shown = capsys.readouterr().out
    assert "11 problems" in shown
    assert "--skip-bad" in shown


def test_dicom_series_with_wrong_slices_are_problems(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], write_series: Callable[..., np.ndarray]
) -> None:
    write_series(tmp_path / "good")
    write_series(tmp_path / "gap", {3: None})
    write_series(tmp_path / "mixed", {3: {"PatientID": "P2"}})
    status, report = check(tmp_path, capsys)
    assert (status, report["cases"]) == (1, 3)
    problems = problems_of(report)
    assert problems.keys() == {"gap", "mixed"}
    assert "missing or uneven" in problems["gap"]
    assert "different patients" in problems["mixed"]
    (good,) = [facts for facts in report["files"] if facts["case"] == "good"]
    assert (good["shape"], good["spacing_mm"]) == ([8, 24, 32], [1.0, 1.0, 1.0])


def test_large_folders_are_told_from_their_headers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Voxels are read of a sample; a file cut short is found all the same."""
    monkeypatch.setattr(fingerprint, "_SAMPLE", 3)
    read: list[str] = []
    real = fingerprint.read_image
    monkeypatch.setattr(fingerprint, "read_image", lambda path: [read.append(path.name), real(path)][1])
    for number in range(9):
        write(tmp_path / f"v{number}.nii.gz")
    write(tmp_path / "v9.nrrd")
    (tmp_path / "v5.nii.gz").write_bytes((tmp_path / "v5.nii.gz").read_bytes()[:-7])
    status, report = check(tmp_path, capsys)
    assert (status, list(problems_of(report))) == (1, ["v5.nii.gz"])
    assert read == ["v0.nii.gz", "v4.nii.gz", "v8.nii.gz"]
    assert report["summary"]["images"]["read"] == 3
    check(tmp_path, capsys, "--full")
    assert len(read) == 3 + 9


def test_camus_is_known_and_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(1, 8):
        write_camus(tmp_path / "database_nifti", number)
    status, report = check(tmp_path, capsys)
    assert (status, report["layout"], report["patients"], len(report["files"])) == (0, "camus", 7, 14)
    assert report["proposal"]["shape"] == [32, 128, 128]
    root = tmp_path / "database_nifti"
    write_camus(root, 2, direction=[[0, 1, 0], [1, 0, 0], [0, 0, 1]])
    (root / "patient0003/Info_4CH.cfg").write_text("ED: 1\nES: 9\n")
    (root / "patient0004/Info_4CH.cfg").unlink()
    write(root / "patient0005/patient0005_4CH_half_sequence.nii.gz", np.ones((5, 60, 80), np.uint8), (9.0, 9.0, 1.0))
    status, report = check(tmp_path, capsys)
    found = problems_of(report)
    assert status == 1
    assert "axes are permuted" in found["patient0002_4CH"]
    assert "ES 9 of 5" in found["patient0003_4CH_half_sequence.nii.gz"]
    assert "Info_4CH.cfg" in found["patient0004_4CH_half_sequence.nii.gz"]
    assert "720 x 540 mm" in found["patient0005_4CH_half_sequence.nii.gz"]


def test_a_camus_tree_turned_as_a_whole_is_a_problem(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_camus(tmp_path, 1, direction=np.diag([1, -1, 1]))
    status, report = check(tmp_path, capsys)
    assert (status, list(problems_of(report))) == (1, ["all files"])
    assert "LPS was expected" in report["problems"][0][1]


def test_muregpro_is_known_and_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    turned = np.diag([-1.0, -1, 1])
    for number, planes in ((1, 81), (2, 79)):
        name = f"case00000{number}.nii.gz"
        volume = RNG.integers(0, 256, (70, 70, planes)).astype(np.uint8)
        write(tmp_path / "train/us_images" / name, volume, 0.8, turned)
        labels = np.zeros((6, 70, 70, planes), np.uint8)
        write(tmp_path / "train/us_labels" / name, labels, 0.8, np.diag([-1.0, -1, 1, 1]))
    status, report = check(tmp_path, capsys)
    assert (status, report["layout"]) == (1, "muregpro")
    assert list(problems_of(report)) == ["case000002.nii.gz"]
    assert "79 slices" in report["problems"][0][1]
    assert report["remarks"] == []


def test_a_proposal_says_why_and_can_be_followed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "a.nii.gz", spacing=(0.5, 0.5, 1.0))
    write(tmp_path / "b.nii.gz", RNG.integers(0, 200, (20, 30, 40)).astype(np.uint8), (0.6, 0.6, 0.8))
    _, report = check(tmp_path, capsys)
    proposal = report["proposal"]
    assert (proposal["shape"], proposal["spacing_mm"]) == ([24, 16, 24], 0.6)
    assert set(proposal["rules"]) == {"shape", "spacing_mm", "magnitude", "batch"}
    loaded = load_folder(tmp_path, shape=tuple(proposal["shape"]), spacing_mm=proposal["spacing_mm"])
    assert loaded.shape == (24, 16, 24)
    words = [*report["commands"][0].split()[1:-1], str(tmp_path / "set"), "--workers", "1"]
    assert main(words) == 0
    assert main(["data", "check", str(tmp_path / "set")]) == 0


@pytest.mark.parametrize(
    ("size", "spacing_mm", "shape", "step", "magnitude", "batch"),
    [
        ((32, 128, 128), 0.6, (32, 128, 128), 0.6, 10, 16),
        ((64, 192, 192), 0.6, (64, 192, 192), 0.6, 10, 4),
        ((100, 512, 512), 0.2, (24, 128, 128), 0.8, 10, 16),
        ((4, 128, 128), 1.0, (8, 128, 128), 1.0, 8, 16),
    ],
)
def test_proposals_follow_their_rules(
    size: Any, spacing_mm: float, shape: Any, step: float, magnitude: float, batch: int
) -> None:
    found = propose("folder", [FileGrid(size, (spacing_mm,) * 3)], Usual(10.0, 16, 4))
    assert (found.shape, found.spacing_mm, found.batch) == (shape, pytest.approx(step, abs=1e-3), batch)
    assert abs(found.magnitude - magnitude) <= 1


def test_a_prepared_set_is_compared_with_its_hashes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(1, 7):
        write_camus(tmp_path / "tree", number)
    folder = tmp_path / "set"
    build_set(plan_camus(tmp_path / "tree", size=16, frames=4), folder)
    status, report = check(folder, capsys)
    assert (status, report["layout"], report["cases"]) == (0, "prepared", 6)
    assert report["summary"]["parameters"]["size"] == 16
    assert main(["data", "check", str(folder)]) == 0
    assert "evaluation poses" in capsys.readouterr().out
    splits = json.loads((folder / "splits.json").read_text())
    splits["folds"][0]["train"].append(splits["folds"][0]["test"][0])
    (folder / "splits.json").write_text(json.dumps(splits))
    (folder / "poses.npz").write_bytes(b"")
    status, report = check(folder, capsys)
    assert status == 1
    assert "more than once" in problems_of(report)["splits.json"]
    assert "cannot be read" in problems_of(report)["poses.npz"]
    images = folder / "images.npy"
    images.write_bytes(images.read_bytes()[:-1] + b"\x07")
    status, report = check(folder, capsys)
    assert (status, list(problems_of(report))) == (1, ["images.npy"])


def test_an_interrupted_set_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def stop(done: int, total: int) -> None:
        if done == 2:
            raise KeyboardInterrupt

    for number in range(1, 5):
        write_camus(tmp_path / "tree", number)
    with pytest.raises(KeyboardInterrupt):
        build_set(plan_camus(tmp_path / "tree", size=16, frames=4), tmp_path / "set", progress=stop)
    status, report = check(tmp_path / "set", capsys)
    assert (status, report["layout"]) == (1, "unfinished")
    assert "2 of 4 cases are done" in report["problems"][0][1]


def test_folders_without_data(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "notes.txt").write_text("nothing here")
    status, report = check(tmp_path, capsys)
    assert (status, report["layout"], report["proposal"]) == (1, "unknown", None)
    assert main(["data", "check", str(tmp_path)]) == 1
    assert main(["data", "check", str(tmp_path / "none")]) == 2
    assert main(["data", "check"]) == 2


def _nearly_empty() -> np.ndarray:
    array = np.zeros((16, 24, 32), np.uint8)
    array[8, 10, 10:60:5] = 200
    return array


def _nan() -> np.ndarray:
    return np.where(np.arange(16 * 24 * 32).reshape(16, 24, 32) == 77, np.nan, 1.0).astype(np.float32)


def _labels(value: float, shape: tuple[int, ...] = (16, 24, 32)) -> np.ndarray:
    return np.where(np.arange(int(np.prod(shape))).reshape(shape) % 9 == 0, value, 1).astype(np.float32)


@pytest.mark.parametrize(
    ("kind", "refused"),
    [
        (lambda image, _: None, False),
        (lambda image, _: image.write_bytes(image.read_bytes()[:-40]), True),
        (lambda image, _: image.write_bytes(image.read_bytes()[:60]), True),
        (lambda image, _: image.write_bytes(b"no image at all"), True),
        (lambda image, _: image.write_bytes(b""), True),
        (lambda image, _: write(image, _nan()), True),
        (lambda image, _: write(image, np.ones((24, 32), np.uint8)), True),
        (lambda image, _: write(image, np.full((16, 24, 32), 7, np.uint8)), True),
        (lambda image, _: write(image, _nearly_empty()), True),
        (lambda image, _: write(image, RNG.integers(0, 9, (2, 16, 24, 32)).astype(np.uint8)), True),
        (lambda _, mask: write(mask, _labels(0.5)), True),
        (lambda _, mask: write(mask, _labels(-1)), True),
        (lambda _, mask: write(mask, _labels(300)), True),
        (lambda _, mask: write(mask, _labels(2, (16, 24, 30))), True),
        (lambda _, mask: write(mask, _labels(2), direction=np.diag([1, -1, 1])), True),
        (lambda _, mask: write(mask, _labels(200)), False),
        (lambda _, mask: mask.unlink(), True),
    ],
)
def test_what_check_refuses_loading_refuses(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: Callable[[Path, Path], Any], refused: bool
) -> None:
    for name in "abc":
        write(tmp_path / f"{name}.nii.gz")
        write(tmp_path / f"{name}_seg.nii.gz", RNG.integers(0, 3, (16, 24, 32)).astype(np.uint8))
    kind(tmp_path / "b.nii.gz", tmp_path / "b_seg.nii.gz")
    status, report = check(tmp_path, capsys, "--full")
    assert (status, bool(report["problems"])) == (int(refused), refused), report["problems"]
    if not refused:
        assert len(load_folder(tmp_path)) == 3
        return
    with pytest.raises(ScopeRegError):
        load_folder(tmp_path)
    assert len(load_folder(tmp_path, skip_bad=True)) == 2
