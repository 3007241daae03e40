"""Mismatch: speckle, gain, shadows and fans, drawn apart from the image and its pose."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from scopereg.data.mismatch import (
    FanOptions,
    MismatchOptions,
    Rays,
    apply_mismatch,
    apply_unseen,
    draw_fans,
    draw_rays,
    honest_frames,
)
from scopereg.data.mismatch.images import blur_across, blur_down
from scopereg.data.mismatch.mismatch import Shadows, cast_shadows, draw_shadows
from scopereg.errors import ScopeRegError

NOTHING = MismatchOptions(
    speckle=0,
    log_gamma=0,
    gain=0,
    ramp=0,
    shadow_chance=0,
    blur_px=0,
    sharpening=0,
    noise=0,
    clean_chance=0,
)
RAYLEIGH_CONTRAST = 0.523  # standard deviation over mean


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def grey(count: int, shape: tuple[int, int] = (64, 64), value: float = 0.4) -> Tensor:
    return torch.full((count, *shape), float(value))


def smooth_image(shape: tuple[int, int] = (64, 80)) -> Tensor:
    y, x = torch.meshgrid(torch.linspace(0, 6, shape[0]), torch.linspace(0, 9, shape[1]), indexing="ij")
    return 0.5 + 0.25 * torch.sin(x) * torch.cos(y)


def half_width_px(fields: Tensor, dim: int) -> float:
    """Full width at half maximum of the autocovariance of fields (B, H, W) along one axis."""
    fields = fields - fields.mean((1, 2), keepdim=True)
    covariance = torch.stack([(fields * fields.roll(lag, dim)).mean() for lag in range(8)])
    share = covariance / covariance[0]
    lag = int((share < 0.5).nonzero()[0])
    return 2 * (lag - 1 + float((share[lag - 1] - 0.5) / (share[lag - 1] - share[lag])))


# Training families


def test_a_seed_gives_the_same_frames_and_frames_differ() -> None:
    images = smooth_image().expand(16, -1, -1)
    frames = apply_mismatch(images, seeded(1))
    assert torch.equal(frames, apply_mismatch(images, seeded(1)))
    assert not torch.equal(frames, apply_mismatch(images, seeded(2)))
    changed = frames[(frames != images).any(-1).any(-1)]
    assert len(changed) > 8
    assert len({float(frame.sum()) for frame in changed}) == len(changed)


def test_without_any_mismatch_the_image_stays() -> None:
    images = smooth_image().expand(4, -1, -1)
    assert torch.allclose(apply_mismatch(images, seeded(), NOTHING), images, atol=1e-5)


@pytest.mark.parametrize("shape", [(61, 97), (128, 32), (2, 2), (9, 3)])
@pytest.mark.parametrize("value", [0.0, 1.0])
def test_black_and_white_images_of_any_size_give_numbers_in_range(shape: tuple[int, int], value: float) -> None:
    for count in (1, 12):
        frames, masks = honest_frames(grey(count, shape, value), seeded(), unseen=True)
        assert frames.shape == masks.shape == (count, *shape)
        assert frames.dtype == torch.float32
        assert bool(((frames >= 0) & (frames <= 1)).all())  # NaN fails too


def test_clean_frames_are_untouched_and_as_many_as_asked() -> None:
    images = smooth_image((16, 16)).expand(2000, -1, -1)
    for chance in (0.0, 0.15, 1.0):
        frames = apply_mismatch(images, seeded(), MismatchOptions(clean_chance=chance))
        assert (frames == images).flatten(1).all(1).float().mean() == pytest.approx(chance, abs=0.03)


def test_speckle_contrast_grows_with_its_strength() -> None:
    contrasts = []
    for strength in (0.1, 0.3, 0.6):
        frames = apply_mismatch(grey(600, (32, 32), 0.2), seeded(), replace(NOTHING, speckle=strength))
        contrast = frames.std((1, 2)) / frames.mean((1, 2))
        contrasts.append(float(contrast.mean()))
        # Strengths are uniform from 0 on.
        assert contrasts[-1] == pytest.approx(RAYLEIGH_CONTRAST * strength / 2, rel=0.1)
        assert frames.mean() == pytest.approx(0.2, rel=0.01)
    assert contrasts == sorted(contrasts)


@pytest.mark.parametrize("grain_px", [2.0, 4.0])
def test_speckle_grain_has_the_width_asked_for(grain_px: float) -> None:
    options = replace(NOTHING, speckle=1.0, grain_px=(grain_px, grain_px))
    frames = apply_mismatch(grey(64, (64, 96), 0.2), seeded(), options)
    for dim in (1, 2):
        assert half_width_px(frames, dim) == pytest.approx(grain_px, rel=0.12)


def test_speckle_is_wider_across_than_along_the_beam() -> None:
    frames = apply_mismatch(grey(64, (64, 64), 0.2), seeded(), replace(NOTHING, speckle=0.6))
    assert half_width_px(frames, 2) > half_width_px(frames, 1) + 0.5


def test_gain_ramps_and_gamma_stay_in_their_ranges() -> None:
    # The central pixel sees no ramp.
    middle = apply_mismatch(grey(800, (3, 3)), seeded(), replace(NOTHING, gain=0.2, ramp=0.3))[:, 1, 1] / 0.4
    assert 0.8 <= middle.min() < 0.81
    assert 1.19 < middle.max() <= 1.2
    frames = apply_mismatch(grey(800, (3, 3)), seeded(), replace(NOTHING, ramp=0.3)) / 0.4
    for border in (frames[:, 0, 1], frames[:, 2, 1], frames[:, 1, 0], frames[:, 1, 2]):
        assert border.min() == pytest.approx(0.7, abs=0.01)
        assert border.max() == pytest.approx(1.3, abs=0.01)
    powers = (
        apply_mismatch(grey(800, (2, 2)), seeded(), replace(NOTHING, log_gamma=0.5)).log() / torch.tensor(0.4).log()
    )
    assert powers.log().abs().max() == pytest.approx(0.5, abs=0.01)


def test_half_of_the_frames_are_blurred_and_half_sharpened() -> None:
    noise = torch.rand(1, 32, 32, generator=seeded(7)) * 0.2 + 0.4
    frames = apply_mismatch(noise.expand(400, -1, -1), seeded(), replace(NOTHING, blur_px=1.5, sharpening=0.8))
    smoother = frames.std((1, 2)) < noise.std()
    assert smoother.float().mean() == pytest.approx(0.5, abs=0.08)
    assert (frames.std((1, 2)) / noise.std()).max() > 1.3


def test_blur_has_the_sigma_of_its_frame_and_keeps_the_border() -> None:
    point = torch.zeros(2, 41, 51)
    point[:, 20, 25] = 1
    sigma_px = torch.tensor([1.0, 3.0]).reshape(2, 1, 1)
    y, x = torch.arange(41) - 20.0, torch.arange(51) - 25.0
    down, across = blur_down(point, sigma_px), blur_across(point, sigma_px)
    assert (down.sum(2) * y**2).sum(1).sqrt().tolist() == pytest.approx([1, 3], rel=0.02)
    assert (across.sum(1) * x**2).sum(1).sqrt().tolist() == pytest.approx([1, 3], rel=0.02)
    assert torch.allclose(blur_across(grey(2), sigma_px), grey(2), atol=1e-6)


def test_noise_falls_only_where_the_probe_sees() -> None:
    seen = torch.zeros(8, 32, 32, dtype=torch.bool)
    seen[:, 8:] = True
    frames = apply_mismatch(grey(8, (32, 32), 0), seeded(), replace(NOTHING, noise=0.05), seen=seen)
    assert not frames[:, :8].any()
    assert (frames[:, 8:] > 0).float().mean() == pytest.approx(0.5, abs=0.05)
    assert frames.std((1, 2)).max() < 0.05
    hazy = apply_unseen(grey(8, (32, 32), 0), seeded(), families=["haze"], seen=seen)
    assert not hazy[:, :8].any()
    assert hazy[:, 8:].any()


# Shadows


def test_shadows_are_in_half_of_the_frames_and_only_darken() -> None:
    frames = apply_mismatch(grey(600, (32, 32)), seeded(), replace(NOTHING, shadow_chance=0.5))
    assert frames.max() <= 0.4 + 1e-6
    dark = (frames < 0.39).flatten(1).any(1)
    assert dark.float().mean() == pytest.approx(0.5, abs=0.08)  # a few lie beside the image
    assert 0.02 < (frames[dark] < 0.3).float().mean() < 0.3  # most of the image stays


def polar_rays(count: int) -> Rays:
    """Rays whose columns are rays of the fan and whose rows are depths."""
    depth, angle = torch.meshgrid(torch.linspace(0, 1, 101), torch.linspace(-1, 1, 101), indexing="ij")
    return Rays(angle.expand(count, -1, -1), depth.expand(count, -1, -1), torch.ones(count, 101, 101, dtype=torch.bool))


def test_shadows_only_darken_further_along_a_ray() -> None:
    light = cast_shadows(polar_rays(64), draw_shadows(64, seeded(4), MismatchOptions(shadow_chance=1)))
    assert bool((light[:, 1:] <= light[:, :-1]).all())
    assert bool((light[:, -1].amin(1) < 0.75).all())  # all are there at the end
    from_face = (light[:, 0] < 0.9).any(1)
    assert from_face.float().mean() == pytest.approx(0.55, abs=0.2)
    lit = (light[:, -1] == 1).float().mean(1)
    assert 0.3 < lit.min() < lit.max() < 0.95


def test_rays_diverge_downwards_from_an_apex_above_the_image() -> None:
    rays = draw_rays(64, (48, 64), seeded())
    spread = rays.angle.diff(dim=2).mean(2)  # (64, 48), share of the fan per pixel
    assert bool((spread > 0).all())
    assert bool((spread.diff(dim=1) < 0).all())
    assert bool((rays.depth.diff(dim=1).mean(2) > 0).all())


def test_a_shadow_leaves_what_lies_beside_and_before_it() -> None:
    rays = draw_rays(6, (64, 64), seeded(5))
    one = torch.ones(1, 6, 1, 1)
    single = Shadows(centre=0.1 * one, half_width=0.2 * one, softness=0.5 * one, start=0.3 * one, dark=0.8 * one)
    none = single._replace(dark=0 * one)
    light = cast_shadows(rays, Shadows(*(torch.cat(pair) for pair in zip(single, none, strict=True))))
    beside, before = (rays.angle - 0.1).abs() > 0.2, rays.depth < 0.3
    assert bool((light[beside | before] == 1).all())
    core = ((rays.angle - 0.1).abs() < 0.1) & (rays.depth > 0.4)
    assert core.any()
    assert torch.allclose(light[core], torch.tensor(0.2), atol=1e-5)


# Fans and honest frames


@pytest.mark.parametrize("shape", [(128, 128), (61, 97), (96, 64)])
def test_fans_keep_most_of_the_pixels_and_some_are_full(shape: tuple[int, int]) -> None:
    masks = draw_fans(800, shape, seeded())
    assert masks.dtype == torch.bool
    share = masks.flatten(1).float().mean(1)
    full = share == 1
    assert full.float().mean() == pytest.approx(0.25, abs=0.05)
    assert ((share[~full] > 0.6) & (share[~full] < 0.97)).float().mean() > 0.9
    assert share.min() > 0.5
    # A fan opens downwards: the corners that it leaves out are the upper ones.
    fans = masks[~full].float()
    assert fans[:, : shape[0] // 4].mean() < fans[:, shape[0] // 2 : shape[0] * 3 // 4].mean() - 0.1


def test_fans_vary_and_are_one_piece_in_each_row() -> None:
    masks = draw_fans(64, (64, 64), seeded(), FanOptions(full_chance=0))
    assert len({tuple(mask.flatten().tolist()) for mask in masks}) == 64
    starts = (masks[:, :, 1:] & ~masks[:, :, :-1]).sum(2) + masks[:, :, 0]
    # Only the curved face and the far arc may split a row, in two.
    assert starts.max() <= 2
    assert bool((starts[:, 16:48] == 1).all())


def test_honest_frames_are_black_outside_of_fans_that_know_nothing_of_the_image() -> None:
    first, masks = honest_frames(grey(32, (48, 64), 1.0), seeded(9), unseen=True)
    _, others = honest_frames(grey(32, (48, 64), 0.0), seeded(9), unseen=False)
    assert torch.equal(masks, others)
    assert torch.equal(masks, draw_fans(32, (48, 64), seeded(9)))
    assert not first[~masks].any()
    assert first[masks].mean() > 0.5


def test_draws_do_not_depend_on_what_is_in_other_frames() -> None:
    images = smooth_image().repeat(6, 1, 1)
    other = images.clone()
    other[3] = 0
    first, second = (honest_frames(batch, seeded(), unseen=True)[0] for batch in (images, other))
    rest = [0, 1, 2, 4, 5]
    assert torch.allclose(first[rest], second[rest], atol=1e-5)


def test_honest_frames_mask_what_was_not_seen() -> None:
    seen = torch.rand(8, 48, 64, generator=seeded()) < 0.5
    frames, masks = honest_frames(grey(8, (48, 64)), seeded(), unseen=True, seen=seen)
    assert not masks[~seen].any()
    assert not frames[~seen].any()


def test_anatomy_stays_recognisable() -> None:
    images = smooth_image((96, 96)).expand(200, -1, -1)

    def likeness(frames: Tensor) -> Tensor:
        pairs = [
            torch.corrcoef(torch.stack([f.flatten(), i.flatten()]))[0, 1] for f, i in zip(frames, images, strict=True)
        ]
        return torch.stack(pairs)

    trained = apply_mismatch(images, seeded())
    assert likeness(trained).median() > 0.6
    assert likeness(apply_unseen(trained, seeded())).median() > 0.5


class WaitForbidden(TorchDispatchMode):
    """Counts operations and forbids those that make the host wait for a device."""

    FORBIDDEN = ("_local_scalar_dense", "nonzero", "masked_select", "lift_fresh", "equal", "unique")

    def __init__(self) -> None:
        super().__init__()
        self.kernels = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        assert name not in self.FORBIDDEN, name
        self.kernels += not func.is_view
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(("unseen", "most"), [(False, 160), (True, 280)])
def test_nothing_waits_for_the_device_and_kernels_do_not_grow_with_the_batch(unseen: bool, most: int) -> None:
    honest_frames(grey(2), seeded(), unseen=unseen)  # constants reach the device once
    counts = []
    for count in (2, 16):
        images, generator = grey(count), seeded()
        with WaitForbidden() as watch:
            honest_frames(images, generator, unseen=unseen)
        counts.append(watch.kernels)
    assert counts[0] == counts[1] <= most


# Bad input


@pytest.mark.parametrize(
    "images",
    [torch.zeros(8, 8), torch.zeros(0, 8, 8), torch.zeros(1, 1, 8), torch.zeros(1, 8, 8, dtype=torch.uint8)],
)
def test_images_of_the_wrong_kind_are_refused(images: Tensor) -> None:
    for apply in (apply_mismatch, apply_unseen):
        with pytest.raises(ScopeRegError, match="images"):
            apply(images, seeded())


def test_images_on_another_device_than_the_generator_are_refused() -> None:
    with pytest.raises(ScopeRegError, match="meta"):
        apply_mismatch(torch.zeros(1, 8, 8, device="meta"), seeded())


def test_bad_masks_and_fans_are_refused() -> None:
    with pytest.raises(ScopeRegError, match="seen"):
        apply_mismatch(grey(1), seeded(), seen=torch.ones(1, 64, 63, dtype=torch.bool))
    with pytest.raises(ScopeRegError, match="draw_rays"):
        draw_fans(0, (8, 8), seeded())


@pytest.mark.parametrize(
    "bad",
    [
        {"speckle": -0.1},
        {"noise": float("nan")},
        {"grain_px": (3.0, 1.0)},
        {"clean_chance": 1.5},
        {"shadow_dark": (0, 2)},
    ],
)
def test_bad_mismatch_options_are_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(ScopeRegError, match=next(iter(bad))):
        MismatchOptions(**bad)


@pytest.mark.parametrize(
    "bad", [{"full_chance": 2}, {"opening": (0.0, 1.0)}, {"reach": (0.01, 1.0)}, {"apex_above": (-0.1, 1.0)}]
)
def test_bad_fan_options_are_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(ScopeRegError, match=next(iter(bad))):
        FanOptions(**bad)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
def test_a_gpu_is_never_waited_for() -> None:
    images = grey(8).cuda()
    generator = torch.Generator(device="cuda").manual_seed(0)
    first, _ = honest_frames(images, generator, unseen=True)
    torch.cuda.set_sync_debug_mode("error")
    try:
        honest_frames(images, generator.manual_seed(0), unseen=True)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert torch.equal(first, honest_frames(images, generator.manual_seed(0), unseen=True)[0])
