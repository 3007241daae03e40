"""Preparing a dataset: the same set however it is made, kept when interrupted, and never a mixture."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import SimpleITK as sitk
import torch

from scopereg.cli import main
from scopereg.data import preparation
from scopereg.data.camus import load_camus, plan_camus
from scopereg.data.cases import SetPlan
from scopereg.data.datasets import load_dataset
from scopereg.data.folder import plan_folder
from scopereg.data.journal import Journal, finished_cases
from scopereg.data.muregpro import load_muregpro, plan_muregpro
from scopereg.data.orientation import orientation_code
from scopereg.data.poses import MAGNITUDES, evaluation_poses, read_poses
from scopereg.data.preparation import prepare_set
from scopereg.data.splits import split_patients, split_set
from scopereg.data.store import open_set
from scopereg.errors import ScopeRegError

SHARED = Path(__file__).parents[3] / "shared" / "data"
SIZE, FRAMES = 16, 4
RNG = np.random.default_rng(3)


def write_image(path: Path, array: np.ndarray, spacing: Any, direction: Any = None) -> Path:
    image = sitk.GetImageFromArray(np.ascontiguousarray(array), isVector=False)
    image.SetSpacing(spacing)
    if direction is not None:
        image.SetDirection(np.asarray(direction, float).ravel().tolist())
    path.parent.mkdir(parents=True, exist_ok=True)
    sitk.WriteImage(image, str(path))
    return path


def write_case(root: Path, number: int, view: str = "4CH", *, labels: bool = True, direction: Any = None) -> Path:
    """A sequence of noise, 90 x 120 mm large, with labels of four classes."""
    frames = 5 + number % 3
    folder = root / f"patient{number:04d}"
    pixels = RNG.integers(0, 256, (frames, 60, 80)).astype(np.uint8)
    stem = folder / f"patient{number:04d}_{view}_half_sequence"
    write_image(stem.with_name(stem.name + ".nii.gz"), pixels, (1.5, 1.5, 1.0), direction)
    if labels:
        write_image(stem.with_name(stem.name + "_gt.nii.gz"), pixels // 64, (1.5, 1.5, 1.0), direction)
    (folder / f"Info_{view}.cfg").write_text(f"ED: 1\nES: {frames}\n")
    return stem.with_name(stem.name + ".nii.gz")


def write_tree(root: Path, count: int = 6) -> Path:
    for number in range(1, count + 1):
        write_case(root, number)
    return root


def plan(root: Path, **options: Any) -> SetPlan:
    return plan_camus(root, **{"size": SIZE, "frames": FRAMES, **options})


def stop_after(count: int) -> Callable[[int, int], None]:
    def progress(done: int, total: int) -> None:
        if done == count:
            raise KeyboardInterrupt

    return progress


def interrupt(root: Path, folder: Path, count: int = 3, workers: int = 1) -> Path:
    """A preparation that was interrupted when `count` cases were done."""
    with pytest.raises(KeyboardInterrupt):
        prepare_set(plan(root), folder, workers=workers, progress=stop_after(count))
    return folder


def content(folder: Path) -> dict[str, Any]:
    """Everything in a prepared folder; .npz by its arrays, since the file tells the time of writing."""
    found: dict[str, Any] = {path.name: path.read_bytes() for path in folder.iterdir()}
    with np.load(folder / "poses.npz") as file:
        found["poses.npz"] = {name: file[name].tobytes() for name in file.files}
    return found


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tree(tmp_path_factory.mktemp("camus"))


@pytest.fixture(scope="module")
def whole(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The set of the tree, made in one go."""
    folder = tmp_path_factory.mktemp("whole")
    prepare_set(plan(tree), folder)
    return folder


def test_it_is_the_set_that_the_loader_gives(tree: Path, whole: Path) -> None:
    volumes, loaded = open_set(whole), load_camus(tree, size=SIZE, frames=FRAMES)
    assert volumes.sha256() == loaded.sha256()
    assert (volumes.cases, volumes.patients, volumes.margin) == (loaded.cases, loaded.patients, loaded.margin)
    assert volumes.labels is not None
    assert set(volumes.labels.unique().tolist()) == {0, 1, 2, 3}
    assert volumes.facts["sources_sha256"] == loaded.facts["sources_sha256"]
    assert volumes.facts["parameters"]["size"] == SIZE
    assert sorted(path.name for path in whole.iterdir()) == [
        "images.npy",
        "labels.npy",
        "manifest.json",
        "poses.npz",
        "splits.json",
    ]
    assert str(tree) not in (whole / "manifest.json").read_text()


