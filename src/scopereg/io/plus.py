"""Transforms of the PLUS toolkit: named AToB, chained from the image to the world, pixel size and pose taken apart."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

import numpy as np
import numpy.typing as npt
import torch

from scopereg.errors import ScopeRegError
from scopereg.geometry import weighted_kabsch

Matrix = npt.NDArray[np.float64]
Link = tuple[str, str]  # from, to

IMAGE = "Image"
SAME_PIXEL = 1e-3  # relative difference between sizes of pixels that are one
MAX_SKEW = 0.1  # cosine between the image axes of a calibration; more is no calibration but a mistake
_LARGEST_CONFIGURATION = 2**24  # bytes
_FARTHEST = 1e6  # mm; beyond it numbers are no places
_NAME = re.compile(r"(\w+?)To([A-Z]\w*)")


class Calibration(NamedTuple):
    """What a PLUS configuration says that does not change from frame to frame."""

    transforms: dict[Link, Matrix]
    clip: tuple[int, int, int, int] | None  # x, y, width, height of the part of the image that counts


def configuration_bytes(path: Path | str) -> bytes:
    """A PLUS configuration as stored, no larger than one may be."""
    try:
        with Path(path).open("rb") as file:
            content = file.read(_LARGEST_CONFIGURATION + 1)
    except OSError as error:
        raise _unreadable(error, str(path)) from None
    if len(content) > _LARGEST_CONFIGURATION:
        raise _unreadable("it is too large", str(path))
    return content


def parsed_configuration(content: bytes, where: str) -> ElementTree.Element:
    """What it says; one that declares entities is refused."""
    try:
        if b"<!" in content.replace(b"<!--", b""):
            raise ValueError("it declares entities")
        return ElementTree.fromstring(content)
    except (ValueError, LookupError, RecursionError, ElementTree.ParseError) as error:
        raise _unreadable(error, where) from None


def _unreadable(reason: object, where: str) -> ScopeRegError:
    return ScopeRegError(f"cannot be read: {reason}", where=where, fix="pass PLUS's configuration, XML")


def link_of(name: str) -> Link | None:
    """The two frames of reference of a transform called AToB."""
    match = _NAME.fullmatch(name)
    return (match[1], match[2]) if match else None


def read_calibration(path: Path | str) -> Calibration:
    """Transforms and clip rectangle of a PLUS configuration (XML)."""
    root = parsed_configuration(configuration_bytes(path), str(path))
    transforms = {
        (entry.get("From", ""), entry.get("To", "")): matrix_of(entry.get("Matrix", ""), str(path))
        for entry in root.iter("Transform")
        if entry.get("Matrix")
    }
    if not transforms:
        raise ScopeRegError(
            "it has no <Transform From= To= Matrix=>",
            where=str(path),
            fix="pass the configuration that PLUS wrote after calibration",
        )
    clip = None
    for entry in root.iter("VolumeReconstruction"):
        words = [word for part in ("Origin", "Size") for word in entry.get(f"ClipRectangle{part}", "").split()]
        if len(words) == 4:
            clip = _rectangle(words, str(path))
    return Calibration(transforms, clip)


def _rectangle(words: list[str], where: str) -> tuple[int, int, int, int]:
    """x, y, width, height of pixels."""
    if not all(word.isdecimal() and word.isascii() and len(word) < 10 for word in words):
        raise ScopeRegError(
            f"its clip rectangle reads {' '.join(words)[:60]!r}", where=where, fix="write whole numbers of pixels"
        )
    x, y, width, height = map(int, words)
    return x, y, width, height


def matrix_of(text: str, where: str) -> Matrix:
    """A 4x4 matrix from sixteen numbers, row after row."""
    try:
        matrix = np.array([float(number) for number in text.split()]).reshape(4, 4)
    except ValueError:
        matrix = np.full((4, 4), np.nan)
    # NaN is not within the farthest either.
    if not np.abs(matrix).max() <= _FARTHEST or not np.allclose(matrix[3], (0, 0, 0, 1), atol=1e-6):
        raise ScopeRegError(
            f"a transform reads {text[:60]!r}",
            where=where,
            fix="write sixteen numbers row after row, the last row 0 0 0 1",
        )
    return matrix


def path_between(links: Iterable[Link], start: str, goal: str) -> list[Link] | None:
    """The shortest way from one frame of reference to another, over links that may be walked both ways."""
    ways: dict[str, list[Link]] = {start: []}
    links = list(links)
    edge = [start]
    while edge and goal not in ways:
        here = edge.pop(0)
        for one, other in links:
            for near, far in ((one, other), (other, one)):
                if near == here and far not in ways:
                    ways[far] = [*ways[here], (near, far)]
                    edge.append(far)
    return ways.get(goal)


def chain(way: Iterable[Link], transforms: Mapping[Link, Matrix]) -> Matrix:
    """The product of the transforms along a way, those walked backwards inverted."""
    total = np.eye(4)
    for near, far in way:
        forward = transforms.get((near, far))
        step = forward if forward is not None else _inverse(transforms[far, near], f"{far}To{near}")
        total = step @ total
    return total


def _inverse(matrix: Matrix, name: str) -> Matrix:
    if not np.linalg.cond(matrix[:3, :3]) < 1e6:  # NaN too
        raise ScopeRegError(
            "it has no inverse", where=f"transform {name}", fix="record or calibrate it again: it is no pose"
        )
    return np.linalg.inv(matrix).astype(np.float64, copy=False)


class RigidImages(NamedTuple):
    """Poses of images with the pixel size taken out of them."""

    spacing_mm: tuple[float, float]  # x, y
    image_to_world: Matrix  # (F, 4, 4), rigid
    skew: float  # cosine between the image axes before they were made square
    moved_mm: float  # farthest that making them square moved a corner of an image


def take_out_pixel_size(
    pixel_to_world: Matrix, shape: tuple[int, int], where: str, *, stated: bool = False
) -> RigidImages:
    """Matrices (F, 4, 4) from pixels (column, row) to world mm as pixel size and rigid poses of images (H, W).

    A pixel of just 1 mm is taken for a pixel size that was left out, unless it is `stated` that it was not.

    Calibrations are fitted with free axes, which come out somewhat skewed; the pose is the rigid one nearest to where
    the matrix puts the corners of the image.
    """
    x_axis, y_axis = pixel_to_world[:, :3, 0], pixel_to_world[:, :3, 1]
    sizes = np.linalg.norm([x_axis, y_axis], axis=-1)  # (2, F)
    spacing = sizes.mean(1)
    if spacing.min() <= 0 or np.ptp(sizes, axis=1).max() > SAME_PIXEL * spacing.min():
        raise ScopeRegError(
            f"pixels measure {sizes.min():g} to {sizes.max():g} mm from frame to frame",
            where=where,
            fix="record trackers as rigid transforms, keep the pixel size in ImageToProbe, and use frames of one depth",
        )
    if not stated and np.allclose(spacing, 1, atol=1e-4):
        raise ScopeRegError(
            "the transforms hold no pixel size: a pixel would measure 1 mm",
            where=where,
            fix="give ImageToProbe in mm per pixel, as PLUS writes it after calibration",
        )
    skew = float((x_axis * y_axis).sum(1)[0] / sizes[:, 0].prod())
    if abs(skew) > MAX_SKEW:
        raise ScopeRegError(
            f"the image axes are not square: cosine {skew:.3f} between them",
            where=where,
            fix=f"calibrate again: more than {MAX_SKEW} is no ultrasound image",
        )
    height, width = shape
    corners = np.array([(x, y) for y in (0, height - 1) for x in (0, width - 1)], np.float64)
    placed = np.einsum("fij,nj->fni", pixel_to_world[:, :3, :2], corners) + pixel_to_world[:, None, :3, 3]
    flat = torch.from_numpy(corners * spacing).expand(len(placed), -1, -1)
    rotation, translation = weighted_kabsch(flat, torch.from_numpy(placed), torch.ones(flat.shape[:2]))
    rigid = np.tile(np.eye(4), (len(placed), 1, 1))
    rigid[:, :3, :3], rigid[:, :3, 3] = rotation.numpy(), translation.numpy()
    now = np.einsum("fij,nj->fni", rigid[:, :3, :2], corners * spacing) + rigid[:, None, :3, 3]
    moved = float(np.linalg.norm(now - placed, axis=-1).max())
    return RigidImages((float(spacing[0]), float(spacing[1])), rigid, skew, moved)
