"""Stores that are damaged or made to harm: an error that names the file, or the set as it was; never a traceback."""

from __future__ import annotations

import io
import json
import random
import shutil
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from camus_trees import interrupt, plan

from scopereg.cli import main
from scopereg.data.builder import build_set
from scopereg.data.check import look_at
from scopereg.data.examples import case_examples
from scopereg.data.proposal import Usual
from scopereg.data.splits import read_folds, split_set
from scopereg.data.store import open_set
from scopereg.errors import ScopeRegError

USUAL = Usual(10.0, 16, 4)
NOTHING: list[Any] = [None, [], {}, "", "x", -1, 0, 10**30, 1e308, True, ["a", 1], {"a": []}, [[[]]]]


@pytest.fixture
def copy(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "set"))


def opened(folder: Path) -> str:
    """The hash of a set and its first examples, all that is read of a folder by training and evaluation."""
    volumes = open_set(folder)
    split_set(volumes, 0)
    examples = case_examples(volumes, 0, "paper", 10.0)
    return volumes.sha256() + str(examples.poses.rotation.sum().item())


def sound_or_refused(folder: Path, truth: str) -> bool:
    """Whether a folder was refused; an error if it gives other voxels or poses without a word."""
    look_at(folder, USUAL)  # tells, never raises
    try:
        assert opened(folder) == truth
    except ScopeRegError:
        return True
    return False


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where every value of a JSON text stands; of long lists the first two."""
    yield path
    if isinstance(value, dict):
        for key in value:
            yield from places(value[key], (*path, key))
    elif isinstance(value, list):
        for row, item in enumerate(value[:2]):
            yield from places(item, (*path, row))


def changed(content: Any, path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return value
    copied = dict(content) if isinstance(content, dict) else list(content)
    copied[path[0]] = changed(content[path[0]], path[1:], value)
    return copied


def test_a_manifest_of_other_kinds_is_refused_or_means_the_same(copy: Path) -> None:
    manifest, truth = copy / "manifest.json", opened(copy)
    content = json.loads(manifest.read_text())
    told = {key: value for key, value in content.items() if key != "facts"} | {
        "facts": {key: content["facts"][key] for key in content["facts"] if key != "sources_sha256"}
    }
    count = 0
    for place in places(told):
        for value in random.Random(str(place)).sample(NOTHING, 3):
            manifest.write_text(json.dumps(changed(told, place, value)))
            try:
                main(["data", "check", str(copy)])  # prints what it may
                open_set(copy)
                split_set(open_set(copy), 0)
                case_examples(open_set(copy), 0, "paper", 10.0)
            except ScopeRegError:
                count += 1
    assert count > 50
    manifest.write_text(json.dumps(content))
    assert opened(copy) == truth


@pytest.mark.parametrize("name", ["images.npy", "labels.npy", "poses.npz", "manifest.json", "splits.json"])
def test_flipped_bits_and_cut_files_change_nothing_unseen(copy: Path, name: str) -> None:
    path, truth = copy / name, opened(copy)
    whole, chance = path.read_bytes(), random.Random(name)
    refused = 0
    for _ in range(60):
        damaged = bytearray(whole)
        if chance.random() < 0.2:
            del damaged[chance.randrange(len(whole)) :]
        else:
            for _ in range(chance.choice((1, 1, 4))):
                damaged[chance.randrange(min(len(whole), chance.choice((200, 10**9))))] ^= 1 << chance.randrange(8)
        path.write_bytes(damaged)
        if name == "splits.json":  # training reads the folds of the manifest; this file is for people
            look_at(copy, USUAL)
            refused += raises(lambda: read_folds(path, open_set(copy).patients))
        elif name == "manifest.json":
            refused += raises(lambda: opened(copy))
        else:
            refused += sound_or_refused(copy, truth)
    assert refused > 20


def raises(call: Callable[[], Any]) -> bool:
    try:
        call()
    except ScopeRegError:
        return True
    return False


def npy(header: str) -> bytes:
    text = header.encode().ljust(118) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text


@pytest.mark.parametrize(
    "header",
    [
        "{'descr': '|O', 'fortran_order': False, 'shape': (6,)}",
        "{'descr': '|u1', 'fortran_order': False, 'shape': (99999999, 99999999, 99999999)}",
        "{'descr': '|u1', 'fortran_order': False, 'shape': (-1, -5)}",
        "{'descr': '|u1', 'fortran_order': False, 'shape': 'a'}",
        "{'descr': [('a', '|O')], 'fortran_order': True, 'shape': (1,)}",
        "{'descr': '|V999999999', 'fortran_order': False, 'shape': (9,)}",
        "((((((((((((((((((((((((((((((((",
        "__import__('os').abort()",
    ],
)
def test_headers_of_arrays_that_are_made_to_harm(copy: Path, header: str) -> None:
    for name in ("images.npy", "labels.npy"):
        whole = (copy / name).read_bytes()
        (copy / name).write_bytes(npy(header))
        with pytest.raises(ScopeRegError, match=name):
            open_set(copy)
        (copy / name).write_bytes(whole)
    with zipfile.ZipFile(copy / "poses.npz", "w") as archive:
        archive.writestr("pm10_rotation.npy", npy(header))
        archive.writestr("pm10_translation.npy", npy(header))
    with pytest.raises(ScopeRegError, match=r"poses\.npz"):
        opened(copy)


def test_pickles_and_bombs_in_poses_are_refused(copy: Path) -> None:
    content = io.BytesIO()
    np.save(content, np.array([{"a": 1}], object), allow_pickle=True)
    bomb = npy("{'descr': '<f4', 'fortran_order': False, 'shape': (24, 3, 3)}") + bytes(2**28)
    for member in (content.getvalue(), bomb):
        with zipfile.ZipFile(copy / "poses.npz", "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("pm10_rotation.npy", member)
        with pytest.raises(ScopeRegError, match=r"poses\.npz"):
            opened(copy)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("arrays", {"../../images": {"shape": [1], "dtype": "uint8", "sha256": ""}}),
        ("spacing_mm", float("nan")),
        ("margin", [0, -1, 0]),
        ("margin", [0.5, 0, 0]),
        ("cases", ["a"] * 6),
        ("patients", [1] * 6),
        ("facts", {"evaluation_poses": {"file": "../poses.npz"}}),
        ("facts", {"splits": {"file": "/etc/passwd", "sha256": "", "rules": []}}),
        ("facts", {"folds": [{"train": 3}]}),
    ],
)
def test_manifests_that_are_made_to_harm(copy: Path, key: str, value: Any) -> None:
    manifest = copy / "manifest.json"
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), key: value}))
    with pytest.raises(ScopeRegError):
        split_set(open_set(copy), 0)
    look_at(copy, USUAL)


@pytest.mark.parametrize(
    "line",
    [
        '{"name": []}',
        '{"name": "patient0001_4CH"}',
        '{"name": "patient0001_4CH", "volumes": 3}',
        "[1, 2]",
        '"a"',
        "9" * 99,
    ],
)
def test_lines_of_a_journal_that_say_nothing_count_for_nothing(
    tree: Path, whole: Path, tmp_path: Path, line: str
) -> None:
    folder = interrupt(tree, tmp_path / "set", 1)
    journal = folder / "journal.part"
    lines = journal.read_text().splitlines()
    journal.write_text("\n".join([lines[0], line, "{" * 5000, *lines[1:], line]))
    assert look_at(folder, USUAL).layout == "unfinished"
    assert build_set(plan(tree), folder).sha256() == open_set(whole).sha256()


def test_a_journal_of_something_else_is_refused(tree: Path, tmp_path: Path) -> None:
    for text in ("[]", '{"cases": 5}', '{"format": "scopereg-journal-1", "cases": [1]}', "x\n\x00"):
        (tmp_path / "journal.part").write_text(text)
        with pytest.raises(ScopeRegError):
            build_set(plan(tree), tmp_path)
        look_at(tmp_path, USUAL)


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        '{"folds": [' + "9" * 5000 + "]}",
        '{"folds": [{"train": [1], "validation": ["a"], "test": ["b"]}]}',
        '{"folds": [{"train": [["a"]], "validation": ["a"], "test": ["b"]}]}',
        '{"folds": {"train": 1}}',
        '{"folds": [5]}',
        '{"format": "scopereg-folds-1", "folds": [{"train": ["a"], "validation": ["b"], "test": ["c"]}]}',
    ],
)
def test_folds_that_are_made_to_harm(tmp_path: Path, text: str) -> None:
    path = tmp_path / "folds.json"
    path.write_text(text)
    with pytest.raises(ScopeRegError, match=r"folds\.json"):
        read_folds(path, ("a", "b", "c"))


def test_examples_take_the_stored_poses(copy: Path) -> None:
    volumes = open_set(copy)
    drawn = open_set(copy)
    object.__setattr__(drawn, "poses", None)
    for magnitude in (10.0, 15.0):
        for row in range(len(volumes)):
            for protocol in ("paper", "honest"):
                stored, fresh = (case_examples(v, row, protocol, magnitude) for v in (volumes, drawn))  # type: ignore[arg-type]
                assert torch.equal(stored.poses.rotation, fresh.poses.rotation)
                assert torch.equal(stored.poses.translation, fresh.poses.translation)
                assert torch.equal(stored.frames, fresh.frames)
    assert volumes.poses is not None
    assert set(volumes.poses._read) == {"pm10", "pm15"}
    last = volumes.subset([5])
    assert torch.equal(case_examples(last, 0, "paper", 10.0).frames, case_examples(drawn, 5, "paper", 10.0).frames)
    with zipfile.ZipFile(copy / "poses.npz") as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    members["pm10_translation.npy"] = members["pm10_translation.npy"][:-4] + bytes(4)
    with zipfile.ZipFile(copy / "poses.npz", "w") as archive:
        for name, member in members.items():
            archive.writestr(name, member)
    with pytest.raises(ScopeRegError, match="not those that were written"):
        case_examples(open_set(copy), 0, "paper", 10.0)
    assert case_examples(open_set(copy), 0, "paper", 10.0, seed=1).frames.shape[0] == 4  # other poses are drawn
    (copy / "poses.npz").unlink()
    with pytest.raises(ScopeRegError, match="cannot be read"):
        case_examples(open_set(copy), 0, "honest", 10.0)
