"""Nothing half-written is left behind, and folders that cannot be written are named before long work starts."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from scopereg.errors import ScopeRegError
from scopereg.io import files
from scopereg.io.files import atomic_path, output_folder, sheet_text, write_sheet, write_text


def test_a_file_appears_whole(tmp_path: Path) -> None:
    path = write_text(tmp_path / "new" / "a.txt", "one")
    assert path.read_text() == "one"
    assert [p.name for p in path.parent.iterdir()] == ["a.txt"]


@pytest.mark.skipif(os.name != "posix", reason="permissions of another kind")
def test_a_file_has_the_permissions_of_any_new_file(tmp_path: Path) -> None:
    """Some writers (safetensors) make files that nobody else may read."""
    (tmp_path / "usual").touch()
    with atomic_path(tmp_path / "a.safetensors") as temporary:
        temporary.touch(mode=0o600)
    assert (tmp_path / "a.safetensors").stat().st_mode == (tmp_path / "usual").stat().st_mode


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = write_text(tmp_path / "a.nii.gz", "old")

    def fail_halfway() -> None:
        with atomic_path(path) as temporary:
            assert temporary.name.endswith(".nii.gz")
            temporary.write_text("half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_halfway()
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["a.nii.gz"]


def test_a_disk_error_is_explained(tmp_path: Path) -> None:
    with pytest.raises(ScopeRegError, match="No space left") as caught, atomic_path(tmp_path / "a.txt"):
        raise OSError(28, os.strerror(28))
    assert "space" in caught.value.fix
    assert not list(tmp_path.iterdir())


def test_a_folder_below_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ScopeRegError, match="cannot write there"):
        output_folder(tmp_path / "file" / "below")


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs Linux, where /proc can never be written")
def test_a_read_only_folder_is_refused() -> None:
    with pytest.raises(ScopeRegError, match="cannot write there") as caught:
        output_folder("/proc/self")
    assert caught.value.where == "/proc/self"


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="needs permissions that bind: no root")
def test_a_folder_without_permission_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(ScopeRegError, match="cannot write there"):
        output_folder(tmp_path)


def test_threads_write_into_one_folder(tmp_path: Path) -> None:
    def write(number: int) -> str:
        return write_text(tmp_path / f"{number}.txt", f"{number}").read_text()

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(write, range(800))) == [str(number) for number in range(800)]
    assert len(list(tmp_path.iterdir())) == 800


def test_threads_write_one_file_whole(tmp_path: Path) -> None:
    """Whoever reads it sees all that one of them wrote."""
    path, length = tmp_path / "a.txt", 200_000
    write_text(path, "a" * length)

    def write(letter: str) -> list[str]:
        read = []
        for _ in range(40):
            with atomic_path(path) as temporary, temporary.open("w") as file:
                for _ in range(4):
                    file.write(letter * (length // 4))
                    file.flush()
            read.append(path.read_text())
        return read

    with ThreadPoolExecutor(4) as pool:
        contents = [content for read in pool.map(write, "abcd") for content in read]
    assert {(len(content), len(set(content))) for content in contents} == {(length, 1)}
    assert [p.name for p in tmp_path.iterdir()] == ["a.txt"]


# what killed processes left


def left_by(
    process: int, start: int, *, place: str | None = None, name: str = "model", ending: str = ".safetensors"
) -> str:
    """The name that a process gives a file while it writes it."""
    return f".{name}-scopereg-{place or files._place()}-{process:x}-{start:x}-{'0f' * 6}{ending}"


def test_files_of_processes_that_are_gone_are_swept_and_no_others(tmp_path: Path) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    own = files._start_of(os.getpid())
    swept = [left_by(gone.pid, 5), left_by(os.getpid(), own + 1, name="last"), left_by(gone.pid, 5, ending=".nii.gz")]
    swept += [left_by(gone.pid, 5, name="with-scopereg-in-it", ending="")]
    old = left_by(gone.pid, 5, place="0" * 8, name="old")
    kept = [left_by(os.getpid(), own), left_by(gone.pid, 5, place="0" * 8), "model.safetensors", ".scopereg-notes"]
    kept += [".model-scopereg-1-2-3-4.safetensors", left_by(gone.pid, 5)[1:], f"{left_by(gone.pid, 5)[:-20]}"]
    for name in (*swept, old, *kept):
        (tmp_path / name).touch()
    os.utime(tmp_path / old, (time.time() - 8 * 24 * 3600,) * 2)
    output_folder(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == set(kept)


def test_a_file_that_another_process_writes_stays(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom scopereg.io.files import atomic_path\n"
        "with atomic_path(sys.argv[1]) as path:\n    path.write_text('a')\n"
        "    print(path.name, flush=True)\n    input()"
    )
    writer = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "a.txt")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert writer.stdout is not None
    name = writer.stdout.readline().strip()
    output_folder(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [name]
    writer.communicate("\n")
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]


def test_long_names_can_be_written(tmp_path: Path) -> None:
    name = "a" * 240 + ".txt"
    assert write_text(tmp_path / name, "x").name == name


ROWS = [{"name": 'a "quoted", name', "mm": 1.5}, {"name": "lines\nwithin", "mm": None}]


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    path = write_sheet(tmp_path / "deep" / "sheet.csv", ROWS)
    with path.open(newline="", encoding="utf-8") as file:
        assert list(csv.DictReader(file)) == [
            {"name": 'a "quoted", name', "mm": "1.5"},
            {"name": "lines\nwithin", "mm": ""},
        ]
    assert b"\r" not in path.read_bytes()


def test_columns_are_in_the_order_asked_for_and_may_be_empty() -> None:
    assert sheet_text(iter([{"b": 2, "a": 1}, {"a": 3}]), ["a", "b"]) == "a,b\n1,2\n3,\n"
    assert sheet_text([], ["a", "b"]) == "a,b\n"
    assert sheet_text([{"a": 1, "b": 2}], ["b", "a"], header=False) == "2,1\n"


def test_a_row_with_other_columns_is_refused_and_the_old_sheet_stays(tmp_path: Path) -> None:
    path = write_sheet(tmp_path / "sheet.csv", [{"a": 1}])
    with pytest.raises(ValueError, match="fields not in fieldnames"):
        write_sheet(path, [{"a": 1}, {"c": 2}])
    assert path.read_text() == "a\n1\n"
    assert [file.name for file in tmp_path.iterdir()] == ["sheet.csv"]
