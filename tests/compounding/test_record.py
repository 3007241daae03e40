"""A compounded volume as files: bytes that lie where the voxels do, a mask, and how it was made."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from scopereg.compounding.compound import compound_sweeps
from scopereg.compounding.record import beside, write_compounded
from scopereg.errors import ScopeRegError
from scopereg.io.read_image import read_image
from scopereg.io.sweeps import TrackedSweep
from scopereg.io.volumes import read_volume


def test_files_say_what_the_volume_does(sweep: TrackedSweep, tmp_path: Path) -> None:
    made = compound_sweeps(sweep)
    path, mask = tmp_path / "made.nii.gz", tmp_path / "mask.nrrd"
    record = write_compounded(made, path, {"seed": None}, mask=mask)
    read = read_volume(path)
    assert read_image(path).array.dtype == np.uint8
    assert read.origin_mm == pytest.approx(made.volume.origin_mm, abs=1e-4)
    assert np.allclose(read.direction, made.volume.direction, atol=1e-5)
    assert torch.equal(read.array > 0, made.filled)  # what is black in a frame is 1, not 0
    assert float((read.array - made.volume.array).abs().max()) < 0.003 + 1 / 255
    assert np.array_equal(read_image(mask).array, made.states.numpy())
    stored = json.loads((tmp_path / "made.json").read_text())
    assert stored == json.loads(json.dumps(record))
    assert (stored["format"], stored["volume"], stored["mask"]) == ("scopereg-compounded-1", "made.nii.gz", "mask.nrrd")
    assert stored["voxel_mm"] == made.voxel_mm
    assert made.left_out is not None
    assert stored["left_out"]["verdict"] == made.left_out.verdict
    assert sorted(file.name for file in tmp_path.iterdir()) == ["made.json", "made.nii.gz", "mask.nrrd"]


def test_a_record_of_another_volume_does_not_stay(
    sweep: TrackedSweep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = compound_sweeps(sweep, left_out=False)
    path = tmp_path / "made.nii.gz"
    write_compounded(made, path, {})

    def fail(*_: object) -> None:
        raise ScopeRegError("no space", where=str(path), fix="make some")

    monkeypatch.setattr("scopereg.compounding.record.write_grey", fail)
    with pytest.raises(ScopeRegError, match="no space"):
        write_compounded(made, path, {})
    assert not (tmp_path / "made.json").exists()


def test_names_beside() -> None:
    assert beside(Path("a/b.c.nii.gz"), ".json") == Path("a/b.c.json")
    assert beside(Path("b.mha"), ".html") == Path("b.html")
