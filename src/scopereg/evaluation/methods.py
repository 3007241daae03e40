"""Methods by name: what locates frames in a volume, all through one call, so that they can be compared."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import torch
from torch import Tensor

from scopereg.devices import resolve_device
from scopereg.errors import ScopeRegError, did_you_mean
from scopereg.geometry import Pose, VoxelPoses
from scopereg.images import Frame, Volume, pose_from_voxels, pose_to_voxels
from scopereg.networks.passes import locate
from scopereg.registration import model as models
from scopereg.registration.calibration import Stage
from scopereg.registration.confidence import Verdict
from scopereg.registration.prepared_volume import case_on_grid
from scopereg.registration.refine import WIDE, RefineOptions, Refiner
from scopereg.registration.result import RegistrationError, Result
from scopereg.registration.signs import LIKENESS, Witness
from scopereg.registration.wide import WideOptions

if TYPE_CHECKING:
    from scopereg.registration.locator import Locator


class Located(NamedTuple):
    """Where a method says that frames lie."""

    poses: VoxelPoses  # (F, ...), centred voxels; NaN for frames that were not located
    confidence: Tensor  # (F,), larger is surer; NaN where the method gives none or could not locate the frame
    time_ms: Tensor  # (F,)
    signs: Tensor | None = None  # (F, S), what the confidence of a calibrated network rests on
    verdicts: Sequence[Verdict | None] | None = None  # of each frame that was located, by a calibrated network
    failures: Mapping[int, str] = {}  # frames that were not located, and why

    @property
    def lost(self) -> Tensor:
        """Which frames (F,) were not located."""
        return torch.tensor([row in self.failures for row in range(len(self.time_ms))])

    def anywhere(self) -> VoxelPoses:
        """The poses, and the middle plane for frames without one: to compute with, and then to forget."""
        rotation, translation, lost = *self.poses, self.lost.to(self.poses.translation.device)
        middle = torch.eye(3).to(rotation)
        return VoxelPoses(
            torch.where(lost[:, None, None], middle, rotation), translation.masked_fill(lost[:, None], 0.0)
        )


class Method(Protocol):
    """Anything that finds frames (F, H, W) in a volume (D, H, W), both in [0, 1]."""

    name: str
    facts: dict[str, Any]  # what decides its results: settings, the hash of its weights

    def locate(self, frames: Tensor, volume: Tensor, spacing_mm: float) -> Located: ...


class Identity:
    """No registration: every frame on the middle plane."""

    name = "identity"

    def __init__(self) -> None:
        self.facts: dict[str, Any] = {}

    def locate(self, frames: Tensor, volume: Tensor, spacing_mm: float) -> Located:
        count = len(frames)
        nothing = torch.zeros(count)
        return Located(VoxelPoses(torch.eye(3).repeat(count, 1, 1), torch.zeros(count, 3)), nothing / 0, nothing)


class NetworkMethod:
    """A network with its weights; the frames of a call share the volume, and its time."""

    def __init__(self, model: models.Registrar, passes: int = 1) -> None:
        self.name = model.name if passes == 1 else f"{model.name} x{passes}"
        self.model, self.passes = model, passes
        self.facts = {"weights": model.facts, "passes": passes, "device": str(model.device)}
        self.calibration = model.calibration if passes == 1 else None
        if self.calibration is not None:
            self.facts["calibration"] = self.calibration.made_on
        if model.bases:
            self.facts["adapted"] = {"model": model.name, "from": [Path(base).stem for base in model.bases]}

    @torch.inference_mode()
    def locate(self, frames: Tensor, volume: Tensor, spacing_mm: float) -> Located:
        if self.calibration is not None:
            return self._judged(frames, volume, spacing_mm)
        begin = time.perf_counter()
        device, case = self.model.device, case_on_grid(self.model, frames, volume, spacing_mm)
        images, reference = case.frames.to(device), case.volume.array[None].to(device)
        found = locate(self.model.network, images, reference, self.passes)
        poses = case.back(VoxelPoses(found.rotation, found.translation))
        each_ms = (time.perf_counter() - begin) * 1e3 / len(frames)
        nothing = torch.full((len(frames),), math.nan)
        return Located(poses, nothing, torch.full((len(frames),), each_ms))

    def _judged(self, frames: Tensor, volume: Tensor, spacing_mm: float) -> Located:
        """Through a session, which tells the confidence as well."""
        begin = time.perf_counter()
        case = case_on_grid(self.model, frames, volume, spacing_mm)
        with self.model.prepare(case.volume) as session:
            found = session.examine(case.frames)
        verdicts = self.judge("network", found.signs, found.poses)
        each_ms = torch.full((len(frames),), (time.perf_counter() - begin) * 1e3 / len(frames))
        return Located(case.back(found.poses), _sure(verdicts), each_ms, found.signs, verdicts)

    def judge(self, stage: Stage, signs: Tensor, poses: VoxelPoses) -> list[Verdict]:
        """What to think of poses of the network, or of those refined from them, by their signs (F, S)."""
        assert self.calibration is not None
        rows = zip(signs.tolist(), *poses, strict=True)
        return [self.calibration.judge(stage, numbers, *where) for numbers, *where in rows]


def _sure(verdicts: Sequence[Verdict]) -> Tensor:
    return torch.tensor([verdict.confidence for verdict in verdicts])


class ClassicalMethod:
    """A classical peer, from the middle plane or from another method's poses; its similarity is its confidence.

    A frame that it cannot locate stays where it starts, with a similarity of NaN: it counts as not registered.
    """

    def __init__(self, name: str, start: Method | None = None) -> None:
        from scopereg.registration.classical import PEERS

        self.peer, self.start = PEERS[name], start
        self.name = name if start is None else f"{start.name} + {name}"
        self.peer.require()
        self.facts: dict[str, Any] = {"options": {key: str(value) for key, value in vars(self.peer.options).items()}}
        if start is not None:
            self.facts["start"] = start.facts

    def locate(self, frames: Tensor, volume: Tensor, spacing_mm: float) -> Located:
        self.peer.warm_up()
        reference = Volume(volume.cpu(), spacing_mm)
        images = [Frame(frame, spacing_mm=spacing_mm) for frame in frames.cpu()]
        starts, before_ms = self._starts(frames, images, reference)
        results = [
            self._register(image, reference, start) if isinstance(start, Pose) else start
            for image, start in zip(images, starts, strict=True)
        ]
        time_ms = torch.tensor([0.0 if isinstance(result, str) else result.time_ms for result in results])
        return _located(results, images, reference, "similarity")._replace(time_ms=before_ms + time_ms)

    def _starts(self, frames: Tensor, images: list[Frame], volume: Volume) -> tuple[list[Pose | str], Tensor]:
        """Where to start with each frame, or why the method before did not locate it, and what it took to know."""
        from scopereg.registration.classical import centre_pose

        if self.start is None:
            return [centre_pose(image, volume) for image in images], torch.zeros(len(images))
        found = self.start.locate(frames, volume.array, volume.isotropic_spacing_mm)
        rows = enumerate(zip(found.poses.rotation, found.poses.translation, images, strict=True))
        starts = [found.failures.get(row) or pose_from_voxels(*where, volume) for row, where in rows]
        return starts, found.time_ms

    def _register(self, frame: Frame, volume: Volume, start: Pose) -> Result:
        begin = time.perf_counter()
        try:
            return self.peer.register(frame, volume, start, options=self.peer.options)
        except RegistrationError:
            elapsed_ms = (time.perf_counter() - begin) * 1e3
            return Result(start, self.name, elapsed_ms, math.nan)


class WideMethod:
    """A network that looks from several starts, and refinement of what it finds, as `scopereg register --wide` does.

    A frame that it cannot locate has no pose: it is a failure, whatever its start was.
    """

    def __init__(self, model: models.Registrar, *, refine: bool = False) -> None:
        self.model, self.refine = model, refine
        self.name = f"{model.name} wide" + (" + refine" if refine else "")
        self.facts: dict[str, Any] = {"weights": model.facts, "wide": str(WideOptions()), "device": str(model.device)}
        if refine:
            self.facts["options"] = str(RefineOptions())

    def locate(self, frames: Tensor, volume: Tensor, spacing_mm: float) -> Located:
        from scopereg.registration.locator import Locator

        reference = Volume(volume.cpu(), spacing_mm)
        locator = Locator(reference, self.model, wide=True, refine=self.refine, device=str(self.model.device))
        images = [Frame(frame, spacing_mm=spacing_mm) for frame in frames.cpu()]
        timed = [self._timed(locator, image) for image in images]
        found = _located([result for result, _ in timed], images, reference, "confidence")
        verdicts = [None if isinstance(result, str) else Verdict.of(result) for result, _ in timed]
        time_ms = torch.tensor([each_ms for _, each_ms in timed])
        return found._replace(time_ms=time_ms, verdicts=verdicts if self.model.calibration is not None else None)

    @staticmethod
    def _timed(locator: Locator, image: Frame) -> tuple[Result | str, float]:
        """What was found of a frame, or why nothing, and how long that took."""
        begin = time.perf_counter()
        (found,) = locator.locate_all([image])
        if isinstance(found, ScopeRegError):
            return found.what, (time.perf_counter() - begin) * 1e3
        return found, found.time_ms


def _located(results: Sequence[Result | str], images: Sequence[Frame], volume: Volume, sure: str) -> Located:
    """Results of frames, or why there is none, with the attribute of a result that tells how sure it is."""
    nowhere = VoxelPoses(torch.full((3, 3), math.nan), torch.full((3,), math.nan))
    poses = [
        nowhere if isinstance(result, str) else pose_to_voxels(result.pose, image, volume)
        for result, image in zip(results, images, strict=True)
    ]
    return Located(
        VoxelPoses(torch.stack([p.rotation for p in poses]), torch.stack([p.translation for p in poses])),
        torch.tensor([math.nan if isinstance(result, str) else getattr(result, sure) for result in results]),
        torch.tensor([math.nan if isinstance(result, str) else result.time_ms for result in results]),
        failures={row: result for row, result in enumerate(results) if isinstance(result, str)},
    )


class RefinedMethod:
    """Another method, its poses refined; the similarity at the end is the confidence, or what a calibration says."""

    def __init__(self, start: Method, device: torch.device) -> None:
        self.start, self.device = start, device
        self.name = f"{start.name} + refine"
        self.options = WIDE if isinstance(start, Identity) else RefineOptions()
        self.facts: dict[str, Any] = {"start": start.facts, "options": str(self.options), "device": str(device)}

    def locate(self, frames: Tensor, volume: Tensor, spacing_mm: float) -> Located:
        start = self.start.locate(frames, volume, spacing_mm)
        begin = time.perf_counter()
        found = Refiner(volume.to(self.device), self.options).refine(frames, start.anywhere())
        rotation, translation, sure = (part.cpu() for part in (*found.poses, found.similarity))
        lost = start.lost
        poses = VoxelPoses(
            rotation.masked_fill(lost[:, None, None], math.nan), translation.masked_fill(lost[:, None], math.nan)
        )
        sure, verdicts = sure.masked_fill(lost, math.nan), None
        if isinstance(self.start, NetworkMethod) and start.signs is not None:
            signs, case = start.signs.clone(), case_on_grid(self.start.model, frames, volume, spacing_mm)
            witness = Witness(case.volume.array.to(self.device), case.volume.isotropic_spacing_mm)
            where = case.placed(poses)
            there = VoxelPoses(*(part.to(self.device) for part in where))
            signs[:, LIKENESS] = witness.likeness(case.frames.to(self.device, torch.float32), there).cpu()
            verdicts = self.start.judge("refined", signs, where)
            sure = _sure(verdicts)
        each_ms = (time.perf_counter() - begin) * 1e3 / len(frames)
        return Located(poses, sure, start.time_ms + each_ms, verdicts=verdicts, failures=start.failures)


CLASSICAL = ("simpleitk-mi", "simpleitk-ncc", "elastix")
REFINE, WIDE_SEARCH = "refine", "wide"
_PLAIN: dict[str, Callable[[], Method]] = {
    "identity": Identity,
    **{name: partial(ClassicalMethod, name) for name in CLASSICAL},
}


def names() -> tuple[str, ...]:
    """Methods that need no weights of one's own."""
    return (*_PLAIN, *models.names())


