"""Frames of DICOM ultrasound: millimetres from the regions, crops that keep their place, every coding or an error."""

from __future__ import annotations

import locale
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import SimpleITK as sitk
from PIL import Image
from pydicom import Dataset
from pydicom.data import get_testdata_file
from pydicom.encaps import encapsulate
from pydicom.pixels import convert_color_space
from pydicom.uid import MPEG4HP41, JPEGBaseline8Bit, RLELossless

from scopereg.errors import ScopeRegError
from scopereg.io import read_cine, read_frame
from scopereg.io.dicom import pixels as decoding
from scopereg.io.dicom.header import read_dataset

Make = Callable[..., Any]
IMAGES = np.random.default_rng(0).integers(0, 256, (3, 40, 60)).astype(np.uint8)
BOX = (10, 5, 49, 34)  # the last column and row are part of it
COLOURS = np.random.default_rng(1).integers(0, 256, (2, 40, 60, 3)).astype(np.uint8)
LUMA = COLOURS @ np.array([0.299, 0.587, 0.114]) / 255


def test_a_frame_is_cropped_to_its_region_and_keeps_its_place(make_dicom: Make, make_region: Make, saved: Make) -> None:
    frame = read_frame(saved(make_dicom(IMAGES[0], regions=[make_region(BOX)])))
    assert frame.spacing_mm == pytest.approx((0.2, 0.1))  # 0.02 and 0.01 cm
    assert frame.origin_mm == pytest.approx((10 * 0.2, 5 * 0.1))
    assert np.allclose(frame.numpy(), IMAGES[0, 5:35, 10:50] / 255)
    assert frame.facts["spacing_from"] == "ultrasound region 0"
    assert frame.facts["crop_px"] == [10, 5, 50, 35]
    assert frame.facts["sop_instance_uid"] == "1.2.3.4"
    assert "Secret" not in str(frame.facts)
    assert frame.pose is None


def test_a_mask_is_cropped_with_the_picture(make_dicom: Make, make_region: Make, saved: Make, tmp_path: Path) -> None:
    """One of the whole screen and one of the picture alone are as good."""
    path = saved(make_dicom(IMAGES, regions=[make_region(BOX)]))
    whole = np.zeros((40, 60), np.uint8)
    whole[12:20, 5:30] = 1
    for name, drawn in (("whole", whole), ("part", whole[5:35, 10:50])):
        Image.fromarray(drawn).save(tmp_path / f"{name}.png")
        for frame in read_cine(path, frame_mask=tmp_path / f"{name}.png"):
            assert frame.mask is not None
            assert np.array_equal(frame.mask.numpy(), whole[5:35, 10:50] > 0)
    Image.fromarray(whole[1:]).save(tmp_path / "other.png")
    with pytest.raises(ScopeRegError, match="the mask has 60 x 39 pixels, the frame 40 x 30, as stored 60 x 40"):
        read_frame(path, index=0, frame_mask=tmp_path / "other.png")


def test_the_frames_of_a_cine_are_chosen_by_number(make_dicom: Make, make_region: Make, saved: Make) -> None:
    path = saved(make_dicom(IMAGES, regions=[make_region((0, 0, 59, 39))], FrameTime="40"))
    for index in range(3):
        frame = read_frame(path, index=index)
        assert np.allclose(frame.numpy(), IMAGES[index] / 255)
        assert (frame.facts["index"], frame.facts["time_s"]) == (index, pytest.approx(0.04 * index))
    assert [np.allclose(f.numpy(), i / 255) for f, i in zip(read_cine(path), IMAGES, strict=True)] == [True] * 3
    with pytest.raises(ScopeRegError, match="3 frames") as caught:
        read_frame(path)
    assert "index=, from 0 to 2" in caught.value.fix
    for index in (3, -1):
        with pytest.raises(ScopeRegError, match=f"frame {index} is asked for"):
            read_frame(path, index=index)


