"""The files of a patient, and modules that are no tests."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))  # patient_files.py and synthetic_features.py
from patient_files import case as case
