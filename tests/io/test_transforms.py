"""Poses as files: the right direction in both conventions, the same matrix in every format, golden files."""

from __future__ import annotations

import json
import re
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import SimpleITK as sitk
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from mutations import survive

from scopereg.errors import ScopeRegError
from scopereg.geometry import Pose, ras_from_lps, sample_slice
from scopereg.images import Frame, Volume, pose_to_voxels
from scopereg.io import read_pose, write_frame, write_pose, write_volume
from scopereg.io.transforms import Convention, stored_matrix

GOLDEN = Path(__file__).parent / "golden"
# Angles whose sines and cosines are short numbers: 90 degrees about x, then 3-4-5 about z.
POSE = Pose(np.array([[0.6, 0, 0.8], [0.8, 0, -0.6], [0, 1.0, 0]]), (10.0, -20.5, 30.25))
OBLIQUE = Pose.from_euler_deg((12, -34, 56), (7.5, -8.25, 9.125))
CONVENTIONS: tuple[Convention, ...] = ("slicer", "itk-resample")


def images() -> tuple[Frame, Volume, Pose]:
    """A frame cut by torch out of an oblique volume with a smooth pattern."""
    z, y, x = torch.meshgrid(torch.arange(20.0), torch.arange(24.0), torch.arange(28.0), indexing="ij")
    pattern = 2 + torch.sin(x / 3) + torch.cos(y / 4 + z / 5)
    axes = Pose.from_euler_deg((20, 10, -30), (0, 0, 0)).rotation
    volume = Volume(pattern, spacing_mm=0.5, origin_mm=(11, -12, 13), direction=axes)
    middle = volume.centre_mm - np.array([0.3, 0.4, -0.2])
    turn = Pose.from_euler_deg((25, -5, 15), (0, 0, 0)).rotation
    frame = Frame(torch.zeros(9, 11), spacing_mm=0.5, origin_mm=(3.0, 1.5))
    pose = Pose(turn, middle - turn @ frame.centre_mm)
    cut = sample_slice(volume.array, *pose_to_voxels(pose, frame, volume), slice_shape=(9, 11))
    assert float(cut.min()) > 0  # all of it inside
    return Frame(cut, spacing_mm=0.5, origin_mm=(3.0, 1.5)), volume, pose


@pytest.mark.parametrize(
    ("name", "convention"), [("slicer.tfm", "slicer"), ("itk-resample.tfm", "itk-resample"), ("matrix.txt", "slicer")]
)
def test_files_are_the_golden_ones(tmp_path: Path, name: str, convention: Convention) -> None:
    path = write_pose(POSE, tmp_path / name, convention=convention)
    assert path.read_text() == (GOLDEN / name).read_text()


def test_the_golden_files_mean_what_they_say() -> None:
    """Read without any of our code but the pose."""
    corner = (0.0, 0.0, 0.0)
    assert np.allclose(sitk.ReadTransform(str(GOLDEN / "itk-resample.tfm")).TransformPoint(corner), (10, -20.5, 30.25))
    slicer = sitk.ReadTransform(str(GOLDEN / "slicer.tfm"))
    assert np.allclose(slicer.TransformPoint((10, -20.5, 30.25)), corner)
    assert np.allclose(slicer.GetInverse().TransformPoint((1.0, 2.0, 0.0)), POSE.apply((1, 2, 0)))
    assert np.allclose(np.loadtxt(GOLDEN / "matrix.txt"), POSE.matrix)


@pytest.mark.parametrize("convention", CONVENTIONS)
@pytest.mark.parametrize("ending", [".tfm", ".h5"])
def test_itk_reads_the_matrix_that_was_written(tmp_path: Path, ending: str, convention: Convention) -> None:
    transform = sitk.ReadTransform(str(write_pose(OBLIQUE, tmp_path / f"a{ending}", convention=convention)))
    affine = sitk.AffineTransform(transform)
    assert np.allclose(np.reshape(affine.GetMatrix(), (3, 3)), stored_matrix(OBLIQUE, convention)[:3, :3], atol=1e-14)
    assert np.allclose(affine.GetTranslation(), stored_matrix(OBLIQUE, convention)[:3, 3], atol=1e-12)
    assert affine.GetCenter() == (0, 0, 0)


