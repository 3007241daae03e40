"""`scopereg register` from files to files: single frames, cines, folders, what is bad, and what is interrupted."""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import SimpleITK as sitk
import torch
from PIL import Image

from scopereg import io
from scopereg.cli import main
from scopereg.geometry import Pose
from scopereg.images import Volume
from scopereg.io import stored
from scopereg.io.cine import Cine
from scopereg.io.pictures import png_bytes, read_picture
from scopereg.io.read_image import read_image
from scopereg.io.volumes import write_labels
from scopereg.provenance import tensors_sha256
from scopereg.registration import batch, reading
from scopereg.registration.batch import COLUMNS, read_table
from scopereg.registration.inputs import read_inputs
from scopereg.registration.result import Result
from scopereg.registration.settings import DEFAULT
from scopereg.report.batch_page import SHOWN, chosen
from scopereg.viewer.finished import read_results

Case = Any  # of conftest.py
STEP = "0.8213333"


def register(*words: object) -> int:
    return main(["register", *map(str, words), "--device", "cpu"])


def rows(folder: Path) -> list[dict[str, str]]:
    with (folder / "poses.csv").open() as file:
        return list(csv.DictReader(file))


def near(case: Case, row: int, folder: Path) -> Path:
    """A file with a pose a millimetre beside the truth."""
    beside = Pose(case.truth[row].rotation, case.truth[row].translation_mm + 0.6)
    return beside.save(folder / "start.tfm")


def hidden(folder: Path) -> list[str]:
    return [path.name for path in folder.rglob(".*")]


