"""A tree of files laid out as CAMUS is, and the set that is made of it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from scopereg.data.preparation import prepare_set

sys.path.append(str(Path(__file__).parent))  # camus_trees.py, which is no test
from camus_trees import plan, write_tree


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tree(tmp_path_factory.mktemp("camus"))


@pytest.fixture(scope="module")
def whole(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The set of the tree, made in one go."""
    folder = tmp_path_factory.mktemp("whole")
    prepare_set(plan(tree), folder)
    return folder
