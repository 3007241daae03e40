"""Runs one after another in this process."""

from __future__ import annotations

from collections.abc import Sequence

from scopereg.grid.plan import Run
from scopereg.grid.show import Show
from scopereg.grid.work import Outcome, Place, attempt


def run_here(runs: Sequence[Run], place: Place, show: Show) -> list[Outcome]:
    """How each run ended. Training shows its own progress; Ctrl-C ends the grid after a checkpoint."""
    outcomes = []
    for run in runs:
        show.started(run)
        outcomes.append(attempt(run, place))
        show.finished(outcomes[-1])
    return outcomes
