"""States of a scored frame, and the format of their table; results read them where nothing but torch is installed."""

from __future__ import annotations

FORMAT = "scopereg-score-1"
SCORED, NOT_LOCATED, NO_TRUTH, NO_POSE = "scored", "not located", "no truth", "no pose"
