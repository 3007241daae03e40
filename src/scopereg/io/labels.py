"""Label maps: whole numbers in space with their names and colours, read strictly and laid on the grid of a volume."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from scopereg.errors import ScopeRegError
from scopereg.io.formats import ImageHeader, Matrix
from scopereg.io.limits import check_size
from scopereg.io.read_image import ending_of, format_of, read_header
from scopereg.io.text_header import header_line

MOST_LABELS = 255  # of a map: a byte each, 0 for none
LONGEST_NAME = 80
_LARGEST = 2**31
_SAME_MM, _SAME_AXIS = 1e-3, 1e-4
_INTEGERS = "iu"
# Told apart by people who see few colours, and none of them that of a light.
PALETTE = (
    *((86, 180, 233), (204, 121, 167), (181, 137, 255), (64, 201, 190), (233, 226, 110), (214, 140, 96)),
    *((120, 144, 255), (247, 156, 200), (160, 214, 70), (150, 200, 230), (196, 170, 120), (230, 120, 230)),
)
_SEGMENT = re.compile(r"Segment(\d{1,5})_(Name|LabelValue|Color|Layer)")
_EXPORT = "in 3D Slicer, export the segmentation to a label map (Segmentations, Export)"


class Label(NamedTuple):
    """One of the numbers of a map, and what it stands for."""

    value: int  # as stored
    name: str
    colour: tuple[int, int, int]  # red, green, blue, to 255


class Laid(NamedTuple):
    """A map on the grid of something else."""

    voxels: npt.NDArray[np.uint8]  # (z, y, x): 0 for none, else the place of its label in the list, from 1
    outside: float  # share of the labelled voxels that lie beyond that grid


@dataclass(frozen=True, eq=False)
class LabelMap:
    """Labels of the voxels of one grid."""

    voxels: npt.NDArray[np.uint8]  # (z, y, x): 0 for none, else the place of its label in the list, from 1
    labels: tuple[Label, ...]
    index_to_world: Matrix  # 4x4, from (i, j, k, 1) to LPS mm
    path: Path
    states_place: bool = True  # whether the file says where its voxels lie

    def on_grid(self, shape: Sequence[int], index_to_world: Matrix) -> Laid:
        """The label nearest to each voxel of a grid (z, y, x); an error where no labelled voxel lies on it."""
        outside = self._outside(shape, index_to_world)
        if outside >= 1:
            raise ScopeRegError(
                "none of its labelled voxels lies in the volume",
                where=str(self.path),
                fix="pass labels in the frame of reference of this volume: made from it, or registered to it",
            )
        to_own = np.linalg.inv(self.index_to_world) @ index_to_world
        laid = np.zeros(tuple(shape), np.uint8)
        rows, columns = np.mgrid[: shape[1], : shape[2]].astype(np.float32)
        for layer in range(shape[0]):
            places = [_rounded(line, columns, rows, layer) for line in to_own[:3]]
            within = _within(places, self.voxels.shape[::-1])
            x, y, z = (place[within] for place in places)
            laid[layer][within] = self.voxels[z, y, x]
        return Laid(laid, outside)

    def check_grid(self, shape: Sequence[int], index_to_world: Matrix) -> None:
        """An error unless the map has this very grid: needed where one of both does not say where it lies."""
        if tuple(shape) == self.voxels.shape and _alike(self.index_to_world, index_to_world):
            return
        own, other = (" x ".join(str(n) for n in sizes[::-1]) for sizes in (self.voxels.shape, tuple(shape)))
        raise ScopeRegError(
            f"nobody can tell where its labels lie: {own} voxels on another grid than the {other} of the volume, and "
            "one of both files states no orientation",
            where=str(self.path),
            fix="store the labels with the grid of the volume, or both with their orientation",
        )

    def _outside(self, shape: Sequence[int], index_to_world: Matrix) -> float:
        """Share of the labelled voxels that lie beyond a grid."""
        to_other = np.linalg.inv(index_to_world) @ self.index_to_world
        count = missed = 0
        for layer, labels in enumerate(self.voxels):
            rows, columns = np.nonzero(labels)
            places = [_rounded(line, columns, rows, layer) for line in to_other[:3]]
            count += len(rows)
            missed += len(rows) - int(_within(places, shape[::-1]).sum())
        return missed / count


def read_labels(path: Path | str) -> LabelMap:
    """A label map of whole numbers (NIfTI, NRRD, MHA), with the names and colours of 3D Slicer's `.seg.nrrd`."""
    path = Path(path)
    header = read_header(path)
    _check_header(header, path)
    stored = _one_volume(format_of(path).read_voxels(header), path)
    values = _values_of(stored, path)
    if not values:
        raise ScopeRegError("all of it is 0: nothing is labelled", where=str(path), fix="pass a map with labels")
    if len(values) > MOST_LABELS:
        raise ScopeRegError(
            f"it holds {len(values)} different labels, {MOST_LABELS} are the most",
            where=str(path),
            fix="pass labels, not grey values",
        )
    matrix = np.eye(4)
    matrix[:3, :3] = header.direction[:3, :3] * np.asarray(header.spacing_mm[:3])
    matrix[:3, 3] = header.origin_mm[:3]
    named = _named_segments(path) if ending_of(path.name) == ".nrrd" else {}
    labels = tuple(named.get(value) or usual_label(value, place) for place, value in enumerate(values))
    return LabelMap(_ranks(stored, values), labels, matrix, path, header.states_place)


