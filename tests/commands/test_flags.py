"""Messages name arguments in Python and flags on the command line."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from scopereg.cli import main
from scopereg.commands.flags import in_flags, naming_flags, renaming
from scopereg.commands.register import RegisterOptions
from scopereg.commands.shared import PixelSize, Positional, VoxelSize
from scopereg.devices import resolve_device
from scopereg.errors import ScopeRegError


@dataclass(frozen=True)
class Options:
    volume: Positional[Path | None] = None
    pixel_mm: PixelSize = ()
    voxel_mm: VoxelSize = ()
    shape: tuple[int, int, int] | None = None
    skip_bad: bool = False
    start: str | None = None
    output: Path | None = None


@pytest.mark.parametrize(
    ("python", "shell"),
    [
        ("give the size in mm: spacing_mm=", "give the size in mm: --pixel-mm"),
        ("leave them out (skip_bad=True)", "leave them out (--skip-bad)"),
        ("load it with skip_bad=False, then look", "load it with --no-skip-bad, then look"),
        ("for instance shape=(8, 32, 32), or", "for instance --shape 8 32 32, or"),
        ("add start=tracker", "add --start tracker"),
        ("pass volume=", "pass VOLUME"),
        ("choose another folder (output=)", "choose another folder (-o)"),
        ('unknown=True and backend="torch" stay', 'unknown=True and backend="torch" stay'),
        ("1 + 1 = 2, x == y", "1 + 1 = 2, x == y"),
        ("data/start=3/volume.nii", "data/start=3/volume.nii"),
    ],
)
def test_arguments_become_flags(python: str, shell: str) -> None:
    assert in_flags(python, Options) == shell


def test_an_error_is_reworded_on_its_way() -> None:
    with pytest.raises(ScopeRegError) as caught, naming_flags(Options), renaming({"spacing_mm": "voxel_mm"}):
        raise ScopeRegError("no start=", where="spacing_mm=", fix="pass spacing_mm=")
    assert str(caught.value) == "--voxel-mm: no --start\n  To fix it: pass --voxel-mm"


def test_every_verb_speaks_of_its_flags(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    volume = tmp_path / "volume.nii"
    assert main(["track", str(tmp_path), str(volume), "--rate", "-1"]) == 2
    assert "--rate: -1 frames a second" in capsys.readouterr().err
    assert main(["track", str(tmp_path), str(volume), "--lever-mm", "0"]) == 2
    assert "--lever-mm: lever_mm is 0" in capsys.readouterr().err
    assert in_flags("wide= and refine=True", RegisterOptions) == "--wide and --refine"


def test_a_device_that_is_not_there_is_named_by_its_flag() -> None:
    with pytest.raises(ScopeRegError, match="'abacus' cannot be used") as caught, naming_flags(RegisterOptions):
        resolve_device("abacus")
    assert caught.value.where == "--device"


@pytest.mark.parametrize(
    ("words", "where"),
    [
        ("data phantom echo --shape 2 2 2", "--shape"),
        ("data phantom echo --voxel-mm -1", "--voxel-mm"),
    ],
)
def test_no_function_is_named_at_the_prompt(
    words: str, where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(words.split()) == 2
    assert capsys.readouterr().err.startswith(f"error: {where}: ")
