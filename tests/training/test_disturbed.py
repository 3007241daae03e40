"""Runs that are disturbed: SIGTERM, a second one in the folder, damaged files. benchmarks/disturbed.py does more."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from small_runs import SECONDS, SETTINGS, Ended, Maker, assert_same_run, at_step, contents, ended, run

from scopereg.data.store import save_set
from scopereg.errors import ScopeRegError
from scopereg.io.tensors import HASH, read_header, read_tensors
from scopereg.networks.weights import load_network
from scopereg.training.checkpoint import read_checkpoint
from scopereg.training.fitting import CHECKPOINT, MODEL, RUN


def send(number: int) -> None:
    os.kill(os.getpid(), number)


@pytest.fixture(scope="module")
def begun_once(tiny_set: Maker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A run that SIGTERM ended after its fifth step: it has validated once."""
    folder = tmp_path_factory.mktemp("begun")
    with pytest.MonkeyPatch.context() as monkeypatch:
        at_step(monkeypatch, 4, lambda: send(signal.SIGTERM))
        run(tiny_set(), folder)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def begun(begun_once: Path, folder: Path) -> Path:
    return Path(shutil.copytree(begun_once, folder))


def test_sigterm_ends_a_run_with_a_checkpoint_that_is_gone_on_with(
    tiny_set: Maker, begun: Path, uninterrupted: Ended
) -> None:
    report = json.loads((begun / RUN).read_text())
    assert (report["finished"], report["ended_by"], report["progress"]["step"]) == (False, "SIGTERM", 5)
    assert read_checkpoint(begun / CHECKPOINT)["progress"]["step"] == 5
    assert_same_run(ended(run(tiny_set(), begun), begun), uninterrupted)


@pytest.mark.slow
def test_sigterm_ends_the_command_with_a_word_and_its_status(tiny_set: Maker, folder: Path) -> None:
    data = save_set(tiny_set(), folder.parent / "data")
    words = ["train", "folder", "--data", str(data), "-o", str(folder), "--device", "cpu", "--batch", "4"]
    words += ["--epochs", "100000", "--validate-every", "2", "--magnitude", "3"]
    command = subprocess.Popen(
        [sys.executable, "-m", "scopereg", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert command.stderr is not None
    assert command.stderr.readline().startswith("step")  # it has validated once
    command.send_signal(signal.SIGTERM)
    said, errors = command.communicate(timeout=SECONDS)
    assert command.returncode == 143, errors
    assert "Ended by SIGTERM; the last checkpoint is kept" in said
    assert "scopereg train folder" in said
    assert json.loads((folder / RUN).read_text())["ended_by"] == "SIGTERM"
    shutil.rmtree(data)


def test_a_second_training_in_the_folder_is_refused_and_the_first_goes_on(
    tiny_set: Maker, folder: Path, uninterrupted: Ended, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused: list[str] = []

    def begin_another() -> None:
        with pytest.raises(ScopeRegError) as error:
            run(tiny_set(), folder)
        refused.append(str(error.value))

    at_step(monkeypatch, 4, begin_another)
    assert_same_run(ended(run(tiny_set(), folder), folder), uninterrupted)
    (said,) = refused
    assert f"another training is at work in this folder: process {os.getpid()} on " in said
    assert {path.name for path in folder.iterdir()} == {MODEL, CHECKPOINT, RUN, "log"}


def flipped(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) * 2 // 3] ^= 1
    path.write_bytes(content)


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size * 2 // 3)


DAMAGE: list[tuple[str, Callable[[Path], object], str]] = [
    (CHECKPOINT, flipped, "it is damaged"),
    (CHECKPOINT, cut, "not a whole safetensors file"),
    ("log/metrics.csv", cut, "does not hold the validations up to step 5"),
    ("log/metrics.csv", lambda path: path.write_bytes(b""), "does not hold the validations up to step 5"),
    ("log/metrics.csv", lambda path: path.write_bytes(b"\xff\n\x00"), "does not hold the validations"),
    ("log/metrics.csv", lambda path: path.write_text(path.read_text().replace(".", ".0", 1)), "it is damaged"),
    (RUN, cut, "not the JSON it should be"),
    (RUN, lambda path: path.write_text("{}"), "it is damaged"),
    (RUN, lambda path: path.write_text("[]"), "not a mapping"),
    (RUN, lambda path: path.write_text(path.read_text().replace('"finished": false', '"finished": true')), "damaged"),
]


@pytest.mark.parametrize(("file", "damage", "said"), DAMAGE)
def test_damage_is_named_and_nothing_is_touched(
    tiny_set: Maker, begun: Path, file: str, damage: Callable[[Path], object], said: str
) -> None:
    damage(begun / file)
    before = contents(begun)
    with pytest.raises(ScopeRegError, match=said) as error:
        run(tiny_set(), begun)
    assert error.value.where == str(begun / file)
    assert contents(begun) == before


@pytest.mark.parametrize("file", ["log/metrics.csv", RUN])
def test_a_run_goes_on_without_its_curve_or_report(
    tiny_set: Maker, begun: Path, uninterrupted: Ended, file: str
) -> None:
    (begun / file).unlink()
    assert_same_run(ended(run(tiny_set(), begun), begun), uninterrupted)


def test_what_a_killed_process_left_half_written_is_swept(tiny_set: Maker, begun: Path, uninterrupted: Ended) -> None:
    code = (
        "import os, signal, sys\nfrom scopereg.io.files import atomic_path\n"
        "with atomic_path(sys.argv[1]) as path:\n    path.touch()\n    os.kill(os.getpid(), signal.SIGKILL)"
    )
    subprocess.run([sys.executable, "-c", code, str(begun / CHECKPOINT)], check=False)
    assert any(path.name.startswith(".last-scopereg-") for path in begun.iterdir())
    assert_same_run(ended(run(tiny_set(), begun), begun), uninterrupted)
    assert {path.name for path in begun.iterdir()} == {MODEL, CHECKPOINT, RUN, "log"}


def test_a_checkpoint_of_an_earlier_version_is_refused_in_words(tiny_set: Maker, begun: Path) -> None:
    """Its weights load, and start a new run."""
    from safetensors.torch import save_file

    _, tensors = read_tensors(begun / CHECKPOINT, "scopereg-checkpoint-2", made_by="")
    save_file(tensors, begun / CHECKPOINT, {"format": "scopereg-checkpoint-1", "content": "{}"})
    with pytest.raises(ScopeRegError, match="an earlier version of scopereg wrote it") as error:
        run(tiny_set(), begun)
    assert "start=" in error.value.fix
    assert load_network(begun / MODEL) is not None
    again = run(tiny_set(), begun / "new", replace(SETTINGS, epochs=1, start=begun / MODEL))
    assert again["finished"]


def test_a_checkpoint_without_a_hash_is_damaged(tiny_set: Maker, begun: Path) -> None:
    from safetensors.torch import save_file

    header, tensors = read_tensors(begun / CHECKPOINT, "scopereg-checkpoint-2", made_by="")
    assert HASH in read_header(begun / CHECKPOINT, "scopereg-checkpoint-2", made_by="")
    assert HASH not in header
    save_file(tensors, begun / CHECKPOINT, header)
    with pytest.raises(ScopeRegError, match="it is damaged"):
        run(tiny_set(), begun)
