"""Views of a volume, and frames in an order that covers a sweep."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from scopereg.images import Volume
from scopereg.registration.probe.seeking import in_turn
from scopereg.registration.probe.views import VIEWS, view_of

VOLUME = Volume(torch.rand(4, 5, 6, generator=torch.Generator().manual_seed(0)), (0.5, 0.7, 1.1), (3, -4, 5))


@pytest.mark.parametrize("number", range(len(VIEWS)))
def test_every_voxel_stays_in_its_place(number: int) -> None:
    def placed(volume: Volume) -> dict[tuple[float, ...], float]:
        told = {}
        for z, y, x in np.ndindex(*volume.shape):
            steps = np.array([x, y, z]) * volume.spacing_mm
            place = tuple(np.round(np.asarray(volume.origin_mm) + volume.direction @ steps, 6))
            told[place] = float(volume.array[z, y, x])
        return told

    assert placed(view_of(VOLUME, number)) == placed(VOLUME)


def test_views_look_along_all_axes_from_both_sides() -> None:
    normals = {tuple(view_of(VOLUME, number).direction[:, 2].round(6)) for number in range(len(VIEWS))}
    assert len(normals) == 6


@pytest.mark.parametrize("count", [1, 2, 3, 10, 31])
def test_the_first_few_lie_all_over(count: int) -> None:
    order = in_turn(count)
    assert sorted(order) == list(range(count))
    if count > 8:
        assert np.diff(sorted(order[:5])).max() <= np.ceil((count - 1) / 4) + 1
