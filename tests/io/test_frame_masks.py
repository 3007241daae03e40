"""Masks of frames: read strictly, laid on frames as their pictures are cut and turned, one for all or one for each."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import painting
import pytest
import SimpleITK as sitk
import torch
from PIL import Image

from scopereg.errors import ScopeRegError
from scopereg.io import read_cine, read_frame
from scopereg.io.frame_masks import read_frame_masks
from scopereg.io.metaimage import MetaSequence, write_metaimage

RANDOM = np.random.default_rng(5)
GREY = RANDOM.integers(20, 250, (14, 18)).astype(np.uint8)
DRAWN = np.zeros((14, 18), np.uint8)
DRAWN[2:9, 3:12] = 200


def saved(pixels: np.ndarray, path: Path) -> Path:
    Image.fromarray(pixels).save(path)
    return path


def stored(pixels: np.ndarray, path: Path) -> Path:
    sitk.WriteImage(sitk.GetImageFromArray(pixels), str(path))
    return path


@pytest.mark.parametrize("ending", [".png", ".bmp", ".tif", ".nii.gz", ".nrrd", ".mha"])
def test_what_is_not_0_counts(tmp_path: Path, ending: str) -> None:
    frame = saved(GREY, tmp_path / "a.png")
    mask = (saved if ending in (".png", ".bmp", ".tif") else stored)(DRAWN, tmp_path / f"mask{ending}")
    read = read_frame(frame, spacing_mm=0.3, frame_mask=mask)
    assert read.mask is not None
    assert np.array_equal(read.mask.numpy(), DRAWN > 0)
    assert read.masked_share == pytest.approx(1 - (DRAWN > 0).mean())
    assert read.facts["frame_mask"] == mask.name
    assert read.facts["notes"] == [f"by the frame mask {mask.name} 25% of the picture counts"]
    assert np.array_equal(read.numpy(), read_frame(frame, spacing_mm=0.3).numpy())  # grey values are as they were


def test_colours_count_and_transparency_does_not(tmp_path: Path) -> None:
    frame = saved(GREY, tmp_path / "a.png")
    painted = np.zeros((14, 18, 4), np.uint8)
    painted[..., 3] = 255
    painted[4:6, 5:8, 2] = 9
    read = read_frame(frame, spacing_mm=0.3, frame_mask=saved(painted, tmp_path / "mask.png"))
    assert read.mask is not None
    assert np.argwhere(read.mask.numpy()).tolist() == [[row, column] for row in (4, 5) for column in (5, 6, 7)]


def test_what_the_reader_leaves_out_stays_out(tmp_path: Path) -> None:
    clean = np.clip(painting.enlarged(GREY, 8), 30, 200)
    pixels = painting.colours_of(clean)
    pixels[40:60, 50:80] = (255, 20, 10)
    drawn = np.full(clean.shape, 255, np.uint8)
    drawn[:, 100:] = 0
    frame = saved(pixels, tmp_path / "a.png")
    alone = read_frame(frame, spacing_mm=0.1)
    both = read_frame(frame, spacing_mm=0.1, frame_mask=saved(drawn, tmp_path / "mask.png"))
    assert alone.mask is not None
    assert both.mask is not None
    assert not alone.mask[40:60, 50:80].any()
    assert np.array_equal(both.mask.numpy(), alone.mask.numpy() & (drawn > 0))
    assert [note.split()[0] for note in both.facts["notes"]] == ["colour", "by"]


def test_a_mask_of_everything_is_told(tmp_path: Path) -> None:
    frame = saved(GREY, tmp_path / "a.png")
    read = read_frame(frame, spacing_mm=0.3, frame_mask=saved(0 * DRAWN + 1, tmp_path / "mask.png"))
    assert read.facts["notes"] == ["by the frame mask mask.png nothing of the picture is left out"]


@pytest.mark.parametrize("letters", ["MF", "MN", "UF", "UN", "FM", "FU", "NM", "NU"])
def test_a_mask_is_turned_with_the_images_of_a_tracked_sequence(tmp_path: Path, letters: str) -> None:
    images = np.where(DRAWN > 0, GREY, 0)[None]
    fields = [{"Timestamp": "0", "ImageStatus": "OK"}]
    write_metaimage(MetaSequence({"UltrasoundImageOrientation": letters}, fields, images), tmp_path / "a.igs.mha")
    frame = read_frame(tmp_path / "a.igs.mha", spacing_mm=0.3, frame_mask=saved(DRAWN, tmp_path / "mask.png"), index=0)
    assert frame.mask is not None
    assert torch.equal(frame.mask, frame.array > 0)


def test_one_mask_for_each_frame(tmp_path: Path) -> None:
    frames = np.stack([GREY, GREY[::-1], GREY[:, ::-1]])
    masks = np.stack([DRAWN, DRAWN[::-1], DRAWN[:, ::-1]])
    cine = stored(frames, tmp_path / "a.nii.gz")
    (tmp_path / "masks").mkdir()
    for row, mask in enumerate(masks):
        saved(np.ascontiguousarray(mask), tmp_path / "masks" / f"a_{row:03d}.png")
    for given in (stored(masks, tmp_path / "masks.nrrd"), tmp_path / "masks"):
        for row, frame in enumerate(read_cine(cine, frame_mask=given)):
            assert frame.mask is not None
            assert np.array_equal(frame.mask.numpy(), masks[row] > 0)
    (tmp_path / "masks" / "a_001.png").unlink()
    with pytest.raises(ScopeRegError, match="there is no mask of this frame") as caught:
        read_frame(cine, index=1, frame_mask=tmp_path / "masks")
    assert caught.value.fix == "put a.png, or a_001.png for this frame there"
    saved(DRAWN, tmp_path / "masks" / "a.png")  # for all that have none of their own
    middle = read_frame(cine, index=1, frame_mask=tmp_path / "masks")
    assert middle.mask is not None
    assert np.array_equal(middle.mask.numpy(), DRAWN > 0)


def test_pictures_of_a_folder_find_their_masks_by_name(tmp_path: Path) -> None:
    (tmp_path / "masks").mkdir()
    for name, mask in (("a", DRAWN), ("b.v2", np.ascontiguousarray(DRAWN[::-1]))):
        saved(GREY, tmp_path / f"{name}.png")
        stored(mask, tmp_path / "masks" / f"{name}.nii.gz")
        read = read_frame(tmp_path / f"{name}.png", spacing_mm=0.3, frame_mask=tmp_path / "masks")
        assert read.mask is not None
        assert np.array_equal(read.mask.numpy(), mask > 0)


def test_a_mask_that_changes_is_read_anew(tmp_path: Path) -> None:
    frame, mask = saved(GREY, tmp_path / "a.png"), tmp_path / "mask.mha"
    for drawn in (DRAWN, np.ascontiguousarray(DRAWN[::-1, ::-1])):
        mask.unlink(missing_ok=True)
        stored(np.pad(drawn, 0), mask)
        os.utime(mask, ns=(int(drawn[0, 0]) + int(drawn[5, 5]), 1 + int(drawn[5, 5])))
        read = read_frame(frame, spacing_mm=0.3, frame_mask=mask)
        assert read.mask is not None
        assert np.array_equal(read.mask.numpy(), drawn > 0)


def test_masks_of_a_stream(tmp_path: Path) -> None:
    plain = read_frame(saved(GREY, tmp_path / "a.png"), spacing_mm=0.3)
    masks = read_frame_masks(saved(DRAWN, tmp_path / "mask.png"))
    own = replace(plain, mask=torch.from_numpy(GREY > 60))
    for frame in (plain, own):
        masked = masks.over_frame(frame)
        expected = (DRAWN > 0) & (np.ones_like(DRAWN, bool) if frame.mask is None else frame.mask.numpy())
        assert masked.mask is not None
        assert np.array_equal(masked.mask.numpy(), expected)
        assert masked.facts["frame_mask"] == "mask.png"
    with pytest.raises(ScopeRegError, match="the mask has 18 x 14 pixels, the frame 18 x 10"):
        masks.over_frame(plain.cut(0, 0, 18, 10))
    with pytest.raises(ScopeRegError, match="one mask for all"):
        read_frame_masks(stored(np.stack([DRAWN, DRAWN]), tmp_path / "two.mha")).over_frame(plain)


def test_masks_that_cannot_be(tmp_path: Path) -> None:
    frame = saved(np.where(np.arange(18) < 12, GREY, 0).astype(np.uint8), tmp_path / "a.png")
    bad = {
        "all of it is 0": saved(0 * DRAWN, tmp_path / "empty.png"),
        "its plane 1 is 0": stored(np.stack([DRAWN, 0 * DRAWN]), tmp_path / "half.mha"),
        "holds 2 masks for 1 frame of a.png": stored(np.stack([DRAWN, DRAWN]), tmp_path / "two.mha"),
        "JPEG changes": saved(DRAWN, tmp_path / "mask.jpg"),
        "unknown kind of mask": tmp_path / "mask.doc",
        "no such file or folder": tmp_path / "none.png",
        "it holds no masks": tmp_path / "nothing",
        "the mask has 9 x 14 pixels, the frame 18 x 14": saved(DRAWN[:, :9].copy(), tmp_path / "narrow.png"),
        "nothing of the picture counts": saved(np.pad(0 * DRAWN[:, 4:] + 1, ((0, 0), (4, 0))), tmp_path / "away.png"),
    }
    saved(np.pad(0 * DRAWN[:, 13:] + 1, ((0, 0), (13, 0))), tmp_path / "away.png")
    (tmp_path / "mask.doc").write_text("mask")
    (tmp_path / "nothing").mkdir()
    for words, mask in bad.items():
        with pytest.raises(ScopeRegError, match=words) as caught:
            read_frame(frame, spacing_mm=0.3, frame_mask=mask)
        assert str(mask) in caught.value.where
