"""Cases that are bad, without labels, turned or twice the same: counted, named, left out where asked."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from camus_trees import FLIPPED, FRAMES, SIZE, plan, write_case, write_image, write_tree

from scopereg.cli import main
from scopereg.data.builder import build_set
from scopereg.data.camus import load_camus
from scopereg.data.orientation import orientation_code
from scopereg.data.store import open_set
from scopereg.errors import ScopeRegError

PERMUTED = [[0, 1, 0], [1, 0, 0], [0, 0, 1]]


def test_bad_cases_are_counted_named_and_left_out(tmp_path: Path) -> None:
    root = write_tree(tmp_path / "tree", 7)
    cut = root / "patient0002/patient0002_4CH_half_sequence.nii.gz"
    cut.write_bytes(cut.read_bytes()[:-500])
    write_image(
        root / "patient0004/patient0004_4CH_half_sequence_gt.nii.gz", np.zeros((5, 60, 60), np.uint8), (1, 1, 1)
    )
    (root / "patient0006/Info_4CH.cfg").unlink()
    with pytest.raises(ScopeRegError, match="3 of 7 cases cannot be used") as caught:
        build_set(plan(root), tmp_path / "set")
    for number in (2, 4, 6):
        assert f"patient000{number}_4CH (" in caught.value.what
    assert "skip_bad=True" in caught.value.fix
    with pytest.raises(ScopeRegError, match="no set here"):
        open_set(tmp_path / "set")
    steps: list[int] = []
    volumes = build_set(
        plan(root), tmp_path / "set", workers=2, skip_bad=True, progress=lambda done, _: steps.append(done)
    )
    assert steps == [5, 6, 7]  # the good ones were kept
    assert [name[:11] for name in volumes.cases] == ["patient0001", "patient0003", "patient0005", "patient0007"]
    assert list(volumes.facts["skipped"]) == [f"patient000{number}_4CH" for number in (2, 4, 6)]
    assert open_set(tmp_path / "set").sha256() == load_camus(root, size=SIZE, frames=FRAMES, skip_bad=True).sha256()
    assert not list((tmp_path / "set").glob("*.part"))


def test_missing_masks_are_counted_and_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = write_tree(tmp_path / "tree", 4)
    (root / "patient0003/patient0003_4CH_half_sequence_gt.nii.gz").unlink()
    words = ["data", "prepare", "camus", str(root), "-o", str(tmp_path / "set"), "--workers", "1"]
    words += ["--size", str(SIZE), "--frames", str(FRAMES)]
    assert main(words) == 2
    assert "1 of 4 cases have no labels: patient0003_4CH" in capsys.readouterr().err
    assert main([*words, "--skip-bad"]) == 0
    assert "left out 1: patient0003_4CH (no labels)" in capsys.readouterr().out


def test_turned_files_are_named(tmp_path: Path) -> None:
    assert [orientation_code(matrix) for matrix in (np.eye(3), PERMUTED, FLIPPED)] == ["LPS", "PLS", "LAS"]
    root = write_tree(tmp_path / "tree", 5)
    write_case(root, 2, direction=PERMUTED)
    write_case(root, 4, direction=FLIPPED)
    for make in (lambda **o: build_set(plan(root), tmp_path / "set", **o), lambda **o: load_camus(root, **o)):
        with pytest.raises(ScopeRegError, match="2 of 5 cases") as caught:
            make()
        assert "image is PLS where the others are LPS: axes are permuted" in caught.value.what
        assert "image is LAS where the others are LPS: y is flipped" in caught.value.what
        volumes = make(skip_bad=True)
        assert (len(volumes), sorted(volumes.facts["skipped"])) == (3, ["patient0002_4CH", "patient0004_4CH"])
    everything = build_set(plan(root, any_orientation=True), tmp_path / "all")
    assert (len(everything), "orientation" in everything.facts) == (5, False)


def test_a_tree_that_is_turned_as_a_whole_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number in (1, 2, 3):
        write_case(tmp_path / "tree", number, direction=PERMUTED)
    words = ["data", "prepare", "camus", str(tmp_path / "tree"), "-o", str(tmp_path / "set"), "--workers", "1"]
    assert main([*words, "--size", "16", "--frames", "4"]) == 0
    assert "images are PLS and labels are PLS, LPS was expected" in capsys.readouterr().out


def test_the_same_image_twice_is_noted(tmp_path: Path) -> None:
    root = write_tree(tmp_path / "tree", 3)
    first, second = (root / f"patient000{n}/patient000{n}_4CH_half_sequence.nii.gz" for n in (1, 3))
    write_case(root, 3).unlink()
    (root / "patient0003/Info_4CH.cfg").write_text((root / "patient0001/Info_4CH.cfg").read_text())
    second.write_bytes(first.read_bytes())
    masks = (path.with_name(path.name.replace(".nii", "_gt.nii")) for path in (first, second))
    source, target = masks
    target.write_bytes(source.read_bytes())
    noted = build_set(plan(root), tmp_path / "set").facts["notes"]
    assert noted == {"same image as another case": ["patient0001_4CH", "patient0003_4CH"]}
