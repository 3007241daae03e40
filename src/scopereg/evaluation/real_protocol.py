"""The real protocol: frames of a tracked sweep sought in a volume compounded from the others, against the tracker."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch

from scopereg.data.examples import CaseExamples
from scopereg.data.tracked import RealCase, around, held_out_blocks, real_case, start_poses
from scopereg.evaluation.results import FrameResult
from scopereg.evaluation.runner import (
    EvaluateSettings,
    Origin,
    Progress,
    case_rows,
    collect,
    file_name,
    locate_case,
    run_facts,
)
from scopereg.evaluation.source import Source
from scopereg.geometry import VoxelPoses, compose_poses, invert_poses
from scopereg.io.files import output_folder
from scopereg.io.sweeps import TrackedSweep
from scopereg.networks.encoders import STRIDE
from scopereg.provenance import tensors_sha256
from scopereg.registration.method import Method
from scopereg.registration.working_grid import depth_for

MOST_PIXELS = 128  # of a frame along a side; its middle is taken where it has more


def sweep_case(
    sweep: TrackedSweep,
    spacing_mm: float,
    *,
    shape: tuple[int, int, int] | None = None,
    held_out: tuple[int, int] = (5, 5),
) -> RealCase:
    """The reference of a sweep and the frames it does not contain, `held_out` blocks of so many; for all methods.

    Frames have the rows and columns of `shape` (D, H, W), or as many as what the transducer sees takes, up to 128.
    """
    frame_shape = seen_shape(sweep, spacing_mm) if shape is None else (shape[1], shape[2])
    return real_case(sweep, held_out_blocks(len(sweep), *held_out), None, spacing_mm, frame_shape)


def seen_shape(sweep: TrackedSweep, spacing_mm: float) -> tuple[int, int]:
    """Rows and columns of this spacing that what the transducer sees takes, in whole cells of the encoder."""
    used = [sweep.seen.any(axis).nonzero().flatten() for axis in (1, 0)]  # rows, columns
    lengths = [float(index[-1] - index[0] + 1) for index in used]
    height, width = (
        min(math.ceil(count * pixel / spacing_mm / STRIDE) * STRIDE, MOST_PIXELS)
        for count, pixel in zip(lengths, reversed(sweep.spacing_mm), strict=True)
    )
    return height, width


def part_shape(case: RealCase, magnitude: float) -> tuple[int, int, int]:
    """The part of the reference around a start: planes as large as the frames, as many as offsets reach into."""
    return (depth_for(magnitude), *case.frames[0].shape)


def evaluate_sweep(
    case: RealCase,
    method: Method,
    settings: EvaluateSettings,
    folder: Path | str,
    *,
    shape: tuple[int, int, int] | None = None,
    source: Source | None = None,
    progress: Progress | None = None,
) -> Path:
    """The file with one row per held-out frame of a sweep; `source` tells reports where its images are.

    Each frame is sought around a start pose within +-magnitude of the tracked one, in the part of the reference of
    `shape` that lies there, by default `part_shape`. The identity is the start.
    """
    shape = shape or part_shape(case, settings.magnitude)
    starts = start_poses(case.truth, settings.magnitude, settings.seed, shape)
    spacing_mm = case.reference.volume.isotropic_spacing_mm
    data_sha256 = tensors_sha256(case.reference.volume.array, case.images, *case.truth)
    facts = run_facts(data_sha256, method, settings, f"held-out rows {list(case.rows)}, {spacing_mm:g} mm, {shape}")
    source = None if source is None else replace(source, shape=shape)
    work = {
        f"{case.name}-{row:04d}": partial(_frame_rows, case, index, starts, shape, method, settings)
        for index, row in enumerate(case.rows)
    }
    return collect(output_folder(folder) / file_name(case.name, method.name, settings), facts, work, progress, source)


def sweep_examples(case: RealCase, index: int, starts: VoxelPoses, shape: tuple[int, int, int]) -> CaseExamples:
    """A held-out frame, and the part of the reference around its start that it is sought in."""
    only = slice(index, index + 1)
    start, truth = (VoxelPoses(p.rotation[only].float(), p.translation[only].float()) for p in (starts, case.truth))
    (volume,) = around(case.reference, start, shape)
    image = case.frames[index].array[None].to(torch.float32)
    return CaseExamples(volume.array, None, image, compose_poses(invert_poses(start), truth))


def _frame_rows(
    case: RealCase,
    index: int,
    starts: VoxelPoses,
    shape: tuple[int, int, int],
    method: Method,
    settings: EvaluateSettings,
) -> list[FrameResult]:
    examples = sweep_examples(case, index, starts, shape)
    spacing_mm = case.reference.volume.isotropic_spacing_mm
    origin = Origin(case.name, f"{case.name}-{case.rows[index]:04d}", case.name, spacing_mm)
    return case_rows(origin, method.name, settings, examples, locate_case(method, examples, spacing_mm))
