"""`scopereg grid`: a part of a plan, what is missing, and the same on a bare machine."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from small_grids import SECONDS, Write, grid, rows_of

from scopereg.commands.grid import chosen
from scopereg.errors import ScopeRegError
from scopereg.grid.plan import expand
from scopereg.grid.reading import read_plan


def test_a_part_of_a_plan(write_plan: Write) -> None:
    runs = expand(read_plan(write_plan(folds=[0, 1])))
    assert [run.name for run in chosen(runs, ["ident"])] == ["identity-fold0-pm3", "identity-fold1-pm3"]
    assert [run.name for run in chosen(runs, ["scope*fold1*", "identity-fold0-pm3"])] == [
        "identity-fold0-pm3",
        "scope-reg-paper-fold1-pm3",
    ]
    with pytest.raises(ScopeRegError, match="did you mean 'identity-fold0-pm3'"):
        chosen(runs, ["identty-fold0-pm3"])


def test_nothing_to_collect_is_an_error(write_plan: Write, output: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert grid(write_plan(), output, "--collect") == 2
    assert "no run is done yet" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"), [([], "dataset folder: no data are given"), (["--data", "nowhere"], "there is no such folder")]
)
def test_missing_data_are_told_once_before_the_first_run(
    write_plan: Write, output: Path, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    assert grid(write_plan(), output, *words) == 2
    assert said in capsys.readouterr().err
    assert not (output / "runs").exists()


def test_a_grid_runs_where_little_is_installed(write_plan: Write, data: Path, output: Path) -> None:
    """Lightning itself loads yaml, so it comes first. Tables are then made elsewhere."""
    plan = write_plan(methods={"identity": None, "cross-attention-heads": {"batch": 4, "validate_every": 2}})
    absent = ("SimpleITK", "ray", "rich", "scipy", "pydicom", "matplotlib", "pandas", "skimage")
    code = (
        f"import sys, lightning_fabric\nsys.modules.update(dict.fromkeys({absent!r}))\n"
        "from scopereg.cli import main\nsys.exit(main(['grid', *sys.argv[1:]]))"
    )
    command = [sys.executable, "-c", code, str(plan), "--data", str(data), "-o", str(output)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert ended.returncode == 0, ended.stderr
    assert "no tables: rich, scipy is not installed here" in ended.stderr
    assert grid(plan, output, "--collect") == 0
    rows = rows_of(output / "tables" / "main.csv")
    assert {row["method"] for row in rows} == {"identity", "cross-attention-heads"}
