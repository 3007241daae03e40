"""A link takes whole messages out of whatever comes, and ends in time when nothing does."""

from __future__ import annotations

import socket
import struct
import threading
import time
import tracemalloc
from collections.abc import Iterator
from dataclasses import replace

import pytest
from peers import QUICK, Listening, garbage, giant, kill, wrong_crc

from scopereg.live import link as link_module
from scopereg.live.exchange import Counters
from scopereg.live.link import Link, LinkLostError
from scopereg.live.messages import LARGEST_BODY, pack, string_message, text_of

Ends = tuple[Link, socket.socket, Counters]


@pytest.fixture
def ends() -> Iterator[Ends]:
    """A link, and the bare socket at its other end."""
    yield from connected(2.0)


@pytest.fixture
def hasty() -> Iterator[Ends]:
    """A link that does not wait long for the rest of a message."""
    yield from connected(0.3)


def connected(stall_s: float) -> Iterator[Ends]:
    with Listening() as listening:
        near = socket.create_connection(("127.0.0.1", listening.port))
        far = listening.accept()
    counters = Counters()
    link = Link(near, counters, replace(QUICK, stall_s=stall_s))
    yield link, far, counters
    link.close()
    far.close()


def words(link: Link, count: int) -> list[str]:
    """The next good messages."""
    found: list[str] = []
    deadline_s = time.monotonic() + 5
    while time.monotonic() < deadline_s:
        message = link.receive(1.0)
        if message is not None:
            found.append(text_of(message))
        if len(found) == count:
            return found
    raise AssertionError(f"only {found} came")


def test_messages_in_pieces_and_in_heaps(ends: Ends) -> None:
    link, far, counters = ends
    packed = [string_message(word * 500) for word in "abc"]
    far.sendall(packed[0] + packed[1] + packed[2])
    assert words(link, 3) == ["a" * 500, "b" * 500, "c" * 500]
    sender = threading.Thread(target=lambda: [far.sendall(bytes([byte])) for byte in string_message("drop by drop")])
    sender.start()
    assert words(link, 1) == ["drop by drop"]
    sender.join()
    assert counters.snapshot() == {"messages": 4}


def test_nothing_comes(ends: Ends) -> None:
    link, _, _ = ends
    begin = time.monotonic()
    assert link.receive(0.05) is None
    assert time.monotonic() - begin < 1


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("count", [1, 57, 58, 59, 5000])
def test_after_garbage_the_next_message_is_found(ends: Ends, count: int, seed: int) -> None:
    link, far, counters = ends
    far.sendall(garbage(count, seed) + string_message("one") + string_message("two"))
    assert words(link, 2) == ["one", "two"]
    assert counters["bad_header"] == 1
    assert "no header" in counters.last_fault


@pytest.mark.parametrize("tail", [b"\x00", b"\x00\x01", b"\x00\x02S", b"\x00\x01STRING", b"\x00" * 20])
def test_garbage_that_ends_like_the_start_of_a_header(ends: Ends, tail: bytes) -> None:
    link, far, _ = ends
    far.sendall(b"x" * (58 - len(tail)) + tail)
    far.sendall(string_message("one"))
    assert words(link, 1) == ["one"]


def test_a_wrong_checksum_costs_one_message(ends: Ends) -> None:
    link, far, counters = ends
    far.sendall(string_message("one") + wrong_crc(string_message("bad")) + string_message("two"))
    assert words(link, 2) == ["one", "two"]
    assert counters.snapshot() == {"messages": 2, "bad_body": 1}
    assert counters.last_fault == "the checksum is wrong"


def test_a_giant_size_costs_one_message_and_no_memory(ends: Ends) -> None:
    link, far, counters = ends
    bad = string_message("bad " * 2000)
    far.sendall(giant(bad) + bad[58:] + string_message("two"))
    assert words(link, 1) == ["two"]
    assert counters["bad_header"] == 1


