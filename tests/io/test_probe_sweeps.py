"""Sweeps whose images have no place yet: probe poses from PLUS and from archives, pixel sizes, what is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from recordings import CALIBRATION, COUNT, PIXELS, PLUS, recorded

from scopereg.errors import ScopeRegError
from scopereg.geometry import Pose
from scopereg.io.plus_configuration import write_calibration
from scopereg.io.probe_sweeps import read_probe_sweep

POSES = np.stack([Pose.from_euler_deg((10, 20 + k, 5), (1, k, -2)).matrix for k in range(COUNT)])


def test_a_sequence_tells_where_the_probe_was(tmp_path: Path) -> None:
    path = recorded(tmp_path / "a.igs.mha", f1_ProbeToTrackerTransformStatus="INVALID")
    sweep = read_probe_sweep(path)
    assert sweep.rows == (0, 2, 3)
    assert sweep.world == "Tracker"
    assert sweep.spacing_mm is None
    assert sweep.before is None
    assert np.allclose(sweep.probe_to_world, POSES[[0, 2, 3]], atol=1e-9)
    assert sweep.facts["dropped"] == {"ProbeToTrackerTransform INVALID": 1}
    assert np.allclose(sweep.frame(1, (0.2, 0.3)).numpy(), PIXELS[2] / 255)
    assert "frame 2" in sweep.label(1)


def test_the_size_of_a_pixel_is_given_or_that_of_the_calibration(tmp_path: Path) -> None:
    path = recorded(tmp_path / "a.igs.mha")
    assert read_probe_sweep(path, spacing_mm=0.25).spacing_mm == (0.25, 0.25)
    calibration = write_calibration(tmp_path / "plus.xml", ("Image", "Probe"), CALIBRATION)
    sweep = read_probe_sweep(path, calibration)
    assert sweep.spacing_mm == pytest.approx((0.2, 0.3))
    assert sweep.before is not None
    assert np.allclose(sweep.before, CALIBRATION)
    assert read_probe_sweep(path, calibration, spacing_mm=(0.1, 0.2)).spacing_mm == (0.1, 0.2)


def test_an_archive_holds_poses_of_the_probe_or_of_images(tmp_path: Path) -> None:
    arrays: dict[str, Any] = {"frames": PIXELS, "spacing_xy_mm": np.array([0.2, 0.3])}
    np.savez_compressed(tmp_path / "a.npz", probe_to_world=POSES, **arrays)
    sweep = read_probe_sweep(tmp_path / "a.npz")
    assert np.allclose(sweep.probe_to_world, POSES)
    assert sweep.spacing_mm == (0.2, 0.3)
    assert not sweep.facts
    np.savez_compressed(tmp_path / "b.npz", image_mm_to_world=POSES, **arrays)
    other = read_probe_sweep(tmp_path / "b.npz")
    assert np.allclose(other.probe_to_world, POSES)
    assert "images" in other.facts["notes"][0]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"probe_to_world": POSES[:2]}, "for 4 images"),
        ({"probe_to_world": POSES * 2.0}, "frame 0"),
        ({"frames": PIXELS.astype(np.float32)}, "float32"),
        ({"frames": PIXELS[0]}, "shape"),
        ({"spacing_xy_mm": np.array([0.2, -0.3])}, "spacing"),
    ],
)
def test_archives_that_are_wrong_are_told(changes: dict[str, Any], said: str, tmp_path: Path) -> None:
    arrays = {"frames": PIXELS, "spacing_xy_mm": np.array([0.2, 0.3]), "probe_to_world": POSES} | changes
    np.savez_compressed(tmp_path / "a.npz", **arrays)
    with pytest.raises(ScopeRegError, match=said):
        read_probe_sweep(tmp_path / "a.npz")


def test_sequences_without_a_probe_are_told(tmp_path: Path) -> None:
    path = recorded(tmp_path / "a.igs.mha")
    with pytest.raises(ScopeRegError, match="no transforms lead from Stylus to Reference or Tracker"):
        read_probe_sweep(path, probe="Stylus")
    lost = {f"f{k}_ProbeToTrackerTransformStatus": "INVALID" for k in range(COUNT)}
    with pytest.raises(ScopeRegError, match="none of its 4 frames is tracked"):
        read_probe_sweep(recorded(tmp_path / "b.igs.mha", **lost))


@pytest.mark.skipif(not PLUS.is_dir(), reason="the sequence of the PLUS toolkit is not here")
def test_the_sequence_of_plus() -> None:
    sweep = read_probe_sweep(PLUS / "SpinePhantomFreehand.igs.mha", next(PLUS.glob("*.xml")))
    assert len(sweep) == 21
    assert sweep.world == "Reference"
    assert sweep.spacing_mm == pytest.approx((0.0854, 0.079), abs=1e-4)
