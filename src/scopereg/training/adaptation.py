"""Adapter: a network fitted to one volume within a given time, and the small file that keeps what changed."""

from __future__ import annotations

import copy
import math
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from scopereg.devices import memory_in_words, reproducible, resolve_device
from scopereg.errors import ScopeRegError
from scopereg.images import Volume, check_content, unit_range
from scopereg.interruption import stoppable
from scopereg.io.files import output_folder
from scopereg.io.volumes import read_volume
from scopereg.networks.scope_reg import ScopeReg
from scopereg.networks.weights import save_changes
from scopereg.progress import duration
from scopereg.provenance import provenance, tensors_sha256
from scopereg.registration import model as models
from scopereg.registration.calibration import path_beside
from scopereg.registration.model import Registrar
from scopereg.registration.working_grid import (
    MANY_VOXELS,
    USUAL_VOXELS,
    FieldOfView,
    WorkingGrid,
    as_trained,
    depth_for,
    isotropic,
)
from scopereg.threads import watched
from scopereg.training.display import Display
from scopereg.training.forecast import MORE_TIME
from scopereg.training.inherited import inherited, remove_stale
from scopereg.training.loop import Loop, Standing
from scopereg.training.parts import (
    check_network,
    choose_parts,
    learning,
    measure_statistics,
    release,
    usual_frames,
    usual_rate,
)
from scopereg.training.scene import HeldOut, Scene, SceneSource, Shape
from scopereg.training.schedule import Schedule
from scopereg.training.settings import AdaptSettings, TrainSettings
from scopereg.training.step import Weights
from scopereg.training.validation import summarise

CHECKS = 8  # looks at the held-out frames, evenly over the run
_WARMUP = 10
_AVERAGE = 0.998  # at most; after few steps the average is shorter
_STATISTICS_BATCHES = 8
_INHERITS = 4  # times a check: what it takes to see whether the calibration of the base holds
_KEPT = "nothing was written, a file from before is as it was"
_LESS_MEMORY = "lower frames=, let less learn (parts=gates), or pass a coarser spacing_mm="

Ending = Literal["finished", "stopped early", "interrupted", "terminated"]


@dataclass(frozen=True)
class Adaptation:
    """What an adaptation gave; errors are of the held-out frames, in mm."""

    path: Path | None  # the weights; None where an interruption left nothing better than the base
    before: dict[str, float]
    after: dict[str, float]
    step: int  # of the weights that were kept
    steps: int  # that were made
    frames: int  # learned from
    seconds: float  # for everything
    ending: Ending
    notes: tuple[str, ...]
    calibration: Path | None = None  # of the weights, if that of the base holds for them


@dataclass
class State(Standing):
    """Where an adaptation stands; its seconds are those since the first step."""

    best_step: int = 0
    stalled: int = 0  # checks without a better error
    checks: int = 0


@watched(steady=True)
def adapt(
    volume: Volume | Path | str,
    output: Path | str = "patient.safetensors",
    settings: AdaptSettings | None = None,
    *,
    device: str = "auto",
    quiet: bool = False,
) -> Adaptation:
    """Make a network better at one volume and write what changed; `scopereg.load(output)` opens it like any weights.

    Frames are drawn in the volume itself, each as another acquisition; frames held out choose what is kept. `output` is
    written at the end, whole or not at all. The first Ctrl-C, or SIGTERM, ends it with the best so far.
    """
    begin = time.monotonic()
    settings = settings or AdaptSettings()
    output = _check_output(Path(output), settings.base)
    model = models.load(settings.base, device)
    if settings.spacing_mm is not None:
        model = replace(model, facts={**model.facts, "spacing_mm": settings.spacing_mm})
    volume = volume if isinstance(volume, Volume) else read_volume(volume)
    check_content(volume)
    with memory_in_words("adapt", lambda: _KEPT, _LESS_MEMORY), Display(quiet, "adapting", MORE_TIME) as display:
        run = _Run(volume, model, settings, display, begin)
        ending = run.fit()
        return run.finish(output, ending)


