"""Evidence: how much each place of a frame says about its pose, laid over the frame as it came."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from scopereg.images import Frame, Volume
from scopereg.networks.encoders import STRIDE
from scopereg.networks.lattice import pad_volumes


def evidence_over(frame: Frame, evidence: Tensor, window: Volume) -> Tensor:
    """Evidence (H', W') of the cells of a volume's planes, as cells over the whole frame; none where it was not seen.

    A network sees a frame centred on a plane of the volume: larger ones are cut, smaller ones have a border.
    """
    spacing_mm = window.isotropic_spacing_mm
    whole = all(n % STRIDE == 0 for n in frame.shape)
    if whole and frame.shape == window.shape[1:] and frame.spacing_mm == (spacing_mm, spacing_mm):
        return evidence
    cell_mm = STRIDE * spacing_mm
    _, lattice = pad_volumes(torch.empty(1, *window.shape, device="meta"))
    rows, columns = (
        max(round(n * step / cell_mm), 1) for n, step in zip(frame.shape, frame.spacing_mm[::-1], strict=True)
    )
    places = []
    for count, pixels, step, first, cells in (
        (columns, frame.shape[1], frame.spacing_mm[0], lattice.start[2], lattice.shape[2]),
        (rows, frame.shape[0], frame.spacing_mm[1], lattice.start[1], lattice.shape[1]),
    ):
        from_centre = ((torch.arange(count) + 0.5) / count - 0.5) * pixels * step / cell_mm
        places.append((from_centre - first) * 2 / max(cells - 1, 1) - 1)
    grid = torch.stack(torch.meshgrid(places[1], places[0], indexing="ij")[::-1], -1)
    return F.grid_sample(evidence[None, None].float().cpu(), grid[None], padding_mode="zeros", align_corners=True)[0, 0]
