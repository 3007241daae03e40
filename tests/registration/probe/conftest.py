"""Modules beside the tests that are no tests."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))  # probe_scene.py