class _Run:
    """One call of `adapt`."""

    def __init__(
        self, volume: Volume, model: Registrar, settings: AdaptSettings, display: Display, begin: float
    ) -> None:
        self.settings, self.display, self.begin = settings, display, begin
        self.device, self.base, self.known = model.device, model.name, model.calibration
        self.network = check_network(model.network, settings.base)
        self.network.looks = settings.looks or self.network.looks
        self.parts = choose_parts(settings.parts, self.device)
        self.changed = release(self.network, self.parts)
        near, trained, note = _near(model, replace(volume, array=unit_range(volume.array)), settings)
        self.notes = (note,) if note else ()
        self.spacing_mm = near.isotropic_spacing_mm
        self.scene = Scene.of(near, trained, settings.magnitude, settings.seed, self.device)
        self.held_out = HeldOut.of(self.scene, settings.held_out, settings.seed, self.spacing_mm)
        self.training = self._training()
        self.source = SceneSource(self.scene, self.training)
        self.state = State()
        self.lowest = self._errors_mm(self.network)  # of the frames held out, of the weights with the lowest mean
        self.before = self.after = summarise(self.lowest)
        self.best = self._snapshot(self.network)

    def _training(self) -> TrainSettings:
        """The settings of a step as training has them."""
        frames = self.settings.frames or usual_frames(self.device)
        return TrainSettings(
            magnitude=self.settings.magnitude,
            batch=frames,
            frames_per_volume=frames,
            learning_rate=self.settings.learning_rate or usual_rate(self.parts),
            warmup=_WARMUP,
            weight_decay=0.0,
            average=_AVERAGE,
            seed=self.settings.seed,
        )

    def fit(self) -> Ending:
        """Learn until the time is up, nothing gets better, or someone asks to stop."""
        self._say(f"before: {self.before['mean_mm']:.2f} mm on {self.held_out.frames} held-out frames")
        with stoppable() as stop, reproducible(self.device):
            if self.settings.statistics:
                source = SceneSource(self.scene, replace(self.training, seed=self.training.seed + 1))
                measure_statistics(self.network, (source.batch(step) for step in range(_STATISTICS_BATCHES)))
            self.average = copy.deepcopy(self.network).requires_grad_(False)
            weights = Weights(self.network, self.average, self.training, self.device)
            begin = time.monotonic()
            self._check()
            self.schedule = self._schedule(check_s=time.monotonic() - begin)
            self.loop = Loop(weights, self.source, self.schedule, self.state, stop, capture=True)
            learning(self.network)
            self.loop.run(self._between)
        if stop.asked:
            return "terminated" if stop.name == "SIGTERM" else "interrupted"
        return "stopped early" if self.state.stalled >= self.settings.patience else "finished"

    def _schedule(self, check_s: float) -> Schedule:
        """Warm-up and decay over what is left of the time, the last check and the writing taken off."""
        settings, peak = self.settings, self.training.learning_rate
        if settings.seconds is None:
            return Schedule(peak, _WARMUP, 0.9, settings.steps, None)
        passed = time.monotonic() - self.begin
        left = settings.seconds - passed - (1.5 + (_INHERITS if self.known else 0)) * check_s - 0.5
        if left <= 0:
            raise ScopeRegError(
                f"of {settings.seconds:.0f} s {passed:.0f} are gone before the first step, and a check takes "
                f"{check_s:.0f} s",
                where="adapt(minutes)",
                fix="give it more minutes=, or fewer held_out= frames",
            )
        return Schedule(peak, _WARMUP, 0.9, None, left)

    def _between(self, asked: bool) -> bool:
        """After each step: a look at the held-out frames now and then; the end where they get no better."""
        state = self.state
        self.display.step(self)
        if asked:
            return True
        if self.schedule.share(state.step, state.seconds) * CHECKS >= state.checks:
            self._check(self._mean_loss())
            self.loop.read_clock()
        return state.stalled >= self.settings.patience

    def _check(self, loss: float | None = None) -> None:
        """Look at the held-out frames, and keep the averaged weights where they are as good as the best so far."""
        state, errors = self.state, self._averaged_errors_mm()
        found = summarise(errors)
        kept = found["mean_mm"] < self.before["mean_mm"] and self._as_good(errors)
        if kept:
            self.after, self.best, state.best_step = found, self._snapshot(self.average), state.step
        if errors.mean() < self.lowest.mean():
            self.lowest = errors
        state.stalled = 0 if kept or not state.step else state.stalled + 1
        state.checks += 1
        shown = f"step {state.step:>6}  {duration(time.monotonic() - self.begin)}  held-out {found['mean_mm']:.2f} mm"
        told = "  statistics measured" if loss is None else f"  loss {loss:.2f}"
        self._say(shown + told + ("  kept" if kept else ""))

    def _as_good(self, errors: Tensor) -> bool:
        """Whether errors are the lowest, or not by more than chance above them: later weights saw more frames."""
        more = errors - self.lowest
        chance = float(more.std()) / math.sqrt(len(more)) if self.state.step and len(more) > 1 else 0.0
        return float(more.mean()) <= chance

    def _mean_loss(self) -> float:
        """Mean loss since the last check; an error when it is not a number."""
        loss, _ = self.loop.mean_loss()
        if not math.isfinite(loss):
            raise self._diverged(f"the loss became {loss}")
        return loss

    def _averaged_errors_mm(self) -> Tensor:
        """Errors of the averaged weights; an error in words where these give no poses any more."""
        try:
            return self._errors_mm(self.average)
        except torch.OutOfMemoryError:
            raise
        except (ScopeRegError, RuntimeError) as error:  # numbers that are none fit nowhere
            raise self._diverged("the poses became nan") from error

    def _diverged(self, what: str) -> ScopeRegError:
        return ScopeRegError(
            f"{what} before step {self.state.step} ({_KEPT})",
            where="adapt",
            fix="adapt again with a lower learning_rate=, or look for strange values in the volume",
        )

    def _errors_mm(self, network: ScopeReg) -> Tensor:
        return self.held_out.errors_mm(network)

    def _snapshot(self, network: ScopeReg) -> dict[str, Tensor]:
        return {key: value.clone() for key, value in network.state_dict().items() if key in self.changed}

    def _say(self, line: str) -> None:
        self.display.say(line)

    def finish(self, output: Path, ending: Ending) -> Adaptation:
        """Write the best weights, whole or not at all."""
        nothing = ending in ("interrupted", "terminated") and self.after is self.before
        if not nothing:
            self.network.load_state_dict(self.best, strict=False)
            save_changes(
                self.network,
                output,
                base=self.settings.base,
                changed=self.changed,
                options={} if self.settings.looks is None else {"looks": self.settings.looks},
                facts=self._facts(ending),
            )
        calibration = None if nothing else self._inherit(output, ending)
        return Adaptation(
            path=None if nothing else output,
            before=self.before,
            after=self.after,
            step=self.state.best_step,
            steps=self.state.step,
            frames=self.state.step * self.training.batch,
            seconds=time.monotonic() - self.begin,
            ending=ending,
            notes=self.notes,
            calibration=calibration,
        )

    def _inherit(self, output: Path, ending: Ending) -> Path | None:
        """The calibration of the base beside the weights, if it holds for them; one of weights before goes."""
        adapted = models.load(output, str(self.device), calibrated=False)
        if remove_stale(output, adapted.fingerprint):
            self.notes = (*self.notes, f"{path_beside(output)} was of the weights before and is removed")
        if self.known is None:
            own, words = None, f"{self.base} has no calibration: poses are not judged"
        elif ending in ("finished", "stopped early"):
            own, words = inherited(adapted, self.base, self.known, self.held_out)
        else:
            own, words = None, f"{ending} before it was seen whether the calibration of {self.base} holds: not judged"
        self.notes = (*self.notes, words)
        return None if own is None else own.save(path_beside(output))

    def _facts(self, ending: Ending) -> dict[str, Any]:
        """What the file says of its making."""
        scene, volume = self.scene, self.scene.volume
        windows = {} if scene.anchors is None else {"window": list(scene.window)}
        sha256 = tensors_sha256(volume.cpu())
        return {
            "dataset": "one volume",
            "shape": list(scene.window),
            **windows,
            "spacing_mm": self.spacing_mm,
            "volume": {"shape": list(volume.shape), "sha256": sha256},
            "settings": asdict(self.settings) | {"protocol": "honest", "parts": self.parts},
            "step": self.state.best_step,
            "steps": self.state.step,
            "frames_per_step": self.training.batch,
            "minutes": (time.monotonic() - self.begin) / 60,
            "ending": ending,
            "validation": {"frames": self.held_out.frames, "before": self.before, "after": self.after},
            **provenance(seed=self.settings.seed, data_sha256=sha256, device=str(resolve_device(str(self.device)))),
        }


