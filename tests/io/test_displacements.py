"""Fields of displacements as ITK's transforms."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import SimpleITK as sitk

from scopereg.errors import ScopeRegError
from scopereg.io.displacements import write_displacement_field

FIELD = np.random.default_rng(0).normal(size=(3, 4, 5, 3))


@pytest.mark.parametrize("ending", [".h5", ".tfm"])
def test_a_point_of_the_lattice_is_displaced_by_what_stands_there(tmp_path: Path, ending: str) -> None:
    path = write_displacement_field(FIELD, (10.0, -20.0, 5.0), (2.0, 3.0, 4.0), tmp_path / f"a{ending}")
    transform = sitk.ReadTransform(str(path))
    assert transform.GetName() == "DisplacementFieldTransform"
    place = np.array([10.0, -20.0, 5.0]) + np.array([2.0, 3.0, 4.0]) * (3, 2, 1)
    assert np.array(transform.TransformPoint(place.tolist())) == pytest.approx(place + FIELD[1, 2, 3], abs=1e-9)


def test_what_is_no_field_is_refused_and_nothing_written(tmp_path: Path) -> None:
    with pytest.raises(ScopeRegError, match="unknown ending"):
        write_displacement_field(FIELD, (0, 0, 0), (1, 1, 1), tmp_path / "a.nrrd")
    for wrong in (FIELD[0], np.full((2, 2, 2, 3), np.nan)):
        with pytest.raises(ScopeRegError, match="no field"):
            write_displacement_field(wrong, (0, 0, 0), (1, 1, 1), tmp_path / "a.h5")
    assert not list(tmp_path.iterdir())
