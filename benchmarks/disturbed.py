"""Trainings that are killed, stopped, damaged and disturbed; each must end bit for bit as one that was left alone.

    python benchmarks/disturbed.py -o benchmarks/disturbed.csv

A small training on a CPU, forked from this process for every try: killed at random moments and at the worst ones
(half way through a file, between two files), stopped by Ctrl-C and SIGTERM, refused where a file was damaged, beside a
second one, on a full disk. Then the same call again, until it has finished. Weights, average, optimiser and the kept
model are compared with those of a run that nobody disturbed. The status is 1 where one differs.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors.torch import load_file

from scopereg.data.phantom.sets import make_phantoms
from scopereg.data.store import VolumeSet
from scopereg.errors import ScopeRegError
from scopereg.interruption import Terminated
from scopereg.io import tensors as tensor_files
from scopereg.io.files import write_sheet
from scopereg.training.checkpoint import read_checkpoint
from scopereg.training.fitting import Machine, Training, train
from scopereg.training.folder import CHECKPOINT, MODEL, RUN, TrainFolder
from scopereg.training.loop import Loop
from scopereg.training.settings import TrainSettings

SETTINGS = TrainSettings(
    epochs=8, batch=4, frames_per_volume=2, magnitude=3.0, warmup=2, validate_every=3, learning_rate=1e-3, average=0.5
)  # 14 steps, validated after 3, 6, 9, 12 and 14
RANDOM_KILLS = 10
REFUSED, FAILED = 2, 3  # status of a try


class Outcome(NamedTuple):
    """How a disturbed run went; one row of the table."""

    disturbance: str
    first_ended: str  # status or signal of the try that was disturbed
    said: str
    tries: int
    bit_equal: bool


class Attempt(NamedTuple):
    """A forked training that has ended."""

    status: int  # minus the signal, where one ended it
    said: str


def attempt(
    volumes: VolumeSet,
    folder: Path,
    prepare: Callable[[], object] = lambda: None,
    meanwhile: Callable[[int], object] = lambda process: None,
) -> Attempt:
    """Train in a fork, which calls `prepare` first; `meanwhile(process)` happens here while it works."""
    read, write = os.pipe()
    process = os.fork()  # imports take longer than the run
    if process == 0:
        status, said = 1, ""
        try:
            prepare()
            result = train(volumes, SETTINGS, folder, Machine("cpu"), quiet=True)
            status = 0 if result["finished"] else 128 + signal.Signals[result["ended_by"]]
        except ScopeRegError as error:
            status, said = REFUSED, f"{Path(error.where).name}: {error.what}"
        except (KeyboardInterrupt, OSError, MemoryError) as error:
            status, said = 143 if isinstance(error, Terminated) else FAILED, type(error).__name__
        finally:
            os.write(write, said.encode()[:2000])
            os._exit(status)
    os.close(write)
    meanwhile(process)
    ended = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    with os.fdopen(read, "rb") as pipe:
        return Attempt(ended, pipe.read().decode())


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def at_step(number: int, action: Callable[[], object]) -> None:
    """In this process, before a step."""
    original = Loop._step

    def step(loop: Loop) -> None:
        if loop.state.step == number:
            action()
        original(loop)

    Loop._step = step  # type: ignore[method-assign]


def half_written(name: str, nth: int) -> None:
    """Die half way through the nth writing of a file."""
    original, count = tensor_files.save_file, [0]

    def save(tensors: Any, path: Path, header: Any) -> None:
        original(tensors, path, header)
        count[0] += Path(name).suffix == path.suffix
        if count[0] == nth:
            os.truncate(path, path.stat().st_size // 2)
            die()

    tensor_files.save_file = save


def before(owner: type, method: str, nth: int) -> None:
    """Die just before the nth call of a method."""
    original, count = getattr(owner, method), [0]

    def called(*given: Any, **named: Any) -> Any:
        count[0] += 1
        if count[0] == nth:
            die()
        return original(*given, **named)

    setattr(owner, method, called)


def signals(*numbers: int) -> Callable[[], None]:
    """Signals to this process, one right after the other."""

    def send() -> None:
        for number in numbers:
            os.kill(os.getpid(), number)

    return send


def full_disk() -> None:
    """Files cannot grow beyond fifty megabytes: weights fit, checkpoints do not."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000_000, resource.RLIM_INFINITY))


def no_memory() -> None:
    raise torch.OutOfMemoryError("out of memory")


IN_PROCESS: dict[str, Callable[[], object]] = {
    "kill -9 before the first step": lambda: at_step(0, die),
    "kill -9 before the first validation": lambda: at_step(2, die),
    "kill -9 in the step after a checkpoint": lambda: at_step(3, die),
    "kill -9 before the last step": lambda: at_step(13, die),
    "kill -9 half way through the first checkpoint": lambda: half_written(CHECKPOINT, 1),
    "kill -9 half way through the third checkpoint": lambda: half_written(CHECKPOINT, 3),
    "kill -9 half way through the weights": lambda: half_written(MODEL, 1),
    "kill -9 between validation and curve": lambda: before(TrainFolder, "extend_curve", 2),
    "kill -9 between curve and checkpoint": lambda: before(TrainFolder, "keep", 2),
    "kill -9 between the last checkpoint and run.json": lambda: before(Training, "report", 1),
    "Ctrl-C": lambda: at_step(4, signals(signal.SIGINT)),
    "Ctrl-C twice": lambda: at_step(7, signals(signal.SIGINT, signal.SIGINT)),
    "SIGTERM": lambda: at_step(4, signals(signal.SIGTERM)),
    "SIGTERM before the first validation": lambda: at_step(1, signals(signal.SIGTERM)),
    "SIGTERM twice": lambda: at_step(7, signals(signal.SIGTERM, signal.SIGTERM)),
    "SIGTERM and kill -9": lambda: at_step(7, signals(signal.SIGTERM, signal.SIGKILL)),
    "a full disk": lambda: at_step(4, full_disk),
    "no memory": lambda: at_step(8, no_memory),
}


