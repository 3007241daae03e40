"""The notebooks run from the first cell to the last, and are kept without outputs."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parent.parent
NOTEBOOKS = sorted(ROOT.glob("notebooks/*.ipynb"))
NAMES = [path.stem for path in NOTEBOOKS]


@pytest.fixture(scope="module")
def pages() -> ModuleType:
    """What makes pages of them."""
    spec = importlib.util.spec_from_file_location("notebook_pages", ROOT / "docs" / "notebook_pages.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_there_are_three() -> None:
    assert NAMES == ["first_pose", "own_sweep", "train_calibrate_compare"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=NAMES)
def test_it_is_kept_without_outputs(path: Path) -> None:
    for cell in json.loads(path.read_text())["cells"]:
        if cell["cell_type"] == "code":
            assert cell["outputs"] == []
            assert cell["execution_count"] is None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "less", "told"),
    [
        ("first_pose", {}, ["ImageToVolume", "belongs: False", "pose.tfm", "![what the cell draws](first_pose_0.png)"]),
        ("own_sweep", {}, ["track.csv", "carried", "mean distance of the centres"]),
        (
            "train_calibrate_compare",
            {"--epochs 24": "--epochs 4"},
            ["model.calibration.json", "identity", "comparison.md"],
        ),
    ],
)
def test_it_runs_and_becomes_a_page(
    name: str, less: dict[str, str], told: list[str], pages: ModuleType, tmp_path: Path
) -> None:
    """As it is, but for a long training, which is shorter in the copy."""
    notebook = (ROOT / "notebooks" / f"{name}.ipynb").read_text(encoding="utf-8")
    for words, shorter in less.items():
        assert notebook.count(words) == 1
        notebook = notebook.replace(words, shorter)
    (tmp_path / f"{name}.ipynb").write_text(notebook, encoding="utf-8")
    text, pictures = pages.page_of(tmp_path / f"{name}.ipynb", run=True)
    assert [words for words in told if words not in text] == []
    assert "Traceback" not in text
    assert "\x1b" not in text
    assert all(content.startswith(b"\x89PNG") for content in pictures.values())
