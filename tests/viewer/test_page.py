"""Finished results as one file: written, opened from the disk in a real browser, and shown in notebooks."""

from __future__ import annotations

import re
import sys
import types
import webbrowser
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import SimpleITK as sitk
import torch
from browsing import Tab, drawn

from scopereg import Frame, Pose, Volume, register
from scopereg.errors import ScopeRegError
from scopereg.io import read_frame, write_volume
from scopereg.io.pictures import png_bytes
from scopereg.io.placement import resliced_image
from scopereg.registration.result import Result
from scopereg.viewer.finished import Images, read_results
from scopereg.viewer.finished_show import FinishedShow
from scopereg.viewer.page import MOST_RESULTS, bundle, page_html, write_page
from scopereg.viewer.web import WebServer

STATIC = Path(sys.modules["scopereg"].__file__ or "").parent / "viewer" / "static"


def _volume(seed: int = 0) -> Volume:
    coarse = np.random.default_rng(seed).random((5, 6, 7))
    fine = sitk.GetArrayFromImage(sitk.Expand(sitk.GetImageFromArray(coarse), [4, 4, 4], sitk.sitkLinear))
    direction = Pose.from_euler_deg((10, -20, 30), (0, 0, 0)).rotation
    return Volume(fine / fine.max(), spacing_mm=(0.7, 0.8, 0.9), origin_mm=(10, 20, -30), direction=direction)


def _results(volume: Volume) -> list[Result]:
    frame = Frame(np.random.default_rng(1).random((20, 26)), spacing_mm=(0.6, 0.5), origin_mm=(4, -3))
    found = []
    for angle, ok in ((0, True), (25, False), (-40, None)):
        turn = volume.direction @ Pose.from_euler_deg((angle, 10, 5), (0, 0, 0)).rotation
        pose = Pose(turn, volume.centre_mm - turn @ frame.centre_mm + [0.5, 0, -0.5])
        trust = {"confidence": 0.9, "expected_mm": 1.24, "bound_mm": 2.5, "belongs": ok, "reason": "" if ok else "why"}
        trust |= {"calibrated_on": "30 phantoms", "hints": ("mirrored", "too large") if ok is False else ()}
        found.append(Result(pose, "by hand", 12.0, 0.5, ok=ok, frame=frame, volume=volume, **trust))  # type: ignore[arg-type]
    return found


def test_the_file_opens_from_the_disk_without_any_server(tab: Tab, tmp_path: Path) -> None:
    volume = _volume()
    results = _results(volume)
    path = write_page(tmp_path / "results.html", results, names=["one", "two", "three"], volume="volume.nii.gz")
    tab.open(path.as_uri())
    assert tab.hosts == set()
    lights, told = [], []
    for row, result in enumerate(results):
        tab.until(f"scopereg.model.update.result === {row} && scopereg.model.placed")
        drawn(tab)
        assert result.frame is not None
        wanted = resliced_image(volume, result.frame, result.pose).array[0] * 255
        cut = np.array(tab.ask("[...scopereg.comparison.cut]")).reshape(wanted.shape)
        assert (wanted > 0).mean() > 0.3
        assert np.abs(cut - wanted).max() <= 1.5
        lights.append((tab.ask("document.querySelector('#verdict').dataset.light"), tab.text("verdict-word")))
        names = ("expected", "bound", "confidence", "reason", "hints", "basis")
        told.append(tuple(tab.text(f"verdict-{name}") for name in names))
        tab.page.keyboard.press("ArrowRight")
    basis = "calibrated on 30 phantoms"
    assert told == [
        ("1.2 mm", "2.5 mm", "0.90", "the pose is reliable", "", basis),
        ("–", "–", "–", "why", "mirrored; too large", basis),
        ("–", "–", "–", "why", "", basis),  # the word above says the rest
    ]
    assert lights == [("green", "Located"), ("red", "Rejected"), ("amber", "Not judged")]
    assert tab.text("volume-name") == "volume.nii.gz"
    assert tab.page.locator("#result option").all_inner_texts() == ["one", "two", "three"]
    assert not tab.page.is_visible("#pause")
    assert not tab.page.is_visible("#record")


def test_it_asks_nobody_for_anything_and_lets_no_other_script_run(tab: Tab, tmp_path: Path) -> None:
    html = page_html(_results(_volume()), names=["</script><script>window.broken = 1</script>", "b", "c"])
    assert not re.search(r"(?:src|href)=\"(?!data:)", html)
    assert "'unsafe-inline'" not in html
    (tmp_path / "page.html").write_text(html, encoding="utf-8")
    tab.open((tmp_path / "page.html").as_uri())
    assert tab.ask("window.broken") is None
    assert tab.page.locator("#result option").first.inner_text().startswith("</script>")