def test_the_pixels_of_each_frame_may_have_a_size_of_their_own(make_dicom: Make, saved: Make) -> None:
    """An enhanced image whose depth changes; one of its frames does not tell."""

    def group(*spacing: float) -> Dataset:
        measures, found = Dataset(), Dataset()
        if spacing:
            measures.PixelSpacing = list(spacing)
        found.PixelMeasuresSequence = [measures]
        return found

    made = make_dicom(IMAGES)
    made.PerFrameFunctionalGroupsSequence = [group(0.2, 0.3), group(), group(0.4, 0.6)]
    path = saved(made)
    cine = read_cine(path)
    assert (cine[0].spacing_mm, cine[2].spacing_mm) == ((0.3, 0.2), (0.6, 0.4))  # rows come first there
    assert cine[0].facts["spacing_from"] == "PixelSpacing of each frame"
    assert cine[0].facts["notes"] == ["the depth changes in it: pixels measure 0.3 x 0.2, 0.6 x 0.4 mm"]
    with pytest.raises(ScopeRegError, match="does not say how large a pixel is"):
        cine[1]
    given = read_cine(path, spacing_mm=0.5)
    assert [frame.spacing_mm for frame in given] == [(0.5, 0.5)] * 3
    assert "of each frame of the file says 0.3 x 0.2 mm" in given[0].facts["notes"][0]
    made.PerFrameFunctionalGroupsSequence = [group(0.2, 0.3)] * 3
    alike = read_cine(saved(made))
    assert (alike.spacing_mm, alike.spacings_mm) == ((0.3, 0.2), None)
    made.PerFrameFunctionalGroupsSequence = [group(0.2, 0.3)] * 2  # of two frames of three
    with pytest.raises(ScopeRegError, match="does not say how large a pixel is"):
        read_cine(saved(made))


def test_times_may_be_listed(make_dicom: Make, saved: Make) -> None:
    cine = read_cine(saved(make_dicom(IMAGES, FrameTimeVector=[0, 30, 50])), spacing_mm=1)
    assert cine.times_s == pytest.approx((0, 0.03, 0.08))


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("space", ["RGB", "YBR_FULL"])
def test_colours_become_their_brightness(make_dicom: Make, saved: Make, space: str, compressed: bool) -> None:
    stored = convert_color_space(COLOURS, "RGB", space)
    made = make_dicom(stored, SamplesPerPixel=3, PlanarConfiguration=0, PhotometricInterpretation=space)
    if compressed:
        made.compress(RLELossless)
    cine = read_cine(saved(made), spacing_mm=0.3)
    assert len(cine) == 2
    for index in range(2):
        assert np.abs(cine[index].numpy() - LUMA[index]).max() < (0.002 if space == "RGB" else 0.02)


def test_a_colour_box_is_left_out_of_its_region(make_dicom: Make, make_region: Make, saved: Make) -> None:
    pixels = np.repeat(np.random.default_rng(5).integers(20, 200, (60, 80, 1), np.uint8), 3, -1)
    pixels[20:40, 30:60] = (220, 40, 10)
    made = make_dicom(
        pixels,
        SamplesPerPixel=3,
        PlanarConfiguration=0,
        PhotometricInterpretation="RGB",
        regions=[make_region((10, 10, 69, 59))],
    )
    frame = read_frame(saved(made))
    assert frame.mask is not None
    assert not frame.mask[10:30, 20:50].any()
    assert int((~frame.mask).sum()) == pytest.approx(24 * 34, abs=10)  # with two pixels all around it
    assert frame.facts["notes"] == [f"colour overlay covers {frame.masked_share:.0%}, left out"]


def test_palettes_are_looked_up(make_dicom: Make, saved: Make) -> None:
    table = np.random.default_rng(2).integers(0, 256, (256, 3)).astype(np.uint16)
    tags: dict[str, Any] = {"PhotometricInterpretation": "PALETTE COLOR"}
    for colour, values in zip(("Red", "Green", "Blue"), table.T, strict=True):
        tags[f"{colour}PaletteColorLookupTableDescriptor"] = [256, 0, 16]
        tags[f"{colour}PaletteColorLookupTableData"] = (values * 257).tobytes()
    frame = read_frame(saved(make_dicom(IMAGES[0], **tags)), spacing_mm=0.3)
    assert np.allclose(frame.numpy(), table[IMAGES[0]] @ [0.299, 0.587, 0.114] / 255, atol=0.005)


def test_white_on_black_is_turned(make_dicom: Make, saved: Make) -> None:
    frame = read_frame(saved(make_dicom(IMAGES[0], PhotometricInterpretation="MONOCHROME1")), spacing_mm=0.3)
    assert np.allclose(frame.numpy(), (255 - IMAGES[0]) / 255)


def test_sixteen_bits_stay_as_they_are(make_dicom: Make, saved: Make) -> None:
    deep = IMAGES[0].astype(np.uint16) * 16
    assert np.array_equal(read_frame(saved(make_dicom(deep)), spacing_mm=0.3).numpy(), deep)


