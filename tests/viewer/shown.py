"""What pages of these tests show: a sweep with its path, labels and landmarks over a small volume; no tests."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
from serving import small_volume

from scopereg import Frame, Pose, Volume, io
from scopereg.io.labels import Label, LabelMap
from scopereg.io.landmarks import Landmarks
from scopereg.registration.result import Result
from scopereg.viewer.path import Step
from scopereg.viewer.voxels import world_matrix

COUNT = 12
TIMES_S = [0.1 * row + (0.4 if row > 5 else 0.0) for row in range(COUNT)]  # a pause amid them
BEGAN_S = 1000.0
PIXEL_MM = 0.3
EVIL = "<img src=x onerror=alert(1)>"


def results() -> list[Result]:
    """A probe that moves along an arc; some frames are doubtful, one is refused."""
    volume = small_volume()
    found = []
    for row in range(COUNT):
        frame = Frame(np.random.default_rng(row).random((16, 20), dtype=np.float32), spacing_mm=PIXEL_MM)
        shift = (3 * math.cos(row / 3), 3 * math.sin(row / 3), 0.3 * row - 2)
        ok, belongs = (False, row != 8) if row in (4, 5, 8) else (True, True)
        pose = Pose.from_euler_deg((0, 0, 5 * row), volume.centre_mm + shift)
        found.append(Result(pose, "hand", 1.0, 0.5, frame=frame, volume=volume, ok=ok, belongs=belongs))
    return found


def steps() -> list[Step]:
    return [
        Step(result.pose, "sweep", row, BEGAN_S + time_s)
        for row, (result, time_s) in enumerate(zip(results(), TIMES_S, strict=True))
    ]


def table(folder: Path) -> Path:
    """The same as files: a sweep, its volume, and a table that lacks the frame 3, which was lost."""
    found = results()
    io.write_volume(small_volume(), folder / "volume.nii.gz")
    frames = [result.frame for result in found if result.frame is not None]
    times = [BEGAN_S + time_s for time_s in TIMES_S]
    io.write_plus_sequence(frames, [result.pose for result in found], folder / "sweep.igs.mha", times_s=times)
    names = ["tx_mm", "ty_mm", "tz_mm", "rx_deg", "ry_deg", "rz_deg"]
    rows = ["file,index,time_s,ok,belongs,method," + ",".join(names)]
    for row, result in enumerate(found):
        numbers = [*result.pose.translation_mm, *result.pose.euler_deg] if row != 3 else [""] * 6
        words = ["yes" if value else "no" for value in (result.ok, result.belongs)]
        rows.append(",".join(map(str, ["sweep.igs.mha", row, times[row], *words, "hand", *numbers])))
    (folder / "track.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    return folder / "track.csv"


def labels_of(volume: Volume) -> LabelMap:
    """Half of the volume, and a block in the other half."""
    voxels = np.zeros(volume.shape, np.uint8)
    voxels[:, :, : volume.shape[2] // 2] = 1
    voxels[2:10, 4:12, 12:18] = 2
    labels = (Label(3, "left half", (86, 180, 233)), Label(9, "<img src=x onerror=alert(1)>", (204, 121, 167)))
    return LabelMap(voxels, labels, world_matrix(volume), Path("labels.seg.nrrd"))


def result_of(volume: Volume) -> Result:
    frame = Frame(np.random.default_rng(2).random((24, 30), dtype=np.float32), spacing_mm=0.3)
    pose = Pose.from_euler_deg((0, 0, 0), volume.centre_mm)
    return Result(pose, "test", 1, 0.5, frame=frame, volume=volume)


def points(*indices: tuple[float, float, float]) -> Landmarks:
    """Landmarks at voxels (i, j, k) of the small volume."""
    names = ["apex", EVIL, "far", "farther"]
    matrix = world_matrix(small_volume())
    placed = {name: tuple((matrix @ (*index, 1))[:3]) for name, index in zip(names, indices, strict=False)}
    return Landmarks(Path("points.fcsv"), placed)  # type: ignore[arg-type]
