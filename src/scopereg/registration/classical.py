"""Classical slice-to-volume registration by optimising a similarity, through SimpleITK.

The frame becomes a one-slice 3D image whose origin and direction hold the start pose; the volume is the moving image;
the optimiser turns and shifts the frame about its own centre. SimpleITK's built-in pyramid refuses a one-slice image
(it smooths all axes), so the pyramid is made here: the frame smoothed and shrunk in its plane, the volume in space.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
import SimpleITK as sitk
import torch

from scopereg.errors import ScopeRegError
from scopereg.geometry import Pose
from scopereg.images import Frame, Volume, check_content, field_of_view
from scopereg.io.volumes import itk_image, to_itk
from scopereg.registration.result import Result

METHOD = "simpleitk-mi"


@dataclass(frozen=True)
class MutualInformationOptions:
    """Settings of `register_mutual_information`, chosen on phantoms of the three anatomies."""

    shrink_factors: tuple[int, ...] = (4, 2, 1)
    """In-plane pyramid, coarse to fine."""
    bins: int = 32
    """Histogram bins of Mattes mutual information."""
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
    the transducer sees; by default `field_of_view(frame)`. Every pixel is used, none is drawn:
    on one thread the result is the same to the last bit.
    """
    options = options or MutualInformationOptions()
    check_content(frame)
    check_content(volume)
    start = start or centre_pose(frame, volume)
    begin = time.perf_counter()
    mask = field_of_view(frame.array) if seen is None else seen
    if mask.shape != frame.array.shape or not bool(mask.any()):
        raise ScopeRegError(
            f"a mask of shape {tuple(mask.shape)} with {int(mask.sum())} pixels for a frame of {frame.shape}",
            where="register_mutual_information(seen)",
            fix="pass a mask of the frame's shape that is true where the transducer sees",
        )
    moving = to_itk(volume.array, volume)
    fixed, fixed_mask = (_frame_to_itk(values, frame, start) for values in (frame.array, mask.to(torch.uint8)))
    transform = sitk.Euler3DTransform()
    transform.SetCenter(start.apply(frame.centre_mm).tolist())
    similarity, iterations = 0.0, 0
    for level, shrink in enumerate(options.shrink_factors):
        method = _optimiser(options, options.first_step_mm / 2**level)
        images = _pyramid_level(fixed, fixed_mask, moving, shrink, min(frame.spacing_mm))
        method.SetMetricFixedMask(images[1])
        method.SetInitialTransform(transform, inPlace=True)
        _execute(method, images[0], images[2], options.threads)
        similarity, iterations = -method.GetMetricValue(), iterations + method.GetOptimizerIteration()
    pose = _transform_to_pose(transform, volume) @ start
    elapsed_ms = (time.perf_counter() - begin) * 1000
    return Result(pose, METHOD, elapsed_ms, similarity, iterations)


def centre_pose(frame: Frame, volume: Volume) -> Pose:
    """The frame laid flat on the middle plane of the volume: no rotation between their axes, centres together."""
    shift = volume.centre_mm - volume.direction @ frame.centre_mm
    return Pose(volume.direction, shift, frame.frame_of_reference, volume.frame_of_reference)


def _optimiser(options: MutualInformationOptions, step_mm: float) -> sitk.ImageRegistrationMethod:
    method = sitk.ImageRegistrationMethod()
    method.SetMetricAsMattesMutualInformation(options.bins)
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
    fixed: sitk.Image, fixed_mask: sitk.Image, moving: sitk.Image, shrink: int, spacing_mm: float
) -> tuple[sitk.Image, sitk.Image, sitk.Image]:
    if shrink == 1:
        return fixed, fixed_mask, moving
    sigma = 0.5 * shrink * spacing_mm
    # Sigma along the missing axis: the recursive filter needs four pixels, the discrete one does not.
    in_plane = sitk.DiscreteGaussian(fixed, variance=[sigma**2, sigma**2, 0.0], maximumKernelWidth=64)
    factors = [shrink, shrink, 1]
    return (
        sitk.Shrink(in_plane, factors),
        sitk.Shrink(fixed_mask, factors),
        sitk.DiscreteGaussian(moving, variance=[sigma**2] * 3, maximumKernelWidth=64),
    )


def _execute(method: sitk.ImageRegistrationMethod, fixed: sitk.Image, moving: sitk.Image, threads: int) -> None:
    # The metric ignores the method's own number of threads and takes the global one.
    usual = sitk.ProcessObject.GetGlobalDefaultNumberOfThreads()
    sitk.ProcessObject.SetGlobalDefaultNumberOfThreads(threads)
    try:
        method.Execute(fixed, moving)
    except RuntimeError as error:
        reason = str(error).strip().splitlines()[-1]
        raise ScopeRegError(
            f"SimpleITK gave up: {reason}",
            where=METHOD,
            fix="start nearer to the volume: most of the frame must lie inside it at the start pose",
        ) from error
    finally:
        sitk.ProcessObject.SetGlobalDefaultNumberOfThreads(usual)


def _frame_to_itk(values: torch.Tensor, frame: Frame, start: Pose) -> sitk.Image:
    """The frame as a [W, H, 1] image placed in the volume's world by the start pose."""
    spacing_mm = (*frame.spacing_mm, min(frame.spacing_mm))
    return itk_image(values[None], spacing_mm, start.apply((*frame.origin_mm, 0.0)).tolist(), start.rotation)


def _transform_to_pose(transform: sitk.Euler3DTransform, volume: Volume) -> Pose:
    """The optimiser's transform: from the frame's start place to where it belongs, both in the volume's world."""
    rotation = np.array(transform.GetMatrix()).reshape(3, 3)
    centre = np.array(transform.GetCenter())
    shift = np.array(transform.GetTranslation()) + centre - rotation @ centre
    world = volume.frame_of_reference
    return Pose(rotation, shift, world, world)
