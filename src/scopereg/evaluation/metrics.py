"""Quality of a registration, frame by frame: overlap, surface distance, likeness, and all metrics at once.

All functions take a batch, give one number per frame, and run on any device. Errors of poses, in mm and degrees,
are in `scopereg.geometry`. What has no answer is an error that names the frames, or NaN where the caller asks for it
by name.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal, NoReturn

import torch
from jaxtyping import Bool, Float, Int, Integer, Num, Shaped
from torch import Tensor

from scopereg.errors import ScopeRegError
from scopereg.geometry import (
    SUCCESS_MM,
    VoxelPoses,
    geodesic_error_deg,
    mtre_mm,
    rotation_error_deg,
    sample_slice,
    translation_error_mm,
)
from scopereg.geometry.pose_errors import Spacing, refuse_rows, spacing_per_frame
from scopereg.geometry.slicing import Padding
from scopereg.ops.ssim import WINDOW, ssim_unchecked

Undefined = Literal["raise", "nan"]

_MAX_DISTANCES = 2**22  # surface distances held at once


def is_success(mtre: Float[Tensor, " b"], threshold_mm: float = SUCCESS_MM) -> Bool[Tensor, " b"]:
    """True where the mTRE in mm is at most the threshold. NaN is an error: it is neither success nor failure."""
    refuse_rows(
        ~torch.isfinite(mtre), "the mTRE is NaN or infinite", "is_success(mtre)", "compute it from finite poses"
    )
    return mtre <= threshold_mm


def dice(
    predicted: Shaped[Tensor, "b h w"], true: Shaped[Tensor, "b h w"], *, empty: Undefined = "raise"
) -> Float[Tensor, " b"]:
    """Dice overlap of label maps, the mean over the classes that either map of a frame has.

    0 is background and does not count. A class that only one map has scores 0; a class that neither has is left out.
    A frame without any class in both maps has no Dice: an error, or NaN with `empty="nan"`.
    """

    def overlap(first: Bool[Tensor, "n h w"], second: Bool[Tensor, "n h w"]) -> Float[Tensor, " n"]:
        both, sizes = (first & second).sum((1, 2)), first.sum((1, 2)) + second.sum((1, 2))
        return 2 * both / sizes.clamp_min(1)

    return _mean_over_classes(overlap, predicted, true, empty, "dice")


def hd95_mm(
    predicted: Shaped[Tensor, "b h w"],
    true: Shaped[Tensor, "b h w"],
    spacing_mm: Spacing,
    *,
    empty: Undefined = "raise",
) -> Float[Tensor, " b"]:
    """95 % Hausdorff distance in mm of label maps, the mean over the classes that either map has.

    As MONAI's `compute_hausdorff_distance(percentile=95)`: the surface is the pixels with a 4-neighbour outside of the
    class (the border of the image is outside); the 95th percentile is taken of the distances from each surface to the
    other, and the larger of the two counts. 0 is background. A class that only one map has is as far away as the
    image allows: the diagonal between its corner pixels. A class that neither has is left out; a frame without any
    class in both maps is an error, or NaN with `empty="nan"`.
    """
    pixels = _mean_over_classes(_hd95_pixels, predicted, true, empty, "hd95_mm")
    return pixels * spacing_per_frame(spacing_mm, pixels, "hd95_mm")


def ncc(
    predicted: Num[Tensor, "b h w"], true: Num[Tensor, "b h w"], *, constant: Undefined = "raise"
) -> Float[Tensor, " b"]:
    """Pearson correlation over all pixels of images.

    A constant image (its values spread no more than rounding does) correlates with nothing: an error, or NaN with
    `constant="nan"`.
    """
    first, second = (image.flatten(1) for image in _image_pair(predicted, true, "ncc"))
    undefined = _is_constant(first) | _is_constant(second)
    if constant != "nan":
        refuse_rows(
            undefined, "an image is constant, correlation is undefined", "ncc", 'pass constant="nan" to get NaN'
        )
    first, second = (image - image.mean(1, keepdim=True) for image in (first, second))
    # Correlation does not feel a factor, squares of very small or large values do.
    first, second = (image / image.abs().amax(1, keepdim=True) for image in (first, second))
    lengths = torch.linalg.vector_norm(first, dim=1) * torch.linalg.vector_norm(second, dim=1)
    correlation = ((first * second).sum(1) / lengths).clamp(-1, 1)
    return correlation.masked_fill(undefined, float("nan"))


def ssim(
    predicted: Num[Tensor, "b h w"], true: Num[Tensor, "b h w"], *, data_range: float = 1.0
) -> Float[Tensor, " b"]:
    """Structural similarity of images: 11x11 Gaussian of sigma 1.5, only where the window fits.

    Defined for constant images. Images smaller than the window are an error, and so are values that span more than
    twice `data_range`: grey values of 0..255 against a range of 1 would give a number without meaning.
    """
    first, second = _image_pair(predicted, true, "ssim")
    _check_ssim(first, second, data_range)
    return ssim_unchecked(first, second, data_range)


@torch.no_grad()
def frame_metrics(
    predicted: VoxelPoses,
    true: VoxelPoses,
    *,
    volume: Num[Tensor, "*volumes d h w"],
    frames: Num[Tensor, "b h2 w2"],
    spacing_mm: Spacing,
    labels: Integer[Tensor, "*volumes d h w"] | None = None,
    padding: Padding = "zeros",
    threshold_mm: float = SUCCESS_MM,
) -> dict[str, Float[Tensor, " b"]]:
    """Compute all metrics of a batch of frames in a volume (D, H, W), or (1 or B, D, H, W), as columns.

    mtre_mm, trans_err_mm, rot_err_deg, geodesic_deg, success (0 or 1), ncc and ssim of the volume at the predicted pose
    against the frame, and with a label volume also dice and hd95_mm of its planes at the predicted and the true pose
    (without labels these two columns are left out).
    NaN stands for what has no answer: dice and hd95_mm where both planes miss every class, ncc where the frame or the
    predicted plane is constant (a plane wholly outside of the volume). Everything else that is wrong is an error.
    """
    _check_frames(predicted, volume, frames, labels)
    shape = (frames.shape[1], frames.shape[2])
    mtre = mtre_mm(predicted, true, shape, spacing_mm)
    resampled = sample_slice(volume, *predicted, slice_shape=shape, padding=padding)
    columns = {
        "mtre_mm": mtre,
        "trans_err_mm": translation_error_mm(predicted, true, spacing_mm),
        "rot_err_deg": rotation_error_deg(predicted, true),
        "geodesic_deg": geodesic_error_deg(predicted, true),
        "success": is_success(mtre, threshold_mm).to(mtre.dtype),
        "ncc": ncc(resampled, frames, constant="nan"),
        "ssim": ssim(resampled, frames),
    }
    if labels is not None:
        first, second = (
            sample_slice(labels, *pose, slice_shape=shape, mode="nearest").long() for pose in (predicted, true)
        )
        columns["dice"] = dice(first, second, empty="nan")
        columns["hd95_mm"] = hd95_mm(first, second, spacing_mm, empty="nan")
    return columns


def _mean_over_classes(
    score: Callable[[Tensor, Tensor], Tensor],
    predicted: Shaped[Tensor, "b h w"],
    true: Shaped[Tensor, "b h w"],
    empty: Undefined,
    where: str,
) -> Float[Tensor, " b"]:
    """Mean of a score of two masks over the classes that either map of a frame has."""
    predicted, true = _label_pair(predicted, true, where)
    total = torch.zeros(len(true), device=true.device)
    count = torch.zeros_like(total)
    for label in torch.unique(torch.stack([predicted, true])).tolist():
        if label == 0:
            continue
        masks = predicted == label, true == label
        present = (masks[0] | masks[1]).flatten(1).any(1)
        # The score sees only the frames that have the class.
        total[present] += score(masks[0][present], masks[1][present])
        count += present
    if empty != "nan":
        refuse_rows(
            count == 0, "neither map has a class, only background", where, 'pass empty="nan" to get NaN for them'
        )
    return total / count  # 0 / 0 is the NaN that was asked for


def _hd95_pixels(first: Bool[Tensor, "n h w"], second: Bool[Tensor, "n h w"]) -> Float[Tensor, " n"]:
    """95 % Hausdorff distance in pixels of masks, of which at least one is not empty."""
    diagonal = math.hypot(first.shape[1] - 1, first.shape[2] - 1)
    values = []
    for one, other in zip(_surface(first), _surface(second), strict=True):
        if one.any() and other.any():
            directed = [torch.quantile(_distances(a, b), 0.95) for a, b in ((one, other), (other, one))]
            values.append(torch.maximum(*directed))
        else:
            values.append(torch.tensor(diagonal, device=first.device))
    return torch.stack(values)


def _surface(mask: Bool[Tensor, "n h w"]) -> Bool[Tensor, "n h w"]:
    """Pixels of masks with a 4-neighbour outside."""
    padded = torch.nn.functional.pad(mask, (1, 1, 1, 1))
    inner = padded[:, :-2, 1:-1] & padded[:, 2:, 1:-1] & padded[:, 1:-1, :-2] & padded[:, 1:-1, 2:]
    return mask & ~inner


def _distances(start: Bool[Tensor, "h w"], goal: Bool[Tensor, "h w"]) -> Float[Tensor, " pixels"]:
    """Distance of each pixel of one surface to the nearest of another, exact, in H W (H + W) steps at most."""
    height, width = goal.shape
    rows = torch.arange(height, device=goal.device, dtype=torch.float32)[:, None]
    far = float(2 * (height + width))  # beyond any true distance: a column without a goal never wins
    above = torch.where(goal, rows, -far).cummax(0).values
    below = -torch.where(goal, -rows, -far).flip(0).cummax(0).values.flip(0)
    along_column = torch.minimum(rows - above, below - rows).square()
    columns = torch.arange(width, device=goal.device, dtype=torch.float32)
    nearest = [
        (along_column[part[:, 0]] + (part[:, 1:] - columns).square()).amin(1)
        for part in start.nonzero().split(max(1, _MAX_DISTANCES // width))
    ]
    return torch.cat(nearest).sqrt()


def _is_constant(values: Float[Tensor, "b n"]) -> Bool[Tensor, " b"]:
    """True for rows that spread no more than rounding does."""
    low, high = values.amin(1), values.amax(1)
    return high - low <= 16 * torch.finfo(values.dtype).eps * torch.maximum(low.abs(), high.abs())


def _fail(what: str, where: str, fix: str) -> NoReturn:
    raise ScopeRegError(what, where=where, fix=fix)


def _check_maps(predicted: Tensor, true: Tensor, where: str) -> None:
    if predicted.shape != true.shape or true.ndim != 3 or true.numel() == 0:
        _fail(
            f"the shapes are {tuple(predicted.shape)} and {tuple(true.shape)}",
            f"{where}(predicted, true)",
            "pass two batches (B, H, W) of the same shape, not empty",
        )


def _image_pair(
    predicted: Num[Tensor, "b h w"], true: Num[Tensor, "b h w"], where: str
) -> tuple[Float[Tensor, "b h w"], Float[Tensor, "b h w"]]:
    _check_maps(predicted, true, where)
    dtype = torch.promote_types(torch.promote_types(predicted.dtype, true.dtype), torch.float32)
    images = predicted.to(dtype), true.to(dtype)
    for name, image in zip(("predicted", "true"), images, strict=True):
        bad = ~torch.isfinite(image).flatten(1).all(1)
        refuse_rows(bad, "the image holds NaN or infinity", f"{where}({name})", "replace these values first")
    return images


def _label_pair(
    predicted: Shaped[Tensor, "b h w"], true: Shaped[Tensor, "b h w"], where: str
) -> tuple[Int[Tensor, "b h w"], Int[Tensor, "b h w"]]:
    _check_maps(predicted, true, where)
    for name, labels in (("predicted", predicted), ("true", true)):
        if labels.is_floating_point() or labels.is_complex():
            _fail(f"the labels are {labels.dtype}", f"{where}({name})", "pass integer class numbers, 0 = background")
        refuse_rows(
            (labels.long() < 0).flatten(1).any(1), "a label is negative", f"{where}({name})", "number classes from 1"
        )
    return predicted.long(), true.long()


def _check_ssim(first: Tensor, second: Tensor, data_range: float) -> None:
    if min(first.shape[1:]) < WINDOW:
        _fail(
            f"the images are {tuple(first.shape[1:])} pixels, the window {WINDOW} x {WINDOW}",
            "ssim",
            f"pass images of at least {WINDOW} x {WINDOW} pixels",
        )
    if not 0 < data_range < math.inf:
        _fail(
            f"the range is {data_range}", "ssim(data_range)", "pass the span of the grey values, 1 for images in 0..1"
        )
    span = torch.stack([image.flatten(1).amax(1) - image.flatten(1).amin(1) for image in (first, second)]).amax(0)
    refuse_rows(
        span > 2 * data_range,
        f"the grey values span up to {float(span.detach().amax()):g}, the range is {data_range:g}",
        "ssim(data_range)",
        "scale the images to 0..1, or pass the range that they have",
    )


def _check_frames(predicted: VoxelPoses, volume: Tensor, frames: Tensor, labels: Tensor | None) -> None:
    if frames.ndim != 3 or len(frames) != len(predicted.rotation):
        _fail(
            f"the frames have shape {tuple(frames.shape)}, the poses {tuple(predicted.rotation.shape)}",
            "frame_metrics(frames)",
            "pass frames (B, H, W), one for each pose",
        )
    if labels is not None and (labels.shape != volume.shape or labels.is_floating_point()):
        _fail(
            f"the labels have shape {tuple(labels.shape)} and type {labels.dtype}, the volume {tuple(volume.shape)}",
            "frame_metrics(labels)",
            "pass integer class numbers on the grid of the volume",
        )
