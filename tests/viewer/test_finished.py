"""Finished registrations from files: results, tables and folders of them, with their images found again."""

from __future__ import annotations

import csv
import functools
import json
import math
import operator
import shutil
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import SimpleITK as sitk
from serving import next_message, next_update, small_volume, unpack
from websockets.sync.client import connect

from scopereg import cli, io
from scopereg.errors import ScopeRegError
from scopereg.geometry import Pose
from scopereg.registration.batch import Row, Task, write_table
from scopereg.registration.result import Assessment, Result
from scopereg.registration.track import Step, write_track
from scopereg.viewer.finished import Images, read_results
from scopereg.viewer.finished_show import FinishedShow
from scopereg.viewer.web import WebServer


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three frames as pictures and two volumes, registered by `scopereg register`: each alone, and as a batch."""
    folder = tmp_path_factory.mktemp("done")
    for seed, name in ((0, "volume.nii.gz"), (1, "other.nii.gz")):
        io.write_volume(small_volume(seed), folder / "images" / name)
    for number in range(3):
        pixels = np.random.default_rng(number).integers(0, 256, (10, 14), dtype=np.uint8)
        (folder / "images" / "frames").mkdir(exist_ok=True)
        sitk.WriteImage(sitk.GetImageFromArray(pixels), str(folder / "images" / "frames" / f"f{number}.png"))
    images = folder / "images"
    words = ["--method", "start", "--pixel-mm", "0.5", "0.6"]
    for number, volume in ((0, "volume.nii.gz"), (1, "other.nii.gz")):
        frame, out = images / "frames" / f"f{number}.png", folder / "json" / f"pose{number}.json"
        assert cli.main(["register", str(frame), str(images / volume), *words, "-o", str(out)]) == 0
    (folder / "json" / "unrelated.json").write_text("{}")
    batch = ["register", str(images / "frames"), str(images / "volume.nii.gz"), *words, "--no-report"]
    assert cli.main([*batch, "--workers", "1", "-o", str(folder / "batch")]) == 0
    return folder


def test_a_result_finds_its_images_and_is_as_it_was(done: Path) -> None:
    (finished,) = read_results([done / "json" / "pose0.json"])
    result = finished.open(Images((done / "images",)))
    assert finished.name == "f0.png"
    assert result.frame is not None
    assert result.volume is not None
    assert result.frame.spacing_mm == (0.5, 0.6)
    assert np.allclose(result.volume.numpy(), small_volume().numpy())
    assert result.pose.is_close(io.read_pose(done / "json" / "pose0.json"))
    assert (result.method, result.ok) == ("identity", None)


def test_a_folder_gives_its_results_in_order(done: Path) -> None:
    assert [each.name for each in read_results([done / "json"])] == ["f0.png", "f1.png"]
    assert [each.name for each in read_results([done / "batch"])] == ["f0.png", "f1.png", "f2.png"]


def from_another_machine(results: Path, folder: Path) -> Path:
    """Results in JSON as somebody else would have them, to whom their files mean nothing."""
    for path in results.glob("pose*.json"):
        told = json.loads(path.read_text())
        for kind in ("frame", "volume"):
            told[kind]["path"] = f"/nowhere{told[kind]['path']}"
        (folder / path.name).write_text(json.dumps(told))
    return folder


def test_results_find_their_images_where_they_were(done: Path) -> None:
    """Neither beside the results nor here, and nobody tells a folder, a volume or the size of a pixel."""
    for finished in (*read_results([done / "json"]), *read_results([done / "batch"])):
        result = finished.open(Images())
        assert result.frame is not None
        assert result.frame.spacing_mm == (0.5, 0.6)
        assert math.isfinite(result.similarity)


def test_a_file_that_changed_is_not_taken_for_the_one_of_then(done: Path, tmp_path: Path) -> None:
    shutil.copytree(done / "images", tmp_path / "images")
    words = ["--method", "start", "--pixel-mm", "0.5", "0.6", "--no-report", "--workers", "1"]
    images = tmp_path / "images"
    batch = ["register", str(images / "frames"), str(images / "volume.nii.gz"), *words, "-o", str(tmp_path / "batch")]
    assert cli.main(batch) == 0
    first, *_ = read_results([tmp_path / "batch"])
    shutil.copy(images / "other.nii.gz", images / "volume.nii.gz")
    with pytest.raises(ScopeRegError, match=r"volume\.nii\.gz is another file than it was"):
        first.open(Images())
    (images / "volume.nii.gz").unlink()
    with pytest.raises(ScopeRegError, match=r"volume\.nii\.gz is not found"):
        first.open(Images())


def test_what_somebody_else_tells_leads_to_no_file_without_its_hash(done: Path, tmp_path: Path) -> None:
    """A table or JSON that was brought must not show a file of this machine that its author does not know."""
    private = done / "images" / "frames" / "f2.png"
    told = json.loads((done / "batch" / "inputs.json").read_text())
    told["frames"]["f0.png"] |= {"path": str(private), "size": private.stat().st_size}
    (tmp_path / "inputs.json").write_text(json.dumps(told))
    shutil.copy(done / "batch" / "poses.csv", tmp_path)
    with pytest.raises(ScopeRegError, match=r"f0\.png is another file"):
        read_results([tmp_path])[0].open(Images())
    pose = json.loads((done / "json" / "pose0.json").read_text())
    pose["frame"] |= {"path": str(private), "pixels_sha256": None}
    (tmp_path / "pose0.json").write_text(json.dumps(pose))
    with pytest.raises(ScopeRegError, match=r"f0\.png is not found"):
        read_results([tmp_path / "pose0.json"])[0].open(Images())


def test_a_table_alone_needs_to_be_told_the_volume(done: Path, tmp_path: Path) -> None:
    shutil.copy(done / "batch" / "poses.csv", tmp_path)
    finished = read_results([tmp_path / "poses.csv"])[2]
    frames = (done / "images" / "frames",)
    with pytest.raises(ScopeRegError, match="does not name its volume") as error:
        finished.open(Images(frames, spacing_mm=(0.5, 0.6)))
    assert "volume=" in error.value.fix
    result = finished.open(Images(frames, done / "images" / "volume.nii.gz", spacing_mm=(0.5, 0.6)))
    assert result.frame is not None
    assert math.isfinite(result.similarity)


def test_a_track_tells_its_errors(tmp_path: Path) -> None:
    row = "frame,file,index,time_s,state,tx_mm,ty_mm,tz_mm,rx_deg,ry_deg,rz_deg,expected_mm,ok,reason,error_mm,method"
    lines = [
        row,
        "0,s.igs.mha,0,0.0,found,1,2,3,4,5,6,1.2,yes,,0.8,echo",
        "1,s.igs.mha,1,0.1,lost,1,2,3,4,5,6,,no,lost,,echo",
    ]
    (tmp_path / "track.csv").write_text("\n".join(lines) + "\n")
    found, lost = read_results([tmp_path])
    assert (found.name, found.error_mm, found.result().ok, found.result().expected_mm) == (
        "s.igs.mha frame 0",
        0.8,
        True,
        1.2,
    )
    assert (lost.result().ok, lost.result().belongs, math.isnan(lost.error_mm)) == (False, False, True)


@pytest.mark.parametrize(("belongs", "light"), [(True, "amber"), (False, "red"), (None, "amber")])
def test_a_table_tells_own_frames_from_strangers(tmp_path: Path, belongs: bool | None, light: str) -> None:
    """The confidence of an own frame is 0 too, where a large error is expected."""
    pose = Pose.from_euler_deg((4, 5, 6), (1, 2, 3))
    result = Result(pose, "x", 1.0, 0.5, ok=False, confidence=0.0, expected_mm=8.5, belongs=belongs)
    found = Row(Task(Path("f.png"), "f.png", "f"), result)
    write_table([found], tmp_path / "poses.csv", ".tfm")
    step = Step(0, "f.png", 0, 0.0, "carried", "away", result)
    write_track([step], tmp_path / "track.csv")
    for finished in read_results([tmp_path]):
        assert finished.result().belongs is belongs
        assert math.isfinite(finished.result().expected_mm) is (belongs is True)
        assert Assessment.of(finished.result()).light == light


def test_images_that_are_missing_or_others_are_told(done: Path, tmp_path: Path) -> None:
    (finished,) = read_results([from_another_machine(done / "json", tmp_path) / "pose0.json"])
    with pytest.raises(ScopeRegError, match=r"f0\.png is not found") as missing:
        finished.open(Images((tmp_path,)))
    assert "data=" in missing.value.fix
    (tmp_path / "f0.png").write_bytes((done / "images" / "frames" / "f1.png").read_bytes())
    with pytest.raises(ScopeRegError, match="other pixels"):
        finished.open(Images((tmp_path, done / "images")))


@pytest.mark.parametrize("content", ["", "{}", "[]", '{"format": "x"}'])
def test_files_that_hold_no_result_are_told(tmp_path: Path, content: str) -> None:
    (tmp_path / "a.json").write_text(content)
    with pytest.raises(ScopeRegError):
        read_results([tmp_path / "a.json"])
    with pytest.raises(ScopeRegError, match="no result"):
        read_results([tmp_path])
    (tmp_path / "a.tfm").write_text("x")
    with pytest.raises(ScopeRegError, match="does not name its images"):
        read_results([tmp_path / "a.tfm"])


def test_results_are_chosen_in_the_page(done: Path) -> None:
    show = FinishedShow(read_results([done / "json"]), Images((done / "images",)))
    with WebServer(show, port=0) as web:
        origin = f"http://127.0.0.1:{web.port}"
        with connect(f"ws://127.0.0.1:{web.port}/ws", origin=origin) as page:  # type: ignore[arg-type]
            state = next_message(page, "state")
            assert (state["mode"], [each["name"] for each in state["results"]]) == ("view", ["f0.png", "f1.png"])
            first = next_update(page)
            assert (first["result"], first["generation"], first["frame"]["name"]) == (0, 1, "f0.png")
            for wrong in (
                {"do": "result", "number": 7},
                {"do": "result"},
                {"do": "pause"},
                {"do": "result", "number": "0"},
            ):
                page.send(json.dumps(wrong))
                next_message(page, "notice", level="error")
            page.send('{"do": "result", "number": 1}')
            second = next_update(page)
            assert (second["result"], second["generation"], second["frame"]["name"]) == (1, 2, "f1.png")
            assert second["number"] > first["number"]
            assert next_message(page, "state")["volume"]["name"] == "other.nii.gz"


def test_a_result_whose_images_are_gone_leaves_the_last_on_the_screen(done: Path, tmp_path: Path) -> None:
    for name in ("f0.png", "volume.nii.gz"):
        found = next((done / "images").rglob(name))
        (tmp_path / name).write_bytes(found.read_bytes())
    show = FinishedShow(read_results([from_another_machine(done / "json", tmp_path)]), Images((tmp_path,)))
    before = show.packet()
    with pytest.raises(ScopeRegError, match=r"f1\.png is not found"):
        show.do({"do": "result", "number": 1})
    assert show.packet() == before
    assert unpack(before[1])[0]["light"] == "amber"


def test_the_verb_serves_until_it_is_ended(done: Path) -> None:
    words = ["view", str(done / "json"), "--data", str(done / "images"), "--port", "0", "--no-open"]
    command = [sys.executable, "-m", "scopereg", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
        try:
            assert running.stdout is not None
            line = running.stdout.readline()
            assert line.startswith("viewer  http://127.0.0.1:")
            with urllib.request.urlopen(line.split()[1].replace("?", "api/state?"), timeout=20) as answer:
                assert json.load(answer)["mode"] == "view"
            running.send_signal(signal.SIGTERM)
            assert running.wait(20) == 0
        finally:
            running.kill()


def test_the_verb_says_what_is_missing(done: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["view"]) == 2
    assert cli.main(["view", str(tmp_path / "none.json")]) == 2
    assert cli.main(["view", str(done / "json" / "pose0.json"), "--save", str(tmp_path / "x.pdf")]) == 2
    assert ".html" in capsys.readouterr().err


def test_the_verb_writes_one_page(done: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    words = ["view", str(done / "json" / "pose0.json"), "--data", str(done / "images"), "--save", str(page)]
    assert cli.main(words) == 0
    assert "f0.png" in page.read_text()


ODD = (
    None,
    True,
    -1,
    0,
    10**30,
    0.5,
    -1e308,
    "",
    "x",
    "\x00",
    "*",
    "..",
    "/dev/zero",
    "a/../../b",
    [],
    [[]],
    {},
    {"a": 1},
)
ODD_TEXTS = ("NaN", "1e999", "[" * 5000, "9" * 5000, '"\\ud800"')


def places_in(content: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where values stand in what JSON holds."""
    yield place
    for key, value in (
        content.items() if isinstance(content, dict) else enumerate(content if isinstance(content, list) else ())
    ):
        yield from places_in(value, (*place, key))


