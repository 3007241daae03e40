"""Sets of volumes: they know their parts, come back from disk as they were, and refuse what is not whole."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from scopereg.data.store import AcquiredFrames, VolumeSet, open_set, save_set
from scopereg.errors import ScopeRegError


def some_set(count: int = 3, **changes: Any) -> VolumeSet:
    generator = torch.Generator().manual_seed(1)

    def pixels(*shape: int) -> torch.Tensor:
        return torch.randint(0, 256, shape, generator=generator, dtype=torch.uint8)

    frames = AcquiredFrames(
        images=pixels(count, 2, 6, 7),
        rotation=torch.eye(3).expand(count, 2, 3, 3).clone(),
        translation=torch.rand(count, 2, 3, generator=generator),
    )
    content: dict[str, Any] = {
        "name": "test",
        "images": pixels(count, 6, 10, 13),
        "spacing_mm": 0.5,
        "cases": tuple(f"case{k}" for k in range(count)),
        "patients": tuple(f"patient{k // 2}" for k in range(count)),
        "margin": (1, 2, 3),
        "labels": pixels(count, 6, 10, 13) % 4,
        "frames": frames,
        "facts": {"size": 6, "skipped": {}},
    }
    return VolumeSet(**(content | changes))


def test_the_reference_is_the_middle() -> None:
    volumes = some_set()
    assert (len(volumes), volumes.shape) == (3, (4, 6, 7))
    picked = volumes.references(torch.tensor([2, 0]))
    assert picked.dtype == torch.float32
    assert torch.equal((picked * 255).round().byte(), volumes.images[[2, 0], 1:5, 2:8, 3:10])


def test_a_subset_keeps_what_belongs_together() -> None:
    volumes = some_set()
    part = volumes.subset([2, 0])
    assert (part.cases, part.patients) == (("case2", "case0"), ("patient1", "patient0"))
    assert volumes.labels is not None
    assert part.labels is not None
    assert volumes.frames is not None
    assert part.frames is not None
    assert torch.equal(part.labels, volumes.labels[[2, 0]])
    assert torch.equal(part.frames.translation, volumes.frames.translation[[2, 0]])
    for rows in ([], [3], [-1], [0, 0]):
        with pytest.raises(ScopeRegError, match="rows"):
            volumes.subset(rows)


@pytest.mark.parametrize("parts", [{}, {"labels": None}, {"frames": None}, {"labels": None, "frames": None}])
def test_a_set_comes_back_as_it_was(tmp_path: Path, parts: dict[str, None]) -> None:
    volumes = some_set(**parts)
    opened = open_set(save_set(volumes, tmp_path / "set"))
    assert opened.sha256() == volumes.sha256()
    for name in ("name", "spacing_mm", "cases", "patients", "margin", "facts", "shape"):
        assert getattr(opened, name) == getattr(volumes, name)
    assert (opened.labels is None, opened.frames is None) == (volumes.labels is None, volumes.frames is None)


def test_writing_into_an_opened_set_leaves_the_file_alone(tmp_path: Path) -> None:
    volumes = some_set()
    opened = open_set(save_set(volumes, tmp_path))
    opened.images[0] = 0
    assert open_set(tmp_path).sha256() == volumes.sha256()


def test_a_smaller_set_replaces_a_larger_one(tmp_path: Path) -> None:
    save_set(some_set(), tmp_path)
    save_set(some_set(2, labels=None, frames=None), tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["images.npy", "manifest.json"]
    assert len(open_set(tmp_path)) == 2


def test_a_folder_without_its_manifest_is_no_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_set(some_set(), tmp_path)

    def fail(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "save", fail)
    with pytest.raises(ScopeRegError, match="No space"):
        save_set(some_set(2), tmp_path)
    with pytest.raises(ScopeRegError, match="no set here"):
        open_set(tmp_path)


def test_damaged_folders_are_refused(tmp_path: Path) -> None:
    save_set(some_set(), tmp_path)
    images, manifest = tmp_path / "images.npy", tmp_path / "manifest.json"
    whole, text = images.read_bytes(), manifest.read_text()
    for content, words in ((whole[:-5], "damaged"), (b"", "damaged"), (whole[:-1] + b"\x07", "not what was written")):
        images.write_bytes(content)
        with pytest.raises(ScopeRegError, match=words):
            open_set(tmp_path)
    np.save(images, np.zeros((3, 6, 10, 12), np.uint8))
    with pytest.raises(ScopeRegError, match="the manifest says"):
        open_set(tmp_path)
    images.unlink()
    with pytest.raises(ScopeRegError, match="missing"):
        open_set(tmp_path)
    images.write_bytes(whole)
    for broken, words in (("{", "not the JSON"), ("[]", "not a mapping"), ('{"format": "other"}', "other")):
        manifest.write_text(broken)
        with pytest.raises(ScopeRegError, match=words):
            open_set(tmp_path)
    content = json.loads(text)
    del content["cases"]
    manifest.write_text(json.dumps(content))
    with pytest.raises(ScopeRegError, match="cases"):
        open_set(tmp_path)


def test_the_hash_sees_every_part() -> None:
    volumes = some_set()
    changes: list[dict[str, Any]] = [{"margin": (1, 2, 2)}, {"spacing_mm": 0.6}, {"labels": None}, {"frames": None}]
    hashes = {volumes.sha256(), *(replace(volumes, **change).sha256() for change in changes)}
    assert len(hashes) == 5
    assert replace(volumes, facts={}).sha256() == volumes.sha256()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"images": torch.zeros(3, 6, 10, 13)}, "float32"),
        ({"images": torch.zeros(6, 10, 13, dtype=torch.uint8)}, "shape"),
        ({"cases": ("a", "b")}, "2 cases"),
        ({"cases": ("a", "b", "a")}, "two volumes are called 'a'"),
        ({"margin": (3, 2, 3)}, "margin"),
        ({"margin": (-1, 0, 0)}, "margin"),
        ({"spacing_mm": 0.0}, "spacing_mm"),
        ({"labels": torch.zeros(3, 4, 6, 7, dtype=torch.uint8)}, "labels have shape"),
        ({"facts": {"path": Path("x")}}, "JSON"),
        ({"frames": some_set(2).frames}, "frames of 2 volumes"),
    ],
)
def test_what_does_not_fit_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ScopeRegError, match=words):
        some_set(**changes)


def test_frames_need_finite_poses_that_fit() -> None:
    frames = some_set().frames
    assert frames is not None
    with pytest.raises(ScopeRegError, match="do not fit"):
        replace(frames, translation=frames.translation[:, :1])
    with pytest.raises(ScopeRegError, match="not finite"):
        replace(frames, translation=frames.translation * torch.nan)


def test_sets_need_torch_and_numpy_alone() -> None:
    modules = ("store", "splits", "phantom.sets")
    code = f"import sys\nfor name in {modules!r}: __import__('scopereg.data.' + name)\n"
    code += "print(sorted({'SimpleITK', 'pydicom', 'rich', 'yaml', 'scipy', 'matplotlib'} & set(sys.modules)))"
    result = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert result.stdout.strip() == "[]"


def test_the_organ_is_all_classes_but_of_a_heart_without_the_atrium() -> None:
    labels = torch.arange(4, dtype=torch.uint8).expand(2, 2, 2, 4).contiguous()
    names = ("a", "b")
    plain = VolumeSet("mine", labels.clone(), 1.0, names, names, labels=labels)
    heart = replace(plain, facts={"classes": ["background", "left ventricle", "myocardium", "left atrium"]})
    rows = torch.tensor([1])
    assert plain.organ(rows)[0, 0, 0].tolist() == [False, True, True, True]
    assert heart.organ(rows)[0, 0, 0].tolist() == [False, True, True, False]
    with pytest.raises(ScopeRegError, match="no labels"):
        replace(plain, labels=None).organ(rows)