def test_the_bundle_holds_every_script_of_the_page() -> None:
    bundled = set(re.findall(r"^// (\w+\.js)$", bundle("main"), re.M))
    assert bundled == {path.name for path in STATIC.glob("*.js")}


def test_show_of_a_registration_in_a_notebook(tab: Tab, monkeypatch: pytest.MonkeyPatch) -> None:
    shell = types.SimpleNamespace(config={"IPKernelApp": {}})
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: shell))  # type: ignore[arg-type]
    monkeypatch.setattr(webbrowser, "open", lambda _: pytest.fail("a notebook opens no browser"))
    volume = _volume()
    frame = Frame(np.random.default_rng(2).random((16, 20)), spacing_mm=0.8)
    shown = register(frame, volume, method="start").show()
    assert shown.path is None
    tab.page.set_content(f"<!doctype html><h1>Notebook</h1>{shown._repr_html_()}")
    inside = tab.page.wait_for_selector("iframe")
    assert inside is not None
    content = inside.content_frame()
    assert content is not None
    content.wait_for_selector("#verdict-word:has-text('Not judged')")
    assert content.evaluate("scopereg.model.update.frame.shape") == [16, 20]
    assert content.evaluate("(() => { try { return parent.document.title } catch { return 'shut' } })()") == "shut"


def test_show_elsewhere_opens_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    shown = _results(_volume())[0].show()
    assert shown.path is not None
    assert shown.path.parent == tmp_path
    assert opened == [shown.path.as_uri()]
    assert shown.path.read_text(encoding="utf-8") == shown.html


def test_a_result_that_does_not_know_its_images_says_so() -> None:
    result = replace(_results(_volume())[0], frame=None)
    with pytest.raises(ScopeRegError, match="does not know its frame"):
        result.show()
    with pytest.raises(ScopeRegError, match="no result"):
        page_html([])
    with pytest.raises(ScopeRegError, match="too many"):
        page_html([result] * (MOST_RESULTS + 1))


def test_results_of_two_volumes_do_not_go_into_one_page() -> None:
    with pytest.raises(ScopeRegError, match="different volumes"):
        page_html([_results(_volume())[0], _results(_volume(1))[0]])


def test_evidence_is_shown_on_frames_that_have_some(tab: Tab, tmp_path: Path) -> None:
    volume = _volume()
    frame = Frame(np.full((24, 28), 0.5), spacing_mm=(0.7, 0.8))
    pose = Pose(volume.direction, volume.centre_mm)
    maps = (torch.arange(12.0).reshape(3, 4), None)
    results = [Result(pose, "m", 1.0, 0.5, evidence=evidence, frame=frame, volume=volume) for evidence in maps]
    tab.open(write_page(tmp_path / "page.html", results).as_uri())
    assert tab.ask("[...scopereg.model.update.evidence.values]") == [int(k * 255 / 11) for k in range(12)]
    assert tab.page.is_visible("#evidence-picture")
    tab.page.keyboard.press("ArrowRight")
    tab.until("scopereg.model.update.result === 1")
    assert not tab.page.is_visible("#evidence-picture")


def test_results_of_files_are_chosen_one_after_the_other(tab: Tab, tmp_path: Path) -> None:
    volume = _volume()
    write_volume(volume, tmp_path / "volume.nii.gz")
    for row in range(3):
        pixels = np.random.default_rng(row).integers(0, 255, (16, 20 + row), np.uint8)
        (tmp_path / f"frame{row}.png").write_bytes(png_bytes(pixels))
        frame = read_frame(tmp_path / f"frame{row}.png", spacing_mm=0.8)
        register(frame, tmp_path / "volume.nii.gz", method="start").save(tmp_path / f"pose{row}.json")
    results = read_results([tmp_path / f"pose{row}.json" for row in range(3)])
    with WebServer(FinishedShow(results, Images(spacing_mm=(0.8, 0.8))), port=0) as web:
        tab.open(web.url)
        assert tab.page.locator("#result option").count() == 3
        tab.click("next")
        tab.until("scopereg.model.update.columns === 21")
        assert tab.page.inner_text("[data-figure=number]") == "2 of 3"
        tab.page.select_option("#result", "2")
        tab.until("scopereg.model.update.columns === 22 && scopereg.model.placed")
        assert not tab.page.is_visible("#record")