def test_jpeg_is_decoded(make_dicom: Make, saved: Make, tmp_path: Path) -> None:
    image = sitk.GetImageFromArray(IMAGES[0].astype(np.float32))
    smooth = sitk.Cast(sitk.SmoothingRecursiveGaussian(image, 2.0), sitk.sitkUInt8)
    sitk.WriteImage(smooth, str(tmp_path / "a.jpg"))
    made = make_dicom(IMAGES[0])
    made.file_meta.TransferSyntaxUID = JPEGBaseline8Bit
    made.PixelData = encapsulate([(tmp_path / "a.jpg").read_bytes()])
    frame = read_frame(saved(made), spacing_mm=0.3)
    assert np.abs(frame.numpy() * 255 - sitk.GetArrayFromImage(smooth)).mean() < 2


def test_what_pydicom_cannot_decode_gdcm_does() -> None:
    before = locale.setlocale(locale.LC_ALL)
    packed, plain = (get_testdata_file(f"MR_small{name}.dcm") for name in ("_jpeg_ls_lossless", ""))
    assert np.array_equal(read_frame(packed).numpy(), read_frame(plain).numpy())
    assert locale.setlocale(locale.LC_ALL) == before


def test_the_child_agrees_on_every_frame_of_a_cine(make_dicom: Make, saved: Make) -> None:
    made = make_dicom(COLOURS, SamplesPerPixel=3, PlanarConfiguration=0, PhotometricInterpretation="RGB")
    made.compress(RLELossless)
    path = saved(made)
    pixels = decoding.StoredPixels(read_dataset(path), str(path))
    for index, colours in enumerate(COLOURS):
        assert np.array_equal(pixels.frame(index), colours)
        assert np.array_equal(decoding._by_child(made, index, pixels.layout, str(path))[0], colours)


def test_frames_come_in_any_order(make_dicom: Make, saved: Make, tmp_path: Path) -> None:
    """Frames that are read one by one are decoded several at a time; whoever jumps gets the right ones too."""
    frames = [np.full((40, 60), 10 * number, np.uint8) for number in range(25)]
    packed = []
    for number, frame in enumerate(frames):
        Image.fromarray(frame).save(tmp_path / f"{number}.jpg")
        packed.append((tmp_path / f"{number}.jpg").read_bytes())
    made = make_dicom(np.stack(frames))
    made.file_meta.TransferSyntaxUID = JPEGBaseline8Bit
    made.PixelData = encapsulate(packed)
    cine = read_cine(saved(made), spacing_mm=1)
    for index in [*range(25), 3, 4, 5, 5, 6, 8, 9, 7, 24, 0, *range(1, 25)]:
        assert cine[index].numpy()[3, 4] * 255 == pytest.approx(10 * index, abs=1)
    made.PixelData = encapsulate([*packed[:6], packed[6][:-20], *packed[7:]])
    cine = read_cine(saved(made), spacing_mm=1)
    for index in (0, 1, 2, 5, 7, 8):
        assert cine[index].numpy()[3, 4] * 255 == pytest.approx(10 * index, abs=1)
    with pytest.raises(ScopeRegError, match=r"frame 6: .* it is cut short"):
        cine[6]


def test_a_coding_that_nobody_can_decode_is_named(make_dicom: Make, saved: Make) -> None:
    made = make_dicom(IMAGES)
    made.file_meta.TransferSyntaxUID = MPEG4HP41
    made.PixelData = encapsulate([b"not a film at all!"])
    with pytest.raises(ScopeRegError, match="MPEG-4") as caught:
        read_frame(saved(made), spacing_mm=1, index=0)
    assert "uncompressed" in caught.value.fix


def test_without_a_pixel_size_it_is_asked_for(make_dicom: Make, make_region: Make, saved: Make) -> None:
    unusable = [
        make_region(BOX, spatial=3, kind=3, units=4),  # a Doppler spectrum
        make_region(BOX, units=0),  # a picture without a unit
        make_region(BOX, delta_cm=0.0),
    ]
    for regions in ([], unusable):
        path = saved(make_dicom(IMAGES[0], regions=regions))
        with pytest.raises(ScopeRegError, match="how large a pixel is") as caught:
            read_frame(path)
        assert "spacing_mm=" in caught.value.fix
    assert read_frame(path, spacing_mm=(0.3, 0.4)).spacing_mm == (0.3, 0.4)
    for wrong in (0, -1, (1, 2, 3), float("nan"), "wide"):
        with pytest.raises(ScopeRegError, match="the spacing is"):
            read_frame(path, spacing_mm=wrong)  # type: ignore[arg-type]


def test_pixel_spacing_holds_rows_first(make_dicom: Make, saved: Make) -> None:
    frame = read_frame(saved(make_dicom(IMAGES[0], PixelSpacing=[0.5, 0.25])))
    assert frame.spacing_mm == (0.25, 0.5)
    assert frame.facts["spacing_from"] == "PixelSpacing"


