"""Plan: what a grid compares. Run: one method at one point of the grid; `expand` makes the runs of a plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from itertools import product
from typing import Any, Literal

from scopereg.data.registry import ANATOMIES
from scopereg.errors import ScopeRegError
from scopereg.training.presets import preset, with_length
from scopereg.training.settings import PresetName, TrainSettings, plain

ProtocolName = Literal["paper", "honest"]
SETTING = tuple(entry.name for entry in fields(TrainSettings))
# Decided by the grid, or, the weights to start from, a path of one machine.
FIXED = ("protocol", "magnitude", "fold", "seed", "test", "start")


@dataclass(frozen=True)
class Plan:
    """What is compared, on what and for how long."""

    name: str
    """What the grid is called; by default as its file."""
    methods: Mapping[str, Mapping[str, Any]]
    """Methods by the name that tables show, each with its settings: `network` or `method` where the name is neither,
    for a network any option of `scopereg train`."""
    dataset: str = "camus"
    """As in `scopereg train`: echo, prostate, abdomen, camus, muregpro or folder."""
    preset: PresetName = "fast"
    """Settings of the networks where a method has none of its own: fast or paper."""
    minutes: float | None = None
    """Minutes that every network is trained; without minutes and epochs as long as the preset says."""
    epochs: int | None = None
    """Epochs instead of minutes."""
    folds: tuple[int, ...] = (0,)
    """Folds of the patient split."""
    magnitudes: tuple[float, ...] = (10.0,)
    """Largest offsets in voxels and degrees; a network is trained and tested at each."""
    protocols: tuple[ProtocolName, ...] = ("paper",)
    """Protocols that networks are trained for, each on its own."""
    test_protocols: tuple[ProtocolName, ...] = ()
    """Protocols that everything is tested under; by default the one that a network was trained for."""
    resolutions: tuple[int, ...] = ()
    """Pixels along a side, for CAMUS and phantoms; by default what the dataset has."""
    seed: int = 0
    """Seed of weights, draws, split and test poses."""
    cases: int | None = None
    """Only the first so many test volumes, for a quick look."""
    count: int = 400
    """Phantom patients to make."""
    frames: int = 32
    """Frames acquired in each phantom."""
    cpus: float | None = None
    """Processor cores of a run on Ray; by default 1."""
    gpus: float | None = None
    """GPUs of a run on Ray that trains; by default 1 where the cluster has any. Shares such as 0.5 are allowed."""


@dataclass(frozen=True)
class Run:
    """One method, trained if it is a network and tested, at one point of the grid."""

    method: str  # as results and tables name it
    made_by: str  # the network or the method without weights of its own
    dataset: str
    fold: int
    magnitude: float
    size: int | None  # pixels along a side; None: whatever the data have
    seed: int
    tested_under: tuple[ProtocolName, ...]
    settings: TrainSettings | None = None  # None: nothing to train
    cases: int | None = None
    phantoms: dict[str, int] = field(default_factory=dict)  # count and frames, where the dataset is one of phantoms

    @property
    def trained_for(self) -> ProtocolName | None:
        return None if self.settings is None else self.settings.protocol

    @property
    def name(self) -> str:
        """Of its folder, unlike that of any other run of the plan."""
        size = [] if self.size is None else [str(self.size)]
        trained = [] if self.trained_for is None else [self.trained_for]
        return "-".join([self.method, *trained, f"fold{self.fold}", f"pm{self.magnitude:g}", *size])

    def named_under(self, protocol: str) -> str:
        """The method as results under a protocol name it: no two runs of a grid share rows."""
        crossed = self.trained_for not in (None, protocol)
        return f"{self.method} (trained for {self.trained_for})" if crossed else self.method

    def definition(self) -> dict[str, Any]:
        """What decides the outcome, as JSON knows it. What it is tested under may grow later, and is not part of it."""
        found = asdict(replace(self, settings=None, tested_under=()))
        del found["tested_under"]
        return found | {"settings": None if self.settings is None else plain(self.settings)}


def changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What differs between two definitions, in words; settings that a later version added count as their default."""
    usual = plain(TrainSettings())
    settings = [usual | definition["settings"] if definition.get("settings") else {} for definition in (before, now)]
    pairs = [({**before, "settings": None}, {**now, "settings": None}), (settings[0], settings[1])]
    return [
        f"{key} ({one.get(key)} there, {other.get(key)} here)"
        for one, other in pairs
        for key in dict.fromkeys([*one, *other])
        if one.get(key) != other.get(key)
    ]


def expand(plan: Plan, where: str = "") -> tuple[Run, ...]:
    """The runs of a plan; those of one table stand together, so that its numbers are complete early."""
    axes = product(plan.resolutions or (None,), plan.magnitudes, plan.folds)
    runs = tuple(run for point in axes for name in plan.methods for run in _runs_of(plan, name, *point, where=where))
    name, count = Counter(run.name for run in runs).most_common(1)[0]
    if count > 1:
        raise ScopeRegError(
            f"two runs would be called {name}", where=f"{where or plan.name}: methods", fix="rename a method"
        )
    return runs


def _runs_of(plan: Plan, name: str, size: int | None, magnitude: float, fold: int, *, where: str) -> list[Run]:
    """The runs of a method at a point: a network has one for each protocol."""
    options = dict(plan.methods[name])
    made_of = {"count": plan.count, "frames": plan.frames} if plan.dataset in ANATOMIES else {}
    base = Run(
        method=name,
        made_by=str(options.get("method") or options.get("network") or name),
        dataset=plan.dataset,
        fold=fold,
        magnitude=magnitude,
        size=size,
        seed=plan.seed,
        tested_under=plan.test_protocols or plan.protocols,
        cases=plan.cases,
        phantoms=made_of,
    )
    if not is_network(base.made_by) or "method" in options:
        return [base]
    at = {"fold": fold, "magnitude": magnitude, "seed": plan.seed}
    made = []
    for protocol in plan.protocols:
        settings = _settings(plan, name, {**options, **at, "protocol": protocol}, where)
        made.append(replace(base, settings=settings, tested_under=plan.test_protocols or (protocol,)))
    return made


def _settings(plan: Plan, name: str, options: dict[str, Any], where: str) -> TrainSettings:
    network, chosen = str(options.pop("network", name)), str(options.pop("preset", plan.preset))
    length = {"minutes": plan.minutes, "epochs": plan.epochs}
    if {"minutes", "epochs"} & options.keys():
        length = {"minutes": None, "epochs": None}
    try:
        settings = replace(preset(chosen, network, plan.dataset), **{**length, **options})
    except ScopeRegError as error:
        key = error.where.partition("(")[2].rstrip(")")
        raise ScopeRegError(error.what, where=f"{where or plan.name}: methods.{name}.{key}", fix=error.fix) from None
    return with_length(settings, plan.dataset)


def is_network(name: str) -> bool:
    """Whether this names a network to train, and not a method without weights of its own."""
    from scopereg import networks

    return name in networks.names()
