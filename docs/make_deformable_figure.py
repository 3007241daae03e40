"""Draw docs/images/deformable.png: frames of deformed phantoms, the grids that were found, and what is left.

    python docs/make_deformable_figure.py

And docs/images/deformable-page.png: one of them in the page of the viewer, in a headless Chromium.
"""

from __future__ import annotations

import io
import shutil
import sys
import tempfile
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import numpy.typing as npt
from make_live_pictures import IMAGES, palette_of
from matplotlib.axes import Axes
from PIL import Image
from playwright.sync_api import sync_playwright

from scopereg.registration.deformable.displacement import DRAWN
from scopereg.registration.locator import Locator
from scopereg.registration.result import Result
from scopereg.viewer.page import write_page

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "benchmarks"))

from deformable import SEED, Where, phantoms  # noqa: E402

SHOWN = (("press", 5.0), ("waves", 3.0))
MOST_MM = 2.0  # where the colours of distances end
WIDE, HIGH = 1280, 800

Array = npt.NDArray[np.float64]


def draw_grid(axes: Axes, result: Result, where: Where | None) -> None:
    """The grid as it was found or, with what is true, as it should be once pose and step are taken out."""
    frame, deformation = result.frame, result.deformation
    assert frame is not None
    assert deformation is not None
    (left, top), (right, bottom) = deformation.low_mm, deformation.high_mm
    axes.imshow(frame.array, cmap="gray", extent=(left, right, bottom, top), alpha=0.6)
    for line in deformation.grid():
        moved = line.moved_mm
        if where is not None:
            points = np.pad(line.rest, ((0, 0), (0, 1)))
            back = deformation.step.inverse().apply(result.pose.inverse().apply(where(points)))
            moved = back - points
        there = line.rest + DRAWN * moved[:, :2]
        axes.plot(*line.rest.T, color="white", linewidth=0.3, alpha=0.5)
        axes.plot(*there.T, color="#ffb43c" if where is None else "#7bdff2", linewidth=0.8)
    axes.set(xlim=(left, right), ylim=(bottom, top), xticks=[], yticks=[], facecolor="black")


def draw_left(axes: Axes, result: Result, where: Where, *, rigid: bool) -> object:
    deformation = result.deformation
    assert deformation is not None
    points = deformation.seen_mm3
    said = result.pose.apply(points if rigid else deformation.apply(points))
    far = np.linalg.norm(said - where(points), axis=1)
    drawn = axes.scatter(points[:, 0], points[:, 1], c=far, s=5, marker="s", cmap="magma", vmin=0, vmax=MOST_MM)
    axes.set(xticks=[], yticks=[], aspect="equal")
    axes.set_ylim(deformation.high_mm[1], deformation.low_mm[1])
    axes.set_xlabel(f"{far.mean():.2f} mm on average", fontsize=9)
    return drawn


def found() -> list[tuple[str, Result, Where]]:
    scene = next(iter(phantoms("echo shared", 1)))
    assert scene.seed == SEED
    locator = Locator(scene.volume, "universal+refine", deformable=True, device="cpu")
    chosen = [one for one in scene.frames if one[:2] in SHOWN]
    chosen.sort(key=lambda one: SHOWN.index(one[:2]))
    return [(f"{kind}, {most:g} mm at most", locator.locate(frame), where) for kind, most, frame, where in chosen]


def main() -> None:
    shown = found()
    figure, rows = plt.subplots(len(shown), 4, figsize=(11, 2.9 * len(shown)), layout="constrained")
    titles = (
        f"found ({DRAWN:g} times as large)",
        f"true ({DRAWN:g} times)",
        "left by the rigid pose",
        "left with the displacement",
    )
    for row, (name, result, where) in zip(rows, shown, strict=True):
        draw_grid(row[0], result, None)
        draw_grid(row[1], result, where)
        draw_left(row[2], result, where, rigid=True)
        drawn = draw_left(row[3], result, where, rigid=False)
        row[0].set_ylabel(name, fontsize=9)
        figure.colorbar(drawn, ax=list(row[2:]), label="mm", shrink=0.8)
    for axes, title in zip(rows[0], titles, strict=True):
        axes.set_title(title, fontsize=10)
    figure.savefig(IMAGES / "deformable.png", dpi=110)
    draw_page(shown[-1][1])


def draw_page(result: Result) -> None:
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        page = write_page(Path(folder) / "page.html", [result], names=["deformed"], volume="phantom")
        chromium = shutil.which("chromium") or shutil.which("google-chrome")
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        tab = browser.new_page(viewport={"width": WIDE, "height": HIGH})
        tab.goto(page.as_uri())
        tab.wait_for_function("window.scopereg && scopereg.model.update && scopereg.model.volume")
        tab.wait_for_timeout(2000)
        picture = Image.open(io.BytesIO(tab.screenshot())).convert("RGB")
        browser.close()
    palette = palette_of(np.asarray(picture))
    picture.quantize(palette=palette, dither=Image.Dither.NONE).save(IMAGES / "deformable-page.png", optimize=True)


if __name__ == "__main__":
    main()
