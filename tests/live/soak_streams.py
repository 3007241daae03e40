"""A replay, published and shown, while peers send 10,000 bad messages, come back 1,000 times and idle by the 300.

    python tests/live/soak_streams.py > benchmarks/stream-peers.log

The replay runs at 25 frames a second all the time. Rude peers connect to the OpenIGTLink server a thousand times and
send it ten bad messages each (`bad_messages.py`; seeded, so that a run can be had again), which a scanner sends to a
client of ours at the same time. 300 idle peers hold connections to the OpenIGTLink server, 300 others to the page's.
Nothing of the replay may be lost: every frame must have its update, in order, every update must reach a client that
reads and a page, and threads, files and memory must be what they were in the end.
"""

from __future__ import annotations

import argparse
import json
import platform
import random
import socket
import sys
import threading
import time
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from scopereg import Frame, Pose, Volume, __version__
from scopereg.errors import ScopeRegError
from scopereg.io.cine import Cine
from scopereg.live.connection import Connection
from scopereg.live.loop import Loop
from scopereg.live.messages import Message, frame_of, pose_of, transform_message
from scopereg.live.publish import Publisher
from scopereg.live.replay import Replay
from scopereg.live.scene import Plan, Scene
from scopereg.live.server import Server
from scopereg.registration.result import Result
from scopereg.viewer.live_show import LiveShow, Rooms
from scopereg.viewer.web import WebServer

sys.path.append(str(Path(__file__).parent))
from bad_messages import bad_message
from ledger import Told, resources
from peers import QUICK, Listening, wait_until

RATE_HZ = 25.0
SHAPE = (96, 128)  # of a frame
MOST_GROWTH_MB = 24.0  # what the allocator keeps of 600 connections and their threads
MOST_WAIT_S = 2.0  # of somebody who asks for the page, or wants to hear of the poses


def pose_at(number: int) -> Pose:
    """The pose that the stand-in for a network finds for a frame."""
    return Pose.from_euler_deg((number % 60, number % 17, 5), (number % 100, -3, number % 7))


class Replayed:
    """A replay and what became of its frames."""

    def __init__(self, frames: int) -> None:
        pixels = np.random.default_rng(0).random((8, *SHAPE), dtype=np.float32)
        times_s = [row / RATE_HZ for row in range(frames)]
        cine = Cine(Path("sweep"), frames, (0.3, 0.4), lambda index: pixels[index % 8], times_s=tuple(times_s))
        self.frames, self.told = frames, Told()
        self._located = 0
        self.loop = Loop(Replay("sweep", [lambda: cine]), self._locate, [self.told])

    def _locate(self, frame: Frame) -> Result:
        self._located += 1
        return Result(pose_at(self._located), "stand-in", 2.0, 0.5, frame=frame)


class Reader:
    """A client of the OpenIGTLink server that reads all, and sees whether poses are missing or wrong."""

    def __init__(self, port: int) -> None:
        self.poses: list[Pose] = []
        self.connection = Connection("127.0.0.1", port, self._hear, timing=QUICK).start()

    def _hear(self, message: Message) -> None:
        if message.kind == "TRANSFORM":
            self.poses.append(pose_of(message))

    def wrong(self, count: int) -> int:
        """Of the poses of so many frames, those that did not come, or came otherwise or twice."""
        pairs = zip(self.poses, map(pose_at, range(1, count + 1)), strict=False)
        alike = sum(found.is_close(wanted, mm=1e-3, deg=1e-3) for found, wanted in pairs)
        return max(count, len(self.poses)) - alike


class Watcher:
    """A page that draws at once."""

    def __init__(self, web: WebServer) -> None:
        self.numbers: list[int] = []
        self._host = f"127.0.0.1:{web.port}"
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="soak-page", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        from websockets.sync.client import connect

        own = f"http://{self._host}"
        with connect(f"ws://{self._host}/ws", origin=own, max_size=2**24, compression=None) as page:  # type: ignore[arg-type]
            while not self._stop.is_set():
                with suppress(TimeoutError):
                    message = page.recv(0.2)
                    if isinstance(message, bytes):
                        length = int.from_bytes(message[:4], "little")
                        self.numbers.append(json.loads(message[4 : 4 + length])["number"])
                        page.send(json.dumps({"do": "shown", "number": self.numbers[-1]}))


