"""`scopereg register` of a whole volume of ultrasound in MR: from files to its pose and the volume in place."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from scopereg.cli import main
from scopereg.images import Volume
from scopereg.io.transforms import read_pose
from scopereg.io.volumes import read_volume, write_volume
from scopereg.registration.grey import blur


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Ultrasound that shows the MR upside down, 0.6 mm from where its file puts it."""
    folder = tmp_path_factory.mktemp("pair")
    values = blur(torch.rand(1, 30, 40, 44, generator=torch.Generator().manual_seed(0)), 2.0)[0]
    values = (values - values.min()) / (values.max() - values.min())
    other = Volume(0.1 + 0.9 * values, 0.5, np.zeros(3))
    own = Volume(1 - 0.9 * values[5:-5, 6:-6, 6:-6], 0.5, np.array([3.6, 3.0, 2.5]))
    return write_volume(own, folder / "us.nii.gz"), write_volume(other, folder / "mr.nii.gz")


def test_it_is_found_and_put_in_place(
    pair: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = [str(path) for path in pair]
    wanted = ["-o", str(tmp_path / "pose.tfm"), "--placed", str(tmp_path / "placed.nii.gz")]
    assert main(["register", *names, "--modality", "mr", "--reach-mm", "0", *wanted]) == 0
    told = capsys.readouterr().out
    assert "MR, as given" in told
    assert "not judged" in told
    pose = read_pose(tmp_path / "pose.tfm")
    np.testing.assert_allclose(pose.translation_mm, [-0.6, 0, 0], atol=0.15)
    placed = read_volume(tmp_path / "placed.nii.gz")
    np.testing.assert_allclose(placed.origin_mm, [3.0, 3.0, 2.5], atol=0.1)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--modality", "us"], "--modality mr"),
        (["--modality", "mr", "--wide"], "whole volume"),
        (["--modality", "mr", "--reach-mm", "-3"], "--reach-mm"),
    ],
)
def test_what_does_not_belong_together_is_refused(
    pair: tuple[Path, Path], arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["register", *(str(path) for path in pair), *arguments]) == 2
    assert words in "".join(capsys.readouterr())
