"""Who is let in: tokens, cookies, names and origins, against a server that runs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from serving import NOTHING_SEARCHED, Served, next_message, replay, serve, small_volume
from websockets.exceptions import InvalidStatus

from scopereg.commands.page import open_page
from scopereg.errors import ScopeRegError
from scopereg.live.loop import Loop
from scopereg.live.scene import Scene
from scopereg.viewer.door import Door, check_token, is_loopback, new_token, visitor_of
from scopereg.viewer.live_show import LiveShow, Rooms
from scopereg.viewer.web import WebServer

TOKEN = "a-good.token_1"
PLACES = ("/", "/static/main.js", "/api/state", "/api/volume?generation=1", "/nothing")


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Served]:
    with serve(tmp_path, token=TOKEN) as running:
        yield running


@pytest.mark.parametrize("path", PLACES)
def test_nothing_is_given_without_the_token(guarded: Served, path: str) -> None:
    wrong = ({}, {"Authorization": "Bearer wrong"}, {"Authorization": TOKEN}, {"Cookie": f"scopereg-1={TOKEN}"})
    for headers in (*wrong, {"Authorization": "Bearer "}, {"Cookie": f"scopereg-{guarded.web.port}=; a=\xff"}):
        status, _, body = guarded.ask(path, headers=headers)
        assert status == 401
        assert "token" in json.loads(body)["error"]["what"]
        assert TOKEN.encode() not in body
    join = "&" if "?" in path else "?"
    assert guarded.ask(f"{path}{join}token=a-good.token_2")[0] == 401
    assert guarded.ask(f"{path}{join}token=")[0] == 401
    assert guarded.show.counters["refused_tokens"] == 8


def test_the_token_opens_everything_and_is_kept_in_a_cookie(guarded: Served) -> None:
    status, headers, body = guarded.ask(f"/?token={TOKEN}")
    cookie, *rest = headers["set-cookie"].split("; ")
    assert status == 200
    assert b"<!doctype html>" in body.lower()
    assert {"HttpOnly", "SameSite=Strict"} <= set(rest)
    words = ({"Authorization": f"{word} {TOKEN}"} for word in ("Bearer", "token"))
    for each in ({"Cookie": f"other=1; {cookie}"}, *words):
        for path in PLACES[:-1]:
            status, headers, _ = guarded.ask(path, headers=each)
            assert status == 200
            assert "set-cookie" not in headers
        with guarded.page(additional_headers=each) as page:
            assert next_message(page, "state")["mode"] == "live"


def test_a_link_that_a_person_opens_leads_on_without_the_token(guarded: Served) -> None:
    """What another site began would come without the cookie: that gets the page, which takes the token out itself."""
    for told in ("none", "same-origin"):
        status, headers, _ = guarded.ask(f"/?token={TOKEN}", headers={"Sec-Fetch-Site": told})
        assert (status, headers["location"]) == (303, "/")
        cookie = headers["set-cookie"].partition(";")[0]
        assert guarded.ask("/", headers={"Cookie": cookie})[0] == 200
    assert guarded.ask(f"/?token={TOKEN}", headers={"Sec-Fetch-Site": "cross-site"})[0] == 200
    assert guarded.ask(f"/api/state?token={TOKEN}", headers={"Sec-Fetch-Site": "none"})[0] == 200
    assert guarded.ask("/?token=a-good.token_2", headers={"Sec-Fetch-Site": "none"})[0] == 401


def test_a_person_without_the_token_is_told_in_words(guarded: Served) -> None:
    status, headers, body = guarded.ask("/", headers={"Accept": "text/html,*/*"})
    assert (status, headers["content-type"]) == (401, "text/html; charset=utf-8")
    assert b"use the link that scopereg prints" in body
    assert "set-cookie" not in headers


def test_the_socket_needs_the_token(guarded: Served) -> None:
    for headers in ({}, {"Cookie": f"scopereg-{guarded.web.port}=wrong-wrong"}):
        with pytest.raises(InvalidStatus) as refused, guarded.page(additional_headers=headers):
            pass
        assert refused.value.response.status_code == 403
    assert guarded.show.counters["refused_tokens"] == 2
    assert guarded.show.counters["pages"] == 0


ORIGINS = ["http://evil.example", "null", "http://127.0.0.1:1", "file://", None, "http://[", ""]
HOSTS = ["evil.example", "evil.example:{port}", "10.0.0.1:{port}", "", "127.0.0.1@evil.example", "localhost:x", "a/b"]


@pytest.mark.parametrize("origin", ORIGINS)
def test_other_sites_cannot_open_the_socket_or_post(served: Served, origin: str | None) -> None:
    with pytest.raises(InvalidStatus) as refused, served.page(origin=origin):
        pass
    assert refused.value.response.status_code == 403
    headers = {"Origin": origin or ""}
    status, _, body = served.ask("/api/volume?name=a.nii", method="POST", body=b"x", headers=headers)
    assert status == 403
    assert "another site" in json.loads(body)["error"]["what"]
    assert served.state()["counters"]["viewer_refused_origins"] == 2
    assert served.is_alive()


@pytest.mark.parametrize("host", HOSTS)
def test_other_names_get_nothing(served: Served, host: str) -> None:
    """A site that lets its name point to this machine would be of the same origin."""
    name = host.format(port=served.web.port)
    status, _, _ = served.ask("/api/state", headers={"Host": name})
    assert status == 421
    own = {"Host": name, "Origin": f"http://{name}"}
    assert served.ask("/api/volume?name=a.nii", method="POST", body=b"x", headers=own)[0] == 421
    assert served.show.counters["refused_hosts"] == 2


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:{port}", "127.0.0.1:9999", "[::1]:{port}"])
def test_own_names_are_known_on_any_port(served: Served, host: str) -> None:
    """Also through a tunnel, whose port is another."""
    name = host.format(port=served.web.port)
    assert served.ask("/api/state", headers={"Host": name})[0] == 200
    own = {"Host": name, "Origin": f"http://{name.lower()}"}
    assert served.ask("/api/volume?name=a.png", method="POST", body=b"x", headers=own)[0] == 415


def test_a_header_that_comes_twice_counts_for_nothing() -> None:
    door = Door("127.0.0.1", 80)
    twice = [(b"host", b"localhost"), (b"Host", b"evil.example")]
    assert door.refuse(visitor_of(twice[:1], b"", False)) is None
    refusal = door.refuse(visitor_of(twice, b"", False))
    assert refusal is not None
    assert refusal.counted == "refused_hosts"


def test_what_other_machines_reach_needs_a_token() -> None:
    with pytest.raises(ScopeRegError, match="lets other machines in"):
        Door("0.0.0.0", 80)
    door = Door("0.0.0.0", 80, TOKEN)
    bearer = (b"authorization", f"Bearer {TOKEN}".encode())
    assert door.refuse(visitor_of([(b"host", b"192.168.1.7:80"), bearer], b"", False)) is None
    refusal = door.refuse(visitor_of([(b"host", b"evil.example"), bearer], b"", False))
    assert refusal is not None
    assert refusal.counted == "refused_hosts"


def test_a_bind_elsewhere_makes_a_token_and_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    from rich.console import Console

    from scopereg.commands.shared import PageOptions

    console = Console(soft_wrap=True, highlight=False, markup=False)
    show = LiveShow(
        Loop(replay(1), lambda frame: None),  # type: ignore[arg-type,return-value]
        Scene(small_volume(), "a", NOTHING_SEARCHED),
        lambda volume, name: Scene(volume, name, NOTHING_SEARCHED),
        Rooms(Path("recordings")),
    )
    with open_page(PageOptions(host="0.0.0.0", port=0, open=False), show, console) as web:
        said = capsys.readouterr().out
        assert web.door.token is not None
        assert f"?token={web.door.token}" in said
        assert "other machines" in said
        assert "ssh -L" in said
    with pytest.raises(ScopeRegError, match="lets other machines in"):
        WebServer(show, "0.0.0.0", 0)
    with open_page(PageOptions(port=0, open=False), show, console) as web:
        assert web.door.token is not None  # also on this machine: it may have other users
        said = capsys.readouterr().out
        assert f"?token={web.door.token}" in said
        assert "other machines" not in said
    with open_page(PageOptions(port=0, open=False, no_token=True), show, console) as web:
        assert web.door.token is None
        assert "no token: every program" in capsys.readouterr().out
    with pytest.raises(ScopeRegError, match=r"everybody who reaches 0\.0\.0\.0 could use the page"):
        open_page(PageOptions(host="0.0.0.0", no_token=True), show, console)
    with pytest.raises(ScopeRegError, match="a token and none"):
        open_page(PageOptions(no_token=True, token=TOKEN), show, console)


def test_tokens_are_long_and_plain() -> None:
    check_token(new_token())
    assert new_token() != new_token()
    for bad in ("", "short", "has a blank in it", "semi;colon;s", "umläut-token"):
        with pytest.raises(ScopeRegError, match="too short, or holds other letters"):
            check_token(bad)


def test_loopback_is_told_from_the_rest() -> None:
    assert is_loopback("127.0.0.1")
    assert is_loopback("localhost")
    assert is_loopback("127.5.5.5")
    assert not is_loopback("0.0.0.0")
    assert not is_loopback("no such host")


def test_a_port_that_is_taken_is_told(served: Served) -> None:
    with pytest.raises(ScopeRegError, match="cannot listen") as error:
        WebServer(served.show, port=served.web.port)
    assert "port=" in error.value.fix
    with pytest.raises(ScopeRegError, match="the port is 70000"):
        WebServer(served.show, port=70000)