def _near(model: Registrar, volume: Volume, settings: AdaptSettings) -> tuple[Volume, Shape, str]:
    """The volume on the grid that the network is adapted to, the shape it was trained on, and what was done, in words.

    No frame is at hand: a network of many voxel sizes is given frames as large as the planes of the volume, unless the
    settings tell the voxel size.
    """
    sizes, facts = model.sizes, model.facts
    if sizes is not None and settings.spacing_mm is None:
        grid = WorkingGrid.choose(FieldOfView.of_planes(volume), volume, sizes)
        near, note = isotropic(volume, grid.spacing_mm, most=MANY_VOXELS, why=grid.why)
        return near, grid.window, note
    near, note = as_trained(model, volume)
    side = min(USUAL_VOXELS, max(near.shape[1:]))
    usual = sizes.usual_shape if sizes is not None else (depth_for(settings.magnitude), side, side)
    depth, height, width = facts.get("window") or facts.get("shape") or usual
    return near, (depth, height, width), note


def _check_output(path: Path, base: str) -> Path:
    """The path, if weights can be written there; asked before the long work."""
    if path.suffix != ".safetensors" or path.is_dir():
        raise ScopeRegError(
            "weights are a file that ends in .safetensors", where=str(path), fix="name one: -o patient.safetensors"
        )
    if path.resolve() == Path(base).resolve():
        raise ScopeRegError("it would overwrite the weights that it starts from", where=str(path), fix="name another")
    output_folder(path.parent)
    return path
