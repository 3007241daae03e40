"""Every test of live leaves no thread of it behind; pyigtl's own server as a peer; a frame and its pose."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyigtl
import pytest

from scopereg import Frame, Pose

sys.path.append(str(Path(__file__).parent))  # peers.py and soak.py, which are no tests
from peers import assert_no_threads_left, wait_until


@pytest.fixture(autouse=True)
def _no_threads_left() -> Iterator[None]:
    yield
    assert_no_threads_left()


@pytest.fixture
def pyigtl_server() -> Iterator[pyigtl.OpenIGTLinkServer]:
    """It catches signals, and stays so if nobody takes that back."""
    caught = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    server = pyigtl.OpenIGTLinkServer(port=0)
    yield server
    server.stop()
    for number, handler in caught.items():
        signal.signal(number, handler)


@pytest.fixture
def pyigtl_client() -> Iterator[Callable[[int], pyigtl.OpenIGTLinkClient]]:
    clients = []

    def connect(port: int) -> pyigtl.OpenIGTLinkClient:
        clients.append(pyigtl.OpenIGTLinkClient("127.0.0.1", port))
        assert wait_until(clients[-1].is_connected)
        return clients[-1]

    yield connect
    for client in clients:
        client.stop()


@pytest.fixture
def frame() -> Frame:
    """Nothing about it is the same along x and y."""
    pixels = np.random.default_rng(0).integers(0, 256, (6, 9), dtype=np.uint8)
    return Frame(pixels / np.float32(255), spacing_mm=(0.5, 0.8), origin_mm=(2.0, -1.0))


@pytest.fixture
def pose() -> Pose:
    return Pose.from_euler_deg((20, -35, 50), (12, -7, 31))
