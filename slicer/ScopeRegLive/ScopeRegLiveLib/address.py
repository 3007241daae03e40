"""Address: of the scopereg process, and how it stands with the connection to it, in words."""

from __future__ import annotations

from typing import NamedTuple

HOST, PORT = "127.0.0.1", 18945  # where scopereg live serves; 18944 is that of scanners
EXTENSION = "SlicerOpenIGTLink"
OFF, WAITING, CONNECTED = "off", "waiting", "connected"
MISSING = (
    f"The extension {EXTENSION} is not installed: this module connects through it. Install it in the Extensions Manager"
    " (menu View, Extensions Manager, search for its name) and restart 3D Slicer."
)


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


def address_of(host: str, port: int | str) -> Address:
    """The address typed in; a ValueError in words for one that cannot be. `host:port` in the first field is split."""
    name, number = host.strip(), str(port).strip()
    if name.count(":") == 1 and "/" not in name:  # more are an address of IPv6
        name, number = name.split(":")
    if not name or any(letter.isspace() for letter in name) or "/" in name:
        raise ValueError(f"{host!r} is no host: type a name such as {HOST}")
    if not number.isdecimal() or not 1 <= int(number) <= 65535:
        raise ValueError(f"{number!r} is no port: type a number such as {PORT}")
    return Address(name, int(number))


def state_in_words(state: str, address: Address) -> str:
    """How it stands with the connection. Waiting ends by itself: the connector tries again and again."""
    if state == CONNECTED:
        return f"connected to {address}"
    if state == WAITING:
        return f"waiting for {address}: is scopereg live running there?"
    return "not connected"
