"""Pages of the viewer that come and go during a soak: some look, some send rubbish, some never answer, some crash."""

from __future__ import annotations

import json
import logging
import random
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
from websockets.exceptions import ConnectionClosed, InvalidHandshake
from websockets.sync.client import ClientConnection, connect

from scopereg import Volume
from scopereg.live.loop import Loop
from scopereg.live.scene import Plan, Scene
from scopereg.viewer.live_show import LiveShow, Rooms
from scopereg.viewer.web import WebServer

RUBBISH = ("", "{", "[]", '{"do": 1}', '{"do": "explode"}', '{"do": "choose", "name": "../x"}', "x" * 5000, b"\x00\xff")


@contextmanager
def visited(loop: Loop) -> Iterator[list[str]]:
    """The viewer of a loop, and pages that come and go; in the end, what must not have happened."""
    values = np.random.default_rng(0).random((8, 16, 16), dtype=np.float32)
    plan = Plan("start", device="cpu")
    scene = Scene(Volume(values, 1.0), "volume", plan)
    show = LiveShow(loop, scene, lambda volume, name: Scene(volume, name, plan), Rooms(Path("never-made")))
    wrong: list[str] = []
    with WebServer(show, port=0) as web:
        show.wake = web.wake
        loop.listen(show)
        pages = Pages(web.port, seed=0)
        pages.start()
        try:
            yield wrong
        finally:
            pages.close()
        left = web.site.hub.page_count
    counted = show.counters.snapshot()
    checks = {
        f"pages saw wrong poses: {pages.wrong[:3]}": not pages.wrong,
        "no page saw a picture": pages.seen["update"] > 0,
        "pages are unaccounted for": counted.get("pages", 0) >= pages.seen["opened"],
        "bad messages are unaccounted for": 0 < counted.get("bad_messages", 0) <= pages.seen["rubbish"],
        "requests failed": "request_errors" not in counted and "message_errors" not in counted,
        f"{left} pages are left": left <= 1,  # the last one may not have been noticed to go
    }
    wrong += [what for what, good in checks.items() if not good]


class Pages:
    """Checks of every picture that its pose is that of its frame."""

    def __init__(self, port: int, seed: int) -> None:
        from soak import pose_at  # which imports this module in turn

        self.port, self._pose_at = port, pose_at
        self.seen: Counter[str] = Counter()
        self.wrong: list[str] = []
        self._random = random.Random(seed)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="soak-pages", daemon=True)

    def start(self) -> None:
        # A page whose socket is closed under it, as some crash here, complains: about itself, not about the server.
        logging.getLogger("websockets.client").setLevel(logging.CRITICAL)
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.is_set():
            host = f"127.0.0.1:{self.port}"
            try:
                with connect(f"ws://{host}/ws", origin=f"http://{host}", compression=None) as page:  # type: ignore[arg-type]
                    self.seen["opened"] += 1
                    self._visit(page)
            except (OSError, InvalidHandshake, ConnectionClosed):
                self.seen["lost"] += 1

    def _visit(self, page: ClientConnection) -> None:
        """Look for a while, then go in one way or another."""
        until_s = time.monotonic() + self._random.uniform(0.1, 2.0)
        answers = self._random.random() < 0.8
        while time.monotonic() < until_s and not self._stop.is_set():
            if self._random.random() < 0.1:
                page.send(self._random.choice(RUBBISH))
                self.seen["rubbish"] += 1
            with suppress(TimeoutError):
                self._look(page, page.recv(0.2), answers)
        if self._random.random() < 0.5:
            page.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            page.socket.close()

    def _look(self, page: ClientConnection, message: str | bytes, answers: bool) -> None:
        if isinstance(message, str):
            self.seen[json.loads(message)["type"]] += 1
            return
        (length,) = struct.unpack_from("<I", message)
        header: dict[str, Any] = json.loads(message[4 : 4 + length])
        self.seen["update"] += 1
        if header["image_to_volume"] is not None:
            wanted = self._pose_at(int(header["time_s"])).matrix
            if not np.allclose(np.reshape(header["image_to_volume"], (4, 4)), wanted, atol=1e-4):
                self.wrong.append(f"the picture of frame {header['time_s']:.0f} has another pose")
        if answers:
            page.send(json.dumps({"do": "shown", "number": header["number"]}))
