"""A server gives all clients the newest they can take, and no client can hold up or hurt the others."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
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
from scopereg.live.server import MOST_CLIENTS, Server

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


def test_too_many_clients_are_turned_away(server: Server) -> None:
    clients = [bare(server) for _ in range(MOST_CLIENTS)]
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

    with Server(port=0, listener=listener, timing=QUICK) as server, bare(server) as client:
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