def flip_a_byte(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) * 2 // 3] ^= 0x10
    path.write_bytes(content)


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size * 2 // 3)


DAMAGE: dict[str, tuple[str, Callable[[Path], object]]] = {
    "a flipped bit in last.ckpt": (CHECKPOINT, flip_a_byte),
    "last.ckpt cut": (CHECKPOINT, cut),
    "metrics.csv cut": ("log/metrics.csv", cut),
    "a number changed in metrics.csv": (
        "log/metrics.csv",
        lambda path: path.write_text(path.read_text().replace("0.", "1.", 1)),
    ),
    "run.json cut": (RUN, cut),
    "a word changed in run.json": (
        RUN,
        lambda path: path.write_text(path.read_text().replace('"finished": false', '"finished": true')),
    ),
}


class Disturbances:
    """All of them, on one set of volumes, against one run that was left alone."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.volumes = make_phantoms("echo", 10, shape=(16, 24, 24), frames=0)
        begin = time.monotonic()
        assert attempt(self.volumes, place / "whole").status == 0
        self.seconds = time.monotonic() - begin
        self.whole = kept(place / "whole")

    def all(self) -> Iterator[Outcome]:
        for name, prepare in IN_PROCESS.items():
            yield self.disturbed(name, lambda folder, how=prepare: attempt(self.volumes, folder, how))
        for name, (file, damage) in DAMAGE.items():
            yield self.disturbed(name, lambda folder, which=file, how=damage: self.damaged(folder, which, how))
        moments = random.Random(0)
        for _ in range(RANDOM_KILLS):
            after = moments.uniform(0.05, 0.95) * self.seconds
            yield self.disturbed(f"kill -9 after {after / self.seconds:.0%} of the run", self.killed_after(after))
        yield self.disturbed("kill -9 three times", self.killed_thrice)
        yield self.disturbed("a second training in the folder", self.second)

    def killed_after(self, seconds: float) -> Callable[[Path], Attempt]:
        def kill(process: int) -> None:
            time.sleep(seconds)
            os.kill(process, signal.SIGKILL)

        return lambda folder: attempt(self.volumes, folder, meanwhile=kill)

    def killed_thrice(self, folder: Path) -> Attempt:
        for step in (4, 7, 10):
            ended = attempt(self.volumes, folder, lambda number=step: at_step(number, die))
        return ended

    def damaged(self, folder: Path, file: str, damage: Callable[[Path], object]) -> Attempt:
        """Interrupted, then a file is damaged: the next call must refuse. Afterwards the file is put back."""
        attempt(self.volumes, folder, lambda: at_step(7, signals(signal.SIGINT)))
        path, safe = folder / file, folder.with_suffix(".safe")
        shutil.copy(path, safe)
        damage(path)
        ended = attempt(self.volumes, folder)
        shutil.move(safe, path)
        return ended

    def second(self, folder: Path) -> Attempt:
        """While one trains another is begun; it must be refused, the first goes on."""
        found: list[Attempt] = []

        def begin_another(process: int) -> None:
            while not (folder / CHECKPOINT).exists():
                time.sleep(0.01)
            found.append(attempt(self.volumes, folder))

        assert attempt(self.volumes, folder, lambda: at_step(6, lambda: time.sleep(1)), begin_another).status == 0
        return found[0]

    def disturbed(self, name: str, disturb: Callable[[Path], Attempt]) -> Outcome:
        """One run: disturbed, then called again until it has finished."""
        folder = self.place / "disturbed"
        first, tries, last = disturb(folder), 1, Attempt(1, "")
        while last.status != 0 and tries < 5:
            last, tries = attempt(self.volumes, folder), tries + 1
        left = [path.name for path in folder.iterdir() if path.name not in {MODEL, CHECKPOINT, RUN, "log"}]
        equal = last.status == 0 and not left and same(kept(folder), self.whole)
        shutil.rmtree(folder)
        word = signal.Signals(-first.status).name if first.status < 0 else f"status {first.status}"
        return Outcome(name, word, first.said or last.said, tries, equal)


def kept(folder: Path) -> dict[str, Any]:
    """All that decides how a run goes on, and what it gives."""
    content = read_checkpoint(folder / CHECKPOINT)
    report = json.loads((folder / RUN).read_text())
    steps = [line.rpartition(",")[2] for line in (folder / "log" / "metrics.csv").read_text().splitlines()]
    parts = {name: content[name] for name in ("network", "average", "optimizer")}
    return {**parts, "model": load_file(folder / MODEL), "finished": report["finished"], "validated": steps}


def same(one: Any, other: Any) -> bool:
    """Whether two are equal bit by bit."""
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(same(*pair) for pair in zip(one, other, strict=True))
    return bool(one == other)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, default=Path("out/disturbed.csv"))
    given = parser.parse_args()
    torch.set_num_threads(1)
    outcomes: list[Outcome] = []
    with tempfile.TemporaryDirectory() as place, contextlib.suppress(BrokenPipeError):
        for outcome in Disturbances(Path(place)).all():
            print("  ".join(map(str, outcome)), flush=True)
            outcomes.append(outcome)
    write_sheet(given.output, [outcome._asdict() for outcome in outcomes])
    wrong = [outcome for outcome in outcomes if not outcome.bit_equal]
    print(f"{len(outcomes) - len(wrong)} of {len(outcomes)} disturbed trainings ended bit for bit as one left alone")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
