"""Every file of the corpus through its reader, and fifteen seconds of looking for more where atheris is installed."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent))  # harnesses.py, which is no test
from harnesses import CORPUS, HARNESSES, Harness, try_one

FILES = sorted(path for path in CORPUS.glob("*/*"))
# Their readers are Python, so that coverage guides; tensors and pictures are read by libraries in C.
GUIDED = "nifti,nrrd,metaimage,plus,dicom,tfm,matrix,pose-json,plan,message"


@pytest.mark.parametrize("path", FILES, ids=[f"{path.parent.name}/{path.name}" for path in FILES])
def test_the_corpus_is_read_or_refused(path: Path, tmp_path: Path) -> None:
    taken = try_one(path.parent.name, path.read_bytes(), tmp_path)
    if not path.name.startswith("found-"):
        assert taken == path.name.startswith("good-")


def test_every_reader_has_seeds() -> None:
    assert {path.parent.name for path in FILES} == set(HARNESSES)


@pytest.mark.slow
@pytest.mark.skipif(find_spec("atheris") is None, reason="atheris is not installed")
def test_fifteen_seconds_of_fuzzing_find_nothing(tmp_path: Path) -> None:
    command = [sys.executable, Path(__file__).parent / "fuzz.py", GUIDED, "--seconds", "15"]
    command += ["--work", tmp_path, "--findings", tmp_path / "findings"]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    tried = re.search(r"0 findings in (\d+) inputs", done.stdout)
    assert tried is not None, done.stdout
    assert int(tried[1]) > 100


def test_fuzzing_keeps_what_it_finds(tmp_path: Path) -> None:
    """A reader that fails by one byte fails here: the harness does not swallow it."""
    broken = Harness(".x", lambda path: 1 // path.read_bytes()[0])
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(HARNESSES, "broken", broken)
        assert try_one("broken", b"\x01", tmp_path)
        with pytest.raises(ZeroDivisionError):
            try_one("broken", b"\x00", tmp_path)
