"""Example frames: frames of results made again from their data, checked, and shown as rows of pictures."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

from scopereg.data.datasets import load_dataset
from scopereg.data.examples import CaseExamples, case_examples
from scopereg.data.frames import PROTOCOLS, Protocol
from scopereg.data.phantom.anatomy import ANATOMIES
from scopereg.data.phantom.sets import make_phantoms
from scopereg.data.poses import FRAMES_PER_CASE
from scopereg.data.store import MANIFEST, VolumeSet
from scopereg.errors import ScopeRegError, did_you_mean
from scopereg.evaluation.metrics import ncc
from scopereg.evaluation.results import POSE, START, FrameResult, Group, ResultsFile, is_failure
from scopereg.geometry import SUCCESS_MM, VoxelPoses, euler_deg_from_rotation, rotation_from_euler_deg, sample_slice
from scopereg.io.pictures import grey_pixels, red_difference_pixels
from scopereg.report.page import Picture, Report

_SAME_POSE = 0.01  # voxels and degrees: far more than files round away, far less than another draw
_SAME_NCC = 0.002  # likewise for the correlation of a frame with the slice found
_NEEDED = "Pictures need the images, which results do not hold."
_OTHER_DATA = "pass the data that the results were made with, in the same version"


@dataclass(frozen=True, eq=False)
class ExampleFrame:
    """A frame and the volume's slices at the poses that matter, all (H, W) in [0, 1]."""

    frame: Tensor
    start: Tensor  # at the identity, where every method begins
    found: dict[str, Tensor | None]  # by method; None where it was not located
    truth: Tensor


class ExampleFrames:
    """Makes frames again, for the datasets whose data are at hand."""

    def __init__(self, files: Sequence[ResultsFile], dataset: str | None = None, data: Path | None = None) -> None:
        self._facts = {row.run: file.facts for file in files for row in file.rows}
        self._made: dict[tuple[Any, ...], tuple[VolumeSet, int]] = {}
        names = list(dict.fromkeys(row.dataset for file in files for row in file.rows))
        self._volumes = None if data is None else _load(files, names, dataset, data)
        self._dataset = dataset if self._volumes is None else self._volumes.name
        if self._dataset is not None and self._dataset not in names:
            raise ScopeRegError(
                f"there are no results of {self._dataset}{did_you_mean(self._dataset, names)}",
                where="dataset=" if self._volumes is None else str(data),
                fix=f"the results are of {', '.join(names)}",
            )
        if data is None and dataset is not None and dataset not in ANATOMIES:
            raise ScopeRegError(f"{dataset} cannot be made, only read", where="dataset=", fix="add data=FOLDER")

    def why_not(self, group: Group) -> str | None:
        """Reason why there are no pictures of a group and what helps; None where there are."""
        if group.protocol not in PROTOCOLS:
            return f"Frames of the {group.protocol} protocol cannot be made again from the volumes alone."
        if group.dataset == self._dataset and (self._volumes is not None or self._phantoms(group)):
            return None
        if group.dataset in ANATOMIES and self._phantoms(group):
            return f"{_NEEDED} Add dataset={group.dataset}: its phantoms are made again."
        return (
            f"{_NEEDED} Add dataset={group.dataset} data=FOLDER, with the folder that the evaluation read, or a "
            "prepared set."
        )

    def example(self, group: Group, index: int) -> ExampleFrame:
        """A frame of a group; an error where what is made again is not what was measured."""
        rows = {method: rows[index] for method, rows in group.methods.items()}
        some = next(iter(rows.values()))
        examples = self._examples(some)
        _check_pose(some, examples.poses)
        frame = examples.frames[some.frame]
        nothing = VoxelPoses(torch.eye(3), torch.zeros(3))
        truth = VoxelPoses(examples.poses.rotation[some.frame], examples.poses.translation[some.frame])
        found = {method: _found_slice(row, examples.volume, frame) for method, row in rows.items()}
        return ExampleFrame(
            frame, _slice(examples.volume, nothing, frame), found, _slice(examples.volume, truth, frame)
        )

    def _phantoms(self, group: Group) -> dict[str, Any] | None:
        """Facts by which the phantoms of a group were made."""
        some = next(iter(group.methods.values()))[0]
        return _data_facts(self._facts[some.run]).get("phantoms")

    def _examples(self, row: FrameResult) -> CaseExamples:
        settings = self._facts[row.run].get("settings", {})
        volumes, place = self._find(row)
        return case_examples(
            volumes,
            place,
            cast(Protocol, row.protocol),
            row.magnitude,
            seed=settings.get("seed", 0),
            frames=settings.get("frames", FRAMES_PER_CASE),
        )

    def _find(self, row: FrameResult) -> tuple[VolumeSet, int]:
        """The set with the case of a row, and its place there."""
        if self._volumes is None:
            return self._make(row)
        if row.case not in self._volumes.cases:
            raise ScopeRegError(f"there is no case {row.case}", where=f"data=, {self._volumes.name}", fix=_OTHER_DATA)
        return self._volumes, self._volumes.cases.index(row.case)

    def _make(self, row: FrameResult) -> tuple[VolumeSet, int]:
        """A single phantom; each is of its own seed, whatever else was made with it."""
        data = _data_facts(self._facts[row.run])
        made = data["phantoms"]
        key = (row.case, made["frames"], made["magnitude"], *data["shape"])
        if key not in self._made:
            depth, height, width = data["shape"]
            volumes = make_phantoms(
                made["anatomy"],
                1,
                seed=int(row.case.removeprefix(made["anatomy"])),
                frames=made["frames"],
                magnitude=made["magnitude"],
                shape=(depth, height, width),
            )
            self._made[key] = volumes, 0
        return self._made[key]


