"""Scene: a volume with the method that finds frames in it, made ready before the loop is given to it."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from scopereg.errors import ScopeRegError
from scopereg.images import Frame, Volume
from scopereg.networks.encoders import STRIDE
from scopereg.networks.lattice import pad_volumes
from scopereg.registration.locator import Locator
from scopereg.registration.result import RegistrationError, Result
from scopereg.registration.search import NetworkSearch
from scopereg.registration.start import Start
from scopereg.registration.track import apart_mm
from scopereg.registration.tracker import Tracker


@dataclass(frozen=True)
class Plan:
    """How frames are found, in whichever volume."""

    method: str = "echo"
    refine: bool = False
    agreement: bool = False
    follow: bool = False  # weigh each frame against the motion so far
    device: str = "auto"


class Scene:
    """Finds frames in one volume; `register` is what a loop wants. Threads may share it if it `may_overlap`."""

    def __init__(self, volume: Volume, name: str, plan: Plan, truth: Start | None = None) -> None:
        """`truth` tells how to get at the poses that the frames' own file gives them, where that holds here."""
        self.name, self.volume, self._plan, self._truth = name, volume, plan, truth
        self.locator = Locator(volume, plan.method, refine=plan.refine, agreement=plan.agreement, device=plan.device)
        self._tracker = Tracker(self.locator) if plan.follow else None

    @property
    def method(self) -> str:
        """In words."""
        words = [Path(self._plan.method).stem]
        words += ["refined"] if self._plan.refine else []
        words += ["followed"] if self._plan.follow else []
        return ", ".join(words)

    @property
    def may_overlap(self) -> bool:
        """Whether several frames may be located at once: by a network on the CPU that keeps nothing between them."""
        search = self.locator.search
        alone = self._tracker is None and self.locator.refinement is None
        return alone and isinstance(search, NetworkSearch) and search.model.device.type == "cpu"

    def register(self, frame: Frame) -> Result:
        """The pose of the next frame, and its evidence laid over the frame as it came."""
        result = self._follow(frame) if self._tracker is not None else self.locator.locate(frame)
        search = self.locator.search
        if result.evidence is None or not isinstance(search, NetworkSearch):
            return result
        return replace(result, evidence=evidence_over(frame, result.evidence, search.window))

    def _follow(self, frame: Frame) -> Result:
        assert self._tracker is not None
        # By our own clock: those of scanners and files may stand still or jump, and a pause is one.
        tracked = self._tracker.follow(frame, time.perf_counter())
        if tracked.state == "lost" and tracked.alone is None:
            raise RegistrationError(tracked.result.reason, where="live", fix="wait for frames that show the volume")
        return tracked.result

    def error_mm(self, frame: Frame, result: Result | None) -> float:
        """Against where the frame's own file puts it; NaN where nobody knows."""
        if self._truth is None or result is None:
            return math.nan
        try:
            return apart_mm(frame, result.pose, self._truth.of(frame, self.volume))
        except ScopeRegError:  # the tracker lost this frame
            return math.nan


def evidence_over(frame: Frame, evidence: Tensor, window: Volume) -> Tensor:
    """Evidence (H', W') of the cells of a volume's planes, as cells over the whole frame; none where it was not seen.

    A network sees a frame centred on a plane of the volume: larger ones are cut, smaller ones have a border.
    """
    cell_mm = STRIDE * window.isotropic_spacing_mm
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
