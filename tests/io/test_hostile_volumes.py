"""Volumes that are damaged or made to do harm: refused with words before memory is taken, never read in silence."""

from __future__ import annotations

import gzip
import os
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from mutations import survive
from volume_files import IMAGE, META, VOXELS, meta, nifti, nrrd, packed_file

from scopereg.errors import ScopeRegError
from scopereg.io import read_cine, read_volume
from scopereg.io.formats import ImageHeader
from scopereg.io.limits import limit_of
from scopereg.io.metaimage import MetaSequence, write_metaimage
from scopereg.io.read_image import read_header, read_image, read_with_header, write_image


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ([(112, "f", np.inf)], "scaled by inf"),
        ([(116, "f", np.nan)], "scaled by"),
        ([(108, "f", np.nan)], "begin at byte nan"),
        ([(108, "f", 0)], "begin at byte 0"),
        ([(108, "f", 348)], "begin at byte 348"),
        ([(108, "f", -352)], "begin at byte -352"),
        ([(108, "f", 352.5)], "begin at byte 352.5"),
        ([(108, "f", 1e30)], r"begin at byte 1e\+30"),
        ([(40, "8h", [3, 0, 10, 6, 1, 1, 1, 1])], "its sizes are"),
        ([(40, "8h", [3, -12, 10, 6, 1, 1, 1, 1])], "its sizes are"),
        ([(40, "8h", [0, 12, 10, 6, 1, 1, 1, 1])], "its sizes are"),
        ([(40, "8h", [16, 12, 10, 6, 1, 1, 1, 1])], "its sizes are"),
        ([(40, "8h", [5, 12, 10, 1, 2, 3, 1, 1])], "it has 5 axes"),
        ([(40, "8h", [1, 720, 1, 1, 1, 1, 1, 1])], "it has 1 axes"),
        ([(40, "8h", [3, 32767, 32767, 32767, 1, 1, 1, 1])], "limit is 4 GB"),
        ([(40, "8h", [3, 12, 10, 7, 1, 1, 1, 1])], "cut short"),
        ([(70, "h", 32)], "type 32"),
        ([(70, "h", 128), (72, "h", 24)], "3 numbers"),
        ([(70, "h", 1536)], "type 1536"),
        ([(72, "h", 16)], "contradicts itself: 16 bits"),
        ([(80, "f", np.nan)], "measure nan"),
        ([(80, "f", -0.5)], "measure -0.5"),
        ([(80, "f", np.inf)], "measure inf"),
        ([(80, "f", 1e30), (252, "2h", [0, 0])], r"sizes of its voxels are 1e\+30"),
        ([(123, "B", 1)], "metres"),
        ([(123, "B", 7)], "code 7"),
        ([(256, "f", np.nan), (254, "h", 0)], "no rotation"),
        ([(256, "3f", [1, 1, 1]), (254, "h", 0)], "no rotation"),
        ([(268, "f", np.nan), (254, "h", 0)], "qform holds numbers that are no places"),
        ([(280, "12f", [np.nan] * 12), (252, "h", 0)], "sform holds numbers that are no places"),
        ([(280, "12f", [1e30] * 12), (252, "h", 0)], "sform holds numbers that are no places"),
        ([(280, "12f", [0.0] * 12), (252, "h", 0)], "sheared"),
        ([(344, "4s", b"ni1\0")], "another file"),
        ([(344, "4s", b"\0\0\0\0")], "its mark is missing"),
    ],
)
def test_nifti_headers_that_cannot_be_are_refused(
    tmp_path: Path, changes: list[tuple[int, str, object]], words: str
) -> None:
    for name in ("a.nii", "a.nii.gz"):
        if isinstance(changes[0][2], bytes):
            path = nifti(tmp_path / name)
            content = path.read_bytes()
            content = gzip.decompress(content) if name.endswith(".gz") else content
            content = content[:344] + changes[0][2] + content[348:]
            path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
        else:
            path = nifti(tmp_path / name, *changes)
        with pytest.raises(ScopeRegError, match=words) as caught:
            read_volume(path)
        assert caught.value.where == str(path)
        assert caught.value.fix


