"""How well `scopereg calibrate-probe` finds ImageToProbe: on the PLUS phantom, the liver sweep, and phantoms.

    python benchmarks/probe_calibration.py [--data ../shared/data] [--only liver] [-o benchmarks/probe_calibration.csv]

Every row is one calibration from frames and a volume, without a start unless it says so. Errors of X are told at the
middle of the image (offset), as an angle (turn), in the size of pixels, and at five points of the image (points).

The PLUS phantom: 21 frames and the volume that PLUS reconstructed of them, against the calibration that comes with it.
That one has axes that are not square (cosine -0.048): the nearest rigid one moves corners by 0.97 mm. The liver sweep:
the volume is compounded from all frames but every fourth; the poses of these are disturbed by a wrong ImageToProbe of
5 mm and 5 degrees, and that is what is sought. Phantoms: frames with speckle of their own, a probe and a tracker made
up, and what disturbs them. `world` tells whether the pose of the tracker's world in the volume was known or sought.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from scopereg import io
from scopereg.data import phantom
from scopereg.data.compound import compound
from scopereg.errors import ScopeRegError
from scopereg.geometry import Pose, VoxelPoses, rotation_from_euler_deg, vector_from_rotation
from scopereg.images import Frame, Volume, pose_from_voxels
from scopereg.io.probe_sweeps import ProbeSweep, read_probe_sweep
from scopereg.io.sweeps import read_npz_sweep, read_plus_sequence
from scopereg.registration.probe.calibrate import ProbeSettings, calibrate_probe
from scopereg.registration.probe.calibrated import USED, ProbeCalibration, difference
from scopereg.registration.probe.chain import Grid

COLUMNS = (
    *("case", "world", "disturbed", "start", "frames", "used", "status", "offset_mm", "turn_deg", "pixels_percent"),
    *("points_mm", "half_offset_mm", "half_turn_deg", "half_pixels_percent", "deviations", "error_mm"),
    "said",
)
PROBE = Pose.from_euler_deg((170, 20, 80), (30, -20, 90), "Image", "Probe")
ELSEWHERE = Pose.from_euler_deg((-40, 10, 60), (100, -50, 20))  # the tracker's world in the volume
WRONG = Pose.from_euler_deg((3.2, -2.6, 2.8), (3.0, -3.0, 2.65), "Image", "Probe")  # 5 mm and 5 degrees


class Trial(NamedTuple):
    """A calibration to be done, and what is true."""

    case: str
    sweep: ProbeSweep
    volume: Volume
    true: Pose
    true_spacing_mm: tuple[float, float]
    world: Pose | None = None
    disturbed: str = ""
    start: str = "none"
    most: int = 30


def sweep_of(images: torch.Tensor, poses: np.ndarray, spacing: tuple[float, float], name: str) -> ProbeSweep:
    return ProbeSweep(Path(name), images, poses, tuple(range(len(images))), spacing, "Tracker")


def plus_trials(data: Path) -> Iterator[Trial]:
    """The world of the volume is that of PLUS's Reference."""
    folder = data / "plus"
    sequence, configuration = folder / "SpinePhantomFreehand.igs.mha", next(folder.glob("*.xml"))
    volume = io.read_volume(folder / "SpinePhantomFreehandReconstructed.mha")
    true = read_probe_sweep(sequence, configuration)
    placed = read_plus_sequence(sequence, configuration)
    own = Pose.from_matrix(np.linalg.inv(true.probe_to_world[0]) @ placed.image_to_world[0], "Image", "Probe")
    known, spacing = Pose.identity("Reference", "Volume"), placed.spacing_mm
    told = ("plus", read_probe_sweep(sequence, spacing_mm=0.082), volume, own, spacing)
    yield Trial(*told, world=known, start="pixels of 0.082 mm")
    yield Trial(*told, start="pixels of 0.082 mm")
    begin = own.matrix @ _about_middle(true.shape, spacing) @ np.diag([*spacing, 0.08, 1.0])
    near = read_probe_sweep(sequence, begin)
    yield Trial("plus", near, volume, own, spacing, known, start="5 mm and 5 degrees off")


