"""Every option of every verb, declared once: the command line, YAML files and docs/cli.md derive from these.

This module imports neither torch nor any other heavy library, so that `scopereg --help` answers at once.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import Positional, arg

from scopereg.registration.adaptation.settings import AdaptSettings
from scopereg.registration.track_settings import TrackSettings
from scopereg.training.presets import preset
from scopereg.training.settings import TrainSettings

AnatomyName = Literal["echo", "prostate", "abdomen"]
ProtocolName = Literal["honest", "paper"]
DatasetName = Literal["echo", "prostate", "abdomen", "camus", "muregpro", "folder"]
SourceName = Literal["camus", "muregpro", "folder"]
DeviceName = Literal["auto", "cpu", "cuda", "mps"]
FormatName = Literal["md", "latex", "csv", "all"]
ConventionName = Literal["slicer", "itk-resample"]
PoseFormat = Literal["tfm", "h5", "txt", "json", "dcm"]
PrecisionName = Literal["auto", "float32", "float16", "bfloat16"]
Folder = Annotated[Path, arg(aliases=["-o"])]


@dataclass(frozen=True)
class DemoOptions:
    """Make a phantom patient and a probe sweep, register every frame, write a report to look at."""

    anatomy: AnatomyName = "echo"
    """Anatomy of the phantom patient."""
    output: Folder = Path("out/demo")
    """Folder for report.html, frames.csv and result.json."""
    frames: int = 12
    """Frames in the sweep."""
    magnitude: float = 10.0
    """Largest offset of the sweep from the middle of the volume, in voxels and degrees on each axis."""
    protocol: ProtocolName = "honest"
    """honest: every frame is a new acquisition. paper: frames are cut out of the volume itself."""
    model: str | None = None
    """Network that registers: a model of the package or a .safetensors file; by default the anatomy's own."""
    seed: int = 100_000
    """Seed of the patient, the sweep and the acquisitions; models were trained on patients below 10,000."""
    device: DeviceName = "auto"
    """Where tensors live."""


@dataclass(frozen=True)
class DoctorOptions:
    """Report device, versions and backends, and run a numeric self-test."""

    json: bool = False
    """Print JSON instead of a table."""


@dataclass(frozen=True)
class PhantomOptions:
    """Write phantom patients: a volume with labels and frames acquired in it, as NIfTI and JSON."""

    anatomy: Positional[AnatomyName] = "echo"
    """Anatomy of the phantom patients."""
    output: Folder = Path("out/phantoms")
    """Folder; each patient gets a folder of its own in it."""
    count: int = 1
    """Patients; patient k has seed + k."""
    frames: int = 4
    """Frames acquired in each volume."""
    magnitude: float = 10.0
    """Largest pose offset, in voxels and degrees on each axis."""
    protocol: ProtocolName = "honest"
    """honest: every frame is a new acquisition. paper: frames are cut out of the volume itself."""
    shape: tuple[int, int, int] | None = None
    """Voxels of the volume, D H W; by default the usual ones of the anatomy."""
    spacing_mm: float | None = None
    """Voxel size; by default the image is as wide as usual for the anatomy."""
    seed: int = 0
    """Seed of the first patient."""
    device: DeviceName = "auto"
    """Where tensors live."""


