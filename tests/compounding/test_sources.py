"""Sweeps from any files: PLUS, .npz, pictures and cines beside poses of any kind; what has no place is counted."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
import torch
from swept import poses_of, sweep_of, write_npz, write_pictures

from scopereg.compounding.sources import SweepReading, files_of_sweeps, read_sweeps
from scopereg.errors import ScopeRegError
from scopereg.geometry import Pose
from scopereg.io.pictures import png_bytes
from scopereg.io.plus_sequence import write_plus_images
from scopereg.io.sweeps import TrackedSweep
from scopereg.io.transforms import write_pose

SPACED = SweepReading(spacing_mm=(0.8,))


@pytest.fixture(scope="module")
def few() -> TrackedSweep:
    return sweep_of(poses_of(12))


@pytest.fixture(scope="module")
def folder(few: TrackedSweep, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pictures 1 to 12 with their table, an archive and a sequence of the same in folders of their own."""
    root = tmp_path_factory.mktemp("sweeps")
    write_pictures(few, root / "pictures")
    (root / "plus").mkdir()
    poses = [few.pose(row) if row != 5 else None for row in range(12)]
    named = [None if pose is None else Pose(pose.rotation, pose.translation_mm, "Image", "Reference") for pose in poses]
    write_plus_images(few.images.numpy(), named, root / "plus" / "scan.igs.mha", spacing_mm=few.spacing_mm)
    write_npz(few, root / "scan.npz")
    return root


def check_alike(found: TrackedSweep, few: TrackedSweep, rows: list[int] | None = None) -> None:
    rows = list(range(len(few))) if rows is None else rows
    assert torch.equal(found.images, few.images[rows])
    assert np.allclose(found.image_to_world, few.image_to_world[rows], atol=1e-5)
    assert found.spacing_mm == pytest.approx(few.spacing_mm)
    assert [found.number(row) for row in range(len(found))] == rows


def test_an_archive_a_sequence_and_the_folder_of_one(folder: Path, few: TrackedSweep) -> None:
    archive, sequence, inside = read_sweeps([folder / "scan.npz", folder / "plus" / "scan.igs.mha", folder / "plus"])
    check_alike(archive, few)
    rows = [row for row in range(12) if row != 5]
    check_alike(sequence, few, rows)
    check_alike(inside, few, rows)
    assert [archive.name, sequence.name, inside.name] == ["scan", "scan (2)", "scan (3)"]
    assert sequence.facts["dropped"] == {"ImageToReferenceTransform INVALID": 1}


def test_pictures_beside_a_table_come_in_the_order_of_their_numbers(folder: Path, few: TrackedSweep) -> None:
    (found,) = read_sweeps([folder / "pictures"], SPACED)
    check_alike(found, few)  # view2 before view10
    assert found.name == "pictures"
    assert found.facts["poses"] == "poses.csv"
    assert found.facts["dropped"] == {}


