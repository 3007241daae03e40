"""Fingerprint: what each file of a folder holds, by its header where that is enough, and what is wrong with it."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from scopereg.data.cases import CaseFiles, Progress
from scopereg.data.dataset import Dataset
from scopereg.data.grids import PERCENTILES, as_label_bytes
from scopereg.data.orientation import odd_orientations, orientation_code, orientation_facts, unexpected
from scopereg.data.registry import DATASETS
from scopereg.data.workers import in_parallel
from scopereg.errors import ScopeRegError
from scopereg.io.dicom.volumes import read_slices
from scopereg.io.formats import ImageFile, ImageHeader
from scopereg.io.read_image import check_length, content_sha256, files_of, read_header, read_image

_SAMPLE = 50  # cases whose voxels are read unless all shall be
_ENDS = 2**16  # bytes at both ends of files that are compared before all of them are
_FEW = 64  # files below which starting processes takes longer than the work
Problem = tuple[str, str]  # file or case, and what is wrong


@dataclass(frozen=True)
class FileFacts:
    """Content of one file, or series of files; `shape` is that of its array, x last."""

    file: str
    case: str
    role: str  # image, labels
    bytes: int
    shape: tuple[int, ...] = ()
    spacing_mm: tuple[float, ...] = ()  # in the order of the shape
    orientation: str = ""
    numbers: str = ""
    lowest: float | None = None  # None: the voxels were not read
    highest: float | None = None
    problem: str = ""


@dataclass(frozen=True)
class Tree:
    """The files of a folder and what is wrong: problems spoil the data, remarks are worth a look."""

    layout: str
    cases: tuple[CaseFiles, ...]
    files: tuple[FileFacts, ...]
    problems: tuple[Problem, ...]
    remarks: tuple[str, ...]


class _Task(NamedTuple):
    case: CaseFiles
    role: str
    read_voxels: bool

    @property
    def path(self) -> Path:
        return self.case.image if self.role == "image" or self.case.labels is None else self.case.labels

    def files(self) -> tuple[Path, ...]:
        """The files with the content, headers first."""
        return self.case.others if self.path.is_dir() else files_of(self.path)


def detect_layout(root: Path) -> str:
    """Name of the dataset below a folder; `folder` if it is no other."""
    return next((name for name in DATASETS if name != "folder" and DATASETS[name].found(root)), "folder")


def survey(root: Path, *, full: bool = False, workers: int = 1, progress: Progress | None = None) -> Tree:
    """Description of a folder of volumes or of a dataset as published, with voxels of some cases, or of all."""
    name = detect_layout(root)
    layout = DATASETS[name]
    cases = tuple(layout.find(root))
    step = 1 if full else -(-len(cases) // _SAMPLE)
    tasks = [
        _Task(case, role, place % step == 0)
        for place, case in enumerate(cases)
        for role in (("image",) if case.labels is None else ("image", "labels"))
    ]
    found: dict[_Task, FileFacts] = {}
    describe = partial(describe_file, root=root, layout=layout)
    for done, (task, facts) in enumerate(in_parallel(describe, tasks, workers if len(tasks) >= _FEW else 1), 1):
        found[task] = facts
        if progress is not None:
            progress(done, len(tasks))
    files = tuple(found[task] for task in tasks)
    problems = [(facts.file, facts.problem) for facts in files if facts.problem]
    problems += _unlabelled(cases) + _unlike_pairs(files)
    turned, remarks = _turned(files, layout)
    same_images, same_labels = (_same_content(found, role) for role in ("image", "labels"))
    problems += [*turned, *((names[0], f"the same content as {', '.join(names[1:])}") for names in same_images)]
    remarks += [f"labels with the same content: {', '.join(names)}" for names in same_labels]
    if not any(case.labels for case in cases):
        remarks.append("there are no labels: Dice and HD95 cannot be measured")
    return Tree(name, cases, files, tuple(problems), tuple(remarks))


def describe_file(task: _Task, *, root: Path, layout: Dataset) -> FileFacts:
    """Content of a file, with the first thing that is wrong."""
    facts: dict[str, Any] = {"file": task.path.relative_to(root).as_posix(), "case": task.case.name, "role": task.role}
    try:
        facts["bytes"] = sum(path.stat().st_size for path in task.files())
        header, image = _open(task)
        facts |= {
            "shape": tuple(header.size[::-1]),
            "spacing_mm": tuple(round(float(step), 6) for step in header.spacing_mm[::-1]),
            "orientation": orientation_code(header.direction) if len(header.size) >= 3 else "",
            "numbers": header.kind,
        }
        if task.role == "image":
            layout.check(task.case, header)
        if image is not None:
            facts |= {"lowest": float(image.array.min()), "highest": float(image.array.max())}
            _check_values(image, task, layout.highest_label)
    except ScopeRegError as error:
        facts["problem"] = error.what if error.where == str(task.path) else f"{Path(error.where).name}: {error.what}"
    except OSError as error:
        facts["problem"] = f"it cannot be read: {error.strerror or error}"
    return FileFacts(**{"bytes": 0, **facts})


def _open(task: _Task) -> tuple[ImageHeader, ImageFile | None]:
    """The header of a file, and its image if the voxels shall be read."""
    if task.path.is_dir():  # a series of slices tells its grid only as a whole
        image = read_slices(task.files(), task.path)
        kind = str(image.array.dtype)
        return ImageHeader(image.array.shape[::-1], image.spacing_mm, image.direction, kind, 1), image
    check_length(task.path)
    header = read_header(task.path)
    if header.components != 1:
        raise ScopeRegError(
            f"each voxel holds {header.components} numbers", where=str(task.path), fix="store one channel"
        )
    return header, read_image(task.path) if task.read_voxels else None


def _check_values(image: ImageFile, task: _Task, highest_label: int | None) -> None:
    if task.role == "labels":
        if highest_label is not None:
            as_label_bytes(image.array, str(task.path), highest_label)
        return
    if (lowest := image.array.min()) == image.array.max():
        raise ScopeRegError(f"every voxel is {lowest:g}", where=str(task.path), fix="check that it holds an image")
    low, high = np.percentile(image.array, PERCENTILES)
    if not high > low:  # what becomes black and white: no set can be made of it
        raise ScopeRegError(f"98 % of its voxels are {low:g}", where=str(task.path), fix="check that it holds an image")


def _unlabelled(cases: Sequence[CaseFiles]) -> list[Problem]:
    lacking = [case.name for case in cases if case.labels is None]
    return [(name, "no labels, others have some") for name in lacking] if len(lacking) < len(cases) else []


def _unlike_pairs(files: Iterable[FileFacts]) -> list[Problem]:
    """Labels of another shape than their image."""
    images = {facts.case: facts for facts in files if facts.role == "image" and facts.shape}
    problems = []
    for facts in files:
        image = images.get(facts.case)
        if facts.role == "labels" and facts.shape and image is not None:
            grid = [n for n in image.shape if n > 1]
            if [n for n in facts.shape if n > 1][-len(grid) :] != grid:
                problems.append((facts.file, f"labels of shape {facts.shape} for an image of {image.shape}"))
    return problems


def _turned(files: Iterable[FileFacts], layout: Dataset) -> tuple[list[Problem], list[str]]:
    """Files turned otherwise than the rest or than expected: problems, or for volumes of one's own a remark."""
    codes: dict[str, list[str]] = {}
    for facts in files:
        if facts.orientation and (facts.role == "image" or facts.case in codes):
            codes.setdefault(facts.case, []).append(facts.orientation)
    if layout.orientation is not None and codes:
        problems: list[Problem] = list(odd_orientations(codes, layout.orientation).items())
        words = unexpected(orientation_facts(codes, layout.orientation))
        return problems + ([("all files", words)] if words else []), []
    unlike = [(case, f"the labels are {b}, their volume is {a}") for case, (a, b, *_) in _pairs(codes) if a != b]
    counts = Counter(found[0] for found in codes.values())
    mixed = ", ".join(f"{code} ({count})" for code, count in counts.most_common())
    return unlike, [f"volumes are oriented differently, and used as stored: {mixed}"] if len(counts) > 1 else []