@pytest.mark.parametrize("ending", [".tfm", ".h5"])
def test_resampling_the_volume_in_itk_gives_the_frame(tmp_path: Path, ending: str) -> None:
    frame, volume, pose = images()
    moving = sitk.ReadImage(str(write_volume(volume, tmp_path / "v.nii.gz")))
    fixed = sitk.ReadImage(str(write_frame(frame, tmp_path / "f.nii.gz")))
    straight = sitk.ReadTransform(str(write_pose(pose, tmp_path / f"a{ending}", convention="itk-resample")))
    back = sitk.ReadTransform(str(write_pose(pose, tmp_path / f"b{ending}"))).GetInverse()
    for transform in (straight, back):
        cut = sitk.GetArrayFromImage(sitk.Resample(moving, fixed, transform, sitk.sitkLinear, 0.0))[0]
        assert np.abs(cut - frame.numpy()).max() < 1e-3
    wrong = sitk.GetArrayFromImage(sitk.Resample(moving, fixed, back.GetInverse(), sitk.sitkLinear, 0.0))[0]
    assert np.abs(wrong - frame.numpy()).max() > 0.1


def test_resampling_the_frame_in_itk_puts_it_into_the_volume(tmp_path: Path) -> None:
    """What the slicer convention is in ITK's own terms: the frame moves, the volume is fixed."""
    frame, volume, pose = images()
    thick = Frame(frame.array, frame.spacing_mm, frame.origin_mm)
    moving = sitk.GetImageFromArray(np.repeat(thick.numpy()[None], 5, 0))
    moving.SetSpacing((0.5, 0.5, 0.5))
    moving.SetOrigin((*thick.origin_mm, -1.0))
    fixed = sitk.ReadImage(str(write_volume(volume, tmp_path / "v.nii.gz")))
    transform = sitk.ReadTransform(str(write_pose(pose, tmp_path / "a.tfm")))
    put = sitk.GetArrayFromImage(sitk.Resample(moving, fixed, transform, sitk.sitkLinear, 0.0))
    both = put > 0
    assert both.sum() > 100
    assert np.corrcoef(put[both], volume.numpy()[both])[0, 1] > 0.9


def test_slicer_shows_the_frame_in_place(tmp_path: Path) -> None:
    """What Slicer does with the file: the matrix is from parent and in LPS, its scene is to parent and in RAS."""
    transform = sitk.AffineTransform(sitk.ReadTransform(str(write_pose(OBLIQUE, tmp_path / "a.tfm"))))
    from_parent_lps = np.eye(4)
    from_parent_lps[:3, :3] = np.reshape(transform.GetMatrix(), (3, 3))
    from_parent_lps[:3, 3] = transform.GetTranslation()
    turn = np.diag([-1, -1, 1, 1])
    to_parent_ras = np.linalg.inv(turn @ from_parent_lps @ turn)
    pixel_lps = np.array([3.0, 4.0, 0.0])
    shown_ras = to_parent_ras @ [-3.0, -4.0, 0.0, 1]
    assert np.allclose(shown_ras[:3] * [-1, -1, 1], OBLIQUE.apply(pixel_lps))
    assert np.allclose(to_parent_ras, ras_from_lps(OBLIQUE.matrix))


@pytest.mark.parametrize("convention", CONVENTIONS)
@pytest.mark.parametrize("ending", [".tfm", ".h5", ".txt", ".json"])
def test_every_format_reads_back(tmp_path: Path, ending: str, convention: Convention) -> None:
    path = write_pose(OBLIQUE, tmp_path / f"a{ending}", convention=convention)
    assert read_pose(path, convention=convention).is_close(OBLIQUE, mm=1e-8, deg=1e-5)
    if ending != ".h5":  # the others say by themselves what they hold
        assert read_pose(path).is_close(OBLIQUE, mm=1e-8, deg=1e-5)


def test_names_of_the_spaces_are_kept(tmp_path: Path) -> None:
    pose = Pose(OBLIQUE.rotation, OBLIQUE.translation_mm, "TopToe", "Tomogram")
    for ending in (".tfm", ".json"):
        assert read_pose(write_pose(pose, tmp_path / f"a{ending}")).is_close(pose)
    assert read_pose(write_pose(pose, tmp_path / "a.txt"), source="A", target="B").name == "AToB"