def test_the_transform_puts_the_frame_in_place(case: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """SimpleITK, which knows nothing of us, cuts the volume at the pose, and what comes out is the frame."""
    words = ["--pixel-mm", STEP, "--method", "start", "--start", near(case, 0, tmp_path), "--refine"]
    frame, volume = case.folder / "frame.png", case.folder / "volume.nii.gz"
    extra = ["--placed", tmp_path / "placed.nrrd", "--resliced", tmp_path / "cut.nii.gz"]
    assert register(frame, volume, "-o", tmp_path / "slicer.tfm", *words, *extra) == 0
    said = capsys.readouterr().out
    assert "ImageToVolume (LPS): translation" in said
    assert "similarity 0." in said
    assert "96 x 96 pixels of 0.8213 x 0.8213 mm (given)" in said
    assert "slicer.tfm  (VolumeToImage: 3D Slicer puts the frame in place with it)" in said
    assert register(frame, volume, "-o", tmp_path / "itk.tfm", *words, "--convention", "itk-resample") == 0
    assert case.error_mm(0, Pose.load(tmp_path / "slicer.tfm")) < 0.2
    io.write_frame(io.read_frame(frame, spacing_mm=float(STEP)), tmp_path / "frame.nii.gz")
    fixed, moving = (sitk.ReadImage(str(path)) for path in (tmp_path / "frame.nii.gz", volume))
    seen = sitk.GetArrayFromImage(fixed)
    inverse = sitk.ReadTransform(str(tmp_path / "slicer.tfm")).GetInverse()
    for transform in (sitk.ReadTransform(str(tmp_path / "itk.tfm")), inverse):
        cut = sitk.GetArrayFromImage(sitk.Resample(moving, fixed, transform))
        assert np.corrcoef(cut.ravel(), seen.ravel())[0, 1] > 0.98
    placed = sitk.ReadImage(str(tmp_path / "placed.nrrd"))
    there = sitk.GetArrayFromImage(sitk.Resample(moving, placed))
    assert np.corrcoef(there.ravel(), sitk.GetArrayFromImage(placed).ravel())[0, 1] > 0.98
    assert np.allclose(there, sitk.GetArrayFromImage(sitk.ReadImage(str(tmp_path / "cut.nii.gz"))), atol=1e-3)


@pytest.mark.parametrize("ending", ["h5", "txt", "json", "dcm"])
def test_the_ending_chooses_the_format(case: Case, tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"pose.{ending}"
    words = [case.folder / "frame.dcm", case.folder / "volume.nii.gz", "-o", path, "--method", "start"]
    assert register(*words) == 0
    assert Pose.load(path).name == "ImageToVolume"
    if ending == "json":
        record = json.loads(path.read_text())
        assert record["result"]["method"] == "identity"
        assert record["frame"]["spacing_from"] == "ultrasound region 0"
        assert record["volume"]["file"] == "volume.nii.gz"
        assert "Secret" not in path.read_text()


def test_a_network_locates_a_frame_of_a_cine(case: Case, narrow_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert register(case.folder / "cine.dcm", case.folder / "volume.nii.gz", "--index", 2) == 0
    said = capsys.readouterr().out
    assert "cine.dcm frame 2" in said
    assert f"{DEFAULT} network" in said
    words = [case.folder / "cine.dcm", case.folder / "volume.nii.gz", "--index", 2, "--method", narrow_file]
    assert register(*words) == 0
    assert "note    the volume's voxels" in capsys.readouterr().out


def test_a_tracked_sequence_is_refined_and_written_again(
    case: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Three frames are found from the tracker's poses; the fourth was lost by it, which is said everywhere."""
    scan, out = case.folder / "scan.igs.mha", tmp_path / "out"
    words = ["--calibration", case.folder / "scan.xml", "--start", "tracker", "--method", "start", "--refine"]
    assert register(scan, case.folder / "volume.nii.gz", "-o", out, *words) == 1
    said = capsys.readouterr().out
    assert "0 of 4 may be relied on, 3 not judged, 1 failed" in said
    assert "note    the tracker's world is taken for the volume's" in said
    assert "failed  scan.igs.mha frame 3: no start" in said
    table = rows(out)
    assert list(table[0]) == list(COLUMNS)
    assert [row["output"] for row in table] == ["scan_000.tfm", "scan_001.tfm", "scan_002.tfm", ""]
    assert "ProbeToReferenceTransform INVALID" in table[3]["error"]
    found = [pose for _, _, pose in read_table(out / "poses.csv")]
    again = io.read_cine(out / "scan.igs.mha", calibration=case.folder / "scan.xml")
    assert len(again) == 4
    text = (out / "scan.igs.mha").read_bytes()
    assert b"Seq_Frame0003_ImageToVolumeTransformStatus = INVALID" in text
    assert b"Seq_Frame0000_ProbeToReferenceTransformStatus = OK" in text
    for row in range(3):
        pose = found[row]
        assert pose is not None
        assert pose.is_close(Pose.load(out / f"scan_00{row}.tfm"), mm=1e-6, deg=1e-5)
        assert case.error_mm(row, pose) < 0.3
    assert found[3] is None
    page = (out / "report.html").read_text()
    assert page.count("data:image/png;base64,") == 3 * 3
    assert "Frames that failed" in page
    assert not hidden(tmp_path)


def test_what_a_mask_leaves_out_has_no_part_in_the_pose(
    case: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever is drawn there, the pose is the same to the last digit."""
    pixels = np.array(Image.open(case.folder / "frame.png"))
    mask = np.full(pixels.shape, 255, np.uint8)
    mask[30:50, 20:60] = 0
    Image.fromarray(mask).save(tmp_path / "mask.png")
    words = ["--pixel-mm", STEP, "--method", "start", "--start", near(case, 0, tmp_path), "--refine"]
    written = []
    for name, drawn in (("plain", pixels), ("drawn", np.where(mask > 0, pixels, 180).astype(np.uint8))):
        frame, out = tmp_path / f"{name}.png", tmp_path / f"{name}.json"
        Image.fromarray(drawn).save(frame)
        ready = [frame, case.folder / "volume.nii.gz", "-o", out, *words, "--frame-mask"]
        assert register(*ready, tmp_path / "none.png") == 2
        assert register(*ready, tmp_path / "mask.png") == 0
        written.append(json.loads(out.read_text()))
    captured = capsys.readouterr()
    assert captured.out.count("note    by the frame mask mask.png") == 2
    assert "there is no such file or folder" in captured.err
    assert written[0]["matrix_lps"] == written[1]["matrix_lps"]
    assert written[0]["frame"]["frame_mask"] == "mask.png"
    assert len(written[0]["frame"]["frame_mask_sha256"]) == 64
    assert read_results([tmp_path / "plain.json"])  # with its facts it is read again


def test_what_does_not_count_of_the_volume_has_no_part_in_the_pose(
    case: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever lies there; a mask of another place is an error."""
    organ = read_image(case.folder / "organ.nii.gz")
    counts = torch.from_numpy(organ.array > 0)
    noise = torch.rand(counts.shape, generator=torch.Generator().manual_seed(0))
    other = replace(case.volume, array=torch.where(counts, case.volume.array, noise))
    io.write_volume(other, tmp_path / "other.nii.gz")
    write_labels(Volume(counts.float(), 1.0, (900, 0, 0), labels=counts), tmp_path / "far.nii.gz")
    words = ["--pixel-mm", STEP, "--method", "start", "--start", near(case, 0, tmp_path), "--refine", "--volume-mask"]
    poses = []
    for volume in (case.folder / "volume.nii.gz", tmp_path / "other.nii.gz"):
        out = tmp_path / f"{volume.name}.json"
        assert register(case.folder / "frame.png", volume, "-o", out, *words, case.folder / "organ.nii.gz") == 0
        poses.append(json.loads(out.read_text()))
        assert poses[-1]["volume"]["volume_mask"] == "organ.nii.gz"
    assert poses[0]["matrix_lps"] == poses[1]["matrix_lps"]
    assert "note    by the volume mask organ.nii.gz" in capsys.readouterr().out
    assert register(case.folder / "frame.png", tmp_path / "other.nii.gz", *words, tmp_path / "far.nii.gz") == 2
    assert "none of its labelled voxels lies in the volume" in capsys.readouterr().err


def test_a_folder_with_a_folder_of_masks(case: Case, tmp_path: Path) -> None:
    """Masks by name; they are no frames. One of another size is an error of its frame; inputs.json tells of them."""
    shutil.copytree(case.folder / "frames", tmp_path / "frames")
    (tmp_path / "frames" / "masks").mkdir()
    for row in range(3):
        size = (96, 96) if row < 2 else (96, 95)
        Image.fromarray(np.full(size, 255, np.uint8)).save(tmp_path / "frames" / "masks" / f"view{row}.png")
    words = ["--pixel-mm", STEP, "--method", "start", "--no-report", "--workers", "1"]
    masks = tmp_path / "frames" / "masks"
    volume, out = case.folder / "volume.nii.gz", tmp_path / "out"
    assert register(tmp_path / "frames", volume, "-o", out, *words, "--frame-mask", masks) == 1
    table = {row["file"]: row for row in rows(out)}
    assert sorted(table) == [f"view{row}.png" for row in range(4)]
    assert [bool(table[f"view{row}.png"]["error"]) for row in range(4)] == [False, False, True, True]
    assert "95 x 96 pixels, the frame 96 x 96" in table["view2.png"]["error"]
    assert "there is no mask of this frame" in table["view3.png"]["error"]
    assert read_inputs(out).frame_mask == masks.resolve()


def test_frames_are_compared_as_thick_as_told(case: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [case.folder / "frame.png", case.folder / "volume.nii.gz", "--pixel-mm", STEP, "--method", "start"]
    words += ["--start", near(case, 0, tmp_path), "--refine", "--thickness-mm"]
    assert register(*words, "estimated", "-o", tmp_path / "pose.json") == 0
    said = capsys.readouterr().out
    assert re.search(r"note    by its depth of \d+ mm the frame is compared as [\d.]+ to [\d.]+ mm thicker", said)
    assert case.error_mm(0, Pose.load(tmp_path / "pose.json")) < 1
    assert register(*words, "thick") == 2
    assert "--thickness-mm" in capsys.readouterr().err


def tiny(folder: Path, count: int) -> Path:
    """A folder of many small pictures, and a small volume."""
    generator = np.random.default_rng(0)
    values = generator.random((8, 24, 24)).astype(np.float32)
    io.write_volume(Volume(torch.from_numpy(values), 1.0), folder / "volume.nii.gz")
    (folder / "frames").mkdir()
    for row in range(count):
        pixels = (generator.random((16, 16)) * 200 + 20).astype(np.uint8)
        (folder / "frames" / f"f{row:03d}.png").write_bytes(png_bytes(pixels))
    return folder


def test_a_hundred_files_with_three_bad_ones(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    frames = tiny(tmp_path, 97) / "frames"
    (frames / "cut.png").write_bytes((frames / "f000.png").read_bytes()[:60])
    (frames / "empty.png").write_bytes(png_bytes(np.zeros((16, 16), np.uint8)))
    (frames / "report.dcm").write_text("no image at all")
    (frames / "notes.txt").write_text("not a frame")
    out = tmp_path / "out"
    words = ["--pixel-mm", "1", "--method", "start", "--workers", "2", "--placed", ".nrrd", "--no-report"]
    assert register(frames, tmp_path / "volume.nii.gz", "-o", out, *words) == 1
    captured = capsys.readouterr()
    assert "0 of 100 may be relied on, 97 not judged, 3 failed" in captured.out
    assert [line.split(":")[0] for line in captured.out.splitlines() if line.startswith("failed")] == [
        "failed  cut.png",
        "failed  empty.png",
        "failed  report.dcm",
    ]
    assert "1 files of other kinds are left out (.txt)" in captured.err
    assert "registering: 98 of 98" in captured.err
    table = rows(out)
    assert len(table) == 100
    assert [row["file"] for row in table if row["error"]] == ["cut.png", "empty.png", "report.dcm"]
    assert len(list(out.glob("*.tfm"))) == len(list(out.glob("*.placed.nrrd"))) == 97
    assert not hidden(out)


def test_workers_change_nothing_but_the_time(tmp_path: Path) -> None:
    tiny(tmp_path, 6)
    found = []
    for workers in (1, 2):
        out = tmp_path / f"out{workers}"
        words = ["--pixel-mm", "1", "--method", "simpleitk-mi", "--workers", workers, "--format", "txt", "--no-report"]
        register(tmp_path / "frames", tmp_path / "volume.nii.gz", "-o", out, *words)
        found.append([(path.name, path.read_text()) for path in sorted(out.glob("*.txt"))])
    assert found[0]
    assert found[0] == found[1]


def test_what_an_earlier_run_wrote_of_a_frame_that_now_fails_is_gone(tmp_path: Path) -> None:
    frames, out = tiny(tmp_path, 2) / "frames", tmp_path / "out"
    words = [frames, tmp_path / "volume.nii.gz", "-o", out, "--pixel-mm", "1", "--method", "start"]
    assert register(*words) == 0
    assert (out / "report.html").is_file()
    (frames / "f001.png").write_text("damaged since")
    assert register(*words, "--no-report") == 1
    assert [path.name for path in sorted(out.iterdir())] == ["f000.tfm", "inputs.json", "poses.csv"]


def test_pictures_of_several_sizes_with_one_size_of_pixels_are_told(
    case: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(case.folder / "frames", tmp_path / "frames")
    (pixels,) = read_picture(tmp_path / "frames" / "view3.png")
    (tmp_path / "frames" / "view3.png").write_bytes(png_bytes(pixels[:, 6:]))
    words = ["--pixel-mm", STEP, "--method", "start", "--workers", "1"]
    assert register(tmp_path / "frames", case.folder / "volume.nii.gz", "-o", tmp_path / "out", *words) == 0
    note = "pictures differ in size (3 of 96 x 96, 1 of 90 x 96): the size of a pixel that was told is taken for all"
    assert f"note    {note}" in capsys.readouterr().out
    assert note in (tmp_path / "out" / "report.html").read_text()


def test_folders_in_folders_keep_their_names_apart(case: Case, tmp_path: Path) -> None:
    root = tiny(tmp_path, 1)
    frames = root / "frames"
    (frames / "deep").mkdir()
    one = (frames / "f000.png").read_bytes()
    (frames / "deep" / "f000.png").write_bytes(one)
    (frames / "f000.bmp").write_bytes(one)  # a picture whatever its ending; ITK reads by content or refuses
    (frames / "volume.nii.gz").write_bytes((root / "volume.nii.gz").read_bytes())
    out = frames / "out"
    words = ["-o", out, "--pixel-mm", "1", "--method", "start", "--no-report"]
    for _ in range(2):  # the second time its own results lie below the folder
        register(frames, frames / "volume.nii.gz", *words)
        table = rows(out)
        assert {row["file"] for row in table} == {"deep/f000.png", "f000.bmp", "f000.png"}
        outputs = [row["output"] for row in table if row["output"]]
        assert len(set(outputs)) == len(outputs) >= 2
        assert all((out / name).is_file() for name in outputs)


def test_an_interrupted_batch_leaves_whole_files_and_an_honest_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tiny(tmp_path, 12)
    calls, do_chunk = [], batch.do_chunk

    def interrupted(job: batch.Job, tasks: list[batch.Task]) -> list[batch.Row]:
        calls.append(tasks)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return do_chunk(job, tasks)

    monkeypatch.setattr(batch, "do_chunk", interrupted)
    out = tmp_path / "out"
    words = [tmp_path / "frames", tmp_path / "volume.nii.gz", "-o", out, "--pixel-mm", "1", "--method", "start"]
    assert register(*words, "--workers", 1) == 130
    assert "4 of 12 frames are done" in capsys.readouterr().err
    table = rows(out)
    assert [bool(row["error"]) for row in table] == [False] * 4 + [True] * 8
    assert "interrupted" in table[-1]["error"]
    wanted = [*(f"f{row:03d}.tfm" for row in range(4)), "inputs.json", "poses.csv"]
    assert sorted(path.name for path in out.iterdir()) == wanted


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_control_c_ends_the_processes_too(tmp_path: Path) -> None:
    tiny(tmp_path, 400)
    out = tmp_path / "out"
    words = [tmp_path / "frames", tmp_path / "volume.nii.gz", "-o", out, "--pixel-mm", "1", "--method", "simpleitk-mi"]
    command = [sys.executable, "-m", "scopereg", "register", *map(str, words), "--workers", "2", "--format", "txt"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    deadline = time.monotonic() + 90
    while not list(out.glob("*.txt")) and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130, said
    assert "frames are done" in said
    assert "Traceback" not in said
    assert len(rows(out)) == 400
    assert not hidden(out)
    for path in out.glob("*.txt"):
        Pose.load(path)
    while True:  # what Python starts beside the workers takes a moment longer to end
        try:
            os.killpg(process.pid, 0)
        except ProcessLookupError:
            break
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["frame.png", "volume.nii.gz", "-o", "p.tfm"], ["does not say how large a pixel is", "--pixel-mm"]),
        (["frame.png", "volume.nii.gz", "--pixel-mm", "-1"], ["got -1.0", "sizes in mm"]),
        (["frame.png", "missing.nii.gz", "--pixel-mm", "1"], ["missing.nii.gz", "no such file"]),
        (["missing.png", "volume.nii.gz"], ["missing.png", "no such file"]),
        (["frame.png"], ["a frame and a volume are needed"]),
        (["frame.png", "volume.nii.gz", "--pixel-mm", "1", "-o", "p.xfm"], ["unknown ending", ".tfm"]),
        (["frame.png", "volume.nii.gz", "--pixel-mm", "1", "--placed", "p.png"], ["--placed", ".nrrd"]),
        (["frame.png", "volume.nii.gz", "--pixel-mm", "1", "--resliced", "volume.nii.gz"], ["overwrite an input"]),
        (["frame.png", "volume.nii.gz", "--pixel-mm", "50", "--method", "start"], ["the frame measures", "spacing"]),
        (["frame.png", "volume.nii.gz", "--pixel-mm", "1", "--method", "univresal"], ["did you mean 'universal'"]),
        (["cine.dcm", "volume.nii.gz", "-o", "p.tfm"], ["it holds 4 frames", "--index, from 0 to 3"]),
        (["cine.dcm", "volume.nii.gz"], ["it holds 4 frames", "-o FOLDER"]),
        (["cine.dcm", "volume.nii.gz", "--index", "9"], ["frame 9 is asked for", "--index, from 0 to 3"]),
        (["scan.igs.mha", "volume.nii.gz", "--index", "0"], ["no transforms lead from Image", "--pixel-mm"]),
        (["volume.nii.gz", "frame.png"], ["frame.png: it holds frames", "scopereg register frame.png volume.nii.gz"]),
        (["volume.nii.gz", "frame.dcm"], ["frame.dcm: it holds frames", "scopereg register frame.dcm volume.nii.gz"]),
        (["volume.nii.gz", "volume.nii.gz"], ["it holds 24 frames, as a volume does", "the frame comes first"]),
        (["black.png", "volume.nii.gz", "--pixel-mm", "1"], ["black.png: the frame is empty: every value is 0"]),
        (["frame.dcm", "zero.nii.gz"], ["zero.nii.gz: the volume is empty: every value is 0"]),
        (["frames", "volume.nii.gz", "-o", "p.tfm"], ["a batch needs a folder"]),
        (["frames", "volume.nii.gz", "-o", "x", "--placed", "a.nrrd"], ["pass an ending"]),
        (["frames", "volume.nii.gz", "-o", "x", "--pixel-mm", "1", "--workers", "0"], ["0 processes"]),
        (["frame.png", "volume.nii.gz", "--pixel-mm", "1", "--start", "tracker"], ["does not place the frame"]),
        (["frame.png", "frame.png", "--pixel-mm", "1"], ["unknown kind of volume"]),
        (["frame.png", "scan.igs.mha", "--pixel-mm", "1"], ["it is a sequence of frames, not a volume"]),
    ],
)
def test_bad_input_is_explained_and_writes_nothing(
    case: Case,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    says: list[str],
) -> None:
    work = tmp_path / "work"
    work.mkdir()
    for path in case.folder.iterdir():
        (work / path.name).symlink_to(path)
    (work / "black.png").write_bytes(png_bytes(np.zeros((40, 40), np.uint8)))
    io.write_volume(Volume(np.zeros((8, 16, 16)), 1.0), work / "zero.nii.gz")
    before = sorted(path.name for path in work.iterdir())
    monkeypatch.chdir(work)
    assert register(*words) == 2
    said = capsys.readouterr().err
    for part in [*says, "To fix it"]:
        assert part in said
    left = {path.name for path in work.iterdir() if not (path.is_dir() and not any(path.iterdir()))}
    assert left <= set(before)


def test_a_volume_without_a_spacing_is_asked_for_one(
    case: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    header = "ObjectType = Image\nNDims = 3\nDimSize = 24 24 8\nElementType = MET_UCHAR\nElementDataFile = LOCAL\n"
    voxels = np.random.default_rng(0).integers(1, 255, 24 * 24 * 8).astype(np.uint8)
    (tmp_path / "volume.mha").write_bytes(header.encode() + voxels.tobytes())
    words = [case.folder / "frame.png", tmp_path / "volume.mha", "--pixel-mm", "0.2", "--method", "start"]
    assert register(*words) == 2
    assert "--voxel-mm" in capsys.readouterr().err
    assert register(*words, "--voxel-mm", 1, 1, 2) == 0
    assert "24 x 24 x 8 voxels of 1 x 1 x 2 mm (given)" in capsys.readouterr().out


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written(case: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tmp_path.chmod(0o500)
    words = [case.folder / "frame.dcm", case.folder / "volume.nii.gz", "--method", "start"]
    assert register(*words, "-o", tmp_path / "deep" / "pose.tfm") == 2
    assert "cannot write there" in capsys.readouterr().err


def test_a_file_where_a_folder_is_needed(case: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("in the way")
    words = [case.folder / "frame.dcm", case.folder / "volume.nii.gz", "--method", "start"]
    assert register(*words, "-o", tmp_path / "file" / "pose.tfm") == 2
    assert register(case.folder / "frames", *words[1:], "--pixel-mm", "1", "-o", tmp_path / "file") == 2
    assert "cannot write there" in capsys.readouterr().err
    assert (tmp_path / "file").read_text() == "in the way"


def test_the_page_shows_the_least_similar_frames() -> None:
    tasks = [batch.Task(Path(f"{row}"), f"{row}", f"{row}") for row in range(100)]
    similarities = [0.9] * 100
    for row in (17, 18, 19, 57):
        similarities[row] = 0.1
    results = [Result(Pose.identity(), "x", 1.0, value) for value in similarities]
    made = [batch.Row(task, result) for task, result in zip(tasks, results, strict=True)]
    shown = [int(row.task.shown) for row in chosen(made)]
    assert len(shown) == SHOWN
    assert {17, 18, 19, 57, 0, 99} <= set(shown)
    assert shown == sorted(shown)


def test_a_batch_hashes_its_volume_once_and_opens_its_sequence_once_for_frames_and_page(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hashed: list[tuple[int, ...]] = []
    opened: list[Path] = []

    def counted_hash(*tensors: torch.Tensor) -> str:
        hashed.extend(tuple(tensor.shape) for tensor in tensors)
        return tensors_sha256(*tensors)

    def counted_opening(path: Path, **options: Any) -> Cine:
        opened.append(path)
        return io.read_cine(path, **options)

    monkeypatch.setattr(stored, "tensors_sha256", counted_hash)
    monkeypatch.setattr(reading, "read_cine", counted_opening)
    batch.cine_of.cache_clear()
    batch.worker.cache_clear()
    cine, out = case.folder / "cine.dcm", tmp_path / "out"
    words = [cine, case.folder / "volume.nii.gz", "-o", out, "--method", "start", "--format", "json", "--workers", 1]
    assert register(*words) == 0
    written = [json.loads(path.read_text()) for path in sorted(out.glob("cine*.json"))]
    assert len(written) > 1
    volume = io.read_volume(case.folder / "volume.nii.gz").array
    assert {record["volume"]["pixels_sha256"] for record in written} == {tensors_sha256(volume)}
    assert len({record["frame"]["pixels_sha256"] for record in written}) == len(written)
    assert hashed.count(tuple(volume.shape)) == 1
    assert opened.count(cine) <= 3  # to see what it is, to list its frames, and once for all of them and the page
    assert "volume at the pose" in (out / "report.html").read_text()


def test_strict_makes_a_status_of_what_may_not_be_relied_on(case: Case, tmp_path: Path) -> None:
    frame, volume = case.folder / "frame.dcm", case.folder / "volume.nii.gz"
    unjudged = ["--method", "identity", "--strict"]
    assert register(frame, volume, *unjudged) == 3
    assert register(frame, volume, "--method", "identity") == 0
    assert register(case.folder / "cine.dcm", volume, "-o", tmp_path / "out", *unjudged) == 3
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "bad.png").write_bytes(b"no picture")
    assert register(tmp_path / "in", volume, "-o", tmp_path / "bad", *unjudged, "--pixel-mm", STEP) == 1


def test_a_network_is_refined_unless_somebody_says_no(
    case: Case, narrow_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [case.folder / "frame.dcm", case.folder / "volume.nii.gz", "--method", narrow_file]
    assert register(*words, "--no-fallback") == 0
    assert "[narrow network, refined, " in capsys.readouterr().out
    assert register(*words, "--no-refine") == 0
    assert "[narrow network, " in capsys.readouterr().out


def test_other_ways_are_announced_and_bounded_by_time(
    case: Case, narrow_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Noise is nowhere in the volume: a second look is tried, and the rest takes longer than there is time."""
    noise = np.random.default_rng(0).integers(1, 255, (96, 96), dtype=np.uint8)
    (tmp_path / "noise.png").write_bytes(png_bytes(noise))
    words = [tmp_path / "noise.png", case.folder / "volume.nii.gz", "--pixel-mm", STEP, "--method", narrow_file]
    assert register(*words, "--seconds", "0.01", "-o", tmp_path / "pose.json") == 0
    said = " ".join(capsys.readouterr().out.split())
    assert re.search(r", after \d+ s; a second look from there is tried", said)
    assert "the wide search is tried" not in said
    assert re.search(r"tried too: a second look from there \(\d+ s, then the time was up\)", said)
    assert json.loads((tmp_path / "pose.json").read_text())["result"]["ok"] is False
