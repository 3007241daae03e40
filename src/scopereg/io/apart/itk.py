"""Readers of the child by ITK: compressed frames of DICOM (GDCM), and transforms in HDF5."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import SimpleITK as sitk

from scopereg.errors import ScopeRegError

_MOST_TRANSFORMS = 20
_ONE_RIGID = "pass one rigid 3D transform: a deformation has no pose"


class _Warnings(sitk.LoggerBase):  # type: ignore[misc]
    """Warnings of ITK, which it prints where others raise errors."""

    def __init__(self) -> None:
        super().__init__()
        self.said: list[str] = []

    def DisplayWarningText(self, text: str) -> None:  # noqa: N802 (ITK's name)
        self.said.append(text)

    DisplayErrorText = DisplayWarningText


def dicom_frame(path: Path) -> tuple[list[Any], dict[str, Any]]:
    """Stored values of the one frame in a DICOM file, by GDCM."""
    return [np.squeeze(sitk.GetArrayFromImage(sitk.ReadImage(str(path))), 0)], {}


def transform(path: Path) -> tuple[list[Any], dict[str, Any]]:
    """Class, parameters and fixed parameters of the transforms in a file, those of a composite one by one."""
    heard = _Warnings()
    heard.SetAsGlobalITKLogger()
    read = sitk.ReadTransform(str(path))
    if any("more than one" in said.lower() for said in heard.said):
        raise ScopeRegError("it holds several transforms", where=path.name, fix="pass a file with one transform")
    parts = _parts(read)
    if not all(part.IsLinear() for part in parts):
        names = ", ".join(part.GetName() for part in parts if not part.IsLinear())
        raise ScopeRegError(
            f"it holds {names}", where=path.name, fix="pass a rigid 3D transform: a deformation has no pose"
        )
    arrays = [
        np.array(numbers, np.float64) for part in parts for numbers in (part.GetParameters(), part.GetFixedParameters())
    ]
    return arrays, {"kinds": [[_name(part), part.GetDimension()] for part in parts]}


def _name(part: Any) -> str:
    return "IdentityTransform" if part.GetTransformEnum() == sitk.sitkIdentity else str(part.GetName())


def _parts(read: Any) -> list[Any]:
    if "Composite" not in read.GetName():
        return [read.Downcast()]
    composite = sitk.CompositeTransform(read)
    count = composite.GetNumberOfTransforms()
    if count > _MOST_TRANSFORMS:
        raise ScopeRegError(f"it chains {count} transforms", where="transform", fix="pass the one that they make")
    return [part for row in range(count) for part in _parts(composite.GetNthTransform(row))]
