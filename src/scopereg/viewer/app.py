"""App: the addresses of the viewer, behind its door. Whatever is asked, the answer is a page, JSON, or a picture."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect

from scopereg.errors import ScopeRegError
from scopereg.viewer.connections import Limits, Timely
from scopereg.viewer.door import Door, Refusal, visitor_of
from scopereg.viewer.hub import Hub, Page, Show
from scopereg.viewer.uploads import UploadError, receive_upload
from scopereg.viewer.voxels import Voxels

LONGEST_MESSAGE = 4096  # letters of what a page may ask
MOST_UPLOADS = 2  # that come at once; of those that are here one is prepared after the other
STATIC = files("scopereg") / "viewer" / "static"
_KINDS = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".woff2": "font/woff2",
    ".webmanifest": "application/manifest+json",
}
_HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; font-src 'self'; "
        "connect-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
_CLOSED = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="color-scheme" content="light dark"><title>scopereg</title>
</head><body><h1>scopereg</h1><p>This page stays closed: {what}.</p><p>To open it, {fix}.</p></body></html>
"""


class Site:
    """What answers the addresses; `app` is the whole, with its door."""

    def __init__(self, show: Show, door: Door, limits: Limits | None = None, words: Callable[[str], str] = str) -> None:
        """`words` makes those of a person at the page of messages, which name Python arguments."""
        self.show, self.door = show, door
        self._limits, self._words = limits or Limits(), words
        self._uploads = 0  # that are on their way
        self.counters = show.counters
        self.hub = Hub(show)
        routes = [
            Route("/", self.index),
            Route("/static/{name:path}", self.static),
            Route("/api/state", self.state),
            Route("/api/volume", self.volume, methods=["GET"]),
            Route("/api/volume", self.upload, methods=["POST"]),
            Route("/api/labels", self.labels),
            Route("/api/path", self.path),
            Route("/api/pixel-size", self.pixel_size, methods=["POST"]),
            WebSocketRoute("/ws", self.socket),
        ]
        handlers: Mapping[Any, Any] = {
            HTTPException: self._refused,
            ScopeRegError: self._bad,
            Exception: self._broken,
        }
        inner = Starlette(routes=routes, exception_handlers=handlers, lifespan=self._lifespan)
        inner.router.redirect_slashes = False
        self.app: ASGIApp = partial(self._enter, inner)

    @asynccontextmanager
    async def _lifespan(self, _: Starlette) -> AsyncIterator[None]:
        watching = asyncio.create_task(self.hub.run())
        try:
            yield
        finally:
            watching.cancel()
            with suppress(asyncio.CancelledError):
                await watching

    async def _enter(self, inner: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        """Let those in who may; put the safety headers on every answer."""
        if scope["type"] == "lifespan":
            await inner(scope, receive, send)
            return
        changes = scope["type"] == "websocket" or scope["method"] not in ("GET", "HEAD")
        refusal = self.door.refuse(visitor_of(scope["headers"], scope["query_string"], changes))
        if refusal is not None:
            self.counters.add(refusal.counted, refusal.what)
            await _turn_away(refusal, scope, receive, partial(_with_headers, send, {}))
            return
        if scope["type"] == "http":
            receive = Timely(receive, self._limits)
        keeps = scope["type"] == "http" and self.door.brings_token(scope["query_string"].decode("latin-1"))
        extra = {"set-cookie": self.door.set_cookie()} if keeps else {}
        entered: ASGIApp = RedirectResponse("/", 303) if keeps and _opened_by_hand(scope) else inner
        await entered(scope, receive, partial(_with_headers, send, extra))

    async def index(self, _: Request) -> Response:
        return _file("index.html")

    async def static(self, request: Request) -> Response:
        return _file(request.path_params["name"])

    async def state(self, _: Request) -> Response:
        return JSONResponse(self.show.state())

    async def volume(self, request: Request) -> Response:
        """The voxels of the generation asked for, if it is still the one that is shown."""
        return _packed(self._voxels(request).packed)

    async def labels(self, request: Request) -> Response:
        """The labels over that volume, on its grid."""
        overlay = self._voxels(request).overlay
        if overlay is None or not overlay.packed_labels:
            raise HTTPException(404, "nothing is labelled in this volume")
        return _packed(overlay.packed_labels)

    async def path(self, _: Request) -> Response:
        """Where the frames of finished results lay, and when."""
        found = await run_in_threadpool(self.show.path)
        if found is None:
            raise HTTPException(404, "there is no path through this volume")
        return JSONResponse(found)

    def _voxels(self, request: Request) -> Voxels:
        voxels = self.show.voxels()
        wanted = request.query_params.get("generation")
        if voxels is None or (wanted is not None and wanted != str(voxels.generation)):
            raise HTTPException(404, "there is no such volume any more")
        return voxels

    async def upload(self, request: Request) -> Response:
        """Another volume: kept in a temporary file until it is prepared."""
        if self._uploads >= MOST_UPLOADS:
            raise UploadError(429, "other volumes are on their way", "wait until they are here", hang_up=True)
        self._uploads += 1
        try:
            async with receive_upload(request, self.show.largest_upload) as (path, name):
                await run_in_threadpool(self.show.load, path, name)
        finally:
            self._uploads -= 1
        self.hub.wake(state=True)
        return JSONResponse({"ok": True})

    async def pixel_size(self, request: Request) -> Response:
        """The size of a pixel in mm, as a page tells it over its socket."""
        asked = {"do": "pixel_size", "mm": request.query_params.get("mm")}
        told = await run_in_threadpool(self.show.do, asked)
        self.hub.wake(state=True)
        self.hub.notice(told)
        return JSONResponse({"ok": True, "told": told})

    async def socket(self, socket: WebSocket) -> None:
        await socket.accept()
        page = self.hub.join(socket)
        if page is None:
            await socket.close(1013, "too many pages")
            return
        sending = asyncio.create_task(self.hub.serve(page))
        listening = asyncio.create_task(self._listen(socket, page))
        try:
            await asyncio.wait((sending, listening), return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.hub.leave(page)
            for task in (sending, listening):
                task.cancel()
            await asyncio.gather(sending, listening, return_exceptions=True)

    async def _listen(self, socket: WebSocket, page: Page) -> None:
        """Do what a page asks for, until it is gone."""
        while True:
            try:
                message = await socket.receive()
            except (WebSocketDisconnect, RuntimeError):
                return
            if message["type"] == "websocket.disconnect":
                if message.get("code") in (1002, 1007, 1009):  # bad frames, no text, far too long
                    self.counters.add("bad_messages", f"a page sent what is no message ({message['code']})")
                return
            try:
                await self._obey(_request_of(message), page)
            except ScopeRegError as error:
                self.counters.add("bad_messages", error)
                self.hub.notice(self._words(f"{error.what}. To fix it: {error.fix}."), error=True, page=page)
            except Exception as error:  # one message must not end the page
                self.counters.add("message_errors", error)
                self.hub.notice(f"that went wrong: {type(error).__name__}: {error}", error=True, page=page)

    async def _obey(self, request: Mapping[str, Any], page: Page) -> None:
        if request["do"] == "shown":
            page.shown(request.get("number"))
            return
        said = await run_in_threadpool(self.show.do, request)
        self.hub.wake(state=True)
        if said:
            self.hub.notice(said)

    async def _refused(self, _: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        self.counters.add("bad_requests", error.detail)
        what = {404: "there is nothing here", 405: "that is not possible here"}
        words = error.detail if error.status_code == 404 and "volume" in error.detail else what.get(error.status_code)
        return _fault(error.status_code, words or error.detail, "request", "use the page of this server")

    async def _bad(self, _: Request, error: Exception) -> Response:
        assert isinstance(error, ScopeRegError)
        self.counters.add("bad_requests", error)
        what, where, fix = map(self._words, (error.what, error.where, error.fix))
        answer = _fault(getattr(error, "status", 422), what, where, fix)
        if getattr(error, "hang_up", False):
            answer.headers["connection"] = "close"
        return answer

    async def _broken(self, _: Request, error: Exception) -> Response:
        self.counters.add("request_errors", error)
        return _fault(500, f"{type(error).__name__}: {error}", "server", "report it; the loop goes on")


def _request_of(message: Message) -> Mapping[str, Any]:
    """What a page asks, as a mapping with a word under "do"."""
    text = message.get("text")
    try:
        if text is None or len(text) > LONGEST_MESSAGE:
            raise ValueError
        request = json.loads(text)
        if not isinstance(request, dict) or not isinstance(request.get("do"), str):
            raise ValueError
    except (ValueError, RecursionError):
        raise ScopeRegError(
            "a message that is none", where="web socket", fix='send short JSON such as {"do": "pause"}'
        ) from None
    return request


def _packed(content: bytes) -> Response:
    return Response(content, media_type="application/octet-stream", headers={"content-encoding": "gzip"})


def _file(name: str) -> Response:
    """A file that ships with the package: looked up in what there is, never opened by the name given."""
    found = _static_files(STATIC).get(name)
    kind = _KINDS.get(Path(name).suffix)
    if found is None or kind is None:
        raise HTTPException(404, "no such file")
    return Response(found.read_bytes(), media_type=kind)


def _static_files(folder: Any, prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for entry in folder.iterdir() if folder.is_dir() else ():
        if entry.is_dir():
            found |= _static_files(entry, f"{prefix}{entry.name}/")
        else:
            found[f"{prefix}{entry.name}"] = entry
    return found


def _fault(status: int, what: str, where: str, fix: str) -> JSONResponse:
    return JSONResponse({"error": {"what": what, "where": where, "fix": fix}}, status)


def _opened_by_hand(scope: Scope) -> bool:
    """Whether the browser says that nobody else's page led here: then the cookie comes with what it is led on to.

    Others get the page at once, which takes the token out of the address itself: to what another site began, browsers
    bring no cookie of this kind. Where nothing is encrypted and on another machine they do not say it at all.
    """
    told = [value for name, value in scope["headers"] if name == b"sec-fetch-site"]
    return scope["method"] == "GET" and scope["path"] == "/" and told in ([b"none"], [b"same-origin"])


async def _turn_away(refusal: Refusal, scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1008, "reason": refusal.what})  # before accepting: HTTP 403
        return
    answer: Response = _fault(refusal.status, refusal.what, "request", refusal.fix)
    accepted = b",".join(value for name, value in scope["headers"] if name == b"accept")
    if scope["path"] == "/" and b"text/html" in accepted:
        answer = HTMLResponse(_CLOSED.format(what=refusal.what, fix=refusal.fix), refusal.status)
    await answer(scope, receive, send)


async def _with_headers(send: Send, extra: Mapping[str, str], message: Message) -> None:
    if message["type"] == "http.response.start":
        own = {name.lower() for name, _ in message["headers"]}
        added = [(name.encode(), value.encode()) for name, value in {**_HEADERS, **extra}.items()]
        message["headers"] = [*message["headers"], *(pair for pair in added if pair[0] not in own)]
    await send(message)
