"""A stream with everything that goes wrong in a network, for as long as you like; nothing may be lost or leak.

    python tests/live/soak.py --minutes 30

A scanner sends frames, garbage, wrong checksums and giant sizes, hangs in the middle of a message, closes, dies and
comes back. The loop registers what arrives and publishes it to clients that come and go. At the end every good frame
that a live connection carried must have arrived, every frame that was taken must have reached every listener, clients
must have seen only poses that belong to their frames, and threads, open files and memory must be what they were.
"""

from __future__ import annotations

import argparse
import platform
import random
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from scopereg import Frame, Pose, __version__
from scopereg.live.connection import Connection
from scopereg.live.link import LinkLostError
from scopereg.live.loop import Loop, Update
from scopereg.live.messages import Message, image_message, pack, pose_of
from scopereg.live.publish import Publisher
from scopereg.live.server import Server
from scopereg.live.sources import IgtlSource
from scopereg.registration.result import RegistrationError, Result

sys.path.append(str(Path(__file__).parent))
from ledger import Numbers, Told, resources
from peers import QUICK, Listening, garbage, giant, kill, wait_until, wrong_crc

TIMING = replace(QUICK, stall_s=1.0, keep_alive_s=0.5)
BEFORE_DEATH_S = 1.0  # a reset may destroy what the other end has not read yet
ON_THEIR_WAY_S = 10.0  # for the last frames, on a busy machine
MOST_GROWTH_MB = 8.0  # after the first minute; what it is without any leak, and some for the allocator
SAMPLE_S = 60.0
FAILS_EVERY = 13  # updates, a listener that fails on purpose


@dataclass
class Scanner:
    """Sends numbered frames (the number is the time stamp) and mischief.

    `due` are frames that must have arrived, `spoilt` those that must not have.
    """

    seed: int
    shape: tuple[int, int]
    rate_hz: float
    port: int = 0
    accepted: int = 0
    number: int = 0
    due: Numbers = field(default_factory=Numbers)
    spoilt: Numbers = field(default_factory=Numbers)
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
                connected.sendall(self._spoilt_frame()[: self._random.randrange(1, 200)])
            if end == "hang":
                self._wait_for_end(connected)
        except OSError:
            self.mischief["hung up on"] += 1
            end = "kill"
        lost_s = time.monotonic() - BEFORE_DEATH_S if end == "kill" else float("inf")
        for sent_s, number in sent:
            if sent_s < lost_s:
                self.due.add(number)
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
            "wrong crc": lambda: wrong_crc(self._spoilt_frame()),
            "giant": lambda: giant(self._spoilt_frame()),
            "unknown": lambda: pack("POLYDATA", "Mesh", b"\x00" * 40),
            "unplaced": lambda: image_message(Frame(self._pixels, 1.0, (0, 0)), name="Image_Reference", time_s=0.5),
        }
        connected.sendall(bad[kind]())

    def _spoilt_frame(self) -> bytes:
        """A frame that is not sent as it is."""
        packed = self._frame(1)
        self.spoilt.add(self.number)
        return packed

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
        self.numbers = Numbers()

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


def soak(
    duration_s: float,
    *,
    seed: int = 0,
    shape: tuple[int, int] = (48, 64),
    rate_hz: float = 50.0,
    say: Callable[[dict[str, Any]], None] | None = None,
    beside: Callable[[Loop], AbstractContextManager[list[str]]] | None = None,
) -> dict[str, Any]:
    """Run for so long; what happened, and under `violations` what must not have.

    `beside` is more that uses the loop, such as `soak_pages.visited`, and says in the end what went wrong there.
    """
    before = resources()
    told, samples = Told(), []
    with Server(port=0, timing=TIMING) as server, ExitStack() as stack:
        scanner, visitors = Scanner(seed, shape, rate_hz), Visitors(server.port, seed)
        source, publisher = Tapped(scanner.port), Publisher(server)
        loop = Loop(source, locate, [publisher, told, _fail_sometimes])
        wrong = stack.enter_context(beside(loop)) if beside is not None else []
        try:
            for part in (loop, scanner, visitors):
                part.start()
            begin_s = time.monotonic()
            while (now_s := time.monotonic()) < begin_s + duration_s:
                time.sleep(min(0.2, duration_s / 10))
                if now_s >= begin_s + min(SAMPLE_S, duration_s / 4) * (len(samples) + 1):
                    samples.append({"s": round(now_s - begin_s), **resources(), **loop.counters()})
                    if say is not None:
                        say(samples[-1])
        finally:
            scanner.close()
            wait_until(lambda: not scanner.due.missing_in(source.numbers), ON_THEIR_WAY_S)
            time.sleep(0.3)  # for what must not arrive
            loop.stop()
            publisher.close()
            visitors.close()
    report = {
        "duration_s": duration_s,
        "frames_sent": scanner.number,
        "frames_due": len(scanner.due),
        "frames_missing": scanner.due.missing_in(source.numbers),
        "frames_spoilt": len(scanner.spoilt),
        "frames_spoilt_taken": scanner.spoilt.found_in(source.numbers),
        "connections_accepted": scanner.accepted,
        "updates": told.count,
        "updates_in_order": told.in_order,
        "mischief": dict(scanner.mischief),
        "counters": loop.counters(),
        "publisher": {**publisher._mailbox.counters(), **publisher.counters.snapshot()},
        "server": server.counters.snapshot(),
        "clients_left": server.client_count,
        "visitors": dict(visitors.seen),
        "before": before,
        "growth_mb": round(max(each.get("memory_mb", 0) - samples[0].get("memory_mb", 0) for each in samples), 1),
        "after": resources(),
    }
    return {**report, "violations": [*violations(report, scanner, visitors), *wrong]}


