"""Grey values: the blur is a Gaussian, and what is normalised no longer knows gain, offset or what was not seen."""

from __future__ import annotations

import pytest
import torch
from scipy import ndimage
from torch import Tensor

from scopereg.registration.grey import blur, gradients, normalise_locally


def noise(*shape: int, seed: int = 0) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed))


def smooth_noise(*shape: int, seed: int = 0) -> Tensor:
    values = blur(noise(*shape, seed=seed), 1.5)
    return (values - values.min()) / (values.max() - values.min())


@pytest.mark.parametrize("shape", [(2, 33, 40), (1, 9, 21, 30), (2, 1, 16, 8)])
def test_away_from_the_border_the_blur_is_scipys_gaussian(shape: tuple[int, ...]) -> None:
    images = noise(*shape)
    sigma = 1.7
    found = blur(images, sigma)
    for image, wanted in zip(found, images, strict=True):
        axes = [0.0 if n == 1 else sigma for n in wanted.shape]
        reference = torch.from_numpy(ndimage.gaussian_filter(wanted.numpy(), axes, truncate=3.0))
        inner = tuple(slice(None) if n < 12 else slice(6, -6) for n in wanted.shape)
        if min(n for n in wanted.shape if n > 1) >= 12:
            torch.testing.assert_close(image[inner], reference[inner], atol=5e-3, rtol=0)
    torch.testing.assert_close(blur(torch.ones(shape), sigma), torch.ones(shape))


@pytest.mark.parametrize("axes", [2, 3])
def test_gain_and_offset_disappear(axes: int) -> None:
    image = 0.2 + 0.6 * smooth_noise(1, *(24, 64, 64)[-axes:])
    ramp = torch.linspace(0.6, 1.4, image.shape[-2])[:, None]
    seen = torch.ones_like(image)
    plain, other = (normalise_locally(x, seen, 0.0, 3.0, 0.1) for x in (image, image * ramp * 0.7 + 0.1))
    both = torch.stack([plain.flatten(), other.flatten()])
    assert torch.corrcoef(both)[0, 1] > 0.995
    assert torch.corrcoef(torch.stack([image.flatten(), (image * ramp * 0.7 + 0.1).flatten()]))[0, 1] < 0.8


def test_what_is_not_seen_has_no_part_in_anything() -> None:
    image, seen = noise(1, 48, 48), torch.ones(1, 48, 48)
    seen[:, :, 30:] = 0
    other = image.clone()
    other[:, :, 30:] = 17.0
    first, second = (normalise_locally(x, seen, 1.0, 3.0, 0.1) for x in (image, other))
    torch.testing.assert_close(first, second)
    assert not first[:, :, 30:].any()


def test_without_a_window_grey_values_are_only_smoothed() -> None:
    image = noise(1, 20, 20)
    assert torch.equal(normalise_locally(image, torch.ones_like(image), 0.0, 0.0, 0.1), image)


@pytest.mark.parametrize("value", [0.0, 0.7])
def test_an_image_without_contrast_stays_quiet(value: float) -> None:
    image = torch.full((1, 16, 16), value)
    found = normalise_locally(image, torch.ones_like(image), 1.0, 2.0, 0.1)
    assert found.isfinite().all()
    assert found.abs().max() < 1e-2


def test_gradients_are_those_of_x_y_and_z_in_this_order() -> None:
    z, y, x = torch.meshgrid(*(torch.arange(n).float() for n in (5, 6, 7)), indexing="ij")
    found = gradients(2 * x + 3 * y - z)
    torch.testing.assert_close(found.flatten(1).mean(1), torch.tensor([2.0, 3.0, -1.0]))
    assert not gradients(torch.rand(1, 4, 4))[2].any(), "one plane has no slope across"


def test_a_blur_made_where_nothing_is_learned_can_be_learned_through() -> None:
    image = torch.rand(1, 9, 11, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        wanted = blur(image, 1.7).clone()
    free = image.clone().requires_grad_()
    found = blur(free, 1.7)
    found.sum().backward()
    torch.testing.assert_close(found.detach(), wanted)
    assert free.grad is not None
    assert bool(free.grad.isfinite().all())
