"""Real sweeps: what PLUS makes of its own, and a liver whose poses are known to hold."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from scopereg.compounding.compound import compound_sweeps
from scopereg.compounding.settings import CompoundSettings
from scopereg.compounding.sources import SweepReading, read_sweeps
from scopereg.io.volumes import read_volume

DATA = Path(__file__).parents[3] / "shared" / "data"
PLUS = DATA / "plus"


@pytest.mark.skipif(not PLUS.is_dir(), reason="a recording of PLUS is needed, see ../shared/data")
def test_on_the_voxels_of_plus_it_is_nearly_what_plus_makes() -> None:
    reading = SweepReading(calibration=next(PLUS.glob("*.xml")))
    sweeps = read_sweeps([PLUS / "SpinePhantomFreehand.igs.mha"], reading)
    theirs = read_volume(PLUS / "SpinePhantomFreehandReconstructed.mha")
    first, last = np.array(theirs.origin_mm), np.array(theirs.origin_mm) + theirs.extent_mm
    x1, y1, z1, x2, y2, z2 = (*first.tolist(), *last.tolist())
    settings = CompoundSettings(voxel_mm=0.5, bridge_mm=4.5, roi=(x1, x2, y1, y2, z1, z2))
    ours = compound_sweeps(sweeps, settings, left_out=False)
    assert ours.volume.shape == theirs.shape
    filled = (theirs.array > 0).float().mean()
    assert float(ours.filled.float().mean()) == pytest.approx(float(filled), abs=0.005)
    both = ours.filled & (theirs.array > 0)
    assert np.corrcoef(ours.volume.array[both], theirs.array[both])[0, 1] > 0.97
    assert "a corner moves by 1.0 mm" in ours.notes[0]


@pytest.mark.skipif(not (DATA / "liver_sweep.npz").is_file(), reason="the liver sweep is not at hand")
def test_poses_of_the_liver_sweep_hold() -> None:
    made = compound_sweeps(read_sweeps([DATA / "liver_sweep.npz"]), CompoundSettings(voxel_mm=2.0, every=2))
    assert made.left_out is not None
    assert made.left_out.agree
    assert made.left_out.usual_mm < 0.6
    assert np.median([frame.correlation for frame in made.left_out.frames]) > 0.95
