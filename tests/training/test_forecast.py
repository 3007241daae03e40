"""What the first steps tell of a run: how many there will be, how long it takes, and whether that is enough."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import SimpleITK as sitk

from scopereg.cli import main
from scopereg.training import forecast as module
from scopereg.training.forecast import MORE_TIME, FirstSteps, forecast
from scopereg.training.schedule import Schedule

BY_STEPS = Schedule(4e-4, 300, 0.9, 5000, None)
BY_CLOCK = Schedule(4e-4, 300, 0.9, None, 600.0)


@pytest.mark.parametrize(
    ("schedule", "step_seconds", "steps", "seconds"),
    [(BY_STEPS, 0.5, 5000, 2505.0), (BY_CLOCK, 0.5, 1190, 600.0), (BY_CLOCK, 85.0, 17, 600.0)],
)
def test_the_clock_or_the_steps_tell_the_end(
    schedule: Schedule, step_seconds: float, steps: int, seconds: float
) -> None:
    found = forecast(schedule, step=10, seconds=10.0, step_seconds=step_seconds)
    assert (found.steps, found.seconds) == (steps, seconds)


def test_a_run_that_ends_in_its_warmup_is_told_what_else_to_do() -> None:
    words = forecast(BY_CLOCK, step=3, seconds=240.0, step_seconds=80.0).words()
    assert words.startswith("forecast: about 8 steps in 10:00, 80 s each")
    assert "will not leave its warm-up of 300 steps" in words
    assert "20:00:00" in words  # 900 steps
    assert "scopereg adapt" in words
    assert "scopereg adapt" not in forecast(BY_CLOCK, step=3, seconds=240.0, step_seconds=80.0).words(MORE_TIME)
    assert "hardly learn" in forecast(BY_CLOCK, step=3, seconds=3.0, step_seconds=1.0).words()
    assert forecast(BY_STEPS, step=3, seconds=3.0, step_seconds=1.0).words() == (
        "forecast: about 5000 steps in 1:23:20, 1 s each"
    )


def test_it_is_told_once_and_not_by_the_first_step(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([60.0, 62.0, 64.0, 66.0, 68.0])  # the first step took a minute: libraries were set up
    monkeypatch.setattr(module.time, "monotonic", lambda: next(clock))
    first_steps = FirstSteps()
    found = [first_steps.step(BY_CLOCK, step, 58.0 + 2 * step) for step in range(1, 6)]
    assert found == [None, None, forecast(BY_CLOCK, 3, 64.0, 2.0), None, None]


def test_a_run_that_never_left_its_warmup_is_no_success(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for patient in range(3):
        path = tmp_path / "tree" / f"patient{patient}" / "volume.nii.gz"
        path.parent.mkdir(parents=True)
        voxels = np.random.default_rng(patient).integers(0, 255, (8, 32, 32)).astype(np.uint8)
        sitk.WriteImage(sitk.GetImageFromArray(voxels), str(path))
    words = ["train", "folder", "--data", str(tmp_path / "tree"), "-o", str(tmp_path / "out"), "--epochs", "2"]
    words += ["--batch", "2", "--frames-per-volume", "2", "--device", "cpu"]
    for _ in range(2):  # when it ends, and when it is asked for again
        assert main(words) == 1
        shown = capsys.readouterr()
        assert "never left its warm-up: 1 of 300 steps" in shown.err
        assert "scopereg adapt" in shown.err
    assert json.loads((tmp_path / "out" / "run.json").read_text())["finished"]
