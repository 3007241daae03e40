"""Nothing half-written is left behind, and folders that cannot be written are named before long work starts."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from scopereg.errors import ScopeRegError
from scopereg.io.files import atomic_path, output_folder, write_text


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