@dataclass(frozen=True)
class PrepareOptions:
    """Turn a dataset into one memory-mapped set with its folds and evaluation poses; goes on where it was interrupted.

    OUTPUT gets images.npy, labels.npy, splits.json, poses.npz and last manifest.json: without it there is no set.
    """

    dataset: Positional[SourceName] = "camus"
    """CAMUS or mu-RegPro as published, or a folder of volumes of your own."""
    path: Positional[Path | None] = None
    """Folder of the data."""
    output: Folder = Path("out/prepared")
    """Folder for the set."""
    name: str | None = None
    """What results call the set, such as CAMUS-M for data derived from CAMUS; by default the dataset's name."""
    size: int | None = None
    """Pixels along each side, a multiple of 8; 128 by default for CAMUS, whose field stays 78.8 mm wide."""
    frames: int | None = None
    """Frames of a CAMUS volume; 32 by default."""
    shape: tuple[int, int, int] | None = None
    """Voxels D H W of a folder's volumes; by default what the files have in common."""
    spacing_mm: float | None = None
    """Voxel size of a folder's volumes; by default the finest that every file has."""
    margin: tuple[int, int, int] | None = None
    """Voxels D H W kept on each side beyond the reference field, for a folder (default 0) and mu-RegPro (16 24 24)."""
    probe: Literal["low", "high"] | None = None
    """End of the depth axis of mu-RegPro files where the probe is; by default the images tell."""
    labels: bool = True
    """Prepare the masks too, where there are any."""
    splits: Path | None = None
    """JSON file with folds of your own, each patient in one part of each; by default those of docs/protocol.md."""
    workers: int | None = None
    """Processes that read cases; by default one for each processor core."""
    skip_bad: bool = False
    """Leave out cases that cannot be used, named and counted, instead of stopping when the others are done."""
    any_orientation: bool = False
    """Accept files whose headers turn their axes otherwise than the rest; voxels are used as stored."""
    fresh: bool = False
    """Start again, and remove what is in OUTPUT of an earlier set."""


@dataclass(frozen=True)
class CheckOptions:
    """Tell what data a folder holds, what is wrong with them and how to train on them; status 1 if anything is wrong.

    For volumes of your own, CAMUS or mu-RegPro as published, or a prepared set.
    """

    path: Positional[Path | None] = None
    """Folder to look at."""
    full: bool = False
    """Read the voxels of every file; by default headers, and voxels of 50 images at most."""
    workers: int | None = None
    """Processes that read files; by default one for each processor core."""
    json: bool = False
    """Print JSON with every file instead of tables."""


@dataclass(frozen=True)
class ExportOptions:
    """Write a network as ONNX (.onnx) or as a torch.export program (.pt2), and check that it gives the same poses."""

    model: Positional[str] = "scope-reg"
    """Weights file (.safetensors), or the name of a network to export with fresh weights."""
    output: Annotated[Path, arg(aliases=["-o"])] = Path("model.onnx")
    """File to write; the ending chooses the format: .onnx or .pt2."""
    shape: tuple[int, int, int] = (32, 128, 128)
    """Voxels of the volume, D H W; the slice is H W. The batch size stays free."""
    tolerance: float = 1e-3
    """Largest difference allowed between the exported model and the network, in voxels and degrees."""
    seed: int = 0
    """Seed of fresh weights and of the images to compare on."""


@dataclass(frozen=True)
class EvaluateOptions:
    """Locate the frames of a fold with one or more methods and write one CSV row per frame.

    Methods: identity, simpleitk-mi, simpleitk-ncc, elastix, a model of the package (echo, prostate, abdomen) or a
    .safetensors file, also one of scopereg adapt; `:2` behind a network lets it look twice. Rows of a calibrated
    network carry what to expect of the pose. A frame that a classical method cannot locate counts as left where it
    started. Interrupted runs go on with the same command.
    """

    dataset: Positional[DatasetName | Literal["sweep"]] = "echo"
    """Phantoms by anatomy, or what `data` holds; sweep: a tracked sweep, the real protocol."""
    methods: tuple[str, ...] = ("identity", "echo")
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
    output: Annotated[Path, arg(aliases=["-o"])] = Path("report.html")
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
class RunOptions:
    """What a run works on, where its results go and on which devices."""

    dataset: Positional[DatasetName] = "echo"
    """Phantoms of an anatomy (echo, prostate, abdomen), a dataset as published, or a folder of volumes of your own."""
    data: Path | None = None
    """Folder of the dataset as published, or of a set stored with save_set; phantoms need none."""
    output: Folder = Path("out/train")
    """Folder for the weights and everything else; one that holds an interrupted run goes on with it."""
    count: int = 400
    """Phantom patients to make; they are kept in OUTPUT/data."""
    frames: int = 32
    """Frames acquired in each phantom, 4 or more; 0: frames are cut from the volume and made to differ from it."""
    shape: tuple[int, int, int] | None = None
    """Voxels D H W of phantoms or of a folder's volumes; by default the anatomy's, or what the files have in common."""
    size: int = 128
    """Pixels along each side of a CAMUS image; its field stays 78.8 mm wide."""
    skip_bad: bool = False
    """Leave out files that cannot be used, instead of stopping; run.json names them."""
    device: DeviceName = "auto"
    """Where tensors live."""
    devices: int = 1
    """GPUs to train on, on each machine."""
    nodes: int = 1
    """Machines to train on, with a job launched on each."""


