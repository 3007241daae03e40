"""Modality: told by headers where they say it, by Hounsfield units, by the user; else ultrasound, which is said."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from scopereg.errors import ScopeRegError
from scopereg.images import Volume
from scopereg.io.modality import looks_like_ct, named
from scopereg.io.volumes import read_volume, write_volume
from scopereg.registration.reading import image_line

GREY = torch.rand(3, 4, 5, generator=torch.Generator().manual_seed(0))


def stored(folder: Path, ending: str, values: torch.Tensor = GREY) -> Path:
    return write_volume(Volume(values, 1.0), folder / f"volume{ending}")


def said(path: Path, line: bytes, before: bytes) -> Path:
    """The file with one more line in its header."""
    content = path.read_bytes()
    assert before in content
    path.write_bytes(content.replace(before, line + b"\n" + before, 1))
    return path


@pytest.mark.parametrize("ending", [".nii", ".nrrd", ".mha"])
def test_what_nothing_tells_is_ultrasound_and_said_to_be_taken_for_it(tmp_path: Path, ending: str) -> None:
    volume = read_volume(stored(tmp_path, ending))
    assert (volume.modality, volume.facts["modality_from"]) == ("us", "")
    assert "taken for ultrasound" in image_line(volume)


@pytest.mark.parametrize(("word", "modality"), [("MET_MOD_MR", "mr"), ("MET_MOD_CT", "ct"), ("MET_MOD_US", "us")])
def test_metaimage_says_it(tmp_path: Path, word: str, modality: str) -> None:
    volume = read_volume(said(stored(tmp_path, ".mha"), b"Modality = " + word.encode(), b"ElementType"))
    assert (volume.modality, volume.facts["modality_from"]) == (modality, "header")
    assert "header says" in image_line(volume)


def test_nrrd_says_it_by_a_key(tmp_path: Path) -> None:
    volume = read_volume(said(stored(tmp_path, ".nrrd"), b"modality:=MR", b"encoding"))
    assert (volume.modality, volume.facts["modality_from"]) == ("mr", "header")


def test_nifti_says_it_by_the_times_of_its_sequence(tmp_path: Path) -> None:
    path = stored(tmp_path, ".nii")
    content = bytearray(path.read_bytes())
    content[148:228] = b"TE=2.9;Time=101500.0".ljust(80, b"\0")
    path.write_bytes(bytes(content))
    assert read_volume(path).modality == "mr"


def test_hounsfield_units_say_ct(tmp_path: Path) -> None:
    values = torch.linspace(-1000, 1200, 60).round().reshape(3, 4, 5)
    volume = read_volume(stored(tmp_path, ".nii", values))
    assert (volume.modality, volume.facts["modality_from"]) == ("ct", "values")
    assert "Hounsfield" in image_line(volume)
    assert not looks_like_ct(values + 0.25)
    assert not looks_like_ct(values / 10)


def test_the_user_is_right(tmp_path: Path) -> None:
    path = said(stored(tmp_path, ".mha"), b"Modality = MET_MOD_MR", b"ElementType")
    assert read_volume(path, modality="us").modality == "us"
    assert read_volume(path, modality="ct").facts["modality_from"] == "given"
    with pytest.raises(ScopeRegError, match="modality"):
        read_volume(path, modality="pet")


def test_words_of_headers() -> None:
    assert [named(word) for word in ("MR", " us ", "CT", "PT", "")] == ["mr", "us", "ct", "", ""]


def test_a_volume_knows_its_modality_and_keeps_it() -> None:
    volume = Volume(GREY, 1.0, modality="mr")
    assert volume.resampled(0.5).modality == volume.for_registration().modality == "mr"
    with pytest.raises(ScopeRegError, match="Volume"):
        Volume(GREY, 1.0, modality="pet")


def test_of_a_ct_what_lies_between_fat_and_bone_is_compared() -> None:
    values = torch.tensor([-1000.0, -200, 50, 300, 1500]).repeat(20).reshape(4, 5, 5)
    scaled = Volume(values, 1.0, modality="ct").for_registration().array.flatten()[:5]
    np.testing.assert_allclose(scaled, [0, 0, 0.5, 1, 1], atol=1e-6)
