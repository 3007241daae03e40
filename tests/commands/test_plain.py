"""Options on machines that have torch and little else: the same words give the same options without tyro."""

from __future__ import annotations

import subprocess
import sys

import pytest

from scopereg.cli import parse

WITHOUT_TYRO = (
    "import sys\nsys.modules['tyro'] = None\nfrom scopereg.cli import parse\n"
    "print(repr(parse(sys.argv[1], sys.argv[2:])))"
)


def plainly(verb: str, words: list[str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", WITHOUT_TYRO, verb, *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("verb", "words"),
    [
        ("grid", "plan.yaml --data d -o o --only a b --set minutes=3 --ray here:1"),
        ("grid", "x --ray --list --gpus 0.5 --cpus 2 --retries 1"),
        ("bench", "-o o.csv --methods eureg --resolutions 64 96 --seconds 1 --seed 4"),
        ("bench", "--precision float32 --stages --device cpu"),
        ("data phantom", "prostate --shape 8 32 32 --protocol paper"),
        ("register", "frame.png volume.nii --spacing-mm 0.3 0.4 --no-report"),
    ],
)
def test_the_same_words_give_the_same_options(verb: str, words: str) -> None:
    found = plainly(verb, words.split())
    assert found.returncode == 0, found.stderr
    assert found.stdout.strip() == repr(parse(verb, words.split()))


def test_wrong_words_and_help() -> None:
    wrong = plainly("bench", ["--precision", "float8"])
    assert wrong.returncode == 2
    assert "invalid choice: 'float8'" in wrong.stderr
    told = plainly("grid", ["--help"])
    assert told.returncode == 0
    assert "Do what a plan says" in told.stdout
    assert "--with-published" in told.stdout
