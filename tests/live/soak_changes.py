"""A stream that changes with every picture: sizes, pixels, colours, kinds of numbers; a person answers at random.

    python tests/live/soak_changes.py --minutes 10

The scanner is a server of its own; pictures are located by the model of the package in a small volume, published,
recorded and packed for pages. In the end the stream is steady for a while, and must be located. What must not happen is
listed under `violations`; the exit status is 1 if anything is.
"""

from __future__ import annotations

import argparse
import gc
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyigtl
import torch
from ledger import resources
from peers import QUICK, Listening, wait_until

from scopereg import Frame, Pose, Volume
from scopereg.errors import ScopeRegError
from scopereg.live.loop import Loop, Update
from scopereg.live.messages import image_message, pack
from scopereg.live.pixel_sizes import PixelSizes
from scopereg.live.publish import Publisher
from scopereg.live.scene import Plan, Scene
from scopereg.live.server import Server
from scopereg.live.sources import Reading, open_source
from scopereg.registration.result import WaitingError
from scopereg.viewer.live_show import LiveShow, Rooms

SIZES = ((1, 1), (300, 1), (1, 300), (2, 2), (33, 17), (64, 48), (80, 60), (96, 72), (128, 128), (320, 240), (640, 480))
HUGE, NAME = (2200, 1600), "Image_Reference"
PIXELS_MM = (1.0, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.8, 1e-4, 90.0)  # 1 mm: nobody said it
KINDS = ("grey", "grey", "grey", "colour", "uint16", "float32", "black", "negative")
STEADY = (64, 48), 0.8
STEADY_FRAMES, RATE_HZ = 400, 40.0
MOST_SHARE = 0.7  # of the time that may go into preparing
LARGEST_RECORDING, MOST_LEFT_MB = 2**26, 30.0  # when all is over; until then a few prepared volumes are in memory


