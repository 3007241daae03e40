"""Web server: the viewer's app on a socket, in a thread of its own."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING, Any

from scopereg.errors import ScopeRegError
from scopereg.viewer.certificate import Certificate
from scopereg.viewer.door import Door

if TYPE_CHECKING:
    from scopereg.viewer.app import Site
    from scopereg.viewer.connections import Limits
    from scopereg.viewer.hub import Show

PORT = 8765
_LONGEST_FRAME = 2**16  # bytes of a message of a page beyond which its connection is ended
_LONGEST_HEADERS = 2**14  # bytes of a request
_MOST_AT_WORK = 256  # connections beyond which uvicorn answers 503; those that wait have made room before
_START_S, _STOP_S = 20.0, 3.0


class WebServer:
    """Serves a show until it is closed. `url` is what a person opens."""

    def __init__(
        self,
        show: Show,
        host: str = "127.0.0.1",
        port: int = PORT,
        *,
        token: str | None = None,
        certificate: Certificate | None = None,
        words: Callable[[str], str] = str,
        limits: Limits | None = None,
    ) -> None:
        """Listen on `port`, 0 for any that is free; a host that other machines reach needs a token.

        With a `certificate` it speaks HTTPS alone. `words` makes those of a person at the page of messages.
        """
        uvicorn = require_web()
        from scopereg.viewer.app import Site
        from scopereg.viewer.connections import Limits, Room, protocols

        self._socket = _listen(host, port)
        try:
            self.host, self.port = self._socket.getsockname()[:2]
            self.door = Door(host, self.port, token, encrypted=certificate is not None)
        except BaseException:
            self._socket.close()
            raise
        self._shown_host, self._certificate = host, certificate
        self._limits = limits or Limits()
        self.room = Room(self._limits, show.counters)
        self.site: Site = Site(show, self.door, self._limits, words)
        self._server: Any = uvicorn.Server(
            uvicorn.Config(
                self.site.app,
                **protocols(self.room),
                interface="asgi3",
                lifespan="on",
                log_config=None,  # its own would close every handler of logging that the program has
                log_level="critical",
                access_log=False,
                server_header=False,
                date_header=False,
                h11_max_incomplete_event_size=_LONGEST_HEADERS,
                ws_max_size=_LONGEST_FRAME,
                ws_ping_interval=self._limits.ping_s,
                ws_ping_timeout=self._limits.ping_s,
                ws_per_message_deflate=False,  # pictures hardly shrink, and both cores have other work
                timeout_graceful_shutdown=1,
                limit_concurrency=_MOST_AT_WORK,
                proxy_headers=False,
            )
        )
        if certificate is not None:
            self._server.config.load()
            self._server.config.ssl = certificate.context
        self._thread = threading.Thread(target=self._run, name=f"scopereg-viewer-{self.port}", daemon=True)

    @property
    def url(self) -> str:
        """With the token, if there is one."""
        host = _reachable(self._shown_host)
        shown = f"[{host}]" if ":" in host else host
        query = f"?token={self.door.token}" if self.door.token else ""
        return f"{self.door.scheme}://{shown}:{self.port}/{query}"

    def start(self) -> WebServer:
        """Serve from now on; an error if that does not work."""
        self._thread.start()
        waited = 0.0
        while not self._server.started and self._thread.is_alive() and waited < _START_S:
            self._thread.join(0.01)
            waited += 0.01
        if not self._server.started:
            self.close()
            raise ScopeRegError("the web server did not start", where=self.url, fix="try another port: port=")
        return self

    def wake(self) -> None:
        """There is something new to show; any thread may say so, and none waits."""
        self.site.hub.wake()

    def tell(self, notice: str) -> None:
        """Tell all pages something; any thread may, and none waits."""
        self.site.hub.tell(notice)

    def close(self) -> None:
        """Let all pages go and end the thread."""
        self._server.should_exit = True
        if self._thread.ident is not None:
            self._thread.join(_STOP_S)
            self._server.force_exit = True
            self._thread.join()
        self._socket.close()

    def __enter__(self) -> WebServer:
        return self if self._thread.ident is not None else self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        if self._certificate is not None:  # uvicorn has no option for it, and asyncio waits for a minute
            loop: Any = asyncio.get_running_loop()
            loop.create_server = partial(loop.create_server, ssl_handshake_timeout=self._limits.handshake_s)
        await self._server.serve(sockets=[self._socket])


def require_web() -> ModuleType:
    """uvicorn, or an error that tells how to get it and what goes with it."""
    try:
        import starlette
        import uvicorn
        import websockets
    except ImportError as error:
        raise ScopeRegError(
            f"{error.name} is not installed", where="viewer", fix="pip install 'scopereg[view]'"
        ) from None
    del starlette, websockets
    return uvicorn


def _listen(host: str, port: int) -> socket.socket:
    if not 0 <= port <= 65535:
        raise ScopeRegError(f"the port is {port}", where="port=", fix="choose one from 1024 to 65535, or 0 for any")
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        return socket.create_server(address[:2], family=family, backlog=128)
    except (OSError, UnicodeError) as error:
        raise ScopeRegError(
            f"cannot listen on {host}:{port}: {getattr(error, 'strerror', None) or error}",
            where="viewer",
            fix="choose another port (port=), or end the program that uses it",
        ) from None


def _reachable(host: str) -> str:
    """A name of this machine that others reach, where it listens on all of its addresses."""
    return socket.gethostname() if host in ("0.0.0.0", "::", "") else host
