"""Sequences as PLUS records them; no tests."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from scopereg.geometry import Pose
from scopereg.io.metaimage import MetaSequence, write_metaimage

PLUS = Path(__file__).parents[3] / "shared" / "data" / "plus"
COUNT = 4
PIXELS = np.random.default_rng(0).integers(0, 256, (COUNT, 10, 14)).astype(np.uint8)
POSES = [Pose.from_euler_deg((10, 20 + k, 5), (1, k, -2)) for k in range(COUNT)]
RIGID = Pose.from_euler_deg((80, -5, 30), (4, -9, 12), "Image", "Probe")
CALIBRATION = RIGID.matrix @ np.diag([0.2, 0.3, 0.25, 1])


def words(matrix: np.ndarray) -> str:
    return " ".join(f"{number:.15g}" for number in matrix.ravel())


def recorded(path: Path, letters: str = "MF", **changes: str) -> Path:
    """A sequence as a tracker records it; changes are named f1_FIELD."""
    frames = []
    for k in range(COUNT):
        tracked = Pose.from_euler_deg((10, 20 + k, 5), (1, k, -2), "Probe", "Tracker")
        fields = {"ProbeToTrackerTransform": words(tracked.matrix), "ProbeToTrackerTransformStatus": "OK"}
        fields |= {"Timestamp": f"{100 + k / 10}", "ImageStatus": "OK"}
        fields |= {name[3:]: value for name, value in changes.items() if name.startswith(f"f{k}_")}
        frames.append(fields)
    return write_metaimage(MetaSequence({"UltrasoundImageOrientation": letters, "Depth": "70"}, frames, PIXELS), path)
