"""Session: a volume that a network has prepared, in which frames are found as they come."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from scopereg.errors import ScopeRegError
from scopereg.geometry import VoxelPoses, compose_poses, invert_poses
from scopereg.images import Frame, Volume, check_content, pose_from_voxels, pose_to_voxels
from scopereg.networks.encoders import STRIDE
from scopereg.networks.lattice import pad_volumes
from scopereg.networks.streaming import EncodedVolume
from scopereg.ops.replay import Piped, side_by_side
from scopereg.registration.calibration import NETWORK, REFINED, Stage
from scopereg.registration.confidence import QualityFeatures, at_pose, features_of
from scopereg.registration.fine import PreparedFine
from scopereg.registration.grey import similarity_at
from scopereg.registration.places import find_places
from scopereg.registration.result import Result, apart_mm
from scopereg.registration.search import Look, StartOptions, best_of_places, nothing_alike, starts
from scopereg.registration.settings import SearchSettings
from scopereg.registration.working_grid import frame_on_grid
from scopereg.threads import watched

if TYPE_CHECKING:
    from scopereg.networks.fine import FineFrame
    from scopereg.registration.model import Registrar

Locate = Callable[[Tensor], Any]
_POSE = 14  # numbers of a pose and of how well it fits: rotation, translation, residual, similarity


class HostPoses(NamedTuple):
    """Where frames lie, on the host."""

    poses: VoxelPoses  # (B, ...), centred voxels
    residual: Tensor  # (B,), voxels from the plane that was fitted, root mean square; NaN where nothing is fitted
    similarity: Tensor  # (B,), correlation with the volume where both have a picture
    evidence: Tensor  # (B, H', W'), how much each cell says; empty where the network tells none
    features: Tensor  # those of `confidence.features_of`; (B, 0) where nobody asked for them


class Session:
    """Frames in one volume. Any thread may call, and several sessions may live beside each other.

    `with registrar.prepare(volume) as session:` gives the memory back at the end; so do `close` and forgetting it.
    """

    @watched()
    def __init__(
        self,
        registrar: Registrar,
        volume: Volume,
        *,
        recorded: bool = True,
        encoded: bool = True,
        fine: PreparedFine | None = None,
    ) -> None:
        """On a GPU frames are located by a recording, unless that is not `recorded`: it pays after some frames.

        A volume that is not `encoded` costs little memory: then the session only judges poses, and locates nothing.
        `fine` is the volume as the fine stage prepared it, where somebody has that already.
        """
        check_content(volume)
        begin = time.perf_counter()
        self.volume = volume
        self.spacing_mm = volume.isotropic_spacing_mm
        self.registrar = registrar
        self._reference = volume.for_registration().array.to(registrar.device)
        streaming = registrar.streaming
        self.prepared: EncodedVolume | None = None  # the volume as encoded, of networks that stream
        self._locate: Locate = _not_encoded
        self._locate_from: Callable[..., Any] = _not_encoded
        self._grid = pad_volumes(torch.empty(1, *volume.shape, device="meta"))[1].shape[1:]
        if encoded and streaming is not None:
            self.prepared = streaming.prepare(self._reference)
            self._locate = partial(streaming.locate, self.prepared)
            self._locate_from = partial(streaming.locate_from, self.prepared)
        elif encoded:
            self._locate = partial(_forward, registrar.network, self._reference[None])
            self._locate_from = self._one_start_alone
        self.fine = fine
        if encoded and fine is None and registrar.fine is not None:
            self.fine = PreparedFine(registrar.fine, self._reference, section=volume.section_voxels)
        # Other networks may draw random numbers or wait for the GPU.
        self._recorded = recorded and streaming is not None
        self._names = features_of(registrar.fine is not None)
        self._pipe = Piped(self._find, registrar.device)
        self._examined = Piped(self._find_features, registrar.device)
        self._quality: QualityFeatures | None = None
        self._examines = registrar.observed or registrar.calibration is not None
        if self._examines:
            self._prepare_features()
        self.prepare_ms = (time.perf_counter() - begin) * 1e3
        self.closed = False

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Session({self.registrar.name}, {' x '.join(map(str, self.volume.shape))} voxels)"

    def __reduce__(self) -> Any:
        raise ScopeRegError(
            "a session stays in its process",
            where="Session",
            fix="send the volume, and prepare it in the other process",
        )

    def close(self) -> None:
        """Give the memory back. A closed session registers nothing."""
        self.closed = True
        self._pipe.clear()
        self._examined.clear()
        self._quality = self.prepared = self.fine = None
        self._reference = self._reference.new_empty(0)
        self._locate = self._locate_from = _not_encoded

    @contextmanager
    def _in_use(self) -> Iterator[None]:
        """Whatever needs the volume: it says that the session is closed, also where a thread closes it meanwhile."""
        if self.closed:
            raise _closed()
        try:
            yield
        except Exception:
            if self.closed:
                raise _closed() from None
            raise

    def register(self, frame: Frame) -> Result:
        """`ImageToVolume` of a frame. Its size, spacing and grey values may be others than the volume's."""
        (result,) = self.register_all([frame])
        return result

    @watched()
    def register_all(self, frames: Sequence[Frame]) -> list[Result]:
        """As `register`, for several frames in one go."""
        begin = time.perf_counter()
        for frame in frames:
            check_content(frame)
        on_grid = [frame_on_grid(frame, self.volume) for frame in frames]
        shown = [frame.for_network() for frame in on_grid]
        images = torch.stack([frame.array for frame in shown])
        masks = torch.stack([_mask_of(frame) for frame in shown])
        ready = time.perf_counter()
        found = self.examine(images, masks) if self._examines else self.locate(images)
        done = time.perf_counter()
        timings = {"image": (ready - begin) * 1e3 / len(frames), "network": (done - ready) * 1e3 / len(frames)}
        results = [self._result(found, row, grid, timings) for row, grid in enumerate(on_grid)]
        return [self._placed(one, frame) for one, frame in zip(results, frames, strict=True)]

    @watched()
    @torch.inference_mode()
    def search(
        self,
        frame: Frame,
        settings: SearchSettings | None = None,
        room_voxels: tuple[float, float, float] = (0.0, 0.0, 0.0),
    ) -> Result:
        """As `register`, anywhere in the volume; takes some time. Its `alternatives` are other places, the best first.

        Without a fine stage it looks from several starts, and the place where the volume is most like the frame is the
        best; `room_voxels` is how far more of them lie from the middle, in x, y, z, see `search.starts`.
        """
        begin, settings = time.perf_counter(), settings or SearchSettings()
        check_content(frame)
        grid = frame_on_grid(frame, self.volume)
        shown = grid.for_network()
        image, mask = (part.to(self._reference.device) for part in (shown.array, _mask_of(shown)))
        ready = time.perf_counter()
        timings = {"image": (ready - begin) * 1e3}
        with self._in_use():
            if self.fine is None:
                options = StartOptions()
                found = self._find_from(image, mask, starts(options, room_voxels), options.looks)
                timings["network"] = (time.perf_counter() - ready) * 1e3
                return self._most_alike(found, frame, grid, timings, options)
            until = math.inf if settings.seconds is None else begin + settings.seconds
            places = find_places(self.fine, image, settings, until)
            rows = places.apart_from_one_another(settings.kept)
            if not rows:
                raise nothing_alike()
            found = self._find_from(image, mask, VoxelPoses(*(part[rows] for part in places.poses)), 1)
        timings["network"] = (time.perf_counter() - ready) * 1e3
        looks = []
        for number, row in enumerate(rows):
            result = self._placed(self._result(found, number, grid, timings), frame)
            pose = VoxelPoses(*(part[number : number + 1].to(image) for part in found.poses))
            looks.append(Look(row, result, pose))
        return best_of_places(places, looks, (time.perf_counter() - begin) * 1e3)

    def _most_alike(
        self, found: HostPoses, frame: Frame, grid: Frame, timings: dict[str, float], options: StartOptions
    ) -> Result:
        """The place where the volume is most like the frame, and others apart from it."""
        best: list[Result] = []
        for row in found.similarity.nan_to_num(-1.0).argsort(descending=True).tolist():
            result = self._placed(self._result(found, row, grid, timings), frame)
            if all(apart_mm(frame, result.pose, other.pose) > options.apart_mm for other in best):
                best.append(result)
            if len(best) == options.kept:
                break
        return replace(best[0], alternatives=tuple(best[1:]))

    def _find_from(self, image: Tensor, mask: Tensor, begin: VoxelPoses, passes: int) -> HostPoses:
        """Where an image (H, W) on the device, with the mask of what counts, is found from each start (N, ...)."""
        found = self._locate_from(image, *begin, passes)
        images = image.expand(len(begin.rotation), -1, -1)
        judged = self.registrar.calibration is not None
        masks = mask.expand(len(images), -1, -1)
        read = None if self.fine is None else self.fine.read(image[None]).repeated(len(images))
        finely = self._finely(read, found)
        features = torch.empty(len(images), 0)
        if judged:
            features = self._prepare_features().of(images, found, masks, finely, read)
        return self._unpack(self._pack(images, found, finely or _poses_of(found)).cpu(), features.cpu())

    def _one_start_alone(self, *_: Any) -> Any:
        raise ScopeRegError(
            f"a {type(self.registrar.network).__name__} cannot start anywhere else than in the middle of a volume",
            where="Session.search",
            fix="use weights of scope-reg, or register without a wide search",
        )

    @watched()
    def locate(self, images: Tensor) -> HostPoses:
        """Where images (B, H, W) in [0, 1] with the pixels of the volume's planes lie, in centred voxels."""
        with self._in_use():
            packed = self._pipe(images.float().cpu())[0] if self._recorded else self._find(images)[0].cpu()
            return self._unpack(packed, torch.empty(len(packed), 0))

    @watched()
    def examine(self, images: Tensor, masks: Tensor | None = None) -> HostPoses:
        """As `locate`, and what tells how good the poses are; `masks` (B, H, W) are true where pixels count.

        The others are black, whatever they are.
        """
        masks = torch.ones_like(images, dtype=torch.bool) if masks is None else masks
        with self._in_use():
            self._prepare_features()
            if self._recorded:
                return self._unpack(*self._examined(images.float().cpu(), masks.cpu()))
            device = self._reference.device
            packed, features = self._find_features(images.float().to(device), masks.to(device))
            return self._unpack(packed.cpu(), features.cpu())

    @watched()
    def judge_refined(self, frame: Frame, result: Result, stage: Stage = REFINED) -> Result:
        """A result of this session whose pose was refined, with a verdict on the refined pose.

        There is none where nobody calibrated this refinement; what did not belong to the volume still does not.
        """
        if not result.features:
            return result
        grid = frame_on_grid(frame, self.volume)
        where = pose_to_voxels(result.pose, grid, self.volume)
        poses = VoxelPoses(where.rotation[None].float(), where.translation[None].float())
        features = torch.tensor([list(result.features.values())])
        shown = grid.for_network()
        changed = self.features_at(shown.array[None], poses, _mask_of(shown)[None])
        features[:, at_pose(self.registrar.fine is not None)] = changed
        if result.seen_from is not None:  # that is where offsets count from
            first = pose_to_voxels(result.seen_from, grid, self.volume)
            where = compose_poses(invert_poses(first), where)
        return self._judged(result, features[0], stage, where)

    def features_at(self, images: Tensor, poses: VoxelPoses, masks: Tensor | None = None) -> Tensor:
        """The quality features of images (B, H, W) that change with the pose, on the host."""
        masks = torch.ones_like(images, dtype=torch.bool) if masks is None else masks
        with self._in_use():
            quality, device = self._prepare_features(), self._reference.device
            where = VoxelPoses(poses.rotation.to(device), poses.translation.to(device))
            masks = masks.to(device)
            return quality.at_poses(images.float().to(device) * masks, where, masks).cpu()

    def _prepare_features(self) -> QualityFeatures:
        if self.registrar.streaming is None:
            raise ScopeRegError(
                f"a {type(self.registrar.network).__name__} tells no quality features of its poses",
                where="Session.examine",
                fix="use weights of scope-reg",
            )
        if self._quality is None:
            fine = self.fine
            if fine is None and self.registrar.fine is not None:  # a session that judges alone needs it too
                fine = PreparedFine(self.registrar.fine, self._reference, section=self.volume.section_voxels)
            self._quality = QualityFeatures(self._reference, fine, self.volume.known)
        return self._quality

    def _unpack(self, packed: Tensor, features: Tensor) -> HostPoses:
        rotation, translation, residual, similarity, evidence = packed.split([9, 3, 1, 1, packed.shape[1] - _POSE], 1)
        poses = VoxelPoses(rotation.unflatten(1, (3, 3)), translation)
        grid = self._grid if evidence.numel() else (0, 0)
        return HostPoses(poses, residual.squeeze(1), similarity.squeeze(1), evidence.unflatten(1, grid), features)

    @torch.inference_mode()
    def _find(self, images: Tensor) -> tuple[Tensor, ...]:
        """All that the host wants of frames (B, H, W) on the device, as one tensor (B, numbers): one copy back."""
        images = images.to(self._reference.device)
        read, found = self._read_and_locate(images)
        return (self._pack(images, found, self._finely(read, found) or _poses_of(found)),)

    @torch.inference_mode()
    def _find_features(self, images: Tensor, masks: Tensor) -> tuple[Tensor, ...]:
        """As `_find`, and the quality features (B, S)."""
        assert self._quality is not None
        images = images * masks
        read, found = self._read_and_locate(images)
        finely = self._finely(read, found)
        features = self._quality.of(images, found, masks, finely, read)
        return self._pack(images, found, finely or _poses_of(found)), features

    def _read_and_locate(self, images: Tensor) -> tuple[FineFrame | None, Any]:
        """Images as the fine stage reads them, and where the network finds them: neither needs the other."""
        fine = self.fine
        if fine is None:
            return None, self._locate(images)
        return side_by_side(lambda: fine.read(images), lambda: self._locate(images), images)

    def _finely(self, read: FineFrame | None, found: Any) -> VoxelPoses | None:
        """Where the fine stage brings what the network found."""
        if self.fine is None or read is None:
            return None
        return self.fine.locate(read, _poses_of(found))

    def _pack(self, images: Tensor, found: Any, poses: VoxelPoses) -> Tensor:
        similarity = similarity_at(images, self._reference, poses)
        residual = getattr(found, "residual", torch.full_like(similarity, math.nan))
        parts = [poses.rotation.flatten(1), poses.translation, residual.unsqueeze(1), similarity.unsqueeze(1)]
        if found.evidence is not None:
            parts.append(found.evidence.flatten(1))
        return torch.cat(parts, 1)

    def _result(self, found: HostPoses, row: int, frame: Frame, timings: dict[str, float]) -> Result:
        rotation, translation = (part[row] for part in found.poses)
        similarity = float(found.similarity[row])
        result = Result(
            pose_from_voxels(rotation, translation, frame, self.volume),
            f"{self.registrar.name} network",
            sum(timings.values()),
            similarity,
            evidence=found.evidence[row] if found.evidence.numel() else None,
            timings_ms=dict(timings),
        )
        if not found.features.numel():
            return result
        return self._judged(result, found.features[row], NETWORK, VoxelPoses(rotation, translation))

    def _placed(self, result: Result, frame: Frame) -> Result:
        """The result with what it is of; its evidence is that of the frame as it came, not of the volume's planes."""
        evidence = None if result.evidence is None else evidence_over(frame, result.evidence, self.volume)
        return replace(result, frame=frame, volume=self.volume, evidence=evidence)

    def _judged(self, result: Result, features: Tensor, stage: Stage, where: VoxelPoses) -> Result:
        """The result with its features and, where the network's calibration tells what they mean, its verdict."""
        numbers = [float(feature) for feature in features]
        told = replace(result, features=dict(zip(self._names, numbers, strict=False)))
        known = self.registrar.calibration
        if known is None:
            return told
        if not known.knows(stage):
            return told if told.belongs is False else told.without_verdict()
        return replace(told, **vars(known.judge(stage, numbers, self.spacing_mm, *where)))