def _data_facts(facts: dict[str, Any]) -> dict[str, Any]:
    found = facts.get("data")
    return found if isinstance(found, dict) else {}


def _load(files: Sequence[ResultsFile], names: Sequence[str], dataset: str | None, data: Path) -> VolumeSet:
    """The data; their name and size are those of the results where nobody says otherwise."""
    stored = (data / MANIFEST).is_file()
    if dataset is None and not stored and len(names) > 1:
        raise ScopeRegError(
            f"the results are of {', '.join(names)}", where=f"data= {data}", fix="add dataset= with one of them"
        )
    name = dataset or ("folder" if stored else names[0])
    shapes = [_data_facts(file.facts).get("shape") for file in files if file.rows and file.rows[0].dataset == name]
    size = next((shape[1] for shape in shapes if shape), 128)
    return load_dataset(name, data, size=size, skip_bad=True)


def _check_pose(row: FrameResult, poses: VoxelPoses) -> None:
    where = f"{row.dataset}, case {row.case}, frame {row.frame}"
    if row.frame >= len(poses.rotation):
        raise ScopeRegError(f"only {len(poses.rotation)} frames are made again", where=where, fix=_OTHER_DATA)
    made = torch.cat([poses.translation[row.frame], euler_deg_from_rotation(poses.rotation[row.frame])])
    told = torch.tensor([getattr(row, f"true_{name}") for name in POSE])
    if not torch.allclose(made, told.to(made), rtol=0, atol=_SAME_POSE):
        shown = "; ".join(", ".join(f"{value:.2f}" for value in pose.tolist()) for pose in (made, told))
        raise ScopeRegError(
            f"the true pose of the frame made again is not that of the results (voxels, degrees): {shown}",
            where=where,
            fix=_OTHER_DATA,
        )


def _found_slice(row: FrameResult, volume: Tensor, frame: Tensor) -> Tensor | None:
    """The slice at the pose found; its correlation tells whether the images are those of the results."""
    numbers = [getattr(row, f"found_{name}") for name in POSE]
    if not all(map(math.isfinite, numbers)):
        return None
    pose = VoxelPoses(rotation_from_euler_deg(torch.tensor(numbers[3:])), torch.tensor(numbers[:3]))
    cut = _slice(volume, pose, frame)
    likeness = float(ncc(cut[None], frame[None], constant="nan"))
    if not (math.isnan(row.ncc) and math.isnan(likeness)) and not abs(likeness - row.ncc) <= _SAME_NCC:
        raise ScopeRegError(
            f"at the pose found by {row.method} the correlation is {likeness:.4f}, in the results {row.ncc:.4f}: "
            "these are other images",
            where=f"{row.dataset}, case {row.case}, frame {row.frame}",
            fix=f"{_OTHER_DATA}; phantoms made on a GPU have speckle of their own: store the set and pass it as data=",
        )
    return cut


def _slice(volume: Tensor, pose: VoxelPoses, frame: Tensor) -> Tensor:
    height, width = frame.shape
    return sample_slice(volume, *pose, slice_shape=(height, width))


MOST_FAILURES = 12
_LARGEST = 256  # pixels along a side: more make the page heavy, not clearer
_RANKS = {"best": 0.0, "median": 0.5, "95th percentile": 0.95, "worst": 1.0}


def ranked(rows: Sequence[FrameResult]) -> dict[int, str]:
    """Frames at the ranks that tell most, by error; those that were not located come last."""
    order = _by_error(rows)
    found: dict[int, str] = {}
    for name, share in _RANKS.items():
        index = order[round(share * (len(order) - 1))]
        found[index] = f"{found[index]}, {name}" if index in found else name
    return found


def failures(rows: Sequence[FrameResult]) -> list[int]:
    """Frames that failed, the worst first."""
    return [index for index in reversed(_by_error(rows)) if is_failure(rows[index], SUCCESS_MM)]


def add_strip(
    report: Report, examples: ExampleFrames, group: Group, methods: Sequence[str], index: int, title: str
) -> None:
    """The frame, the slice at the start, that of each method and the true one, each above its difference."""
    example = examples.example(group, index)
    rows = {method: group.methods[method][index] for method in methods}
    some = rows[methods[-1]]
    pictures = [Picture("frame", grey_pixels(_small(example.frame)))]
    pictures.append(_compared(f"start: {some.start_mm:.2f} mm", example.start, example.frame))
    for method in methods:
        cut = example.found[method]
        if method != START:
            shown = torch.zeros_like(example.frame) if cut is None else cut
            pictures.append(_compared(f"{method}: {error_text(rows[method])}", shown, example.frame))
    pictures.append(_compared("truth", example.truth, example.frame))
    report.strip(title, f"{some.case}, frame {some.frame}", pictures)


def error_text(row: FrameResult) -> str:
    """The error in words."""
    lost = f"not located ({row.failure})" if row.failure else "not located"
    return lost if math.isnan(row.mtre_mm) else f"{row.mtre_mm:.2f} mm"


def _compared(caption: str, cut: Tensor, frame: Tensor) -> Picture:
    small, other = _small(cut), _small(frame)
    return Picture(caption, grey_pixels(small), red_difference_pixels(small, other))


def _small(image: Tensor) -> Tensor:
    factor = math.ceil(max(image.shape) / _LARGEST)
    return image if factor == 1 else torch.nn.functional.avg_pool2d(image[None], factor)[0]


def _by_error(rows: Sequence[FrameResult]) -> list[int]:
    errors = [math.inf if math.isnan(row.mtre_mm) else row.mtre_mm for row in rows]
    return sorted(range(len(rows)), key=errors.__getitem__)
