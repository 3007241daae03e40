"""A loop over a short replay with the viewer's server before it, and clients to try it with; no tests."""

from __future__ import annotations

import http.client
import json
import struct
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from websockets.sync.client import ClientConnection, connect

from scopereg import Frame, Pose, Volume
from scopereg.commands.flags import in_flags
from scopereg.commands.live import LiveOptions
from scopereg.io.cine import Cine
from scopereg.live.loop import Loop
from scopereg.live.pixel_sizes import PixelSizes
from scopereg.live.replay import Replay
from scopereg.live.scene import Plan, Scene
from scopereg.registration.result import Result
from scopereg.viewer.live_show import LiveShow, Rooms
from scopereg.viewer.overlays import NOTHING_OVER, Overlays
from scopereg.viewer.web import WebServer

SHAPE = (12, 16, 20)  # of the volume, z y x
NOTHING_SEARCHED = Plan("start", device="cpu")


def wait_until(true: Callable[[], bool], seconds: float = 20.0) -> bool:
    end_s = time.monotonic() + seconds
    while not true() and time.monotonic() < end_s:
        time.sleep(0.005)
    return true()


def small_volume(seed: int = 0) -> Volume:
    values = np.random.default_rng(seed).random(SHAPE, dtype=np.float32)
    return Volume(values, spacing_mm=(0.5, 0.6, 0.7), origin_mm=(3, -2, 10))


def replay(count: int = 10_000, rate_hz: float = 200.0, shape: tuple[int, int] = (10, 14)) -> Replay:
    pixels = np.random.default_rng(1).random((8, *shape), dtype=np.float32)
    cine = Cine(Path("sweep"), count, (0.5, 0.6), lambda index: pixels[index % len(pixels)])
    return Replay("sweep", [lambda: cine], rate_hz=rate_hz)


def unsized(**how: Any) -> tuple[Replay, PixelSizes]:
    """Two pictures of the size that something was told for, then others."""
    sizes = PixelSizes((0.5, 0.5))
    pixels = np.random.default_rng(1).random((12, 20), dtype=np.float32)
    cines = [
        Cine(
            Path(name),
            count,
            (0.5, 0.5),
            lambda _, shape=shape: pixels[: shape[0], : shape[1]],
            facts={"spacing_from": "given"},
        )
        for name, count, shape in (("a.png", 2, (10, 14)), ("b.png", 10_000, (12, 20)))
    ]
    return Replay("sweep", [lambda cine=cine: cine for cine in cines], rate_hz=100.0, sizes=sizes, **how), sizes


def locate(frame: Frame) -> Result:
    return Result(Pose.from_euler_deg((1, 2, 3), (4, 5, 6)), "test", 1.0, 0.5, frame=frame)


@dataclass
class Served:
    """A running loop with its server."""

    loop: Loop
    show: LiveShow
    web: WebServer
    token: str | None = None
    _: Any = field(default=None, repr=False)

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.web.port}"

    @property
    def origin(self) -> str:
        return f"http://{self.host}"

    def ask(
        self,
        path: str,
        *,
        method: str = "GET",
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        chunked: bool = False,
    ) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body of the answer; the path goes out as it is."""
        own = {} if method == "GET" else {"Origin": self.origin}
        client = http.client.HTTPConnection("127.0.0.1", self.web.port, timeout=20)
        try:
            client.request(method, path, body, {**own, **(headers or {})}, encode_chunked=chunked)
            answer = client.getresponse()
            return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
        finally:
            client.close()

    def state(self) -> dict[str, Any]:
        status, _, body = self.ask("/api/state")
        assert status == 200, body
        found: dict[str, Any] = json.loads(body)
        return found

    def page(self, **options: Any) -> ClientConnection:
        """A page that is open; it gets the state first."""
        options = {"origin": self.origin, "max_size": 2**24, "compression": None, **options}
        return connect(f"ws://{self.host}/ws", **options)

    def is_alive(self) -> bool:
        """Whether the loop goes on and the server answers."""
        before = self.loop.counters()["taken"]
        return wait_until(lambda: self.loop.counters()["taken"] > before) and self.ask("/api/state")[0] == 200


@contextmanager
def serve(
    folder: Path,
    *,
    source: Replay | None = None,
    register: Callable[[Frame], Result] = locate,
    token: str | None = None,
    volumes: Path | None = None,
    largest_upload: int = 2**20,
    paused: bool = False,
    scene: Scene | None = None,
    overlays: Overlays = NOTHING_OVER,
    sizes: PixelSizes | None = None,
    **server: Any,
) -> Iterator[Served]:
    """Serve a loop until the block ends."""
    loop = Loop(source or replay(), register, paused=paused, sizes=sizes)
    scene = scene or Scene(small_volume(), "first.nii.gz", NOTHING_SEARCHED)
    rooms = Rooms(folder / "recordings", volumes, largest_upload)
    show = LiveShow(
        loop,
        scene,
        lambda volume, name: Scene(volume, name, NOTHING_SEARCHED),
        rooms,
        source="sweep",
        overlays=overlays,
    )
    words = partial(in_flags, options=LiveOptions)
    with WebServer(show, port=0, token=token, words=words, **server) as web:
        show.wake, show.notify = web.wake, web.tell
        loop.listen(show)
        with loop:
            yield Served(loop, show, web, token)


def unpack(packet: bytes) -> tuple[dict[str, Any], np.ndarray, np.ndarray | None]:
    """Header, picture and evidence of an update."""
    (length,) = struct.unpack_from("<I", packet)
    header = json.loads(packet[4 : 4 + length])
    rows, columns = header["frame"]["shape"]
    start = 4 + length
    picture = np.frombuffer(packet, np.uint8, rows * columns, start).reshape(rows, columns)
    rest = packet[start + rows * columns :]
    if header["evidence"] is None:
        assert rest == b""
        return header, picture, None
    high, wide = header["evidence"]["shape"]
    assert len(rest) == high * wide
    return header, picture, np.frombuffer(rest, np.uint8).reshape(high, wide)


def received(page: ClientConnection, timeout: float = 20.0) -> dict[str, Any]:
    """The next message as a mapping; an update is told to be shown."""
    message = page.recv(timeout)
    if isinstance(message, str):
        found: dict[str, Any] = json.loads(message)
        return found
    header = unpack(message)[0]
    page.send(json.dumps({"do": "shown", "number": header["number"]}))
    return header


def next_update(page: ClientConnection) -> dict[str, Any]:
    """The header of the next update."""
    return next_message(page, "update")


def next_message(page: ClientConnection, kind: str, **wanted: Any) -> dict[str, Any]:
    """The next message of a kind in which these parts are so."""
    while True:
        found = received(page)
        if found["type"] == kind and all(found[name] == value for name, value in wanted.items()):
            return found
