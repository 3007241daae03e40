"""A client finds its server again, whatever became of it, and counts what was wrong."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pyigtl
import pytest
from peers import QUICK, Listening, garbage, giant, kill, wait_until, wrong_crc

from scopereg.live.connection import BackOff, Connection
from scopereg.live.messages import Message, frame_of, read_header, string_message, text_of


@pytest.fixture
def listening() -> Iterator[Listening]:
    with Listening() as server:
        yield server


def test_images_of_pyigtls_server(pyigtl_server: pyigtl.OpenIGTLinkServer) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (1, 48, 64), dtype=np.uint8)
    got: list[Message] = []
    with Connection("127.0.0.1", pyigtl_server.server_address[1], got.append, timing=QUICK) as connection:
        assert wait_until(pyigtl_server.is_connected)
        for version in (1, 2):
            image = pyigtl.ImageMessage(pixels, np.diag([0.2, 0.3, 1, 1]), "ras", device_name="Image_Reference")
            image.header_version = version
            pyigtl_server.send_message(image)
        assert wait_until(lambda: len(got) == 2)
        assert connection.connected
        assert connection.status.startswith("connected to 127.0.0.1:")
        assert connection.silent_s < 5
        # It reads what we send too.
        assert connection.send(string_message("hello", name="Greeting"))
        assert pyigtl_server.wait_for_message("Greeting", 5).string == "hello"
    assert [message.header.version for message in got] == [1, 2]
    for message in got:
        frame = frame_of(message)
        assert np.allclose(frame.numpy(), pixels[0] / 255)
        assert frame.spacing_mm == pytest.approx((0.2, 0.3))
    assert connection.counters.snapshot() == {"connected": 1, "messages": 2}


@pytest.mark.parametrize("bad", ["close", "kill", "stall", "garbage", "wrong crc", "giant", "half"])
def test_the_stream_goes_on_after_anything(listening: Listening, bad: str) -> None:
    got: list[str] = []
    timing = replace(QUICK, stall_s=0.3)
    message = string_message("x" * 5000)
    with Connection("127.0.0.1", listening.port, lambda m: got.append(text_of(m)), timing=timing) as connection:
        peer = listening.accept()
        peer.sendall(string_message("before"))
        assert wait_until(lambda: got == ["before"])
        misdeeds = {"stall": message[:99], "half": message[:99], "garbage": garbage(777), "giant": giant(message)}
        peer.sendall({**misdeeds, "wrong crc": wrong_crc(message)}.get(bad, b""))
        reconnects = bad in ("close", "kill", "stall", "half")
        if reconnects:
            if bad == "kill":
                kill(peer)
            elif bad != "stall":
                peer.close()
            again = listening.accept()
            peer.close()
            peer = again
        peer.sendall(string_message("after"))
        assert wait_until(lambda: got == ["before", "after"])
        peer.close()
    counters = connection.counters.snapshot()
    assert counters["connected"] == (2 if reconnects else 1)
    assert counters.get("lost", 0) >= int(reconnects)
    assert counters.get("stalled", 0) == int(bad == "stall")
    assert counters.get("bad_header", 0) == int(bad in ("garbage", "giant"))
    assert counters.get("bad_body", 0) == int(bad == "wrong crc")


def test_a_process_that_is_killed_and_started_again() -> None:
    code = (
        "import socket, sys, time\n"
        "server = socket.create_server(('127.0.0.1', int(sys.argv[1])))\n"
        "print(server.getsockname()[1], flush=True)\n"
        "server.accept()[0].sendall(bytes.fromhex(sys.argv[2]))\n"
        "time.sleep(60)"
    )

    def start(port: int, text: str) -> tuple[subprocess.Popen[str], int]:
        words = [sys.executable, "-c", code, str(port), string_message(text).hex()]
        process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        return process, int(process.stdout.readline())

    got: list[str] = []
    process, port = start(0, "one")
    with Connection("127.0.0.1", port, lambda m: got.append(text_of(m)), timing=QUICK) as connection:
        assert wait_until(lambda: got == ["one"])
        process.kill()
        process.communicate()
        assert wait_until(lambda: not connection.connected)
        process, _ = start(port, "two")
        assert wait_until(lambda: got == ["one", "two"])
        process.kill()
        process.communicate()
    assert connection.counters["connected"] == 2


def test_it_waits_for_a_server_that_is_not_there_yet() -> None:
    with Listening() as gone:
        port = gone.port
    got: list[Message] = []
    with Connection("127.0.0.1", port, got.append, timing=QUICK) as connection:
        assert wait_until(lambda: connection.counters["refused"] >= 2)
        assert not connection.connected
        assert not connection.send(b"into the void")
        assert connection.status.startswith(f"waiting for 127.0.0.1:{port}: no connection: ")
        with Listening(port) as late:
            peer = late.accept()
            peer.sendall(string_message("here"))
            assert wait_until(lambda: len(got) == 1)
            peer.close()
    assert connection.status == f"closed 127.0.0.1:{port}"


def test_waits_grow_to_a_bound_and_differ() -> None:
    back_off = BackOff(0.1, 5.0, seed=1)
    waits = [back_off.next_s() for _ in range(2000)]
    for tries, wait in enumerate(waits):
        whole = min(0.1 * 2.0 ** min(tries, 30), 5.0)
        assert whole / 2 <= wait <= whole
    assert len(set(waits[10:])) > 1900
    back_off.reset()
    assert back_off.next_s() <= 0.1
    assert BackOff(0.1, 5.0).next_s() != BackOff(0.1, 5.0).next_s()


def test_a_server_that_only_hangs_up_is_asked_less_and_less(listening: Listening) -> None:
    """A connection alone is no success: without a message the waits go on growing."""
    timing = replace(QUICK, first_wait_s=0.04, longest_wait_s=5.0)
    begin_s = time.monotonic()
    with Connection("127.0.0.1", listening.port, lambda _: None, timing=timing):
        for _ in range(4):
            listening.accept().close()
    # Three waits of at least half of 0.04, 0.08 and 0.16 s; at most 0.12 s if each connection were a success.
    assert time.monotonic() - begin_s >= 0.14


def test_a_message_makes_the_next_wait_short_again(listening: Listening) -> None:
    timing = replace(QUICK, first_wait_s=0.02, longest_wait_s=5.0)
    begin_s = time.monotonic()
    with Connection("127.0.0.1", listening.port, lambda _: None, timing=timing) as connection:
        for number in range(9):
            peer = listening.accept()
            peer.sendall(string_message("here"))
            assert wait_until(lambda: connection.counters["messages"] == number + 1)  # noqa: B023
            peer.close()
    assert time.monotonic() - begin_s < 2.5  # at least that if eight waits each were twice as long as the last


def test_silence_is_broken_by_a_sign_of_life(listening: Listening) -> None:
    timing = replace(QUICK, keep_alive_s=0.05)
    with Connection("127.0.0.1", listening.port, lambda _: None, timing=timing) as connection:
        peer = listening.accept()
        assert read_header(peer.recv(58)).kind == "GET_STATUS"
        assert connection.connected
        peer.close()


def test_a_listener_that_fails_ends_nothing(listening: Listening) -> None:
    got: list[Message] = []

    def listener(message: Message) -> None:
        got.append(message)
        raise RuntimeError("no more room")

    with Connection("127.0.0.1", listening.port, listener, timing=QUICK) as connection:
        peer = listening.accept()
        peer.sendall(string_message("one") + string_message("two"))
        assert wait_until(lambda: connection.counters["listener_errors"] == 2)
        peer.close()
    assert len(got) == 2
    assert connection.counters["connected"] == 1


def test_closing_is_quick_whatever_it_does(listening: Listening) -> None:
    idle = Connection("127.0.0.1", listening.port, lambda _: None).start()
    peer = listening.accept()
    stalled = Connection("127.0.0.1", listening.port, lambda _: None).start()
    half = listening.accept()
    half.sendall(string_message("never whole")[:70])
    waiting = Connection("127.0.0.1", 1, lambda _: None).start()  # nobody listens there
    assert wait_until(lambda: idle.connected and stalled.connected and waiting.counters["refused"] > 0)
    never_started = Connection("127.0.0.1", listening.port, lambda _: None)
    for connection in (idle, stalled, waiting, never_started):
        begin = time.monotonic()
        connection.close()
        connection.close()
        assert time.monotonic() - begin < 1
    peer.close()
    half.close()
