"""What a frame and a step of training take beside other processes that want the cores, by who chooses the threads.

    python benchmarks/busy.py --out benchmarks/busy.csv

Ways: `plain` is PyTorch by itself, as many threads as cores, which spin while they wait; `one` is OMP_NUM_THREADS=1;
`watched` is what ships (`scopereg.threads`). Each runs in processes of its own, in turn, beside 0, 1, ... busy loops.
`x_quiet` is the median beside that of the same way with no loop; `others` is what everybody else used of the cores
meanwhile, the loops included: with none it should be near 0, or the machine was not quiet.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

WAYS = ("plain", "one", "watched")
WORKS = ("network", "refined", "training")
_CHOICES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS", "OMP_WAIT_POLICY", "GOMP_SPINCOUNT")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/busy.csv"))
    parser.add_argument("--loops", type=int, nargs="+", default=[0, 2], help="busy processes beside it; 0 is quiet")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=6.0, help="for each work of each process")
    parser.add_argument("--limit", type=float, default=150.0, help="seconds after which a process is ended")
    parser.add_argument("--child", choices=WAYS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        work_on(options.child, options.seconds)
        return
    from scopereg.cores import usable_cores
    from scopereg.io.files import write_sheet

    found: dict[tuple[int, str], list[dict[str, Any]]] = {}
    for round_ in range(options.rounds):
        for loops in options.loops:
            with busy(loops):
                for way in WAYS[round_ % 3 :] + WAYS[: round_ % 3]:
                    found.setdefault((loops, way), []).extend(measure(way, options.seconds, options.limit))
    rows = list(table(found, usable_cores()))
    for row in rows:
        print(row)
    write_sheet(options.out, rows)


@contextmanager
def busy(count: int) -> Iterator[None]:
    """So many processes that do nothing but take their time."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def measure(way: str, seconds: float, limit: float) -> list[dict[str, Any]]:
    """What a process of its own measured until it ended, or was ended."""
    environment = {name: value for name, value in os.environ.items() if name not in _CHOICES}
    if way == "one":
        environment["OMP_NUM_THREADS"] = "1"
    command = [sys.executable, __file__, "--child", way, "--seconds", str(seconds)]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    try:
        said, _ = child.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        child.kill()
        said, _ = child.communicate()
    return [json.loads(line) for line in said.splitlines() if line.endswith("}")]


def table(found: dict[tuple[int, str], list[dict[str, Any]]], cores: int) -> Iterator[dict[str, Any]]:
    quiet: dict[tuple[str, str], float] = {}
    for (loops, way), measured in sorted(found.items(), key=lambda item: item[0][0]):
        for work in WORKS:
            rows = [row for row in measured if row["work"] == work]
            times = [row["ms"] for row in rows]
            median = statistics.median(times) if times else float("nan")
            if loops == 0:
                quiet[way, work] = median
            first = quiet.get((way, work), float("nan"))
            yield {
                "cores": cores,
                "loops": loops,
                "way": way,
                "work": work,
                "times": len(times),
                "median_ms": round(median, 1),
                "worst_ms": round(max(times), 1) if times else "",
                "threads": round(statistics.mean(row["threads"] for row in rows), 2) if rows else "",
                "others": round(statistics.mean(row["others"] for row in rows), 2) if rows else "",
                "x_quiet": round(median / first, 2),
            }


def work_on(way: str, seconds: float) -> None:
    """In a process of its own: a line for each frame and each step."""
    from scopereg import threads
    from scopereg.cores import Load, usable_cores

    if way == "plain":  # as before there was anybody to choose
        threads._most = lambda before: None
        threads._let_waits_sleep = lambda: None
    works = made()
    for name in WORKS:
        work, load = works[name](), Load()
        if way != "plain":
            work()  # the first sets libraries up
        end = time.monotonic() + seconds
        while True:
            begin = time.perf_counter()
            used = work()
            ms = (time.perf_counter() - begin) * 1e3
            free = load.free()
            others = float("nan") if free is None else usable_cores() - free
            print(json.dumps({"work": name, "ms": ms, "threads": used, "others": others}), flush=True)
            if time.monotonic() >= end:
                break


def made() -> dict[str, Callable[[], Callable[[], int]]]:
    """What makes each work, which returns the number of threads that it had."""
    import torch

    from scopereg import networks
    from scopereg.commands.demo import DemoOptions, make_sweep
    from scopereg.registration.locator import Locator
    from scopereg.threads import watched

    every = torch.get_num_threads()
    torch.set_num_threads(1)  # what is made beforehand is not measured, and plainly it would take minutes
    sweep = make_sweep(DemoOptions(frames=1))
    torch.set_num_threads(every)

    def locating(method: str) -> Callable[[], Callable[[], int]]:
        def make() -> Callable[[], int]:
            locator = Locator(sweep.volume, method)

            @watched()
            def locate() -> int:
                locator.locate(sweep.frames[0])
                return torch.get_num_threads()

            return locate

        return make

    def training() -> Callable[[], int]:
        network = networks.create("scope-reg").train()
        slices, volumes = torch.rand(2, 64, 64), torch.rand(1, 32, 64, 64)

        @watched(steady=True)
        def step() -> int:
            network(slices, volumes.expand(2, -1, -1, -1)).translation.square().sum().backward()
            return torch.get_num_threads()

        return step

    return {"network": locating("universal"), "refined": locating("universal+refine"), "training": training}


if __name__ == "__main__":
    main()
