"""Poses to and from files: ITK transforms (.tfm, .h5), 4x4 text, JSON, DICOM Spatial Registration.

An ITK file holds the resampling direction, from the fixed to the moving image, in LPS; 3D Slicer inverts it on loading.
So there are two conventions for the same pose, and the `.tfm` files written here say which one they follow:

- `slicer`: the file holds the inverse of the pose (VolumeToImage). Slicer, with the transform applied to the frame,
  shows the frame in place; in ITK it resamples the frame onto the volume's grid.
- `itk-resample`: the file holds the pose (ImageToVolume). In ITK it resamples the volume onto the frame's grid.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt
import SimpleITK as sitk

from scopereg.errors import ScopeRegError, did_you_mean
from scopereg.geometry import Pose, ras_from_lps
from scopereg.images import Frame, Volume
from scopereg.io.apart import Allowance, read_apart
from scopereg.io.files import atomic_path, write_text
from scopereg.io.frame_grid import FrameGrid
from scopereg.io.records import DIGITS, SMALL, Record, read_json, read_within
from scopereg.io.stored import identity
from scopereg.provenance import provenance

Convention = Literal["slicer", "itk-resample"]
Matrix = npt.NDArray[np.float64]
ENDINGS = (".tfm", ".h5", ".txt", ".json", ".dcm")
JSON_FORMAT = "scopereg-pose-1"
_ITK_MARK = "#Insight Transform File V1.0"
_SAYS = re.compile(r"# scopereg: from (\w+) to (\w+) in the convention ([\w-]+)")
_ROUND_OFF = 1e-9  # of sines and cosines; smaller numbers are zeros
_CHILD = "scopereg.io.apart.itk:transform"
_KEYS = ("Transform", "Parameters", "FixedParameters")
_NAME = re.compile(r"(\w{1,60})_(?:double|float)_(\d)_\2", re.ASCII)
_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?", re.ASCII)
_SPACE = re.compile(r"\w{1,100}")
_MOST = 1e6  # of any number: what lies a kilometre away is a damaged file
_MOST_PARTS, _MOST_NUMBERS = 20, 1000
_DISAGREE = 1e-6  # mm between two statements of a pose, by rounding
_NO_TRANSFORM = "pass a .tfm or .h5 file as ITK and 3D Slicer write them"
_ONE_RIGID = "pass one rigid 3D transform: a deformation has no pose"


class Part(NamedTuple):
    """One transform of ITK as its file tells it."""

    kind: str  # class
    axes: int
    numbers: Matrix  # parameters
    fixed: Matrix  # the centre, in most classes


def write_pose(
    pose: Pose,
    path: Path | str,
    *,
    convention: Convention = "slicer",
    frame: Frame | None = None,
    volume: Volume | None = None,
    facts: Mapping[str, Any] | None = None,
) -> Path:
    """Write a pose; the format follows the ending: .tfm, .h5, .txt, .json or .dcm.

    `convention` (see above) is for .tfm and .h5; 4x4 text, JSON and DICOM always hold the pose itself, ImageToVolume.
    JSON also tells frame, volume and `facts` (method, similarity, ...), .tfm and text the pixels of the frame in a
    comment; DICOM needs frame and volume.
    """
    path = Path(path)
    _check_convention(convention)
    ending = _ending(path)
    if ending == ".tfm":
        return write_text(path, tfm_text(pose, convention, frame))
    if ending == ".h5":
        return _write_itk(stored_matrix(pose, convention), path)
    if ending == ".txt":
        return write_text(path, matrix_text(pose, frame))
    if ending == ".json":
        return write_text(path, json.dumps(pose_record(pose, frame, volume, facts), indent=2) + "\n")
    if frame is None or volume is None:
        raise ScopeRegError(
            "a DICOM registration names its images", where=str(path), fix="pass frame= and volume= as well"
        )
    from scopereg.io.dicom.spatial_registration import write_spatial_registration  # pydicom is slow to import

    return write_spatial_registration(pose, frame, volume, path)


def read_pose(
    path: Path | str, *, convention: Convention = "slicer", source: str = "Image", target: str = "Volume"
) -> Pose:
    """A pose from a file that `write_pose`, 3D Slicer or ITK wrote: always from `source` to `target`.

    JSON, DICOM and the `.tfm` files of scopereg tell direction and names by themselves; other ITK files are read in
    the `convention` given. 4x4 text is taken as the pose itself, in LPS.
    """
    path = Path(path)
    _check_convention(convention)
    ending = _ending(path)
    if not path.is_file():
        raise ScopeRegError("there is no such file", where=str(path), fix="check the name and the folder")
    if ending == ".json":
        return _read_json(path)
    if ending == ".dcm":
        from scopereg.io.dicom.spatial_registration import read_spatial_registration

        return read_spatial_registration(path, source, target)
    if ending == ".h5":
        return _pose_in(_read_h5(path), path, convention, source, target)
    text = _text(path)
    if text.split("\n")[0].rstrip() != _ITK_MARK:
        if ending == ".txt":
            return _pose_of(_parse_matrix(text, path), path, source, target)
        raise ScopeRegError(f"it does not begin with {_ITK_MARK}", where=str(path), fix=_NO_TRANSFORM)
    said = [found for line in text.split("\n") if (found := _SAYS.match(line))]
    if len(said) > 1 or any(found[3] not in get_args(Convention) for found in said):
        raise ScopeRegError("it contradicts itself about what it holds", where=str(path), fix="write the file again")
    if said:
        source, target, convention = said[0][1], said[0][2], "slicer" if said[0][3] == "slicer" else "itk-resample"
    return _pose_in(composed(_parts(text, path), str(path)), path, convention, source, target)


def read_matrix(path: Path | str) -> Matrix:
    """The 4x4 matrix of a text file as it stands there, also one that is not rigid."""
    return _parse_matrix(_text(Path(path)), Path(path))


def _pose_in(matrix: Matrix, path: Path, convention: Convention, source: str, target: str) -> Pose:
    """The pose that an ITK file holds in this convention."""
    if convention == "slicer":
        return _pose_of(matrix, path, target, source).inverse()
    return _pose_of(matrix, path, source, target)


def stored_matrix(pose: Pose, convention: Convention) -> Matrix:
    """The 4x4 matrix that an ITK file holds, LPS."""
    return pose.inverse().matrix if convention == "slicer" else pose.matrix


def tfm_text(pose: Pose, convention: Convention, frame: Frame | None = None) -> str:
    """The content of a .tfm file: ITK's text format, with comments that say what it holds."""
    matrix = _tidy(stored_matrix(pose, convention))
    held = pose.inverse().name if convention == "slicer" else pose.name
    numbers = " ".join(f"{n:.15g}" for n in [*matrix[:3, :3].ravel(), *matrix[:3, 3]])
    return (
        f"{_ITK_MARK}\n"
        f"# scopereg: from {pose.source} to {pose.target} in the convention {convention}: "
        f"the matrix is {held}, points in LPS mm\n"
        f"{_frame_line(frame)}"
        "#Transform 0\n"
        "Transform: AffineTransform_double_3_3\n"
        f"Parameters: {numbers}\n"
        "FixedParameters: 0 0 0\n"
    )