def test_what_a_nifti_header_leaves_open_is_told(tmp_path: Path) -> None:
    assert read_volume(nifti(tmp_path / "a.nii")).facts["notes"] == []
    notes = read_volume(nifti(tmp_path / "a.nii", (123, "B", 0))).facts["notes"]
    assert notes == ["the NIfTI header states no unit; its sizes are taken as mm"]
    notes = read_volume(nifti(tmp_path / "a.nii", (112, "f", np.nan))).facts["notes"]
    assert notes == ["the slope of the NIfTI header is NaN; values are taken as stored"]
    notes = read_volume(nifti(tmp_path / "a.nii", (252, "2h", [0, 0]))).facts["notes"]
    assert notes == ["the NIfTI header states no orientation; its axes are taken as LPS"]


PLACED = "space: LPS\nspace directions: (1,0,0) (0,1,0) (0,0,1)\nspace origin: (0,0,0)\n"


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("spacings: 1 1 1", "spacings: nan 1 1", "how large a voxel is"),
        ("spacings: 1 1 1\n", "", "how large a voxel is"),
        ("spacings: 1 1 1", "spacings: inf 1 1", "measure inf"),
        ("spacings: 1 1 1", "spacings: -1 1 1", "measure -1"),
        ("spacings: 1 1 1", "spacings: 0 1 1", "measure 0"),
        ("spacings: 1 1 1", "spacings: 1 1", "not 3 numbers"),
        ("spacings: 1 1 1", "spacings: 1 1 1\nspacings: 2 2 2", "twice"),
        ("spacings: 1 1 1", 'spacings: 1 1 1\nunits: "cm" "cm" "cm"', "unit is 'cm'"),
        ("spacings: 1 1 1", 'spacings: 1 1 1\nunits: "m" "m" "m"', "unit is 'm'"),
        ("spacings: 1 1 1\n", PLACED + 'space units: "um" "um" "um"\n', "unit is 'um'"),
        ("spacings: 1 1 1\n", PLACED.replace("0,0)", "nan,0)"), "space directions"),
        ("spacings: 1 1 1\n", PLACED.replace("(1,0,0)", "(0,0,0)"), "space directions"),
        ("spacings: 1 1 1\n", PLACED.replace("(1,0,0)", "(1,0.5,0)"), "sheared"),
        ("spacings: 1 1 1\n", PLACED.replace("(1,0,0)", "(0,1,0)"), "sheared"),
        ("spacings: 1 1 1\n", PLACED.replace("(1,0,0)", "none"), "axis of voxels none"),
        ("spacings: 1 1 1\n", PLACED.replace("(1,0,0)", "(1,0)"), "not 3 numbers"),
        ("spacings: 1 1 1\n", PLACED.replace("n: (0,0,0)", "n: (nan,0,0)"), "place of its first voxel"),
        ("spacings: 1 1 1\n", PLACED.replace("space: LPS\n", ""), "lacks 'space'"),
        ("spacings: 1 1 1\n", PLACED.replace("LPS", "right-up"), "its space is 'right-up'"),
        ("spacings: 1 1 1\n", PLACED + "spacings: 1 1 1\n", "beside 'space directions'"),
        ("spacings: 1 1 1", "spacings: 1 1 1\nkinds: RGB-color domain domain", "each voxel holds 12 numbers"),
        ("spacings: 1 1 1", "spacings: 1 1 1\nkinds: domain domain", "2 entries for 3 axes"),
        ("dimension: 3", "dimension: 16", "16 numbers|reads"),
        ("dimension: 3", "dimension: 17", "it has 17 axes"),
        ("dimension: 3", "dimension: -3", "it has -3 axes"),
        ("dimension: 3", "dimension: three", "dimension"),
        ("sizes: 12 10 6", "sizes: 12 10 0", "its sizes are"),
        ("sizes: 12 10 6", "sizes: 12 10 -6", "its sizes are"),
        ("sizes: 12 10 6", "sizes: 99999 99999 99999", "limit is 4 GB"),
        ("sizes: 12 10 6", "sizes: 9999999999999999999 9999999999999999999 6", "more than a billion GB"),
        ("type: uchar", "type: block", "type"),
        ("type: uchar", "type: short", "endian"),
        ("encoding: raw", "encoding: hex", "encoding"),
        ("encoding: raw", "encoding: raw\nline skip: -1", "skip -1 lines"),
        ("encoding: raw", "encoding: raw\nbyte skip: -2", "skip 0 lines and -2 bytes"),
        ("encoding: raw", "encoding: raw\nbyte skip: 99999999999", "skip"),
        ("encoding: raw", "encoding: raw\nline skip: 99999999999", "skip"),
        ("encoding: raw", "encoding: raw\nline skip: 1000", "not there"),
        ("encoding: raw", "encoding: raw\nbyte skip: 721", "skip"),
        ("encoding: raw", "encoding: raw\nsecret: 1", "does not know"),
        ("encoding: raw", "encoding: raw\nno field", "no field"),
        ("encoding: raw\n", "encoding: raw\rdata file: /etc/passwd\n", "does not end as lines do"),
        ("encoding: raw", "encoding: raw\ndata file: /etc/passwd", "another file"),
        ("encoding: raw", "encoding: raw\ndatafile: b.raw", "another file"),
        ("encoding: raw", "encoding: raw\nDATA FILE: LIST\n/etc/passwd", "another file"),
        ("encoding: raw", "encoding: raw\ndata file: b%d.raw 0 5 1", "another file"),
        ("NRRD0004", "NRRD0009", "no NRRD file"),
    ],
)
def test_nrrd_headers_that_cannot_be_are_refused(tmp_path: Path, old: str, new: str, words: str) -> None:
    path = nrrd(tmp_path / "a.nrrd", "raw", (old, new))
    with pytest.raises(ScopeRegError, match=words) as caught:
        read_volume(path)
    assert caught.value.where == str(path)
    assert caught.value.fix


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ("space: scanner-xyz", "the space of the NRRD header is scanner-xyz; it is taken as LPS"),
        ("space dimension: 3", "the NRRD header does not say which way is left; its space is taken as LPS"),
    ],
)
def test_what_an_nrrd_header_leaves_open_is_told(tmp_path: Path, lines: str, words: str) -> None:
    path = nrrd(tmp_path / "a.nrrd", "raw", ("spacings: 1 1 1\n", PLACED.replace("space: LPS", lines)))
    assert read_volume(path).facts["notes"] == [words]
    notes = read_volume(nrrd(tmp_path / "a.nrrd")).facts["notes"]
    assert notes == ["the NRRD header states no orientation; its axes are taken as LPS"]
    path = nrrd(tmp_path / "a.nrrd", "raw", ("spacings: 1 1 1\n", PLACED.replace("space origin: (0,0,0)\n", "")))
    assert "states no origin" in read_volume(path).facts["notes"][0]


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (["ElementSpacing = 2 2 2"], "'ElementSpacing' twice"),
        (["DimSize = 1 1 1"], "'DimSize' twice"),
        (["no sign"], "no field"),
        (["Comment = a\rElementDataFile = /etc/passwd"], "does not end as lines do"),
        (["Offset = nan 0 0"], "place of its first voxel"),
        (["Offset = 0 0"], "not 3 numbers"),
        (["Offset = 0 0 0", "Position = 1 1 1"], "'Offset' and as 'Position'"),
        (["TransformMatrix = 1 0 0 0 1 0 0 0 nan"], "no directions in space"),
        (["TransformMatrix = 1 0 0 0 1 0 0 0 0"], "no directions in space"),
        (["TransformMatrix = 1 0 0 0.6 0.8 0 0 0 1"], "sheared"),
        (["TransformMatrix = 1 0 0 0 1 0 0 0 1", "Rotation = 1 0 0 0 1 0 0 0 1"], "as 'Rotation'"),
        (["ElementNumberOfChannels = 0"], "each of its pixels holds 0"),
        (["ElementNumberOfChannels = 3"], "each voxel holds 3"),
        (["CompressedData = perhaps"], "CompressedData"),
        (["CompressedData = True", "CompressedDataSize = 7"], "goes on"),
        (["CompressedData = True", "CompressedDataSize = 99999"], "cut short"),
        (["CompressedData = True"], "damaged"),
        (["HeaderSize = 5"], "cut short"),
        (["HeaderSize = -2"], "skip -2"),
        (["HeaderSize = 99999999"], "skip 99999999"),
        (["BinaryData = False"], "cut short|no numbers"),
        (["BinaryDataByteOrderMSB = True", "ElementByteOrderMSB = False"], "as 'ElementByteOrderMSB'"),
        (["DistanceUnits = cm"], "unit is 'cm'"),
        (["ElementDataFile = /etc/passwd"], "another file"),
        (["ElementDataFile = LIST", "/etc/passwd"], "another file"),
        (["ElementDataFile = b%03d.raw 1 6 1"], "another file"),
        (["Comment = " + "x" * 70_000, "ElementDataFile = /etc/passwd"], "does not end as lines do"),
        (["Filler = 1"] * 2, "twice"),
    ],
)
def test_metaimage_headers_that_cannot_be_are_refused(tmp_path: Path, lines: list[str], words: str) -> None:
    path = meta(tmp_path / "a.mha", *lines)
    with pytest.raises(ScopeRegError, match=words) as caught:
        read_volume(path)
    assert caught.value.where == str(path)
    assert caught.value.fix


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("ElementSpacing = 1 1 1\n", "", "how large a voxel is"),
        ("ElementSpacing = 1 1 1", "ElementSpacing = nan 1 1", "sizes of its voxels"),
        ("ElementSpacing = 1 1 1", "ElementSpacing = 0 1 1", "measure 0"),
        ("ElementSpacing = 1 1 1", "ElementSpacing = 1 1 -1", "measure"),
        ("ElementSpacing = 1 1 1", "ElementSpacing = 1,1,1", "not 3 numbers"),
        ("NDims = 3", "NDims = 16", "DimSize"),
        ("DimSize = 12 10 6", "DimSize = 12 10", "DimSize"),
        ("DimSize = 12 10 6", "DimSize = 12 10 0", "sizes 12 10 0"),
        ("DimSize = 12 10 6", "DimSize = 99999 99999 99999", "limit is 4 GB"),
        ("MET_UCHAR", "MET_OTHER", "ElementType"),
        ("MET_UCHAR", "MET_LONG_DOUBLE", "ElementType"),
        ("ObjectType = Image", "ObjectType = Tube", "no image"),
        ("ObjectType = Image\n", "Nonsense = 1\n", "not a MetaImage"),
    ],
)
def test_metaimage_fields_that_cannot_be_are_refused(tmp_path: Path, old: str, new: str, words: str) -> None:
    path = meta(tmp_path / "a.mha", header=META.replace(old, new))
    with pytest.raises(ScopeRegError, match=words):
        read_volume(path)