def test_a_given_spacing_wins_and_says_so(make_dicom: Make, make_region: Make, saved: Make) -> None:
    path = saved(make_dicom(IMAGES[0], regions=[make_region(BOX)]))
    frame = read_frame(path, spacing_mm=0.5)
    assert (frame.spacing_mm, frame.shape) == ((0.5, 0.5), (30, 40))
    assert frame.origin_mm == pytest.approx((5.0, 2.5))
    assert "0.2 x 0.1" in frame.facts["notes"][0]
    assert "notes" not in read_frame(path, spacing_mm=(0.2, 0.1)).facts


def test_a_region_beyond_the_image_shows_a_resized_copy(make_dicom: Make, make_region: Make, saved: Make) -> None:
    path = saved(make_dicom(IMAGES[0], regions=[make_region((0, 0, 119, 79))]))
    with pytest.raises(ScopeRegError, match="resized or cropped") as caught:
        read_frame(path)
    assert "spacing_mm=" in caught.value.fix
    assert read_frame(path, spacing_mm=0.4).shape == (40, 60)
    one_too_far = saved(make_dicom(IMAGES[0], regions=[make_region((0, 0, 60, 40))]), "b.dcm")  # some count from 1
    assert read_frame(one_too_far).shape == (40, 60)


def test_two_pictures_side_by_side_are_asked_about(make_dicom: Make, make_region: Make, saved: Make) -> None:
    left, right = make_region((0, 0, 29, 39)), make_region((30, 0, 59, 35), delta_cm=0.03)
    path = saved(make_dicom(IMAGES[0], regions=[left, right]))
    with pytest.raises(ScopeRegError, match="several pictures"):
        read_frame(path)
    frame = read_frame(path, region=1)
    assert frame.spacing_mm[0] == pytest.approx(0.3)
    assert np.allclose(frame.numpy(), IMAGES[0, :36, 30:] / 255)
    with pytest.raises(ScopeRegError, match="no 2D region 2"):
        read_frame(path, region=2)


def test_the_picture_is_told_from_what_surrounds_it(make_dicom: Make, make_region: Make, saved: Make) -> None:
    tissue = make_region((10, 0, 59, 29))
    others = [
        make_region((0, 30, 59, 39), kind=3, spatial=3, units=4),  # a spectrum
        make_region((20, 5, 50, 25), kind=2),  # the colour box inside of the picture
        make_region((0, 0, 8, 8)),  # a thumbnail
        make_region((12, 0, 59, 29)),  # nearly the same box twice
    ]
    frame = read_frame(saved(make_dicom(IMAGES[0], regions=[*others, tissue])))
    assert frame.facts["region"] == 4
    flow = read_frame(saved(make_dicom(IMAGES[0], regions=others[:2]), "b.dcm"))
    assert flow.facts["region_kind"] == "colour flow"


def test_files_that_hold_no_picture_are_refused(make_dicom: Make, saved: Make, tmp_path: Path) -> None:
    empty = make_dicom(IMAGES[0])
    del empty.PixelData
    with pytest.raises(ScopeRegError, match="no pixels"):
        read_frame(saved(empty), spacing_mm=1)
    del empty.Rows
    with pytest.raises(ScopeRegError, match="no image"):
        read_frame(saved(empty), spacing_mm=1)
    short = make_dicom(IMAGES[0])
    short.PixelData = short.PixelData[:-100]
    with pytest.raises(ScopeRegError, match="2300 bytes of pixels, its header promises 2400"):
        read_frame(saved(short), spacing_mm=1)
    (tmp_path / "b.dcm").write_bytes(b"hello" * 100)
    with pytest.raises(ScopeRegError, match="not a DICOM file"):
        read_frame(tmp_path / "b.dcm", spacing_mm=1)


def test_a_slice_tells_its_plane(make_dicom: Make, saved: Make) -> None:
    plane = {"ImagePositionPatient": [1, 2, 3], "ImageOrientationPatient": [0, 1, 0, 0, 0, -1]}
    frame = read_frame(saved(make_dicom(IMAGES[0], PixelSpacing=[0.5, 0.5], **plane)))
    assert frame.pose is not None
    assert frame.pose.name == "ImageToPatient"
    assert np.allclose(frame.pose.apply([2, 0, 0]), [1, 4, 3])
    assert np.allclose(frame.pose.apply([0, 2, 0]), [1, 2, 1])
    zeros = {"ImagePositionPatient": [0, 0, 0], "ImageOrientationPatient": [0] * 6}
    assert read_frame(saved(make_dicom(IMAGES[0], PixelSpacing=[1, 1], **zeros))).pose is None
