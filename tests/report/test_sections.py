"""What a report tells of confidence, adaptation and sweeps: the numbers of the rows, nothing where there are none."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from scopereg.cli import main
from scopereg.evaluation.results import FrameResult, ResultsFile, group_results, write_results
from scopereg.geometry import Pose
from scopereg.images import Frame
from scopereg.io.plus_sequence import write_plus_sequence
from scopereg.registration.result import Result
from scopereg.registration.track import Step, write_track
from scopereg.report.adaptation_section import find_pairs
from scopereg.report.results_page import report_of

NAN = math.nan
ADAPTED = {"adapted": {"model": "mine", "from": ["echo"]}}
LEARNED = {"steps": 55, "minutes": 2.0, "settings": {"parts": "all"}}


def rows_of(method: str, errors: list[float], **changes: Any) -> list[FrameResult]:
    """Two frames of each patient."""
    pose = {f"{kind}_{name}": 1.0 for kind in ("true", "found") for name in ("tx", "ty", "tz", "rx", "ry", "rz")}
    names = ("translation_mm", "rotation_deg", "geodesic_deg", "dice", "hd95_mm", "ncc", "ssim", "time_ms")
    same: dict[str, Any] = {**pose, **dict.fromkeys(names, 0.5), "start_mm": 9.0, "confidence": NAN}
    same |= {"dataset": "echo", "protocol": "honest", "magnitude": 10.0, "fold": 0, "method": method, **changes}
    return [
        FrameResult(case=f"p{index // 2}", patient=f"p{index // 2}", frame=index % 2, mtre_mm=error, **same)
        for index, error in enumerate(errors)
    ]


def judged(rows: list[FrameResult]) -> list[FrameResult]:
    """With an expected error near the true one, and a bound that one frame is above."""
    told = [(row.mtre_mm * (1.2 if index % 2 else 0.8)) for index, row in enumerate(rows)]
    return [
        replace(row, expected_mm=mm, bound_mm=1.5 * mm if index else 0.1, confidence=1 / (1 + mm), ok=ok)
        for index, (row, mm) in enumerate(zip(rows, told, strict=True))
        for ok in ("yes" if mm < 2.5 else "no",)
    ]


def report(tmp_path: Path, *paths: Path) -> str:
    assert main(["report", *map(str, paths), "-o", str(tmp_path / "report.html")]) == 0
    return unescape((tmp_path / "report.html").read_text())


def headings(page: str) -> list[str]:
    return re.findall(r"<h2[^>]*>([^<]*)", page)


def test_calibrated_methods_are_told_with_their_figures(tmp_path: Path) -> None:
    errors = [0.5, 1.0, 1.5, 2.0, 2.5, 3.5, 4.0, 6.0]
    write_results(tmp_path / "a.csv", judged(rows_of("echo", errors)), {})
    write_results(tmp_path / "b.csv", [replace(r, confidence=-r.mtre_mm) for r in rows_of("plain", errors)], {})
    page = report(tmp_path, tmp_path / "a.csv", tmp_path / "b.csv")
    assert "Confidence" in headings(page)
    lines = [re.findall(r"<td[^>]*>([^<]*)", line) for line in page.split("<tr>")]
    cells = {line[0]: line for line in lines if len(line) == 11}
    assert cells["echo"][1:5] == ["8", "2.62 mm", "2.72 mm", "3"]
    assert cells["echo"][5].startswith("1.00 (")
    assert cells["echo"][6:10] == ["88 %", "3.30 mm", "62 %", "100 %"]
    assert cells["plain"][3] == cells["plain"][6] == cells["plain"][8] == "–"
    assert cells["plain"][5].startswith("1.00 (")
    assert page.count("ok from 0.8") == 1
    assert "echo: 8 frames, rank correlation" in page
    assert page.count("confidence stated") == page.count("expected error stated") == 1


def test_an_adapted_network_is_set_beside_what_it_was(tmp_path: Path) -> None:
    before, after = [4.0, 5.0, 6.0, 7.0], [2.0, 2.5, 6.5, 3.5]
    facts = {"method_facts": {**ADAPTED, "weights": LEARNED}}
    write_results(tmp_path / "echo.csv", rows_of("echo", before), {"method_facts": {}})
    write_results(tmp_path / "mine.csv", rows_of("mine", after), facts)
    page = report(tmp_path, tmp_path / "echo.csv", tmp_path / "mine.csv")
    assert "Before and after adaptation" in headings(page)
    assert "echo to mine" in page
    change = np.subtract(after, before).mean()
    assert f"{change:+.2f} mm [" in page
    assert "3 of 4 frames are better" in page
    assert "all, 55 steps, 2.0 minutes" in page
    alone = report(tmp_path, tmp_path / "mine.csv")
    assert "Before and after adaptation" not in headings(alone)


def test_pairs_are_of_the_same_method_after_the_network() -> None:
    files, rows = [], []
    refined = {"start": {**ADAPTED, "weights": {}}, "options": "x"}
    known = {"echo": {}, "mine": ADAPTED, "echo + refine": {}, "mine + refine": refined, "mine x2": ADAPTED}
    for method, facts in known.items():
        rows += rows_of(method, [1.0, 2.0])
        files.append(ResultsFile(Path(method), rows_of(method, [1.0, 2.0]), {"method_facts": facts}))
    pairs = find_pairs(group_results(rows), files)
    assert [(pair.before, pair.after) for pair in pairs] == [("echo", "mine"), ("echo + refine", "mine + refine")]
    assert pairs[0].learned == "–"


def steps() -> list[Step]:
    pose = Pose.from_euler_deg([10, 20, 30], [1, 2, 3])
    states = ["found", "followed", "followed", "carried", "lost", "found"]
    errors = [1.0, 2.0, 1.0, 4.0, 9.0, 1.5]
    return [
        Step(
            row, "sweep.mha", row, row / 10, state, "" if row != 4 else 'it looks "like" nothing',
            Result(pose, "echo network", math.nan, math.nan, expected_mm=1.5, ok=state != "lost"), pose,
            error_mm=error, alone_error_mm=error + 0.5,
        )
        for row, (state, error) in enumerate(zip(states, errors, strict=True))
    ]  # fmt: skip


def test_sweeps_are_traced_beside_results_or_alone(tmp_path: Path) -> None:
    write_track(steps(), tmp_path / "first" / "track.csv")
    write_results(tmp_path / "results" / "a.csv", rows_of("echo", [1.0, 2.0]), {})
    page = report(tmp_path, tmp_path / "results", tmp_path / "first")
    assert headings(page)[-3:] == ["Sweeps", "Where the numbers come from", "How this was made"]
    for way, mean in (("frame by frame", 3.58), ("tracked", 3.08)):
        assert re.search(rf"<td>{way}</td><td>6</td><td>{mean} mm</td>", page)
    assert "<td>first (echo network)</td><td>6</td><td>4</td><td>2</td><td>2</td><td>1</td><td>1</td><td>0</td>" in page
    assert page.count("<title>lost</title>") == 2  # a band in both traces
    alone = report(tmp_path, tmp_path / "first")
    assert headings(alone) == ["Sweeps", "Where the numbers come from", "How this was made"]
    unknown = [replace(step, error_mm=NAN, alone_error_mm=NAN) for step in steps()]
    write_track(unknown, tmp_path / "second" / "track.csv")
    without = report(tmp_path, tmp_path / "second")
    assert "Errors against the tracker" not in without
    assert without.count("<figure>") == 2  # frames and verdicts, expected error


def test_frames_of_a_sweep_are_those_written_beside_its_table(tmp_path: Path) -> None:
    table = write_track(steps(), tmp_path / "sweep" / "track.csv")
    assert "there is no .igs.mha file with its frames beside track.csv" in report(tmp_path, table)
    frames = [Frame(torch.full((8, 10), row / 6), 1.0) for row in range(6)]
    poses = [step.pose for step in steps()]
    write_plus_sequence(frames, poses, table.with_name("sweep.igs.mha"), times_s=[row / 10 for row in range(6)])
    page = report(tmp_path, table)
    assert page.count("<g id='sweep-1-") == 6
    assert page.count("data:image/png;base64,") == 6 + 6  # under the cursor, and in the strip
    assert page.count("<use href='#sweep-1-") == 2 * 6  # in both charts
    assert "data:image" not in report_of([table], pictures=False).html()


def test_a_damaged_track_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_track(steps(), tmp_path / "track.csv")
    path.write_text(path.read_text().replace("carried", "somewhere"))
    assert main(["report", str(path), "-o", str(tmp_path / "report.html")]) == 2
    assert "no whole table of a track" in capsys.readouterr().err
    assert not (tmp_path / "report.html").exists()
