"""RecordedWorlds: `draw_worlds` recorded once as a CUDA graph and replayed, so that a draw costs one launch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from scopereg.data.worlds.ranges import Shape, WorldRanges
from scopereg.data.worlds.world import WorldBatch, draw_worlds

_KEPT = 16  # recordings; those of easier worlds are not needed again


@dataclass
class _Recording:
    graph: torch.cuda.CUDAGraph
    generator: torch.Generator
    outputs: WorldBatch


class RecordedWorlds:
    """Worlds by their seed, the same to the last bit as `draw_worlds` gives with a generator of that seed.

    One recording for each shape and difficulty. All share their memory, so a draw is copied out before the next.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._pool: Any = None
        self._recordings: dict[tuple[Any, ...], _Recording] = {}

    def draw(
        self, seed: int, count: int, frames: int, shape: Shape, *, magnitude: float, ranges: WorldRanges
    ) -> WorldBatch:
        """As `draw_worlds`."""
        key = (count, frames, shape, magnitude, ranges)
        if key not in self._recordings:
            while len(self._recordings) >= _KEPT:
                del self._recordings[next(iter(self._recordings))]
            self._recordings[key] = self._record(count, frames, shape, magnitude, ranges)
        recording = self._recordings[key]
        recording.generator.manual_seed(seed)
        recording.graph.replay()
        return WorldBatch(*(value.clone() for value in recording.outputs))

    def _record(self, count: int, frames: int, shape: Shape, magnitude: float, ranges: WorldRanges) -> _Recording:
        generator = torch.Generator(self.device).manual_seed(0)

        def draw() -> WorldBatch:
            return draw_worlds(count, frames, shape, generator, magnitude=magnitude, ranges=ranges)

        draw()  # libraries set themselves up, constants reach the device
        torch.cuda.synchronize(self.device)
        graph = torch.cuda.CUDAGraph()
        graph.register_generator_state(generator)
        if self._pool is None:
            self._pool = torch.cuda.graph_pool_handle()
        here = torch.cuda.current_stream(self.device)
        aside = None if here == torch.cuda.default_stream(self.device) else here  # which cannot be recorded itself
        with torch.cuda.graph(graph, pool=self._pool, stream=aside):
            outputs = draw()
        return _Recording(graph, generator, outputs)
