"""The speed table: what it counts, how it measures, what it leaves behind, and what happens when something fails."""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import io
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import torch
from torch import Tensor

from scopereg import __version__
from scopereg.cli import main, parse
from scopereg.commands import bench as verb
from scopereg.errors import ScopeRegError
from scopereg.evaluation.speed import bench
from scopereg.evaluation.speed.bench import TimedMode
from scopereg.evaluation.speed.floor import USES
from scopereg.evaluation.speed.modes import SHIPPED, Mode, Runnable, Setting
from scopereg.interruption import Terminated

CPU = torch.device("cpu")
SCOPE_REG = ["as published", "forward", "whole", "streaming"]


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


# a run from beginning to end; volumes of 32 pixels are too small for EUReg


@dataclasses.dataclass(frozen=True)
class Done:
    path: Path
    status: int
    said: str
    rows: list[dict[str, str]]


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Done:
    path = tmp_path_factory.mktemp("bench") / "speed.csv"
    words = ["--resolutions", "32", "--seconds", "0.05", "--stages", "--seed", "7", "--device", "cpu", "-o", str(path)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["scopereg", "bench", *words])
        ended, said = run_main(["bench", *words])
    return Done(path, ended, said, rows_of(path))


def run_main(words: list[str]) -> tuple[int, str]:
    """Status, and all that was said."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        status = main(words)
    return status, said.getvalue()


def test_every_form_has_a_row_and_numbers(done: Done) -> None:
    named = [(row["method"], row["form"]) for row in done.rows]
    assert named == [
        *(("scope-reg", mode) for mode in SCOPE_REG),
        ("universal", SHIPPED),
        ("scope-reg-3", "whole"),
        ("scope-reg-3", "streaming"),
        ("eureg", "forward"),
    ]
    for row in (row for row in done.rows[:-1] if row["form"] != SHIPPED):
        assert row["note"] == ""
        assert row["parameters"] == "6494901"
        assert row["precision"] == "float32"
        assert 0 < float(row["p50_ms"]) <= float(row["p95_ms"])
        assert int(row["frames"]) >= int(row["blocks"]) >= bench.LEAST_BLOCKS
        assert float(row["gflops_with_scans"]) > float(row["gflops"]) > 0
        assert (row["prepare_ms"] != "") == (row["form"] == "streaming")


def test_ratios_are_to_the_published_form_of_the_same_run(done: Done) -> None:
    first = float(done.rows[0]["fps"])
    assert done.rows[0]["ratio"] == "1"
    for row in done.rows[:-1]:
        assert float(row["ratio"]) == pytest.approx(float(row["fps"]) / first, rel=1e-4)


def test_a_row_that_cannot_be_does_not_stop_the_others(done: Done) -> None:
    assert done.status == 1
    assert done.rows[-1]["fps"] == done.rows[-1]["ratio"] == done.rows[-1]["blocks"].strip("0") == ""
    assert "at least (16, 64, 64)" in done.rows[-1]["note"]
    assert "eureg, 32: the reference has the shape (32, 32, 32)" in done.said


def test_rows_tell_what_they_were_made_with(done: Done) -> None:
    for row in done.rows:
        assert row["seed"] == "7"
        assert row["command"].startswith("scopereg bench --resolutions 32 --seconds 0.05 --stages --seed 7")
        assert row["device"] == f"cpu ({torch.get_num_threads()} threads)"
        assert f"torch {torch.__version__}" in row["versions"]
        assert row["machine"].endswith("cores")
        assert row["scopereg"] == __version__
        assert row["system"]
        assert row["made"].startswith("20")


def test_memory_on_a_cpu_is_left_empty_and_that_is_said(done: Done) -> None:
    assert {row["peak_mib"] + row["frame_peak_mib"] for row in done.rows} == {""}
    assert "Memory is told on CUDA devices alone" in done.said


def test_a_log_has_one_line_per_row_and_the_table_all_of_them(done: Done) -> None:
    lines = [line for line in done.said.splitlines() if " FPS, p50 " in line]
    assert len(lines) == len(done.rows) - 1
    assert "scope-reg with 3 looks, streaming" in done.said
    assert "6.49" in done.said


def test_the_plot_shows_something(done: Done) -> None:
    """A line and dots for each row that was measured, in two panels; the file needs nothing beside it."""
    text = done.path.with_suffix(".svg").read_text(encoding="utf-8")
    picture = ElementTree.fromstring(text)
    panels = picture.findall("{http://www.w3.org/2000/svg}svg")
    assert len(panels) == 2
    labels = {each.text for each in picture.findall("{http://www.w3.org/2000/svg}text")}
    measured = [row for row in done.rows if row["fps"]]
    for panel in panels:
        assert len(panel.findall("{http://www.w3.org/2000/svg}polyline")) == len(measured)
        said = " ".join(each.text or "" for each in panel.iter("{http://www.w3.org/2000/svg}title"))
        assert all((row["method"] if row["form"] == SHIPPED else row["form"]) in said for row in measured)
    assert {"scope-reg, as published", "scope-reg with 3 looks, whole"} <= labels
    assert "prefers-color-scheme:light" in text
    assert text.count("http") == 1  # the name of the format


def test_stages_stand_beside_their_floor_and_add_up(done: Done) -> None:
    rows = rows_of(done.path.with_name("speed-stages.csv"))
    plain = {row["stage"]: row for row in rows if row["method"] == "scope-reg"}
    everything = {name for mode, names in USES.items() if mode != "look" for name in names}
    copies = {name for name in everything if name.startswith("copy")}
    sums = {"a frame, streaming", "a volume, prepared", "a frame and its volume, whole"}
    assert plain.keys() == (everything - copies) | sums
    for column in ("mflop", "mib", "floor_us", "measured_us"):
        parts = [float(plain[name][column]) for name in USES["streaming"] if name not in copies]
        assert float(plain["a frame, streaming"][column]) == pytest.approx(sum(parts), rel=1e-3)
    for row in rows:
        assert float(row["times_floor"]) == pytest.approx(float(row["measured_us"]) / float(row["floor_us"]), rel=1e-3)
    looks = {row["stage"] for row in rows if row["method"] == "scope-reg-3"} - plain.keys()
    assert looks == {"volume seen from the pose", "each further look"}
    assert "TFLOP/s in products" in done.said


# what is refused


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--methods", "scope-rge"], "did you mean 'scope-reg'"),
        (["--methods", "scope-reg", "heart:wide"], "unknown method 'heart:wide'"),
        (["--resolutions", "128", "4"], "a resolution of 4"),
        (["--seconds", "0"], "0 seconds"),
        (["-o", "table.xlsx"], "is no .csv file"),
    ],
)
def test_what_cannot_be_measured_is_refused_before_anything_is(
    words: list[str], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench, "make_runnable", lambda mode, setting: pytest.fail("it began"))
    with pytest.raises(ScopeRegError, match=said):
        verb.run(parse("bench", words))


# measuring, with runners that do nothing but take their time, on a clock of their own


CALL_S, CALLS = 2.0**-10, 16  # of a runner, and its calls in a block: binary fractions add up exactly
SECONDS = str(bench.BLOCKS * CALLS * CALL_S)


class Clock:
    """Time passes only where somebody waits."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def perf_counter(self) -> float:
        return self.now_s

    def runner(self, seconds: float = CALL_S, before: Callable[[], Any] = lambda: None) -> Runnable:
        def call() -> Tensor:
            before()
            self.now_s += seconds
            return torch.zeros(1, 12)

        return Runnable(call, 1, "float32")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(bench, "time", made)
    return made