def test_nan_voxels_are_refused_with_a_way_to_fix_them(tmp_path: Path) -> None:
    """In NIfTI they were read as 0."""
    for value in (np.nan, np.inf, -np.inf):
        holes = VOXELS.astype(np.float32)
        holes[0, 0, 0] = value
        for ending in (".nii", ".nii.gz", ".nrrd", ".mha"):
            path = write_image(IMAGE._replace(array=holes), tmp_path / f"a{ending}")
            with pytest.raises(ScopeRegError, match="1 of 720 values are NaN or infinite") as caught:
                read_volume(path)
            assert "nan_to_num" in caught.value.fix


@pytest.mark.parametrize("ending", [".mhd", ".nhdr"])
class TestDetached:
    """Headers whose voxels lie in a second file: only a plain file of the same folder, and only where that is taken."""

    def write(self, folder: Path, ending: str, name: str) -> Path:
        path = folder / f"a{ending}"
        if ending == ".mhd":
            return meta(path, last=f"ElementDataFile = {name}\n", content=b"")
        return nrrd(path, "raw", ("encoding: raw", f"encoding: raw\ndata file: {name}"), packed=b"")

    def test_a_file_beside_it_is_read(self, tmp_path: Path, ending: str) -> None:
        (tmp_path / "b.raw").write_bytes(VOXELS.tobytes())
        for name in ("b.raw", "./b.raw"):
            path = self.write(tmp_path, ending, name)
            assert np.array_equal(read_image(path).array, VOXELS)
            assert [one.name for one in read_header(path).files] == [f"a{ending}", "b.raw"]
        with pytest.raises(ScopeRegError, match="its voxels are in another file"):
            read_volume(path, detached=False)
        (tmp_path / "b.raw").write_bytes(VOXELS.tobytes()[:-1])
        with pytest.raises(ScopeRegError, match="cut short") as caught:
            read_image(path)
        assert caught.value.where == str(path)

    @pytest.mark.parametrize(
        "name", ["/etc/passwd", "../b.raw", "inner/b.raw", "..", ".", "", "inner\\b.raw", "LIST", "b%d.raw 0 5 1"]
    )
    def test_other_places_are_refused(self, tmp_path: Path, ending: str, name: str) -> None:
        (tmp_path / "inner").mkdir()
        for folder in (tmp_path / "inner", tmp_path.parent):
            (folder / "b.raw").write_bytes(VOXELS.tobytes())
        with pytest.raises(ScopeRegError, match=r"said to lie in|several files|no file of"):
            read_image(self.write(tmp_path, ending, name))

    def test_links_devices_and_pipes_are_refused(self, tmp_path: Path, ending: str) -> None:
        folder = tmp_path / "data"
        folder.mkdir()
        (tmp_path / "secret.raw").write_bytes(VOXELS.tobytes())
        (folder / "link.raw").symlink_to(tmp_path / "secret.raw")
        (folder / "zero.raw").symlink_to("/dev/zero")
        (folder / "folder.raw").mkdir()
        os.mkfifo(folder / "pipe.raw")
        for name in ("link.raw", "zero.raw", "folder.raw", "pipe.raw"):
            with pytest.raises(ScopeRegError, match="no file of this folder"):
                read_image(self.write(folder, ending, name))
        with pytest.raises(ScopeRegError, match=r"voxels are missing: none\.raw"):
            read_image(self.write(folder, ending, "none.raw"))


