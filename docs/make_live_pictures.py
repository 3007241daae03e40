"""Makes docs/images/live*.png and view.png: the viewer in a headless Chromium, with sweeps over phantom patients.

    python docs/make_live_pictures.py

Needs what `make test` installs (Playwright, and Chromium of the system). Takes about two minutes.
"""

from __future__ import annotations

import io
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

from scopereg import Frame
from scopereg.data import phantom
from scopereg.data.poses import sample_sweep
from scopereg.images import Volume, pose_from_voxels
from scopereg.io import read_cine, write_plus_sequence
from scopereg.io.landmarks import Landmarks
from scopereg.live.loop import Loop
from scopereg.live.scene import Plan, Scene
from scopereg.live.sources import Reading, open_source
from scopereg.registration.register import TRACKER, Start
from scopereg.viewer.live_show import LiveShow, Rooms
from scopereg.viewer.overlays import Overlays
from scopereg.viewer.page import write_page
from scopereg.viewer.path import Step
from scopereg.viewer.web import WebServer

IMAGES = Path(__file__).parent / "images"
FRAMES, RATE_HZ = 60, 10.0
DESK, TABLET = {"width": 1280, "height": 800}, {"width": 768, "height": 1024}
GREYS, COLOURS = 64, 150  # of a picture: a third of the size, and signals keep their colours


def main() -> None:
    folder = Path(tempfile.mkdtemp())
    volume = make_sweep("patient-a", 7, folder)
    make_sweep("patient-b", 8, folder)
    scene = Scene(volume, "patient-a.nii.gz", Plan(), Start.read(TRACKER))
    with sync_playwright() as playwright:
        chromium = shutil.which("chromium") or shutil.which("google-chrome")
        browser = playwright.chromium.launch(
            executable_path=chromium, args=["--no-sandbox", "--enable-unsafe-swiftshader"]
        )
        view_finished(browser, scene, folder)
        with shown(browser, scene, "patient-a", folder, DESK) as page:
            page.wait_for_timeout(12_000)
            save(page, "live")
        with shown(browser, scene, "patient-b", folder, DESK) as page:
            page.wait_for_timeout(8_000)
            save(page, "live-wrong-patient")
        with shown(browser, scene, "patient-a", folder, TABLET) as page:
            page.wait_for_timeout(6_000)
            page.keyboard.press("w")
            page.wait_for_timeout(1_000)
            page.keyboard.press(" ")
            page.wait_for_timeout(2_500)
            save(page, "live-tablet")
        browser.close()
    shutil.rmtree(folder)


def make_sweep(name: str, seed: int, folder: Path) -> Volume:
    """A patient, and NAME.igs.mha with frames and where they truly lie."""
    patient = phantom.create("echo", seed=seed)
    poses = sample_sweep(FRAMES, 10.0, patient.shape, torch.Generator().manual_seed(1))
    images = patient.acquire(*poses, protocol="honest", seed=3).images
    frames = [Frame(image, spacing_mm=patient.spacing_mm) for image in images]
    truth = [
        pose_from_voxels(poses.rotation[row], poses.translation[row], frame, patient.volume)
        for row, frame in enumerate(frames)
    ]
    write_plus_sequence(frames, truth, folder / f"{name}.igs.mha", times_s=[row / RATE_HZ for row in range(FRAMES)])
    return patient.volume


@contextmanager
def shown(browser: Browser, scene: Scene, sweep: str, folder: Path, size: Any) -> Iterator[Page]:
    """The page while a sweep is replayed over and over."""
    loop = Loop(open_source(f"plus:{folder / sweep}.igs.mha", Reading(loop=True)), scene.register)
    rooms = Rooms(folder / "recordings", largest_upload=1)
    show = LiveShow(loop, scene, lambda volume, name: scene, rooms, source=f"plus:{sweep}.igs.mha")
    with WebServer(show, port=0) as web:
        show.wake = web.wake
        loop.listen(show)
        page = browser.new_page(viewport=size, color_scheme="dark")
        page.goto(web.url)
        with loop:
            yield page
        page.close()


def view_finished(browser: Browser, scene: Scene, folder: Path) -> None:
    """A finished sweep in the light theme: played to its middle, with landmarks, a ruler and a note."""
    cine = read_cine(folder / "patient-a.igs.mha")
    results = [scene.register(cine[row]) for row in range(0, FRAMES, 2)]
    steps = [Step(result.pose, "sweep", row, row / RATE_HZ * 2) for row, result in enumerate(results)]
    middle = np.array(scene.volume.centre_mm)
    shifts = {"apex": (2, -24, -3), "septum": (-14, 0, 4), "valve": (6, 18, 9)}
    landmarks = Landmarks(Path("landmarks.mrk.json"), {name: tuple(middle + shift) for name, shift in shifts.items()})
    write_page(
        folder / "view.html",
        results,
        names=[f"sweep.igs.mha frame {2 * row}" for row in range(len(results))],
        volume="patient-a.nii.gz",
        overlays=Overlays(None, landmarks),
        steps=steps,
        notes=[{"key": None, "result": 14, "text": "the valve opens"}],
    )
    page = browser.new_page(viewport={"width": 1440, "height": 900}, color_scheme="light")
    page.goto((folder / "view.html").as_uri())
    page.wait_for_timeout(2_000)
    page.evaluate("scopereg.showResult(14)")
    page.wait_for_timeout(1_000)
    box = page.locator("#frame-marks").bounding_box()
    assert box is not None
    page.keyboard.press("m")
    page.mouse.move(box["x"] + 0.28 * box["width"], box["y"] + 0.6 * box["height"])
    page.mouse.down()
    page.mouse.move(box["x"] + 0.44 * box["width"], box["y"] + 0.9 * box["height"], steps=4)
    page.mouse.up()
    page.mouse.move(10, 10)
    page.wait_for_timeout(2_000)
    save(page, "view", grey_within=4)
    page.close()


def save(page: Page, name: str, grey_within: int = 14) -> None:
    """The picture of the screen, with few colours."""
    picture = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    path = IMAGES / f"{name}.png"
    palette = palette_of(np.asarray(picture), grey_within)
    picture.quantize(palette=palette, dither=Image.Dither.NONE).save(path, optimize=True)
    print(f"{path.name}: {path.stat().st_size // 1024} KB")


def palette_of(pixels: npt.NDArray[np.uint8], grey_within: int = 14) -> Image.Image:
    """Greys in even steps, and the colours of those pixels that have one: there are few, but they matter."""
    flat = pixels.reshape(-1, 3)
    coloured = flat[np.ptp(flat.astype(int), axis=1) > grey_within]
    few = Image.fromarray(coloured[None]).quantize(COLOURS, method=Image.Quantize.MEDIANCUT).getpalette() or []
    greys = [level for grey in np.linspace(0, 255, GREYS).astype(int).tolist() for level in (grey, grey, grey)]
    palette = Image.new("P", (1, 1))
    palette.putpalette([*greys, *few[: 3 * COLOURS]])
    return palette


if __name__ == "__main__":
    main()