Fake = Callable[..., tuple[int, list[dict[str, str]]]]


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Fake:
    """Runs the bench with a maker of runners of one's own; gives the status and the rows."""

    def run(make: Callable[[Mode, Setting], Runnable], *words: str) -> tuple[int, list[dict[str, str]]]:
        monkeypatch.setattr(bench, "make_runnable", make)
        path = tmp_path / "bench.csv"
        words = ("--methods", "scope-reg", "--resolutions", "16", *words)
        status = verb.run(parse("bench", ["--seconds", SECONDS, "--device", "cpu", "-o", str(path), *words]))
        return status, rows_of(path)

    return run


def test_rows_take_turns_block_by_block(fake: Fake, clock: Clock) -> None:
    order: list[str] = []

    def make(mode: Mode, setting: Setting) -> Runnable:
        return clock.runner(before=lambda: order.append(mode.name))

    status, rows = fake(make)
    assert status == 0
    turns = [name for name, before in zip(order, ["", *order], strict=False) if name != before]
    assert turns == SCOPE_REG * (1 + bench.BLOCKS)  # made, then five blocks
    assert {(row["frames"], row["blocks"], row["fps"]) for row in rows} == {("80", "5", "1024")}


def test_a_clock_that_slows_down_favours_no_row(fake: Fake, clock: Clock) -> None:
    """Every call takes longer than the one before, by half in the end: one row after another, the last would lose."""
    calls = [0]

    def make(mode: Mode, setting: Setting) -> Runnable:
        def before() -> None:
            calls[0] += 1
            clock.now_s += 1e-6 * calls[0]

        return clock.runner(before=before)

    _, rows = fake(make)
    assert calls[0] > 150
    for row in rows:
        assert float(row["ratio"]) == pytest.approx(1, abs=0.04)