def test_folds_and_poses_are_those_of_the_protocol(whole: Path) -> None:
    volumes = open_set(whole)
    folds = json.loads((whole / "splits.json").read_text())["folds"]
    assert len(folds) == 5
    for number, fold in enumerate(folds):
        split = split_set(volumes, number, seed=number)  # stored folds are those of any seed
        assert split == split_patients(volumes.patients, fold=number)
        assert (fold["sha256"], fold["rule"]) == (split.sha256(volumes.patients), split.rule)
        assert sorted(fold["train"] + fold["validation"] + fold["test"]) == sorted(volumes.patients)
    facts = volumes.facts["evaluation_poses"]
    for magnitude in MAGNITUDES[:1]:
        expected = evaluation_poses(volumes.cases, volumes.shape, magnitude)
        stored = read_poses(whole / facts["file"], facts, magnitude)
        assert torch.equal(stored.rotation, expected.rotation)
        assert torch.equal(stored.translation, expected.translation)


def test_a_set_goes_by_the_name_it_is_given_and_opens_as_what_it_is(tree: Path, tmp_path: Path) -> None:
    words = ["data", "prepare", "camus", str(tree), "-o", str(tmp_path / "set"), "--size", str(SIZE)]
    assert main([*words, "--frames", str(FRAMES), "--name", "CAMUS-M", "--workers", "1"]) == 0
    assert open_set(tmp_path / "set").name == "CAMUS-M"
    assert load_dataset("camus", tmp_path / "set").name == "CAMUS-M"
    with pytest.raises(ScopeRegError, match="name the dataset camus"):
        load_dataset("muregpro", tmp_path / "set")


def test_several_processes_make_the_same_bytes(tree: Path, whole: Path, tmp_path: Path) -> None:
    steps: list[tuple[int, int]] = []
    prepare_set(plan(tree), tmp_path, workers=2, progress=lambda *at: steps.append(at))
    assert content(tmp_path) == content(whole)
    assert steps == [(k, 6) for k in range(1, 7)]


def children_of(pid: int) -> list[int]:
    listed = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(word) for word in listed.read_text().split()] if listed.exists() else []


def is_alive(pid: int) -> bool:
    status = Path(f"/proc/{pid}/stat")
    return status.exists() and status.read_text().rpartition(")")[2].split()[0] != "Z"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_what_was_done_before_a_kill_is_kept(tree: Path, whole: Path, tmp_path: Path) -> None:
    """The Info file of one case is a pipe that nobody writes to: its worker waits, and everything is killed there."""
    info = tree / "patient0003" / "Info_4CH.cfg"
    text = info.read_text()
    info.unlink()
    os.mkfifo(info)
    words = ["data", "prepare", "camus", str(tree), "-o", str(tmp_path / "set"), "--workers", "2"]
    words += ["--size", str(SIZE), "--frames", str(FRAMES)]
    try:
        process = subprocess.Popen([sys.executable, "-m", "scopereg", *words], stderr=subprocess.DEVNULL)
        until = time.monotonic() + 60
        while not (tmp_path / "set/journal.part").exists() or finished_cases(tmp_path / "set") != (5, 6):
            assert process.poll() is None
            assert time.monotonic() < until
            time.sleep(0.02)
        workers = children_of(process.pid)
        process.send_signal(signal.SIGKILL)
        process.wait()
    finally:
        info.unlink()
        info.write_text(text)
    with pytest.raises(ScopeRegError, match="no set here"):
        open_set(tmp_path / "set")
    until = time.monotonic() + 20
    while any(map(is_alive, workers)):
        assert time.monotonic() < until, "workers outlive the process that started them"
        time.sleep(0.02)
    steps: list[tuple[int, int]] = []
    prepare_set(plan(tree), tmp_path / "set", progress=lambda *at: steps.append(at))
    assert steps == [(6, 6)]
    assert content(tmp_path / "set") == content(whole)


