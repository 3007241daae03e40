"""What the page shows in a real browser, before a real server that registers phantom frames with a real network."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from browsing import RED, Tab, new_tab, red
from patients import Patients
from serving import NOTHING_SEARCHED, replay, serve, small_volume, wait_until

from scopereg import Frame
from scopereg.errors import ScopeRegError
from scopereg.live.link import Timing
from scopereg.live.loop import Loop
from scopereg.live.scene import Scene
from scopereg.live.sources import open_source
from scopereg.registration.result import Result
from scopereg.viewer.live_show import LiveShow, Rooms
from scopereg.viewer.web import WebServer

if TYPE_CHECKING:
    from playwright.sync_api import Browser

# All at once, between two pictures: what is written and what is drawn.
SEEN = f"""() => {{ const {{ update, volume }} = scopereg.model; const red = {RED};
  const same = (a, b) => a.length === b.length && a.every((value, k) => value === b[k]);
  return {{ number: update.frame_number, written: document.querySelector('[data-figure=number]').textContent,
    expected: update.expected_mm, words: document.querySelector('#verdict-expected').textContent,
    frame: same(red('#frame-picture'), [...update.pixels]), cut: same(red('#volume-picture'), scopereg.comparison.cut),
    pose: update.image_to_volume, picture: red('#volume-picture').reduce((sum, value, k) => (sum + value * k) % 1e9),
    light: document.querySelector('#verdict').dataset.light,
    word: document.querySelector('#verdict-word').textContent }} }}"""


def test_the_page_loads_by_itself_and_everything_in_it_has_a_name(tab: Tab, tmp_path: Path) -> None:
    with serve(tmp_path) as served:
        tab.open(served.web.url)
        nameless = tab.ask(
            "[...document.querySelectorAll('button, input, select, canvas:not([aria-hidden])')].filter((e) => !("
            "e.getAttribute('aria-label') || e.textContent.trim() || e.labels && e.labels.length)).map((e) => e.id)"
        )
        assert nameless == []
        assert tab.text("volume-name") == "first.nii.gz"
        assert tab.ask("scopereg.scene.graphics !== null")
        assert tab.hosts == {served.host}
        fits = (
            "document.documentElement.scrollHeight <= innerHeight && document.documentElement.scrollWidth <= innerWidth"
        )
        assert tab.ask(fits)


def test_the_frame_moves_and_what_is_written_belongs_to_what_is_drawn(
    tab: Tab, patients: Patients, tmp_path: Path
) -> None:
    with patients.serve(tmp_path) as served:
        tab.open(served.web.url)
        seen = []
        for _ in range(4):
            seen.append(tab.ask(SEEN))
            tab.until(f"scopereg.model.update.frame_number > {seen[-1]['number']}")
    for moment in seen:
        assert moment["written"] == str(moment["number"])
        assert moment["words"] == f"{moment['expected']:.1f} mm"
        assert moment["frame"]
        assert moment["cut"]
    assert len({tuple(moment["pose"]) for moment in seen}) > 1
    assert len({moment["picture"] for moment in seen}) > 1
    assert "green" in {moment["light"] for moment in seen}
    assert "Located" in {moment["word"] for moment in seen}


def test_another_patient_is_red_with_the_reason(tab: Tab, patients: Patients, tmp_path: Path) -> None:
    with patients.serve(tmp_path, "second") as served:
        tab.open(served.web.url)
        tab.until("document.querySelector('#verdict').dataset.light === 'red'")
        assert tab.text("verdict-word") == "Rejected"
        assert "volume" in tab.text("verdict-reason")
        assert "red" in tab.text("spoken")


def test_a_frame_with_an_error_is_red_and_says_why(tab: Tab, tmp_path: Path) -> None:
    def refuse(_: Frame) -> Result:
        raise ScopeRegError("the frame is all black", where="test", fix="press the probe on")

    with serve(tmp_path, register=refuse) as served:
        tab.open(served.web.url)
        assert tab.text("verdict-word") == "Not found"
        assert tab.text("verdict-reason") == "the frame is all black"
        assert tab.text("verdict-method") == f"by {served.state()['method']}" != "by "  # who sought it
        assert tab.ask("document.querySelector('#verdict').dataset.light") == "red"
        assert tab.page.is_visible("#comparison .none")
        assert int(tab.page.inner_text("[data-figure=errors]")) > 0


_SCANNER = """
import sys, time, numpy, pyigtl
server = pyigtl.OpenIGTLinkServer(port=int(sys.argv[1]))
values = numpy.random.default_rng(0).integers(0, 255, (1, 40, 50), numpy.uint8)
while True:
    server.send_message(pyigtl.ImageMessage(values, numpy.diag([0.2, 0.3, 1, 1]), "ras", device_name="Image"))
    time.sleep(0.04)