def test_a_body_that_makes_no_sense_costs_one_message(ends: Ends) -> None:
    link, far, counters = ends
    far.sendall(pack("IMAGE", "Image", b"\x00" * 20) + pack("TRANSFORM", "AToB", b"\x00") + string_message("two"))
    assert words(link, 1) == ["two"]
    assert counters.snapshot() == {"messages": 1, "bad_body": 2}


def test_endless_garbage_ends_the_connection(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    link, far, counters = ends
    monkeypatch.setattr(link_module, "MOST_GARBAGE", 10_000)
    far.sendall(garbage(20_000))
    with pytest.raises(LinkLostError, match="bytes without a message"):
        words(link, 1)
    assert counters["bad_header"] == 1


@pytest.mark.parametrize("sent", [1, 57, 58, 60])
def test_a_message_that_stalls_ends_the_connection(hasty: Ends, sent: int) -> None:
    link, far, counters = hasty
    far.sendall(string_message("never whole")[:sent])
    begin = time.monotonic()
    with pytest.raises(LinkLostError, match=r"no more of a message for 0\.3 s"):
        link.receive(1.0)
    assert 0.25 < time.monotonic() - begin < 1.5
    assert counters["stalled"] == 1


def test_a_message_that_drips_does_not_last_for_ever(hasty: Ends) -> None:
    """Each byte comes in time, all of them do not."""
    link, far, _ = hasty
    stop = threading.Event()

    def drip() -> None:
        for byte in string_message("x" * 1000):
            if stop.wait(0.05):
                return
            far.sendall(bytes([byte]))

    dripping = threading.Thread(target=drip)
    dripping.start()
    with pytest.raises(LinkLostError, match="no more of a message"):
        link.receive(1.0)
    stop.set()
    dripping.join()


@pytest.mark.parametrize("sent", [0, 30, 60])
@pytest.mark.parametrize("end", [socket.socket.close, kill])
def test_a_peer_that_goes_ends_the_connection(ends: Ends, sent: int, end: object) -> None:
    link, far, _ = ends
    far.sendall(string_message("never whole")[:sent])
    end(far)  # type: ignore[operator]
    with pytest.raises(LinkLostError, match=r"closed it|reset by peer"):
        link.receive(1.0)


def test_a_peer_that_takes_nothing_is_given_up(hasty: Ends) -> None:
    link, _, counters = hasty
    begin = time.monotonic()
    with pytest.raises(LinkLostError, match="takes no more"):
        link.send(bytes(10**8))
    assert time.monotonic() - begin < 3
    assert counters["stalled"] == 1
    with pytest.raises(LinkLostError):
        link.send(b"after the end")


def test_ending_it_wakes_who_receives(ends: Ends) -> None:
    link, _, _ = ends
    threading.Timer(0.05, link.end).start()
    begin = time.monotonic()
    with pytest.raises(LinkLostError):
        link.receive(10.0)
    assert time.monotonic() - begin < 2


def test_small_messages_do_not_wait_for_more(ends: Ends) -> None:
    link, _, _ = ends
    assert link._in.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    assert link._in.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    # Linux doubles what it is told; what it would choose by itself holds dozens of frames of the past.
    assert link._in.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) <= 2 * link_module.SEND_BUFFER


def test_memory_is_taken_as_a_body_comes_and_not_because_a_header_says_so(hasty: Ends) -> None:
    """64 MB announced, 3 sent."""
    link, far, _ = hasty
    header = pack("IMAGE", "Image", b"")[:42] + struct.pack(">QQ", LARGEST_BODY, 0)
    sender = threading.Thread(target=far.sendall, args=(header + bytes(3 * 10**6),))
    tracemalloc.start()
    try:
        sender.start()
        with pytest.raises(LinkLostError, match="no more of a message"):
            link.receive(1.0)
        assert tracemalloc.get_traced_memory()[1] < 20 * 10**6
    finally:
        tracemalloc.stop()
        sender.join()