def test_frames_without_a_pose_to_rely_on_are_counted(folder: Path, few: TrackedSweep, tmp_path: Path) -> None:
    table = tmp_path / "elsewhere.csv"
    with (folder / "pictures" / "poses.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    with table.open("w", newline="") as file:
        writer = csv.DictWriter(file, [*rows[0], "ok"])
        writer.writeheader()
        writer.writerows(
            {**row, "ok": "no" if number == 3 else "yes"} for number, row in enumerate(rows) if number != 7
        )
    (found,) = read_sweeps([folder / "pictures"], SweepReading(spacing_mm=(0.8,), poses=table))
    check_alike(found, few, [row for row in range(12) if row not in (3, 7)])
    assert found.facts["dropped"] == {"no pose": 1, "a pose that may not be relied on": 1}
    assert found.facts["frames_in_file"] == 12


def test_poses_of_a_sequence_place_a_cine_of_the_same(folder: Path, few: TrackedSweep) -> None:
    (found,) = read_sweeps([folder / "scan.npz"], SweepReading(poses=folder / "plus" / "scan.igs.mha"))
    check_alike(found, few, [row for row in range(12) if row != 5])


def test_poses_that_count_from_the_middle(folder: Path, few: TrackedSweep, tmp_path: Path) -> None:
    middle = np.array([(few.images.shape[2] - 1) / 2, (few.images.shape[1] - 1) / 2, 0]) * few.spacing_mm[0]
    for row in range(12):
        pose = few.pose(row)
        write_pose(Pose(pose.rotation, pose.apply(middle), "Image", "Volume"), tmp_path / f"view{row + 1}.txt")
    (found,) = read_sweeps([folder / "pictures"], SweepReading(poses=tmp_path, origin="centre", spacing_mm=(0.8,)))
    check_alike(found, few)


def test_files_are_told(folder: Path) -> None:
    reading = SweepReading(left_out=(folder / "pictures" / "view3.png",))
    names = {path.name for path in files_of_sweeps([folder / "pictures", folder / "scan.npz"], reading)}
    assert names == {"scan.npz", "poses.csv", *(f"view{n}.png" for n in range(1, 13) if n != 3)}


def test_what_gives_no_sweep_is_told(folder: Path, tmp_path: Path, few: TrackedSweep) -> None:
    picture = folder / "pictures" / "view1.png"
    for path, what in (
        (tmp_path / "none.npz", "no such file or folder"),
        (picture, "it does not say where its frames lie"),
        (tmp_path, "it holds 0 files with frames and no poses"),
    ):
        with pytest.raises(ScopeRegError, match=what):
            read_sweeps([path], SPACED)
    mixed = write_pictures(few, tmp_path / "mixed")
    (mixed / "view2.png").write_bytes(png_bytes(np.ones((20, 20), np.uint8)))
    with pytest.raises(ScopeRegError, match="its frames differ: 20 x 20 pixels"):
        read_sweeps([mixed], SPACED)
    (mixed / "track.csv").write_bytes((mixed / "poses.csv").read_bytes())
    with pytest.raises(ScopeRegError, match="it holds poses"):
        read_sweeps([mixed], SPACED)


def test_damaged_pictures_are_counted(tmp_path: Path, few: TrackedSweep) -> None:
    damaged = write_pictures(few, tmp_path / "damaged")
    path = damaged / "view4.png"
    path.write_bytes(path.read_bytes()[:-30])
    (found,) = read_sweeps([damaged], SPACED)
    check = [row for row in range(12) if row != 3]
    assert torch.equal(found.images, few.images[check])
    (reason,) = found.facts["dropped"]
    assert "damaged" in reason
    for picture in damaged.glob("*.png"):
        picture.write_bytes(b"no picture")
    with pytest.raises(ScopeRegError, match="none of its 12 files can be read"):
        read_sweeps([damaged], SPACED)


def test_a_mask_says_what_counts(folder: Path, few: TrackedSweep, tmp_path: Path) -> None:
    drawn = np.zeros((36, 44), np.uint8)
    drawn[5:20, 10:40] = 255
    mask = tmp_path / "mask.png"
    mask.write_bytes(png_bytes(drawn))
    for path in ("scan.npz", "plus/scan.igs.mha", "pictures"):
        (found,) = read_sweeps([folder / path], SweepReading(spacing_mm=(0.8,), frame_mask=mask))
        assert torch.equal(found.seen, torch.from_numpy(drawn > 0))
        (note,) = found.facts["notes"]
        assert "by the frame mask mask.png" in note
    assert mask in files_of_sweeps([folder / "scan.npz"], SweepReading(frame_mask=mask))


def test_of_masks_that_differ_what_all_leave_counts(folder: Path, tmp_path: Path) -> None:
    for row in range(12):
        drawn = np.zeros((36, 44), np.uint8)
        drawn[5 : 20 + row, 10:40] = 255
        (tmp_path / f"view{row + 1}.png").write_bytes(png_bytes(drawn))
    (found,) = read_sweeps([folder / "pictures"], SweepReading(spacing_mm=(0.8,), frame_mask=tmp_path))
    assert int(found.seen.sum()) == 15 * 30
    assert found.facts["notes"][-1].startswith("masks differ from frame to frame")
