"""Link: a connected socket that gives and takes whole messages, whatever the other end does."""

from __future__ import annotations

import re
import socket
import threading
import time
from contextlib import suppress
from dataclasses import dataclass

from scopereg.errors import ScopeRegError
from scopereg.live.exchange import Counters
from scopereg.live.messages import HEADER_BYTES, LARGEST_BODY, Header, Message, MessageError, read_header, read_message

SEND_BUFFER = 2**18  # bytes that the system may hold back: more would be frames of the past for a slow reader
MOST_GARBAGE = 2**22  # bytes without a header after which a new connection is the better way
_STEP = 2**20  # bytes of a body that are made room for at once
_START = re.compile(rb"\x00(?:[\x01\x02](?:[A-Z]|\Z)|\Z)")  # of a header, which may be cut off at the end


@dataclass(frozen=True)
class Timing:
    """How long a connection waits for what."""

    connect_s: float = 2.0
    stall_s: float = 3.0  # for the rest of a message that has begun, and for a peer that takes nothing
    keep_alive_s: float = 5.0  # of silence before a sign of life is sent
    first_wait_s: float = 0.1  # before the second try to connect; then twice as long each time
    longest_wait_s: float = 5.0


class LinkLostError(ScopeRegError):
    """The connection is over."""

    def __init__(self, what: str) -> None:
        super().__init__(what, where="OpenIGTLink connection", fix="see whether the other program still runs")


class Link:
    """Messages over one socket: one thread receives, any thread sends.

    Bad messages are counted (`bad_header`, `bad_body`) and skipped. After bytes that are no header, the next thing that
    looks like one is taken for it: the checksum tells whether it was.
    """

    def __init__(self, connected: socket.socket, counters: Counters, timing: Timing) -> None:
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
        _notice_dead_peers(connected)
        connected.settimeout(timing.stall_s)
        self._in = connected
        self._out = connected.dup()  # a time-out of its own: the receiver changes that of its socket all the time
        self._out.settimeout(timing.stall_s)
        self._sending = threading.Lock()
        self._counters, self._timing = counters, timing
        self._header = bytearray()  # what has come of the next header
        self._garbage = 0  # bytes since the last header

    def receive(self, wait_s: float) -> Message | None:
        """The next message; None if none begins in time or it is bad, an error if the connection is over."""
        header = self._next_header(wait_s)
        if header is None:
            return None
        body = self._body(header.body_bytes)
        arrived_s = time.perf_counter()
        try:
            message = read_message(header, body, arrived_s)
        except MessageError as error:
            self._counters.add("bad_body", error)
            return None
        self._counters.add("messages")
        return message

    def send(self, packed: bytes) -> None:
        """Send one or more packed messages; an error if the connection is over or the peer takes nothing."""
        try:
            with self._sending:
                self._out.sendall(packed)
        except TimeoutError:
            self._counters.add("stalled")
            self.end()  # a part of a message was sent: nothing can follow it
            raise LinkLostError("the other end takes no more messages") from None
        except OSError as error:
            raise LinkLostError(f"sending failed: {error.strerror or error}") from None

    def end(self) -> None:
        """End the connection from any thread; whoever receives or sends gets an error at once."""
        with suppress(OSError):
            self._in.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """End the connection and give its sockets back; for the thread that receives, or when none does any more."""
        self.end()
        self._in.close()
        with self._sending:
            self._out.close()

    def _next_header(self, wait_s: float) -> Header | None:
        """The next header, if one begins in time."""
        if not self._header and not self._begin(wait_s):
            return None
        deadline = time.monotonic() + self._timing.stall_s
        while True:
            missing = bytearray(HEADER_BYTES - len(self._header))
            self._fill(memoryview(missing), deadline)
            self._header += missing
            try:
                header = read_header(bytes(self._header), LARGEST_BODY)
            except MessageError as error:
                if not self._skip(error):
                    return None
                continue
            self._header.clear()
            self._garbage = 0
            return header

    def _skip(self, error: MessageError) -> bool:
        """Drop what cannot be the start of a header; whether something is left that can."""
        if not self._garbage:
            self._counters.add("bad_header", error)
        start = _START.search(self._header, 1)
        dropped = start.start() if start else len(self._header)
        self._garbage += dropped
        del self._header[:dropped]
        if self._garbage > MOST_GARBAGE:
            raise LinkLostError(f"{self._garbage} bytes without a message")
        return bool(self._header)

    def _body(self, count: int) -> bytearray:
        """So many bytes. Memory is taken as they come, not because a header says so."""
        body = bytearray()
        deadline = time.monotonic() + self._timing.stall_s
        while len(body) < count:
            done = len(body)
            body += bytes(min(count - done, _STEP))
            with memoryview(body) as whole, whole[done:] as rest:
                self._fill(rest, deadline)
        return body

    def _begin(self, wait_s: float) -> bool:
        """Wait for the first bytes of a message."""
        try:
            self._in.settimeout(wait_s)
            first = self._in.recv(HEADER_BYTES)
        except TimeoutError:
            return False
        except OSError as error:
            raise LinkLostError(f"receiving failed: {error.strerror or error}") from None
        if not first:
            raise LinkLostError("the other end closed it")
        self._header += first
        return True

    def _fill(self, target: memoryview, deadline: float) -> None:
        """Fill a buffer before the deadline."""
        while target:
            try:
                # Past the deadline what is there already still counts: this thread may have been kept waiting.
                self._in.settimeout(max(deadline - time.monotonic(), 0.0))
                count = self._in.recv_into(target)
            except (TimeoutError, BlockingIOError):
                self._counters.add("stalled")
                raise LinkLostError(f"no more of a message for {self._timing.stall_s:g} s") from None
            except OSError as error:
                raise LinkLostError(f"receiving failed: {error.strerror or error}") from None
            if not count:
                raise LinkLostError("the other end closed it in the middle of a message")
            target = target[count:]


def _notice_dead_peers(connected: socket.socket) -> None:
    """Have the system ask a silent peer whether it is still there, where it can."""
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 5), ("TCP_KEEPINTVL", 2), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, name):
            with suppress(OSError):
                connected.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