def _poses_of(found: Any) -> VoxelPoses:
    return VoxelPoses(found.rotation.float(), found.translation.float())


def _forward(network: nn.Module, volumes: Tensor, images: Tensor) -> Any:
    return network(images, volumes)


def _mask_of(frame: Frame) -> Tensor:
    return torch.ones_like(frame.array, dtype=torch.bool) if frame.mask is None else frame.mask


def _closed() -> ScopeRegError:
    return ScopeRegError("the session is closed", where="Session", fix="prepare the volume again")


def _not_encoded(*_: Any) -> Any:
    raise ScopeRegError("the volume is not encoded", where="Session", fix="prepare it: registrar.prepare(volume)")


def evidence_over(frame: Frame, evidence: Tensor, window: Volume) -> Tensor:
    """Evidence (H', W') of the cells of a volume's planes, as cells over the whole frame; none where it was not seen.

    A network sees a frame centred on a plane of the volume: larger ones are cut, smaller ones have a border.
    """
    spacing_mm = window.isotropic_spacing_mm
    whole = all(n % STRIDE == 0 for n in frame.shape)
    if whole and frame.shape == window.shape[1:] and frame.spacing_mm == (spacing_mm, spacing_mm):
        return evidence
    cell_mm = STRIDE * spacing_mm
    _, lattice = pad_volumes(torch.empty(1, *window.shape, device="meta"))
    rows, columns = (
        max(round(n * step / cell_mm), 1) for n, step in zip(frame.shape, frame.spacing_mm[::-1], strict=True)
    )
    places = []
    for count, pixels, step, first, cells in (
        (columns, frame.shape[1], frame.spacing_mm[0], lattice.start[2], lattice.shape[2]),
        (rows, frame.shape[0], frame.spacing_mm[1], lattice.start[1], lattice.shape[1]),
    ):
        from_centre = ((torch.arange(count) + 0.5) / count - 0.5) * pixels * step / cell_mm
        places.append((from_centre - first) * 2 / max(cells - 1, 1) - 1)
    grid = torch.stack(torch.meshgrid(places[1], places[0], indexing="ij")[::-1], -1)
    return F.grid_sample(evidence[None, None].float().cpu(), grid[None], padding_mode="zeros", align_corners=True)[0, 0]
