"""`scopereg score`: poses against others that count as true, or at landmarks; whoever made them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from rich.console import Console

from scopereg.commands.flags import in_flags, renaming
from scopereg.commands.output import tell
from scopereg.commands.reading import print_notes, sizes_mm
from scopereg.commands.shared import Folder, OneWay, OriginName, PixelSize, Positional
from scopereg.errors import ScopeRegError
from scopereg.io.files import output_folder
from scopereg.options import arg

if TYPE_CHECKING:
    from scopereg.evaluation.score.posed import PosedFrames
    from scopereg.evaluation.score.scores import Scores, Summary

TABLE, PAGE = "score.csv", "score.html"
_MOST_NAMED = 5  # of the worst frames, one line each
_COUNTING = ("origin", "direction", "space", "unit")
_ARGUMENT = re.compile(rf"\b({'|'.join(_COUNTING)})=([\w-]*)")

DirectionName = Annotated[
    Literal["ImageToVolume", "VolumeToImage"] | None,
    arg(help="What its transforms of other programs hold; by default .tfm and .h5 VolumeToImage, .txt ImageToVolume."),
]
SpaceName = Annotated[
    Literal["LPS", "RAS", "RAS-volume"],
    arg(help="Axes of its transforms of other programs; RAS at both ends as in 3D Slicer, or at the volume's alone."),
]
UnitName = Annotated[
    Literal["mm", "pixel"],
    arg(
        help="What its transforms of other programs take: millimetres, or pixels with their size in the matrix (PLUS)."
    ),
]


@dataclass(frozen=True)
class ScoreOptions:
    """Tell how good poses are, whoever made them: against poses that count as true, or at landmarks.

    POSES and --truth are any of .tfm, .h5, .json, .txt (4 x 4), .dcm, poses.csv of scopereg register, track.csv of
    scopereg track, a tracked sequence (.igs.mha, .npz), or a folder of them. Frames belong together by the names of
    their files and their numbers. OUTPUT gets score.csv, a row for each frame, and score.html. Nothing is corrected:
    where the two sides only seem to count otherwise, a hint says so.
    """

    poses: Positional[Path | None] = None
    """Poses to score; with --between-volumes the transform from one volume to the other."""
    truth: Path | None = None
    """Poses that count as true."""
    landmarks: tuple[Path, Path] | None = None
    """Points of frames and of the volume (.mrk.json, .fcsv, or a folder of them) instead of poses: --landmarks A B."""
    output: Folder = Path("out/score")
    """Folder for score.csv and score.html."""
    name: str | None = None
    """What the poses are called; by default as their file, or as the folder of poses.csv and track.csv."""
    pixel_mm: PixelSize = ()
    size: tuple[int, int] | None = None
    """Columns and rows of the images, where no file tells."""
    world: Path | None = None
    """Pose file from the world of the truth to that of the poses, where these are not the same."""
    same_world: OneWay[bool] = False
    """Take the worlds of both sides for one, whatever they are called."""
    between_volumes: OneWay[bool] = False
    """Both files of --landmarks are of volumes."""
    calibration: Path | None = None
    """Configuration of PLUS (XML) with the transform from Image to Probe, for PLUS sequences."""
    poses_origin: OriginName = None
    poses_direction: DirectionName = None
    poses_space: SpaceName = "LPS"
    poses_unit: UnitName = "mm"
    truth_origin: OriginName = None
    truth_direction: DirectionName = None
    truth_space: SpaceName = "LPS"
    truth_unit: UnitName = "mm"


def run(options: ScoreOptions) -> int:
    """The verb: 0, however poor the poses are."""
    from scopereg.io.read_image import content_sha256
    from scopereg.provenance import provenance
    from scopereg.report.score_page import make_page

    _check(options)
    scores = _scores(options)
    folder = output_folder(options.output)
    facts = provenance(data_sha256=content_sha256(_files(options)))
    hints = [_in_words(hint) for hint in scores.hints]
    table = scores.write(folder / TABLE, facts)
    page = make_page(scores, hints, facts).save(folder / PAGE)
    console = Console(soft_wrap=True, highlight=False, markup=False)
    _print(scores, hints, console)
    for path in (table, page):
        console.print(f"wrote   {path}")
    tell(**_told(scores), hints=hints, files=[table, page])
    return 0


def _check(options: ScoreOptions) -> None:
    if options.poses is None or (options.truth is None) == (options.landmarks is None):
        raise ScopeRegError(
            "poses and what they are compared with are needed: a truth, or landmarks",
            where="scopereg score",
            fix="write scopereg score POSES --truth TRUTH, or scopereg score POSES --landmarks POINTS POINTS",
        )
    if options.between_volumes and options.landmarks is None:
        raise ScopeRegError("it is of landmarks", where="--between-volumes", fix="add --landmarks POINTS POINTS")
    for path in (options.poses, options.truth, *(options.landmarks or ())):
        if path is not None and path.is_dir() and path.resolve() == options.output.resolve():
            raise ScopeRegError("it is a folder to score", where=f"--output {path}", fix="choose another: -o FOLDER")


def _scores(options: ScoreOptions) -> Scores:
    from scopereg.evaluation.score.landmarks import score_landmarks
    from scopereg.evaluation.score.scores import score_poses
    from scopereg.io.transforms import read_pose

    spacing = sizes_mm(options.pixel_mm, 2, "--pixel-mm")
    pixels: dict[str, Any] = {
        "spacing_mm": None if spacing is None else (spacing[0], spacing[-1]),
        "size": _checked_size(options.size),
        "name": options.name or "",
    }
    assert options.poses is not None
    poses = _read("poses", options.poses, options)
    if options.landmarks is not None:
        with _side("truth"):
            return score_landmarks(
                poses,
                *options.landmarks,
                origin=options.truth_origin or "first-pixel",
                unit=options.truth_unit,
                between_volumes=options.between_volumes,
                **pixels,
            )
    assert options.truth is not None
    truth = _read("truth", options.truth, options)
    world = None if options.world is None else read_pose(options.world)
    return score_poses(poses, truth, world=world, same_world=options.same_world, **pixels)


def _files(options: ScoreOptions) -> list[Path]:
    """All that was read."""
    told = (options.poses, options.truth, *(options.landmarks or ()), options.world, options.calibration)
    places = [path for path in told if path is not None]
    return [file for path in places for file in sorted(path.rglob("*") if path.is_dir() else [path]) if file.is_file()]


def _checked_size(size: tuple[int, int] | None) -> tuple[int, int] | None:
    if size is not None and min(size) < 1:
        raise ScopeRegError(f"got {size[0]} {size[1]}", where="--size", fix="pass columns and rows")
    return size


def _read(side: Literal["poses", "truth"], path: Path, options: ScoreOptions) -> PosedFrames:
    """The poses of a side, read as the options of that side say."""
    from scopereg.evaluation.score.posed import Counting
    from scopereg.evaluation.score.reading import read_posed

    told: dict[str, Any] = {name: getattr(options, f"{side}_{name}") for name in _COUNTING}
    if side == "poses" and options.between_volumes:
        told["origin"] = told["origin"] or "first-pixel"  # there are no frames
    with _side(side):
        return read_posed(path, Counting(**told), calibration=options.calibration)


@contextmanager
def _side(side: str) -> Iterator[None]:
    """Errors from within speak of the options of a side."""
    with renaming({name: f"{side}_{name}" for name in _COUNTING}):
        yield


def _in_words(hint: str) -> str:
    """A hint with the options that it names: which side counts otherwise nobody knows."""
    both = _ARGUMENT.sub(lambda found: f"--poses-{found[1]} or --truth-{found[1]} {found[2]}".strip(), hint)
    return in_flags(both, ScoreOptions)


def _print(scores: Scores, hints: list[str], console: Console) -> None:
    from scopereg.evaluation.score.words import facts_of, title_of

    console.print(title_of(scores))
    for name, told in facts_of(scores).items():
        console.print(f"{name:<8}{told}")
    for row in scores.worst(_MOST_NAMED):
        console.print(f"worst   {row.label}: {f'{row.error_mm:.2f} mm' if row.error_mm >= 0 else row.state}")
    for hint in hints:
        console.print(f"hint    {hint}")
    print_notes(console, scores.notes)


def _told(scores: Scores) -> dict[str, Any]:
    """What a program wants to know."""
    summary: Summary = scores.summary
    left_out = {state.replace(" ", "_"): len(scores.of_state(state)) for state in ("no truth", "no pose")}
    return {"name": scores.name, "against": scores.against, **summary._asdict(), **left_out, "notes": scores.notes}