@dataclass(frozen=True)
class TrainOptions(TrainSettings, RunOptions):
    """Train a network on phantoms, CAMUS, mu-RegPro or volumes of your own; resumes what was interrupted.

    --preset fast or paper sets the defaults of the options below; single options win over it.
    """

    @classmethod
    def preset_defaults(cls, name: str | None, network: str | None, dataset: str | None) -> TrainOptions:
        """The defaults under a preset for a network; a name that there is none of changes nothing, the parser tells."""
        return cls(**vars(preset(name or cls.preset, network or cls.network, dataset or cls.dataset)))

    def settings(self) -> TrainSettings:
        """The part that decides the outcome besides the data, as `train` takes it."""
        return TrainSettings(**{field.name: getattr(self, field.name) for field in fields(TrainSettings)})


@dataclass(frozen=True)
class GridOptions:
    """Do what a plan says: methods x folds x magnitudes x protocols x resolutions, trained, tested and compared.

    PLAN is a YAML file or a plan of the package: main-table, main-table-muregpro, capture-range, resolution, ablation.
    What is done is skipped, what was interrupted goes on; a run that fails does not stop the others.
    """

    plan: Positional[str] = "main-table"
    """File of a plan, or the name of one that comes with the package."""
    data: str | None = None
    """Folder of the dataset as published, or a prepared set; {size} in it stands for the resolution."""
    output: Folder = Path("out/grid")
    """Folder for weights (runs), results, tables and phantoms (data)."""
    only: tuple[str, ...] = ()
    """Do a part: runs whose names hold one of these words, or match a pattern such as '*fold0*'."""
    set: tuple[str, ...] = ()
    """Change the plan: KEY=VALUE, such as minutes=3 folds=[0]."""
    list: bool = False
    """Show the runs and how far each is, and do nothing."""
    collect: bool = False
    """Make the tables of what is done, and do nothing else."""
    ray: tuple[str, ...] | None = None
    """Run on Ray: --ray alone on this machine, with an ADDRESS on that cluster."""
    cpus: float | None = None
    """Processor cores of a run on Ray; by default those of the plan, else 1."""
    gpus: float | None = None
    """GPUs of a run on Ray that trains, or a share such as 0.5; by default as the plan, else 1 if there are any."""
    retries: int = 3
    """Times that a worker of Ray that is lost is replaced, for each run."""
    reference: str | None = None
    """Method that the others are tested against; by default as in scopereg compare."""
    with_published: bool = False
    """Add what the SCoPE-Reg paper published to the tables, set apart."""
    device: DeviceName = "auto"
    """Where tensors live."""


@dataclass(frozen=True)
class BenchOptions:
    """Measure speed, memory and cost of the networks on this machine: a table, a CSV file and a plot.

    Times are from arrays on the host to a pose on the host, one frame at a time, in volumes of 32 x N x N voxels.
    Methods: scope-reg, scope-reg-3 (with 3 looks), eureg, fvr-net, cu-reg, dreamreg. What cannot run here, for want of
    memory or of a library, is named; the others go on. Interrupted, it keeps what was measured.
    """

    output: Annotated[Path, arg(aliases=["-o"])] = Path("out/bench.csv")
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


