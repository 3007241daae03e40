"""The web socket: pictures one at a time, latest first; whatever a page sends or does not send, the loop goes on."""

from __future__ import annotations

import json
import socket
import struct
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
from serving import Served, next_message, next_update, received, replay, serve, unpack, wait_until
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection

from scopereg.viewer import hub


def code_at_end(page: ClientConnection) -> int | None:
    """Why the server ends the connection."""
    with suppress(ConnectionClosed):
        while True:
            page.recv(20)
    return page.close_code


def kill(connected: socket.socket) -> None:
    """End a connection as a crash does."""
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connected.close()


def say(page: ClientConnection, **request: Any) -> None:
    page.send(json.dumps(request))


def test_a_page_gets_the_state_and_then_pictures_in_order(served: Served) -> None:
    with served.page() as page:
        assert json.loads(page.recv(20))["type"] == "state"
        numbers = [next_update(page)["number"] for _ in range(20)]
    assert numbers == sorted(set(numbers))


def test_all_of_an_update_is_in_one_message(served: Served) -> None:
    with served.page() as page:
        while isinstance(message := page.recv(20), str):
            pass
    header, picture, evidence = unpack(message)
    wanted = {
        *("type", "number", "frame_number", "generation", "time_s", "frame", "image_to_volume", "evidence", "light"),
        *("ok", "confidence", "expected_mm", "bound_mm", "reason", "method", "error_mm", "register_ms", "latency_ms"),
        *("word", "hints", "calibrated_on", "similarity", "text", "update"),
        *("p50_ms", "p95_ms", "frames_per_s", "dropped", "counters"),
    }
    assert set(header) == wanted
    assert picture.shape == (10, 14)
    assert evidence is None
    assert (header["light"], header["ok"], header["error_mm"]) == ("amber", None, None)


def test_the_next_picture_comes_only_after_the_last_was_shown(served: Served) -> None:
    """And then it is the newest: a slow page misses some and lags behind none."""
    with served.page() as page:
        while isinstance(message := page.recv(20), str):
            pass
        first = unpack(message)[0]
        taken = served.loop.counters()["taken"]
        assert wait_until(lambda: served.loop.counters()["taken"] > taken + 20)
        say(page, do="shown", number=first["number"] + 1)  # not that one
        pause_s = time.monotonic() + 0.5
        while time.monotonic() < pause_s:
            with suppress(TimeoutError):
                assert isinstance(page.recv(0.1), str)
        newest = served.loop.counters()["registered"] - 1  # a frame is counted before it is told
        say(page, do="shown", number=first["number"])
        assert next_update(page)["number"] >= newest


def test_a_page_that_never_answers_holds_up_nobody(served: Served) -> None:
    with served.page() as mute, served.page() as page:
        while isinstance(mute.recv(20), str):
            pass
        numbers = [next_update(page)["number"] for _ in range(30)]
        assert numbers == sorted(set(numbers))
        assert served.is_alive()


def test_a_page_that_reads_nothing_holds_up_nobody(tmp_path: Path) -> None:
    """Its end of the connection fills up; the server's task for it waits, nothing else does."""
    with serve(tmp_path, source=replay(rate_hz=400, shape=(256, 256))) as served:
        deaf = socket.create_connection(("127.0.0.1", served.web.port), 5)
        with deaf:
            deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            key = "dGhlIHNhbXBsZSBub25jZQ=="
            lines = [f"GET /ws HTTP/1.1\r\nHost: {served.host}\r\nOrigin: {served.origin}", "Upgrade: websocket"]
            lines += ["Connection: Upgrade", f"Sec-WebSocket-Key: {key}", "Sec-WebSocket-Version: 13\r\n\r\n"]
            deaf.sendall("\r\n".join(lines).encode())
            assert wait_until(lambda: served.web.site.hub.page_count == 1)
            with served.page() as page:
                for _ in range(30):
                    next_update(page)
            assert served.is_alive()
        assert wait_until(lambda: served.web.site.hub.page_count == 0)


