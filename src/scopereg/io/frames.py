"""Frames from files of any kind: one door for DICOM, pictures, PLUS sequences, NIfTI, NRRD and MHA."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from scopereg.errors import ScopeRegError
from scopereg.geometry import Pose
from scopereg.image_fields import as_pair
from scopereg.io.cine import Cine
from scopereg.io.dicom.frames import read_dicom_cine
from scopereg.io.dicom.header import says_dicom
from scopereg.io.frame_masks import read_frame_masks
from scopereg.io.grey import grey_values
from scopereg.io.metaimage import is_sequence
from scopereg.io.overlays import Picture, Stillness, check_single, picture_of
from scopereg.io.pictures import read_picture
from scopereg.io.plus import Matrix
from scopereg.io.plus_sequence import read_plus_cine
from scopereg.io.read_image import ending_of, endings, read_with_header
from scopereg.io.stored import StoredFrame, given_spacing_note
from scopereg.io.sweeps import read_npz_sweep
from scopereg.io.videos import VIDEOS, read_video

PICTURES = (".png", ".jpg", ".jpeg", ".bmp", ".tif", ".tiff")
WORLD = "World"  # frame of reference of the places in an image's header
_GIVE_IT = "give the size of a pixel in mm: spacing_mm="


def read_frame(
    path: Path | str,
    *,
    spacing_mm: float | Sequence[float] | None = None,
    index: int | None = None,
    region: int | None = None,
    calibration: Path | str | Matrix | None = None,
    frame_mask: Path | str | None = None,
) -> StoredFrame:
    """One frame; `index` (from 0) chooses it where the file holds several. Other options as in `read_cine`."""
    how: dict[str, Any] = {"spacing_mm": spacing_mm, "region": region, "calibration": calibration}
    return read_cine(path, **how, frame_mask=frame_mask).only(index)


def read_cine(
    path: Path | str,
    *,
    spacing_mm: float | Sequence[float] | None = None,
    region: int | None = None,
    calibration: Path | str | Matrix | None = None,
    frame_mask: Path | str | None = None,
) -> Cine:
    """All frames of a file, decoded when asked for.

    `spacing_mm` (one number, or x and y) is needed for pictures (PNG, JPEG, BMP, TIFF), for videos, and wherever the
    file states none; nothing is assumed. `region` chooses between several ultrasound regions of a DICOM image.
    `calibration` is for PLUS sequences (see `read_plus_cine`). Bytes become 0 to 1, colours their brightness, other
    values stay. Frames of pictures and DICOM have a mask without overlays, where any are found (`io.overlays`). What is
    not 0 in a `frame_mask` (a file, or a folder of masks by name: `io.frame_masks`) counts, and nothing else.
    """
    cine = _open_cine(Path(path), spacing_mm, region, calibration)
    return cine if frame_mask is None else read_frame_masks(frame_mask).over(cine)


def _open_cine(
    path: Path,
    spacing_mm: float | Sequence[float] | None,
    region: int | None,
    calibration: Path | str | Matrix | None,
) -> Cine:
    """The frames of a file of any kind, as the file has them."""
    if not path.is_file():
        what = "it is a folder" if path.is_dir() else "there is no such file"
        raise ScopeRegError(what, where=str(path), fix="pass the file of a frame or a cine")
    name = path.name.lower()
    if says_dicom(path):
        return read_dicom_cine(path, spacing_mm=spacing_mm, region=region)
    if name.endswith(PICTURES):
        return _read_picture(path, spacing_mm)
    if name.endswith(VIDEOS):
        return _read_video(path, spacing_mm)
    if is_sequence(path):
        return read_plus_cine(path, calibration=calibration, spacing_mm=spacing_mm)
    if ending_of(path.name):
        return _read_planes(path, spacing_mm)
    if name.endswith(".npz"):
        return _read_sweep(path)
    raise ScopeRegError(
        f"unknown kind of frame {path.suffix!r}",
        where=str(path),
        fix=f"pass DICOM, {', '.join(PICTURES)}, a PLUS sequence (.igs.mha), a video ({VIDEOS[0]} and its kin) "
        f"or one of {', '.join(endings())}",
    )


def _read_picture(path: Path, spacing_mm: float | Sequence[float] | None) -> Cine:
    """A picture. The dots per inch that it may state are those of a printer, not of the transducer."""
    spacing = _given_pixel(path, spacing_mm, "a picture")
    return _pictures(path, read_picture(path), spacing)


def _read_video(path: Path, spacing_mm: float | Sequence[float] | None) -> Cine:
    spacing = _given_pixel(path, spacing_mm, "a video")
    pixels, times_s = read_video(path)
    return replace(_pictures(path, pixels, spacing), times_s=times_s)


def _given_pixel(path: Path, spacing_mm: float | Sequence[float] | None, kind: str) -> tuple[float, float]:
    if spacing_mm is None:
        raise ScopeRegError(f"{kind} does not say how large a pixel is", where=str(path), fix=_GIVE_IT)
    return as_pair(spacing_mm, "read_frame(spacing_mm)")


def _pictures(path: Path, pixels: npt.NDArray[Any], spacing: tuple[float, float]) -> Cine:
    """Pixels (F, H, W), colours last, as frames."""
    colours = pixels.ndim == 4
    still = Stillness(len(pixels), lambda page: pixels[page], str(path), colours=colours)

    def decode(page: int) -> Picture:
        picture = picture_of(pixels[page], str(path), colours=colours, still=still.bits)
        check_single(picture, str(path))
        return picture

    return Cine(path, len(pixels), spacing, decode, facts={"spacing_from": "given"})


def _read_planes(path: Path, given: float | Sequence[float] | None) -> Cine:
    """The planes of a NIfTI, NRRD, MHA or MHD file, each placed where the header puts it."""
    header, array = read_with_header(path)
    origin, direction = np.array(header.origin_mm), header.direction
    if array.ndim not in (2, 3):
        raise ScopeRegError(f"it has {array.ndim} axes", where=str(path), fix="pass one plane, or a stack of planes")
    stated = header.spacing_mm[:2] if header.states_spacing else None
    if given is None and stated is None:
        raise ScopeRegError("it does not say how large a pixel is", where=str(path), fix=_GIVE_IT)
    spacing = as_pair(header.spacing_mm[:2] if given is None else given, "read_frame(spacing_mm)")
    facts: dict[str, Any] = {"spacing_from": "header" if given is None else "given"}
    given_notes = given_spacing_note(spacing, stated, "the header").get("notes", []) if given is not None else []
    if notes := [*header.notes, *given_notes]:
        facts["notes"] = notes
    planes = array if array.ndim == 3 else array[None]
    flat = np.allclose(direction[:2, :2], np.eye(2), atol=1e-6) and np.allclose(origin[2:], 0, atol=1e-6)

    def decode(row: int) -> npt.NDArray[np.float32]:
        return grey_values(planes[row], str(path))

    if len(planes) == 1 and flat:  # its own mm are those of the header: what is found holds where a viewer shows it
        return Cine(path, 1, spacing, decode, origin_mm=(float(origin[0]), float(origin[1])), facts=facts)
    poses = _header_poses(origin, direction, header.spacing_mm, len(planes), path)
    return Cine(path, len(planes), spacing, decode, poses=poses, facts=facts)


def _header_poses(
    origin: npt.NDArray[np.float64],
    direction: npt.NDArray[np.float64],
    spacing: Sequence[float],
    count: int,
    path: Path,
) -> tuple[Pose, ...]:
    """ImageToWorld of every plane of a stack, in LPS; the normal is rows x columns, whatever the third axis says."""
    axes, first = np.eye(3), np.zeros(3)
    axes[: len(origin), : len(origin)] = direction
    first[: len(origin)] = origin
    step = axes[:, 2] * (spacing[2] if len(spacing) > 2 else 0.0)
    rotation = np.stack([axes[:, 0], axes[:, 1], np.cross(axes[:, 0], axes[:, 1])], 1)
    try:
        return tuple(Pose(rotation, first + row * step, "Image", WORLD) for row in range(count))
    except ScopeRegError as error:
        raise ScopeRegError(
            f"its axes are sheared: {error.what}", where=str(path), fix="resample it to square pixels first"
        ) from None


def _read_sweep(path: Path) -> Cine:
    """The frames of an archive of arrays, tracked."""
    sweep = read_npz_sweep(path)
    return Cine(
        path,
        len(sweep),
        sweep.spacing_mm,
        lambda index: sweep.values([index])[0].numpy(),
        poses=tuple(sweep.pose(row) for row in range(len(sweep))),
        facts={"spacing_from": "file"},
    )
