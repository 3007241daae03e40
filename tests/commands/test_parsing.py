"""Words become options: what is understood, what is refused and with which words."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest

from scopereg.cli import VERBS, parse
from scopereg.commands.parsing import parse_words
from scopereg.commands.shared import PixelSize
from scopereg.errors import ScopeRegError
from scopereg.options import OneWay, Positional, arg, options_of


@dataclass(frozen=True)
class Options:
    """Of every kind that verbs have."""

    frame: Positional[Path | None] = None
    others: Positional[tuple[Path, ...]] = ()
    pixel_mm: PixelSize = ()
    shape: tuple[int, int, int] | None = None
    method: Annotated[str, arg(aliases=["--model"])] = "universal"
    only: tuple[str, ...] = ()
    stride: Literal[8, 4] = 8
    report: bool = True
    no_token: OneWay[bool] = False
    offset: float = 0.0
    start: Annotated[str | None, arg(formerly=["from"])] = None


def read(words: str) -> dict[str, Any]:
    return parse_words(Options, words.split(), "scopereg try").values


@pytest.mark.parametrize(
    ("words", "values"),
    [
        ("a.png", {"frame": Path("a.png")}),
        ("a.png b c", {"frame": Path("a.png"), "others": (Path("b"), Path("c"))}),
        ("--pixel-mm 0.3 0.4 a.png", {"pixel_mm": (0.3, 0.4), "frame": Path("a.png")}),  # numbers end at the name
        ("--pixel_mm=0.3", {"pixel_mm": (0.3,)}),
        ("--shape 8 16 32 a.png", {"shape": (8, 16, 32), "frame": Path("a.png")}),
        ("--shape None", {"shape": None}),
        ("--model universal", {"method": "universal"}),
        ("--method=a=b", {"method": "a=b"}),
        ("--only x y --no-report", {"only": ("x", "y"), "report": False}),
        ("--only", {"only": ()}),
        ("--stride 4 --report --no-token", {"stride": 4, "report": True, "no_token": True}),
        ("--offset -1e-3", {"offset": -0.001}),
        ("--offset .5 --offset -inf", {"offset": float("-inf")}),
        ("--from pose.tfm", {"start": "pose.tfm"}),
        ("-- --model -x", {"frame": Path("--model"), "others": (Path("-x"),)}),
        ("a.png --stride 4 b", {"frame": Path("a.png"), "others": (Path("b"),), "stride": 4}),
    ],
)
def test_words_that_are_understood(words: str, values: dict[str, Any]) -> None:
    assert read(words) == values


@pytest.mark.parametrize(
    ("words", "where", "said", "fix"),
    [
        ("--pixel-mm 0.3mm", "--pixel-mm", "'0.3mm' is no number", "leave the unit out: --pixel-mm 0.3"),
        ("--pixel-mm 0.3 0.4mm", "--pixel-mm", "'0.4mm' is no number", "leave the unit out"),
        ("--pixel-mm 0.3,0.4", "--pixel-mm", "'0.3,0.4' is no number", "write --pixel-mm 0.3 0.4"),
        ("--pixel-mm 0,3", "--pixel-mm", "'0,3' is no number", "write --pixel-mm 0.3; or 0 3, for two numbers"),
        ("--offset 0,3", "--offset", "is no number", "write --offset 0.3"),
        ("--shape 8 16", "--shape", "3 values are needed, got 2", "write --shape N N N"),
        ("--shape 8 16 2.5", "--shape", "'2.5' is no whole number", "without a point"),
        ("--method", "--method", "no value follows", "write --method TEXT"),
        ("--method --report", "--method", "no value follows", "write --method TEXT"),
        ("--stride 5", "--stride", "'5' is no choice", "use 8 or 4"),
        ("--report=no", "--report", "it takes no value", "write --report or --no-report"),
        ("--no-no-token", "--no-no-token", "no such option, did you mean '--no-token'?", "scopereg try --help"),
        ("--frame a.png", "--frame", "FRAME goes by its place", "write it without a flag: scopereg try FRAME OTHERS"),
        ("--methd echo", "--methd", "did you mean '--method'?", "scopereg try --help"),
        ("--met echo", "--met", "has no such option", "scopereg try --help"),
    ],
)
def test_words_that_are_refused(words: str, where: str, said: str, fix: str) -> None:
    with pytest.raises(ScopeRegError) as caught:
        read(words)
    assert caught.value.where == where
    assert said in caught.value.what
    assert fix in caught.value.fix


def test_a_word_too_many_is_named() -> None:
    with pytest.raises(ScopeRegError, match="'third', which belongs to no option"):
        parse("track", ["sweep.igs.mha", "volume.nii", "third"])


def test_old_names_still_work_and_say_so(capsys: pytest.CaptureFixture[str]) -> None:
    old = parse("register", ["f.png", "v.nii", "--spacing", "0.3", "--volume-spacing-mm", "1", "2", "3"])
    said = capsys.readouterr().err
    assert old == parse("register", ["f.png", "v.nii", "--pixel-mm", "0.3", "--voxel-mm", "1", "2", "3"])
    assert "--spacing is called --pixel-mm now; the old name still works" in said
    assert "--volume-spacing-mm is called --voxel-mm now" in said
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("verb", "old", "new"),
    [
        ("register", "f v --spacing-mm 1", "f v --pixel-mm 1"),
        ("register", "f v --method echo", "f v --model echo"),
        ("track", "s v --method echo", "s v --model echo"),
        ("live", "v --method echo", "v --model echo"),
        ("evaluate", "echo --methods a b --spacing-mm 2", "echo --models a b --voxel-mm 2"),
        ("bench", "--methods a b", "--models a b"),
        ("adapt", "v --from echo --spacing-mm 1", "v --model echo --working-voxel-mm 1"),
        ("adapt", "v --base echo", "v --model echo"),
        ("train", "--start w.safetensors", "--model w.safetensors"),
        ("data phantom", "--spacing-mm 1", "--voxel-mm 1"),
        ("data prepare", "folder d --spacing-mm 1", "folder d --voxel-mm 1"),
        ("convert", "a -o b --spacing 1 2", "a -o b --pixel-mm 1 2"),
    ],
)
def test_either_name_gives_the_same_options(verb: str, old: str, new: str) -> None:
    assert parse(verb, old.split()) == parse(verb, new.split())


def test_every_option_is_told_and_its_names_are_its_own() -> None:
    for name, verb in VERBS.items():
        options = options_of(verb.options)
        flags = [flag for option in options if not option.positional for flag in option.flags]
        assert len(flags) == len(set(flags)), name
        assert all(option.help.endswith((".", ":", ")")) for option in options), name
        assert not {old for option in options for old in option.formerly} & {flag[2:] for flag in flags}, name
        assert all(re.fullmatch(r"-[a-z]|--[a-z][a-z0-9-]*", flag) for flag in flags), name
