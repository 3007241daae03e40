"""docs/architecture.md tells of the house as it stands: its names exist, its layers hold, real runs go its way."""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest
import torch

from scopereg import io
from scopereg.cli import main
from scopereg.data import phantom
from scopereg.data.phantom.sets import make_phantoms
from scopereg.data.store import save_set
from scopereg.io.pictures import grey_pixels, png_bytes

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
NAMES = sorted(set(re.findall(r"`((?:[a-z_]\w*\.)+[A-Za-z_]\w*)`", TEXT)) - {"pyproject.toml"})
MOST_HOPS = 12


def hops(heading: str) -> list[str]:
    """The names that the numbered lines below a heading begin with."""
    (section,) = re.findall(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", TEXT, re.DOTALL | re.MULTILINE)
    return re.findall(r"^\d+\. `([\w.]+)`", section, re.MULTILINE)


def found(name: str) -> Any:
    """The object of a dotted name below `scopereg`."""
    parts = name.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            value: Any = importlib.import_module(".".join(["scopereg", *parts[:cut]]))
        except ModuleNotFoundError:
            continue
        for part in parts[cut:]:
            value = getattr(value, part)
        return value
    raise AssertionError(f"there is no module {name}")


@pytest.mark.parametrize("name", NAMES)
def test_every_name_on_the_page_exists(name: str) -> None:
    assert found(name) is not None


@pytest.mark.parametrize(
    "heading", ["A frame, from file to transform", "A training batch", "A live frame", "An evaluation row"]
)
def test_a_way_has_twelve_hops_at_the_most_and_each_is_a_function_or_a_class(heading: str) -> None:
    named = hops(heading)
    assert 8 <= len(named) <= MOST_HOPS
    assert all(callable(found(name)) for name in named)


def test_the_layers_are_those_that_import_linter_holds() -> None:
    contract = (ROOT / "pyproject.toml").read_text(encoding="utf-8").split("[tool.importlinter]")[1]
    (held,) = re.findall(r"^layers = \[\n(.*?)^\]", contract, re.DOTALL | re.MULTILINE)
    wanted = [row.split(" | ") for row in re.findall(r'"([^"]+)"', held)]
    (table,) = re.findall(r"^\| layer \| holds \|\n\|---\|---\|\n(.*?)\n\n", TEXT, re.DOTALL | re.MULTILINE)
    shown = [re.findall(r"`(\w+)`", line.split("|")[1]) for line in table.splitlines()]
    assert shown == wanted


def code_of(name: str) -> CodeType:
    value = found(name)
    value = value.__init__ if inspect.isclass(value) else value
    return inspect.unwrap(value).__code__


def order_of(run: Callable[[], Any], named: list[str]) -> list[str]:
    """The names in the order in which a run calls them first."""
    wanted = {code_of(name): name for name in named}
    called: dict[str, None] = {}

    def look(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code in wanted:
            called.setdefault(wanted[frame.f_code])

    before = sys.getprofile()
    sys.setprofile(look)
    try:
        run()
    finally:
        sys.setprofile(before)
    return list(called)


def test_a_frame_goes_this_way(narrow_file: Path, tmp_path: Path) -> None:
    patient = phantom.create("echo", seed=200_001, shape=(24, 64, 64))
    image = patient.acquire(torch.eye(3)[None], torch.zeros(1, 3), seed=1).images[0]
    (tmp_path / "frame.png").write_bytes(png_bytes(grey_pixels(image)))
    io.write_volume(patient.volume, tmp_path / "volume.nii.gz")
    words = ["--pixel-mm", str(patient.spacing_mm), "--method", str(narrow_file), "--device", "cpu"]
    files = [str(tmp_path / name) for name in ("frame.png", "volume.nii.gz")]
    named = hops("A frame, from file to transform")
    run = ["register", *files, *words, "-o", str(tmp_path / "pose.tfm")]
    assert order_of(lambda: main(run), named) == named
    assert (tmp_path / "pose.tfm").is_file()


def test_an_evaluation_row_goes_this_way(tmp_path: Path) -> None:
    volumes = make_phantoms("echo", 5, seed=200_001, frames=1, magnitude=3.0, shape=(16, 32, 32), device="cpu")
    save_set(volumes, tmp_path / "set")
    named = hops("An evaluation row")
    words = ["--data", str(tmp_path / "set"), "--methods", "identity", "--magnitudes", "3", "--protocols", "paper"]
    run = ["evaluate", "folder", *words, "--cases", "1", "-o", str(tmp_path / "out")]
    assert order_of(lambda: main(run), named) == named
