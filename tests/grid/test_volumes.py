"""The data of a run: of its resolution and dataset, read or made once."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_grids import Write, only_identity

from scopereg.data.datasets import load_dataset
from scopereg.data.store import open_set, save_set
from scopereg.errors import ScopeRegError
from scopereg.grid.plan import expand
from scopereg.grid.reading import read_plan
from scopereg.grid.volumes import data_path, load_volumes


def test_the_resolution_chooses_the_set_and_is_checked(write_plan: Write, data: Path, output: Path) -> None:
    small, large = expand(read_plan(write_plan(methods=["identity"], resolutions=[24, 32])))
    pattern = str(data.parent / "tiny-{size}")
    assert load_volumes(small, pattern, output, "cpu").shape == (16, 24, 24)
    assert data_path(large, pattern) == data.parent / "tiny-32"
    assert load_volumes(large, pattern, output, "cpu").shape == (16, 32, 32)
    with pytest.raises(ScopeRegError, match="24 pixels along a side, the plan asks for 32"):
        load_volumes(large, str(data), output, "cpu")
    with pytest.raises(ScopeRegError, match="names no resolutions"):
        data_path(only_identity(write_plan), pattern)


def test_data_are_read_once_in_a_process(write_plan: Write, data: Path, output: Path) -> None:
    one, two = expand(read_plan(write_plan(methods=["identity"], folds=[0, 1])))
    assert load_volumes(one, str(data), output, "cpu") is load_volumes(two, str(data), output, "cpu")


def test_phantoms_are_made_once_and_kept(write_plan: Write, output: Path) -> None:
    (run,) = expand(read_plan(write_plan(dataset="echo", methods=["identity"], count=2, frames=4, resolutions=[24])))
    volumes = load_volumes(run, None, output, "cpu")
    assert volumes.shape == (32, 24, 24)
    assert volumes.facts["magnitude"] == 3.0
    assert open_set(output / "data" / "echo-pm3-24").sha256() == volumes.sha256()


def test_a_set_of_another_dataset_is_refused(write_plan: Write, tmp_path: Path, output: Path) -> None:
    phantoms = load_dataset("echo", count=2, frames=0, shape=(8, 24, 24))
    save_set(phantoms, tmp_path / "echo")
    with pytest.raises(ScopeRegError, match="is of echo, not of camus"):
        load_volumes(only_identity(write_plan, dataset="camus"), str(tmp_path / "echo"), output, "cpu")
