"""elastix through the package itk-elastix: correlation, climbed by adaptive stochastic gradient descent.

The only module that imports itk, and only when it is used.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import numpy.typing as npt
import SimpleITK as sitk
import torch

from scopereg.errors import ScopeRegError
from scopereg.geometry import Pose
from scopereg.images import Frame, Volume
from scopereg.registration.classical.placement import LEAST_OVERLAP, Placement, gave_up, place
from scopereg.registration.classical.simple_itk import correlation_at
from scopereg.registration.result import Result

METHOD = "elastix"


@dataclass(frozen=True, kw_only=True)
class ElastixOptions:
    """Settings of `register_elastix`."""

    shrink_factors: tuple[int, ...] = (4, 2, 1)
    """Smoothing of each level, coarse to fine, in pixels; the frame is smoothed in its plane only."""
    iterations: int = 250
    """Steps per level; all of them are made."""
    samples: int = 3000
    """Pixels drawn anew for every step."""
    volume_mask: bool = True
    """Count only what lands in the field of view of the volume too: the black around it is no tissue."""
    seed: int = 0
    """Seed of the drawing."""
    threads: int = 1
    """Threads of elastix. One gives the same bits every time; more add up in another order each run."""


def register_elastix(
    frame: Frame,
    volume: Volume,
    start: Pose | None = None,
    options: ElastixOptions | None = None,
    *,
    seen: torch.Tensor | None = None,
) -> Result:
    """Find `ImageToVolume` by normalised correlation in elastix; called as `register_mutual_information`.

    Pixels are drawn from a fixed seed: on one thread the result is the same to the last bit. The first call of a
    process loads the library for some ten seconds, which the time of the result does not contain. The similarity is
    the correlation over all pixels that count: elastix itself knows only that of its last draw.
    """
    options = options or ElastixOptions()
    placed = place(frame, volume, start, seen, "register_elastix")
    warm_up()
    begin = time.perf_counter()
    transform = _find(placed, options)
    pose = placed.pose(transform.GetMatrix(), transform.GetTranslation(), transform.GetCenter())
    similarity = correlation_at(placed, transform)
    elapsed_ms = (time.perf_counter() - begin) * 1000
    return Result(pose, METHOD, elapsed_ms, similarity, options.iterations * len(options.shrink_factors))


def require_elastix() -> Any:
    """The module itk with elastix in it, or an error that says what to install."""
    try:
        import itk
    except ImportError:
        itk = None
    if "ElastixRegistrationMethod" not in dir(itk):  # itk may be there without elastix
        raise ScopeRegError(
            "elastix is not installed", where=METHOD, fix="pip install 'scopereg[baselines]' (about 300 MB)"
        )
    return itk


@cache
def warm_up() -> None:
    """Load what a registration needs, once in a process: itk loads its parts when they are first named."""
    itk = require_elastix()
    itk.ParameterObject.New().GetDefaultParameterMap("rigid", 3)


def parameter_map(options: ElastixOptions) -> dict[str, tuple[str, ...]]:
    """What is not as in the rigid parameter map that comes with elastix."""
    levels = options.shrink_factors
    values: dict[str, Any] = {
        "Metric": "AdvancedNormalizedCorrelation",
        "NumberOfResolutions": len(levels),
        # 0 smooths not at all: the slice has one pixel along its third axis.
        "FixedImagePyramidSchedule": [n for shrink in levels for n in (shrink, shrink, 0)],
        "MovingImagePyramidSchedule": [shrink for shrink in levels for _ in range(3)],
        "ImageSampler": "Random",
        "NumberOfSpatialSamples": options.samples,
        "NewSamplesEveryIteration": "true",
        "RandomSeed": options.seed,
        "MaximumNumberOfIterations": options.iterations,
        "AutomaticTransformInitialization": "false",  # the slice already lies where it starts
        "ErodeMask": "false",  # erosion would eat the one-pixel axis, and with it the mask
        "WriteResultImage": "false",
    }
    return {key: tuple(map(str, value if isinstance(value, list) else [value])) for key, value in values.items()}


def _find(placed: Placement, options: ElastixOptions) -> sitk.Euler3DTransform:
    """From the slice at its start to where it belongs."""
    try:
        found = _run(placed, options)
    except RuntimeError as error:
        raise gave_up("elastix", _reason(placed, options), METHOD) from error
    transform = sitk.Euler3DTransform()
    transform.SetComputeZYX(found["ComputeZYX"][0] == "true")  # the order of the angles, R = Rz Rx Ry or Rz Ry Rx
    transform.SetCenter([float(value) for value in found["CenterOfRotationPoint"]])
    transform.SetParameters([float(value) for value in found["TransformParameters"]])
    return transform


def _run(placed: Placement, options: ElastixOptions, log: Path | None = None) -> dict[str, tuple[str, ...]]:
    """The transform found, as elastix writes it. Nothing is logged without a file for it."""
    itk = require_elastix()
    volume, float_image = placed.volume, itk.Image[itk.F, 3]

    def on_slice(values: torch.Tensor) -> Any:
        return _to_itk(itk, values[None], placed.spacing_mm, placed.origin_mm, placed.direction)

    def on_volume(values: torch.Tensor) -> Any:
        return _to_itk(itk, values, volume.spacing_mm, volume.origin_mm, volume.direction)

    method = itk.ElastixRegistrationMethod[float_image, float_image].New()
    method.SetFixedImage(on_slice(placed.frame.tissue))
    method.SetFixedMask(on_slice(placed.mask.to(torch.uint8)))
    method.SetMovingImage(on_volume(volume.tissue))
    if options.volume_mask or volume.mask is not None:
        method.SetMovingMask(on_volume(placed.volume_mask.to(torch.uint8)))
    parameters = itk.ParameterObject.New()
    own = parameter_map(options)
    if placed.coverable < 1:
        own["RequiredRatioOfValidSamples"] = (str(LEAST_OVERLAP * placed.coverable),)
    parameters.AddParameterMap({**parameters.GetDefaultParameterMap("rigid", 3), **own})
    method.SetParameterObject(parameters)
    method.SetNumberOfThreads(options.threads)
    method.SetLogToConsole(False)
    method.SetLogToFile(log is not None)
    if log is not None:
        method.SetOutputDirectory(str(log.parent))
        method.SetLogFileName(log.name)
    with _same_every_time(itk, options.seed):
        method.Update()
    return dict(method.GetTransformParameterObject().GetParameterMap(0))


@contextmanager
def _same_every_time(itk: Any, seed: int) -> Iterator[None]:
    """Seed the draws, and give the number of threads back, which elastix sets for all of itk.

    elastix's own RandomSeed does not reach its sampler, which starts from a count of all generators made so far.
    """
    random, threads = itk.MersenneTwisterRandomVariateGenerator, itk.MultiThreaderBase
    most, usual = threads.GetGlobalMaximumNumberOfThreads(), threads.GetGlobalDefaultNumberOfThreads()
    random.GetInstance().SetSeed(seed)
    random.ResetNextSeed()
    try:
        yield
    finally:
        threads.SetGlobalMaximumNumberOfThreads(most)
        threads.SetGlobalDefaultNumberOfThreads(usual)


def _reason(placed: Placement, options: ElastixOptions) -> str:
    """Why elastix gave up. It tells its log alone, so that it has to give up once more."""
    with TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        path = Path(folder, "elastix.log")
        with suppress(RuntimeError):
            _run(placed, options, path)
        log = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
    found = re.findall(r"^Description: (.+)$", log, re.MULTILINE)
    return found[-1] if found else "it gives no reason"


def _to_itk(
    itk: Any,
    values: torch.Tensor,
    spacing_mm: Sequence[float],
    origin_mm: Sequence[float],
    direction: npt.NDArray[np.float64],
) -> Any:
    image = itk.image_from_array(np.ascontiguousarray(values.detach().cpu().numpy()))
    image.SetSpacing(list(spacing_mm))
    image.SetOrigin(list(origin_mm))
    image.SetDirection(direction)
    return image
