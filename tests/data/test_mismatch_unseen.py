"""Unseen families: haze, reverberation, another beam, a gain curve and video compression, for tests alone."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from torch import Tensor

from scopereg.data.mismatch import UNSEEN_FAMILIES, Rays, apply_unseen, unseen
from scopereg.data.mismatch.unseen import compress_frames, cosine_basis
from scopereg.errors import ScopeRegError


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def grey(count: int, shape: tuple[int, int] = (64, 64), value: float = 0.4) -> Tensor:
    return torch.full((count, *shape), float(value))


def smooth_image(shape: tuple[int, int] = (64, 80)) -> Tensor:
    y, x = torch.meshgrid(torch.linspace(0, 6, shape[0]), torch.linspace(0, 9, shape[1]), indexing="ij")
    return 0.5 + 0.25 * torch.sin(x) * torch.cos(y)


def textured_image(shape: tuple[int, int] = (64, 80)) -> Tensor:
    return (smooth_image(shape) + 0.1 * torch.randn(shape, generator=seeded(99))).clamp(0, 1)


def polar_rays(count: int) -> Rays:
    """Rays whose columns are rays of the fan and whose rows are depths."""
    depth, angle = torch.meshgrid(torch.linspace(0, 1, 101), torch.linspace(-1, 1, 101), indexing="ij")
    return Rays(angle.expand(count, -1, -1), depth.expand(count, -1, -1), torch.ones(count, 101, 101, dtype=torch.bool))


@pytest.mark.parametrize("family", UNSEEN_FAMILIES)
def test_each_unseen_family_alone_changes_every_frame(family: str) -> None:
    images = textured_image().expand(12, -1, -1)
    frames = apply_unseen(images, seeded(), families=[family])
    change = (frames - images).abs()
    assert bool((change.amax((1, 2)) > 0.01).all())
    assert change.mean() < 0.15


def test_each_frame_has_an_unseen_family_and_all_subsets_occur(monkeypatch: pytest.MonkeyPatch) -> None:
    images = textured_image((64, 64)).expand(600, -1, -1)
    frames = apply_unseen(images, seeded())
    assert bool(((frames - images).abs().amax((1, 2)) > 1e-3).all())
    chosen: dict[str, Tensor] = {}
    choose = unseen._choose
    monkeypatch.setattr(unseen, "_choose", lambda *given: chosen.update(choose(*given)) or chosen)
    apply_unseen(images, seeded())
    subsets = Counter(map(tuple, torch.cat([chosen[name][:, :, 0] for name in UNSEEN_FAMILIES], 1).tolist()))
    assert (False,) * 5 not in subsets
    assert len(subsets) == 2**5 - 1


def test_haze_is_densest_near_the_probe() -> None:
    frames = apply_unseen(grey(64, value=0.1), seeded(), families=["haze"])
    rows = frames.mean((0, 2)) - 0.1
    assert rows[:8].mean() > 0.1
    assert rows[:8].mean() > 3 * rows[24:32].mean() > 3 * rows[56:].mean() >= 0


def test_reverberation_bands_repeat_at_multiples_of_a_depth_and_fade() -> None:
    settings = {"band": 0.3, "band_period": 0.2, "band_sigma": 0.01, "band_centre": 0.0, "band_half_width": 0.5}
    draw = {name: torch.full((1, 1, 1), value) for name, value in settings.items()}
    bands = unseen._bands(polar_rays(1), draw)[0]
    middle = bands[:, 50]
    peaks = ((middle[1:-1] > middle[:-2]) & (middle[1:-1] > middle[2:])).nonzero()[:, 0] + 1
    assert peaks.tolist() == [20, 40, 60, 80]
    assert middle[peaks].tolist() == pytest.approx([0.3, 0.18, 0.108, 0.0648], rel=0.01)
    assert not bands[:10].any()  # the face itself is no echo
    assert bands[20, 0] < 0.01  # beside the window
    frames = apply_unseen(grey(16, value=0.0), seeded(), families=["reverberation"])
    assert bool((frames.amax((1, 2)) > 0.05).all())


def test_the_lateral_blur_is_lateral_and_grows_with_depth() -> None:
    stripes = (torch.arange(96) // 3 % 2).float()
    upright = apply_unseen(stripes.expand(16, 96, 96).contiguous(), seeded(), families=["lateral_resolution"])
    contrast = upright.std(2).mean(0)  # (96,)
    assert contrast[80:].mean() < 0.7 * contrast[20:36].mean()
    lying = stripes[:, None].expand(16, 96, 96).contiguous()
    assert torch.allclose(apply_unseen(lying, seeded(), families=["lateral_resolution"]), lying, atol=1e-5)


def test_the_depth_gain_changes_rows_alone_and_not_linearly() -> None:
    frames = apply_unseen(grey(16), seeded(), families=["depth_gain"])
    assert bool((frames.std(2) < 1e-6).all())
    bend = frames[:, 2:, 0] - 2 * frames[:, 1:-1, 0] + frames[:, :-2, 0]
    assert bool((bend.abs().amax(1) > 1e-4).all())


def test_compression_keeps_constants_and_loses_more_when_coarser() -> None:
    basis = cosine_basis(torch.device("cpu"))
    assert torch.allclose(basis @ basis.mT, torch.eye(64), atol=1e-5)
    coarse = torch.tensor([0.01, 1.0, 3.0]).reshape(3, 1, 1)
    squeezed = compress_frames(grey(3, (61, 97), 0.37), coarse)
    assert squeezed.std((1, 2)).max() < 1e-5
    assert (squeezed - 0.37).abs().max() < 0.01
    textured = torch.rand(1, 61, 97, generator=seeded()).expand(3, -1, -1)
    fine, medium, rough = (compress_frames(textured, coarse) - textured).abs().mean((1, 2)).tolist()
    assert fine < 0.005 < medium < rough


def test_compression_works_in_blocks_of_eight() -> None:
    image = torch.rand(1, 32, 32, generator=seeded())
    other = image.clone()
    other[:, 8:16, 16:24] = 0.5
    changed = compress_frames(image, torch.ones(1, 1, 1)) != compress_frames(other, torch.ones(1, 1, 1))
    assert changed[:, 8:16, 16:24].any()
    changed[:, 8:16, 16:24] = False
    assert not changed.any()


def test_unknown_families_are_refused() -> None:
    for families in ([], ["fog"], ["haze", "haze"]):
        with pytest.raises(ScopeRegError, match="families"):
            apply_unseen(grey(1), seeded(), families=families)