@dataclass(frozen=True)
class CalibrateOptions:
    """Learn from frames whose pose is known what errors to expect of a model, and write it beside the weights.

    Frames are honest ones: of phantoms made for it, or of a part of the data that the model was not trained on.
    """

    model: Positional[str] = "echo"
    """Weights file (.safetensors), or a model of the package."""
    dataset: Positional[DatasetName] = "echo"
    """Phantoms by anatomy, or what `data` holds."""
    data: Path | None = None
    """Folder of the dataset as published, or a prepared set; phantoms need none."""
    output: Annotated[Path | None, arg(aliases=["-o"])] = None
    """File to write, NAME.calibration.json; by default beside the weights, where it is found again."""
    fold: int = 0
    """Fold of the five-fold patient split; as in training."""
    part: Literal["validation", "test"] = "validation"
    """Part of the fold."""
    cases: int | None = None
    """Only the first so many volumes."""
    frames: int = 4
    """Frames in each volume."""
    magnitude: float = 10.0
    """Largest pose offset, in voxels and degrees on each axis."""
    count: int = 60
    """Phantom patients to make."""
    first_seed: int = 30_000
    """Seed of the first phantom patient; the models of the package were trained on patients below 10,000."""
    size: int = 128
    """Pixels of CAMUS images, height and width."""
    seed: int = 0
    """Seed of the poses, the honest frames and the split."""
    skip_bad: bool = False
    """Leave out what cannot be read instead of stopping."""
    device: DeviceName = "auto"
    """Where the network runs."""


@dataclass(frozen=True)
class FrameReading:
    """What a frame's file may leave open."""

    spacing: tuple[float, ...] = ()
    """Size of a pixel in mm, one number or x and y; needed where the file does not tell."""
    region: int | None = None
    """Ultrasound region of a DICOM image, where it has several pictures."""
    calibration: Path | None = None
    """Configuration of PLUS (XML) with the transform from Image to Probe, for PLUS sequences."""


@dataclass(frozen=True)
class VolumeReading:
    """What a volume's file may leave open."""

    volume_spacing: tuple[float, ...] = ()
    """Size of a voxel in mm, x y z, where the volume's file does not tell."""
    volume_index: int | None = None
    """Point in time, where the volume's file holds several."""
    series: str | None = None
    """DICOM series, where the volume's folder holds several."""


@dataclass(frozen=True)
class RegisterOptions(VolumeReading, FrameReading):
    """Find where frames lie in a volume, and write the transforms.

    FRAME is a DICOM, PNG, JPEG, NIfTI, NRRD, MHA or PLUS file. A cine (without --index) or a folder is a batch: OUTPUT
    is a folder and gets a transform for each frame, poses.csv, report.html and, for PLUS sequences, the sequence with
    the poses found. Frames that fail are named; the status is then 1.
    """

    frame: Positional[Path | None] = None
    """File of the frame or cine, or a folder of them."""
    volume: Positional[Path | None] = None
    """Volume: NIfTI, NRRD, MHA, enhanced DICOM, or the folder of a DICOM series."""
    output: Annotated[Path | None, arg(aliases=["-o"])] = None
    """File for the pose (.tfm, .h5, .txt, .json or .dcm), or folder for a batch; without it a pose is only printed."""
    method: str = "echo"
    """echo, prostate, abdomen, a .safetensors file, simpleitk-mi, simpleitk-ncc, elastix, or start: no search."""
    refine: bool = False
    """Polish what the method found by the similarity of frame and volume."""
    agreement: bool = False
    """Let a network locate each frame under four small changes too: a surer verdict, five times the work."""
    start: str | None = None
    """Where the search begins: a pose file, or tracker: where the frame's own file puts it; else mid-volume."""
    world: Path | None = None
    """Pose file from the tracker's world to the volume, where these are not the same."""
    index: int | None = None
    """Number of the frame in a cine, from 0."""
    convention: ConventionName = "slicer"
    """Direction of .tfm and .h5. slicer: 3D Slicer puts the frame in place. itk-resample: ITK cuts the volume."""
    format: PoseFormat = "tfm"
    """Transforms of a batch."""
    placed: str | None = None
    """Also write the frame as an oblique plane: a file, or for a batch an ending (.nii.gz, .nii, .nrrd, .mha)."""
    resliced: str | None = None
    """Also write the volume cut at the pose: a file, or for a batch an ending."""
    report: bool = True
    """Write report.html of a batch."""
    workers: int | None = None
    """Processes of a batch; by default one for each processor core, 8 at most, fewer for few frames, one on a GPU."""
    device: DeviceName = "auto"
    """Where networks and the refinement run."""


