"""Ultrasound in MR: whole volumes and single frames, every case.

    OMP_NUM_THREADS=1 python benchmarks/modalities.py

Brain (RESECT, two pairs): whole volumes from where the neuronavigation put them (`header`) and from starts up to 5 mm
and degrees off that on each axis; the error is that of the landmarks. Frames are cut from the ultrasound and begin up
to 5 mm and 10 degrees off on each axis; their truth is the landmarks' rigid fit, or the header. Their errors are the
mTRE and that of the landmarks within 3 mm of the plane. Prostate (73 pairs, blurred by their publisher): whole volumes,
from the centroid of the gland on that of the other; the error is that of the other landmarks.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from development_sets import DATA

from scopereg.geometry import Pose, VoxelPoses, sample_slice, target_points, weighted_kabsch_in_space
from scopereg.images import Frame, Volume, pose_from_voxels
from scopereg.io.files import write_sheet
from scopereg.io.volumes import read_volume
from scopereg.progress import say
from scopereg.registration.locator import Locator
from scopereg.registration.result import RegistrationError, Result
from scopereg.registration.whole import ULTRASOUND, Search, WholeSettings, locate_whole

Array = npt.NDArray[np.float64]
PAIRS = ("02", "24")
METHODS = ("universal+refine", "identity+refine", "identity+simpleitk-mi")
VOXEL_MM, SIDE, NEAR_MM = 0.5, 128, 3.0
SHIFT_MM, TURN_DEG = 5.0, 10.0  # of frames: ten voxels
WHOLE_SHIFT_MM, WHOLE_TURN_DEG = 5.0, 5.0
REACHES_MM = (0.0, 10.0)
PARTS = ("brains", "fresh", "prostates", "frames", "edges")
COLUMNS = (
    "part",
    "set",
    "case",
    "what",
    "truth",
    "start",
    "method",
    "reach_mm",
    "start_mm",
    "found_mm",
    "landmarks_start_mm",
)
COLUMNS = (*COLUMNS, "landmarks_found_mm", "landmarks", "similarity", "moved", "ok", "seconds")


class Pair(NamedTuple):
    """Ultrasound and MR of one patient, with landmarks in the mm of each."""

    name: str
    ultrasound: Volume
    mr: Volume
    us_mm: Array
    mr_mm: Array

    @property
    def fit(self) -> Pose:
        """The rigid pose that brings the landmarks together best."""
        moving, fixed = (torch.from_numpy(points) for points in (self.us_mm, self.mr_mm))
        rotation, shift = weighted_kabsch_in_space(moving, fixed, torch.ones(len(moving)))
        return Pose(rotation.numpy(), shift.numpy())

    def error_mm(self, pose: Pose, rows: Array | slice = slice(None)) -> float:
        return float(np.linalg.norm(pose.apply(self.us_mm[rows]) - self.mr_mm[rows], axis=1).mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=DATA, help="folder of the data")
    parser.add_argument("--starts", type=int, default=6, help="starts of each brain besides the header's")
    parser.add_argument("--frames", type=int, default=10, help="frames of each brain")
    parser.add_argument("--prostates", type=int, default=73)
    parser.add_argument("--searched", type=int, default=12, help="prostates that are sought farther off too")
    parser.add_argument("--parts", nargs="+", default=list(PARTS), choices=PARTS, help="rows of others are kept")
    parser.add_argument("-o", "--output", type=Path, default=Path(__file__).with_suffix(".csv"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    parts = {
        "brains": brains(options.data, options.starts),
        "fresh": fresh(options.data, 2 * options.starts),
        "prostates": prostates(options.data, options.prostates, options.searched),
        "frames": frames_in_mr(options.data, options.frames),
        "edges": edges(options.data),
    }
    rows = [row for row in kept(options.output) if row["part"] not in options.parts]
    for part in options.parts:
        for each in parts[part]:
            rows.append({"part": part, **each})
            say(" ".join(f"{name}={value}" for name, value in each.items() if value != ""))
            write_sheet(options.output, rows, COLUMNS)
    summarise(rows)


def kept(path: Path) -> list[dict[str, Any]]:
    """The rows of an earlier run."""
    if not path.is_file():
        return []
    with path.open() as file:
        return list(csv.DictReader(file))


def edges(data: Path) -> Iterator[dict[str, Any]]:
    """How well the edges of the whole ultrasound lie along those of the MR, and LC2, where each truth puts it."""
    for name in PAIRS:
        pair = read_pair(data, name)
        for called, pose in (("header", Pose.identity()), ("landmarks", pair.fit)):
            start = Pose(pose.rotation, pose.translation_mm, ULTRASOUND, pair.mr.frame_of_reference)
            search = Search(pair.ultrasound, pair.mr, start, WholeSettings(), torch.device("cpu"))
            assert search.directions is not None
            for method, alike in (("directions", search.directions), ("lc2", search.comparison)):
                told = {"set": "resect", "case": name, "what": "edges", "start": called, "method": method}
                yield told | {"similarity": round(float(alike.similarity(search.first)), 4)}


def read_pair(data: Path, name: str) -> Pair:
    us, mr = (read_volume(data / f"resect/pair{name}_{kind}.nii.gz", modality=kind) for kind in ("us", "mr"))
    points = json.loads((data / f"resect/pair{name}_landmarks.json").read_text())
    return Pair(name, us, mr, *(np.array(points[kind]) for kind in ("us_mm", "mr_mm")))


def off(pose: Pose, about_mm: Array, random: np.random.Generator, shift_mm: float, turn_deg: float) -> Pose:
    """A pose turned about the place of a point, and shifted."""
    turn = Pose.from_euler_deg(random.uniform(-turn_deg, turn_deg, 3), np.zeros(3)).rotation
    place = pose.apply(about_mm[None])[0] + random.uniform(-shift_mm, shift_mm, 3)
    rotation = turn @ pose.rotation
    return Pose(rotation, place - rotation @ about_mm, pose.source, pose.target)


def whole(name: str, pair: Pair, called: str, start: Pose, reach_mm: float) -> dict[str, Any]:
    result = locate_whole(pair.ultrasound, pair.mr, start, WholeSettings(reach_mm=reach_mm))
    return {
        "set": name,
        "case": pair.name,
        "what": "whole",
        "truth": "landmarks",
        "start": called,
        "method": "lc2",
        "reach_mm": reach_mm,
        "landmarks_start_mm": round(pair.error_mm(start), 2),
        "landmarks_found_mm": round(pair.error_mm(result.pose), 2),
        "landmarks": len(pair.us_mm),
        "similarity": round(result.similarity, 4),
        "moved": moved_word(result),
        "seconds": round(result.time_ms / 1e3, 1),
    }


def moved_word(result: Result) -> str:
    """Whether it was left at its start, or where it was led."""
    if "left at its start" in result.reason:
        return "left"
    return "elsewhere" if "off the start" in result.notes[-1] else "near"


def brains(data: Path, count: int) -> Iterator[dict[str, Any]]:
    for name in PAIRS:
        pair, random = read_pair(data, name), np.random.default_rng(0)
        header = Pose.identity()
        starts = [("header", header)]
        middle = pair.ultrasound.centre_mm
        starts += [
            (str(row), off(header, middle, random, WHOLE_SHIFT_MM, WHOLE_TURN_DEG)) for row in range(1, count + 1)
        ]
        for (called, start), reach_mm in itertools.product(starts, REACHES_MM):
            yield whole("resect", pair, called, start, reach_mm)


def fresh(data: Path, count: int) -> Iterator[dict[str, Any]]:
    """Starts that no setting was chosen on, sought as far as usual."""
    for name in PAIRS[::-1]:
        pair, random = read_pair(data, name), np.random.default_rng(12345)
        for row in range(1, count + 1):
            start = off(Pose.identity(), pair.ultrasound.centre_mm, random, WHOLE_SHIFT_MM, WHOLE_TURN_DEG)
            yield whole("resect", pair, f"fresh {row}", start, REACHES_MM[-1])


def prostates(data: Path, count: int, searched: int) -> Iterator[dict[str, Any]]:
    with np.load(data / "trus_lowres.npz") as us, np.load(data / "trus_mr.npz") as mr:
        volumes, other = us["volume"], mr["mr"]
        step, us_points, mr_points = float(mr["spacing_mm"]), mr["us_points_mm"], mr["mr_points_mm"]
    for case in range(min(count, len(volumes))):
        images = (
            Volume(values[case].astype(np.float32) / 255, step, np.zeros(3), modality=kind)
            for values, kind in ((volumes, "us"), (other, "mr"))
        )
        # Places in the file follow the axes of the array, slowest first.
        points = [points[case][:, ::-1].astype(float) for points in (us_points, mr_points)]
        known = ~np.isnan(points[0] + points[1]).any(1)
        centre, known[0] = points[1][0] - points[0][0], False
        pair = Pair(f"{case:02d}", *images, *(each[known] for each in points))
        for reach_mm in REACHES_MM if case < searched else REACHES_MM[:1]:
            yield whole("trus-mr", pair, "centroids", Pose(np.eye(3), centre), reach_mm)


def cuts(pair: Pair, count: int, random: np.random.Generator) -> Iterator[tuple[Frame, Pose]]:
    """Frames of the ultrasound along its axes, turned a little, and where they lie in its world."""
    volume = pair.ultrasound.for_registration().resampled(VOXEL_MM)
    lit = (volume.array > 0).nonzero().double().mean(0).flip(0) - (torch.tensor(volume.size).double() - 1) / 2
    turns = (np.zeros(3), np.array([90.0, 0, 0]), np.array([0, 90.0, 0]))
    made = 0
    while made < count:
        turned = Pose.from_euler_deg(random.uniform(-10, 10, 3), np.zeros(3)).rotation
        rotation = torch.from_numpy(turned @ Pose.from_euler_deg(turns[made % 3], np.zeros(3)).rotation)
        shift = lit + torch.from_numpy(random.uniform(-8, 8, 3) / VOXEL_MM)
        pose = VoxelPoses(rotation[None].float(), shift[None].float())
        frame = Frame(sample_slice(volume.array, *pose, slice_shape=(SIDE, SIDE))[0], VOXEL_MM)
        if float((frame.array > 0).float().mean()) > 0.25:
            made += 1
            yield frame, pose_from_voxels(rotation, shift, frame, volume)


def frames_in_mr(data: Path, count: int) -> Iterator[dict[str, Any]]:
    for name in PAIRS:
        pair = read_pair(data, name)
        locators = {method: Locator(pair.mr, method, device="cpu") for method in METHODS}
        placings = {"landmarks": pair.fit, "header": Pose.identity()}
        for truth_name, placing in placings.items():
            random = np.random.default_rng(1)
            for row, (frame, place) in enumerate(cuts(pair, count, random)):
                truth = Pose.from_matrix(placing.matrix @ place.matrix)
                start = off(truth, frame.centre_mm, random, SHIFT_MM, TURN_DEG)
                for method, locator in locators.items():
                    told = one_frame(pair, frame, place, truth, start, locator)
                    told |= {"case": name, "truth": truth_name, "start": str(row), "method": method}
                    yield told


def one_frame(pair: Pair, frame: Frame, place: Pose, truth: Pose, start: Pose, locator: Locator) -> dict[str, Any]:
    """A frame located from a start; one that is not found counts as left there."""
    try:
        result: Result | None = locator.locate(frame, start)
    except RegistrationError:
        result = None
    found = start if result is None else result.pose
    targets = target_points(frame.shape).double().numpy() * VOXEL_MM + frame.centre_mm
    inverse = np.linalg.inv(place.matrix)
    flat = pair.us_mm @ inverse[:3, :3].T + inverse[:3, 3]
    half = SIDE * VOXEL_MM / 2
    near = (np.abs(flat[:, 2]) <= NEAR_MM) & (np.abs(flat[:, :2] - frame.centre_mm[:2]) <= half).all(1)

    def at_landmarks(pose: Pose) -> float | str:
        if not near.any():
            return ""
        return round(float(np.linalg.norm(pose.apply(flat[near]) - pair.mr_mm[near], axis=1).mean()), 2)

    def over_frame(pose: Pose) -> float:
        return round(float(np.linalg.norm(pose.apply(targets) - truth.apply(targets), axis=1).mean()), 2)

    return {
        "set": "resect",
        "what": "frame",
        "start_mm": over_frame(start),
        "found_mm": over_frame(found),
        "landmarks_start_mm": at_landmarks(start),
        "landmarks_found_mm": at_landmarks(found),
        "landmarks": int(near.sum()),
        "similarity": "" if result is None else round(result.similarity, 4),
        "ok": "" if result is None or result.ok is None else str(result.ok),
        "seconds": "" if result is None else round(result.time_ms / 1e3, 1),
    }


def summarise(rows: list[dict[str, Any]]) -> None:
    """Means and medians, for people at the terminal; the table has every case."""

    def key(row: dict[str, Any]) -> tuple[str, ...]:
        return tuple(str(row.get(name, "")) for name in ("set", "what", "truth", "method", "reach_mm"))

    for group, members in itertools.groupby(
        sorted((row for row in rows if row["part"] not in ("edges", "fresh")), key=key), key
    ):
        kind = "landmarks" if group[1] == "whole" else "found"
        first, last = ("landmarks_start_mm", "landmarks_found_mm") if kind == "landmarks" else ("start_mm", "found_mm")
        pairs = [(float(row[first]), float(row[last])) for row in members]
        before, after = (np.array(part) for part in zip(*pairs, strict=True))
        say(
            f"{' '.join(group)}: {len(pairs)} cases, {before.mean():.2f} -> {after.mean():.2f} mm, median "
            f"{np.median(before):.2f} -> {np.median(after):.2f}, worse in {int((after > before + 0.05).sum())}, "
            f"within 2.5 mm {int((after <= 2.5).sum())}"
        )


if __name__ == "__main__":
    main()
