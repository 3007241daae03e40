"""Hub: gives every page the newest state and the newest picture, one picture in flight each; a slow page misses some.

All of it runs in the event loop of the server, but for `wake`, which any thread may call and which never waits.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from scopereg.live.exchange import Counters
from scopereg.viewer.voxels import Voxels

MOST_PAGES = 32
_LOOK_S = 0.25  # how often the state is looked at, besides when something is known to have changed
_COUNT_S = 1.0  # how often pages hear of counters alone
_CHANGING = ("counters", "recording")  # parts of the state that change with every frame


class Show(Protocol):
    """Something to look at. Any thread may call anything; nothing takes long but `do` and `load`."""

    counters: Counters  # what pages did, and what went wrong with them; the server counts here

    def state(self) -> dict[str, Any]:
        """All that a page must know besides the pictures, ready for JSON; see `base_state`."""

    def voxels(self) -> Voxels | None:
        """The volume that is shown now."""

    def packet(self) -> tuple[int, bytes] | None:
        """The newest picture: a number that rises with every new one, and its packet. None while there is none."""

    def path(self) -> dict[str, Any] | None:
        """Where finished frames lay and when, as `path_of` has it; None where there is nothing to play."""

    def do(self, request: Mapping[str, Any]) -> str:
        """What a page asks for, such as {"do": "pause"}; a word on what was done, or a ScopeRegError."""

    def load(self, path: Path, name: str) -> None:
        """Show another volume from a file that an upload left; a ScopeRegError if it is none. The file may go then."""

    @property
    def largest_upload(self) -> int:
        """Bytes; 0 where nothing may be uploaded."""


class Socket(Protocol):
    """What is needed of a web socket."""

    async def send_text(self, data: str) -> None: ...

    async def send_bytes(self, data: bytes) -> None: ...


class Page:
    """One page that is open: what it has been told, and what it has yet to be told."""

    def __init__(self, socket: Socket) -> None:
        self.socket = socket
        self.news = asyncio.Event()
        self.state = ""  # what is to be sent, where it differs from what was sent
        self.notices: list[str] = []
        self.sent_state = ""
        self.sent = -1  # number of the last picture
        self.in_flight = False  # whether it was not drawn yet

    def shown(self, number: object) -> None:
        """The page has drawn a picture; that of an earlier one says nothing."""
        if number == self.sent:
            self.in_flight = False
            self.news.set()

    def tell(self, notice: str) -> None:
        """Leave a notice; of very many the last ones count."""
        self.notices = [*self.notices, notice][-8:]
        self.news.set()


class Hub:
    """The pages that are open. It counts `pages` (in all), `turned_away` and `sent`."""

    def __init__(self, show: Show) -> None:
        self._show, self.counters = show, show.counters
        self._pages: set[Page] = set()
        self._changed: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._state: dict[str, Any] = {}
        self._urgent = False  # whether somebody said that the state has changed
        self._looked_s = self._told_s = -_COUNT_S

    @property
    def page_count(self) -> int:
        """Pages that are open now."""
        return len(self._pages)

    def wake(self, *, state: bool = False) -> None:
        """There is a new picture, or a new state; callable from any thread."""
        self._urgent = self._urgent or state
        loop, changed = self._loop, self._changed
        if loop is not None and changed is not None:
            with suppress(RuntimeError):  # the server has ended meanwhile
                loop.call_soon_threadsafe(changed.set)

    def tell(self, notice: str) -> None:
        """A notice for all pages; callable from any thread."""
        loop = self._loop
        if loop is not None:
            with suppress(RuntimeError):  # the server has ended meanwhile
                loop.call_soon_threadsafe(self.notice, notice)

    async def run(self) -> None:
        """Watch state and pictures until cancelled."""
        self._loop, self._changed = asyncio.get_running_loop(), asyncio.Event()
        while True:
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._changed.wait(), _LOOK_S)
            self._changed.clear()
            self._look()
            for page in self._pages:
                page.news.set()

    def _look(self) -> None:
        """Take note of a new state: at once where it matters, now and then where only numbers grew."""
        now_s = asyncio.get_running_loop().time()
        if not self._urgent and now_s < self._looked_s + _LOOK_S:
            return
        self._urgent, self._looked_s = False, now_s
        state = self._show.state()
        same = _without(state, _CHANGING) == _without(self._state, _CHANGING)
        if state == self._state or (same and now_s < self._told_s + _COUNT_S):
            return
        self._state, self._told_s = state, now_s
        packed = json.dumps(state)
        for page in self._pages:
            page.state = packed

    def join(self, socket: Socket) -> Page | None:
        """One more page; None if there are too many."""
        if len(self._pages) >= MOST_PAGES:
            self.counters.add("turned_away", f"more than {MOST_PAGES} pages")
            return None
        page = Page(socket)
        page.state = json.dumps(self._show.state())
        page.news.set()
        self._pages.add(page)
        self.counters.add("pages")
        return page

    def leave(self, page: Page) -> None:
        self._pages.discard(page)

    def notice(self, text: str, *, error: bool = False, page: Page | None = None) -> None:
        """Tell one page, or all; from the event loop."""
        packed = json.dumps({"type": "notice", "level": "error" if error else "info", "text": text})
        for each in [page] if page is not None else list(self._pages):
            each.tell(packed)

    async def serve(self, page: Page) -> None:
        """Send a page all that it should have, until it is gone or this is cancelled."""
        while True:
            await page.news.wait()
            page.news.clear()
            while page.notices:
                await page.socket.send_text(page.notices.pop(0))
            if page.state != page.sent_state:
                page.sent_state = page.state
                await page.socket.send_text(page.state)
            await self._send_picture(page)

    async def _send_picture(self, page: Page) -> None:
        if page.in_flight:
            return
        packet = self._show.packet()
        if packet is None or packet[0] == page.sent:
            return
        page.sent, page.in_flight = packet[0], True
        await page.socket.send_bytes(packet[1])
        self.counters.add("sent")


def _without(state: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: value for name, value in state.items() if name not in names}
