"""Displacements to files: ITK's DisplacementFieldTransform, which SimpleITK and 3D Slicer read and apply."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import SimpleITK as sitk

from scopereg.errors import ScopeRegError
from scopereg.io.transforms import write_itk

ENDINGS = (".h5", ".tfm")


def write_displacement_field(
    vectors_mm: npt.NDArray[np.float64], first_mm: Sequence[float], step_mm: Sequence[float], path: Path | str
) -> Path:
    """Write displacements (planes, rows, columns, 3) in LPS mm as a transform; the ending says whether HDF5 or text.

    `first_mm` is the place x, y, z of the first, `step_mm` how far they are apart. ITK interpolates between them and
    displaces nothing beyond.
    """
    path = Path(path)
    if path.suffix.lower() not in ENDINGS:
        raise ScopeRegError(
            f"unknown ending {path.suffix!r} of a deformation", where=str(path), fix=f"use one of {', '.join(ENDINGS)}"
        )
    if vectors_mm.ndim != 4 or vectors_mm.shape[-1] != 3 or not np.isfinite(vectors_mm).all():
        raise ScopeRegError(
            f"displacements of shape {vectors_mm.shape} are no field, or not finite",
            where="write_displacement_field(vectors_mm)",
            fix="pass finite numbers (planes, rows, columns, 3)",
        )
    image = sitk.GetImageFromArray(np.ascontiguousarray(vectors_mm, dtype=np.float64), isVector=True)
    image.SetOrigin([float(place) for place in first_mm])
    image.SetSpacing([float(step) for step in step_mm])
    return write_itk(sitk.DisplacementFieldTransform(image), path)