def test_an_interruption_at_the_very_end_is_mended(
    tree: Path, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed when the arrays had their final names, and killed when only the journal was left."""

    def killed(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    for owner, name in ((preparation, "write_manifest"), (Journal, "remove")):
        folder = tmp_path / name
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, killed)
            with pytest.raises(KeyboardInterrupt):
                prepare_set(plan(tree), folder)
        assert (folder / "images.npy").exists()
        prepare_set(plan(tree), folder)
        assert content(folder) == content(whole)


def test_several_processes_stop_together(tree: Path, whole: Path, tmp_path: Path) -> None:
    folder = interrupt(tree, tmp_path, 2, workers=2)
    assert finished_cases(folder) == (2, 6)
    prepare_set(plan(tree), folder)
    assert content(folder) == content(whole)


def test_damaged_rows_and_lines_are_made_again(tree: Path, whole: Path, tmp_path: Path) -> None:
    folder = interrupt(tree, tmp_path, 4)
    part = folder / "images.npy.part"
    damaged = bytearray(part.read_bytes())
    damaged[200] ^= 1  # in the first row
    part.write_bytes(bytes(damaged))
    journal = folder / "journal.part"
    journal.write_text(journal.read_text()[:-30])  # the fourth case was cut short
    steps: list[int] = []
    prepare_set(plan(tree), folder, progress=lambda done, _: steps.append(done))
    assert steps == [3, 4, 5, 6]
    assert content(folder) == content(whole)


@pytest.mark.parametrize("finished", [False, True])
def test_other_parameters_are_refused_and_told(tree: Path, whole: Path, tmp_path: Path, finished: bool) -> None:
    folder = whole if finished else interrupt(tree, tmp_path / "part")
    with pytest.raises(ScopeRegError, match=r"size \(16 there, 24 now\)") as caught:
        prepare_set(plan(tree, size=24), folder)
    assert "--fresh" in caught.value.fix
    assert "-o" in caught.value.fix
    with pytest.raises(ScopeRegError, match=r"labels \(True there, False now\)"):
        prepare_set(plan(tree, labels=False), folder)
    if not finished:
        volumes = prepare_set(plan(tree, size=24, labels=False), folder, fresh=True)
        assert (volumes.shape, volumes.labels) == ((FRAMES, 24, 24), None)
        assert not list(folder.glob("*.part"))
        assert not (folder / "labels.npy").exists()


@pytest.mark.parametrize("finished", [False, True])
def test_other_files_are_refused_and_told(tmp_path: Path, finished: bool) -> None:
    root = write_tree(tmp_path / "tree", 4)
    folder = tmp_path / "set"
    if finished:
        prepare_set(plan(root), folder)
    else:
        interrupt(root, folder)
    write_case(root, 2)  # other noise
    with pytest.raises(ScopeRegError, match=r"changed since.*patient0002"):
        prepare_set(plan(root), folder)
    write_case(root, 9)
    with pytest.raises(ScopeRegError, match="patient0009_4CH"):
        prepare_set(plan(root), folder)
    assert len(prepare_set(plan(root), folder, fresh=True)) == 5


def test_a_finished_set_is_left_alone(tree: Path, whole: Path, capsys: pytest.CaptureFixture[str]) -> None:
    times = {path.name: path.stat().st_mtime_ns for path in whole.iterdir()}
    words = ["data", "prepare", "camus", str(tree), "-o", str(whole), "--size", str(SIZE), "--frames", str(FRAMES)]
    assert main([*words, "--workers", "1"]) == 0
    assert "was prepared before" in capsys.readouterr().out
    assert {path.name: path.stat().st_mtime_ns for path in whole.iterdir()} == times


def test_bad_cases_are_counted_named_and_left_out(tmp_path: Path) -> None:
    root = write_tree(tmp_path / "tree", 7)
    cut = root / "patient0002/patient0002_4CH_half_sequence.nii.gz"
    cut.write_bytes(cut.read_bytes()[:-500])
    write_image(
        root / "patient0004/patient0004_4CH_half_sequence_gt.nii.gz", np.zeros((5, 60, 60), np.uint8), (1, 1, 1)
    )
    (root / "patient0006/Info_4CH.cfg").unlink()
    with pytest.raises(ScopeRegError, match="3 of 7 cases cannot be used") as caught:
        prepare_set(plan(root), tmp_path / "set")
    for number in (2, 4, 6):
        assert f"patient000{number}_4CH (" in caught.value.what
    assert "--skip-bad" in caught.value.fix
    with pytest.raises(ScopeRegError, match="no set here"):
        open_set(tmp_path / "set")
    steps: list[int] = []
    volumes = prepare_set(
        plan(root), tmp_path / "set", workers=2, skip_bad=True, progress=lambda done, _: steps.append(done)
    )
    assert steps == [5, 6, 7]  # the good ones were kept
    assert [name[:11] for name in volumes.cases] == ["patient0001", "patient0003", "patient0005", "patient0007"]
    assert list(volumes.facts["skipped"]) == [f"patient000{number}_4CH" for number in (2, 4, 6)]
    assert open_set(tmp_path / "set").sha256() == load_camus(root, size=SIZE, frames=FRAMES, skip_bad=True).sha256()
    assert not list((tmp_path / "set").glob("*.part"))


def test_missing_masks_are_counted_and_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = write_tree(tmp_path / "tree", 4)
    (root / "patient0003/patient0003_4CH_half_sequence_gt.nii.gz").unlink()
    words = ["data", "prepare", "camus", str(root), "-o", str(tmp_path / "set"), "--workers", "1"]
    words += ["--size", str(SIZE), "--frames", str(FRAMES)]
    assert main(words) == 2
    assert "1 of 4 cases have no labels: patient0003_4CH" in capsys.readouterr().err
    assert main([*words, "--skip-bad"]) == 0
    assert "left out 1: patient0003_4CH (no labels)" in capsys.readouterr().out


PERMUTED = [[0, 1, 0], [1, 0, 0], [0, 0, 1]]
FLIPPED = np.diag([1, -1, 1])


def test_turned_files_are_named(tmp_path: Path) -> None:
    assert [orientation_code(matrix) for matrix in (np.eye(3), PERMUTED, FLIPPED)] == ["LPS", "PLS", "LAS"]
    root = write_tree(tmp_path / "tree", 5)
    write_case(root, 2, direction=PERMUTED)
    write_case(root, 4, direction=FLIPPED)
    for make in (lambda **o: prepare_set(plan(root), tmp_path / "set", **o), lambda **o: load_camus(root, **o)):
        with pytest.raises(ScopeRegError, match="2 of 5 cases") as caught:
            make()
        assert "image is PLS where the others are LPS: axes are permuted" in caught.value.what
        assert "image is LAS where the others are LPS: y is flipped" in caught.value.what
        volumes = make(skip_bad=True)
        assert (len(volumes), sorted(volumes.facts["skipped"])) == (3, ["patient0002_4CH", "patient0004_4CH"])
    everything = prepare_set(plan(root, any_orientation=True), tmp_path / "all")
    assert (len(everything), "orientation" in everything.facts) == (5, False)


def test_a_tree_that_is_turned_as_a_whole_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number in (1, 2, 3):
        write_case(tmp_path / "tree", number, direction=PERMUTED)
    words = ["data", "prepare", "camus", str(tmp_path / "tree"), "-o", str(tmp_path / "set"), "--workers", "1"]
    assert main([*words, "--size", "16", "--frames", "4"]) == 0
    assert "images are PLS and labels are PLS, LPS was expected" in capsys.readouterr().out


def folds_file(path: Path, *folds: tuple[str, str, str]) -> Path:
    """Folds by patient numbers, such as ("123", "4", "56")."""
    names = [[[f"patient000{n}" for n in part] for part in fold] for fold in folds]
    content = [dict(zip(("train", "val", "test"), parts, strict=True)) for parts in names]
    path.write_text(json.dumps({"folds": content}))
    return path


def test_folds_of_ones_own(tree: Path, tmp_path: Path) -> None:
    path = folds_file(tmp_path / "mine.json", ("123", "4", "56"), ("456", "1", "23"))
    volumes = prepare_set(plan(tree), tmp_path / "set", splits=path)
    split = split_set(open_set(tmp_path / "set"), 1)
    assert (split.train, split.validation, split.test, split.rule) == ((3, 4, 5), (0,), (1, 2), "given, fold 1")
    stored = json.loads((tmp_path / "set/splits.json").read_text())["folds"]
    assert [fold["sha256"] for fold in stored] == [split_set(volumes, k).sha256(volumes.patients) for k in (0, 1)]
    with pytest.raises(ScopeRegError, match="folds"):
        prepare_set(plan(tree), tmp_path / "set")


@pytest.mark.parametrize(
    ("folds", "words"),
    [
        (
            [("123", "4", "56"), ("1234", "4", "56")],
            r"1 patients .* more than once: patient0004 \(train and validation\)",
        ),
        ([("1123", "4", "56")], "more than once: patient0001"),
        ([("123", "4", "5")], "1 patients of the set are in no part: patient0006"),
        ([("123", "4", "567")], "not in the set: patient0007"),
        ([("123", "", "456")], "no patients for validation"),
        ([], "no list of folds"),
    ],
)
def test_folds_that_mix_patients_are_refused_before_any_work(
    tree: Path, tmp_path: Path, folds: list[tuple[str, str, str]], words: str
) -> None:
    with pytest.raises(ScopeRegError, match=words):
        prepare_set(plan(tree), tmp_path / "set", splits=folds_file(tmp_path / "mine.json", *folds))
    assert not (tmp_path / "set/journal.part").exists()


def test_the_same_image_twice_is_noted(tmp_path: Path) -> None:
    root = write_tree(tmp_path / "tree", 3)
    first, second = (root / f"patient000{n}/patient000{n}_4CH_half_sequence.nii.gz" for n in (1, 3))
    write_case(root, 3).unlink()
    (root / "patient0003/Info_4CH.cfg").write_text((root / "patient0001/Info_4CH.cfg").read_text())
    second.write_bytes(first.read_bytes())
    masks = (path.with_name(path.name.replace(".nii", "_gt.nii")) for path in (first, second))
    source, target = masks
    target.write_bytes(source.read_bytes())
    noted = prepare_set(plan(root), tmp_path / "set").facts["notes"]
    assert noted == {"same image as another case": ["patient0001_4CH", "patient0003_4CH"]}


def test_two_at_once_are_kept_apart(tree: Path, tmp_path: Path) -> None:
    pytest.importorskip("fcntl")
    making = {**preparation.parameters(plan(tree)), "cases": [case.name for case in plan(tree).cases]}
    with Journal.open(tmp_path, making), pytest.raises(ScopeRegError, match="another process"):
        prepare_set(plan(tree), tmp_path)
    assert len(prepare_set(plan(tree), tmp_path)) == 6


def test_a_full_disk_is_told_before_any_work(tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scopereg.data.rows.shutil.disk_usage", lambda _: SimpleNamespace(free=1000))
    with pytest.raises(ScopeRegError, match="GiB are free"):
        prepare_set(plan(tree), tmp_path)


def test_a_folder_of_thin_volumes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Poses of 25 voxels leave volumes of 8 planes: such magnitudes are left out and told."""
    for name in "abc":
        pixels = RNG.integers(0, 256, (8, 96, 96)).astype(np.uint8)
        write_image(tmp_path / "own" / f"{name}.nii.gz", pixels, (1.0, 1.0, 1.0))
        write_image(tmp_path / "own" / f"{name}_seg.nii.gz", pixels // 128, (1.0, 1.0, 1.0))
    words = ["data", "prepare", "folder", str(tmp_path / "own"), "-o", str(tmp_path / "set"), "--workers", "1"]
    assert main([*words, "--margin", "0", "8", "8"]) == 0
    assert "5 by" not in capsys.readouterr().out
    volumes = open_set(tmp_path / "set")
    assert (volumes.name, volumes.shape, volumes.margin) == ("folder", (8, 80, 80), (0, 8, 8))
    facts = volumes.facts["evaluation_poses"]
    assert set(facts["sha256"]) | set(facts.get("left_out", {})) == {"pm10", "pm15", "pm20", "pm25"}
    write_image(tmp_path / "own/c_seg.nii.gz", np.zeros((8, 96, 96), np.uint8), (1.0, 1.0, 1.0), FLIPPED)
    with pytest.raises(ScopeRegError, match="labels are LAS, their volume is LPS"):
        prepare_set(plan_folder(tmp_path / "own"), tmp_path / "other")


def test_both_halves_of_muregpro(tmp_path: Path) -> None:
    depth = np.linspace(0, 1, 88)[:, None, None]
    fan = (np.abs(np.linspace(-1, 1, 118))[:, None] < 1 - 0.8 * depth) * RNG.integers(1, 256, (88, 118, 81))
    for number in (1, 2):
        name = f"case00000{number}.nii.gz"
        write_image(tmp_path / "tree/train/us_images" / name, fan.astype(np.uint8), [0.8] * 3)
        write_image(tmp_path / "tree/train/us_labels" / name, np.ones((6, 88, 118, 81), np.uint8), [0.8] * 3 + [1.0])
    volumes = prepare_set(plan_muregpro(tmp_path / "tree"), tmp_path / "set", workers=2)
    assert volumes.cases == ("case000001a", "case000001b", "case000002a", "case000002b")
    assert volumes.patients == ("case000001", "case000001", "case000002", "case000002")
    assert torch.equal(volumes.images[:2], volumes.images[2:])
    assert volumes.facts["notes"] == {"same image as another case": list(volumes.cases)}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["camus"], "https://www.creatis.insa-lyon.fr/Challenge/camus/"),
        (["folder"], "data prepare folder FOLDER"),
        (["camus", "{tree}", "--probe", "low"], "camus has no use for it"),
        (["muregpro", "{tree}", "--size", "64"], "muregpro has no use for it"),
        (["camus", "{tree}", "--workers", "0"], "--workers: 0"),
        (["camus", "{tree}", "--size", "100"], "multiple of 8"),
        (["camus", "{tree}", "--splits", "none.json"], "none.json: it cannot be read"),
        (["muregpro", "{tree}"], "us_images"),
    ],
)
def test_wrong_words_are_explained(
    tree: Path, tmp_path: Path, words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["data", "prepare", *(word.format(tree=tree) for word in words), "-o", str(tmp_path / "set")]) == 2
    assert said in capsys.readouterr().err


