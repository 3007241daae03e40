"""What users type, and what they are told about the connection."""

from __future__ import annotations

import pytest
from ScopeRegLiveLib.address import (
    CONNECTED,
    EXTENSION,
    HOST,
    MISSING,
    OFF,
    PORT,
    WAITING,
    Address,
    address_of,
    state_in_words,
)

from scopereg.commands.live import LiveOptions


@pytest.mark.parametrize(
    ("host", "port", "expected"),
    [
        ("127.0.0.1", 18944, ("127.0.0.1", 18944)),
        (" scanner.local ", "18945", ("scanner.local", 18945)),
        ("scanner:18946", 18944, ("scanner", 18946)),
        ("::1", 18944, ("::1", 18944)),
    ],
)
def test_addresses(host: str, port: int | str, expected: tuple[str, int]) -> None:
    assert address_of(host, port) == expected


@pytest.mark.parametrize(
    ("host", "port"), [("", 18944), ("a b", 1), ("http://x", 1), ("x", 0), ("x", 65536), ("x:y", 1)]
)
def test_what_is_no_address_is_refused_in_words(host: str, port: int) -> None:
    with pytest.raises(ValueError, match=r"is no (host|port): type a"):
        address_of(host, port)


def test_words() -> None:
    address = Address("scanner", 18944)
    words = [state_in_words(state, address) for state in (OFF, WAITING, CONNECTED)]
    assert words == [
        "not connected",
        "waiting for scanner:18944: is scopereg live running there?",
        "connected to scanner:18944",
    ]
    assert EXTENSION == "SlicerOpenIGTLink"
    assert EXTENSION in MISSING


def test_the_panel_begins_where_scopereg_live_serves() -> None:
    assert (LiveOptions().igtl_host, LiveOptions().igtl_port) == (HOST, PORT)
