"""Every test of the viewer leaves no thread of it behind; a browser for those that look at the page."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

sys.path.append(str(Path(__file__).parent))  # browsing.py, patients.py and serving.py, which are no tests
from browsing import Tab, chromium, new_tab
from patients import Patients, make_patients
from serving import Served, serve, wait_until

if TYPE_CHECKING:
    from playwright.sync_api import Browser


_KEPT = "scopereg-scan"  # the CPU scan keeps its helpers for the next call, whoever made it


@pytest.fixture(autouse=True)
def _no_threads_left() -> Iterator[None]:
    yield
    left: list[str] = []

    def none_left() -> bool:
        names = (thread.name for thread in threading.enumerate())
        left[:] = [name for name in names if name.startswith("scopereg-") and not name.startswith(_KEPT)]
        return not left

    assert wait_until(none_left, 3.0), left


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with serve(tmp_path) as running:
        yield running


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Of one file of tests: while it runs, nothing else can have an event loop in this thread."""
    with chromium() as running:
        yield running


@pytest.fixture
def tab(browser: Browser) -> Iterator[Tab]:
    with new_tab(browser) as opened:
        yield opened


@pytest.fixture(scope="session")
def patients(tmp_path_factory: pytest.TempPathFactory, narrow_file: Path) -> Patients:
    return make_patients(tmp_path_factory.mktemp("patients"), str(narrow_file))
