"""Frames per second that a browser shows of `scopereg live`: `python benchmarks/screen.py --out benchmarks/screen.csv`.

A phantom sweep of 25 frames per second is replayed, located by a network, and drawn by a Chromium without a window on
the same cores; where there is no graphics card it draws in software. `lag_ms` is from the arrival of a message in the
page to its picture on the canvases: numbers and picture are of one message, so nothing else can lag.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import torch
from playwright.sync_api import sync_playwright

from scopereg import io
from scopereg.data import phantom
from scopereg.data.poses import sample_sweep
from scopereg.images import Frame, pose_from_voxels
from scopereg.io.files import write_sheet
from scopereg.io.plus_sequence import write_plus_sequence
from scopereg.provenance import library_versions
from scopereg.registration.settings import DEFAULT

RATE_HZ, FRAMES = 25, 100
WARM_UP = 75  # updates
NAMES = ("chromium", "chromium-browser", "google-chrome")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".csv"))
    parser.add_argument("--seconds", type=float, default=20.0, help="of each measurement")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--methods", nargs="+", default=[DEFAULT], help="as those of scopereg live")
    arguments = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        volume, sweep = make_sweep(Path(folder))
        for method in arguments.methods:
            with served(volume, sweep, method) as address:
                for _ in range(arguments.repeats):
                    rows.append({"method": method, **shown(address, arguments.seconds), **machine()})
                    print(rows[-1], flush=True)
    write_sheet(arguments.out, rows)


def make_sweep(folder: Path) -> tuple[Path, Path]:
    """A volume and frames of the same patient, acquired anew."""
    patient = phantom.create("echo", seed=7)
    poses = sample_sweep(FRAMES, 10.0, patient.shape, torch.Generator().manual_seed(1))
    images = patient.acquire(*poses, protocol="honest", seed=3).images
    frames = [Frame(image, spacing_mm=patient.spacing_mm) for image in images]
    places = [pose_from_voxels(*pose, frame, patient.volume) for *pose, frame in zip(*poses, frames, strict=True)]
    volume, sweep = folder / "volume.nii.gz", folder / "sweep.igs.mha"
    io.write_volume(patient.volume, volume)
    write_plus_sequence(frames, places, sweep, times_s=[n / RATE_HZ for n in range(FRAMES)])
    return volume, sweep


@contextmanager
def served(volume: Path, sweep: Path, method: str) -> Iterator[str]:
    """`scopereg live` as its users start it; the address of its page."""
    words = ["live", str(volume), "--source", f"plus:{sweep}", "--loop", "--method", method, "--no-open", "--no-igtl"]
    command = [sys.executable, "-u", "-m", "scopereg.cli", *words, "--port", "0"]
    with tempfile.TemporaryFile("w+") as said, subprocess.Popen(command, stdout=said, stderr=said) as process:
        try:
            yield address_in(said, process)
        finally:
            process.send_signal(signal.SIGTERM)


def address_in(said: IO[str], process: subprocess.Popen[bytes]) -> str:
    """What a server prints when it is ready."""
    while process.poll() is None:
        time.sleep(0.2)
        said.seek(0)
        if found := re.search(r"http://\S+", said.read()):
            return found[0]
    said.seek(0)
    raise SystemExit(said.read())


def shown(address: str, seconds: float) -> dict[str, object]:
    """What a page draws in so many seconds."""
    browser_path = next(path for name in NAMES if (path := shutil.which(name)))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=browser_path, args=["--no-sandbox", "--enable-unsafe-swiftshader"]
        )
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        page.goto(address)
        while page.evaluate("scopereg.timing.shown") < WARM_UP:
            page.wait_for_timeout(100)
        page.evaluate("scopereg.timing.rows = []")
        before, dropped = page.evaluate("[scopereg.timing.shown, scopereg.model.update.dropped]")
        page.wait_for_timeout(1000 * seconds)
        after, now, rate = page.evaluate(
            "[scopereg.timing.shown, scopereg.model.update.dropped, scopereg.model.update.frames_per_s]"
        )
        times = page.evaluate("scopereg.timing.summary()")
        software = page.evaluate("Boolean(scopereg.scene.graphics && scopereg.scene.graphics.software)")
        browser.close()
    return {
        "shown_per_s": round((after - before) / seconds, 1),
        "located_per_s": round(rate, 1),
        "dropped_per_s": round((now - dropped) / seconds, 1),
        "draw_ms": round(times["total"]["p50"], 1),
        "lag_ms": round(times["waited"]["p50"] + times["total"]["p50"], 1),
        "lag_p95_ms": round(times["waited"]["p95"] + times["total"]["p95"], 1),
        "drawn_by": "processor" if software else "graphics card",
    }


def machine() -> dict[str, object]:
    versions = library_versions()
    return {"cores": os.cpu_count(), "versions": f"torch {versions['torch']} numba {versions.get('numba')}"}


if __name__ == "__main__":
    main()