def test_speed_is_the_median_of_blocks_and_latency_of_all_calls() -> None:
    found = TimedMode(Mode("scope-reg", "whole"), Setting(16, CPU))
    found.blocks = [[0.01] * 4, [0.1] * 2, [0.02] * 3]
    row = found.row(first_fps=25.0)
    assert row.fps == pytest.approx(50.0)
    assert row.ratio == pytest.approx(2.0)
    assert row.p50_ms == pytest.approx(20.0)
    assert row.p95_ms == pytest.approx(100.0)
    assert (row.frames, row.blocks) == (9, 3)


def test_a_slow_row_is_measured_three_times_and_no_more(fake: Fake, clock: Clock) -> None:
    _, rows = fake(lambda mode, setting: clock.runner(0.1), "--methods", "scope-reg-3")
    assert (rows[0]["frames"], rows[0]["blocks"]) == ("3", "3")
    assert rows[0]["ratio"] == ""  # nothing to compare with


def test_what_breaks_is_named_and_the_others_go_on(fake: Fake, clock: Clock) -> None:
    def make(mode: Mode, setting: Setting) -> Runnable:
        if mode.name == "forward":
            raise ModuleNotFoundError("No module named 'wings'")
        left = iter(range(3 + 2 * (1 + CALLS) + 5))  # breaks in its third block
        return clock.runner(before=(lambda: next(left)) if mode.name == "whole" else (lambda: None))

    status, rows = fake(make)
    assert status == 1
    assert rows[1]["note"] == "ModuleNotFoundError: No module named 'wings'"
    assert rows[2]["note"].startswith("StopIteration")
    assert [row["blocks"] for row in rows] == ["5", "0", "0", "5"]
    assert [row["fps"] for row in rows] == ["1024", "", "", "1024"]


@pytest.mark.parametrize(("fits_alone", "note"), [(True, "measured alone"), (False, "out of memory: CUDA out")])
def test_what_does_not_fit_beside_the_others_is_tried_alone(
    fake: Fake, clock: Clock, fits_alone: bool, note: str
) -> None:
    tries: list[str] = []

    def make(mode: Mode, setting: Setting) -> Runnable:
        tries.append(mode.name)
        if mode.name == "streaming" and not (fits_alone and tries.count("streaming") > 1):
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.\nmore")
        return clock.runner()

    status, rows = fake(make)
    assert tries == [*SCOPE_REG, "streaming"]
    assert status == (0 if fits_alone else 1)
    assert rows[-1]["note"].startswith(note)
    assert (rows[-1]["fps"] != "") == fits_alone
    assert "more" not in rows[-1]["note"]