"""


def _scanner(port: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", _SCANNER, str(port)], stderr=subprocess.DEVNULL)


def test_a_scanner_that_dies_and_comes_back(tab: Tab, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    quick = Timing(connect_s=1.0, stall_s=1.0, keep_alive_s=5.0, first_wait_s=0.05, longest_wait_s=0.2)
    source = open_source(f"igtl://127.0.0.1:{port}", timing=quick)
    scanner = _scanner(port)
    try:
        with serve(tmp_path, source=source) as served:
            tab.open(served.web.url)
            assert tab.ask("document.querySelector('#verdict').dataset.light") == "amber"  # nobody can judge this one
            scanner.kill()
            scanner.wait()
            tab.page.wait_for_selector("#verdict[data-light=none] #verdict-word:has-text('No frames for')")
            last = tab.ask("scopereg.model.update.number")
            assert tab.ask("document.body.dataset.link") == "open"
            scanner = _scanner(port)
            tab.until(f"scopereg.model.update.number > {last} && scopereg.model.light === 'amber'")
    finally:
        scanner.kill()
        scanner.wait()


def test_a_server_that_ends_and_starts_again(browser: Browser, tmp_path: Path) -> None:
    with serve(tmp_path) as served, new_tab(browser, complains=True) as tab:  # the browser notes failed connections
        tab.open(served.web.url)
        port = served.web.port
        served.web.close()
        tab.page.wait_for_selector("#link:has-text('connection lost, trying again')")
        assert tab.text("verdict-word") == "Connection lost"
        assert tab.ask("scopereg.model.light") == "none"
        loop = Loop(replay(), served.loop._register)
        other = Scene(small_volume(seed=9), "other.nii.gz", NOTHING_SEARCHED)
        show = LiveShow(loop, other, lambda volume, name: Scene(volume, name, NOTHING_SEARCHED), Rooms(tmp_path))
        before = tab.ask("scopereg.model.volume.voxels[0]")
        with WebServer(show, port=port) as web, loop:
            show.wake = web.wake
            loop.listen(show)
            tab.until("scopereg.model.volume.info.name === 'other.nii.gz'")
            shown = tab.ask("scopereg.timing.shown")
            tab.until(f"scopereg.timing.shown > {shown} && scopereg.model.light === 'amber'")
            assert tab.text("link-words") == "live"
            assert tab.ask("scopereg.model.volume.voxels[0]") != before


def test_the_end_of_a_replay_is_said(tab: Tab, tmp_path: Path) -> None:
    with serve(tmp_path, source=replay(count=5)) as served:
        tab.open(served.web.url)
        tab.page.wait_for_selector("#verdict-word:has-text('Source ended')")
        assert tab.text("link-words") == "source ended"


def test_a_graphics_card_that_stops_and_comes_back(tab: Tab, tmp_path: Path) -> None:
    with serve(tmp_path) as served:
        tab.open(served.web.url)
        tab.ask("void (window.lost = scopereg.scene.graphics.gl.getExtension('WEBGL_lose_context')).loseContext()")
        tab.until("!scopereg.scene.graphics")
        assert "stopped" in tab.page.inner_text("#space .fault")
        tab.ask("void window.lost.restoreContext()")
        tab.until("scopereg.scene.graphics && scopereg.scene.graphics.picture && !scopereg.scene.pending")
        assert not tab.page.is_visible("#space .fault")


def test_without_webgl_all_else_works(tab: Tab, tmp_path: Path) -> None:
    tab.page.add_init_script(
        "const get = HTMLCanvasElement.prototype.getContext;"
        "HTMLCanvasElement.prototype.getContext = function (kind, ...rest) {"
        "  return kind === 'webgl2' ? null : get.call(this, kind, ...rest) }"
    )
    with serve(tmp_path) as served:
        tab.open(served.web.url)
        assert "WebGL2" in tab.page.inner_text("#space .fault")
        assert red(tab, "#axial .picture").max() > 0
        number = tab.ask("scopereg.model.update.number")
        tab.until(f"scopereg.model.update.number > {number}")


def test_the_light_is_not_given_by_colour_alone(tab: Tab, tmp_path: Path) -> None:
    with serve(tmp_path) as served:
        tab.open(served.web.url)
        shapes = (
            "[...document.querySelectorAll('.light g')].filter((g) => getComputedStyle(g).display !== 'none').length"
        )
        for light in ("green", "amber", "red", "none"):
            tab.ask(f"document.querySelector('#verdict').dataset.light = '{light}'")
            assert tab.ask(shapes) == 1
        assert wait_until(lambda: tab.text("verdict-word") == "Not judged")
