"""Example frames: frames of results made again from their data, checked, and shown as rows of pictures."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from scopereg.errors import ScopeRegError
from scopereg.evaluation.metrics import ncc
from scopereg.evaluation.results import POSE, START, FrameResult, Group, is_failure
from scopereg.geometry import SUCCESS_MM, VoxelPoses, euler_deg_from_rotation, rotation_from_euler_deg, sample_slice
from scopereg.io.pictures import grey_pixels, red_difference_pixels
from scopereg.registration.result import Light
from scopereg.report.example_data import OTHER_DATA, ExampleData
from scopereg.report.page import Picture, Report

_SAME_POSE = 0.01  # voxels and degrees: far more than files round away, far less than another draw
_SAME_NCC = 0.002  # likewise for the correlation of a frame with the slice found


@dataclass(frozen=True, eq=False)
class ExampleFrame:
    """A frame and the volume's slices at the poses that matter, all (H, W) in [0, 1]."""

    frame: Tensor
    start: Tensor  # at the identity, where every method begins
    found: dict[str, Tensor | None]  # by method; None where it was not located
    truth: Tensor


class ExampleFrames:
    """Makes frames again, and holds them against what was measured."""

    def __init__(self, data: ExampleData | None) -> None:
        self._data = data
        self._wrong: dict[str, str] = {}  # why there are no pictures of a group after all, by its label

    def why_not(self, group: Group) -> str | None:
        """Reason why there are no pictures of a group and what helps; None where there are.

        Data that somebody named must be the right ones; those that the results tell of may have changed since.
        """
        if self._data is None:
            return "No pictures were asked for."
        if group.label not in self._wrong:
            self._wrong[group.label] = self._data.why_not(group) or self._doubt(group)
        return self._wrong[group.label] or None

    def is_given(self, group: Group) -> bool:
        """Whether somebody named the data."""
        return self._data is not None and self._data.is_given(group)

    def example(self, group: Group, index: int) -> ExampleFrame:
        """A frame of a group; an error where what is made again is not what was measured."""
        assert self._data is not None
        rows = {method: rows[index] for method, rows in group.methods.items()}
        some = next(iter(rows.values()))
        examples = self._data.examples(some, group)
        _check_pose(some, examples.poses)
        frame = examples.frames[some.frame]
        nothing = VoxelPoses(torch.eye(3), torch.zeros(3))
        truth = VoxelPoses(examples.poses.rotation[some.frame], examples.poses.translation[some.frame])
        found = {method: _found_slice(row, examples.volume, frame) for method, row in rows.items()}
        return ExampleFrame(
            frame, _slice(examples.volume, nothing, frame), found, _slice(examples.volume, truth, frame)
        )

    def _doubt(self, group: Group) -> str:
        """What is wrong with data that nobody named, by the first frame."""
        if self.is_given(group):
            return ""
        try:
            self.example(group, 0)
        except ScopeRegError as error:
            return f"No pictures: {error.what} ({error.where}; to fix it: {error.fix})."
        return ""


def _check_pose(row: FrameResult, poses: VoxelPoses) -> None:
    where = f"{row.dataset}, case {row.case}, frame {row.frame}"
    if row.frame >= len(poses.rotation):
        raise ScopeRegError(f"only {len(poses.rotation)} frames are made again", where=where, fix=OTHER_DATA)
    made = torch.cat([poses.translation[row.frame], euler_deg_from_rotation(poses.rotation[row.frame])])
    told = torch.tensor([getattr(row, f"true_{name}") for name in POSE])
    if not torch.allclose(made, told.to(made), rtol=0, atol=_SAME_POSE):
        shown = "; ".join(", ".join(f"{value:.2f}" for value in pose.tolist()) for pose in (made, told))
        raise ScopeRegError(
            f"the true pose of the frame made again is not that of the results (voxels, degrees): {shown}",
            where=where,
            fix=OTHER_DATA,
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
            fix=f"{OTHER_DATA}; phantoms made on a GPU have speckle of their own: store the set and pass it as data=",
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
    try:
        example = examples.example(group, index)
    except ScopeRegError as error:
        if examples.is_given(group):
            raise
        report.text(f"{title}: no picture, {error.what} ({error.where}).")
        return
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
    report.strip(title, f"{some.case}, frame {some.frame}", pictures, _told(some))


def _told(row: FrameResult) -> tuple[Light, str] | None:
    """What the method said of its pose; None where it gives no verdicts."""
    if not row.ok:
        return None
    expected = "" if math.isnan(row.expected_mm) else f", expected {row.expected_mm:.1f} mm"
    return ("green", f"said: ok{expected}") if row.ok == "yes" else ("amber", f"said: not ok{expected}")


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
