"""The page in Chromium and in Firefox, on a desk, a tablet and a phone: nothing is cut off, and everything works.

SCOPEREG_SCREENSHOTS=FOLDER keeps a picture of each, in both themes, for people to look at.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browsing import FAINT, chromium, new_tab
from firefox import Firefox, firefox
from PIL import Image
from serving import small_volume
from shown import COUNT, labels_of, points, table

from scopereg.io.notes import read_notes
from scopereg.viewer.finished import Images, read_results
from scopereg.viewer.finished_show import FinishedShow
from scopereg.viewer.overlays import Overlays
from scopereg.viewer.web import WebServer

SIZES = {"desk": (1440, 900), "tablet": (820, 1180), "turned": (1024, 768), "phone": (390, 844)}
# Whatever may be pressed or read must lie on the page, not under anything else of it, and be large enough for a finger.
CUT_OFF = """[...document.querySelectorAll('header button, main button, #panel button, select, input, h2, dd, p')]
  .filter((e) => e.checkVisibility({ visibilityProperty: true }) && !e.closest('.unseen, dialog')).map((e) =>
  [e.id || e.className || e.textContent, e.getBoundingClientRect()]).filter(([, r]) => r.width && (r.left < -0.5 ||
  r.right > document.documentElement.clientWidth + 0.5)).map(([name]) => name)"""
COVERED = """[...document.querySelectorAll('header button, .mixer button, .mixer input, #player button, #player input')]
  .filter((e) => e.checkVisibility({ visibilityProperty: true }) && e.getClientRects().length).filter((e) => {
  e.scrollIntoView({ block: 'nearest' }); const { x, y, width, height } = e.getBoundingClientRect();
  const top = document.elementFromPoint(x + width / 2, y + height / 2);
  return !(top && (e.contains(top) || top.contains(e))) && !e.disabled }).map((e) => e.id || e.className)"""
SMALL = """[...document.querySelectorAll('button, select, input[type=range]')].filter((e) => e.getClientRects().length)
  .map((e) => [e.id || e.className || e.textContent, e.getBoundingClientRect()])
  .filter(([, r]) => Math.min(r.width, r.height) < 43.5).map(([name]) => name)"""
# Different colours that the graphics card has drawn; none where there is no card, which the page then says.
DRAWN = """(() => { const { scene } = scopereg; if (!scene.graphics) return 0; const { gl } = scene.graphics;
  scene.render(1); const { width, height } = scene.canvas, found = new Uint8Array(4 * width * height);
  gl.readPixels(0, 0, width, height, gl.RGBA, gl.UNSIGNED_BYTE, found);
  return new Set(new Uint32Array(found.buffer)).size })()"""

# Corners of the volume that the camera does not see at first.
OUT_OF_SIGHT = """(() => { const { scene: { camera, canvas }, model: { volume } } = scopereg;
  const m = camera.toClip(canvas.clientWidth / canvas.clientHeight);
  return [0, 1, 2, 3, 4, 5, 6, 7].map((k) => volume.toWorld(volume.shape.map((n, axis) => ((k >> axis) & 1) * n - 0.5)))
    .filter((p) => { const row = (r) => m[4 * r] * p[0] + m[4 * r + 1] * p[1] + m[4 * r + 2] * p[2] + m[4 * r + 3];
    return Math.max(Math.abs(row(0)), Math.abs(row(1))) > row(3) }).length })()"""
TWO_PICTURES = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(0))))"


@pytest.fixture(scope="module", params=["chromium", "firefox"])
def engine(request: pytest.FixtureRequest) -> Iterator[Any]:
    """A browser, for all sizes."""
    with chromium() if request.param == "chromium" else firefox() as running:
        yield running


@pytest.fixture
def page(engine: Any, sweep: tuple[Path, str]) -> Iterator[Any]:
    """A page in it, gone before its server is, which has kept quiet."""
    if not isinstance(engine, Firefox):
        with new_tab(engine) as tab:
            yield tab
        return
    yield engine
    engine.leave()
    assert not engine.complaints, engine.complaints


@pytest.fixture
def sweep(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """The folder of a sweep, and its page: with labels, landmarks and the right to write notes."""
    overlays = Overlays(labels_of(small_volume()), points((3, 4, 5), (15, 9, 6)))
    read = read_results([table(tmp_path)])
    show = FinishedShow(read, Images(volume=tmp_path / "volume.nii.gz"), overlays, keeps_notes=True)
    with WebServer(show, port=0) as web:
        yield tmp_path, web.url


@pytest.mark.parametrize("size", SIZES)
def test_nothing_is_cut_off_and_everything_works(page: Any, sweep: tuple[Path, str], size: str, tmp_path: Path) -> None:
    folder, url = sweep
    page.resize(*SIZES[size])
    page.open(url)
    page.until("scopereg.model.path && scopereg.model.placed")
    look_at(page, size)
    measure(page)
    if size in ("desk", "phone"):
        play(page)
        write_note(page, folder)
        keep_picture(page, tmp_path / "kept.png")


def look_at(page: Any, size: str) -> None:
    """In both themes, with the adjustments folded and open."""
    for theme in ("light", "dark"):
        page.ask(f"void scopereg.theme.choose('{theme}')")
        for open_ in (False, True):
            page.ask(f"void scopereg.panel.fold({json.dumps(not open_)})")
            page.ask("void document.getElementById('part-page').toggleAttribute('open', true)")
            assert page.ask("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
            assert size == "phone" or page.ask("document.documentElement.scrollHeight <= innerHeight")
            assert page.ask(CUT_OFF) == []
            assert page.ask(SMALL) == []
            assert page.ask(FAINT) == []
            assert open_ or page.ask(COVERED) == []
            keep_screenshot(page, f"{size}-{theme}{'-open' * open_}")
    if page.ask("Boolean(scopereg.scene.graphics)"):
        assert page.ask(DRAWN) > 50
        assert page.ask(OUT_OF_SIGHT) == 0
    else:
        assert "WebGL2" in page.ask("document.querySelector('#space .fault').innerText")


def keep_screenshot(page: Any, name: str) -> None:
    if folder := os.environ.get("SCOPEREG_SCREENSHOTS"):
        page.ask("(scrollTo(0, 0), new Promise((done) => setTimeout(done, 700)))")
        page.screenshot(Path(folder) / f"{type(page).__name__.lower()}-{name}.png")


def measure(page: Any) -> None:
    """A ruler over half of the frame; grid, depth, chessboard, labels and landmarks are there."""
    page.ask("(scopereg.panel.fold(true), document.getElementById('frame-marks').scrollIntoView({ block: 'center' }))")
    page.ask(TWO_PICTURES)  # after which all have their sizes
    left, top, wide, high = page.ask(
        "(({ x, y, width, height }) => [x, y, width, height])"
        "(document.getElementById('frame-marks').getBoundingClientRect())"
    )
    page.press("m")
    page.drag((left + wide / 4, top + high / 2), (left + 3 * wide / 4, top + high / 2))
    wanted = 0.5 * page.ask("scopereg.comparison.sizeMm().wide")
    told = page.ask("document.querySelector('#ruler-list b').textContent")
    assert float(told.removesuffix(" mm")) == pytest.approx(wanted, abs=0.1)
    page.press("h")
    page.press("c")
    page.ask(TWO_PICTURES)
    inked = page.ask(
        "['#axial .lines', '#frame-marks', '#there-marks', '#mixed-marks'].map((name) => { const c = "
        "document.querySelector(name), { data } = c.getContext('2d').getImageData(0, 0, c.width, c.height);"
        "return data.filter((v, k) => k % 4 === 3 && v > 20).length / (c.width * c.height) })"
    )
    assert all(share > 0.05 for share in inked), inked
    assert page.ask("document.querySelectorAll('#label-list label, #landmark-list label').length") == 4


def play(page: Any) -> None:
    page.ask("void (document.getElementById('player-speed').value = '10')")
    page.press("Space")
    page.until(f"!scopereg.player.playing && scopereg.player.current === {COUNT - 2}")
    page.press("ArrowLeft")
    page.until(f"scopereg.model.update.result === {COUNT - 3}")


def write_note(page: Any, folder: Path) -> None:
    page.press("n")
    page.type("seen <i>here</i>")
    page.press("Enter")
    page.until("document.querySelectorAll('#note-list li').length === 1")
    assert page.ask("document.getElementById('verdict-note').textContent") == "seen <i>here</i>"
    assert [note.text for note in read_notes(folder)] == ["seen <i>here</i>"]
    page.ask("void document.activeElement.blur()")


def keep_picture(page: Any, path: Path) -> None:
    with Image.open(page.download(lambda: page.press("s"), path)) as picture:
        picture.load()
        told = json.loads(picture.text["scopereg"])  # type: ignore[attr-defined]
        grey = np.asarray(picture.convert("L"))
    assert told["notes"] == ["seen <i>here</i>"]
    assert told["method"] == "hand"
    assert len(told["rulers"]) == 1
    assert grey.std() > 20
