"""Door: who may come in. Every request passes it, also those of web sockets, before anything else looks at them.

- The Host header must name this server: a web site that lets its own name point here gets nothing (DNS rebinding).
- With a token, every request must bring it: in the address once, then in a cookie; programs as Authorization: token,
  or Bearer.
- What changes something (POST, web socket) must come from a page of this server, by its Origin header.
"""

from __future__ import annotations

import hmac
import ipaddress
import secrets
import socket
import string
from collections.abc import Iterable
from http.cookies import CookieError, SimpleCookie
from typing import NamedTuple
from urllib.parse import parse_qs, urlsplit

from scopereg.errors import ScopeRegError

LEAST_TOKEN = 8
_TOKEN_LETTERS = frozenset(string.ascii_letters + string.digits + "-._~")  # need no quoting in addresses or cookies


class Refusal(NamedTuple):
    """Why somebody is not let in."""

    status: int
    counted: str
    what: str
    fix: str


class Visitor(NamedTuple):
    """What a request says of who sends it."""

    host: str
    origin: str | None
    authorization: str
    cookie: str
    query: str
    changes: bool  # whether it is one that changes something, or opens a web socket


class Door:
    """The rules of one server."""

    def __init__(self, host: str, port: int, token: str | None = None, *, encrypted: bool = False) -> None:
        self.scheme = "https" if encrypted else "http"
        self.loopback = is_loopback(host)
        if token is not None:
            check_token(token)
        elif not self.loopback:
            raise ScopeRegError(
                f"{host} lets other machines in", where="host=", fix="give a token (token=), or stay on 127.0.0.1"
            )
        self.token = token
        self.cookie = f"scopereg-{port}"  # browsers keep one set of cookies for all ports of a machine
        self._names = {"localhost", host.lower()}
        if not self.loopback:
            self._names |= {name.lower() for name in (socket.gethostname(), socket.getfqdn())}

    def refuse(self, visitor: Visitor) -> Refusal | None:
        """Why not; None for those who may come in."""
        if not self._knows(visitor.host):
            return Refusal(421, "refused_hosts", "this server has another name", "use the address that it printed")
        if self.token is not None and not self._has_token(visitor):
            return Refusal(
                401,
                "refused_tokens",
                "the token is missing or wrong",
                "use the link that scopereg prints when it starts",
            )
        if visitor.changes and not self._is_own(visitor.origin, visitor.host):
            return Refusal(403, "refused_origins", "the request comes from another site", "use the page of this server")
        return None

    def brings_token(self, query: str) -> bool:
        """Whether an address holds the right token, which is then to be kept in a cookie."""
        return self.token is not None and any(_same(given, self.token) for given in parse_qs(query).get("token", ()))

    def set_cookie(self) -> str:
        """The header that keeps the token: not for scripts, not for other sites."""
        secure = "; Secure" if self.scheme == "https" else ""
        return f"{self.cookie}={self.token}; Path=/; HttpOnly; SameSite=Strict{secure}"

    def _has_token(self, visitor: Visitor) -> bool:
        assert self.token is not None
        kind, _, given = visitor.authorization.partition(" ")
        if kind.lower() in ("bearer", "token") and _same(given.strip(), self.token):
            return True
        return _same(_cookie(visitor.cookie, self.cookie), self.token) or self.brings_token(visitor.query)

    def _knows(self, host: str) -> bool:
        """Names that anybody could own are refused; a number is no name, but must be a local one if we are local."""
        name = _hostname(host)
        if name is None:
            return False
        try:
            address = ipaddress.ip_address(name)
        except ValueError:
            return name in self._names
        return address.is_loopback or not self.loopback

    def _is_own(self, origin: str | None, host: str) -> bool:
        """Whether a page of this very server asks: same name and port as the request went to."""
        try:
            parts = urlsplit(origin or "")
        except ValueError:
            return False
        return parts.scheme in ("http", "https") and parts.netloc.lower() == host.lower()


def is_loopback(host: str) -> bool:
    """Whether all addresses of a host are of this machine alone."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return False
    return all(ipaddress.ip_address(str(entry[4][0]).partition("%")[0]).is_loopback for entry in found)


def new_token() -> str:
    """One that nobody guesses."""
    return secrets.token_urlsafe(18)


def check_token(token: str) -> None:
    if len(token) < LEAST_TOKEN or not set(token) <= _TOKEN_LETTERS:
        raise ScopeRegError(
            "it is too short, or holds other letters than those of addresses",
            where="token=",
            fix=f"use at least {LEAST_TOKEN} letters, digits, '-', '.', '_' or '~'; or leave it out and one is made",
        )


def visitor_of(headers: Iterable[tuple[bytes, bytes]], query: bytes, changes: bool) -> Visitor:
    """From the parts of an ASGI scope. A header that comes twice is taken as none: which one counts is not clear."""
    found: dict[str, list[str]] = {}
    for name, value in headers:
        found.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1"))

    def one(name: str) -> str:
        values = found.get(name, [])
        return values[0] if len(values) == 1 else ""

    cookies = "; ".join(found.get("cookie", ()))
    origin = one("origin") or None
    return Visitor(one("host"), origin, one("authorization"), cookies, query.decode("latin-1"), changes)


def _hostname(host: str) -> str | None:
    try:
        parts = urlsplit(f"//{host}")
        _ = parts.port  # raises where it is no number
    except ValueError:
        return None
    plain = parts.netloc == host and "@" not in host and not parts.path
    return parts.hostname if plain else None


def _cookie(header: str, name: str) -> str:
    try:
        found = SimpleCookie(header).get(name)
    except CookieError:
        return ""
    return found.value if found is not None else ""


def _same(given: str, wanted: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "surrogatepass"), wanted.encode())