@pytest.mark.parametrize(("ended", "wanted"), [(KeyboardInterrupt, 130), (Terminated, 143)])
def test_interrupted_it_keeps_what_was_measured(
    fake: Fake, clock: Clock, capsys: pytest.CaptureFixture[str], ended: type[KeyboardInterrupt], wanted: int
) -> None:
    # Three first calls of each row, five blocks with a call before each; then in the second row's first block.
    calls = iter(range(4 * (3 + 5 * (1 + CALLS)) + 4 * 3 + 1 + CALLS + 5))

    def interrupt() -> None:
        if next(calls, None) is None:
            raise ended

    status, rows = fake(lambda mode, setting: clock.runner(before=interrupt), "--resolutions", "16", "24", "32")
    assert status == wanted
    assert [row["form"] for row in rows if row["resolution"] == "16"] == SCOPE_REG
    assert all(row["blocks"] == "5" and row["ratio"] for row in rows if row["resolution"] == "16")
    later = [(row["resolution"], row["form"], row["blocks"]) for row in rows[4:]]
    assert later == [("24", "as published", "1")]
    assert "what was measured is kept" in capsys.readouterr().err


# a machine that has torch and little else


def test_it_runs_where_little_is_installed(tmp_path: Path) -> None:
    absent = ("SimpleITK", "pydicom", "safetensors", "ray", "pytorch_lightning")
    code = (
        f"import sys, runpy\nsys.modules.update(dict.fromkeys({absent!r}))\n"
        "runpy.run_module('scopereg', run_name='__main__', alter_sys=True)"
    )
    words = ["bench", "-o", str(tmp_path / "b.csv"), "--resolutions", "64", "--seconds", "0.01", "--methods", "eureg"]
    ended = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    (row,) = rows_of(tmp_path / "b.csv")
    assert row["command"].startswith(f"scopereg bench -o {tmp_path / 'b.csv'} --resolutions 64")
    assert row["gflops"] == row["gflops_with_scans"] != ""  # nothing but torch counts them
    assert float(row["fps"]) > 0
    assert (tmp_path / "b.svg").exists()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
def test_memory_and_stages_on_a_gpu(tmp_path: Path) -> None:
    words = ["--resolutions", "64", "--seconds", "0.1", "--stages", "--device", "cuda", "-o", str(tmp_path / "b.csv")]
    before = torch.cuda.memory_allocated()
    status, said = run_main(["bench", *words])
    assert status == 0, said
    for row in rows_of(tmp_path / "b.csv"):
        weights_mib = int(row["parameters"]) * (4 if row["precision"] == "float32" else 2) / 2**20
        assert 0.5 * weights_mib < float(row["frame_peak_mib"]) <= float(row["peak_mib"]) < 2000
    rows = rows_of(tmp_path / "b-stages.csv")
    assert {"copy of frame and pose", "copy of the volume"} <= {row["stage"] for row in rows}
    assert all(0 < float(row["measured_us"]) < 1e5 for row in rows)
    assert torch.cuda.memory_allocated() - before < 128 * 2**20  # nothing is left behind but workspaces


def test_after_a_first_block_it_tells_how_long_all_will_take(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    with bench.BenchProgress(10, [128, 256]) as show:
        clock.now_s += 10 + 4  # ten seconds to make the rows, four for a block of each
        show.first_block(4.0)
        show.first_block(4.0)
    # 30 seconds at 128 pixels, four times that at 256.
    assert capsys.readouterr().err == "about 2:30 in all, stages aside\n"