def test_transforms_of_other_programs_are_read(tmp_path: Path) -> None:
    centred = sitk.Euler3DTransform((5.0, 6.0, 7.0), 0.1, -0.2, 0.3, (1.0, 2.0, 3.0))
    chain = sitk.CompositeTransform([centred, sitk.TranslationTransform(3, (4.0, 0.0, -1.0))])
    point = (1.5, -2.5, 3.5)
    for number, transform in enumerate((centred, chain)):
        for ending in (".tfm", ".h5"):
            path = tmp_path / f"{number}{ending}"
            sitk.WriteTransform(transform, str(path))
            there = read_pose(path, convention="itk-resample")
            assert np.allclose(there.apply(point), transform.TransformPoint(point))
            assert read_pose(path).is_close(
                Pose(there.inverse().rotation, there.inverse().translation_mm), mm=1e-9, deg=1e-5
            )
    (tmp_path / "itk.txt").write_bytes((tmp_path / "0.tfm").read_bytes())
    assert read_pose(tmp_path / "itk.txt").is_close(read_pose(tmp_path / "0.tfm"))


def test_json_tells_everything(tmp_path: Path) -> None:
    frame, volume, pose = images()
    path = write_pose(pose, tmp_path / "a.json", frame=frame, volume=volume, facts={"similarity": float("nan"), "n": 3})
    record = json.loads(path.read_text(), parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert np.allclose(record["matrix_lps"], pose.matrix)
    assert np.allclose(record["matrix_ras"], ras_from_lps(pose.matrix))
    assert "LPS mm" in record["convention"]
    assert (record["transform"], record["from"], record["to"]) == ("ImageToVolume", "Image", "Volume")
    assert record["frame"]["size"] == [11, 9]
    assert record["frame"]["origin_mm"] == [3.0, 1.5]
    assert np.allclose(record["volume"]["direction_lps"], volume.direction)
    assert len(record["volume"]["pixels_sha256"]) == 64
    assert record["result"] == {"similarity": None, "n": 3}
    assert record["provenance"]["scopereg"]
    assert str(tmp_path) not in path.read_text()


def test_bad_files_and_names_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ScopeRegError, match="unknown ending") as caught:
        write_pose(POSE, tmp_path / "a.xfm")
    assert ".tfm" in caught.value.fix
    with pytest.raises(ScopeRegError, match="did you mean 'slicer'"):
        write_pose(POSE, tmp_path / "a.tfm", convention="slicr")  # type: ignore[arg-type]
    with pytest.raises(ScopeRegError, match="no such file"):
        read_pose(tmp_path / "none.tfm")
    for name in ("junk.tfm", "junk.h5", "junk.txt", "junk.json"):
        (tmp_path / name).write_text("hello\n1 2 3\n")
        with pytest.raises(ScopeRegError, match=name):
            read_pose(tmp_path / name)
    (tmp_path / "scaled.txt").write_text("2 0 0 0\n0 2 0 0\n0 0 2 0\n0 0 0 1\n")
    with pytest.raises(ScopeRegError, match="not a rotation"):
        read_pose(tmp_path / "scaled.txt")
    field = sitk.DisplacementFieldTransform(sitk.Image((2, 2, 2), sitk.sitkVectorFloat64))
    sitk.WriteTransform(field, str(tmp_path / "field.h5"))
    with pytest.raises(ScopeRegError, match="DisplacementField"):
        read_pose(tmp_path / "field.h5")
    sitk.WriteTransform(sitk.Euler2DTransform(), str(tmp_path / "flat.tfm"))
    with pytest.raises(ScopeRegError, match="in 2D"):
        read_pose(tmp_path / "flat.tfm")


@pytest.mark.parametrize("ending", [".tfm", ".h5", ".txt", ".json"])
def test_places_that_cannot_be_written_are_named_and_left_alone(tmp_path: Path, ending: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ScopeRegError, match="cannot write there"):
        write_pose(POSE, tmp_path / "file" / f"a{ending}")
    (tmp_path / f"folder{ending}").mkdir()
    with pytest.raises(ScopeRegError, match="cannot write there"):
        write_pose(POSE, tmp_path / f"folder{ending}")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", f"folder{ending}"]


ANGLES = st.floats(-3.0, 3.0)
PLACES = st.tuples(*[st.floats(-300.0, 300.0)] * 3)
VERSORS = st.tuples(*[st.floats(-0.55, 0.55)] * 3)  # shorter than 1


