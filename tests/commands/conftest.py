"""The files of a patient, and helpers of the tests of what verbs call."""

from __future__ import annotations

import sys
from pathlib import Path

# patient_files.py, synthetic_signs.py and peers.py, which are no tests
sys.path += [str(Path(__file__).parent.parent / name) for name in ("registration", "live")]
from patient_files import case as case