def matrix_text(pose: Pose, frame: Frame | None = None) -> str:
    """Four lines of four numbers, after comments that say what they are; numpy.loadtxt reads it."""
    rows = [" ".join(f"{number:.12g}" for number in row) for row in _tidy(pose.matrix)]
    told = f"# {pose.name}: points in LPS mm of {pose.source} to LPS mm of {pose.target}\n{_frame_line(frame)}"
    return told + "\n".join([*rows, ""])


def _frame_line(frame: Frame | None) -> str:
    return "" if frame is None else f"{FrameGrid.of(frame).line}\n"


def pose_record(
    pose: Pose, frame: Frame | None = None, volume: Volume | None = None, facts: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """All that is known of a pose, ready for JSON."""
    return {
        "format": JSON_FORMAT,
        "transform": pose.name,
        "from": pose.source,
        "to": pose.target,
        "convention": (
            f"matrix_lps takes a point (x, y, z, 1) in mm of {pose.source} to LPS mm of {pose.target}, as a column "
            "vector; x is right and y down in the frame, and z = 0; matrix_ras is the same between RAS spaces, "
            "3D Slicer's transform to parent; angles are about x, y, z, R = Rz Ry Rx"
        ),
        "matrix_lps": _tidy(pose.matrix).tolist(),
        "matrix_ras": _tidy(ras_from_lps(pose.matrix)).tolist(),
        "translation_mm": _tidy(pose.translation_mm).tolist(),
        "angles_deg": _tidy(pose.euler_deg).tolist(),
        "frame": None if frame is None else identity(frame),
        "volume": None if volume is None else identity(volume),
        "result": {name: _finite(value) for name, value in (facts or {}).items()},
        "provenance": provenance(),
    }


def _finite(value: Any) -> Any:
    """None for NaN and infinity, which JSON does not have."""
    return None if isinstance(value, float) and not np.isfinite(value) else value


def _check_convention(convention: str) -> None:
    if convention not in get_args(Convention):
        raise ScopeRegError(
            f"unknown convention {convention!r}{did_you_mean(convention, get_args(Convention))}",
            where="write_pose(convention)",
            fix=f"use one of {', '.join(get_args(Convention))}",
        )


def _ending(path: Path) -> str:
    ending = path.suffix.lower()
    if ending not in ENDINGS:
        raise ScopeRegError(
            f"unknown ending {path.suffix!r} of a transform", where=str(path), fix=f"use one of {', '.join(ENDINGS)}"
        )
    return ending


def _tidy(numbers: Matrix) -> Matrix:
    """The numbers without minus zeros and round-off, so that files of equal poses are equal."""
    rounded: Matrix = np.where(np.abs(numbers) < _ROUND_OFF, 0.0, numbers)
    return rounded


def _write_itk(matrix: Matrix, path: Path) -> Path:
    transform = sitk.AffineTransform(3)
    transform.SetMatrix(_tidy(matrix[:3, :3]).ravel().tolist())
    transform.SetTranslation(_tidy(matrix[:3, 3]).tolist())
    return write_itk(transform, path)


def write_itk(transform: sitk.Transform, path: Path) -> Path:
    """Whole or not at all."""
    with atomic_path(path) as temporary:
        try:
            sitk.WriteTransform(transform, str(temporary))
        except RuntimeError as error:
            raise OSError(str(error).strip().splitlines()[-1]) from error
    return path


def _read_h5(path: Path) -> Matrix:
    """The matrix of a transform in HDF5, which ITK reads in a child process."""
    content = read_within(path, _NO_TRANSFORM, SMALL)
    if len(content) > SMALL.size:
        raise ScopeRegError("it is larger than any rigid transform", where=str(path), fix=_ONE_RIGID)
    answer = read_apart(_CHILD, content, str(path), Allowance.for_bytes(SMALL.size), ending=".h5")
    kinds = answer.facts.get("kinds")
    if not isinstance(kinds, list) or 2 * len(kinds) != len(answer.arrays):
        raise ScopeRegError("the answer about it is none", where=str(path), fix=_NO_TRANSFORM)
    parts = [
        Part(str(kind), int(axes), numbers.ravel(), fixed.ravel())
        for (kind, axes), numbers, fixed in zip(kinds, answer.arrays[::2], answer.arrays[1::2], strict=True)
    ]
    return composed(parts, str(path))


def _parts(text: str, path: Path) -> list[Part]:
    """The transforms of a text file of ITK: one, or those of one composite."""
    lines = [line.strip() for line in text.split("\n")[1:]]
    blocks: list[dict[str, str]] = []
    for line in lines:
        key, colon, value = line.partition(":")
        if not line or line.startswith("#"):
            continue
        if colon and key == "Transform":
            blocks.append({})
        if not colon or key not in _KEYS or not blocks or key in blocks[-1]:
            raise ScopeRegError(f"a line out of place: {line[:60]!r}", where=str(path), fix=_NO_TRANSFORM)
        blocks[-1][key] = value.strip()
    composite = bool(blocks) and blocks[0]["Transform"].startswith("CompositeTransform_")
    if composite:
        if len(blocks[0]) > 1 and any(blocks[0][key] for key in _KEYS[1:] if key in blocks[0]):
            raise ScopeRegError("a composite with numbers of its own", where=str(path), fix=_NO_TRANSFORM)
        blocks = blocks[1:]
    if not blocks or (len(blocks) > 1 and not composite) or len(blocks) > _MOST_PARTS:
        raise ScopeRegError(
            f"it holds {len(blocks)} transforms, which do not say how they belong together"
            if len(blocks) > 1
            else "it holds no transform",
            where=str(path),
            fix=_ONE_RIGID,
        )
    return [_part(block, path) for block in blocks]


def _part(block: Mapping[str, str], path: Path) -> Part:
    name = _NAME.fullmatch(block["Transform"])
    if name is None:
        raise ScopeRegError(f"an unknown transform {block['Transform'][:60]!r}", where=str(path), fix=_ONE_RIGID)
    lacking = [key for key in _KEYS if key not in block]
    if lacking:
        raise ScopeRegError(f"its {name[1]} has no {' and no '.join(lacking)}", where=str(path), fix=_NO_TRANSFORM)
    numbers, fixed = (_numbers(block[key], str(path)) for key in _KEYS[1:])
    return Part(name[1], int(name[2]), numbers, fixed)


def composed(parts: Sequence[Part], where: str) -> Matrix:
    """The matrix of linear 3D transforms, as ITK chains them: the last is applied first."""
    matrix = np.eye(4)
    for part in parts:
        if part.axes != 3 or part.kind not in _CLASSES:
            raise ScopeRegError(f"it holds {part.kind[:60]} in {part.axes}D", where=where, fix=_ONE_RIGID)
        count, fixed, linear = _CLASSES[part.kind]
        if len(part.numbers) != count or len(part.fixed) not in fixed:
            raise ScopeRegError(
                f"{part.kind} has {len(part.numbers)} parameters and {len(part.fixed)} fixed ones, "
                f"not {count} and {fixed[0]}",
                where=where,
                fix=_NO_TRANSFORM,
            )
        every = np.concatenate([part.numbers, part.fixed])
        if not np.isfinite(every).all() or (len(every) and np.abs(every).max() > _MOST):
            raise ScopeRegError(
                f"{part.kind} has numbers that are not finite or beyond {_MOST:g}", where=where, fix=_NO_TRANSFORM
            )
        turn, translation = linear(part, where)
        centre = part.fixed[:3] if len(part.fixed) >= 3 else np.zeros(3)
        step = np.eye(4)
        step[:3, :3], step[:3, 3] = turn, translation + centre - turn @ centre
        matrix = matrix @ step
    return matrix


def _affine(part: Part, _: str) -> tuple[Matrix, Matrix]:
    return part.numbers[:9].reshape(3, 3), part.numbers[9:]


def _euler(part: Part, where: str) -> tuple[Matrix, Matrix]:
    """Angles in radians about x, y, z; R = Rz Rx Ry, or Rz Ry Rx where a fourth fixed number says so."""
    order = part.fixed[3] if len(part.fixed) > 3 else 0.0
    if order not in (0.0, 1.0):
        raise ScopeRegError(f"its order of angles is {order:g}", where=where, fix=_NO_TRANSFORM)
    (cx, cy, cz), (sx, sy, sz) = np.cos(part.numbers[:3]), np.sin(part.numbers[:3])
    about_x = np.array([[1, 0, 0], [0, cx, -sx], [0, sx, cx]])
    about_y = np.array([[cy, 0, sy], [0, 1, 0], [-sy, 0, cy]])
    about_z = np.array([[cz, -sz, 0], [sz, cz, 0], [0, 0, 1]])
    return about_z @ (about_y @ about_x if order else about_x @ about_y), part.numbers[3:6]


def _versor(part: Part, where: str) -> tuple[Matrix, Matrix]:
    """The vector part of a unit quaternion, then a translation and a scale where the class has them."""
    vector = part.numbers[:3]
    square = float(vector @ vector)
    if square > 1 + 1e-9:
        raise ScopeRegError(f"the versor {vector.tolist()} is longer than 1", where=where, fix=_NO_TRANSFORM)
    w, cross = np.sqrt(max(1 - square, 0.0)), np.cross(np.eye(3), vector)
    turn = np.eye(3) + 2 * w * cross + 2 * cross @ cross
    translation = part.numbers[3:6] if len(part.numbers) >= 6 else np.zeros(3)
    return turn * (part.numbers[6] if len(part.numbers) > 6 else 1.0), translation


def _translation(part: Part, _: str) -> tuple[Matrix, Matrix]:
    return np.eye(3), part.numbers if len(part.numbers) else np.zeros(3)


# By ITK's classes: how many parameters, how many fixed ones (what is written first), the linear map about the centre.
_CLASSES: dict[str, tuple[int, tuple[int, ...], Callable[[Part, str], tuple[Matrix, Matrix]]]] = {
    "AffineTransform": (12, (3,), _affine),
    "MatrixOffsetTransformBase": (12, (3,), _affine),
    "Euler3DTransform": (6, (3, 4), _euler),
    "VersorTransform": (3, (3,), _versor),
    "VersorRigid3DTransform": (6, (3,), _versor),
    "Similarity3DTransform": (7, (3,), _versor),
    "TranslationTransform": (3, (0,), _translation),
    "IdentityTransform": (0, (0,), _translation),
}


def _numbers(text: str, where: str) -> Matrix:
    """Decimal numbers between blanks; Python's own reading also takes nan, inf, 1_0 and digits of other scripts."""
    words = text.replace(",", " ").split()
    if len(words) > _MOST_NUMBERS or not all(len(word) <= DIGITS and _NUMBER.fullmatch(word) for word in words):
        odd = next((word for word in words if not _NUMBER.fullmatch(word)), f"{len(words)} numbers")
        raise ScopeRegError(f"no decimal number: {odd[:DIGITS]!r}", where=where, fix="write the file again")
    return np.array([float(word) for word in words])


def _text(path: Path) -> str:
    content = read_within(path, "write the file again", SMALL)
    try:
        if len(content) > SMALL.size:
            raise ValueError(f"it has more than {SMALL.size // 1024} kB")
        return content.decode()
    except ValueError as error:
        raise ScopeRegError(f"cannot be read as text: {error}", where=str(path), fix="write the file again") from None


def _parse_matrix(text: str, path: Path) -> Matrix:
    lines = [line for line in (line.partition("#")[0].strip() for line in text.split("\n")) if line]
    rows = [_numbers(line, str(path)) for line in lines] if len(lines) == 4 else []
    if [len(row) for row in rows] != [4] * 4:
        raise ScopeRegError("it is not four lines of four numbers", where=str(path), fix="write a 4x4 matrix, LPS mm")
    return np.stack(rows)


def _read_json(path: Path) -> Pose:
    fix = "pass a file that scopereg wrote"
    record = Record.of(read_json(path, fix, limits=SMALL), str(path), fix)
    if record.has("format"):
        record.text("format", choices=(JSON_FORMAT,))
    source, target = (_space(record, key) for key in ("from", "to"))
    pose = _pose_of(_square(record, "matrix_lps"), path, source, target)
    if record.has("matrix_ras"):
        there = ras_from_lps(_square(record, "matrix_ras"))
        if not np.allclose(there, pose.matrix, rtol=1e-9, atol=_DISAGREE):
            raise record.wrong("matrix_ras", "the same as matrix_lps")
    return pose


def _square(record: Record, key: str) -> Matrix:
    rows = record.list(key, most=4)
    good = len(rows) == 4 and all(isinstance(row, list) and len(row) == 4 for row in rows)
    if not good or not all(type(number) in (int, float) and abs(number) <= _MOST for row in rows for number in row):
        raise record.wrong(key, "four rows of four numbers")
    return np.array(rows, np.float64)


def _space(record: Record, key: str) -> str:
    name = record.text(key, most=100)
    if not _SPACE.fullmatch(name):
        raise record.wrong(key, "the name of a space, such as Image")
    return name


def _pose_of(matrix: Any, path: Path, source: str, target: str) -> Pose:
    try:
        pose = Pose.from_matrix(matrix, source, target)
    except ScopeRegError as error:
        raise ScopeRegError(error.what, where=str(path), fix=error.fix) from None
    if np.abs(pose.translation_mm).max() > _MOST:
        raise ScopeRegError(f"it moves by more than {_MOST:g} mm", where=str(path), fix="check the file")
    return pose
