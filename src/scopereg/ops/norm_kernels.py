# mypy: disable-error-code="no-untyped-def"
# Kernel arguments are pointers and integers of the device language, which Python types do not describe.
"""Triton kernels of the instance norm; imported by `norms` alone.

Images lie as (B, SIZE, CHANNELS). One program holds ROWS rows of COLUMNS channels of one image; what it sums it writes
to (2, B, PARTS, CHANNELS), and a second kernel puts the parts together.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def spread_kernel(
    x, sums,
    SIZE, PARTS, CHANNELS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Mean of a part, and the squares about it."""
    at, inside, channels, count = _place(SIZE, CHANNELS, ROWS, COLUMNS)
    values = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
    mean = tl.sum(values, 0) / count
    apart = tl.where(inside, values - mean[None, :], 0.0)
    _keep(sums, channels, mean, tl.sum(apart * apart, 0), PARTS, CHANNELS)


@triton.jit
def mean_kernel(
    sums, numbers, eps,
    SIZE, PARTS, CHANNELS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Mean and 1 / deviation of an image, from those of its parts."""
    channels = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    first, second = _parts(sums, PARTS, CHANNELS)
    mean = tl.zeros([COLUMNS], tl.float32)
    for part in range(0, PARTS, ROWS):
        means, counts, _ = _some_parts(first, second, channels, part, SIZE, PARTS, CHANNELS, ROWS)
        mean += tl.sum(means * counts, 0) / SIZE
    squares = tl.zeros([COLUMNS], tl.float32)
    for part in range(0, PARTS, ROWS):
        means, counts, within = _some_parts(first, second, channels, part, SIZE, PARTS, CHANNELS, ROWS)
        squares += tl.sum(within + counts * (means - mean[None, :]) * (means - mean[None, :]), 0)
    place = tl.program_id(1) * CHANNELS + channels
    tl.store(numbers + place, mean)
    tl.store(numbers + tl.num_programs(1) * CHANNELS + place, 1 / tl.sqrt(squares / SIZE + eps))


@triton.jit
def norm_kernel(
    x, numbers, weight, bias, shortcut, y,
    SIZE, PARTS, CHANNELS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
    ADD: tl.constexpr, RELU: tl.constexpr,
):  # fmt: skip
    """The image normed, the shortcut added, negative values cut off."""
    at, inside, channels, _ = _place(SIZE, CHANNELS, ROWS, COLUMNS)
    mean, sharpness = _numbers(numbers, channels, CHANNELS)
    gain = tl.load(weight + channels).to(tl.float32) * sharpness
    offset = tl.load(bias + channels).to(tl.float32) - gain * mean
    values = tl.load(x + at, mask=inside, other=0.0).to(tl.float32) * gain[None, :] + offset[None, :]
    if ADD:
        values += tl.load(shortcut + at, mask=inside, other=0.0).to(tl.float32)
    if RELU:
        values = tl.maximum(values, 0.0)
    tl.store(y + at, values.to(y.dtype.element_ty), mask=inside)


@triton.jit
def felt_kernel(
    x, y, gradient, numbers, sums,
    SIZE, PARTS, CHANNELS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
    RELU: tl.constexpr,
):  # fmt: skip
    """Sum of a part's gradient, and of its product with the normed image."""
    at, inside, channels, _ = _place(SIZE, CHANNELS, ROWS, COLUMNS)
    mean, sharpness = _numbers(numbers, channels, CHANNELS)
    felt = _felt(y, gradient, at, inside, RELU)
    normed = (tl.load(x + at, mask=inside, other=0.0).to(tl.float32) - mean[None, :]) * sharpness[None, :]
    _keep(sums, channels, tl.sum(felt, 0), tl.sum(felt * normed, 0), PARTS, CHANNELS)


@triton.jit
def total_kernel(
    sums, totals,
    SIZE, PARTS, CHANNELS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Both sums of an image, from those of its parts."""
    channels = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    first, second = _parts(sums, PARTS, CHANNELS)
    felt, turned = tl.zeros([COLUMNS], tl.float32), tl.zeros([COLUMNS], tl.float32)
    for part in range(0, PARTS, ROWS):
        some, _, others = _some_parts(first, second, channels, part, SIZE, PARTS, CHANNELS, ROWS)
        felt += tl.sum(some, 0)
        turned += tl.sum(others, 0)
    place = tl.program_id(1) * CHANNELS + channels
    tl.store(totals + place, felt)
    tl.store(totals + tl.num_programs(1) * CHANNELS + place, turned)


@triton.jit
def slope_kernel(
    x, y, gradient, numbers, totals, weight, found, passed,
    SIZE, PARTS, CHANNELS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
    ADD: tl.constexpr, RELU: tl.constexpr,
):  # fmt: skip
    """Gradient of the image, w / s (g - mean g - n mean(g n)) with n the normed image, and that of the shortcut."""
    at, inside, channels, _ = _place(SIZE, CHANNELS, ROWS, COLUMNS)
    mean, sharpness = _numbers(numbers, channels, CHANNELS)
    total, turned = _numbers(totals, channels, CHANNELS)
    felt = _felt(y, gradient, at, inside, RELU)
    normed = (tl.load(x + at, mask=inside, other=0.0).to(tl.float32) - mean[None, :]) * sharpness[None, :]
    gain = tl.load(weight + channels).to(tl.float32) * sharpness
    slope = gain[None, :] * (felt - (total[None, :] + normed * turned[None, :]) / SIZE)
    tl.store(found + at, slope.to(found.dtype.element_ty), mask=inside)
    if ADD:
        tl.store(passed + at, felt.to(passed.dtype.element_ty), mask=inside)


@triton.jit
def _place(SIZE, CHANNELS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Where this program's part of the image lies, which of it there is, its channels and how many rows it has."""
    first = tl.program_id(0) * ROWS
    rows = first + tl.arange(0, ROWS)
    channels = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    image = tl.program_id(2).to(tl.int64) * SIZE * CHANNELS
    at = image + rows[:, None] * CHANNELS + channels[None, :]
    inside = (rows[:, None] < SIZE) & (channels[None, :] < CHANNELS)
    return at, inside, channels, tl.minimum(SIZE - first, ROWS)


@triton.jit
def _keep(sums, channels, one, other, PARTS, CHANNELS: tl.constexpr):
    """Write two numbers of a part."""
    place = (tl.program_id(2) * PARTS + tl.program_id(0)) * CHANNELS + channels
    tl.store(sums + place, one)
    tl.store(sums + tl.num_programs(2) * PARTS * CHANNELS + place, other)


@triton.jit
def _parts(sums, PARTS, CHANNELS: tl.constexpr):
    """Where both numbers of the parts of this program's image begin."""
    first = sums + tl.program_id(1) * PARTS * CHANNELS
    return first, first + tl.num_programs(1) * PARTS * CHANNELS


@triton.jit
def _some_parts(
    first, second, channels, part,
    SIZE, PARTS, CHANNELS: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Both numbers of ROWS parts from `part` on, and how many rows of the image each of these has."""
    parts = part + tl.arange(0, ROWS)
    at, there = parts[:, None] * CHANNELS + channels[None, :], (parts < PARTS)[:, None]
    counts = tl.maximum(tl.minimum(SIZE - parts * ROWS, ROWS), 0).to(tl.float32)[:, None]
    return tl.load(first + at, mask=there, other=0.0), counts, tl.load(second + at, mask=there, other=0.0)


@triton.jit
def _numbers(numbers, channels, CHANNELS: tl.constexpr):
    """Both numbers of this program's channels."""
    place = tl.program_id(2) * CHANNELS + channels
    return tl.load(numbers + place), tl.load(numbers + tl.num_programs(2) * CHANNELS + place)


@triton.jit
def _felt(y, gradient, at, inside, RELU: tl.constexpr):
    """The gradient that comes through the cut at zero."""
    felt = tl.load(gradient + at, mask=inside, other=0.0).to(tl.float32)
    if RELU:
        felt = tl.where(tl.load(y + at, mask=inside, other=0.0).to(tl.float32) > 0, felt, 0.0)
    return felt
