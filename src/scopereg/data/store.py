"""VolumeSet: volumes of one shape as one array, and the folder that keeps them on disk."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from scopereg.data.poses import StoredPoses, check_pose_facts
from scopereg.errors import ScopeRegError
from scopereg.io.arrays import read_npy_header
from scopereg.io.files import atomic_path, output_folder, write_text
from scopereg.io.records import Limits, Record, read_json
from scopereg.provenance import tensors_sha256

FORMAT = "scopereg-set-1"
MANIFEST = "manifest.json"
_FRAME_FILES = {"images": "frames", "rotation": "frame_rotations", "translation": "frame_translations"}
_ARRAYS = ("images", "labels", *_FRAME_FILES.values())
_LIMITS = Limits(64 * 2**20, 20, 4_000_000)  # a hash for each of very many files
_MAKE_AGAIN = "prepare the data again: the folder is not as it was written"


@dataclass(frozen=True, eq=False)
class AcquiredFrames:
    """Frames acquired in each volume beforehand (phantoms)."""

    images: Tensor  # (N, F, H, W) uint8
    rotation: Tensor  # (N, F, 3, 3) float32, slice to volume
    translation: Tensor  # (N, F, 3) float32, centred voxels of the reference volume

    def __post_init__(self) -> None:
        kinds = {"images": torch.uint8, "rotation": torch.float32, "translation": torch.float32}
        for name, kind in kinds.items():
            _check_tensor(getattr(self, name), kind, f"AcquiredFrames({name})")
        lead = tuple(self.images.shape[:2])
        good = self.images.ndim == 4 and self.rotation.shape == (*lead, 3, 3) and self.translation.shape == (*lead, 3)
        if not good or 0 in self.images.shape:
            shapes = ", ".join(f"{name} {tuple(getattr(self, name).shape)}" for name in kinds)
            raise ScopeRegError(
                f"the shapes do not fit together: {shapes}",
                where="AcquiredFrames",
                fix="pass images (N, F, H, W), rotations (N, F, 3, 3) and translations (N, F, 3)",
            )
        if not all(bool(torch.isfinite(value).all()) for value in (self.rotation, self.translation)):
            raise ScopeRegError("a pose is not finite", where="AcquiredFrames", fix="pass the poses of the frames")

    def __getitem__(self, rows: Any) -> AcquiredFrames:
        """The frames of some volumes."""
        return AcquiredFrames(*(getattr(self, entry.name)[rows] for entry in fields(self)))

    def to(self, device: torch.device | str) -> AcquiredFrames:
        """A copy whose tensors live on `device`."""
        return AcquiredFrames(*(getattr(self, entry.name).to(device) for entry in fields(self)))


@dataclass(frozen=True, eq=False)
class VolumeSet:
    """Volumes of one shape and spacing, uint8, each with the surroundings beyond its reference field."""

    name: str  # "camus", "muregpro", "folder", "echo", ...
    images: Tensor  # (N, D + 2 mz, H + 2 my, W + 2 mx) uint8
    spacing_mm: float  # isotropic
    cases: tuple[str, ...]  # one per volume
    patients: tuple[str, ...]  # one per volume: splits keep a patient together
    margin: tuple[int, int, int] = (0, 0, 0)  # voxels of surroundings on each side along z, y, x
    labels: Tensor | None = None  # uint8, shape of images
    frames: AcquiredFrames | None = None
    facts: dict[str, Any] = field(default_factory=dict)  # how it was made; JSON
    poses: StoredPoses | None = None  # evaluation poses, of sets that were prepared with some

    def __post_init__(self) -> None:
        for name in ("cases", "patients", "margin"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        _check_tensor(self.images, torch.uint8, "VolumeSet(images)")
        if self.images.ndim != 4 or 0 in self.images.shape:
            raise ScopeRegError(
                f"the images have shape {tuple(self.images.shape)}",
                where="VolumeSet(images)",
                fix="pass (N, D, H, W) with at least one volume",
            )
        _check_names(self.cases, self.patients, len(self.images))
        _check_grid(self.margin, self.spacing_mm, tuple(self.images.shape[1:]))
        _check_companions(self)
        try:
            json.dumps(self.facts, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise ScopeRegError(
                f"they cannot be stored as JSON: {error}",
                where="VolumeSet(facts)",
                fix="use text, finite numbers, lists and dictionaries",
            ) from None

    def __len__(self) -> int:
        return len(self.images)

    def __repr__(self) -> str:
        shape = " x ".join(map(str, self.shape))
        return f"VolumeSet({self.name}, {len(self)} volumes {shape}, {self.spacing_mm:g} mm, margin {self.margin})"

    @property
    def shape(self) -> tuple[int, int, int]:
        """Shape D, H, W of the reference field, surroundings left out."""
        depth, height, width = (n - 2 * m for n, m in zip(self.images.shape[1:], self.margin, strict=True))
        return depth, height, width

    def subset(self, rows: Sequence[int]) -> VolumeSet:
        """The volumes of some rows, in that order."""
        picked = [int(row) for row in rows]
        if not picked or min(picked) < 0 or max(picked) >= len(self) or len(set(picked)) < len(picked):
            raise ScopeRegError(
                f"rows {picked[:8]} of a set of {len(self)} volumes",
                where="VolumeSet.subset(rows)",
                fix=f"pass one or more different rows from 0 to {len(self) - 1}",
            )
        index = torch.tensor(picked, device=self.images.device)
        return replace(
            self,
            images=self.images[index],
            cases=tuple(self.cases[row] for row in picked),
            patients=tuple(self.patients[row] for row in picked),
            labels=None if self.labels is None else self.labels[index],
            frames=None if self.frames is None else self.frames[index],
        )

    def to(self, device: torch.device | str) -> VolumeSet:
        """A copy whose tensors live on `device`."""
        return replace(
            self,
            images=self.images.to(device),
            labels=None if self.labels is None else self.labels.to(device),
            frames=None if self.frames is None else self.frames.to(device),
        )

    def organ(self, rows: Tensor) -> Tensor:
        """Masks (B, ...) of rows (B,), bool, shape of images: all classes, of a heart what the epicardium holds."""
        if self.labels is None:
            raise ScopeRegError(
                f"{self.name} has no labels", where="VolumeSet.organ", fix="load the dataset with its labels"
            )
        labels = self.labels[rows.to(self.labels.device)]
        outside = [number for number, name in enumerate(self.facts.get("classes", ())) if name == "left atrium"]
        return (labels > 0) & ~torch.isin(labels, torch.tensor(outside, dtype=labels.dtype, device=labels.device))

    def references(self, rows: Tensor) -> Tensor:
        """Reference volumes (B, D, H, W) of rows (B,), float32 in [0, 1], surroundings left out."""
        (mz, my, mx), (depth, height, width) = self.margin, self.shape
        field_only = self.images[:, mz : mz + depth, my : my + height, mx : mx + width]  # a view: rows are copied below
        return field_only[rows.to(self.images.device)].float() / 255

    def sha256(self) -> str:
        """Hash of everything that decides a result: voxels, labels, frames, spacing and margin; made once."""
        return self._sha256

    @cached_property
    def _sha256(self) -> str:
        grid = torch.tensor([self.spacing_mm, *self.margin], dtype=torch.float64)
        return tensors_sha256(grid, *_arrays(self).values())


def grey_bytes(values: Tensor) -> Tensor:
    """Grey values in [0, 1] as a set keeps them: bytes, on the CPU."""
    return (values.clamp(0, 1) * 255).round().to("cpu", torch.uint8)


def save_set(volume_set: VolumeSet, folder: Path | str) -> Path:
    """Write the set as a folder of .npy files with a manifest, the manifest last: without it the folder is no set."""
    folder = output_folder(folder)
    (folder / MANIFEST).unlink(missing_ok=True)
    stored = {}
    for name, tensor in _arrays(volume_set).items():
        array = tensor.detach().cpu().contiguous().numpy()
        with atomic_path(folder / f"{name}.npy") as temporary, temporary.open("wb") as file:
            np.save(file, array, allow_pickle=False)
        stored[name] = {"shape": list(array.shape), "dtype": str(array.dtype), "sha256": _values_sha256(array)}
    described = {name: getattr(volume_set, name) for name in ("name", "spacing_mm", "margin", "cases", "patients")}
    write_manifest(folder, arrays=stored, facts=volume_set.facts, **described)
    return folder


def write_manifest(
    folder: Path,
    *,
    name: str,
    spacing_mm: float,
    margin: Sequence[int],
    cases: Sequence[str],
    patients: Sequence[str],
    arrays: dict[str, dict[str, Any]],
    facts: dict[str, Any],
) -> None:
    """Make a set of the arrays in a folder, described by shape, dtype and sha256; others of earlier sets go."""
    for other in set(_ARRAYS) - set(arrays):
        (folder / f"{other}.npy").unlink(missing_ok=True)
    content = {
        "format": FORMAT,
        "name": name,
        "spacing_mm": spacing_mm,
        "margin": margin,
        "cases": cases,
        "patients": patients,
        "arrays": arrays,
        "facts": facts,
    }
    write_text(folder / MANIFEST, json.dumps(content, indent=1) + "\n")


def open_set(folder: Path | str, *, verify: bool = True) -> VolumeSet:
    """A stored set, memory-mapped; `verify` reads every byte once and compares hashes.

    Writing into its tensors changes nothing on disk.
    """
    folder = Path(folder)
    told = _told(folder)
    arrays = told.record("arrays")
    for name in arrays.values:
        if name not in _ARRAYS:
            raise arrays.wrong(name, f"one of {', '.join(_ARRAYS)}")
    mapped = {name: _map_array(folder / f"{name}.npy", arrays.record(name), verify) for name in arrays.values}
    if "images" not in mapped:
        raise arrays.wrong("images", "there")
    frames = [mapped[name] for name in _FRAME_FILES.values() if name in mapped]
    if len(frames) not in (0, len(_FRAME_FILES)):
        raise arrays.wrong("frames", f"with all of {', '.join(_FRAME_FILES.values())}")
    facts = dict(told.record("facts").values)
    cases = _names(told, "cases")
    stored = facts.get("evaluation_poses")
    return VolumeSet(
        name=told.text("name"),
        images=mapped["images"],
        spacing_mm=told.number("spacing_mm"),
        cases=cases,
        patients=_names(told, "patients"),
        margin=_margin(told),
        labels=mapped.get("labels"),
        frames=AcquiredFrames(*frames) if frames else None,
        facts=facts,
        poses=None if stored is None else StoredPoses(folder / stored["file"], stored, cases),
    )


def read_manifest(folder: Path) -> dict[str, Any]:
    """Manifest of the set in a folder, its values of the right kinds."""
    return dict(_told(folder).values)


def _told(folder: Path) -> Record:
    path = folder / MANIFEST
    if not path.is_file():
        raise ScopeRegError(
            "there is no set here: no manifest.json",
            where=str(folder),
            fix="name the folder that the data were prepared into; if preparing them was interrupted, start it again",
        )
    told = Record.of(read_json(path, _MAKE_AGAIN, limits=_LIMITS), str(path), _MAKE_AGAIN)
    if told.values.get("format") != FORMAT:
        raise ScopeRegError(
            f"the format is {str(told.values.get('format'))[:60]!r}",
            where=str(path),
            fix=f"this version reads {FORMAT} alone",
        )
    _check_facts(told.record("facts"))
    return told


def _check_facts(facts: Record) -> None:
    """An error unless facts that are read again are of the kinds that were written."""
    for name, good in _FACTS.items():
        if facts.has(name) and not good(facts.values[name]):
            raise facts.wrong(name, "of the kind that was written")
    if facts.has("evaluation_poses"):
        check_pose_facts(facts.record("evaluation_poses"))
    if facts.has("splits"):
        splits = facts.record("splits")
        splits.text("sha256")
        if splits.text("file") != Path(splits.text("file")).name or not _texts(splits.list("rules")):
            raise facts.wrong("splits", "of the kind that was written")


def _texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _mapping(of: Callable[[Any], bool], *keys: str) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, dict) and {*keys} <= value.keys() and all(map(of, value.values()))


def _text(value: Any) -> bool:
    return isinstance(value, str)


_FACTS: dict[str, Callable[[Any], bool]] = {
    "dataset": _text,
    "anatomy": _text,
    "classes": _texts,
    "notes": _mapping(_texts),
    "skipped": _mapping(_text),
    "orientation": _mapping(_text, "expected"),
    "parameters": _mapping(lambda _: True),
    "sources_sha256": _mapping(_text),
    "folds": lambda value: isinstance(value, list),
    "splits": _mapping(lambda _: True),
    "evaluation_poses": _mapping(lambda _: True),
}


def _names(told: Record, key: str) -> tuple[str, ...]:
    names = told.list(key)
    if not all(isinstance(name, str) and name for name in names):
        raise told.wrong(key, "a list of names")
    return tuple(names)


def _margin(told: Record) -> tuple[int, int, int]:
    numbers = told.numbers("margin", 3)
    if any(number != int(number) for number in numbers):
        raise told.wrong("margin", "three whole numbers")
    z, y, x = map(int, numbers)
    return z, y, x


def _map_array(path: Path, told: Record, verify: bool) -> Tensor:
    if not path.is_file():
        raise ScopeRegError("the file is missing", where=str(path), fix=_MAKE_AGAIN)
    wanted = told.list("shape", most=8), told.text("dtype", choices=("uint8", "float32")), told.text("sha256")
    try:
        with path.open("rb") as file:
            header = read_npy_header(file)
        found = list(header.shape), str(header.dtype)
        if found != wanted[:2]:
            raise ScopeRegError(
                f"it holds {found[1]} of shape {found[0]}, the manifest says {wanted[1]} of {wanted[0]}",
                where=str(path),
                fix=_MAKE_AGAIN,
            )
        if path.stat().st_size != header.offset + header.size or header.size == 0:
            raise ValueError(f"it has {path.stat().st_size} bytes, not {header.offset + header.size}")
        # Copy on write: torch has no read-only tensors, and nobody shall write into the file.
        array = np.memmap(path, header.dtype, "c", header.offset, header.shape)
    except (OSError, ValueError, OverflowError) as error:
        raise ScopeRegError(f"it is damaged: {error}", where=str(path), fix=_MAKE_AGAIN) from None
    if verify and _values_sha256(array) != wanted[2]:
        raise ScopeRegError("its content is not what was written", where=str(path), fix=_MAKE_AGAIN)
    return torch.from_numpy(array)


def _arrays(volume_set: VolumeSet) -> dict[str, Tensor]:
    """Every array of a set under the name of its file."""
    arrays = {"images": volume_set.images}
    if volume_set.labels is not None:
        arrays["labels"] = volume_set.labels
    if volume_set.frames is not None:
        arrays |= {file: getattr(volume_set.frames, name) for name, file in _FRAME_FILES.items()}
    return arrays


def _values_sha256(array: np.ndarray[Any, Any]) -> str:
    return hashlib.sha256(np.ascontiguousarray(array).data).hexdigest()


def _check_tensor(value: Any, kind: torch.dtype, where: str) -> None:
    if not isinstance(value, Tensor) or value.dtype != kind:
        found = value.dtype if isinstance(value, Tensor) else type(value).__name__
        raise ScopeRegError(f"got {found}", where=where, fix=f"pass a tensor of {kind}")


def _check_names(cases: tuple[str, ...], patients: tuple[str, ...], count: int) -> None:
    if len(cases) != count or len(patients) != count or not all(isinstance(n, str) and n for n in cases + patients):
        raise ScopeRegError(
            f"{len(cases)} cases and {len(patients)} patients for {count} volumes",
            where="VolumeSet(cases, patients)",
            fix="pass a name (text) of the case and of the patient for each volume",
        )
    if len(set(cases)) < count:
        twice = next(name for row, name in enumerate(cases) if name in cases[:row])
        raise ScopeRegError(f"two volumes are called {twice!r}", where="VolumeSet(cases)", fix="name each differently")


def _check_grid(margin: tuple[int, ...], spacing_mm: float, stored: tuple[int, ...]) -> None:
    whole = len(margin) == 3 and all(isinstance(m, int) and m >= 0 for m in margin)
    if not whole or any(n - 2 * m < 1 for n, m in zip(stored, margin, strict=True)):
        raise ScopeRegError(
            f"a margin of {margin} in arrays of {stored}",
            where="VolumeSet(margin)",
            fix="pass voxels along z, y, x, 0 or more, that leave a reference field in the middle",
        )
    if not (math.isfinite(spacing_mm) and spacing_mm > 0):
        raise ScopeRegError(f"{spacing_mm}", where="VolumeSet(spacing_mm)", fix="pass a positive number of mm")


def _check_companions(volume_set: VolumeSet) -> None:
    images, labels, frames = volume_set.images, volume_set.labels, volume_set.frames
    if labels is not None:
        _check_tensor(labels, torch.uint8, "VolumeSet(labels)")
        if labels.shape != images.shape:
            raise ScopeRegError(
                f"labels have shape {tuple(labels.shape)}, images {tuple(images.shape)}",
                where="VolumeSet(labels)",
                fix="pass labels on the grid of the images, surroundings included",
            )
    if frames is not None and len(frames.images) != len(images):
        raise ScopeRegError(
            f"frames of {len(frames.images)} volumes, but there are {len(images)}",
            where="VolumeSet(frames)",
            fix="pass the frames of each volume, in the order of the images",
        )
    places = {str(tensor.device) for tensor in _arrays(volume_set).values()}
    if len(places) > 1:
        found = " and ".join(sorted(places))
        raise ScopeRegError(f"tensors on {found}", where="VolumeSet", fix="put them on one device")
