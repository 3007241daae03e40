"""`scopereg calibrate-probe` from files to files: a configuration that is kept but for one transform, or none."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from scopereg.cli import main
from scopereg.geometry import Pose
from scopereg.io import write_pose, write_volume
from scopereg.io.metaimage import MetaSequence, write_metaimage
from scopereg.io.plus import read_calibration
from scopereg.io.plus_configuration import write_calibration

sys.path.append(str(Path(__file__).parents[1] / "registration" / "probe"))
from patient_sweep import Scanned, scanned

LINK = ("Image", "Probe")
WORDS = ("--world", "world.txt", "--most", "8", "--device", "cpu")


class Files(NamedTuple):
    """A sequence of PLUS, a calibration from before, a volume, and what is true."""

    folder: Path
    true: Scanned


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    """Pixels 3 % too large, a calibration some mm and degrees off; one frame is not tracked."""
    folder, true = tmp_path_factory.mktemp("probe"), scanned(count=9)
    fields = []
    for row, matrix in enumerate(true.sweep.probe_to_world):
        words = " ".join(repr(float(number)) for number in matrix.ravel())
        state = "INVALID" if row == 3 else "OK"
        fields.append({"ProbeToTrackerTransform": words, "ProbeToTrackerTransformStatus": state, "Timestamp": str(row)})
    header = {"UltrasoundImageOrientation": "MF"}
    write_metaimage(MetaSequence(header, fields, true.sweep.images.numpy()), folder / "sweep.igs.mha")
    write_volume(true.volume, folder / "volume.nii.gz")
    write_pose(true.world_to_volume, folder / "world.txt")
    off = Pose.from_euler_deg((2, -2, 2), (1.5, -2, 1.5)).matrix
    size = 1.03 * true.spacing_mm[0]
    before = true.image_to_probe.matrix @ off @ np.diag([size, size, size, 1])
    write_calibration(folder / "before.xml", ("Phantom", "Reference"), np.eye(4))
    write_calibration(folder / "before.xml", LINK, before, configuration=folder / "before.xml")
    return Files(folder, true)


def run(files: Files, narrow_file: Path, *words: str) -> int:
    named = [str(files.folder / word) if "." in word and not word[0].isdigit() else word for word in words]
    return main(["calibrate-probe", *named, "--method", str(narrow_file)])


@pytest.mark.slow
def test_a_calibration_from_before_is_corrected(
    files: Files, narrow_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["sweep.igs.mha", "volume.nii.gz", "--calibration", "before.xml", "-o", "plus.xml", *WORDS, "--json"]
    assert run(files, narrow_file, *words) == 0
    told, folder = json.loads(capsys.readouterr().out), files.folder
    read = read_calibration(folder / "plus.xml")
    assert np.array_equal(read.transforms[LINK], told["image_to_probe"])
    assert np.array_equal(read.transforms["Phantom", "Reference"], np.eye(4))
    rigid = Pose.from_matrix(told["image_to_probe_rigid"], *LINK)
    true = files.true.image_to_probe
    assert np.linalg.norm(rigid.translation_mm - true.translation_mm) < 1.5
    assert rigid.angle_to_deg(true) < 1
    assert told["pixel_mm"] == pytest.approx(files.true.spacing_mm, rel=0.015)
    assert told["counts"]["kept_aside"] == 2
    assert told["counts"]["used"] >= 5
    assert told["moved"]["pixels_percent"] == pytest.approx(3, abs=1.5)
    assert told["world_known"] is True
    assert "1 frame is left out" in " ".join(told["notes"])
    beside = json.loads((folder / "plus.json").read_text(encoding="utf-8"))
    assert beside["provenance"]["data_sha256"]
    assert beside["image_to_probe"] == told["image_to_probe"]
    page = (folder / "plus.html").read_text(encoding="utf-8")
    assert "<script" not in page
    assert "Residuals" in page
    assert page.count("<img") >= 6
    assert "Not to be relied on" not in page


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "write scopereg calibrate-probe SWEEP VOLUME"),
        (["none.igs.mha", "volume.nii.gz"], "there is no such file"),
        (["sweep.igs.mha", "volume.nii.gz", "-o", "plus.txt"], "it must end in .xml"),
        (["sweep.igs.mha", "volume.nii.gz"], "give it in mm, to some percent: --pixel-mm"),
        (["sweep.igs.mha", "volume.nii.gz", "--probe", "Stylus"], "another name there, give it: --probe"),
        (["sweep.igs.mha", "volume.nii.gz", "--pixel-mm", "0.3", "--most", "2"], "--most"),
        (["sweep.igs.mha", "volume.nii.gz", "--world", "before.xml"], "before.xml"),
    ],
)
def test_what_cannot_be_calibrated_is_told_and_nothing_is_written(
    words: list[str], said: str, files: Files, narrow_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(files.folder.iterdir())
    assert run(files, narrow_file, *words) == 2
    assert said in capsys.readouterr().err
    assert sorted(files.folder.iterdir()) == before
