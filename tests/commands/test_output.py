"""How verbs speak: JSON alone, more, less, into a log; and into a pipe that is closed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from scopereg import __version__
from scopereg.cli import VERBS, main
from scopereg.commands.output import manner_of
from scopereg.errors import ScopeRegError
from scopereg.networks.weights import shipped

Case = Any  # of conftest.py


def told(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[dict[str, Any], str]:
    """What a verb prints with --json, and what it says beside it."""
    status = main([*map(str, words), "--json"])
    said = capsys.readouterr()
    found = json.loads(said.out)
    assert found["status"] == status
    return found, said.err


def test_version_tells_what_decides_results(capsys: pytest.CaptureFixture[str]) -> None:
    found, beside = told(capsys, "version")
    assert found["scopereg"] == __version__
    assert {"python", "torch", "numpy", "SimpleITK"} <= found.keys()
    assert set(found["models"]) == set(shipped())
    assert {part: len(digest) for part, digest in found["models"]["universal"].items()} == {"weights": 64, "fine": 64}
    assert "universal.fine" not in beside
    assert found["torch"] in beside
    assert main(["version"]) == 0
    assert capsys.readouterr().out.startswith("scopereg")


def test_register_prints_json_and_nothing_else(case: Case, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    frame, volume = case.folder / "frame.dcm", case.folder / "volume.nii.gz"
    words = ["register", frame, volume, "--method", "start", "--device", "cpu"]
    found, beside = told(capsys, *words, "-o", tmp_path / "pose.tfm")
    assert found["verb"] == "register"
    assert len(found["image_to_volume"]) == 4
    assert found["files"] == [str(tmp_path / "pose.tfm")]
    assert found["confidence"] is None  # JSON has no NaN
    assert "ImageToVolume" in beside
    found, beside = told(capsys, *words, "-o", tmp_path / "batch", "--no-report", "-q")
    assert [row["file"] for row in found["frames"]] == ["frame.dcm"]
    assert beside == ""


def test_errors_are_json_too(capsys: pytest.CaptureFixture[str]) -> None:
    found, beside = told(capsys, "register", "frame.png")
    assert found["status"] == 2
    assert found["error"] == {
        "what": "a frame and a volume are needed",
        "where": "scopereg register",
        "fix": "write scopereg register FRAME VOLUME",
    }
    assert "error: scopereg register" in beside


@pytest.mark.parametrize("words", [["data", "phantom", "--count", "1", "--frames", "0", "--shape", "8", "16", "16"]])
def test_quiet_verbs_keep_their_result_and_nothing_else(
    words: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main([*words, "-o", str(tmp_path), "--quiet"]) == 0
    said = capsys.readouterr()
    assert said.out == f"1 echo in {tmp_path}\n"
    assert said.err == ""


def test_notes_and_old_names_are_not_told_when_quiet(case: Case, capsys: pytest.CaptureFixture[str]) -> None:
    words = [
        "register",
        case.folder / "frame.png",
        case.folder / "volume.nii.gz",
        "--spacing",
        "1",
        "--method",
        "start",
    ]
    assert main([*map(str, words)]) == 0
    loud = capsys.readouterr()
    assert main([*map(str, words), "-q"]) == 0
    quiet = capsys.readouterr()
    assert "the old name still works" in loud.err
    assert quiet.err == ""
    assert "ImageToVolume" in quiet.out


def test_verbose_says_what_is_read_and_the_log_keeps_all(
    case: Case, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    log = tmp_path / "logs" / "run.log"
    frame, volume = case.folder / "frame.dcm", case.folder / "volume.nii.gz"
    words = ["register", frame, volume, "--method", "start", "-o", tmp_path / "pose.txt", "-v", "--log", log]
    assert main([*map(str, words)]) == 0
    said = capsys.readouterr()
    assert f"read {volume}: " in said.err
    assert "located 1 frame: " in said.err
    kept = log.read_text()
    assert kept.splitlines()[0].endswith(
        f"scopereg register {frame} {volume} --method start -o {tmp_path / 'pose.txt'}"
    )
    assert f"scopereg {__version__}, Python" in kept
    assert "ImageToVolume (LPS)" in kept
    assert f"wrote {tmp_path / 'pose.txt'}" in kept
    assert "status 0 after" in kept
    assert all(line[:2] == "20" for line in kept.splitlines())  # a time before each
    assert "status" not in said.out
    assert main(["register", "nothing.png", str(volume), "--log", str(log)]) == 2
    assert "error: nothing.png: there is no such file or folder" in log.read_text()
    assert kept in log.read_text()  # later runs are added


def test_the_manner_may_stand_anywhere_and_ends_at_two_dashes() -> None:
    assert manner_of(["-v", "register", "a", "--json", "b"])[1] == ["register", "a", "b"]
    manner, rest = manner_of(["view", "--", "--json", "-q"])
    assert (manner.json, manner.quiet, rest) == (False, False, ["view", "--", "--json", "-q"])
    with pytest.raises(ScopeRegError, match="no file follows"):
        manner_of(["demo", "--log", "--json"])
    with pytest.raises(ScopeRegError, match="more and less"):
        manner_of(["demo", "-v", "-q"])


def test_a_log_that_cannot_be_written_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert main(["version", "--log", str(tmp_path / "file" / "run.log")]) == 2
    assert "--log" in capsys.readouterr().err


@pytest.mark.parametrize("words", ["--help", "train --help", "data check src -q", "version --json -q"])
def test_a_closed_pipe_ends_it_without_a_word(words: str) -> None:
    """`data check` prints by rich, the others by Python itself. Nobody reads: it is closed before the first line."""
    reading, writing = os.pipe()
    os.close(reading)
    ended = subprocess.run(
        [sys.executable, "-m", "scopereg", *words.split()],
        stdout=writing,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(writing)
    assert ended.stderr == ""
    assert ended.returncode == 141  # as if SIGPIPE had ended it


def completed(script: str, *words: str) -> set[str]:
    """What bash offers for the last of the words."""
    code = (
        f"{script}\nCOMP_WORDS=({' '.join(repr(word) for word in words)})\nCOMP_CWORD={len(words) - 1}\n"
        'COMP_LINE="${COMP_WORDS[*]}"\n_scopereg\nprintf "%s\\n" "${COMPREPLY[@]}"\n'
    )
    ended = subprocess.run(["bash", "--norc", "-c", code], capture_output=True, text=True, check=True)
    assert ended.stderr == ""
    return set(ended.stdout.split())


def test_bash_completes_verbs_options_and_choices(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "bash"]) == 0
    script = capsys.readouterr().out
    assert completed(script, "scopereg", "") >= {name.split()[0] for name in VERBS}
    assert completed(script, "scopereg", "re") == {"register", "report"}
    assert completed(script, "scopereg", "data", "ph") == {"phantom"}
    assert completed(script, "scopereg", "register", "a.png", "--pix") == {"--pixel-mm"}
    assert completed(script, "scopereg", "register", "a.png", "v.nii", "--method", "uni") == {"universal"}
    assert completed(script, "scopereg", "register", "--format", "") == {"tfm", "h5", "txt", "json", "dcm"}
    assert completed(script, "scopereg", "evaluate", "echo", "--methods", "identity", "simple") == {
        "simpleitk-mi",
        "simpleitk-ncc",
    }
    assert completed(script, "scopereg", "data", "prepare", "cam") == {"camus"}
    assert completed(script, "scopereg", "register", "") == set()  # files, by the shell itself
    assert completed(script, "scopereg", "track", "--js") == {"--json"}


def test_the_other_shells_get_a_script_of_every_verb(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "zsh"]) == 0
    assert "bashcompinit" in capsys.readouterr().out
    assert main(["completion", "fish"]) == 0
    script = capsys.readouterr().out
    assert all(f"-a {name.split()[-1]} " in script for name in VERBS)
    assert "-l pixel-mm -r -d 'Size of a pixel in mm" in script
