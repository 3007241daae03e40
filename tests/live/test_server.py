"""A server gives all clients the newest they can take, and no client can hold up or hurt the others."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace

import numpy as np
import pyigtl
import pytest
from peers import QUICK, garbage, giant, kill, wait_until, wrong_crc

from scopereg import Frame, Pose
from scopereg.errors import ScopeRegError
from scopereg.live.connection import Connection
from scopereg.live.messages import (
    Message,
    image_message,
    read_header,
    request_status,
    string_message,
    text_of,
    transform_message,
)
from scopereg.live.server import MOST_CLIENTS, PROOF_BYTES, Server

Connect = Callable[[int], pyigtl.OpenIGTLinkClient]


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(port=0, timing=QUICK) as running:
        yield running


def bare(server: Server) -> socket.socket:
    """A client that does nothing by itself."""
    return socket.create_connection((server.host, server.port), 5.0)


def test_pyigtls_client_gets_what_is_sent(server: Server, pyigtl_client: Connect, frame: Frame, pose: Pose) -> None:
    client = pyigtl_client(server.port)
    assert wait_until(lambda: server.client_count == 1)
    server.send([transform_message(pose, time_s=5.5), image_message(frame, pose, time_s=5.5)])
    image = client.wait_for_message("Image_Volume", 5)
    transform = client.wait_for_message("ImageToVolume", 5)
    assert np.array_equal(image.image[0], (frame.numpy() * 255).round())
    assert image.timestamp == transform.timestamp == 5.5
    assert np.allclose(transform.matrix[:3, 3], pose.translation_mm * (-1, -1, 1), atol=1e-4)


def test_what_pyigtls_client_sends_reaches_the_listener(pyigtl_client: Connect) -> None:
    got: list[Message] = []
    with Server(port=0, listener=got.append, timing=QUICK) as server:
        client = pyigtl_client(server.port)
        client.send_message(pyigtl.ImageMessage(np.zeros((1, 48, 64), np.uint8), device_name="Image"))
        client.send_message(pyigtl.StringMessage("done", device_name="Text"))
        assert wait_until(lambda: len(got) == 2)
    assert [message.kind for message in got] == ["IMAGE", "STRING"]


def test_several_clients_get_the_same_and_may_leave(server: Server) -> None:
    got: list[list[str]] = [[], [], []]
    clients = [
        Connection(server.host, server.port, lambda m, own=own: own.append(text_of(m)), timing=QUICK).start()  # type: ignore[misc]
        for own in got
    ]
    assert wait_until(lambda: server.client_count == 3)
    for number in range(5):
        server.send([string_message(f"{number}"), string_message(f"{number} too")])
        assert wait_until(lambda: all(len(own) == 2 * number + 2 for own in got))  # noqa: B023
    clients[1].close()
    assert wait_until(lambda: server.client_count == 2)
    server.send([string_message("last")])
    assert wait_until(lambda: got[0][-1] == got[2][-1] == "last")
    assert got[0] == got[2] == [*got[1], "last"]
    for client in clients:
        client.close()
    assert wait_until(lambda: server.client_count == 0)
    assert server.counters["sent"] == 17
    assert server.counters["lost"] == 3


def test_who_comes_late_sees_the_last_at_once(server: Server) -> None:
    server.send([string_message("first")])
    server.send([string_message("second")])
    with bare(server) as client:
        header = read_header(client.recv(58))
        assert header.kind == "STRING"
        assert client.recv(100)[4:] == b"second"


def test_a_slow_client_misses_some_and_holds_up_nobody() -> None:
    """It reads nothing for a while; then the newest comes soon, not everything that it missed."""
    pixels = np.zeros((600, 800), np.float32)
    seen: list[float] = []
    with (
        Server(port=0, timing=replace(QUICK, stall_s=60)) as server,
        Connection(server.host, server.port, lambda m: seen.append(m.header.time_s), timing=QUICK),
        bare(server) as slow,
    ):
        assert wait_until(lambda: server.client_count == 2)
        for number in range(1, 61):
            server.send([image_message(Frame(pixels, 0.5), time_s=float(number))])
            assert wait_until(lambda: seen[-1:] == [float(number)])  # noqa: B023
        times: list[float] = []
        while not times or times[-1] < 60:
            header = read_header(_exactly(slow, 58))
            _exactly(slow, header.body_bytes)
            times.append(header.time_s)
    assert seen == [float(number) for number in range(1, 61)]
    assert server.counters["dropped"] > 20
    assert len(times) == 60 - server.counters["dropped"]
    assert times == sorted(times)


def _exactly(connected: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count:
        found += connected.recv(count - len(found))
    return found


def test_a_client_that_takes_nothing_is_let_go() -> None:
    with Server(port=0, timing=replace(QUICK, stall_s=0.2)) as server, bare(server) as stuck:
        assert wait_until(lambda: server.client_count == 1)
        for _ in range(20):
            server.send([bytes(4 * 10**6)])
            time.sleep(0.01)
        assert wait_until(lambda: server.client_count == 0)
        assert server.counters["stalled"] == server.counters["lost"] == 1
        assert stuck.fileno() > 0


@pytest.mark.parametrize("bad", ["garbage", "wrong crc", "giant", "stall", "kill", "close"])
def test_a_bad_client_does_not_disturb_a_good_one(bad: str) -> None:
    got: list[str] = []
    message = string_message("x" * 3000)
    with (
        Server(port=0, timing=replace(QUICK, stall_s=0.3)) as server,
        Connection(server.host, server.port, lambda m: got.append(text_of(m)), timing=QUICK),
    ):
        rude = bare(server)
        assert wait_until(lambda: server.client_count == 2)
        sent = {
            "garbage": garbage(500),
            "wrong crc": wrong_crc(message),
            "giant": giant(message),
            "stall": message[:99],
        }
        rude.sendall(sent.get(bad, b""))
        if bad in ("garbage", "wrong crc", "giant"):
            name = "bad_body" if bad == "wrong crc" else "bad_header"
            assert wait_until(lambda: server.counters[name] == 1)
        elif bad == "kill":
            kill(rude)
        elif bad == "close":
            rude.close()
        if bad in ("kill", "close", "stall"):
            assert wait_until(lambda: server.client_count == 1)
            assert server.counters["lost"] == 1
        server.send([string_message("still here")])
        assert wait_until(lambda: got == ["still here"])
        rude.close()


def test_it_answers_who_asks_and_speaks_up_in_silence() -> None:
    with Server(port=0, timing=QUICK) as server, bare(server) as client:
        client.sendall(request_status())
        header = read_header(_exactly(client, 58))
        assert (header.kind, header.name) == ("STATUS", "KeepAlive")
    with Server(port=0, timing=replace(QUICK, keep_alive_s=0.05)) as server, bare(server) as client:
        assert read_header(_exactly(client, 58)).kind == "STATUS"


def test_eight_idle_clients_keep_nobody_out(server: Server) -> None:
    """Before, who came next waited for 25 s, until the system held back no more for those that read nothing."""
    with ExitStack() as stack:
        idle = [stack.enter_context(bare(server)) for _ in range(MOST_CLIENTS)]
        assert wait_until(lambda: server.client_count == MOST_CLIENTS)
        got: list[Message] = []
        stack.enter_context(Connection(server.host, server.port, got.append, timing=QUICK))
        assert wait_until(lambda: idle[0].recv(10) == b"")  # the first that came
        server.send([string_message("hello")])
        assert wait_until(lambda: [text_of(message) for message in got] == ["hello"])
        assert server.client_count == MOST_CLIENTS
        assert (server.counters["replaced"], server.counters["turned_away"]) == (1, 0)


def test_300_idle_clients_do_not_take_the_place_of_one_that_reads(server: Server) -> None:
    image = image_message(Frame(np.zeros((480, 640), np.float32), 0.5))
    seen: list[float] = []
    with (
        ExitStack() as stack,
        Connection(server.host, server.port, lambda m: seen.append(m.header.time_s), timing=QUICK),
    ):
        for count in range(1, PROOF_BYTES // len(image) + 2):
            server.send([image])
            assert wait_until(lambda: len(seen) == count)  # noqa: B023
        for _ in range(300):
            stack.enter_context(bare(server))
        for number in range(1, 21):
            server.send([string_message("on", time_s=float(number))])
            assert wait_until(lambda: seen[-1] == float(number))  # noqa: B023
        assert seen[-20:] == [float(number) for number in range(1, 21)]
        assert wait_until(lambda: server.counters["replaced"] >= 300 - MOST_CLIENTS)
        assert server.client_count <= MOST_CLIENTS


def test_clients_that_are_there_are_not_replaced(server: Server) -> None:
    clients = [bare(server) for _ in range(MOST_CLIENTS)]
    for client in clients:
        client.sendall(request_status())
        assert read_header(_exactly(client, 58)).kind == "STATUS"
    assert wait_until(lambda: server.client_count == MOST_CLIENTS)
    with bare(server) as too_many:
        assert too_many.recv(10) == b""
    assert wait_until(lambda: server.counters["turned_away"] == 1)
    clients.pop().close()
    assert wait_until(lambda: server.client_count == MOST_CLIENTS - 1)
    clients.append(bare(server))
    assert wait_until(lambda: server.client_count == MOST_CLIENTS)
    for client in clients:
        client.close()


def test_a_listener_that_fails_ends_nothing() -> None:
    def listener(message: Message) -> None:
        raise RuntimeError("no more room")

    patient = replace(QUICK, stall_s=10.0)  # a busy machine may take its time between two messages
    with Server(port=0, listener=listener, timing=patient) as server, bare(server) as client:
        client.sendall(string_message("one") + string_message("two"))
        assert wait_until(lambda: server.counters["listener_errors"] == 2)
        assert server.client_count == 1


def test_only_this_machine_is_let_in_unless_it_is_allowed() -> None:
    with Server(port=0, timing=QUICK) as server:
        assert server.host == "127.0.0.1"
    for host in ("0.0.0.0", "::"):
        with pytest.raises(ScopeRegError, match="neither passwords nor encryption"):
            Server(host, 0)
    with Server("0.0.0.0", 0, remote=True, timing=QUICK) as server:
        assert server.host == "0.0.0.0"


def test_a_port_that_cannot_be_had_is_named(server: Server) -> None:
    with pytest.raises(ScopeRegError, match=rf"cannot listen on 127\.0\.0\.1:{server.port}"):
        Server(port=server.port)
    with pytest.raises(ScopeRegError, match="the port is 70000"):
        Server(port=70000)
    with pytest.raises(ScopeRegError, match="cannot listen on no such host"):
        Server("no such host", 0)


def test_closing_is_quick_and_frees_the_port() -> None:
    server = Server(port=0).start()
    client = bare(server)
    assert wait_until(lambda: server.client_count == 1)
    begin = time.monotonic()
    server.close()
    assert time.monotonic() - begin < 1
    assert client.recv(10) == b""
    client.close()
    with Server(port=server.port, timing=QUICK) as again:
        assert again.port == server.port
    Server(port=0).close()  # never started