def create(name: str, device: str = "auto") -> Method:
    """A method by name, or a network from a .safetensors file; `NAME:2` makes two passes, `NAME:wide` many starts.

    `NAME+refine` refines its poses, `NAME+simpleitk-mi` (or another classical method) starts from them.
    """
    place = resolve_device(device)
    first, plus, last = name.rpartition("+")
    if plus and last in (REFINE, *CLASSICAL):
        start = create(first, device)
        if isinstance(start, WideMethod) and last == REFINE and not start.refine:
            return WideMethod(start.model, refine=True)  # all places that it found are refined, not the first alone
        return RefinedMethod(start, place) if last == REFINE else ClassicalMethod(last, start)
    base, _, passes = name.partition(":") if not Path(name).exists() else (name, "", "")
    if base in _PLAIN and not passes:
        return _PLAIN[base]()
    if passes == WIDE_SEARCH:
        return WideMethod(models.load(base, device))
    known = base in models.names() or Path(base).suffix == ".safetensors"
    if not known or (passes and not (passes.isdigit() and 1 <= int(passes) <= 9)):
        raise ScopeRegError(
            f"unknown method {name!r}{did_you_mean(base, names())}",
            where="methods=",
            fix=f"use {', '.join(names())} or a .safetensors file; behind a network :2 makes two passes and "
            f":{WIDE_SEARCH} many starts; +{REFINE}, or + and a classical method, goes on from any method's poses",
        )
    return NetworkMethod(models.load(base, device), int(passes or 1))
