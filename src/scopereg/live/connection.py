"""Connection: client of an OpenIGTLink server such as PLUS, which it finds again whenever it is lost."""

from __future__ import annotations

import random
import socket
import threading
import time
from collections.abc import Callable

from scopereg.live.exchange import Counters
from scopereg.live.link import Link, LinkLostError, Timing
from scopereg.live.messages import Message, request_status, require_pyigtl

_TICK_S = 0.25  # after which a thread that waits looks whether it should end


class BackOff:
    """Waits between tries: twice as long each time up to a bound, and never the same for two clients."""

    def __init__(self, first_s: float, longest_s: float, seed: int | None = None) -> None:
        self._first_s, self._longest_s = first_s, longest_s
        self._tries = 0
        self._random = random.Random(seed)

    def next_s(self) -> float:
        """Seconds to wait now, between half and the whole of what the number of tries allows."""
        whole_s = min(self._first_s * 2.0 ** min(self._tries, 30), self._longest_s)
        self._tries += 1
        return whole_s * self._random.uniform(0.5, 1.0)

    def reset(self) -> None:
        self._tries = 0


class Connection:
    """Calls `listener` with every good message, in a thread of its own, until it is closed.

    Counters: `connected`, `refused` (no connection came about), `lost`, `messages`, `bad_header`, `bad_body`,
    `stalled`, `listener_errors`.
    """

    def __init__(
        self, host: str, port: int, listener: Callable[[Message], None], *, timing: Timing | None = None
    ) -> None:
        require_pyigtl()
        self.host, self.port = host, port
        self.counters = Counters()
        self._listener = listener
        self._timing = timing or Timing()
        self._stop = threading.Event()
        self._link: Link | None = None
        self._heard_s = time.monotonic()
        self._thread = threading.Thread(target=self._run, name=f"scopereg-live-client-{host}:{port}", daemon=True)

    def start(self) -> Connection:
        """Connect, now and whenever the connection is lost."""
        self._thread.start()
        return self

    @property
    def connected(self) -> bool:
        return self._link is not None

    @property
    def silent_s(self) -> float:
        """Seconds since the last message."""
        return time.monotonic() - self._heard_s

    @property
    def status(self) -> str:
        """In words: where it stands."""
        place = f"{self.host}:{self.port}"
        if self._stop.is_set():
            return f"closed {place}"
        return (
            f"connected to {place}" if self.connected else f"waiting for {place}: {self.counters.last_fault or '...'}"
        )

    def send(self, packed: bytes) -> bool:
        """Send packed messages; whether there was a connection to send them over."""
        link = self._link
        try:
            if link is not None:
                link.send(packed)
            return link is not None
        except LinkLostError:
            return False  # the receiving thread notices too, and connects again

    def close(self) -> None:
        """End the connection and its thread."""
        self._stop.set()
        if (link := self._link) is not None:
            link.end()
        if self._thread.ident is not None and self._thread is not threading.current_thread():
            self._thread.join(self._timing.connect_s + self._timing.stall_s + _TICK_S)

    def __enter__(self) -> Connection:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self) -> None:
        back_off = BackOff(self._timing.first_wait_s, self._timing.longest_wait_s)
        while not self._stop.is_set():
            try:
                connected = self._connect()
            except OSError as error:
                self.counters.add("refused", f"no connection: {error.strerror or error}")
            else:
                self._converse(connected, back_off)
            self._stop.wait(back_off.next_s())

    def _connect(self) -> socket.socket:
        connected = socket.create_connection((self.host, self.port), self._timing.connect_s)
        if connected.getsockname() == connected.getpeername():
            # Where nobody listens, TCP may join a socket of this machine with itself.
            connected.close()
            raise ConnectionRefusedError("nobody listens")
        return connected

    def _converse(self, connected: socket.socket, back_off: BackOff) -> None:
        """Receive until the connection is over."""
        try:
            link = Link(connected, self.counters, self._timing)
        except OSError as error:  # it was reset before it was used
            connected.close()
            self.counters.add("lost", error)
            return
        self._link = link
        self.counters.add("connected")
        try:
            self._receive(link, back_off)
        except LinkLostError as error:
            if not self._stop.is_set():
                self.counters.add("lost", error)
        finally:
            self._link = None
            link.close()

    def _receive(self, link: Link, back_off: BackOff) -> None:
        alive_s = time.monotonic()  # when the other end last heard or said something
        while not self._stop.is_set():
            message = link.receive(_TICK_S)
            now_s = time.monotonic()
            if message is not None:
                self._heard_s = alive_s = now_s
                back_off.reset()  # not before: a peer that accepts and hangs up must not be asked again at once
                self._tell(message)
            elif now_s - alive_s > self._timing.keep_alive_s:
                link.send(request_status())
                alive_s = now_s

    def _tell(self, message: Message) -> None:
        try:
            self._listener(message)
        except Exception as error:  # one message must not end the connection
            self.counters.add("listener_errors", error)