SHORT = "NRRD0004\ntype: uchar\ndimension: 3\nsizes: 4 4 4\nspacings: 1 1 1\nencoding: raw"
MHA = "ObjectType = Image\nNDims = 3\nDimSize = 4 4 4\nElementType = MET_UCHAR\nElementSpacing = 1 1 1\n"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        # What a check by words took for the header of one file, and ITK for one that names another.
        ("a.nrrd", SHORT + "\rdata file: {secret}\n\n"),
        ("a.nrrd", SHORT + "\ndata file: {secret}\n\n"),
        ("a.nrrd", SHORT + "\nDataFile: {secret}\n\n"),
        ("a.nrrd", SHORT + "\ndata file: LIST\n{secret}\n\n"),
        ("a.nrrd", SHORT.replace("encoding: raw", "encoding: raw\r\rdata file: {secret}") + "\n\n"),
        ("a.mha", MHA + "ElementDataFile = {secret}\n"),
        ("a.mha", MHA + "Comment\nElementDataFile = LOCAL\nElementDataFile = {secret}\n"),
        ("a.mha", MHA + "ElementDataFile\n= {secret}\nElementDataFile = LOCAL\n"),
        ("a.mha", MHA + "ElementDataFile : {secret}\nElementDataFile = LOCAL\n"),
        ("a.mha", MHA + "Comment = " + "x" * 66_000 + "\nElementDataFile = {secret}\n"),
        ("a.mha", MHA + "".join(f"Field{k} = {'x' * 999}\n" for k in range(70)) + "ElementDataFile = {secret}\n"),
        ("a.mhd", MHA + "ElementDataFile = secret.raw\n"),
        ("a.nhdr", SHORT + "\ndata file: secret.raw\n\n"),
    ],
)
@pytest.mark.parametrize("content", [b"", bytes(64)])
def test_no_header_gives_another_file_away(tmp_path: Path, name: str, text: str, content: bytes) -> None:
    secret = tmp_path / "secret.raw"
    secret.write_bytes(bytes(range(64)))
    (tmp_path / name).write_bytes(text.replace("{secret}", str(secret)).encode() + content)
    with pytest.raises(ScopeRegError) as caught:
        read_volume(tmp_path / name, detached=False)
    assert caught.value.fix


