"""The verbs: where each lives, what it does in one line, and an example. Each is loaded when it is asked for."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import Any, NamedTuple


class Verb(NamedTuple):
    """Where a verb lives: a module of `scopereg.commands` with its options and `run`, which is called with them."""

    place: str  # module:class of the options
    summary: str
    example: str

    @property
    def module(self) -> ModuleType:
        """Imported only now."""
        return import_module(f"scopereg.commands.{self.place.split(':')[0]}")

    @property
    def options(self) -> type[Any]:
        options: type[Any] = getattr(self.module, self.place.split(":")[1])
        return options


VERBS = {
    "demo": Verb(
        "demo:DemoOptions",
        "register a phantom sweep and write a report",
        "scopereg demo --seed 3",
    ),
    "register": Verb(
        "register:RegisterOptions",
        "find frames in a volume, write the transforms",
        "scopereg register frame.png volume.nii.gz --pixel-mm 0.3 -o pose.tfm",
    ),
    "track": Verb(
        "track:TrackOptions",
        "follow a probe through the frames of a sequence",
        "scopereg track sweep.igs.mha volume.nii.gz --refine -o out/track",
    ),
    "compound": Verb(
        "compound:CompoundOptions",
        "make a volume of tracked sweeps, and tell how well their poses agree",
        "scopereg compound sweep.igs.mha --calibration plus.xml -o volume.nii.gz",
    ),
    "live": Verb(
        "live:LiveOptions",
        "register frames as they come; browser, 3D Slicer",
        "scopereg live volume.nii.gz --source plus:sweep.igs.mha",
    ),
    "view": Verb(
        "view:ViewOptions",
        "show finished registrations in the browser",
        "scopereg view pose.json --data images",
    ),
    "adapt": Verb(
        "adapt:AdaptOptions",
        "make a network better at one volume",
        "scopereg adapt volume.nii.gz --minutes 2 -o patient.safetensors",
    ),
    "convert": Verb(
        "convert:ConvertOptions",
        "convert poses, volumes, frames and cines",
        "scopereg convert pose.tfm -o pose.json",
    ),
    "version": Verb(
        "version:VersionOptions",
        "tell the versions of all that decides results",
        "scopereg version --json",
    ),
    "completion": Verb(
        "completion:CompletionOptions",
        "complete verbs and options in bash, zsh or fish",
        "source <(scopereg completion bash)",
    ),
    "doctor": Verb(
        "doctor:DoctorOptions",
        "report device, versions, backends; self-test",
        "scopereg doctor --json",
    ),
    "export": Verb(
        "export:ExportOptions",
        "write a network as ONNX or torch.export, checked",
        "scopereg export universal -o model.onnx",
    ),
    "evaluate": Verb(
        "evaluate:EvaluateOptions",
        "locate the frames of a fold, one CSV row per frame",
        "scopereg evaluate camus --data CAMUS --methods identity out/camus/model.safetensors",
    ),
    "score": Verb(
        "score:ScoreOptions",
        "tell how good poses are, against a truth or at landmarks",
        "scopereg score out/poses.csv --truth tracker.igs.mha --calibration plus.xml -o out/score",
    ),
    "compare": Verb(
        "compare:CompareOptions",
        "set methods side by side: tables, tests, intervals",
        "scopereg compare out/evaluate -o out/compare --with-published",
    ),
    "report": Verb(
        "report:ReportOptions",
        "write one HTML page about results, with pictures",
        "scopereg report out/evaluate out/track -o report.html",
    ),
    "train": Verb(
        "train:TrainOptions",
        "train a network on random worlds, phantoms or data of your own",
        "scopereg train camus --data CAMUS/database_nifti -o out/camus",
    ),
    "calibrate": Verb(
        "calibrate:CalibrateOptions",
        "learn what to expect of a model's poses",
        "scopereg calibrate out/camus/model.safetensors camus --data CAMUS/database_nifti",
    ),
    "calibrate-probe": Verb(
        "calibrate_probe:CalibrateProbeOptions",
        "find ImageToProbe by frames that are found in a volume",
        "scopereg calibrate-probe sweep.igs.mha phantom.nii.gz --pixel-mm 0.2 -o plus.xml",
    ),
    "grid": Verb(
        "grid:GridOptions",
        "do a plan of many runs, here or on Ray, and make its tables",
        "scopereg grid main-table --data out/camus-128 -o out/main-table",
    ),
    "bench": Verb(
        "bench:BenchOptions",
        "measure speed, memory and cost on this machine",
        "scopereg bench --resolutions 128 256",
    ),
    "data check": Verb(
        "data_check:CheckOptions",
        "tell what a folder of data holds and what is wrong",
        "scopereg data check CAMUS/database_nifti",
    ),
    "data prepare": Verb(
        "data_prepare:PrepareOptions",
        "turn a dataset into one set for training and tests",
        "scopereg data prepare camus CAMUS/database_nifti -o out/camus-128",
    ),
    "data phantom": Verb(
        "data_phantom:PhantomOptions",
        "write phantom patients as NIfTI",
        "scopereg data phantom prostate --count 3 -o phantoms",
    ),
    "data worlds": Verb(
        "data_worlds:WorldsOptions",
        "write random worlds as NIfTI",
        "scopereg data worlds --count 3 -o worlds",
    ),
}
