"""The folder of the module can be imported from. Where only 3D Slicer would do, fakes.py stands in for it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from scopereg import Frame, Pose

sys.path.append(str(Path(__file__).parents[2] / "slicer" / "ScopeRegLive"))
# fakes.py and patient_files.py, which are no tests
sys.path += [str(Path(__file__).parent), str(Path(__file__).parents[1] / "registration")]
import fakes
from patient_files import case as case


@pytest.fixture
def slicer() -> Iterator[ModuleType]:
    """A fake 3D Slicer with nothing in its scene; `slicer.module` is ScopeRegLive, imported into it."""
    made = fakes.modules()
    _forget()
    sys.modules.update(made)
    import ScopeRegLive

    made["slicer"].module = ScopeRegLive
    yield made["slicer"]
    made["slicer"].mrmlScene.close_connectors()
    for name in made:
        del sys.modules[name]
    _forget()


def _forget() -> None:
    """Parts that have been imported hold on to the Slicer that was there."""
    for name in [name for name in sys.modules if name.startswith("ScopeRegLive")]:
        del sys.modules[name]


@pytest.fixture
def panel(slicer: ModuleType) -> Iterator[Any]:
    made = slicer.module.ScopeRegLiveWidget()
    made.setup()
    yield made
    made.cleanup()


@pytest.fixture
def frame() -> Frame:
    """Nothing about it is the same along x and y."""
    pixels = np.random.default_rng(0).integers(0, 256, (6, 9), dtype=np.uint8)
    return Frame(pixels / np.float32(255), spacing_mm=(0.5, 0.8), origin_mm=(2.0, -1.0))


@pytest.fixture
def pose() -> Pose:
    return Pose.from_euler_deg((20, -35, 50), (12, -7, 31))
