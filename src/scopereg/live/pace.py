"""Pace: how many frames come through, and how long each takes, of late."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

import numpy as np

WINDOW = 250  # frames that percentiles are taken over
RATE_S = 3.0  # seconds that frames are counted over


class Rates(NamedTuple):
    """Of the last frames."""

    frames_per_s: float
    p50_ms: float  # of the latency
    p95_ms: float


class Pace:
    """Latencies and times of the last frames."""

    def __init__(self) -> None:
        self._latencies_ms: deque[float] = deque(maxlen=WINDOW)
        self._done_s: deque[float] = deque()

    def add(self, latency_ms: float, done_s: float) -> Rates:
        """Count a frame that was done at a time of one steady clock; the rates with it."""
        self._latencies_ms.append(latency_ms)
        self._done_s.append(done_s)
        while self._done_s[0] < done_s - RATE_S:
            self._done_s.popleft()
        span_s = done_s - self._done_s[0]
        frames_per_s = (len(self._done_s) - 1) / span_s if span_s > 0 else 0.0
        p50_ms, p95_ms = np.percentile(self._latencies_ms, (50, 95))
        return Rates(frames_per_s, float(p50_ms), float(p95_ms))
