"""Volumes as files: what cannot be stored is refused, and nothing half-written stays."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import SimpleITK as sitk
import torch

from scopereg.errors import ScopeRegError
from scopereg.images import Volume
from scopereg.io.volumes import FORMATS, write_labels, write_volume


@pytest.mark.parametrize("ending", FORMATS)
def test_a_volume_reads_back_in_its_place(tmp_path: Path, ending: str) -> None:
    volume = Volume(torch.rand(3, 4, 5), spacing_mm=(0.5, 0.6, 0.7), origin_mm=(1.0, -2.0, 3.0))
    image = sitk.ReadImage(str(write_volume(volume, tmp_path / f"v{ending}")))
    assert np.allclose(sitk.GetArrayFromImage(image), volume.numpy())
    assert np.allclose(image.GetSpacing(), volume.spacing_mm)
    assert np.allclose(image.GetOrigin(), volume.origin_mm)
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("name", ["v.mhd", "v.png", "V.NII.GZ"])
def test_other_endings_are_refused_and_leave_nothing(tmp_path: Path, name: str) -> None:
    with pytest.raises(ScopeRegError, match=name):
        write_volume(Volume(torch.rand(3, 4, 5), spacing_mm=1.0), tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_labels_that_do_not_fit_a_byte_are_refused(tmp_path: Path) -> None:
    volume = Volume(torch.rand(2, 2, 2), spacing_mm=1.0, labels=torch.full((2, 2, 2), 300))
    with pytest.raises(ScopeRegError, match="300"):
        write_labels(volume, tmp_path / "l.nii.gz")
    with pytest.raises(ScopeRegError, match="no labels"):
        write_labels(Volume(torch.rand(2, 2, 2), spacing_mm=1.0), tmp_path / "l.nii.gz")
