"""Connections of the web server, none of which is held for nothing: who is slow or idle loses its own, never others'.

uvicorn ends a connection that idles between two requests, and pings web sockets. It waits for ever for the headers of
a first request, and for a reader that takes nothing: that is seen to here.
"""

from __future__ import annotations

import asyncio
import ipaddress
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, NamedTuple

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from scopereg.live.exchange import Counters


class Limits(NamedTuple):
    """How long a peer may take for what, and how many connections it may have."""

    request_s: float = 10.0  # from the connection, or the last answer, to the end of the next headers
    stall_s: float = 20.0  # for which a peer takes nothing of what it is sent, or sends nothing of what it announced
    upload_s: float = 30.0  # after which an upload must have come at a rate of so many bytes a second
    upload_rate: float = 2**15
    most: int = 200  # connections in all; the listening socket takes no more than it can have files
    per_address: int = 64
    handshake_s: float = 5.0  # of TLS
    ping_s: float = 20.0  # between the pings of a web socket, and for the answer to one


class Room:
    """The connections of a server. Where they are too many, the one that has waited longest makes room for a new one.

    A connection waits while there is no request of it to be answered. So whoever asks for something is answered,
    however many others hold connections without a word; only those who do are cut off. Counted as `cut_off`.
    """

    def __init__(self, limits: Limits, counters: Counters) -> None:
        self.limits, self.counters = limits, counters
        self._all: dict[_Http, str] = {}  # their addresses
        self._waiting: dict[_Http, None] = {}  # the longest first

    def __len__(self) -> int:
        return len(self._all)

    def enter(self, connection: _Http, address: str) -> None:
        """Let a new connection in, which may be the one that goes at once where none waits."""
        self._all[connection] = address
        self.wait(connection)
        alike = [other for other, place in self._all.items() if place == address]
        if len(alike) > self.limits.per_address:
            next(other for other in self._waiting if self._all[other] == address).cut_off("too many connections")
        elif len(self._all) > self.limits.most:
            next(iter(self._waiting)).cut_off("too many connections")

    def wait(self, connection: _Http) -> None:
        """From now on there is nothing to be answered."""
        self._waiting.pop(connection, None)
        self._waiting[connection] = None

    def work(self, connection: _Http) -> None:
        """It has asked for something."""
        self._waiting.pop(connection, None)

    def leave(self, connection: _Http) -> None:
        self._all.pop(connection, None)
        self._waiting.pop(connection, None)


class _Patient:
    """A protocol whose peer may take nothing for no longer than a while."""

    room: Room
    loop: asyncio.AbstractEventLoop
    transport: asyncio.Transport
    _stalled: asyncio.TimerHandle | None = None

    def pause_writing(self) -> None:
        super().pause_writing()  # type: ignore[misc]
        self._stalled = self.loop.call_later(self.room.limits.stall_s, self.cut_off, "it takes nothing")

    def resume_writing(self) -> None:
        self._forget_stall()
        super().resume_writing()  # type: ignore[misc]

    def connection_lost(self, error: Exception | None) -> None:
        self._forget_stall()
        super().connection_lost(error)  # type: ignore[misc]

    def cut_off(self, why: str) -> None:
        """End it now, whatever is still to be sent."""
        if not self.transport.is_closing() or self.transport.get_write_buffer_size():
            self.room.counters.add("cut_off", f"a connection was cut off: {why}")
        self.transport.abort()

    def _forget_stall(self) -> None:
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None


class _Http(_Patient, H11Protocol):
    """HTTP with a time for headers. Being new or between two answers counts as waiting, whatever trickles in."""

    def __init__(self, room: Room, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.room = room
        self._due: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait()
        self.room.enter(self, address_of(transport))

    def data_received(self, data: bytes) -> None:
        try:
            super().data_received(data)
        except h11.ProtocolError as error:  # in the middle of an answer: nothing can be said any more
            self.cut_off(f"it speaks no HTTP: {error}")
            return
        if self.cycle is not None and not self.cycle.response_complete:
            self._work()

    def on_response_complete(self) -> None:
        self._wait()
        super().on_response_complete()
        if not self.cycle.response_complete:  # the next request had come already
            self._work()

    def handle_websocket_upgrade(self, event: Any) -> None:
        self._leave()
        super().handle_websocket_upgrade(event)

    def connection_lost(self, error: Exception | None) -> None:
        self._leave()
        super().connection_lost(error)

    def cut_off(self, why: str) -> None:
        self._leave()  # now: whoever comes next shall not count it, nor choose it again
        self.connections.discard(self)
        super().cut_off(why)

    def _wait(self) -> None:
        self._work()
        if self.transport.is_closing():
            return
        self.room.wait(self)
        self._due = self.loop.call_later(self.room.limits.request_s, self.cut_off, "no request came in time")

    def _work(self) -> None:
        if self._due is not None:
            self._due.cancel()
            self._due = None
        self.room.work(self)

    def _leave(self) -> None:
        self._work()
        self.room.leave(self)


class _WebSocket(_Patient, WebSocketsSansIOProtocol):
    """A web socket; that of a page which is gone without a word ends with the next ping."""

    def __init__(self, room: Room, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.room = room

    def keepalive_timeout(self) -> None:
        super().keepalive_timeout()
        self.cut_off("it answers no ping")


def protocols(room: Room) -> dict[str, Any]:
    """What uvicorn is told to speak."""
    return {"http": partial(_Http, room), "ws": partial(_WebSocket, room)}


def address_of(transport: asyncio.BaseTransport) -> str:
    """Whose connection it is; of IPv6 the network, since everybody has a whole one."""
    peer = transport.get_extra_info("peername")
    try:
        address = ipaddress.ip_address(str(peer[0]).partition("%")[0])
    except (ValueError, TypeError, IndexError):
        return str(peer)
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is None:
        return str(ipaddress.ip_network((address, 64), strict=False))
    return str(address)


class Timely:
    """The body of a request, taken to be broken off when it stands still or hardly moves."""

    def __init__(self, receive: Callable[[], Awaitable[Any]], limits: Limits) -> None:
        self._receive, self._limits = receive, limits
        self._begin_s, self._bytes = time.monotonic(), 0

    async def __call__(self) -> Any:
        """The next message of ASGI."""
        due_s = self._begin_s + self._limits.upload_s + self._bytes / self._limits.upload_rate
        try:
            message = await asyncio.wait_for(
                self._receive(), max(min(self._limits.stall_s, due_s - time.monotonic()), 0.0)
            )
        except asyncio.TimeoutError:
            return {"type": "http.disconnect"}
        self._bytes += len(message.get("body", b""))
        return message
