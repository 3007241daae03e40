"""Runs that train: the options of train and grid."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path

from tyro.conf import Positional

from scopereg.options.words import DatasetName, DeviceName, Folder
from scopereg.training.presets import preset
from scopereg.training.settings import TrainSettings


@dataclass(frozen=True)
class RunOptions:
    """What a run works on, where its results go and on which devices."""

    dataset: Positional[DatasetName] = "echo"
    """Phantoms (echo, prostate, abdomen), random worlds, a dataset as published, or a folder of volumes of your own."""
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
    """Train a network on random worlds, phantoms, CAMUS, mu-RegPro or a folder; resumes what was interrupted.

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
