"""mu-RegPro as published becomes two volumes of each case, cropped next to the probe."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import SimpleITK as sitk
import torch

from scopereg.data.muregpro import load_muregpro
from scopereg.errors import ScopeRegError

PLANES, COLUMNS, ROWS = 81, 118, 88  # x, y, z of the files


def fan(probe: str = "high", planes: int = PLANES) -> np.ndarray:
    """Voxels (through-plane, depth, lateral): a fan, narrow at the probe, each plane brighter than the last."""
    depth = np.linspace(0, 1, ROWS)[:, None]
    lateral = np.abs(np.linspace(-1, 1, COLUMNS))[None]
    image = (lateral < 1 - 0.8 * depth) * (60 + 100 * depth + 20 * (np.linspace(-1, 1, COLUMNS) > 0))
    image = image if probe == "high" else image[::-1, ::-1]
    return (image[None] + np.arange(planes)[:, None, None]).clip(0, 255).astype(np.uint8)


def write_case(root: Path, number: int, part: str = "train", *, labels: bool = True, **options: Any) -> Path:
    volume = options.pop("volume", None)
    volume = fan(**options) if volume is None else volume
    masks = np.zeros((6, *volume.shape), np.uint8)
    masks[0, 30:50, 40:70, 50:70] = 1  # gland
    masks[1] = 1  # a landmark
    path = root / part / "us_images" / f"case{number:06d}.nii.gz"
    for folder, array in (("us_images", volume.transpose(1, 2, 0)), ("us_labels", masks.transpose(0, 2, 3, 1))):
        target = root / part / folder / path.name
        target.parent.mkdir(parents=True, exist_ok=True)
        image = sitk.GetImageFromArray(np.ascontiguousarray(array), isVector=False)
        image.SetSpacing([0.8] * 3 + [1.0] * (image.GetDimension() - 3))
        if folder == "us_images" or labels:
            sitk.WriteImage(image, str(target))
    return path


def test_two_halves_of_each_case_next_to_the_probe(tmp_path: Path) -> None:
    write_case(tmp_path, 1)
    write_case(tmp_path, 66, "val")
    volumes = load_muregpro(tmp_path)
    assert volumes.cases == ("case000001a", "case000001b", "case000066a", "case000066b")
    assert volumes.patients == ("case000001", "case000001", "case000066", "case000066")
    assert (volumes.shape, volumes.margin, volumes.spacing_mm) == ((40, 64, 64), (16, 24, 24), 0.8)
    assert (volumes.facts["probe_end"], volumes.facts["probe_votes_for_high_end"]) == ("high", 1.0)
    assert len(volumes.facts["sources_sha256"]) == 4


def test_voxels_are_those_of_the_file(tmp_path: Path) -> None:
    """Rows 24 to 87, columns 27 to 90, planes 0 to 39 and 40 to 79; the scale is the field's own."""
    volume = np.random.default_rng(0).integers(0, 256, (PLANES, ROWS, COLUMNS)).astype(np.uint8)
    write_case(tmp_path, 1, volume=volume)
    volumes = load_muregpro(tmp_path, probe="high")
    for row, first in ((0, 0), (1, 40)):
        field = volume[first : first + 40, 24:88, 27:91].astype(float)
        low, high = np.percentile(field, (1, 99))
        expected = ((field - low) / (high - low)).clip(0, 1)
        assert np.abs(volumes.references(torch.tensor([row]))[0].numpy() - expected).max() < 0.51 / 255
        around = ((volume[first : first + 40, :, 3:115] - low) / (high - low)).clip(0, 1)  # up to the far end and sides
        assert np.abs(volumes.images[row, 16:56, :88].numpy() / 255 - around).max() < 0.51 / 255
    beyond = volumes.images[0].numpy()
    assert np.array_equal(beyond[:, 88:], beyond[:, 64:88][:, ::-1])
    gland = np.zeros((PLANES, ROWS, COLUMNS), np.uint8)
    gland[30:50, 40:70, 50:70] = 1
    assert volumes.labels is not None
    assert np.array_equal(volumes.labels[1, 16:56, 24:88, 24:88], gland[40:80, 24:88, 27:91])


def test_a_probe_at_the_low_end_is_found_and_turned_down(tmp_path: Path) -> None:
    for number in (1, 2, 3):
        write_case(tmp_path / "low", number, probe="low", labels=False)
        write_case(tmp_path / "high", number, probe="high", labels=False)
    low, high = load_muregpro(tmp_path / "low"), load_muregpro(tmp_path / "high")
    assert (low.facts["probe_end"], high.facts["probe_end"]) == ("low", "high")
    assert torch.equal(low.images, high.images)
    told = load_muregpro(tmp_path / "low", probe="low")
    assert torch.equal(told.images, low.images)
    assert told.facts["probe_votes_for_high_end"] is None


def test_images_that_do_not_tell_the_end_are_refused(tmp_path: Path) -> None:
    write_case(tmp_path, 1, probe="low")
    write_case(tmp_path, 2, probe="high")
    with pytest.raises(ScopeRegError, match="50% of the cases"):
        load_muregpro(tmp_path)


def test_bad_cases_are_named_or_skipped(tmp_path: Path) -> None:
    write_case(tmp_path, 1)
    write_case(tmp_path, 2, planes=79)
    with pytest.raises(ScopeRegError, match="79 slices"):
        load_muregpro(tmp_path)
    path = write_case(tmp_path, 3)
    path.write_bytes(path.read_bytes()[:200])
    write_case(tmp_path, 4, labels=False)
    with pytest.raises(ScopeRegError, match="1 of 4 cases have no labels: case000004"):
        load_muregpro(tmp_path)
    volumes = load_muregpro(tmp_path, skip_bad=True)
    assert volumes.cases == ("case000001a", "case000001b")
    assert sorted(volumes.facts["skipped"]) == ["case000002", "case000003", "case000004"]


def test_wrong_folders(tmp_path: Path) -> None:
    with pytest.raises(ScopeRegError, match="us_images"):
        load_muregpro(tmp_path)
    write_case(tmp_path, 1)
    write_case(tmp_path, 1, "val")
    with pytest.raises(ScopeRegError, match="more than once: case000001"):
        load_muregpro(tmp_path)