def _about_middle(shape: tuple[int, int], spacing: tuple[float, float]) -> np.ndarray:
    """The wrong calibration, its turn about the middle of the image, so that this is 5 mm off."""
    middle = np.eye(4)
    middle[:2, 3] = (shape[1] - 1) / 2 * spacing[0], (shape[0] - 1) / 2 * spacing[1]
    return middle @ WRONG.matrix @ np.linalg.inv(middle)


def liver_trials(data: Path) -> Iterator[Trial]:
    sweep = read_npz_sweep(data / "liver_sweep.npz")
    rows = list(range(2, len(sweep), 4))
    volume = compound(sweep, [row for row in range(len(sweep)) if row not in rows]).volume
    wrong = _about_middle((int(sweep.images.shape[1]), int(sweep.images.shape[2])), sweep.spacing_mm)
    stored = sweep.image_to_world[rows] @ np.linalg.inv(wrong)
    own = sweep_of(sweep.images[rows], stored, sweep.spacing_mm, "liver")
    begin = ProbeSweep(**{**vars(own), "before": np.diag([*sweep.spacing_mm, 0.3, 1.0])})
    told = (volume, Pose.from_matrix(wrong, "Image", "Probe"), sweep.spacing_mm)
    known = Pose.identity("World", "World")
    yield Trial("liver", begin, *told, known, start="5 mm and 5 degrees off")
    yield Trial("liver", own, *told, known)
    yield Trial("liver", own, *told)


class Motion(NamedTuple):
    """How a probe is moved over a phantom, and what is wrong."""

    turn_deg: tuple[float, float, float] = (12, 12, 12)
    shift_mm: tuple[float, float, float] = (8, 8, 8)
    tracker_mm: float = 0.2
    tracker_deg: float = 0.15
    size: float = 1.0
    outliers: int = 0


MOTIONS = {
    "no noise": Motion(tracker_mm=0, tracker_deg=0),
    "tracker noise 0.2 mm, 0.15 degrees": Motion(),
    "and pixels 3 % too large": Motion(size=1.03),
    "and 4 of 16 poses wrong": Motion(outliers=4),
    "turns up to 6 degrees": Motion(turn_deg=(6, 6, 6)),
    "turns about one axis": Motion(turn_deg=(0, 12, 0)),
    "no turns": Motion(turn_deg=(0, 0, 0)),
}
NOISE, SIZE = "tracker noise 0.2 mm, 0.15 degrees", "and pixels 3 % too large"
COUNT = 16


def phantom_trials() -> Iterator[Trial]:
    """All motions over one patient, what is usual over others, and frames of another patient than the volume's."""
    for name, motion in MOTIONS.items():
        yield phantom_trial("echo", 400_001, name, motion)
    for anatomy, seed in (("prostate", 400_002), ("abdomen", 400_003), ("echo", 400_004)):
        yield phantom_trial(anatomy, seed, NOISE, MOTIONS[NOISE])
    yield phantom_trial("prostate", 400_002, SIZE, MOTIONS[SIZE])
    yield phantom_trial("echo", 400_001, "of another patient", Motion(), other=400_099)


