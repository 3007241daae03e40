"""Task: what a run learns from, what it is measured on, and what its files tell of both."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from scopereg import networks
from scopereg.data.splits import split_set
from scopereg.data.store import VolumeSet
from scopereg.data.worlds import WorldRanges
from scopereg.data.worlds.sets import ranges_sha256
from scopereg.networks.weights import read_facts
from scopereg.training.settings import TrainSettings
from scopereg.training.source import FrameSource, Source, check_volumes
from scopereg.training.worlds import VALIDATION_MAGNITUDE, WorldSource, grid_facts, stored_phantoms, validation_worlds

Shape = tuple[int, int, int]
WORLDS_IN_AN_EPOCH = 1000


@dataclass(frozen=True)
class Task:
    """The data of a run; volumes are put on the device when it is known."""

    name: str
    epoch: int  # volumes that an epoch counts
    shape: Shape  # of a volume that the network is made for
    magnitude: float  # largest offset of the frames that it is measured on
    source: Callable[[torch.device, int], Source]  # batches on a device, for a process of the run
    validation: Callable[[torch.device], VolumeSet]
    test: Callable[[torch.device], VolumeSet] | None
    data_sha256: str
    endless: bool = False  # no frame comes twice, so none is learnt by heart: the latest weights are kept, not the best
    facts: dict[str, Any] = field(default_factory=dict)  # what run.json and the weights say of the data; JSON


def volumes_task(volumes: VolumeSet, settings: TrainSettings) -> Task:
    """Learn from the training part of a set of volumes."""
    check_volumes(volumes, settings)
    split = split_set(volumes, settings.fold, settings.seed)
    train = volumes.subset(split.train)
    facts = {
        "dataset": volumes.name,
        "data": volumes.facts,
        "volumes": {"train": len(split.train), "validation": len(split.validation), "test": len(split.test)},
        "shape": list(volumes.shape),
        "spacing_mm": volumes.spacing_mm,
        "split_sha256": split.sha256(volumes.patients),
    }
    return Task(
        name=volumes.name,
        epoch=len(train),
        shape=volumes.shape,
        magnitude=settings.magnitude,
        source=lambda device, rank: FrameSource(train.to(device), settings, rank),
        validation=lambda device: volumes.subset(split.validation).to(device),
        test=lambda device: volumes.subset(split.test).to(device),
        data_sha256=volumes.sha256(),
        facts=facts,
    )


def worlds_task(settings: TrainSettings, ranges: WorldRanges | None = None) -> Task:
    """Learn from random worlds, which no set ever holds."""
    ranges = ranges or WorldRanges()
    shape = ranges.shapes[0][0]
    phantoms = stored_phantoms(settings.phantoms)
    facts: dict[str, Any] = {"dataset": "worlds", "grid": grid_facts(ranges, settings.magnitude)}
    facts |= {} if settings.start is None else {"minutes_before": minutes_of(settings.start)}
    facts |= {"phantoms": {volumes.name: len(volumes) for volumes in phantoms}} if phantoms else {}
    magnitude = networks.recipe(settings.network).start_within or VALIDATION_MAGNITUDE
    hashes = [ranges_sha256(ranges), *(volumes.sha256() for volumes in phantoms)]
    return Task(
        name="worlds",
        epoch=WORLDS_IN_AN_EPOCH,
        shape=shape,
        magnitude=magnitude,
        source=lambda device, rank: WorldSource(device, settings, rank, ranges, phantoms),
        validation=lambda device: validation_worlds(shape, ranges, device, magnitude).to(device),
        test=None,
        endless=True,
        data_sha256=hashlib.sha256(" ".join(hashes).encode()).hexdigest() if phantoms else hashes[0],
        facts=facts,
    )


def minutes_of(weights: Path | None) -> float:
    """How long weights were trained, over all occasions; fresh ones not at all."""
    facts = {} if weights is None else read_facts(weights)
    return float(facts.get("minutes_before", 0.0)) + float(facts.get("minutes", 0.0))
