"""docs/first-pose.md as a user follows it: two commands from a DICOM frame and a NIfTI volume to 3D Slicer."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import SimpleITK as sitk

from scopereg.cli import main

PAGE = Path(__file__).parents[2] / "docs" / "first-pose.md"
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
COMMANDS = [shlex.split(line)[1:] for language, block in BLOCKS if not language for line in block.splitlines()]


@pytest.fixture(scope="module")
def folder(case: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The two files, and what the first two commands make of them."""
    folder = tmp_path_factory.mktemp("first")
    for name in ("frame.dcm", "volume.nii.gz"):
        shutil.copy(case.folder / name, folder)
    return folder


def test_two_commands_put_the_frame_in_place(
    case: Any, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    assert [words[0] for words in COMMANDS[:2]] == ["register", "convert"]
    assert [main(words) for words in COMMANDS[:2]] == [0, 0]
    assert re.search(r"\b(not )?ok\b|not judged", capsys.readouterr().out)
    # What 3D Slicer does: the frame by its header, then the inverse of what the file holds, in LPS as ITK has it.
    frame = sitk.ReadImage("frame.nrrd")
    into_place = sitk.ReadTransform("pose.tfm").GetInverse()
    width, height = (n - 1 for n in frame.GetSize()[:2])
    pixels = [(x, y, 0) for x in (0, width) for y in (0, height)]
    placed = [into_place.TransformPoint(frame.TransformIndexToPhysicalPoint(pixel)) for pixel in pixels]
    true = case.truth[0].apply([(*(n * case.frames[0].spacing_mm[0] for n in pixel[:2]), 0.0) for pixel in pixels])
    assert frame.GetSize()[:2] == case.frames[0].size
    assert np.linalg.norm(np.array(placed) - true, axis=1).mean() < 3


@pytest.mark.slow
def test_the_rest_of_the_page_runs(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    for words in COMMANDS[2:]:
        assert main(words) == 0, words
    assert "<svg" in Path("look.html").read_text() or "canvas" in Path("look.html").read_text()
    (block,) = [block for language, block in BLOCKS if language == "py"]
    exec(compile(block, "docs/first-pose.md", "exec"), {})
