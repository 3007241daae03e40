"""How good methods are, and how fast: the options of evaluate, compare, report and bench."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tyro.conf import Positional

from scopereg.options.words import DatasetName, DeviceName, File, Folder, FormatName, PrecisionName, ProtocolName
from scopereg.registration.default_model import DEFAULT


@dataclass(frozen=True)
class EvaluateOptions:
    """Locate the frames of a fold with one or more methods and write one CSV row per frame.

    Methods: identity, simpleitk-mi, simpleitk-ncc, elastix, a model of the package by name or a
    .safetensors file, also one of scopereg adapt; `:2` behind a network lets it look twice and `:wide` from many
    starts, `+refine` or `+` and a classical method behind any method goes on from its poses. Rows of a calibrated
    network carry what to expect of the pose. A frame that a classical method cannot locate counts as left where it
    started. Interrupted runs go on with the same command.
    """

    dataset: Positional[DatasetName | Literal["sweep"]] = "echo"
    """Phantoms by anatomy, or what `data` holds; sweep: a tracked sweep, the real protocol."""
    methods: tuple[str, ...] = ("identity", DEFAULT)
    """Methods to evaluate."""
    data: Path | None = None
    """Folder of the dataset as published, a prepared set, or the file of a sweep; phantoms need none."""
    calibration: Path | None = None
    """PLUS configuration file with ImageToProbe, for sweeps whose file does not hold it."""
    spacing_mm: float = 1.2
    """Voxel size of the reference compounded from a sweep."""
    held_out: tuple[int, int] = (5, 5)
    """Blocks of frames of a sweep that are sought instead of compounded, and the frames in each."""
    output: Folder = Path("out/evaluate")
    """Folder for the results, one file per method, protocol and magnitude."""
    protocols: tuple[ProtocolName, ...] = ("paper", "honest")
    """paper: frames cut out of the volume. honest: other acquisitions, with what no network was trained on."""
    magnitudes: tuple[float, ...] = (10.0,)
    """Largest pose offsets, in voxels and degrees on each axis."""
    fold: int = 0
    """Fold of the five-fold patient split."""
    part: Literal["test", "validation", "train"] = "test"
    """Part of the fold."""
    cases: int | None = None
    """Only the first so many volumes, for a quick look."""
    count: int = 40
    """Phantom patients to make."""
    first_seed: int = 100_000
    """Seed of the first phantom patient; the models of the package were trained on patients below 10,000."""
    size: int = 128
    """Pixels of CAMUS images, height and width."""
    seed: int = 0
    """Seed of the poses, the honest frames and the split."""
    skip_bad: bool = False
    """Leave out what cannot be read instead of stopping."""
    device: DeviceName = "auto"
    """Where networks run."""


@dataclass(frozen=True)
class CompareOptions:
    """Set methods side by side: tables, paired tests and intervals from the results of scopereg evaluate."""

    results: Positional[tuple[Path, ...]] = ()
    """Files that scopereg evaluate wrote, or folders of them."""
    output: Folder = Path("out/compare")
    """Folder for comparison.md, comparison.tex and a .csv for each kind of table; not one of the results."""
    reference: str | None = None
    """Method that the others are tested against; by default SCoPE-Reg if it is there, else the first that registers."""
    intersect: bool = False
    """Compare on the frames that all methods have, with a note, instead of stopping where they differ."""
    with_published: bool = False
    """Add what the SCoPE-Reg paper published, in blocks and tables of its own, labelled with data and protocol."""
    format: FormatName = "all"
    """What to write: Markdown, LaTeX (packages booktabs and graphicx), CSV, or all three."""


@dataclass(frozen=True)
class ReportOptions:
    """Write one HTML page about results: tables, tests, charts, pictures of frames, failures and provenance.

    The page opens anywhere, needs no network and prints well. Pictures need the images: say what the results are of.
    Where results tell them, it shows confidence against error, frames before and after adaptation, and sweeps.
    """

    results: Positional[tuple[Path, ...]] = ()
    """Files that scopereg evaluate wrote, track.csv of scopereg track, or folders of them."""
    output: File = Path("report.html")
    """File to write."""
    dataset: DatasetName | None = None
    """What to make pictures of: phantoms are made again as the results tell, everything else is read from --data."""
    data: Path | None = None
    """Folder of the dataset as published, or a prepared set; the frames are cut again and checked."""
    reference: str | None = None
    """Method that the others are tested against and whose frames are shown; by default as in scopereg compare."""
    magnitude: float | None = None
    """Magnitude that charts and pictures show; by default 10, or the nearest that the results have."""
    intersect: bool = False
    """Compare on the frames that all methods have, with a note, instead of stopping where they differ."""
    with_published: bool = False
    """Add what the SCoPE-Reg paper published, set apart and labelled with data and protocol."""


@dataclass(frozen=True)
class BenchOptions:
    """Measure speed, memory and cost of the networks on this machine: a table, a CSV file and a plot.

    Times are from arrays on the host to a pose on the host, one frame at a time, in volumes of 32 x N x N voxels.
    Methods: scope-reg, scope-reg-3 (with 3 looks), eureg, fvr-net, cu-reg, dreamreg; cross-attention-heads, ssvf-heads,
    cwcd-heads, cwcd-kabsch, tri-plane (arms of the ablation). What cannot run here, for want of memory or of a library,
    is named; the others go on. Interrupted, it keeps what was measured.
    """

    output: File = Path("out/bench.csv")
    """File for the table; the plot goes beside it (.png), stages too (-stages.csv)."""
    methods: tuple[str, ...] = ("scope-reg", "scope-reg-3", "eureg")
    """What to measure; SCoPE-Reg comes as published, forward, whole (volume encoded anew) and streaming (prepared)."""
    resolutions: tuple[int, ...] = (128, 192, 384, 512)
    """Pixels along a side."""
    seconds: float = 2.0
    """Time to measure each row for, about; a slow row takes at least three calls."""
    precision: PrecisionName = "auto"
    """Of encoders and products in the forms whole and streaming; auto: float16 on CUDA. Others run in float32."""
    stages: bool = False
    """Also time every stage of SCoPE-Reg alone, beside the least time that it could take on this machine."""
    seed: int = 0
    """Seed of weights and images."""
    device: DeviceName = "auto"
    """Where networks run."""
