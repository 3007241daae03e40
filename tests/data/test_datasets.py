"""A dataset by name, from wherever it is: made, stored, published or a folder of one's own."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import SimpleITK as sitk
import torch

from scopereg.data.datasets import load_dataset
from scopereg.data.splits import split_set
from scopereg.data.store import VolumeSet, open_set, save_set
from scopereg.errors import ScopeRegError

TINY: dict[str, Any] = {"count": 2, "frames": 4, "shape": (8, 16, 16)}


def stored(folder: Path, name: str) -> Path:
    images = torch.arange(3 * 8**3).remainder(251).to(torch.uint8).reshape(3, 8, 8, 8)
    return save_set(VolumeSet(name, images, 1.0, ("a", "b", "c"), ("a", "b", "c"), labels=images // 100), folder)


def write_volumes(folder: Path, count: int = 3) -> Path:
    folder.mkdir()
    rng = np.random.default_rng(0)
    for row in range(count):
        sitk.WriteImage(sitk.GetImageFromArray(rng.integers(0, 255, (8, 16, 16), np.uint8)), folder / f"p{row}.nii.gz")
    return folder


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two phantoms, made and stored."""
    folder, calls = tmp_path_factory.mktemp("set") / "data", []
    load_dataset("echo", **TINY, keep=folder, progress=lambda *at: calls.append(at))
    assert calls == [(1, 2), (2, 2)]
    return folder


def test_phantoms_are_made_once(kept: Path) -> None:
    calls: list[Any] = []
    again = load_dataset("echo", **TINY, keep=kept, progress=lambda *at: calls.append(at))
    assert calls == []
    assert again.frames is not None
    assert (len(again), again.shape, again.frames.images.shape[1]) == (2, (8, 16, 16), 4)


@pytest.mark.parametrize(
    ("name", "changed", "said"),
    [
        ("echo", {"count": 3}, r"count \(2 there\)"),
        ("echo", {"frames": 0}, r"frames \(4 there\)"),
        ("echo", {"magnitude": 5.0}, r"magnitude \(10.0 there\)"),
        ("echo", {"shape": None}, r"shape \(\(8, 16, 16\) there\)"),
        ("prostate", {}, r"anatomy \(echo there\)"),
    ],
)
def test_kept_phantoms_of_another_kind_are_refused(kept: Path, name: str, changed: Any, said: str) -> None:
    with pytest.raises(ScopeRegError, match=said) as caught:
        load_dataset(name, **{**TINY, **changed}, keep=kept)
    assert caught.value.where == str(kept)


def test_phantoms_whose_storing_was_interrupted_are_made_again(kept: Path, tmp_path: Path) -> None:
    shutil.copytree(kept, tmp_path / "half", ignore=shutil.ignore_patterns("manifest.json"))
    again = load_dataset("echo", **TINY, keep=tmp_path / "half")
    assert again.sha256() == open_set(kept).sha256() == open_set(tmp_path / "half").sha256()


@pytest.mark.parametrize("name", ["camus", "folder"])
def test_a_stored_set_is_opened(tmp_path: Path, name: str) -> None:
    volumes = load_dataset(name, stored(tmp_path, "camus-256"))
    assert (volumes.name, len(volumes), volumes.labels is None) == ("camus-256", 3, False)
    assert load_dataset(name, tmp_path, labels=False).labels is None


def test_a_stored_set_of_something_else_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ScopeRegError, match="of muregpro, not of camus") as caught:
        load_dataset("camus", stored(tmp_path, "muregpro"))
    assert "muregpro" in caught.value.fix


def test_a_folder_is_read(tmp_path: Path) -> None:
    volumes = load_dataset("folder", write_volumes(tmp_path / "own"))
    assert (len(volumes), volumes.shape) == (3, (8, 16, 16))
    assert load_dataset("folder", tmp_path / "own", shape=(8, 8, 8)).shape == (8, 8, 8)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("camus", "https://www.creatis.insa-lyon.fr/Challenge/camus/"),
        ("muregpro", "https://muregpro.github.io/"),
        ("folder", "your volumes"),
    ],
)
def test_without_a_folder_it_tells_where_to_get_one_and_how_to_pass_it(name: str, said: str) -> None:
    with pytest.raises(ScopeRegError, match="not given") as caught:
        load_dataset(name)
    assert said in caught.value.fix
    assert "path=FOLDER" in caught.value.fix


@pytest.mark.parametrize("name", ["camus", "muregpro", "folder"])
def test_a_folder_that_is_not_there_or_empty_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ScopeRegError, match="no such folder"):
        load_dataset(name, tmp_path / "none")
    with pytest.raises(ScopeRegError, match=r"^.*no "):
        load_dataset(name, tmp_path)


def test_wrong_names_and_needless_folders_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ScopeRegError, match="did you mean 'camus'"):
        load_dataset("camsu")
    with pytest.raises(ScopeRegError, match="made, not read"):
        load_dataset("echo", tmp_path)


def test_files_are_read_once_and_kept(tmp_path: Path) -> None:
    own, keep = write_volumes(tmp_path / "own"), tmp_path / "kept"
    calls: list[Any] = []
    first = load_dataset("folder", own, keep=keep, progress=lambda *at: calls.append(at))
    assert calls == [(1, 3), (2, 3), (3, 3)]
    again = load_dataset("folder", own, keep=keep, progress=lambda *at: calls.append(at))
    assert len(calls) == 3
    assert first.sha256() == again.sha256() == load_dataset("folder", own).sha256()
    assert sorted(path.name for path in keep.iterdir()) == ["images.npy", "manifest.json"]
    assert split_set(first, 0, seed=0).test != split_set(first, 0, seed=3).test  # folds are left to the run
    with pytest.raises(ScopeRegError, match=r"shape \(\[8, 16, 16\] there, \[8, 8, 8\] now\)"):
        load_dataset("folder", own, shape=(8, 8, 8), keep=keep)
    (own / "p1.nii.gz").write_bytes((own / "p0.nii.gz").read_bytes())
    with pytest.raises(ScopeRegError, match=r"1 files have changed since this set was prepared: p1\.nii\.gz"):
        load_dataset("folder", own, keep=keep)


def test_several_processes_that_want_a_set_get_the_same(tmp_path: Path) -> None:
    """As those of a training on several GPUs do; locks keep threads apart as they keep processes apart."""
    own, keep = write_volumes(tmp_path / "own", 6), tmp_path / "kept"
    calls: list[int] = []
    with ThreadPoolExecutor(3) as pool:
        loads = [
            pool.submit(load_dataset, "folder", own, keep=keep, progress=lambda done, _: calls.append(done))
            for _ in range(3)
        ]
        hashes = {load.result().sha256() for load in loads}
    assert hashes == {load_dataset("folder", own).sha256()}
    assert calls == [1, 2, 3, 4, 5, 6]
