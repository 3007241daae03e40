"""Peers that are slow, idle or many: they lose their own connections, and nobody else waits."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest
from serving import Served, serve, wait_until

from scopereg.viewer.connections import Limits

QUICK = Limits(request_s=1.0, stall_s=1.0, upload_s=1.0, ping_s=0.3, most=40, per_address=20)
IDLE = 300


@pytest.fixture
def quick(tmp_path: Path) -> Iterator[Served]:
    with serve(tmp_path, limits=QUICK) as running:
        yield running


@contextmanager
def peers(served: Served, count: int, first: bytes = b"") -> Iterator[list[socket.socket]]:
    """Connections that say this, and no more."""
    with ExitStack() as stack:
        found = []
        for _ in range(count):
            peer = stack.enter_context(socket.create_connection(("127.0.0.1", served.web.port), 5.0))
            if first:
                peer.sendall(first)
            found.append(peer)
        yield found


def ends(peer: socket.socket, seconds: float) -> bool:
    """Whether the server ends a connection in time; what it says before does not matter."""
    peer.settimeout(seconds)
    try:
        while peer.recv(4096):
            pass
    except TimeoutError:
        return False
    except ConnectionError:
        return True
    return True


@pytest.mark.parametrize("first", [b"", b"GET / HTTP/1.1\r\nHost: 127.0"])
def test_300_idle_connections_keep_nobody_out(served: Served, first: bytes) -> None:
    """With the limits as they ship: before, everybody got 503 until the last of them was gone."""
    with peers(served, IDLE, first):
        for _ in range(20):
            begin_s = time.monotonic()
            assert served.ask("/api/state")[0] == 200
            assert time.monotonic() < begin_s + 5
        assert len(served.web.room) <= Limits().per_address + 1
        with served.page() as page:
            assert page.recv(20.0)
        assert served.show.counters["cut_off"] >= IDLE - Limits().per_address
    assert served.is_alive()


def test_headers_must_come_in_time_however_they_trickle(quick: Served) -> None:
    with peers(quick, 3, b"GET / HTTP/1.1\r\n") as waiting:
        begin_s = time.monotonic()
        with suppress(ConnectionError):
            while time.monotonic() < begin_s + 20:
                waiting[0].sendall(b"X-Slow: 1\r\n")
                time.sleep(0.05)
        assert time.monotonic() < begin_s + 10
        assert all(ends(peer, 5.0) for peer in waiting[1:])
    assert wait_until(lambda: len(quick.web.room) == 0)


def test_a_connection_that_was_answered_is_not_kept_for_ever(quick: Served) -> None:
    request = f"GET /api/state HTTP/1.1\r\nHost: 127.0.0.1:{quick.web.port}\r\n\r\n".encode()
    with peers(quick, 1, request) as (peer,):
        assert peer.recv(100).startswith(b"HTTP/1.1 200")
        time.sleep(0.5)
        peer.sendall(request)  # in time: one connection may ask again and again
        assert ends(peer, 10.0)


def test_an_upload_that_stands_still_is_given_up(quick: Served) -> None:
    head = (
        f"POST /api/volume?name=a.nii HTTP/1.1\r\nHost: {quick.host}\r\nOrigin: {quick.origin}\r\n"
        "Content-Length: 100000\r\n\r\n"
    ).encode()
    with peers(quick, 1, head + b"x" * 100) as (peer,):
        peer.settimeout(10.0)
        assert peer.recv(100).startswith(b"HTTP/1.1 400")
        assert ends(peer, 10.0)
    with peers(quick, 1, head) as (peer,):  # so slow that it would take an hour
        peer.settimeout(0.05)
        said, end_s = b"", time.monotonic() + 10
        while not said and time.monotonic() < end_s:
            peer.sendall(b"x")
            try:
                said = peer.recv(100)
            except TimeoutError:
                continue
        assert said.startswith(b"HTTP/1.1 400")


def test_many_uploads_at_once_are_turned_away(quick: Served) -> None:
    head = (
        f"POST /api/volume?name=a.nii HTTP/1.1\r\nHost: {quick.host}\r\nOrigin: {quick.origin}\r\n"
        "Content-Length: 100000\r\n\r\n"
    ).encode()
    with peers(quick, 2, head):
        assert wait_until(lambda: quick.web.site._uploads == 2)
        status, _, body = quick.ask("/api/volume?name=b.nii", method="POST", body=b"x" * 10)
        assert (status, b"other volumes" in body) == (429, True)
    assert wait_until(lambda: quick.web.site._uploads == 0)


def test_who_takes_nothing_is_cut_off(quick: Served) -> None:
    """The answer is larger than what the system holds back."""
    packed = quick.show._shown[0].voxels
    large = type(packed)(**{**packed.__dict__, "packed": bytes(2**25)})
    quick.show._shown = (quick.show._shown[0]._replace(voxels=large),)
    request = f"GET /api/volume HTTP/1.1\r\nHost: {quick.host}\r\n\r\n".encode()
    with peers(quick, 1, request):
        assert wait_until(lambda: quick.show.counters["cut_off"] == 1)
        assert "takes nothing" in quick.show.counters.last_fault
    assert quick.is_alive()


def test_a_page_that_is_gone_without_a_word_ends_with_a_ping(quick: Served) -> None:
    key = "dGhlIHNhbXBsZSBub25jZQ=="
    head = (
        f"GET /ws HTTP/1.1\r\nHost: {quick.host}\r\nOrigin: {quick.origin}\r\nUpgrade: websocket\r\n"
        f"Connection: Upgrade\r\nSec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n"
    ).encode()
    with peers(quick, 1, head):
        assert wait_until(lambda: quick.web.site.hub.page_count == 1)
        assert wait_until(lambda: quick.web.site.hub.page_count == 0)
    with quick.page() as page:  # one that answers stays
        page.recv(20.0)
        time.sleep(1.5)
        assert quick.web.site.hub.page_count == 1


def test_who_breaks_the_rules_is_cut_off_and_no_traceback_is_logged(
    quick: Served, caplog: pytest.LogCaptureFixture
) -> None:
    """uvicorn answers 400 with a text, which nothing may have that was asked for by HEAD."""
    bad = f"HEAD / HTTP/1.1\r\nHost: {quick.host}\r\nTransfer-Encoding: chunked\r\n\r\nno chunk at all\r\n".encode()
    with peers(quick, 3, bad) as breaking:
        assert all(ends(peer, 10.0) for peer in breaking)
    assert wait_until(lambda: quick.show.counters["cut_off"] == 3)
    assert not caplog.records
    assert quick.is_alive()
