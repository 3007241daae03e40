"""Every file of the corpus through its reader, and half a minute of looking for more where atheris is installed."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent))  # harnesses.py, which is no test
from harnesses import CORPUS, HARNESSES, try_one

FILES = sorted(path for path in CORPUS.glob("*/*"))
QUICK = ("nrrd", "metaimage", "tfm", "plan", "message")  # whose readers are Python, so that coverage guides


@pytest.mark.parametrize("path", FILES, ids=[f"{path.parent.name}/{path.name}" for path in FILES])
def test_the_corpus_is_read_or_refused(path: Path, tmp_path: Path) -> None:
    taken = try_one(path.parent.name, path.read_bytes(), tmp_path)
    if not path.name.startswith("found-"):
        assert taken == path.name.startswith("good-")


def test_every_reader_has_seeds() -> None:
    assert {path.parent.name for path in FILES} == set(HARNESSES)


@pytest.mark.slow
@pytest.mark.skipif(find_spec("atheris") is None, reason="atheris is not installed: pip install 'scopereg[fuzz]'")
@pytest.mark.parametrize("name", QUICK)
def test_a_few_seconds_find_nothing(name: str, tmp_path: Path) -> None:
    script = Path(__file__).parent / "fuzz.py"
    command = [sys.executable, script, name, "--seconds", "3", "--seed", "1"]
    command += ["--work", tmp_path, "--findings", tmp_path / "findings"]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{name}: 0 findings in 1 runs" in done.stdout
