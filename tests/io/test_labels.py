"""Label maps: read strictly, named as 3D Slicer names them, laid on other grids by the nearest voxel."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from scopereg.errors import ScopeRegError
from scopereg.io.formats import ImageFile
from scopereg.io.labels import LabelMap, read_labels
from scopereg.io.packed import GZIP, packed_parts
from scopereg.io.read_image import write_image

SHAPE = (5, 6, 7)  # z y x
SPACING, ORIGIN = (0.5, 0.6, 0.7), (3.0, -2.0, 10.0)


def some_labels() -> np.ndarray:
    values = np.zeros(SHAPE, np.uint8)
    values[1:4, 2:5, 1:4] = 7
    values[3, 4, 5] = 2
    return values


def written(path: Path, values: np.ndarray, origin: tuple[float, ...] = ORIGIN) -> Path:
    return write_image(ImageFile(values, SPACING, origin, np.eye(3)), path)


def grid(spacing: tuple[float, ...] = SPACING, origin: tuple[float, ...] = ORIGIN) -> np.ndarray:
    matrix = np.diag([*spacing, 1.0])
    matrix[:3, 3] = origin
    return matrix


def segmentation(path: Path, values: np.ndarray, *words: str, axes: str = "domain domain domain") -> Path:
    """A .seg.nrrd as 3D Slicer writes it."""
    lines = [
        "NRRD0004",
        "# Complete NRRD file format specification at:",
        "type: unsigned char",
        f"dimension: {values.ndim}",
        "space: left-posterior-superior",
        f"sizes: {' '.join(map(str, values.shape[::-1]))}",
        f"space directions: {'none ' if values.ndim == 4 else ''}(0.5,0,0) (0,0.6,0) (0,0,0.7)",
        f"kinds: {axes}",
        "encoding: gzip",
        "space origin: (3,-2,10)",
        *words,
    ]
    parts = packed_parts([values.tobytes()], GZIP)
    path.write_bytes("\n".join([*lines, "", ""]).encode() + b"".join(parts))
    return path


@pytest.mark.parametrize("name", ["labels.nii.gz", "labels.nrrd", "labels.mha"])
@pytest.mark.parametrize("kind", [np.uint8, np.int16, np.float32])
def test_labels_are_as_they_were_written(tmp_path: Path, name: str, kind: Any) -> None:
    found = read_labels(written(tmp_path / name, some_labels().astype(kind)))
    assert [label.value for label in found.labels] == [2, 7]
    assert [label.name for label in found.labels] == ["label 2", "label 7"]
    assert len({label.colour for label in found.labels}) == 2
    assert np.array_equal(found.voxels, np.select([some_labels() == 2, some_labels() == 7], [1, 2]))
    assert np.allclose(found.index_to_world, grid(), atol=1e-5)


def test_names_and_colours_of_3d_slicer(tmp_path: Path) -> None:
    words = (
        "Segment0_Name:=Prostata größer",
        "Segment0_LabelValue:=7",
        "Segment0_Color:=0.5 0.25 1",
        "Segment0_Layer:=0",
        "Segment1_Name:=two\\nlines\x7f and more",
        "Segment1_LabelValue:=2",
        "Segment1_Layer:=0",
        "Segment1_Color:=much nan",
        "Segmentation_MasterRepresentation:=Binary labelmap",
    )
    second, first = read_labels(segmentation(tmp_path / "organ.seg.nrrd", some_labels(), *words)).labels
    assert (first.value, first.name, first.colour) == (7, "Prostata größer", (128, 64, 255))
    assert second.name == "two\\nlines and more"
    assert second.value == 2


def test_segments_that_overlap_are_refused(tmp_path: Path) -> None:
    layers = np.stack([some_labels(), some_labels()], axis=-1)
    path = segmentation(tmp_path / "a.seg.nrrd", layers, axes="list domain domain domain")
    with pytest.raises(ScopeRegError, match="2 layers of labels, which overlap") as error:
        read_labels(path)
    assert "label map" in error.value.fix
    words = ("Segment0_LabelValue:=7", "Segment0_Layer:=0", "Segment1_LabelValue:=2", "Segment1_Layer:=1")
    with pytest.raises(ScopeRegError, match="several layers"):
        read_labels(segmentation(tmp_path / "b.seg.nrrd", some_labels(), *words))


@pytest.mark.parametrize(
    ("values", "what"),
    [
        (some_labels() * 0, "nothing is labelled"),
        (some_labels() * np.float32(0.5), "not whole"),
        (some_labels().astype(np.int16) * -1, "the label -7"),
        (some_labels() * np.float64(1e30), "the label 7e"),
        (np.where(some_labels() == 7, np.nan, 0).astype(np.float32), "not whole"),
        (np.arange(np.prod(SHAPE) * 2).reshape(10, 6, 7).astype(np.int32), "419 different labels"),
    ],
)
def test_what_is_no_label_map_is_refused(tmp_path: Path, values: np.ndarray, what: str) -> None:
    with pytest.raises(ScopeRegError, match=what):
        read_labels(written(tmp_path / "labels.nii.gz", values))


def test_on_its_own_grid_a_map_stays_as_it_is(tmp_path: Path) -> None:
    found = read_labels(written(tmp_path / "labels.mha", some_labels()))
    laid = found.on_grid(SHAPE, grid())
    assert np.array_equal(laid.voxels, found.voxels)
    assert laid.outside == 0


def test_on_another_grid_the_nearest_voxel_counts(tmp_path: Path) -> None:
    """Compared with a plain search over all voxels, for a grid that is turned, moved and coarser."""
    found = read_labels(written(tmp_path / "labels.mha", some_labels()))
    turn = np.array([[0.8, -0.6, 0], [0.6, 0.8, 0], [0, 0, 1.0]])
    matrix = np.eye(4)
    matrix[:3, :3], matrix[:3, 3] = turn * [0.7, 0.7, 0.9], (3.1, -2.3, 10.2)
    laid = found.on_grid((4, 5, 5), matrix).voxels
    wanted = np.zeros_like(laid)
    for z, y, x in np.ndindex(*laid.shape):
        place = np.linalg.inv(grid()) @ matrix @ [x, y, z, 1]
        i, j, k = np.floor(place[:3] + 0.5).astype(int)
        if 0 <= i < 7 and 0 <= j < 6 and 0 <= k < 5:
            wanted[z, y, x] = found.voxels[k, j, i]
    assert wanted.any()
    assert np.array_equal(laid, wanted)


def test_how_much_lies_outside_is_told_and_all_of_it_is_refused(tmp_path: Path) -> None:
    found = read_labels(written(tmp_path / "labels.mha", some_labels()))
    half = found.on_grid((2, 6, 7), grid())  # the first two layers: 9 of 28 labelled voxels
    assert half.outside == pytest.approx(19 / 28)
    with pytest.raises(ScopeRegError, match="none of its labelled voxels") as error:
        found.on_grid(SHAPE, grid(origin=(300.0, 0.0, 0.0)))
    assert "frame of reference" in error.value.fix


def without_place(path: Path, values: np.ndarray) -> LabelMap:
    lines = ["NRRD0001", "type: uchar", f"dimension: {values.ndim}", f"sizes: {' '.join(map(str, values.shape[::-1]))}"]
    lines += [f"spacings: 0.5 0.6 0.7{' 1' * (values.ndim - 3)}", "encoding: gzip", "", ""]
    path.write_bytes("\n".join(lines).encode() + b"".join(packed_parts([values.tobytes()], GZIP)))
    return read_labels(path)


def test_a_map_that_says_nothing_of_its_place_needs_the_same_grid(tmp_path: Path) -> None:
    found = without_place(tmp_path / "labels.nrrd", some_labels())
    assert not found.states_place
    found.check_grid(SHAPE, grid(origin=(0, 0, 0)))
    for shape, matrix in (((5, 6, 8), grid(origin=(0, 0, 0))), (SHAPE, grid())):
        with pytest.raises(ScopeRegError, match="nobody can tell where its labels lie"):
            found.check_grid(shape, matrix)


def test_several_maps_in_one_file_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ScopeRegError, match="no label map of a volume"):
        without_place(tmp_path / "labels.nrrd", np.stack([some_labels(), some_labels()]))