@dataclass(frozen=True)
class TrackOptions(TrackSettings, VolumeReading, FrameReading):
    """Follow a probe through the frames of a sequence, and write their poses.

    SEQUENCE is a PLUS sequence, a cine, a multi-frame file, or a folder of frames that are taken by name. Each frame is
    found by itself and weighed against the motion so far; what is lost is found again by itself. OUTPUT gets track.csv,
    track.html and the sequence with the poses found (.igs.mha). Frames that cannot be read are named; the status is
    then 1. Ctrl-C ends it with what is done.
    """

    sequence: Positional[Path | None] = None
    """File of the sequence, or a folder of frames."""
    volume: Positional[Path | None] = None
    """Volume: NIfTI, NRRD, MHA, enhanced DICOM, or the folder of a DICOM series."""
    output: Folder = Path("out/track")
    """Folder for the results."""
    method: str = "echo"
    """echo, prostate, abdomen, a .safetensors file, simpleitk-mi, simpleitk-ncc or elastix."""
    refine: bool = False
    """Polish what the method found by the similarity of frame and volume, also from where the motion is."""
    rate: float | None = None
    """Frames per second; needed where the file does not tell when its frames were taken, else in place of that."""
    tracker: bool = False
    """Compare with where the sequence's own tracker puts the frames."""
    world: Path | None = None
    """Pose file from the tracker's world to the volume, where these are not the same; it also compares."""
    device: DeviceName = "auto"
    """Where networks and the refinement run."""


@dataclass(frozen=True)
class PageOptions:
    """Where the page in the browser is served."""

    host: str = "127.0.0.1"
    """Address of the page; any other than this machine's own lets others in, and then a token is needed."""
    port: int = 8765
    """Port of the page; 0: any that is free."""
    token: str | None = None
    """Word that the browser must bring; one is made where other machines are let in without it."""
    open: bool = True
    """Open the page in the browser of this machine."""


@dataclass(frozen=True)
class LiveOptions(VolumeReading, FrameReading, PageOptions):
    """Register frames as they come from a scanner or a recording, and show them in the browser and in 3D Slicer.

    SOURCE is igtl://HOST:PORT (OpenIGTLink, such as PLUS), plus:FILE.igs.mha, folder:DIR or dicom:FILE; recordings are
    replayed in their own time. The newest frame is always the next. Ctrl-C ends it; recordings are written then.
    """

    volume: Positional[Path | None] = None
    """Volume: NIfTI, NRRD, MHA, enhanced DICOM, or the folder of a DICOM series."""
    source: str | None = None
    """Where frames come from."""
    image: str | None = None
    """Name of the images to take of a scanner that sends several; by default the first that comes."""
    rate: float | None = None
    """Frames per second of a replay, in place of its own times."""
    loop: bool = False
    """Begin a replay anew when it ends."""
    paused: bool = False
    """Begin paused; the page goes on, or step by step."""
    exit_at_end: bool = False
    """End with the replay; by default the last frame stays on the screen until Ctrl-C."""
    method: str = "echo"
    """echo, prostate, abdomen, a .safetensors file, simpleitk-mi, simpleitk-ncc or elastix."""
    refine: bool = False
    """Polish what the method found by the similarity of frame and volume; takes some hundred ms a frame."""
    agreement: bool = False
    """Let a network locate each frame under four small changes too: a surer verdict, five times the work."""
    follow: bool = False
    """Weigh each frame against the motion so far, as scopereg track does."""
    tracker: bool = False
    """Show the error against where the source's own tracker puts the frames."""
    world: Path | None = None
    """Pose file from the tracker's world to the volume, where these are not the same; it also shows the error."""
    workers: int | None = None
    """Frames that are located at once; by default 2 where a network alone runs on two or more cores, else 1."""
    igtl: bool = True
    """Serve the results over OpenIGTLink, for 3D Slicer."""
    igtl_host: str = "127.0.0.1"
    """Address of the OpenIGTLink server; any other than this machine's own lets everybody there read the results."""
    igtl_port: int = 18945
    """Port of the OpenIGTLink server; 0: any that is free."""
    cut: bool = False
    """Send the volume cut at the pose over OpenIGTLink too."""
    viewer: bool = True
    """Serve the page."""
    record: Path | None = None
    """Record from the first frame on into this file (.igs.mha)."""
    recordings: Path = Path("out/live")
    """Folder for what is recorded from the page."""
    volumes: Path | None = None
    """Folder of volumes that may be chosen in the page."""
    uploads: bool = True
    """Let the page bring volumes of its own."""
    max_upload_mb: float = 512.0
    """Largest file that the page may bring."""
    device: DeviceName = "auto"
    """Where networks and the refinement run."""


