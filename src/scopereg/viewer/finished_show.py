"""Finished show: registrations that are done, one of them on the screen."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from scopereg.errors import ScopeRegError
from scopereg.images import Volume
from scopereg.live.counters import Counters
from scopereg.registration.result import Result
from scopereg.viewer.finished import Finished, Images
from scopereg.viewer.packets import number, packet_of, verdict_of
from scopereg.viewer.show import base_state
from scopereg.viewer.voxels import Voxels, voxels_of


class FinishedShow:
    """Results to choose from; a `Show`. The images of one are read when it is chosen. All pages see the same one."""

    largest_upload = 0  # bytes: there is nothing to register

    def __init__(self, results: Sequence[Finished], images: Images) -> None:
        """The first result is shown; an error if it cannot be."""
        self.counters = Counters()
        self._results, self._images = tuple(results), images
        self._choosing = threading.Lock()
        self._volume: Volume | None = None
        self._voxels: Voxels | None = None
        self._packed: tuple[int, bytes] = (0, b"")
        self._method = ""
        self._listed = [
            {"name": each.name, **verdict_of(each.result()), "error_mm": number(each.error_mm)} for each in results
        ]
        self._choose(0)

    def voxels(self) -> Voxels | None:
        return self._voxels

    def state(self) -> dict[str, Any]:
        assert self._voxels is not None
        counters = {f"viewer_{name}": count for name, count in self.counters.snapshot().items()}
        return base_state(
            "view",
            volume=self._voxels.state(),
            method=self._method,
            source=self._results[0].source.name if len(self._results) == 1 else f"{len(self._results)} results",
            results=self._listed,
            finished=True,
            counters=counters,
            last_fault=self.counters.last_fault,
        )

    def packet(self) -> tuple[int, bytes]:
        return self._packed

    def do(self, request: Mapping[str, Any]) -> str:
        wanted = request.get("number")
        if request.get("do") != "result":
            raise ScopeRegError("these results are finished", where="web socket", fix="choose another result")
        if not isinstance(wanted, int) or not 0 <= wanted < len(self._results):
            raise ScopeRegError(
                f"there is no result {str(wanted)[:40]}",
                where="web socket",
                fix=f"choose one from 0 to {len(self._results) - 1}",
            )
        self._choose(wanted)
        return ""

    def load(self, path: Path, name: str) -> None:
        raise ScopeRegError("these results are finished", where=name, fix="use scopereg live for another volume")

    def _choose(self, row: int) -> None:
        with self._choosing:
            result = self._results[row].open(self._images)
            voxels = self._voxels_of(result)
            more: dict[str, Any] = {
                "number": self._packed[0] + 1,  # rises, so that pages know it is another one
                "frame_number": row,
                "result": row,
                "time_s": None,
                "error_mm": number(self._results[row].error_mm),
                "register_ms": number(result.time_ms),
                **dict.fromkeys(("latency_ms", "p50_ms", "p95_ms", "frames_per_s")),
                "dropped": 0,
                "counters": {},
            }
            assert result.frame is not None
            name = self._results[row].name
            packed = packet_of(result.frame, result, generation=voxels.generation, name=name, more=more)
            self._volume, self._voxels, self._method = result.volume, voxels, result.method
            self._packed = self._packed[0] + 1, packed

    def _voxels_of(self, result: Result) -> Voxels:
        """Those that are shown, if it is still the same volume."""
        assert result.volume is not None
        if self._voxels is not None and result.volume is self._volume:
            return self._voxels
        generation = 1 if self._voxels is None else self._voxels.generation + 1
        path = getattr(result.volume, "path", None)
        return voxels_of(result.volume, path.name if path else "volume", generation)