class Scanner:
    """Sends pictures of which none is like the one before, then the same size all the time."""

    def __init__(self, seed: int, wild_s: float) -> None:
        self.sent: Counter[str] = Counter()
        self.steady = threading.Event()
        self._random, self._wild_s = random.Random(seed), wild_s
        self._draw = np.random.default_rng(seed)
        self._stop = threading.Event()
        self._listening = Listening()
        self.port = self._listening.port
        self._thread = threading.Thread(target=self._run, name="soak-scanner", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        self._thread.join()
        self._listening.close()

    def _run(self) -> None:
        with self._listening.accept(10.0) as connected, suppress(OSError):
            until_s = time.monotonic() + self._wild_s
            while time.monotonic() < until_s and not self._stop.is_set():
                connected.sendall(self._wild())
                self._stop.wait(self._random.uniform(0.2, 1.8) / RATE_HZ)
            self.steady.set()
            size, pixel_mm = STEADY
            while not self._stop.is_set():
                connected.sendall(self._picture(size, pixel_mm, "grey"))
                self._stop.wait(1 / RATE_HZ)

    def _wild(self) -> bytes:
        size = HUGE if self._random.random() < 0.005 else self._random.choice(SIZES)
        return self._picture(size, self._random.choice(PIXELS_MM), self._random.choice(KINDS))

    def _picture(self, size: tuple[int, int], pixel_mm: float, kind: str) -> bytes:
        self.sent[kind] += 1
        shape = size[::-1]
        if kind in ("colour", "uint16"):
            shape = (*shape, 3) if kind == "colour" else shape
            values = self._draw.integers(0, 256, shape, dtype=np.uint8)
            values = values if kind == "colour" else values.astype(np.uint16) * 200
            matrix = np.diag([-pixel_mm, -pixel_mm, pixel_mm, 1])
            content = pyigtl.ImageMessage(values[None], matrix, "ras")._pack_content()
            return pack("IMAGE", NAME, content)
        grey = self._draw.random(shape, dtype=np.float32)
        scale = {"black": 0.0, "negative": -3.0, "float32": 900.0}.get(kind, 1.0)
        return image_message(Frame(grey * scale, pixel_mm, (0, 0)), Pose.identity("Image", "Reference"), name=NAME)


class Timed:
    """What is prepared, and how long that takes."""

    def __init__(self, target: Any) -> None:
        self._target, self.each_s = target, list[float]()

    def is_ready(self, frame: Frame) -> bool:
        return bool(self._target.is_ready(frame))

    def get_ready(self, frame: Frame) -> None:
        begin_s = time.monotonic()
        try:
            self._target.get_ready(frame)
        finally:
            self.each_s.append(time.monotonic() - begin_s)

    def share(self, elapsed_s: float) -> float:
        """Of the time after the first, which everything waits for."""
        first_s = self.each_s[0] if self.each_s else 0.0
        return (sum(self.each_s) - first_s) / max(elapsed_s - first_s, 1e-3)


def soak(wild_s: float, *, seed: int = 0, steady_s: float = 60.0) -> dict[str, Any]:
    """Run for so long, then until the steady stream is located; what happened, and `violations`."""
    torch.set_num_threads(1)
    before, tensors_before_mb = resources(), tensors_mb()
    with tempfile.TemporaryDirectory() as folder:
        report = streamed(wild_s, seed, steady_s, Path(folder))
    wrong = report.pop("wrong")
    ended = wait_until(lambda: resources()["threads"] == before["threads"], 15)
    report["tensors_left_mb"] = round(tensors_mb() - tensors_before_mb, 1)
    counters, updates = report["counters"], sum(report["states"].values())
    counted = counters["registered"] + counters.get("failed", 0) + counters.get("waiting", 0)
    checks = {
        "updates are unaccounted for": abs(counted - updates) <= 1,
        "a listener failed": "listener_errors" not in counters,
        "the watch failed": "watch_errors" not in counters,
        "results were not published": "publish_errors" not in report["publisher"],
        f"{report['preparing_share']:.0%} of the time went into preparing": report["preparing_share"] <= MOST_SHARE,
        "nothing was ever located": report["states"].get("found", 0) > 0,
        "no change was counted": counters.get("changes", 0) > 0,
        "recordings are missing": report["recorded"] > 1,
        "threads are left": ended,
        f"{report['tensors_left_mb']} MB of tensors are left": report["tensors_left_mb"] <= MOST_LEFT_MB,
        f"{report['kept']} volumes were kept at once": report["kept"] <= 4,
    }
    return {**report, "violations": [*(what for what, good in checks.items() if not good), *wrong]}


def streamed(wild_s: float, seed: int, steady_s: float, folder: Path) -> dict[str, Any]:
    """All that takes part in a stream, from its start to its end; what happened, and what was `wrong` at once."""
    values = np.random.default_rng(0).random((24, 32, 32), dtype=np.float32)
    sizes, people, wrong = PixelSizes(), random.Random(seed), list[str]()
    scene = Scene(Volume(values, 1.6), "noise", Plan(device="cpu"))
    timed = scene.preparation._target = Timed(scene.locator)  # type: ignore[assignment]
    numbers, states, located = list[int](), Counter[str](), threading.Event()

    def listen(update: Update) -> None:
        waits = "waits" if isinstance(update.error, WaitingError) else "not"
        states["found" if update.result is not None else waits] += 1
        numbers.append(update.number)
        if scanner.steady.is_set() and update.frame.size == STEADY[0] and update.result is not None:
            located.set()

    with Server(port=0, timing=QUICK) as server:
        scanner, publisher = Scanner(seed, wild_s), Publisher(server, cut=True)
        source = open_source(f"igtl://127.0.0.1:{scanner.port}", Reading(sizes=sizes), timing=QUICK)
        loop = Loop(source, scene.register, [publisher, listen], sizes=sizes, measure=scene.fitting_pixels)
        show = LiveShow(loop, scene, lambda *_: scene, Rooms(folder))
        loop.listen(show)
        recorder = loop.record(folder / "wild.igs.mha")
        recorder._largest_bytes = LARGEST_RECORDING
        begin_s = time.monotonic()
        try:
            loop.start()
            while not scanner.steady.wait(0.2):
                wrong += [text for text in (_page(show), _person(sizes, people)) if text]
            kept = len(scene.locator.prepared._volumes._made)  # type: ignore[attr-defined]
            preparing = timed.share(time.monotonic() - begin_s)
            if not located.wait(steady_s):
                wrong.append("the steady stream was never located")
        finally:
            scanner.close()
            recorded = loop.end_recording()
            loop.stop()
            show.close()
            publisher.close()
    if numbers != list(range(1, len(numbers) + 1)):
        wrong.append("updates are out of order")
    return {
        "sent": dict(scanner.sent),
        "states": dict(states),
        "counters": loop.counters(),
        "publisher": publisher.counters.snapshot(),
        "prepared": len(timed.each_s),
        "preparing_share": preparing,
        "kept": kept,
        "recorded": sum(path.exists() for path in set(recorded)),
        "left_out": recorder.left_out,
        "wrong": wrong,
    }


def tensors_mb() -> float:
    """What tensors of this process hold; memory that the system was not given back says nothing."""
    gc.collect()
    kept = {
        each.untyped_storage().data_ptr(): each.untyped_storage().nbytes()
        for each in gc.get_objects()
        if type(each) in (torch.Tensor, torch.nn.Parameter)
    }
    return sum(kept.values()) / 2**20


def _page(show: LiveShow) -> str:
    """What a page asks all the time."""
    try:
        show.state()
        show.packet()
    except Exception as error:
        return f"a page saw {type(error).__name__}: {error}"
    return ""


def _person(sizes: PixelSizes, people: random.Random) -> str:
    """Answers now and then, also what nobody asked."""
    try:
        if people.random() < 0.3:
            number = None if sizes.question is None else sizes.question.number
            if people.random() < 0.3:
                sizes.keep(number)
            else:
                pixel_mm = people.choice((0.2, 0.4, 0.8))
                sizes.tell((pixel_mm, pixel_mm), number)
    except ScopeRegError:
        return ""  # it was asked no more
    except Exception as error:
        return f"an answer led to {type(error).__name__}: {error}"
    return ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    report = soak(60 * options.minutes, seed=options.seed)
    for name, value in report.items():
        print(f"{name}: {value if value != [] else 'none'}")
    return 1 if report["violations"] else 0


if __name__ == "__main__":
    sys.exit(main())
