"""Registrar: a trained network that registers frames; `load` opens those that come with the package, or a file."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import nn

from scopereg.devices import resolve_device
from scopereg.errors import ScopeRegError, did_you_mean
from scopereg.images import Frame, Volume
from scopereg.networks.fine import FineStage
from scopereg.networks.scope_reg import ScopeReg
from scopereg.networks.streaming import Precision, Streaming
from scopereg.networks.weights import (
    SHIPPED,
    bases_of,
    load_fine_stage,
    load_network,
    read_facts,
    shipped,
    weights_file,
)
from scopereg.registration.calibration import Calibration, fingerprint, path_beside, read_calibration
from scopereg.registration.result import Result
from scopereg.registration.session import Session
from scopereg.registration.settings import DEFAULT
from scopereg.registration.working_grid import FieldOfView, KnownSizes, on_grid


def names() -> tuple[str, ...]:
    """Models that come with the package."""
    return shipped()


@dataclass(frozen=True, eq=False)
class Registrar:
    """A network with trained weights, ready to register frames. Made by `load`."""

    name: str
    network: nn.Module
    facts: dict[str, Any]  # how it was trained
    device: torch.device
    precision: Precision = "auto"
    calibration: Calibration | None = None  # what its quality features say of its errors
    observed: bool = False  # whether results carry quality features that no calibration judges by yet
    fine: FineStage | None = None  # brings what the network found to a part of a voxel
    bases: tuple[str, ...] = ()  # of an adapted model: what it was adapted from, and what that builds on in the end

    def __repr__(self) -> str:
        return f"Registrar({self.name}, {type(self.network).__name__} on {self.device})"

    @property
    def card(self) -> str:
        """What the model was trained on, how well it does and what it cannot do."""
        entry = SHIPPED / f"{self.name}.md"
        return entry.read_text(encoding="utf-8") if entry.is_file() else "no model card: weights of your own"

    @cached_property
    def streaming(self) -> Streaming | None:
        """The network in the form that streams of frames want; None for networks that have none."""
        if type(self.network) is not ScopeReg:
            return None
        return Streaming(self.network, self.device, self.precision)

    @property
    def decodes_again(self) -> bool:
        """Whether the network was trained to decode the volume again, as seen from a pose found before (a look)."""
        return int(getattr(self.network, "looks", 1)) > 1

    @cached_property
    def sizes(self) -> KnownSizes | None:
        """What it knows in voxels; None for networks of one voxel size and shape."""
        return KnownSizes.of(self.facts)

    @cached_property
    def fingerprint(self) -> str:
        """Hash of the weights."""
        return fingerprint(self.network, self.fine)

    def prepare(
        self,
        volume: Volume,
        *,
        frame: Frame | FieldOfView | None = None,
        recorded: bool = True,
    ) -> Session:
        """All that depends on the volume alone, computed once: `session.register(frame)` then does the rest.

        With a `frame`, or the field of view of those to come, the volume is brought to the grid that the network wants
        for such frames, whatever its voxels are; the session is of its middle where it is larger than what the network
        is given at once. Without it the volume's own grid is taken. It must be isotropic then, and
        `volume.resampled(spacing_mm)` makes it so. Values within [0, 1] are taken as they are, others are scaled by
        their 1st and 99th percentiles. For a frame or two it is not worth its
        while to have the work `recorded` on a GPU.
        """
        if frame is not None:
            field = FieldOfView.of(frame) if isinstance(frame, Frame) else frame
            volume = on_grid(self, volume.for_registration(), field).first_look
        return Session(self, volume, recorded=recorded)

    def register(self, frame: Frame, volume: Volume) -> Result:
        """Find `ImageToVolume` of a frame in a volume, from anywhere within the range that the model was trained for.

        For several frames in one volume `prepare` it once. The volume must be isotropic for a network of one voxel
        size; one that was trained on many takes any.
        """
        begin = time.perf_counter()
        with self.prepare(volume, frame=None if self.sizes is None else frame) as session:
            result = session.register(frame)
        return replace(result, volume=volume, time_ms=(time.perf_counter() - begin) * 1e3)


def load(name: Path | str = DEFAULT, device: str = "auto", *, calibrated: bool = True, fine: bool = True) -> Registrar:
    """A model of the package by name, by default the one for any organ; or weights of `scopereg train`, by path.

    `scopereg.registration.model.names()` lists those of the package. A calibration beside the weights
    (NAME.calibration.json, see `scopereg calibrate`) comes with them, unless `calibrated` is False. So does a fine
    stage (NAME.fine.safetensors), by default that of the weights they were adapted from; without `fine` the network is
    alone, and what was calibrated with a fine stage is left out.
    """
    place = resolve_device(device)
    if str(name) in names():
        with weights_file(name) as path:
            return _open(str(name), path, place, calibrated, fine)
    if Path(name).suffix != ".safetensors":
        raise ScopeRegError(
            f"there is no model {str(name)!r}{did_you_mean(str(name), names())}",
            where="scopereg.load(name)",
            fix=f"use one of {', '.join(names())}, or the path of a .safetensors file",
        )
    return _open(Path(name).stem, Path(name), place, calibrated, fine)


def _open(name: str, path: Path, device: torch.device, calibrated: bool, fine: bool) -> Registrar:
    facts, stage = read_facts(path), load_fine_stage(path, device)
    registrar = Registrar(
        name,
        load_network(path, device),
        facts,
        device,
        fine=stage if fine else None,
        bases=bases_of(path),
    )
    beside = path_beside(path)
    alone = registrar.fine is not stage  # nobody calibrated it so
    if not calibrated or alone or not beside.is_file():
        return registrar
    calibration = read_calibration(beside)
    calibration.check_model(registrar.fingerprint, beside)
    return replace(registrar, calibration=calibration)
