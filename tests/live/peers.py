"""The other end of a connection, which does what it is told, good and bad; for the tests and for `soak.py`."""

from __future__ import annotations

import random
import socket
import struct
import threading
import time
from collections.abc import Callable

from scopereg.live.link import Timing
from scopereg.live.messages import HEADER_BYTES
from scopereg.live.replay import Arrival, Replay

QUICK = Timing(connect_s=1.0, stall_s=1.0, keep_alive_s=5.0, first_wait_s=0.02, longest_wait_s=0.1)


def wait_until(condition: Callable[[], bool], timeout_s: float = 5.0) -> bool:
    """Whether something becomes true in time."""
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline_s:
            return False
        time.sleep(0.002)
    return True


def assert_no_threads_left() -> None:
    """Whatever live started is ended."""
    left: list[str] = []

    def none_left() -> bool:
        left[:] = [thread.name for thread in threading.enumerate() if thread.name.startswith("scopereg-live")]
        return not left

    assert wait_until(none_left, 1.0), left


class Listening:
    """A server that accepts when it is asked to."""

    def __init__(self, port: int = 0) -> None:
        self._socket = socket.create_server(("127.0.0.1", port))
        self.port: int = self._socket.getsockname()[1]

    def accept(self, timeout_s: float = 5.0) -> socket.socket:
        self._socket.settimeout(timeout_s)
        connected, _ = self._socket.accept()
        connected.settimeout(timeout_s)
        return connected

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> Listening:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def all_of(replay: Replay) -> list[Arrival]:
    """Everything that a replay shows until its end, also what would be dropped on a machine that is busy."""
    found: list[Arrival] = []
    put = replay._mailbox.put
    replay._mailbox.put = lambda arrival: (found.append(arrival), put(arrival))[1]  # type: ignore[method-assign]
    replay.start()
    while not replay.finished:
        replay.latest(5.0)
    replay.close()
    return found


def kill(connected: socket.socket) -> None:
    """End a connection as a process that dies does: reset, nothing said."""
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connected.close()


def wrong_crc(packed: bytes) -> bytes:
    """The message with one bit of its body turned."""
    return packed[:-1] + bytes([packed[-1] ^ 1])


def giant(packed: bytes) -> bytes:
    """The header of the message, which claims a body of exabytes."""
    return packed[:42] + struct.pack(">Q", 2**62) + packed[50:HEADER_BYTES]


def garbage(count: int, seed: int = 0) -> bytes:
    """Bytes that are no message."""
    return random.Random(seed).randbytes(count)
