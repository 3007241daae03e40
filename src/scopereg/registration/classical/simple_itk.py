"""SimpleITK: Mattes mutual information or correlation, climbed by gradient descent.

SimpleITK's built-in pyramid refuses a one-slice image (it smooths all axes), so the pyramid is made here: the frame
smoothed and shrunk in its plane, the volume smoothed in space. Every pixel of the mask is used, none is drawn.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import SimpleITK as sitk
import torch

from scopereg.geometry import Pose
from scopereg.images import Frame, Volume
from scopereg.io.placement import itk_image, to_itk
from scopereg.registration.classical.placement import LEAST_OVERLAP, Placement, gave_up, place
from scopereg.registration.result import Result

METHOD = "simpleitk-mi"
CORRELATION = "simpleitk-ncc"


@dataclass(frozen=True, kw_only=True)
class DescentOptions:
    """Settings that both similarities have."""

    shrink_factors: tuple[int, ...] = (4, 2, 1)
    """In-plane pyramid, coarse to fine."""
    iterations: int = 100
    """Steps at most per level."""
    first_step_mm: float = 2.0
    """Step length at the start of a level, in mm of physical shift, halved from level to level."""
    relaxation: float = 0.7
    """What a step is multiplied with when the direction turns back."""
    last_step_mm: float = 0.005
    """Step length at which a level ends."""
    threads: int = 1
    """Threads of SimpleITK. One gives the same bits every time; more add up in another order each run."""


@dataclass(frozen=True, kw_only=True)
class MutualInformationOptions(DescentOptions):
    """Settings of `register_mutual_information`, chosen on phantoms of the three anatomies."""

    bins: int = 32
    """Histogram bins of Mattes mutual information."""


@dataclass(frozen=True, kw_only=True)
class CorrelationOptions(DescentOptions):
    """Settings of `register_correlation`, chosen on phantoms of the three anatomies."""

    shrink_factors: tuple[int, ...] = (2, 1)
    """In-plane pyramid, coarse to fine. A coarser level leads correlation astray where speckle and gain differ."""
    iterations: int = 200
    """Steps at most per level."""
    volume_mask: bool = True
    """Count only what lands in the field of view of the volume too: the black around it is no tissue."""


def register_mutual_information(
    frame: Frame,
    volume: Volume,
    start: Pose | None = None,
    options: MutualInformationOptions | None = None,
    *,
    seen: torch.Tensor | None = None,
) -> Result:
    """Find `ImageToVolume` by Mattes mutual information and gradient descent from a start pose.

    `start` is by default the pose that lays the frame's centre on the volume's. `seen` (H, W) tells the pixels that
    the transducer sees; by default `field_of_view(frame)`. On one thread the result is the same to the last bit.
    """
    options = options or MutualInformationOptions()
    placed = place(frame, volume, start, seen, "register_mutual_information")
    inside = None if volume.mask is None else to_itk(placed.volume_mask.to(torch.uint8), volume)

    def set_metric(method: sitk.ImageRegistrationMethod) -> None:
        method.SetMetricAsMattesMutualInformation(options.bins)
        if inside is not None:
            method.SetMetricMovingMask(inside)

    return _descend(placed, METHOD, options, set_metric)


def register_correlation(
    frame: Frame,
    volume: Volume,
    start: Pose | None = None,
    options: CorrelationOptions | None = None,
    *,
    seen: torch.Tensor | None = None,
) -> Result:
    """Find `ImageToVolume` by normalised cross-correlation; called as `register_mutual_information`.

    The similarity is the size of the correlation: SimpleITK climbs its square, which does not know its sign.
    """
    options = options or CorrelationOptions()
    placed = place(frame, volume, start, seen, "register_correlation")
    masked = options.volume_mask or volume.mask is not None
    inside = to_itk(placed.volume_mask.to(torch.uint8), volume) if masked else None

    def set_metric(method: sitk.ImageRegistrationMethod) -> None:
        method.SetMetricAsCorrelation()
        if inside is not None:
            method.SetMetricMovingMask(inside)

    # Mutual information gives up by itself where a slice leaves the volume; correlation goes on with no pixel at all.
    found = _descend(placed, CORRELATION, options, set_metric, least_overlap=LEAST_OVERLAP)
    return replace(found, similarity=math.sqrt(max(found.similarity, 0.0)))


def _descend(
    placed: Placement,
    name: str,
    options: DescentOptions,
    set_metric: Callable[[sitk.ImageRegistrationMethod], None],
    *,
    least_overlap: float = 0.0,
) -> Result:
    begin = time.perf_counter()
    moving = to_itk(placed.volume.tissue, placed.volume)
    fixed, mask = (_slice_to_itk(values, placed) for values in (placed.frame.tissue, placed.mask.to(torch.uint8)))
    transform = sitk.Euler3DTransform()
    transform.SetCenter(placed.centre_mm)
    similarity, iterations = 0.0, 0
    for level, shrink in enumerate(options.shrink_factors):
        method = _optimiser(options, options.first_step_mm / 2**level)
        set_metric(method)
        images = _pyramid_level(fixed, mask, moving, shrink, min(placed.spacing_mm))
        method.SetMetricFixedMask(images[1])
        method.SetInitialTransform(transform, inPlace=True)
        _execute(method, images[0], images[2], options.threads, name)
        inside, all_pixels = method.GetMetricNumberOfValidPoints(), int(sitk.GetArrayViewFromImage(images[1]).sum())
        if inside < least_overlap * placed.coverable * all_pixels:
            raise gave_up("SimpleITK", f"{inside} of {all_pixels} pixels lie inside the volume", name)
        similarity, iterations = -method.GetMetricValue(), iterations + method.GetOptimizerIteration()
    pose = placed.pose(transform.GetMatrix(), transform.GetTranslation(), transform.GetCenter())
    elapsed_ms = (time.perf_counter() - begin) * 1000
    return Result(pose, name, elapsed_ms, similarity, iterations)


def _optimiser(options: DescentOptions, step_mm: float) -> sitk.ImageRegistrationMethod:
    method = sitk.ImageRegistrationMethod()
    method.SetMetricSamplingStrategy(method.NONE)
    method.SetInterpolator(sitk.sitkLinear)
    method.SetOptimizerAsRegularStepGradientDescent(
        learningRate=step_mm,
        minStep=options.last_step_mm,
        numberOfIterations=options.iterations,
        relaxationFactor=options.relaxation,
        gradientMagnitudeTolerance=1e-8,
    )
    method.SetOptimizerScalesFromPhysicalShift()
    return method


def _pyramid_level(
    fixed: sitk.Image, mask: sitk.Image, moving: sitk.Image, shrink: int, spacing_mm: float
) -> tuple[sitk.Image, sitk.Image, sitk.Image]:
    if shrink == 1:
        return fixed, mask, moving
    sigma = 0.5 * shrink * spacing_mm
    # Sigma along the missing axis: the recursive filter needs four pixels, the discrete one does not.
    in_plane = sitk.DiscreteGaussian(fixed, variance=[sigma**2, sigma**2, 0.0], maximumKernelWidth=64)
    factors = [shrink, shrink, 1]
    return (
        sitk.Shrink(in_plane, factors),
        sitk.Shrink(mask, factors),
        sitk.DiscreteGaussian(moving, variance=[sigma**2] * 3, maximumKernelWidth=64),
    )


def _execute(
    method: sitk.ImageRegistrationMethod, fixed: sitk.Image, moving: sitk.Image, threads: int, name: str
) -> None:
    # The metric ignores the method's own number of threads and takes the global one.
    process = sitk.ProcessObject
    usual, warns = process.GetGlobalDefaultNumberOfThreads(), process.GetGlobalWarningDisplay()
    process.SetGlobalDefaultNumberOfThreads(threads)
    process.SetGlobalWarningDisplay(False)  # what it would print is an error of ours
    try:
        method.Execute(fixed, moving)
    except RuntimeError as error:
        raise gave_up("SimpleITK", str(error).strip().splitlines()[-1], name) from error
    finally:
        process.SetGlobalDefaultNumberOfThreads(usual)
        process.SetGlobalWarningDisplay(warns)


def correlation_at(placed: Placement, transform: sitk.Transform) -> float:
    """Correlation of frame and volume where both see something, the slice moved by a transform; NaN where nowhere."""
    grid = _slice_to_itk(placed.frame.tissue, placed)
    seen = placed.volume.tissue.where(placed.volume_mask, math.nan)
    cut = sitk.Resample(to_itk(seen, placed.volume), grid, transform, sitk.sitkLinear, math.nan)
    frame, values = (torch.from_numpy(sitk.GetArrayFromImage(image))[0].double() for image in (grid, cut))
    both = placed.mask.cpu() & values.isfinite()
    return float(torch.corrcoef(torch.stack([frame[both], values[both]]))[0, 1]) if both.sum() > 1 else math.nan


def _slice_to_itk(values: torch.Tensor, placed: Placement) -> sitk.Image:
    return itk_image(values[None], placed.spacing_mm, placed.origin_mm, placed.direction)
