"""Worlds: random anatomies that never were, with a volume and frames of each, drawn on the device while training.

Nothing here is modelled after an organ or taken from a patient. `draw_worlds` makes a batch; `make_worlds` a set.
"""

from __future__ import annotations

from scopereg.data.worlds.ranges import WorldRanges
from scopereg.data.worlds.world import WorldBatch, draw_worlds

__all__ = ["WorldBatch", "WorldRanges", "draw_worlds"]
