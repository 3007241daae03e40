"""Finished show: finished results to choose from, to play and to write notes at; a `Show` of them."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from scopereg.errors import ScopeRegError
from scopereg.images import Volume
from scopereg.live.exchange import Counters
from scopereg.registration.result import Assessment, Result
from scopereg.viewer.finished import Finished, Images
from scopereg.viewer.notebook import Notebook
from scopereg.viewer.overlays import NOTHING_OVER, Overlays, same_space
from scopereg.viewer.packets import base_state, number, packet_of
from scopereg.viewer.path import path_of
from scopereg.viewer.voxels import Voxels, voxels_of


class FinishedShow:
    """Results to choose from; a `Show`. The images of one are read when it is chosen. All pages see the same one."""

    largest_upload = 0  # bytes: there is nothing to register

    def __init__(
        self,
        results: Sequence[Finished],
        images: Images,
        overlays: Overlays = NOTHING_OVER,
        *,
        keeps_notes: bool = False,
    ) -> None:
        """The first result is shown, with the overlays on its volume; an error if it cannot be.

        Pages may write notes beside the results where `keeps_notes` says so.
        """
        self.counters = Counters()
        self._overlays = overlays
        self._notebook = Notebook(results, writes=keeps_notes)
        self._first_volume: Volume | None = None
        self._results, self._images = tuple(results), images
        self._choosing = threading.Lock()
        self._volume: Volume | None = None
        self._voxels: Voxels | None = None
        self._packed: tuple[int, bytes] = (0, b"")
        self._method = ""
        self._listed = [
            {"name": each.name, **Assessment.of(each.result()).facts, "error_mm": number(each.error_mm)}
            for each in results
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
            can=["note"] if self._notebook.writes else [],
            notes=self._notebook.listed(),
            counters=counters,
            last_fault=self.counters.last_fault,
        )

    def packet(self) -> tuple[int, bytes]:
        return self._packed

    def path(self) -> dict[str, Any] | None:
        return path_of([result.step for result in self._results])

    def do(self, request: Mapping[str, Any]) -> str:
        action = request.get("do")
        if action not in ("result", "note", "drop_note"):
            raise ScopeRegError("these results are finished", where="web socket", fix="choose another result")
        if action == "drop_note":
            self._notebook.drop(request.get("key"))
            return ""
        wanted = request.get("number" if action == "result" else "frame")
        if type(wanted) is not int or not 0 <= wanted < len(self._results):
            raise ScopeRegError(
                f"there is no result {str(wanted)[:40]}",
                where="web socket",
                fix=f"choose one from 0 to {len(self._results) - 1}",
            )
        if action == "note":
            self._notebook.add(wanted, request.get("text"))
        else:
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
                "time_s": number(self._results[row].time_s, 6),
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
        voxels = voxels_of(result.volume, path.name if path else "volume", generation)
        first = self._first_volume = self._first_volume or result.volume
        return self._overlays.over(result.volume, voxels) if same_space(result.volume, first) else voxels