def usual_label(value: int, place: int) -> Label:
    """A label that nobody named, the so-and-so-many-th of its map."""
    return Label(value, f"label {value}", PALETTE[place % len(PALETTE)])


def _check_header(header: ImageHeader, path: Path) -> None:
    if header.components != 1:
        raise ScopeRegError(
            f"it holds {header.components} layers of labels, which overlap", where=str(path), fix=_EXPORT
        )
    if not header.states_spacing:
        raise ScopeRegError(
            "it does not say how large a voxel is", where=str(path), fix="store it again with the size of its voxels"
        )
    check_size(header.size[::-1], 8, str(path), in_use=False)


def _one_volume(stored: npt.NDArray[Any], path: Path) -> npt.NDArray[Any]:
    if stored.ndim == 4 and len(stored) == 1:
        return stored[0]
    if stored.ndim != 3:
        raise ScopeRegError(
            f"it holds {' x '.join(map(str, stored.shape[::-1]))} values, which is no label map of a volume",
            where=str(path),
            fix="pass one 3D label map",
        )
    return stored


def _values_of(stored: npt.NDArray[Any], path: Path) -> list[int]:
    """The labels that occur, in order; an error for anything but whole numbers from 0 on."""
    found: set[int] = set()
    for layer in stored:
        if layer.dtype.kind not in _INTEGERS and not (np.isfinite(layer).all() and (layer == np.rint(layer)).all()):
            raise ScopeRegError(
                "it holds numbers that are not whole", where=str(path), fix="pass labels, not grey values or shares"
            )
        if layer.min() < 0:
            raise ScopeRegError(
                f"it holds the label {int(layer.min())}", where=str(path), fix="number labels from 0 on"
            )
        if layer.max() > _LARGEST:
            raise ScopeRegError(f"it holds the label {layer.max():g}", where=str(path), fix="number labels from 0 on")
        small = layer.max() < 2**16  # then counting is quicker than sorting
        present = np.flatnonzero(np.bincount(layer.ravel().astype(np.int64))) if small else np.unique(layer)
        found.update(int(value) for value in present)
        if len(found) > 2**16:
            break
    return sorted(found - {0})


def _ranks(stored: npt.NDArray[Any], values: Sequence[int]) -> npt.NDArray[np.uint8]:
    ranks = np.zeros(stored.shape, np.uint8)
    known = np.array([0, *values])
    for layer, labels in enumerate(stored):
        ranks[layer] = np.searchsorted(known, labels)
    return ranks


def _rounded(line: Matrix, columns: Any, rows: Any, layer: int) -> npt.NDArray[np.int64]:
    """One index of another grid, nearest to places of this one."""
    place = line[0] * columns + line[1] * rows + (line[2] * layer + line[3])
    nearest: npt.NDArray[np.int64] = np.floor(place + 0.5).clip(-1, 2**31).astype(np.int64)
    return nearest


def _within(places: Sequence[npt.NDArray[np.int64]], size: Sequence[int]) -> npt.NDArray[np.bool_]:
    inside = np.ones(places[0].shape, bool)
    for place, count in zip(places, size, strict=True):
        inside &= (place >= 0) & (place < count)
    return inside


def _alike(a: Matrix, b: Matrix) -> bool:
    steps = np.allclose(a[:3, :3], b[:3, :3], rtol=0, atol=_SAME_AXIS * np.abs(b[:3, :3]).max())
    return bool(steps and np.allclose(a[:3, 3], b[:3, 3], rtol=0, atol=_SAME_MM))


def _named_segments(path: Path) -> dict[int, Label]:
    """Names and colours that 3D Slicer writes beside the fields of a NRRD header, by the value of their voxels."""
    told: dict[str, dict[str, str]] = {}
    for key, value in _words(path):
        found = _SEGMENT.fullmatch(key)
        if found:
            told.setdefault(found[1], {})[found[2]] = value
    segments = {}
    for number, words in told.items():
        if any(words.get("Layer", "0").strip() != other.get("Layer", "0").strip() for other in told.values()):
            raise ScopeRegError("its segments lie in several layers, which overlap", where=str(path), fix=_EXPORT)
        value = words.get("LabelValue", "").strip()
        if value.isascii() and value.isdigit() and len(value) < 10:
            usual = usual_label(int(value), int(number))
            segments[int(value)] = Label(int(value), _name(words) or usual.name, _colour(words) or usual.colour)
    return segments


def _words(path: Path) -> Iterator[tuple[str, str]]:
    """Keys and values of a NRRD header that are no fields of its format; it has been read before, and is sound."""
    with path.open("rb") as file:
        while line := header_line(file, path):
            key, mark, value = line.partition(":=")
            if mark and not line.startswith("#"):
                yield key, value


def _name(words: Mapping[str, str]) -> str:
    """In one line; headers are bytes, which 3D Slicer writes as UTF-8."""
    stored = words.get("Name", "").encode("latin-1").decode("utf-8", "replace")
    return " ".join("".join(letter if letter.isprintable() else " " for letter in stored).split())[:LONGEST_NAME]


def _colour(words: Mapping[str, str]) -> tuple[int, int, int] | None:
    try:
        red, green, blue = (round(255 * min(max(float(part), 0.0), 1.0)) for part in words.get("Color", "").split())
    except (ValueError, OverflowError):
        return None
    return red, green, blue
