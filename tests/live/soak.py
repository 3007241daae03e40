"""A stream with everything that goes wrong in a network, for as long as you like; nothing may be lost or leak.

    python tests/live/soak.py --minutes 30

A scanner sends frames, garbage, wrong checksums and giant sizes, hangs in the middle of a message, closes, dies and
comes back. The loop registers what arrives and publishes it to clients that come and go. At the end every good frame
that a live connection carried must have arrived, every frame that was taken must have reached every listener, clients
must have seen only poses that belong to their frames, and threads, open files and memory must be what they were.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import random
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from scopereg import Frame, Pose
from scopereg.live.connection import Connection
from scopereg.live.link import LinkLostError
from scopereg.live.loop import Loop, Update
from scopereg.live.messages import Message, image_message, pack, pose_of
from scopereg.live.publish import Publisher
from scopereg.live.server import Server
from scopereg.live.sources import IgtlSource
from scopereg.registration.result import RegistrationError, Result

sys.path.append(str(Path(__file__).parent))
from peers import QUICK, Listening, garbage, giant, kill, wrong_crc

TIMING = replace(QUICK, stall_s=1.0, keep_alive_s=0.5)
BEFORE_DEATH_S = 0.5  # a reset may destroy what the other end has not read yet
MOST_GROWTH_MB = 48.0
SEEN_AT_ONCE_S = 3.0


@dataclass
class Scanner:
    """Sends numbered frames (the number is the time stamp) and mischief. `due` are frames that must have arrived."""

    seed: int
    shape: tuple[int, int]
    rate_hz: float
    port: int = 0
    accepted: int = 0
    number: int = 0
    due: set[int] = field(default_factory=set)
    mischief: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self._pixels = np.random.default_rng(self.seed).integers(0, 256, (self.shape), dtype=np.uint8)
        self._stop = threading.Event()
        self._listening = Listening()
        self.port = self._listening.port
        self._thread = threading.Thread(target=self._run, name="soak-scanner", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        self._thread.join()
        self._listening.close()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                connected = self._listening.accept(0.2)
            except TimeoutError:
                continue
            self.accepted += 1
            with connected:
                self._stream(connected)
            if self._random.random() < 0.2:
                self._restart()

    def _restart(self) -> None:
        """Be gone for a moment, then listen on the same port."""
        self.mischief["restart"] += 1
        self._listening.close()
        self._stop.wait(self._random.uniform(0.05, 0.3))
        self._listening = Listening(self.port)

    def _stream(self, connected: socket.socket) -> None:
        """Frames and mischief for a while, then an end of one kind or another."""
        sent: list[tuple[float, int]] = []
        until_s = time.monotonic() + self._random.uniform(0.3, 4.0)
        end = self._random.choice(("close", "kill", "hang", "half"))
        try:
            while time.monotonic() < until_s and not self._stop.is_set():
                if self._random.random() < 0.1:
                    self._misbehave(connected)
                packed = self._frame(self._random.choice((1, 2)))
                connected.sendall(packed)
                sent.append((time.monotonic(), self.number))
                self._stop.wait(self._random.uniform(0.5, 1.5) / self.rate_hz)
            self.mischief[end] += 1
            if end in ("hang", "half"):
                connected.sendall(self._frame(1)[: self._random.randrange(1, 200)])
            if end == "hang":
                self._wait_for_end(connected)
        except OSError:
            self.mischief["hung up on"] += 1
            end = "kill"
        lost_s = time.monotonic() - BEFORE_DEATH_S if end == "kill" else float("inf")
        self.due.update(number for sent_s, number in sent if sent_s < lost_s)
        if end == "kill":
            kill(connected)

    def _wait_for_end(self, connected: socket.socket) -> None:
        """Wait until the other end has had enough; what it asks meanwhile is not answered."""
        connected.settimeout(4 * TIMING.stall_s)
        with suppress(OSError):
            while connected.recv(4096):
                pass

    def _misbehave(self, connected: socket.socket) -> None:
        kind = self._random.choice(("garbage", "wrong crc", "giant", "unknown", "unplaced"))
        self.mischief[kind] += 1
        bad = {
            "garbage": lambda: garbage(self._random.randrange(1, 3000), self._random.randrange(2**30)),
            "wrong crc": lambda: wrong_crc(self._frame(1)),
            "giant": lambda: giant(self._frame(1)),
            "unknown": lambda: pack("POLYDATA", "Mesh", b"\x00" * 40),
            "unplaced": lambda: image_message(Frame(self._pixels, 1.0, (0, 0)), name="Image_Reference", time_s=0.5),
        }
        connected.sendall(bad[kind]())

    def _frame(self, version: int) -> bytes:
        self.number += 1
        frame = Frame(np.roll(self._pixels, self.number, 1) / 255, (0.3, 0.4), (0, 0))
        pose = Pose.identity("Image", "Reference")
        return image_message(frame, pose, time_s=float(self.number), version=version)


class Visitors:
    """Clients of the publishing server that come and go; one of them sends rubbish."""

    def __init__(self, port: int, seed: int) -> None:
        self.port = port
        self.seen: Counter[str] = Counter()
        self.wrong: list[str] = []
        self._random = random.Random(seed)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="soak-visitors", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.is_set():
            visitors = [Connection("127.0.0.1", self.port, self._look, timing=TIMING).start() for _ in range(2)]
            self._stop.wait(self._random.uniform(0.2, 2.0))
            with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1.0) as rude:
                rude.sendall(garbage(self._random.randrange(1, 500), self._random.randrange(2**30)))
            for visitor in visitors:
                visitor.close()

    def _look(self, message: Message) -> None:
        self.seen[message.kind] += 1
        if message.kind == "TRANSFORM":
            expected = pose_at(int(message.header.time_s))
            if not pose_of(message).is_close(expected, mm=1e-3, deg=1e-3):
                self.wrong.append(f"frame {message.header.time_s:.0f} has another pose")


class Tapped(IgtlSource):
    """A source that remembers which frames arrived, also those that are dropped."""

    def __init__(self, port: int) -> None:
        super().__init__("127.0.0.1", port, timing=TIMING)
        self.numbers: set[int] = set()

    def _receive(self, message: Message) -> None:
        if message.kind == "IMAGE" and message.header.time_s >= 1:
            self.numbers.add(int(message.header.time_s))
        super()._receive(message)


def pose_at(number: int) -> Pose:
    """The pose that the stand-in for a network finds for a frame."""
    return Pose.from_euler_deg((number % 60, number % 17, 5), (number % 100, -3, number % 7))


def locate(frame: Frame) -> Result:
    """A stand-in for a network: sometimes slow, sometimes lost."""
    number = int(frame.facts["time_s"])  # type: ignore[attr-defined]
    time.sleep(0.03 if number % 11 == 0 else 0.002)
    if number % 7 == 0:
        raise RegistrationError("lost on purpose", where="soak", fix="none needed")
    return Result(pose_at(number), "stand-in", 2.0, 0.5)


def resources() -> dict[str, float]:
    """Threads, open files and memory of this process; nothing of what the system does not tell."""
    gc.collect()
    found: dict[str, float] = {"threads": threading.active_count()}
    with suppress(OSError):
        found["files"] = len(os.listdir("/proc/self/fd"))
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        found["memory_mb"] = round(pages * os.sysconf("SC_PAGE_SIZE") / 2**20, 1)
    return found


def soak(
    duration_s: float,
    *,
    seed: int = 0,
    shape: tuple[int, int] = (48, 64),
    rate_hz: float = 50.0,
    say: Callable[[dict[str, Any]], None] | None = None,
) -> dict[str, Any]:
    """Run for so long; what happened, and under `violations` what must not have."""
    before = resources()
    told: list[int] = []
    with Server(port=0, timing=TIMING) as server:
        scanner, visitors = Scanner(seed, shape, rate_hz), Visitors(server.port, seed)
        source, publisher = Tapped(scanner.port), Publisher(server)
        loop = Loop(source, locate, [publisher, lambda update: told.append(update.number), _fail_sometimes])
        settled: dict[str, float] = {}
        try:
            for part in (loop, scanner, visitors):
                part.start()
            begin_s = shown_s = time.monotonic()
            while (now_s := time.monotonic()) < begin_s + duration_s:
                time.sleep(min(0.2, duration_s / 10))
                if not settled and now_s > begin_s + min(duration_s / 4, 60):
                    settled = resources()  # what Python and numpy need once is there by now
                if say is not None and now_s > shown_s + 30:
                    shown_s = now_s
                    say({"s": round(now_s - begin_s), **resources(), **loop.counters()})
        finally:
            scanner.close()
            time.sleep(0.3)  # the last frames are on their way
            loop.stop()
            publisher.close()
            visitors.close()
        peak = resources()
    after = resources()
    report = {
        "duration_s": duration_s,
        "frames_sent": scanner.number,
        "frames_due": len(scanner.due),
        "frames_missing": len(scanner.due - source.numbers),
        "updates": len(told),
        "mischief": dict(scanner.mischief),
        "counters": loop.counters(),
        "server": server.counters.snapshot(),
        "visitors": dict(visitors.seen),
        "before": before,
        "settled": settled,
        "after": after,
    }
    growth = {name: peak.get(name, 0) - settled.get(name, 0) for name in ("memory_mb",)}
    return {**report, "violations": violations(report, scanner, visitors, told, growth)}


def violations(
    report: dict[str, Any], scanner: Scanner, visitors: Visitors, told: list[int], growth: dict[str, float]
) -> list[str]:
    """What must not happen, in words."""
    counters = report["counters"]
    waiting = counters["arrived"] - counters["taken"] - counters["dropped"]
    checks = {
        f"{report['frames_missing']} frames were lost": report["frames_missing"] == 0,
        "frames are unaccounted for": waiting in (0, 1),
        "a frame that was taken has no update": counters["taken"] - counters.get("bad_frames", 0) == len(told),
        "updates are out of order": told == list(range(1, len(told) + 1)),
        "results are unaccounted for": counters["registered"] + counters["failed"] == len(told),
        "connections are unaccounted for": counters["connected"] == scanner.accepted,
        f"wrong poses: {visitors.wrong[:3]}": not visitors.wrong,
        "no client saw a pose": visitors.seen["TRANSFORM"] > 0,
        "wrong checksums were taken": counters.get("bad_body", 0) >= scanner.mischief["wrong crc"],
        "threads are left": report["after"]["threads"] == report["before"]["threads"],
        "files are left open": report["after"].get("files") == report["before"].get("files"),
        f"memory grew by {growth['memory_mb']:.0f} MB": growth["memory_mb"] <= MOST_GROWTH_MB,
    }
    return [what for what, good in checks.items() if not good]


def _fail_sometimes(update: Update) -> None:
    if update.number % 13 == 0:
        raise LinkLostError("a listener that fails on purpose")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--size", type=int, nargs=2, default=(64, 48), help="pixels in x and y")
    parser.add_argument("--rate", type=float, default=50.0, help="frames per second")
    options = parser.parse_args()
    width, height = options.size
    report = soak(
        options.minutes * 60,
        seed=options.seed,
        shape=(height, width),
        rate_hz=options.rate,
        say=lambda line: print(json.dumps(line), flush=True),
    )
    print(json.dumps(report, indent=2))
    return 1 if report["violations"] else 0


if __name__ == "__main__":
    sys.exit(main())
