"""Notes: written in live pages into the recording, in finished ones beside the results; shown again, as words alone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browsing import Tab
from serving import next_message, next_update, replay, serve, small_volume, wait_until
from shown import COUNT, results, table

from scopereg import io
from scopereg.errors import ScopeRegError
from scopereg.io.metaimage import read_metaimage
from scopereg.io.notes import FILE, Note, read_notes, write_notes
from scopereg.io.placement import resliced_image
from scopereg.live.loop import Rates, Update
from scopereg.live.recorder import Recorder
from scopereg.registration.recorded import told_of
from scopereg.viewer.finished import Images, read_results
from scopereg.viewer.finished_show import FinishedShow
from scopereg.viewer.notebook import Notebook
from scopereg.viewer.page import write_page
from scopereg.viewer.web import WebServer

EVIL = "<img src=x onerror=alert(1)> & 'ä'"


def say(page: Any, **request: Any) -> None:
    page.send(json.dumps(request))


def noted(path: Path) -> list[str]:
    """All notes of a recording."""
    return [text for fields in read_metaimage(path).frames for text in told_of(fields, "f").notes]


def recorded_update(page: Any) -> int:
    """Of a frame since the recording began: the first on its way may be of before, and the next one too."""
    number: int = [next_update(page)["update"] for _ in range(3)][-1]
    return number


def test_a_live_page_writes_into_the_recording(tmp_path: Path) -> None:
    """Also where the loop is stopped in the middle of it, as Ctrl-C does."""
    with serve(tmp_path, source=replay(rate_hz=50)) as served, served.page() as page:
        say(page, do="note", frame=1, text="too early")
        assert "nothing is being recorded" in next_message(page, "notice", level="error")["text"]
        say(page, do="record", name="a")
        assert wait_until(lambda: "note" in served.state()["can"])
        assert wait_until(lambda: (served.state()["recording"] or {}).get("frames", 0) > 2)
        update = recorded_update(page)
        for text in (EVIL, "second", "third"):
            say(page, do="note", frame=update, text=text)
        assert wait_until(lambda: len(served.state()["notes"]) == 3)
        told = served.state()["notes"]
        assert [(note["update"], note["text"]) for note in told] == [(update, t) for t in (EVIL, "second", "third")]
        say(page, do="drop_note", key=told[1]["key"])
        assert wait_until(lambda: len(served.state()["notes"]) == 2)
        for bad in ({"text": "x" * 501}, {"text": " "}, {"text": 5}, {"frame": "1"}, {"frame": 10**9}, {"frame": True}):
            say(page, do="note", **{"frame": update, "text": "words", **bad})
            assert next_message(page, "notice", level="error")["text"]
        assert served.is_alive()
    assert noted(tmp_path / "recordings" / "a.igs.mha") == [EVIL, "third"]


def test_notes_of_a_recording_stay_on_the_page_when_it_has_ended(tmp_path: Path) -> None:
    with serve(tmp_path, source=replay(rate_hz=50)) as served, served.page() as page:
        say(page, do="record", name="a")
        assert wait_until(lambda: (served.state()["recording"] or {}).get("frames", 0) > 2)
        say(page, do="note", frame=recorded_update(page), text="kept")
        assert wait_until(lambda: bool(served.state()["notes"]))
        say(page, do="end_recording")
        assert wait_until(lambda: served.state()["recording"] is None)
        assert [note["text"] for note in served.state()["notes"]] == ["kept"]
        assert "note" not in served.state()["can"]


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    """Of a sweep, one frame of which was not found; with notes at that one and at two others, and its volume."""
    found = results()
    io.write_volume(small_volume(), tmp_path / "volume.nii.gz")
    volume = io.read_volume(tmp_path / "volume.nii.gz")
    recorder = Recorder(tmp_path / "scan.igs.mha")
    for row, result in enumerate(found):
        object.__setattr__(result, "volume", volume)
        assert result.frame is not None
        kept = None if row == 3 else result
        recorder(Update(row, result.frame, kept, None, row, row / 10, 0.0, 0.0, 1.0, Rates(1, 1, 1)))
    for row, text in ((1, EVIL), (3, "nothing here"), (7, "septum")):
        recorder.note(row, text)
    (path,) = recorder.finish()
    return path


def test_a_recording_is_viewed_with_its_verdicts_times_and_notes(recording: Path) -> None:
    read = read_results([recording])
    assert [result.index for result in read] == [row for row in range(COUNT) if row != 3]
    for finished, before in zip(read, [result for row, result in enumerate(results()) if row != 3], strict=True):
        opened = finished.open(Images())
        assert (opened.ok, opened.belongs, opened.method) == (before.ok, before.belongs, "hand")
        assert opened.frame is not None
        assert opened.volume is not None
        assert before.frame is not None
        cut = resliced_image(opened.volume, opened.frame, opened.pose).array
        wanted = resliced_image(small_volume(), before.frame, before.pose).array
        np.testing.assert_allclose(cut, wanted, atol=2e-4)
    show = FinishedShow(read, Images())
    path = show.path()
    assert path is not None
    assert path["times_s"] == pytest.approx([row / 10 for row in range(COUNT) if row != 3])
    assert path["follows"][3] == 0
    told = [(note["result"], note["text"]) for note in show.state()["notes"]]
    assert told == [(1, EVIL), (3, "frame 3, which has no place: nothing here"), (6, "septum")]
    assert show.state()["volume"]["name"] == "volume.nii.gz"
    assert [result.source for result in read_results([recording.parent])] == [recording] * (COUNT - 1)  # by the folder


def test_another_volume_of_that_name_is_refused(recording: Path) -> None:
    io.write_volume(small_volume(seed=3), recording.parent / "volume.nii.gz")
    with pytest.raises(ScopeRegError, match="other pixels"):
        FinishedShow(read_results([recording]), Images())


def test_a_sequence_of_a_tracker_alone_has_no_results(tmp_path: Path) -> None:
    found = results()[:2]
    poses = [
        type(result.pose)(result.pose.rotation, result.pose.translation_mm, "Image", "Reference") for result in found
    ]
    path = io.write_plus_sequence([result.frame for result in found if result.frame], poses, tmp_path / "a.igs.mha")
    with pytest.raises(ScopeRegError, match="no place in a volume"):
        read_results([path])


def test_finished_results_keep_notes_beside_them_where_they_may(tmp_path: Path) -> None:
    show = FinishedShow(read_results([table(tmp_path)]), Images(volume=tmp_path / "volume.nii.gz"))
    assert show.state()["can"] == []
    for request in ({"do": "note", "frame": 0, "text": "a"}, {"do": "drop_note", "key": "a"}):
        with pytest.raises(ScopeRegError, match="keeps no notes"):
            show.do(request)
    assert not (tmp_path / FILE).exists()
    other = Note("of another table.png", 5, "stays")
    write_notes(tmp_path, [other])
    show = FinishedShow(read_results([tmp_path]), Images(volume=tmp_path / "volume.nii.gz"), keeps_notes=True)
    assert show.state()["can"] == ["note"]
    for frame, text in ((4, EVIL), (0, "first"), (4, EVIL)):
        show.do({"do": "note", "frame": frame, "text": text})
    told = show.state()["notes"]
    assert [(note["result"], note["text"]) for note in told] == [(0, "first"), (4, EVIL)]
    kept = read_notes(tmp_path)
    assert [(note.file, note.index, note.text) for note in kept[1:]] == [
        ("sweep.igs.mha", 0, "first"),
        ("sweep.igs.mha", 5, EVIL),
    ]
    show.do({"do": "drop_note", "key": told[1]["key"]})
    assert read_notes(tmp_path) == (other, kept[1])
    for request in ({"frame": 99}, {"frame": -1}, {"frame": "0"}, {"text": ""}, {"text": ["a"]}):
        with pytest.raises(ScopeRegError):
            show.do({"do": "note", "frame": 0, "text": "words", **request})
    again = FinishedShow(read_results([tmp_path]), Images(volume=tmp_path / "volume.nii.gz"))
    assert [note["text"] for note in again.state()["notes"]] == ["first"]


@pytest.fixture
def finished(tmp_path: Path) -> Iterator[tuple[Path, WebServer]]:
    show = FinishedShow(read_results([table(tmp_path)]), Images(volume=tmp_path / "volume.nii.gz"), keeps_notes=True)
    with WebServer(show, port=0) as web:
        yield tmp_path, web


def test_in_the_browser_notes_are_written_read_and_lead_to_their_frames(
    tab: Tab, finished: tuple[Path, WebServer]
) -> None:
    folder, web = finished
    tab.open(web.url)
    tab.until("scopereg.model.path")
    tab.page.keyboard.press("ArrowRight")
    tab.until("scopereg.model.update.result === 1")
    tab.page.keyboard.press("n")
    assert tab.text("note-at") == "Note at sweep.igs.mha frame 1"
    tab.page.keyboard.type(EVIL)
    tab.page.keyboard.press("Enter")
    tab.until("document.querySelectorAll('#note-list li').length === 1")
    assert tab.page.inner_text("#note-list span") == EVIL
    assert tab.page.inner_text("#note-list small") == "sweep.igs.mha frame 1, 0.10 s"
    assert tab.text("verdict-note") == EVIL
    assert [note.text for note in read_notes(folder)] == [EVIL]
    tab.page.locator("#note-text").blur()
    tab.page.keyboard.press("ArrowRight")
    tab.until("scopereg.model.update.result === 2")
    assert not tab.page.is_visible("#verdict-note")
    tab.page.click("#note-list li button")
    tab.until("scopereg.model.update.result === 1")
    assert tab.page.is_visible("#note-list li.here")
    tab.page.click("#note-list li button:last-child")
    tab.until("document.querySelectorAll('#note-list li').length === 0")
    assert read_notes(folder) == ()


def test_while_frames_come_a_note_is_of_the_frame_at_its_first_letter(tab: Tab, tmp_path: Path) -> None:
    with serve(tmp_path, source=replay(rate_hz=25)) as served:
        tab.open(served.web.url)
        tab.page.keyboard.press("n")
        assert "start one first" in tab.text("notices")
        tab.page.keyboard.press("r")
        tab.page.press("#record-name", "Enter")
        tab.until("scopereg.can('note') && scopereg.model.state.recording.frames > 2")
        tab.page.keyboard.press("n")
        tab.page.keyboard.type("a")
        at = tab.ask("scopereg.notes.at.update")
        tab.until(f"scopereg.model.update.update > {at + 5}")
        tab.page.keyboard.type(" word")
        tab.page.click("#note-form button")
        tab.until("document.querySelectorAll('#note-list li').length === 1")
        assert tab.page.inner_text("#note-list span") == "a word"
        assert served.state()["notes"][0]["update"] == at
        tab.page.locator("#note-text").blur()
        tab.page.keyboard.press("r")
        tab.until("!scopereg.model.state.recording")
        assert not tab.page.is_visible("#note-form")
        assert tab.page.is_visible("#note-list li")
    (path,) = (tmp_path / "recordings").iterdir()
    assert noted(path) == ["a word"]


def test_a_page_of_one_file_holds_them_as_words(tab: Tab, recording: Path) -> None:
    write_notes(recording.parent, [Note(recording.name, 0, "beside it")])
    read = read_results([recording])
    page = write_page(
        recording.parent / "page.html",
        [result.open(Images()) for result in read],
        names=[result.name for result in read],
        steps=[result.step for result in read],
        notes=Notebook(read).listed(),
    )
    assert "<img" not in page.read_text(encoding="utf-8")
    tab.open(page.as_uri())
    tab.ask("scopereg.panel.fold(false)")
    assert tab.page.locator("#note-list span").all_inner_texts()[:2] == ["beside it", EVIL]
    assert not tab.page.is_visible("#note-form")
    assert tab.page.locator("#note-list li > button:nth-child(2)").count() == 0
