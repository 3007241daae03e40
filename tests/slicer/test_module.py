"""The files of the module: the Python of 3D Slicer, nothing heavy, all of them named where they must be."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "slicer" / "ScopeRegLive"
FILES = sorted(FOLDER.rglob("*.py"))
OF_SLICER = {"slicer", "qt", "ctk", "vtk"}
NEED_SLICER = {
    "ScopeRegLive",
    "errand",
    "errand_panel",
    "landmarks_panel",
    "logic",
    "outline",
    "sequences",
    "view",
}  # all others run without it


def imported(file: Path) -> set[str]:
    """First names of what a file imports, anywhere in it."""
    tree = ast.parse(file.read_text())
    names = [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    return {name.partition(".")[0] for name in names}


def test_the_files_are_there() -> None:
    assert len(FILES) >= 9


@pytest.mark.parametrize("file", FILES, ids=[file.stem for file in FILES])
def test_a_file_is_python_3_9_and_imports_nothing_that_slicer_lacks(file: Path) -> None:
    ast.parse(file.read_text(), feature_version=(3, 9))
    allowed = {*sys.stdlib_module_names, "numpy", "ScopeRegLiveLib"}
    assert imported(file) <= allowed | (OF_SLICER if file.stem in NEED_SLICER else set())


@pytest.mark.parametrize("file", FILES, ids=[file.stem for file in FILES])
def test_annotations_are_never_evaluated(file: Path) -> None:
    """Python 3.9 has no `int | None`; it reads it where annotations stay text, and nowhere else."""
    tree = ast.parse(file.read_text())
    annotated = any(isinstance(node, (ast.AnnAssign, ast.arg)) and node.annotation for node in ast.walk(tree))
    assert not annotated or "from __future__ import annotations" in file.read_text()


def test_what_needs_no_slicer_runs_without_it_and_loads_nothing_heavy() -> None:
    parts = [f"ScopeRegLiveLib.{file.stem}" for file in FILES if file.stem not in NEED_SLICER | {"__init__"}]
    assert len(parts) == 8
    code = (
        f"import sys; sys.path.insert(0, {str(FOLDER)!r})\n"
        f"for name in {sorted(OF_SLICER | {'torch', 'scopereg', 'SimpleITK', 'cv2'})}: sys.modules[name] = None\n"
        f"for name in {parts}: __import__(name)\n"
        "print(len([name for name in sys.modules if name.startswith('ScopeRegLiveLib.')]))"
    )
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.stderr) == ("8", "")


def test_cmake_installs_every_file() -> None:
    text = (FOLDER / "CMakeLists.txt").read_text().replace("${MODULE_NAME}", "ScopeRegLive")
    wanted = [*FILES, *(FOLDER / "Resources").rglob("*.*")]
    missing = [str(file.relative_to(FOLDER)) for file in wanted if str(file.relative_to(FOLDER)) not in text.split()]
    assert missing == []
    assert "add_subdirectory(ScopeRegLive)" in (FOLDER.parent / "CMakeLists.txt").read_text()


def test_there_is_an_icon() -> None:
    """3D Slicer looks for it under this name."""
    assert (FOLDER / "Resources" / "Icons" / "ScopeRegLive.png").read_bytes().startswith(b"\x89PNG")
