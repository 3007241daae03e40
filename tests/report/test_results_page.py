"""The report of results stands alone, repeats the numbers of the rows, and shows only frames that were measured."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr

from scopereg.cli import main
from scopereg.data.splits import Split
from scopereg.data.store import VolumeSet, save_set
from scopereg.evaluation.reliability import rank_correlation
from scopereg.evaluation.results import FrameResult, read_results, write_results
from scopereg.evaluation.runner import EvaluateSettings, evaluate
from scopereg.geometry import Pose, sample_poses
from scopereg.images import Frame, Volume, pose_from_voxels
from scopereg.registration.prepared import Found, Identity, Prepared
from scopereg.registration.result import Result
from scopereg.report import example_data
from scopereg.report.charts import BoxPlot, Curve, box_chart, curve_chart, log_axis, plain_axis, scatter_chart
from scopereg.report.example_frames import failures, ranked
from scopereg.report.results_page import report_of

NAN = float("nan")
SETTINGS = EvaluateSettings("paper", 6.0, frames=2)
SECTIONS = (
    "At a glance",
    "Accuracy",
    "Statistics",
    "Errors",
    "Capture range",
    "Examples",
    "Failures",
    "Where the numbers come from",
    "How this was made",
)
METHODS = {"identity": 9.0, "other": 4.0, "SCoPE-Reg": 1.5}


class Page(HTMLParser):
    """What a page links to, holds and leaves open."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open, self.links, self.ids, self.headings = list[str](), list[str](), set[str](), list[str]()
        self.tags = set[str]()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.links += [value or "" for name, value in attrs if name in ("src", "href", "action", "data")]
        self.ids |= {value or "" for name, value in attrs if name == "id"}
        self.tags.add(tag)
        if tag not in ("img", "meta", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1:] == ["h2"]:
            self.headings.append(data)


def row(method: str, error: float, **changes: Any) -> FrameResult:
    pose = {f"{kind}_{name}": 1.0 for kind in ("true", "found") for name in ("tx", "ty", "tz", "rx", "ry", "rz")}
    numbers = {"translation_mm": error, "rotation_deg": error, "geodesic_deg": error, "dice": 0.9, "hd95_mm": error}
    values = {"dataset": "camus", "protocol": "paper", "magnitude": 10.0, "fold": 0, "case": "a", "patient": "p"}
    values |= {"frame": 0, "start_mm": 9.0, "ncc": 0.5, "ssim": 0.5, "confidence": NAN, "time_ms": 1.0}
    return FrameResult(**{**values, **numbers, **pose, "method": method, "mtre_mm": error, **changes})  # type: ignore[arg-type]


def rows_of(method: str, factor: float, **changes: Any) -> list[FrameResult]:
    """Two folds of three patients with two frames each; errors grow from frame to frame."""
    return [
        row(
            method,
            round(factor * (0.5 + 0.3 * index + 0.4 * fold), 6),
            fold=fold,
            case=f"case{fold}{index // 2}",
            patient=f"patient{fold}{index // 2}",
            frame=index % 2,
            **changes,
        )
        for fold in range(2)
        for index in range(6)
    ]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("results")
    for protocol, magnitude in (("paper", 5.0), ("paper", 10.0), ("honest", 10.0)):
        for method, factor in METHODS.items():
            sure = {"confidence": 0.25} if method == "other" else {}
            rows = rows_of(method, factor * magnitude / 10, protocol=protocol, magnitude=magnitude, **sure)
            if method == "other":
                rows = [replace(each, confidence=-each.mtre_mm) for each in rows]
                rows[3] = replace(rows[3], mtre_mm=NAN, translation_mm=NAN, confidence=NAN)
            facts = {"seed": 3, "made": "2026-01-01", "data_sha256": "ab" * 32, "python": "3.12.1"}
            write_results(folder / f"{protocol}{magnitude:g}-{method}.csv", rows, facts)
    return folder


def report(results: Path, output: Path, *words: str) -> str:
    assert main(["report", str(results), "-o", str(output), *words]) == 0
    return output.read_text()


