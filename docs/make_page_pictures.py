"""Makes docs/images/demo.png, track.png and card.png: pages and the card of a notebook in a headless Chromium.

    python docs/make_page_pictures.py [demo] [track] [card]

Needs what `make test` installs (Playwright, and Chromium of the system). Takes about two minutes.
"""

from __future__ import annotations

import io
import shutil
import sys
import tempfile
from pathlib import Path

import make_track_example
import numpy as np
import torch
from make_live_pictures import IMAGES, palette_of
from PIL import Image
from playwright.sync_api import Browser, sync_playwright

from scopereg import Frame, register
from scopereg.cli import main as scopereg
from scopereg.data import phantom
from scopereg.data.poses import sample_sweep

WIDE = 1100
HEIGHTS = {"demo": 1500, "track": 1310, "card": 500}


def main() -> None:
    folder = Path(tempfile.mkdtemp())
    makers = {"demo": make_demo, "track": make_track, "card": make_card}
    pages = {name: makers[name](folder) for name in sys.argv[1:] or makers}
    with sync_playwright() as playwright:
        chromium = shutil.which("chromium") or shutil.which("google-chrome")
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for name, page in pages.items():
            save(browser, page, name)
        browser.close()
    shutil.rmtree(folder)


def make_demo(folder: Path) -> Path:
    """The page of the demo."""
    scopereg(["demo", "-o", str(folder / "demo")])
    return folder / "demo" / "report.html"


def make_track(folder: Path) -> Path:
    """The page of the sweep of docs/track.md."""
    make_track_example.main()
    sequence, volume = (str(make_track_example.OUT / name) for name in ("sweep.igs.mha", "volume.nii.gz"))
    scopereg(["track", sequence, volume, "--tracker", "-o", str(folder / "track")])
    return folder / "track" / "track.html"


def make_card(folder: Path) -> Path:
    """The card of a frame of a phantom patient, as a light notebook shows it."""
    patient = phantom.create("echo", seed=100_000)
    poses = sample_sweep(4, 10, patient.shape, torch.Generator().manual_seed(3))
    image = patient.acquire(*poses, protocol="honest", seed=3).images[0]
    result = register(Frame(image, spacing_mm=patient.spacing_mm), patient.volume)
    body = f"<body style='background:#fff;color:#111;margin:12px;max-width:830px'>{result._repr_html_()}"
    path = folder / "card.html"
    path.write_text(f"<!doctype html><meta charset='utf-8'>{body}</body>", encoding="utf-8")
    return path


def save(browser: Browser, page: Path, name: str) -> None:
    """The top of a page, with few colours."""
    wide = 850 if name == "card" else WIDE
    tab = browser.new_page(viewport={"width": wide, "height": 300}, color_scheme="dark")
    tab.goto(page.as_uri())
    high = min(HEIGHTS[name], int(tab.evaluate("document.documentElement.scrollHeight")))
    shot = tab.screenshot(full_page=True, clip={"x": 0, "y": 0, "width": wide, "height": high})
    picture = Image.open(io.BytesIO(shot)).convert("RGB")
    path = IMAGES / f"{name}.png"
    picture.quantize(palette=palette_of(np.asarray(picture)), dither=Image.Dither.NONE).save(path, optimize=True)
    print(f"{path.name}: {path.stat().st_size // 1024} KB")
    tab.close()


if __name__ == "__main__":
    main()