def itk_transforms() -> st.SearchStrategy[sitk.Transform]:
    """Rigid transforms of every class that is read."""

    def affine(angles: tuple[float, ...], move: tuple[float, ...], centre: tuple[float, ...]) -> sitk.Transform:
        made = sitk.AffineTransform(3)
        made.SetMatrix(sitk.Euler3DTransform((0, 0, 0), *angles).GetMatrix())
        made.SetTranslation(move)
        made.SetCenter(centre)
        return made

    def euler(angles: tuple[float, ...], move: tuple[float, ...], centre: tuple[float, ...], zyx: bool) -> Any:
        made = sitk.Euler3DTransform(centre, *angles, move)
        made.SetComputeZYX(zyx)
        return made

    def versor(kind: Any, versor: tuple[float, ...], move: tuple[float, ...], centre: tuple[float, ...]) -> Any:
        made = kind()
        made.SetCenter(centre)
        moves = {sitk.VersorTransform: (), sitk.Similarity3DTransform: (*move, 1.0)}
        made.SetParameters((*versor, *moves.get(kind, move)))
        return made

    angles = st.tuples(ANGLES, ANGLES, ANGLES)
    kinds = st.sampled_from([sitk.VersorTransform, sitk.VersorRigid3DTransform, sitk.Similarity3DTransform])
    return st.one_of(
        st.builds(affine, angles, PLACES, PLACES),
        st.builds(euler, angles, PLACES, PLACES, st.booleans()),
        st.builds(versor, kinds, VERSORS, PLACES, PLACES),
        st.builds(lambda move: sitk.TranslationTransform(3, move), PLACES),
        st.just(sitk.Transform(3, sitk.sitkIdentity)),
    )


@settings(max_examples=150, deadline=None)
@given(st.lists(itk_transforms(), min_size=1, max_size=3), PLACES, st.sampled_from([".tfm", ".txt"]))
def test_every_class_is_read_as_itk_reads_it(parts: list[Any], point: tuple[float, ...], ending: str) -> None:
    transform = parts[0] if len(parts) == 1 else sitk.CompositeTransform(parts)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"a{ending}"
        sitk.WriteTransform(transform, str(path.with_suffix(".tfm")))
        path.with_suffix(".tfm").rename(path)
        pose = read_pose(path, convention="itk-resample")
    assert np.allclose(pose.apply(point), transform.TransformPoint(point), rtol=1e-9, atol=1e-7)


def test_the_child_reads_what_the_parser_reads(tmp_path: Path) -> None:
    centred = sitk.VersorRigid3DTransform((0.0, 0.6, 0.0, 0.8), (1.0, 2.0, 3.0), (4.0, 5.0, 6.0))
    for transform in (centred, sitk.CompositeTransform([centred, centred]), sitk.Transform(3, sitk.sitkIdentity)):
        for ending in (".tfm", ".h5"):
            sitk.WriteTransform(transform, str(tmp_path / f"a{ending}"))
        text, packed = (read_pose(tmp_path / f"a{ending}") for ending in (".tfm", ".h5"))
        assert np.allclose(text.matrix, packed.matrix, atol=1e-12)


HEAD = "#Insight Transform File V1.0\n#Transform 0\n"
AFFINE = "Transform: AffineTransform_double_3_3\n"
ONES = "Parameters: 1 0 0 0 1 0 0 0 1 1 2 3\n"
CENTRE = "FixedParameters: 0 0 0\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (AFFINE, "no Parameters and no FixedParameters"),  # it was the identity
        (AFFINE + CENTRE, "no Parameters"),
        (AFFINE + ONES, "no FixedParameters"),
        (2 * (AFFINE + ONES + CENTRE), "2 transforms"),  # it was the first
        (AFFINE + ONES + ONES + CENTRE, "out of place"),
        (AFFINE + "Parameters: 1 0 0 0 1 0 0 0 1 1 2\n" + CENTRE, "11 parameters"),
        (AFFINE + ONES + "FixedParameters: 0 0\n", "2 fixed ones"),
        (AFFINE + ONES.replace("2", "nan") + CENTRE, "'nan'"),
        (AFFINE + ONES.replace("2", "1_0") + CENTRE, "'1_0'"),
        (AFFINE + ONES.replace("2", "1e400") + CENTRE, "not finite or beyond"),
        (AFFINE + ONES.replace("2", "1e7") + CENTRE, "beyond 1e"),
        (AFFINE + ONES.replace("2", "0." + "1" * 60) + CENTRE, "no decimal number"),
        (AFFINE + "Parameters: " + "0 " * 12 + "\n" + CENTRE, "not a rotation"),  # singular
        (AFFINE + "Parameters: 2 0 0 0 2 0 0 0 2 0 0 0\n" + CENTRE, "not a rotation"),
        (AFFINE + "Parameters: 1 0 0 0 1 0 0 0 -1 0 0 0\n" + CENTRE, "a reflection"),
        ("Transform: BSplineTransform_double_3_3\nParameters: 1\nFixedParameters: 9 9 9\n", "BSplineTransform"),
        ("Transform: Euler2DTransform_double_2_2\nParameters: 0 0 0\nFixedParameters: 0 0\n", "in 2D"),
        ("Transform: AffineTransform_double_3_2\n" + ONES + CENTRE, "unknown transform"),
        ("Transform: CompositeTransform_double_3_3\n", "no transform"),
        ("Transform: CompositeTransform_double_3_3\n" + 21 * (AFFINE + ONES + CENTRE), "21 transforms"),
        ("Transform: VersorTransform_double_3_3\nParameters: 1 1 0\nFixedParameters: 0 0 0\n", "longer than 1"),
        ("Transform: Euler3DTransform_double_3_3\nParameters: 0 0 0 0 0 0\nFixedParameters: 0 0 0 2\n", "order"),
        ("ComponentTransformFile: other.tfm\n", "out of place"),
        ("", "no transform"),
        ("# scopereg: from A to B in the convention odd: x\n" + AFFINE + ONES + CENTRE, "contradicts"),
        (AFFINE + ONES + CENTRE + "x" * 2**20, "more than 1024 kB"),
    ],
)
def test_text_that_is_no_single_rigid_transform_is_refused(tmp_path: Path, text: str, words: str) -> None:
    for name in ("a.tfm", "a.txt"):
        (tmp_path / name).write_text(HEAD + text)
        with pytest.raises(ScopeRegError, match=re.escape(words)) as caught:
            read_pose(tmp_path / name)
        assert caught.value.where == str(tmp_path / name)
        assert caught.value.fix