@dataclass(frozen=True)
class ViewOptions(VolumeReading, FrameReading, PageOptions):
    """Show finished registrations in the browser, or write them as one page.

    RESULTS are files that scopereg register wrote (pose.json; poses.csv of a batch), track.csv of scopereg track, or
    folders of them. They name frame and volume, which are looked for beside them, here, and in --data.
    """

    results: Positional[tuple[Path, ...]] = ()
    """Files or folders."""
    data: tuple[Path, ...] = ()
    """Folders, or the files themselves, to look for frames and volumes in."""
    volume: Path | None = None
    """Volume of all results, in place of what they name; tables name none."""
    save: Path | None = None
    """Write one page (.html) with all in it, to send or to keep, instead of serving it."""


@dataclass(frozen=True)
class AdaptOptions(AdaptSettings, VolumeReading):
    """Make a network better at one volume, from frames drawn in the volume itself, and write what changed.

    The file holds the weights that learned and names those that it builds on. It is used like any other:
    scopereg register FRAME VOLUME --method patient.safetensors. Ctrl-C ends it with the best so far.
    """

    volume: Positional[Path | None] = None
    """Volume: NIfTI, NRRD, MHA, enhanced DICOM, or the folder of a DICOM series."""
    output: Annotated[Path, arg(aliases=["-o"])] = Path("patient.safetensors")
    """File for the weights (.safetensors); an earlier one stays until the new one is whole."""
    device: DeviceName = "auto"
    """Where the network learns."""


@dataclass(frozen=True)
class ConvertOptions:
    """Convert a pose, a volume, a frame or a cine from one file format to another; the endings tell which.

    Poses: .tfm .h5 .txt .json .dcm. Volumes to .nii.gz .nii .nrrd .mha. Frames to the same or to .png. Cines, and
    folders of frames, to a PLUS sequence (.igs.mha), with --poses from a batch of scopereg register.
    """

    input: Positional[Path | None] = None
    """File to convert, or a folder: a DICOM series, or frames for a PLUS sequence."""
    output: Annotated[Path | None, arg(aliases=["-o"])] = None
    """File to write."""
    from_convention: ConventionName = "slicer"
    """Direction of a .tfm or .h5 file to read; files of scopereg that tell it themselves are believed."""
    convention: ConventionName = "slicer"
    """Direction of a .tfm or .h5 file to write."""
    frame: Path | None = None
    """Frame that a pose belongs to: needed for .dcm, told in .json."""
    volume: Path | None = None
    """Volume that a pose belongs to: needed for .dcm, told in .json."""
    poses: Path | None = None
    """poses.csv of scopereg register, for a PLUS sequence."""
    index: int | None = None
    """Number of the frame in a cine or stack, or point in time of a volume, from 0."""
    spacing: tuple[float, ...] = ()
    """Size of a pixel or voxel in mm, x y (z); needed where the file does not tell."""
    region: int | None = None
    """Ultrasound region of a DICOM image, where it has several pictures."""
    calibration: Path | None = None
    """Configuration of PLUS (XML) with the transform from Image to Probe, for PLUS sequences."""
    series: str | None = None
    """DICOM series, where a folder holds several."""
