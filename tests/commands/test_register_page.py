"""Every command and every piece of Python in docs/register.md, and the three lines of the README, run on files."""

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
from scopereg.geometry import Pose

ROOT = Path(__file__).parents[2]
BLOCKS = re.findall(r"```(py)?\n(.*?)```", (ROOT / "docs" / "register.md").read_text(), re.DOTALL)
LINES = re.findall(r"```py\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
LOSES_A_FRAME = "scan.igs.mha"  # the page says that the tracker lost one, and that the status is 1


@pytest.fixture(scope="module")
def folder(case: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    work = tmp_path_factory.mktemp("page") / "work"
    shutil.copytree(case.folder, work)
    return work


@pytest.mark.slow
def test_the_page_runs(case: Any, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    commands = 0
    for language, block in BLOCKS:
        if language:
            exec(compile(block, "docs/register.md", "exec"), {})
            continue
        for line in block.strip().splitlines():
            program, *words = shlex.split(line)
            assert program == "scopereg"
            assert main(words) == (1 if LOSES_A_FRAME in words else 0), line
            commands += 1
    assert commands >= 12
    assert sorted(path.name for path in (folder / "out" / "scan").iterdir()) == [
        "inputs.json",
        "poses.csv",
        "report.html",
        "scan.igs.mha",
        "scan_000.tfm",
        "scan_001.tfm",
        "scan_002.tfm",
    ]
    fixed, moving = (sitk.ReadImage(str(folder / name)) for name in ("frame.nii.gz", "volume.nii.gz"))
    cut = sitk.Resample(moving, fixed, sitk.ReadTransform(str(folder / "resample.tfm")))
    seen, there = (sitk.GetArrayFromImage(image).ravel() for image in (fixed, cut))
    assert np.corrcoef(seen, there)[0, 1] > 0.95
    assert case.error_mm(0, Pose.load(folder / "resample.tfm")) < 0.5


def test_three_lines_of_the_readme_run(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (block,) = LINES
    assert len(block.strip().splitlines()) == 3
    for name in ("frame.dcm", "volume.nii.gz"):
        shutil.copy(folder / name, tmp_path)
    monkeypatch.chdir(tmp_path)
    exec(compile(block, "README.md", "exec"), {})
    assert Pose.load("pose.tfm").name == "ImageToVolume"