def phantom_trial(anatomy: str, seed: int, name: str, motion: Motion, other: int | None = None) -> Trial:
    patient, random = phantom.create(anatomy, seed=seed), np.random.default_rng(seed)
    turns, shifts = (torch.from_numpy(random.uniform(-1, 1, (COUNT, 3)) * most) for most in motion[:2])
    drawn = VoxelPoses(rotation_from_euler_deg(turns), shifts / patient.spacing_mm)
    acquired = patient.acquire(drawn.rotation.float(), drawn.translation.float(), seed=seed).images
    volume, spacing = patient.volume, (patient.spacing_mm, patient.spacing_mm)
    frame = Frame(acquired[0], spacing, origin_mm=(0, 0))
    truth = np.stack([pose_from_voxels(*each, frame, volume).matrix for each in zip(*drawn, strict=True)])
    tracked = np.linalg.inv(ELSEWHERE.matrix) @ truth @ np.linalg.inv(PROBE.matrix)
    for row in range(COUNT):
        angles, shift = (random.normal(0, 1, 3) * each for each in (motion.tracker_deg, motion.tracker_mm))
        tracked[row] = tracked[row] @ Pose.from_euler_deg(angles, np.zeros(3)).matrix
        tracked[row, :3, 3] += shift
    for row in random.choice(COUNT, motion.outliers, replace=False):
        tracked[row] = tracked[row] @ Pose.from_euler_deg(random.uniform(-20, 20, 3), random.uniform(-20, 20, 3)).matrix
    images = (acquired * 255).round().to(torch.uint8)
    wrong = (spacing[0] * motion.size, spacing[1] * motion.size)
    shown = phantom.create(anatomy, seed=other).volume if other is not None else volume
    return Trial(anatomy, sweep_of(images, tracked, wrong, anatomy), shown, PROBE, spacing, disturbed=name)


def row_of(trial: Trial) -> dict[str, Any]:
    row: dict[str, Any] = {"case": trial.case, "world": "sought" if trial.world is None else "known"}
    row |= {"disturbed": trial.disturbed, "start": trial.start, "frames": min(len(trial.sweep), trial.most)}
    try:
        found = calibrate_probe([trial.sweep], trial.volume, ProbeSettings(most=trial.most), world=trial.world)
    except ScopeRegError as error:
        return row | {"status": "refused", "said": error.what}
    return row | _told(found, trial)


def _told(found: ProbeCalibration, trial: Trial) -> dict[str, Any]:
    apart = difference(found.image_to_probe, found.spacing_mm, trial.true, trial.true_spacing_mm, found.shape)
    known = found.certainty
    numbers = apart | {
        "half_offset_mm": known.worst_offset_mm,
        "half_turn_deg": known.worst_turn_deg,
        "half_pixels_percent": max(known.pixels_percent),
        "error_mm": found.error_mm,
    }
    return {
        "used": len(found.of_state(USED)),
        "status": "ok" if found.ok else "not ok",
        **{name: f"{value:.3g}" for name, value in numbers.items()},
        "deviations": " ".join(f"{each:.2f}" for each in _deviations(found, trial)),
        "said": "; ".join(found.reasons),
    }


def _deviations(found: ProbeCalibration, trial: Trial) -> np.ndarray:
    """Errors of shifts and turns in the axes of the image, in standard deviations as the intervals have them."""
    middles = [Grid(found.shape, spacing).middle_mm for spacing in (found.spacing_mm, trial.true_spacing_mm)]
    apart = found.image_to_probe.apply(middles[0]) - trial.true.apply(middles[1])
    turned = torch.from_numpy(found.image_to_probe.rotation.T @ trial.true.rotation)
    errors = [*(found.image_to_probe.rotation.T @ apart), *torch.rad2deg(vector_from_rotation(turned)).tolist()]
    return np.abs(errors) / [half / 1.96 for half in (*found.certainty.offset_mm, *found.certainty.turn_deg)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--only", default="", help="plus, liver, or phantoms")
    parser.add_argument("-o", "--output", type=Path, default=Path("benchmarks/probe_calibration.csv"))
    options = parser.parse_args()
    parts = {
        "plus": lambda: plus_trials(options.data),
        "liver": lambda: liver_trials(options.data),
        "phantoms": phantom_trials,
    }
    new = not options.output.exists()
    with options.output.open("a", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS)
        if new:
            writer.writeheader()
        for name, trials in parts.items():
            for trial in trials() if options.only in ("", name) else ():
                row = row_of(trial)
                writer.writerow(row)
                file.flush()
                print(row, flush=True)


if __name__ == "__main__":
    main()