def test_whatever_stands_in_a_result_is_shown_or_refused(done: Path, tmp_path: Path) -> None:
    """Every value of one, replaced by something odd or left out: nothing but a ScopeRegError is raised."""
    whole = (done / "json" / "pose0.json").read_text()
    path, refused = tmp_path / "odd.json", 0
    images = Images((done / "images",))
    texts = []
    for place in places_in(json.loads(whole)):
        if place:
            left_out = json.loads(whole)
            holder = functools.reduce(operator.getitem, place[:-1], left_out)
            del holder[place[-1]]
            texts.append(json.dumps(left_out))
        for odd in (*map(json.dumps, ODD), *ODD_TEXTS):
            if not place:
                texts.append(odd)
                continue
            marked = json.loads(whole)
            functools.reduce(operator.getitem, place[:-1], marked)[place[-1]] = "HERE"
            texts.append(json.dumps(marked).replace('"HERE"', odd))
    for text in texts:
        path.write_text(text)
        try:
            shown = FinishedShow(read_results([path]), images)
            json.dumps(shown.state(), allow_nan=False)
            unpack(shown.packet()[1])
        except ScopeRegError:
            refused += 1
    assert 300 < refused < len(texts)


@pytest.mark.parametrize("name", ["/dev/zero", "../f0.png", "a/../../f0.png", "", ".", "*", "f\x00"])
def test_a_result_names_files_below_the_folders_and_no_others(done: Path, tmp_path: Path, name: str) -> None:
    record = json.loads((done / "json" / "pose0.json").read_text())
    record["frame"]["file"] = name
    (tmp_path / "pose.json").write_text(json.dumps(record))
    table = (done / "batch" / "poses.csv").read_text().replace("f0.png", name.replace("\x00", "\x01"))
    (tmp_path / "poses.csv").write_text(table)
    images = Images(
        (done / "images", done / "images" / "frames"), done / "images" / "volume.nii.gz", spacing_mm=(0.5, 0.6)
    )
    for path in ("pose.json", "poses.csv"):
        with pytest.raises(ScopeRegError):
            read_results([tmp_path / path])[0].open(images)


def test_tables_with_odd_cells_are_shown_or_refused(done: Path, tmp_path: Path) -> None:
    with (done / "batch" / "poses.csv").open(newline="") as file:
        header, first, *_ = list(csv.reader(file))
    images = Images((done / "images" / "frames",), done / "images" / "volume.nii.gz", spacing_mm=(0.5, 0.6))
    path, refused, taken = tmp_path / "poses.csv", 0, 0
    for column in range(len(header)):
        for odd in ("", "x", "nan", "inf", "-1", "1e308", "9" * 5000, "\x01", "=1+1", '"', "[]"):
            row = [*first[:column], odd, *first[column + 1 :]]
            with path.open("w", newline="") as file:
                csv.writer(file).writerows([header, row])
            try:
                shown = FinishedShow(read_results([path]), images)
                json.dumps(shown.state(), allow_nan=False)
                taken += 1
            except ScopeRegError:
                refused += 1
    assert taken > 100  # odd words in columns that are for people
    assert refused > 50
