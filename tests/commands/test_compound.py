"""`scopereg compound` from files to files: what is written and told, options, errors, nothing half-written."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.append(str(Path(__file__).parent.parent / "compounding"))
from swept import poses_of, sweep_of, write_npz, write_pictures

from scopereg.cli import main
from scopereg.io.plus_sequence import write_plus_images
from scopereg.io.read_image import read_image
from scopereg.io.volumes import read_volume


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """scan.npz, across.npz from another side, pictures/ with poses.csv."""
    root = tmp_path_factory.mktemp("sweeps")
    write_npz(sweep_of(), root / "scan.npz")
    write_npz(sweep_of(poses_of(turned=True)), root / "across.npz")
    write_pictures(sweep_of(poses_of(12)), root / "pictures")
    return root


def test_a_volume_a_record_and_a_page(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out" / "volume.nii.gz"
    assert main(["compound", str(folder / "scan.npz"), str(folder / "across.npz"), "-o", str(out), "--json"]) == 0
    captured = capsys.readouterr()
    told = json.loads(captured.out)
    assert (told["verb"], told["status"], told["frames"], told["voxel_mm"]) == ("compound", 0, 60, 0.8)
    assert told["voxel_mm_why"] == "as fine as the frames have it"
    assert told["left_out"]["verdict"].endswith("the poses agree with one another")
    assert [each["name"] for each in told["sweeps"]] == ["scan", "across"]
    assert told["files"] == [str(tmp_path / "out" / f"volume.{ending}") for ending in ("nii.gz", "json", "html")]
    record = json.loads((tmp_path / "out" / "volume.json").read_text(encoding="utf-8"))
    assert record["provenance"]["command"]
    assert len(record["provenance"]["data_sha256"]) == 64
    assert record["provenance"]["versions"]["torch"]
    assert {name: told[name] for name in record} == record
    for line in (
        "sweep   scan: 30 frames of 44 x 36 pixels",
        "voxels of 0.8 mm, as fine as",
        "the poses agree with one another",
        "wrote",
    ):
        assert line in captured.err
    page = (tmp_path / "out" / "volume.html").read_text(encoding="utf-8")
    for words in ("Three planes", "Path of the probe", "Frames left out", "fits best beside, mm", "across"):
        assert words in page
    assert "<script" not in page
    assert not [path for path in (tmp_path / "out").iterdir() if path.name.startswith(".")]


def test_options_reach_what_they_are_for(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, mask = tmp_path / "volume.mha", tmp_path / "mask.nii.gz"
    words = [str(folder / "pictures"), "--pixel-mm", "0.8", "--voxel-mm", "1.5", "--bridge-mm", "2", "--mode", "max"]
    more = ["--clip", "0", "0", "30", "20", "--every", "2", "--mask", str(mask), "--no-report", "-o", str(out)]
    assert main(["compound", *words, *more]) == 0
    told = capsys.readouterr().out
    assert "voxels of 1.5 mm, as asked for" in told
    assert "holes up to 2 mm are bridged" in told
    assert "too few frames" in told
    record = json.loads((tmp_path / "volume.json").read_text(encoding="utf-8"))
    assert (record["mode"], record["frames"], record["left_out"]) == ("max", 6, None)
    assert record["sweeps"][0]["seen_share"] == pytest.approx(30 * 20 / (44 * 36), abs=1e-3)
    assert read_volume(out).shape == read_image(mask).array.shape
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mask.nii.gz", "volume.json", "volume.mha"]


@pytest.mark.parametrize(
    ("words", "what"),
    [
        ([], "a sweep is needed"),
        (["scan.npz", "-o", "volume.png"], "unknown ending of 'volume.png'"),
        (["scan.npz", "--mask", "volume.nii.gz"], "two outputs have one name"),
        (["none.npz"], "no such file"),
        (["scan.npz", "--voxel-mm", "0"], "--voxel-mm"),
        (["scan.npz", "--voxel-mm", "0.001"], "choose a larger size"),
        (["pictures"], "--pixel-mm"),
        (["pictures/view1.png", "--pixel-mm", "0.8"], "--poses"),
        (["plus.igs.mha"], "--calibration"),
        (["scan.npz", "--clip", "90", "90", "5", "5"], "--clip"),
    ],
)
def test_bad_input_is_told_and_nothing_is_written(
    folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    what: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    if not (folder / "plus.igs.mha").exists():
        write_plus_images(np.ones((3, 4, 4), np.uint8), [None] * 3, folder / "plus.igs.mha", spacing_mm=(1, 1))
        text = (folder / "plus.igs.mha").read_bytes().replace(b"ImageToVolume", b"ProbeToWorlds")
        (folder / "plus.igs.mha").write_bytes(text)
    placed = [str(folder / word) if (folder / word).exists() else word for word in words]
    output = [] if "-o" in words else ["-o", "volume.nii.gz"]
    assert main(["compound", *placed, *output]) == 2
    assert what in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_an_input_is_not_overwritten(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "volume.json"
    path.write_text("{}")
    words = [str(folder / "scan.npz"), "--poses", str(path), "-o", str(tmp_path / "volume.nii.gz")]
    assert main(["compound", *words]) == 2
    assert "it would overwrite an input" in capsys.readouterr().err
    assert path.read_text() == "{}"


@pytest.mark.slow
def test_an_interrupted_run_leaves_nothing(tmp_path: Path) -> None:
    poses = poses_of(150, step_mm=0.14)
    write_npz(sweep_of(poses), tmp_path / "long.npz")
    out = tmp_path / "out"
    out.mkdir()
    words = ["compound", str(tmp_path / "long.npz"), "-o", str(out / "volume.nii.gz"), "--voxel-mm", "0.2"]
    with subprocess.Popen([sys.executable, "-m", "scopereg", *words], stderr=subprocess.PIPE, text=True) as running:
        assert running.stderr is not None
        while "compounding" not in running.stderr.readline():
            assert running.poll() is None
        running.send_signal(signal.SIGINT)
        assert running.wait(120) == 130
    assert list(out.iterdir()) == []