def violations(report: dict[str, Any], scanner: Scanner, visitors: Visitors) -> list[str]:
    """What must not happen, in words."""
    counters, published, updates = report["counters"], report["publisher"], report["updates"]
    waiting = counters["arrived"] - counters["taken"] - counters["dropped"]
    # A scanner that goes away may leave a connection in the queue of its port that it has not accepted. One that it
    # accepts at the very end is reset before the source looks at it, and counts as refused.
    unheard = counters["connected"] - scanner.accepted
    checks = {
        f"{report['frames_missing']} frames were lost": report["frames_missing"] == 0,
        "frames are unaccounted for": waiting in (0, 1),
        "a frame that was taken has no update": counters["taken"] - counters.get("bad_frames", 0) == updates,
        "updates are out of order": report["updates_in_order"],
        "results are unaccounted for": counters["registered"] + counters["failed"] == updates,
        "a listener that failed kept others from hearing": counters.get("listener_errors", 0) == updates // FAILS_EVERY,
        "the publisher was not told of every update": published["arrived"] == updates,
        "updates were not published": published["taken"] == published.get("published", 0),
        "the publisher lost updates": published["arrived"] == published["taken"] + published["dropped"],
        "connections are unaccounted for": -1 <= unheard <= scanner.mischief["restart"],
        "clients are left": report["clients_left"] == 0,
        f"wrong poses: {visitors.wrong[:3]}": not visitors.wrong,
        "no client saw a pose": visitors.seen["TRANSFORM"] > 0,
        "frames that were spoilt were taken": report["frames_spoilt_taken"] == 0,
        "threads are left": report["after"]["threads"] == report["before"]["threads"],
        "files are left open": report["after"].get("files") == report["before"].get("files"),
        f"memory grew by {report['growth_mb']:.0f} MB": report["growth_mb"] <= MOST_GROWTH_MB,
    }
    return [what for what, good in checks.items() if not good]


def _fail_sometimes(update: Update) -> None:
    if update.number % FAILS_EVERY == 0:
        raise LinkLostError("a listener that fails on purpose")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--size", type=int, nargs=2, default=(64, 48), help="pixels in x and y")
    parser.add_argument("--rate", type=float, default=50.0, help="frames per second")
    parser.add_argument("--pages", action="store_true", help="with pages of the viewer that come and go")
    options = parser.parse_args()
    width, height = options.size
    print(f"scopereg {__version__}, Python {platform.python_version()}, {platform.system()} {platform.machine()}")
    print(
        f"{options.minutes:g} minutes, frames of {width} x {height} at {options.rate:g}/s, seed {options.seed}"
        + (", with pages of the viewer" if options.pages else ""),
        flush=True,
    )
    beside = None
    if options.pages:
        from soak_pages import visited as beside  # needs the viewer's libraries
    report = soak(
        options.minutes * 60, seed=options.seed, shape=(height, width), rate_hz=options.rate, say=_say, beside=beside
    )
    for name, value in report.items():
        print(f"{name}: {value if value != [] else 'none'}")
    return 1 if report["violations"] else 0


def _say(sample: dict[str, Any]) -> None:
    """One line of the log."""
    counted = ("arrived", "dropped", "registered", "failed", "connected", "lost", "bad_header", "bad_body", "stalled")
    used = f"{sample.get('memory_mb', 0):6.1f} MB {sample['threads']:3} threads {sample.get('files', 0):3} files"
    print(f"{sample['s']:5} s {used}  " + ", ".join(f"{sample.get(name, 0)} {name}" for name in counted), flush=True)


if __name__ == "__main__":
    sys.exit(main())