@pytest.mark.parametrize(
    "message",
    [
        "",
        "no JSON",
        "[]",
        "null",
        "17",
        '{"do": 3}',
        '{"what": "pause"}',
        '{"do": "explode"}',
        '{"do": "__init__"}',
        '{"do": "pause"} x',
        "[" * 4000,
        "x" * 5000,
        '{"do": "choose", "name": "../first.nii.gz"}',
        '{"do": "choose", "name": ["a"]}',
        '{"do": "choose"}',
        '{"do": "end_recording"}',
        '{"do": "result", "number": 1}',
        b"\x00\x01\x02",
        b"",
    ],
)
def test_bad_messages_are_counted_and_answered(served: Served, message: str | bytes) -> None:
    with served.page() as page:
        page.send(message)
        notice = next_message(page, "notice")
        assert notice["level"] == "error"
        assert "To fix it" in notice["text"]
        assert len(notice["text"]) < 400
        assert next_update(page)["number"]
        assert next_update(page)["number"]  # the same page still works
    assert served.state()["counters"]["viewer_bad_messages"] == 1
    assert served.is_alive()


def test_a_huge_message_ends_the_page_and_not_the_loop(served: Served) -> None:
    with served.page() as page:
        page.send("x" * 2**20)
        assert code_at_end(page) == 1009
    assert wait_until(lambda: served.state()["counters"].get("viewer_bad_messages") == 1)
    assert served.is_alive()


def test_shown_with_rubbish_is_nothing(served: Served) -> None:
    with served.page() as page:
        for number in (None, "x", -5, 1e300, [], {}):
            say(page, do="shown", number=number)
        assert next_update(page)
        assert next_update(page)


def test_a_page_that_goes_in_the_middle_of_a_message_is_forgotten(served: Served) -> None:
    for end in ("reset", "half a frame", "close"):
        with served.page() as page:
            page.recv(20)
            if end == "half a frame":
                page.socket.sendall(b"\x81\xfe\x0f")
            if end != "close":
                kill(page.socket)
        assert wait_until(lambda: served.web.site.hub.page_count == 0), end
    assert served.is_alive()


def test_twenty_pages_at_once_see_the_same(served: Served) -> None:
    with ExitStack() as stack:
        pages = [stack.enter_context(served.page()) for _ in range(20)]
        for _ in range(5):
            for page in pages:
                next_update(page)
        state = served.state()
        assert state["counters"]["viewer_pages"] == 20
        assert state["counters"]["viewer_sent"] >= 100
        say(pages[3], do="pause")
        for page in pages:
            assert next_message(page, "state", paused=True)
    assert wait_until(lambda: served.web.site.hub.page_count == 0)


def test_one_page_too_many_is_turned_away(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "MOST_PAGES", 1)
    with served.page() as page, served.page() as other:
        assert code_at_end(other) == 1013
        assert next_update(page)
    assert served.show.counters["turned_away"] == 1


def test_pause_step_and_resume(served: Served) -> None:
    with served.page() as page:
        say(page, do="pause")
        next_message(page, "state", paused=True)
        with suppress(TimeoutError):  # the picture of the last frame may still be on its way
            while received(page, 0.5):
                pass
        last = served.loop.counters()["registered"]
        for further in (1, 2):
            say(page, do="step")
            assert next_update(page)["number"] == last + further
        say(page, do="resume")
        next_message(page, "state", paused=False)
        assert next_update(page)["number"] > last + 2


def test_the_end_of_a_replay_is_told(tmp_path: Path) -> None:
    with serve(tmp_path, source=replay(5)) as served, served.page() as page:
        next_message(page, "state", finished=True)
        assert served.state()["finished"]


def test_a_closed_server_lets_pages_go(tmp_path: Path) -> None:
    with ExitStack() as stack:
        with serve(tmp_path) as served:
            page = stack.enter_context(served.page())
            page.recv(20)
        assert code_at_end(page) == 1012