def test_many_axes_do_not_end_the_process(tmp_path: Path) -> None:
    """ITK's reader did, by a segmentation fault."""
    text = SHORT.replace("dimension: 3", "dimension: 16").replace("4 4 4", "2 " * 16).replace("1 1 1", "1 " * 16)
    (tmp_path / "a.nrrd").write_bytes(text.encode() + b"\n\n" + bytes(2**16))
    with pytest.raises(ScopeRegError, match="it has 16 axes"):
        read_volume(tmp_path / "a.nrrd")


def checked(path: Path) -> tuple[ImageHeader, np.ndarray]:
    with limit_of(0.02):
        return read_with_header(path)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("kind", ["nii", "nii.gz", "nrrd", "nrrd-gzip", "nrrd-bzip2", "mha-raw", "mha"])
def test_mutations_are_refused_or_read_as_their_header_says(tmp_path: Path, kind: str, seed: int) -> None:
    """Of a file with a checksum the voxels are the same to the bit, or it is refused."""
    makers: dict[str, Callable[[], Path]] = {
        "nii": lambda: nifti(tmp_path / "seed.nii"),
        "nrrd": lambda: nrrd(tmp_path / "seed.nrrd", "raw", ("spacings: 1 1 1\n", PLACED)),
        "mha-raw": lambda: meta(tmp_path / "seed.mha", "Offset = 1 2 3", "TransformMatrix = 1 0 0 0 1 0 0 0 1"),
    }
    path = makers[kind]() if kind in makers else packed_file(tmp_path, kind)[0]
    content = path.read_bytes()

    def check(found: tuple[ImageHeader, np.ndarray]) -> None:
        header, array = found
        assert array.shape == header.size[::-1]
        assert np.isfinite(array).all()
        assert np.isfinite([*header.spacing_mm, *header.origin_mm, *header.direction.ravel()]).all()
        assert min(header.spacing_mm) > 0
        if kind == "nii.gz":
            assert np.array_equal(array, VOXELS)
        elif kind not in makers:  # what the text before the stream says of its bytes may change
            swapped = array.byteswap().tobytes()
            assert VOXELS.tobytes() in (array.tobytes(), swapped)

    name = path.name.partition(".")
    tracemalloc.start()
    try:
        ends = survive(checked, content, tmp_path / f"a.{name[2]}", 150, seed, check=check)
        assert tracemalloc.get_traced_memory()[1] < 2 * 0.02 * 2**30 + 20e6
    finally:
        tracemalloc.stop()
    assert ends["refused"] > 30
    assert not ends["refused without words"]


@pytest.mark.parametrize("compressed", [False, True])
def test_mutations_of_sequences_are_refused_or_read(tmp_path: Path, compressed: bool) -> None:
    frames = [
        {
            "ImageToVolumeTransform": "0.5 0 0 1 0 0.5 0 2 0 0 0.5 3 0 0 0 1",
            "ImageToVolumeTransformStatus": "OK",
            "Timestamp": str(row),
            "ImageStatus": "OK",
        }
        for row in range(6)
    ]
    path = write_metaimage(MetaSequence({}, frames, VOXELS), tmp_path / "seed.igs.mha", compressed=compressed)
    ends = survive(lambda path: list(read_cine(path)), path.read_bytes(), tmp_path / "a.igs.mha", 200)
    assert ends["refused"] > 30
    assert not ends["refused without words"]