def _pairs(codes: dict[str, list[str]]) -> list[tuple[str, list[str]]]:
    return [(case, found) for case, found in codes.items() if len(found) > 1]


def _same_content(found: dict[_Task, FileFacts], role: str) -> list[list[str]]:
    """Names of files with the same content; only files of one length and with the same ends are read."""
    groups: list[list[_Task]] = [[task for task, facts in found.items() if task.role == role and facts.bytes]]
    for key in (lambda task: found[task].bytes, _ends, lambda task: content_sha256(task.files()[-1:])):
        groups = [part for group in groups for part in _parted(group, key) if len(part) > 1]
    return [[found[task].file for task in group] for group in groups]


def _parted(tasks: Iterable[_Task], key: Callable[[_Task], Any]) -> list[list[_Task]]:
    parts: dict[Any, list[_Task]] = {}
    for task in tasks:
        try:
            parts.setdefault(key(task), []).append(task)
        except OSError:
            continue  # its problem is told already
    return list(parts.values())


def _ends(task: _Task) -> bytes:
    """Hash of both ends of the file with the voxels."""
    path = task.files()[-1]
    digest = hashlib.sha256()
    with path.open("rb") as file:
        digest.update(file.read(_ENDS))
        file.seek(max(0, path.stat().st_size - _ENDS))
        digest.update(file.read(_ENDS))
    return digest.digest()