def test_packed_transforms_that_itk_dies_of_are_refused(tmp_path: Path) -> None:
    """The first aborted the process, of the second the first of two was used."""
    sitk.WriteTransform(sitk.BSplineTransform(3), str(tmp_path / "a.h5"))
    content = (tmp_path / "a.h5").read_bytes()
    for number, damaged in enumerate((content, content[: len(content) // 2], content.replace(b"BSpline", b"Bspline"))):
        path = tmp_path / f"{number}.h5"
        path.write_bytes(damaged)
        with pytest.raises(ScopeRegError, match=path.name):
            read_pose(path)
    with pytest.raises(ScopeRegError, match="several transforms"):
        read_pose(GOLDEN / "two.h5")
    (tmp_path / "large.h5").write_bytes(bytes(2**20 + 1))
    with pytest.raises(ScopeRegError, match="larger than any rigid"):
        read_pose(tmp_path / "large.h5")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"matrix_lps": [[1, 0, 0], [0, 1, 0], [0, 0, 1]]}, "four rows of four"),
        ({"matrix_lps": [[True, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]}, "four rows of four"),
        ({"matrix_lps": [["1", 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]}, "four rows of four"),
        ({"matrix_lps": [[1, 0, 0, 1e7], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]}, "four rows of four"),
        ({"matrix_lps": [[1, 0, 0, 5], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]}, "the same as matrix_lps"),
        ({"matrix_lps": {}}, "matrix_lps"),
        ({"from": 3}, "from is 3"),
        ({"from": "../x"}, "name of a space"),
        ({"to": "x" * 200}, "a text"),
        ({"format": "scopereg-pose-9"}, "scopereg-pose-1"),
    ],
)
def test_poses_in_json_are_checked_by_their_schema(tmp_path: Path, change: dict[str, Any], words: str) -> None:
    path = write_pose(OBLIQUE, tmp_path / "a.json")
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(ScopeRegError, match=words) as caught:
        read_pose(path)
    assert str(path) in caught.value.where


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 5000, "1" * 5000, "[]", "null", '{"from": NaN}', "{}"])
def test_json_that_is_no_pose_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(ScopeRegError, match=r"a\.json"):
        read_pose(tmp_path / "a.json")


@pytest.mark.parametrize("ending", [".tfm", ".txt", ".json", ".h5"])
def test_mutations_are_read_or_refused(tmp_path: Path, ending: str) -> None:
    seed = write_pose(OBLIQUE, tmp_path / f"seed{ending}").read_bytes()

    def rigid(pose: Pose) -> None:
        assert np.allclose(pose.rotation.T @ pose.rotation, np.eye(3), atol=1e-9)
        assert np.isfinite(pose.matrix).all()

    ends = survive(read_pose, seed, tmp_path / f"a{ending}", 60 if ending == ".h5" else 400, check=rigid)
    assert ends["refused"] > ends["read"] / 10
    assert set(ends) <= {"read", "refused"}