class Rude:
    """Sends bad messages to the server, and as a scanner to a client of ours, a few in each connection."""

    def __init__(self, port: int, messages: int, reconnects: int, seed: int) -> None:
        self._port, self._each, self._reconnects = port, -(-messages // reconnects), reconnects
        self._random = random.Random(seed)
        self.messages = self.reconnects = 0
        self.decoded = self.refused = 0
        self._scanner = Listening()
        self.client = Connection("127.0.0.1", self._scanner.port, self._look, timing=QUICK).start()

    def run(self) -> None:
        for _ in range(self._reconnects):
            bad = [bad_message(self._random) for _ in range(self._each)]
            with suppress(OSError), socket.create_connection(("127.0.0.1", self._port), 5.0) as peer:
                peer.sendall(b"".join(bad))
            self.reconnects += 1
            self.messages += len(bad)
            with suppress(OSError), self._scanner.accept(1.0) as scanner:
                scanner.sendall(b"".join(bad))
            time.sleep(0.001)

    def close(self) -> None:
        self.client.close()
        self._scanner.close()

    def _look(self, message: Message) -> None:
        """As a source does: an image becomes a frame."""
        self.decoded += 1
        with suppress(ScopeRegError):
            {"IMAGE": frame_of, "TRANSFORM": pose_of}.get(message.kind, lambda _: None)(message)
            return
        self.refused += 1


def idle(port: int, count: int, stack: ExitStack) -> None:
    """Peers that say nothing, and every third a part of something."""
    for number in range(count):
        peer = stack.enter_context(socket.create_connection(("127.0.0.1", port), 5.0))
        if number % 3 == 0:
            with suppress(OSError):
                peer.sendall(transform_message(Pose.identity())[:7] if number % 2 else b"GET / HT")


def answered_s(web: WebServer, port: int) -> tuple[float, float]:
    """How long somebody new waits for the page, and for the first pose."""
    import http.client

    begin_s = time.monotonic()
    client = http.client.HTTPConnection("127.0.0.1", web.port, timeout=20)
    client.request("GET", "/api/state")
    assert client.getresponse().status == 200
    client.close()
    page_s, begin_s = time.monotonic() - begin_s, time.monotonic()
    got: list[Message] = []
    with Connection("127.0.0.1", port, got.append, timing=QUICK):
        wait_until(lambda: bool(got), 30.0)
    return page_s, time.monotonic() - begin_s


def soak(frames: int, messages: int, reconnects: int, peers: int, seed: int = 0) -> dict[str, Any]:
    """What happened, and under `violations` what must not have."""
    before = resources()
    replayed = Replayed(frames)
    with ExitStack() as stack:
        server = stack.enter_context(Server(port=0, timing=replace(QUICK, stall_s=1.0)))
        publisher = Publisher(server)
        stack.callback(publisher.close)
        scene = Scene(
            Volume(np.random.default_rng(1).random((8, 9, 10), np.float32), 0.5), "volume", Plan("start", device="cpu")
        )
        show = LiveShow(replayed.loop, scene, lambda volume, name: scene, Rooms(Path("never")))
        web = stack.enter_context(WebServer(show, port=0))
        show.wake = web.wake
        for listener in (publisher, show):
            replayed.loop.listen(listener)
        reader, watcher = Reader(server.port), Watcher(web)
        stack.callback(reader.connection.close)
        stack.callback(watcher.close)
        assert wait_until(lambda: server.client_count == 1)
        rude = Rude(server.port, messages, reconnects, seed)
        stack.callback(rude.close)
        begin_s = time.monotonic()
        replayed.loop.start()
        stack.callback(replayed.loop.stop)
        assert wait_until(lambda: server._clients[0].is_there, 60.0)
        idle_peers = stack.enter_context(ExitStack())
        for port in (server.port, web.port):
            idle(port, peers, idle_peers)
        page_s, pose_s = answered_s(web, server.port)
        rude.run()
        rude_s = time.monotonic() - begin_s
        again = answered_s(web, server.port)
        assert replayed.loop.wait(frames / RATE_HZ + 60)
        wait_until(lambda: len(reader.poses) >= replayed.told.count, 10.0)
        wait_until(lambda: watcher.numbers[-1:] == [replayed.told.count], 10.0)
        counters = replayed.loop.counters()
        during = resources()
    report = {
        "frames": frames,
        "frames_taken": counters["taken"],
        "frames_dropped": counters["dropped"],
        "updates": replayed.told.count,
        "updates_in_order": replayed.told.in_order,
        "poses_read": len(reader.poses),
        "poses_missing_or_wrong": reader.wrong(replayed.told.count),
        "pictures_on_the_page": len(watcher.numbers),
        "last_picture": watcher.numbers[-1],
        "bad_messages": rude.messages,
        "reconnects": rude.reconnects,
        "idle_peers": 2 * peers,
        "rude_s": round(rude_s, 1),
        "page_answered_s": round(max(page_s, again[0]), 3),
        "pose_came_s": round(max(pose_s, again[1]), 3),
        "of_a_scanner": {"decoded": rude.decoded, "refused": rude.refused, **rude.client.counters.snapshot()},
        "server": server.counters.snapshot(),
        "web": show.counters.snapshot(),
        "loop": counters,
        "before": before,
        "during": during,
        "after": resources(),
    }
    return {**report, "violations": violations(report)}


def violations(report: dict[str, Any]) -> list[str]:
    """What must not happen, in words."""
    before, after = report["before"], report["after"]
    growth_mb = after.get("memory_mb", 0) - before.get("memory_mb", 0)
    checks = {
        "frames were dropped": report["frames_dropped"] == 0,
        "a frame has no update": report["frames"] == report["frames_taken"] == report["updates"],
        "updates are out of order": report["updates_in_order"],
        "a client that reads missed poses": report["poses_missing_or_wrong"] == 0,
        "the page does not show the last frame": report["last_picture"] == report["updates"],
        f"the page answered after {report['page_answered_s']} s": report["page_answered_s"] < MOST_WAIT_S,
        f"a new client waited {report['pose_came_s']} s for a pose": report["pose_came_s"] < MOST_WAIT_S,
        "threads are left": after["threads"] == before["threads"],
        "files are left open": after.get("files") == before.get("files"),
        f"memory grew by {growth_mb:.0f} MB": growth_mb < MOST_GROWTH_MB,
    }
    return [what for what, good in checks.items() if not good]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frames", type=int, default=3000)
    parser.add_argument("--messages", type=int, default=10_000)
    parser.add_argument("--reconnects", type=int, default=1000)
    parser.add_argument("--peers", type=int, default=300, help="that idle, at each of the two servers")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    print(f"scopereg {__version__}, Python {platform.python_version()}, {platform.system()} {platform.machine()}")
    soak(200, 20, 2, 5)  # what is loaded once is loaded
    report = soak(options.frames, options.messages, options.reconnects, options.peers, options.seed)
    for name, value in report.items():
        print(f"{name}: {value if value != [] else 'none'}")
    return 1 if report["violations"] else 0


if __name__ == "__main__":
    sys.exit(main())