def test_options_may_stand_in_a_file_in_any_order(tree: Path, tmp_path: Path) -> None:
    config = tmp_path / "prepare.yaml"
    config.write_text(f"output: {tmp_path / 'set'}\npath: {tree}\nsize: 16\nframes: 4\nworkers: 1\nlabels: false\n")
    assert main(["data", "prepare", "--config", str(config)]) == 0
    assert open_set(tmp_path / "set").labels is None


def script_of(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A script beside the repository, with SimpleITK in the place of nibabel."""
    if not (SHARED / name).is_file():
        pytest.skip("the shared data are not beside the repository")

    def save(image: SimpleNamespace, path: Path) -> None:
        direction = np.eye(image.array.ndim)
        direction[:3, :3] = np.diag(np.sign(np.diag(image.affine)[:3])) * [-1, -1, 1]  # RAS to LPS
        spacing = [*np.abs(np.diag(image.affine)[:3]).tolist(), *[1.0] * (image.array.ndim - 3)]
        write_image(path, image.array.T, spacing, direction)

    nibabel = SimpleNamespace(Nifti1Image=lambda array, affine: SimpleNamespace(array=array, affine=affine), save=save)
    monkeypatch.setitem(sys.modules, "nibabel", nibabel)  # type: ignore[arg-type]
    spec = importlib.util.spec_from_file_location(Path(name).stem, SHARED / name)
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    return script


def test_real_camus_frames(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = script_of("camus_from_stills.py", monkeypatch)
    with np.load(SHARED / "camus_stills.npz") as file:
        data = {name: file[name][:2] for name in file.files}
    script.write_layout(data, tmp_path / "layout", 2)
    volumes = prepare_set(plan_camus(tmp_path / "layout"), tmp_path / "set", workers=2)
    assert (len(volumes), volumes.shape) == (2, (32, 128, 128))
    assert volumes.sha256() == load_camus(tmp_path / "layout").sha256()
    assert volumes.facts["orientation"] == {"images": "LPS", "labels": "LPS", "expected": "LPS"}


def test_real_prostates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("scipy")
    script = script_of("muregpro_from_trus.py", monkeypatch)
    monkeypatch.setattr(sys, "argv", ["script", str(tmp_path / "layout"), "--cases", "2"])
    script.main()
    volumes = prepare_set(plan_muregpro(tmp_path / "layout"), tmp_path / "set", workers=2)
    assert (len(volumes), volumes.facts["probe_end"]) == (4, "high")
    for path in (tmp_path / "layout").rglob("case000001.nii.gz"):
        path.unlink()
    assert volumes.subset([0, 1]).sha256() == load_muregpro(tmp_path / "layout").sha256()
    assert volumes.facts["orientation"] == {"images": "RAS", "labels": "RAS", "expected": "RAS"}
