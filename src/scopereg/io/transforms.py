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
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import SimpleITK as sitk

from scopereg.errors import ScopeRegError, did_you_mean
from scopereg.geometry import Pose
from scopereg.images import Frame, Volume
from scopereg.io.files import atomic_path, write_text
from scopereg.io.stored import identity
from scopereg.provenance import provenance

Convention = Literal["slicer", "itk-resample"]
Matrix = npt.NDArray[np.float64]
ENDINGS = (".tfm", ".h5", ".txt", ".json", ".dcm")
JSON_FORMAT = "scopereg-pose-1"
_LPS_TO_RAS = np.diag([-1.0, -1.0, 1.0, 1.0])
_ITK_MARK = "#Insight Transform File V1.0"
_SAYS = re.compile(r"# scopereg: from (\w+) to (\w+) in the convention ([\w-]+)")
_ROUND_OFF = 1e-9  # of sines and cosines; smaller numbers are zeros


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
    JSON also tells frame, volume and `facts` (method, similarity, ...); DICOM needs frame and volume.
    """
    path = Path(path)
    _check_convention(convention)
    ending = _ending(path)
    if ending == ".tfm":
        return write_text(path, tfm_text(pose, convention))
    if ending == ".h5":
        return _write_itk(stored_matrix(pose, convention), path)
    if ending == ".txt":
        return write_text(path, matrix_text(pose))
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
    text = "" if ending == ".h5" else _text(path)
    if ending == ".txt" and not text.startswith(_ITK_MARK):
        return _pose_of(_parse_matrix(text, path), path, source, target)
    said = _SAYS.search(text)
    if said:
        source, target, convention = said[1], said[2], "slicer" if said[3] == "slicer" else "itk-resample"
    matrix = _read_itk(path)
    inverted = np.linalg.inv(matrix) if convention == "slicer" else matrix
    return _pose_of(inverted, path, source, target)


def stored_matrix(pose: Pose, convention: Convention) -> Matrix:
    """The 4x4 matrix that an ITK file holds, LPS."""
    return pose.inverse().matrix if convention == "slicer" else pose.matrix


def ras_from_lps(matrix: Matrix) -> Matrix:
    """A transform between LPS spaces as one between RAS spaces, or back: both ends are turned."""
    turned: Matrix = _LPS_TO_RAS @ matrix @ _LPS_TO_RAS
    return turned


def tfm_text(pose: Pose, convention: Convention) -> str:
    """The content of a .tfm file: ITK's text format, with a comment that says what it holds."""
    matrix = _tidy(stored_matrix(pose, convention))
    held = pose.inverse().name if convention == "slicer" else pose.name
    numbers = " ".join(f"{n:.15g}" for n in [*matrix[:3, :3].ravel(), *matrix[:3, 3]])
    return (
        f"{_ITK_MARK}\n"
        f"# scopereg: from {pose.source} to {pose.target} in the convention {convention}: "
        f"the matrix is {held}, points in LPS mm\n"
        "#Transform 0\n"
        "Transform: AffineTransform_double_3_3\n"
        f"Parameters: {numbers}\n"
        "FixedParameters: 0 0 0\n"
    )


def matrix_text(pose: Pose) -> str:
    """Four lines of four numbers, after a line that says what they are; numpy.loadtxt reads it."""
    rows = [" ".join(f"{number:.12g}" for number in row) for row in _tidy(pose.matrix)]
    return "\n".join([f"# {pose.name}: points in LPS mm of {pose.source} to LPS mm of {pose.target}", *rows, ""])


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
    with atomic_path(path) as temporary:
        try:
            sitk.WriteTransform(transform, str(temporary))
        except RuntimeError as error:
            raise OSError(str(error).strip().splitlines()[-1]) from error
    return path


def _read_itk(path: Path) -> Matrix:
    """The matrix of any linear transform that ITK reads, whatever its class and centre."""
    try:
        transform = sitk.ReadTransform(str(path))
    except RuntimeError as error:
        reason = str(error).strip().splitlines()[-1].replace(str(path), path.name)
        raise ScopeRegError(
            f"ITK cannot read it as a transform: {reason}", where=str(path), fix="pass a .tfm or .h5 file of ITK"
        ) from None
    if transform.GetDimension() != 3 or not transform.IsLinear():
        raise ScopeRegError(
            f"it holds {transform.GetName()} in {transform.GetDimension()}D",
            where=str(path),
            fix="pass one rigid 3D transform: a deformation has no pose",
        )
    origin = np.array(transform.TransformPoint((0.0, 0.0, 0.0)))
    matrix = np.eye(4)
    matrix[:3, 3] = origin
    for axis in range(3):
        matrix[:3, axis] = np.array(transform.TransformPoint([float(axis == k) for k in range(3)])) - origin
    return matrix


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ScopeRegError(f"cannot be read as text: {error}", where=str(path), fix="write the file again") from None


def _parse_matrix(text: str, path: Path) -> Matrix:
    lines = [line.partition("#")[0].replace(",", " ").split() for line in text.splitlines()]
    try:
        matrix = np.array([[float(word) for word in line] for line in lines if line])
    except ValueError:
        matrix = np.zeros(0)
    if matrix.shape != (4, 4):
        raise ScopeRegError("it is not four lines of four numbers", where=str(path), fix="write a 4x4 matrix, LPS mm")
    return matrix


def _read_json(path: Path) -> Pose:
    try:
        record = json.loads(_text(path))
        matrix, source, target = record["matrix_lps"], record["from"], record["to"]
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise ScopeRegError(
            f"it is no pose in JSON: {error}", where=str(path), fix="pass a file that scopereg wrote"
        ) from None
    return _pose_of(matrix, path, str(source), str(target))


def _pose_of(matrix: Any, path: Path, source: str, target: str) -> Pose:
    try:
        return Pose.from_matrix(matrix, source, target)
    except ScopeRegError as error:
        raise ScopeRegError(error.what, where=str(path), fix=error.fix) from None