@pytest.fixture(scope="module")
def page(results: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    return report(results, tmp_path_factory.mktemp("page") / "report.html")


def test_the_page_stands_alone_and_leads_everywhere(page: str) -> None:
    found = Page(page)
    assert found.open == []
    assert not found.tags & {"script", "link", "iframe", "object", "embed", "base", "form"}
    assert all(link.startswith(("#", "data:image/png;base64,")) for link in found.links)
    assert {link[1:] for link in found.links if link.startswith("#")} == found.ids
    assert not re.search(r"https?://|url\(|@import|\son\w+=", page)
    assert "@media print" in page
    assert "break-before:page" in page


def test_every_section_is_there_or_left_out_on_purpose(page: str, results: Path, tmp_path: Path) -> None:
    assert Page(page).headings == [*SECTIONS[:-2], "Confidence", *SECTIONS[-2:]]
    assert page.count("Add --dataset camus --data FOLDER") == 4  # examples and failures of two protocols
    alone = report(results / "paper10-SCoPE-Reg.csv", tmp_path / "one.html")
    assert Page(alone).headings == list(SECTIONS)
    assert "No tests: no other method" in alone
    assert "The results are of one magnitude each" in alone
    assert "2 of 12 frames." in alone
    assert "--magnitude chooses" not in alone


def test_python_is_told_of_arguments_and_the_command_line_of_flags(page: str, results: Path) -> None:
    assert "Add --dataset camus --data FOLDER" in page
    assert "--magnitude chooses" in page
    called = report_of([results]).html()
    assert "Add dataset=camus data=FOLDER" in called
    assert "magnitude= chooses" in called
    assert not re.search(r"\s--[a-z]", re.sub("<style>.*</style>|<pre>.*</pre>", "", called, flags=re.DOTALL))


def test_numbers_are_those_of_the_rows(page: str, results: Path) -> None:
    errors = np.array([row.mtre_mm for row in read_results(results / "paper10-SCoPE-Reg.csv")[0]])
    means = errors.reshape(2, 6).mean(1)
    text = unescape(page)
    assert f"{means.mean():.2f} ± {means.std():.2f}" in text  # the table
    assert f"<b>{means.mean():.2f} mm</b>" in text  # the card
    assert f"<b>{np.percentile(errors, 95):.2f} mm</b>" in text
    low, middle, high = np.percentile(errors, [25, 50, 75])
    assert f"SCoPE-Reg: median {middle:.2f}, quartiles {low:.2f} to {high:.2f}" in text  # the box
    other = np.array([row.mtre_mm for row in read_results(results / "paper10-other.csv")[0]])
    assert f"other: {100 * np.nanmean(np.where(np.isnan(other), 0, other <= 3)):.1f} % within 3 mm" in text
    assert "other (1 lost)" in text
    assert f"other: 11 frames, rank correlation {-1:+.2f}" in text
    assert text.count(">2026-01-01<") == 9


def test_published_numbers_are_labelled(results: Path, tmp_path: Path) -> None:
    plain = report(results, tmp_path / "plain.html")
    text = report(results, tmp_path / "beside.html", "--with-published")
    assert "published" not in re.sub("<style>.*</style>|<pre>.*</pre>", "", plain, flags=re.DOTALL)
    assert "not measured here" in text
    assert "<tr class='published'>" in text


def test_failures_are_worst_first_and_lost_frames_are_the_worst() -> None:
    rows = [row("a", error) for error in (1.0, 5.0, NAN, 3.0, 3.5)]
    assert failures(rows) == [2, 1, 4]
    assert ranked(rows) == {0: "best", 4: "median", 2: "95th percentile, worst"}
    assert ranked(rows[:1]) == {0: "best, median, 95th percentile, worst"}


class Guess:
    """Poses at random, the same in every run."""

    def __init__(self, name: str, magnitude: float) -> None:
        self.name, self.magnitude, self.facts = name, magnitude, dict[str, Any]()

    def prepare(self, volume: Volume) -> Prepared:
        return Guessing(self.magnitude, volume)


class Guessing(Prepared):
    def __init__(self, magnitude: float, volume: Volume) -> None:
        self.magnitude, self.volume = magnitude, volume

    def locate(self, frames: Sequence[Frame], starts: Sequence[Pose | None]) -> list[Found]:
        poses = sample_poses(len(frames), self.magnitude, self.volume.shape, torch.Generator().manual_seed(1))
        placed = [
            pose_from_voxels(poses.rotation[row], poses.translation[row], frame, self.volume)
            for row, frame in enumerate(frames)
        ]
        return [Result(pose, "guess", 1.0, row / 2) for row, pose in enumerate(placed)]


@pytest.fixture(scope="module")
def volumes() -> VolumeSet:
    noise = torch.rand(3, 1, 6, 12, 12, generator=torch.Generator().manual_seed(0))
    smooth = torch.nn.functional.interpolate(noise, (12, 24, 24), mode="trilinear")[:, 0]
    cases = tuple(f"echo{100_000 + index}" for index in range(3))
    facts = {"dataset": "phantom", "anatomy": "echo", "frames": 2, "magnitude": 6.0}
    return VolumeSet("echo", (smooth * 255).to(torch.uint8), 0.5, cases, cases, facts=facts)


@pytest.fixture(scope="module")
def measured(volumes: VolumeSet, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("measured")
    for method in (Identity(), Guess("other", 6.0), Guess("SCoPE-Reg", 3.0)):
        evaluate(volumes, Split((), (), (0, 1, 2)), method, SETTINGS, folder)
    return folder


def pictures(page: str) -> int:
    return page.count("data:image/png;base64,")


def test_frames_are_made_again_from_a_prepared_set(volumes: VolumeSet, measured: Path, tmp_path: Path) -> None:
    data = save_set(volumes, tmp_path / "set")
    text = report(measured, tmp_path / "report.html", "--data", str(data))
    rows = read_results(measured / "echo-fold0-pm6-paper-SCoPE-Reg.csv")[0]
    strips = len(ranked(rows)) + len(failures(rows))
    assert pictures(text) == strips * 9  # frame; start, two methods and truth, each with its difference
    worst = max(rows, key=lambda row: row.mtre_mm)
    assert f"SCoPE-Reg: {worst.mtre_mm:.2f} mm" in text
    assert "Add --dataset" not in text


def test_phantoms_are_made_again_from_the_header(
    volumes: VolumeSet, measured: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def make(anatomy: str, count: int, *, seed: int, **wanted: Any) -> VolumeSet:
        assert (anatomy, count) == ("echo", 1)
        assert wanted == {"frames": 2, "magnitude": 6.0, "shape": (12, 24, 24)}
        return volumes.subset([seed - 100_000])

    monkeypatch.setattr(example_data, "make_phantoms", make)
    assert pictures(report(measured, tmp_path / "with.html")) > 4 * 9
    without = report(measured, tmp_path / "without.html", "--no-pictures")
    assert pictures(without) == 0
    assert "No pictures were asked for" in without


def test_frames_are_found_where_the_evaluation_had_them(
    volumes: VolumeSet, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = save_set(replace(volumes, name="folder", facts={"dataset": "folder"}), tmp_path / "set")
    words = ["--data", str(data), "--methods", "identity", "--protocols", "paper", "--magnitudes", "6", "--cases", "1"]
    assert main(["evaluate", "folder", *words, "--part", "train", "-o", str(tmp_path / "results")]) == 0
    text = report(tmp_path / "results", tmp_path / "a.html")
    assert pictures(text) > 8
    assert str(tmp_path) not in text  # the folders of a machine are nobody else's business
    turned = save_set(
        replace(volumes, name="folder", images=volumes.images.flip(3).contiguous(), facts={"dataset": "folder"}), data
    )
    other = report(tmp_path / "results", tmp_path / "b.html")
    assert pictures(other) == 0
    assert "No pictures: " in other
    assert "these are other images" in other
    turned.rename(tmp_path / "elsewhere")
    gone = report(tmp_path / "results", tmp_path / "c.html")
    assert pictures(gone) == 0
    assert "is not where the evaluation read it. Add --dataset folder --data FOLDER" in gone
    assert capsys.readouterr().err.count("To fix it") == 0


def test_other_poses_and_other_images_are_refused(
    volumes: VolumeSet, measured: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = str(save_set(volumes, tmp_path / "set"))
    turned = replace(volumes, images=volumes.images.flip(3).contiguous())
    other = str(save_set(turned, tmp_path / "turned"))
    few = str(save_set(volumes.subset([0]), tmp_path / "few"))
    moved = tmp_path / "moved"
    for path in measured.iterdir():
        rows, facts = read_results(path)
        write_results(moved / path.name, [replace(row, true_tx=row.true_tx + 0.5) for row in rows], facts)
    output = tmp_path / "report.html"
    for folder, source in ((moved, data), (measured, other), (measured, few)):
        assert main(["report", str(folder), "-o", str(output), "--data", source]) == 2
    said = capsys.readouterr().err
    for words in ("the true pose of the frame made again", "these are other images", "there is no case"):
        assert words in said
    assert not output.exists()


def test_bad_input_is_explained(results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["report", str(results)]
    wrong = [
        ["report", str(tmp_path), "-o", str(tmp_path / "a.html")],
        [*words, "-o", str(tmp_path / "a.pdf")],
        [*words, "-o", str(tmp_path / "a.html"), "--reference", "scope"],
        [*words, "-o", str(tmp_path / "a.html"), "--magnitude", "7"],
        [*words, "-o", str(tmp_path / "a.html"), "--dataset", "echo"],
        [*words, "-o", str(tmp_path / "a.html"), "--dataset", "camus"],
        [*words, "-o", str(tmp_path / "a.html"), "--data", str(tmp_path / "nowhere")],
    ]
    for line in wrong:
        assert main(line) == 2, line
    assert capsys.readouterr().err.count("To fix it") == len(wrong)
    assert not list(tmp_path.iterdir())


def test_names_of_users_are_escaped(tmp_path: Path) -> None:
    name = "<script>alert('a')</script>"
    write_results(tmp_path / "results.csv", rows_of(name, 5.0, dataset="<b>"), {"python": name})
    text = report(tmp_path / "results.csv", tmp_path / "report.html")
    found = Page(text)
    assert "script" not in found.tags
    assert found.open == []


def test_rank_correlation_is_spearmans() -> None:
    first, second = np.random.default_rng(0).integers(0, 8, (2, 40))
    assert rank_correlation(first, second) == pytest.approx(spearmanr(first, second).statistic)
    assert np.isnan(rank_correlation([1, 1, 1], [1, 2, 3]))


@pytest.mark.parametrize("values", [[0.0], [0.0, 1e-9, 500.0], [3.0] * 4, [0.1, 1.0, 10.0], [1e3, 2e3]])
def test_charts_stay_inside_the_picture(values: list[float]) -> None:
    charts = [
        box_chart([BoxPlot("a" * 60, values, "red"), BoxPlot("none", [], "red")], x_label="x", mark=(3.0, "3 mm")),
        scatter_chart([Curve("a", values, values, "red")], x_label="x", y_label="y"),
        curve_chart([Curve("a", values, values, "red", band=[(NAN, NAN)] * len(values))], x_label="x", y_label="y"),
    ]
    for svg in charts:
        numbers = [float(number) for number in re.findall(r'\s(?:cx|cy|x1|x2|y1|y2|x|y)="([^"]+)"', svg)]
        assert all(0 <= number <= 760 for number in numbers)
        assert "nan" not in svg


def test_axes_end_at_round_numbers() -> None:
    axis = log_axis([0.03, 17.0], 0, 100)
    assert (axis.low, axis.high) == (pytest.approx(0.02), pytest.approx(20))
    assert axis.ticks[0] == pytest.approx(0.02)
    assert axis(0.02) == pytest.approx(0)
    assert axis(20) == pytest.approx(100)
    assert axis(1e-9) == pytest.approx(0)
    assert plain_axis([0.11, 0.74]).ticks == pytest.approx((0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7))
