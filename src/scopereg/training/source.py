"""FrameSource: training frames drawn on the device, a few steps at a time; seed and step alone decide the draw."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
from torch import Tensor

from scopereg import networks
from scopereg.data.augment import augment_channels, mirror_frames, mirror_volumes
from scopereg.data.frames import cut_frames, cut_masks, reference_field
from scopereg.data.mismatch import MismatchOptions, apply_mismatch
from scopereg.data.poses import FRAMES_PER_CASE
from scopereg.data.seeds import generator_for
from scopereg.data.store import AcquiredFrames, VolumeSet
from scopereg.errors import ScopeRegError
from scopereg.geometry import VoxelPoses, compose_poses, resample_volume, sample_poses
from scopereg.networks.recipe import Batch
from scopereg.training.settings import TrainSettings

SECOND_PASS_SHARE = 0.4  # of the magnitude: what a first pass leaves
_ACQUIRED = MismatchOptions(clean_chance=0.5)  # such frames differ from the volume already
STEPS_AT_ONCE = {"cuda": 8, "cpu": 1}  # one call on a GPU costs the same for one step and for eight


class Source(ABC):
    """Endless batches drawn on a device, by step: `draw` tells how."""

    def __init__(self, device: torch.device, settings: TrainSettings) -> None:
        self.device, self.settings = device, settings
        self.steps_at_once = STEPS_AT_ONCE.get(device.type, 1)
        self._drawn: tuple[int, Batch] | None = None
        self._pace = _Pace(device) if device.type == "cuda" else None

    @abstractmethod
    def draw(self, index: int) -> Batch:
        """The joined batches of steps index * steps_at_once and following."""

    def batch(self, step: int) -> Batch:
        """The batch of a step, the same whenever it is asked for."""
        index, part = divmod(step, self.steps_at_once)
        if self._drawn is None or self._drawn[0] != index:
            self._drawn = index, self.draw(index) if self._pace is None else self._pace.aside(self.draw, index)
        return self._drawn[1].each(lambda value: value.unflatten(0, (self.steps_at_once, -1))[part])

    def draw_ahead(self, step: int) -> None:
        """Draw for a step while the device still works on those before it; call it when these were launched."""
        if self._pace is not None and step % self.steps_at_once == 0:
            self._pace.hold()
            self.batch(step)


class FrameSource(Source):
    """Batches from a set of volumes that lives on the device. `rank` separates the processes of one run."""

    def __init__(self, volumes: VolumeSet, settings: TrainSettings, rank: int = 0) -> None:
        super().__init__(volumes.images.device, settings)
        self.volumes, self.rank = volumes, rank
        self.prompted = networks.recipe(settings.network).masks and volumes.labels is not None

    @torch.no_grad()
    def draw(self, index: int) -> Batch:
        settings = self.settings
        generator = generator_for("training frames", settings.seed, self.rank, index, device=self.device)
        count = self.steps_at_once * settings.batch // settings.frames_per_volume
        rows = torch.randint(len(self.volumes), (count,), generator=generator, device=self.device)
        frames = self.volumes.frames
        if settings.protocol == "honest" and frames is not None:
            return self._pick(frames, rows, generator)
        channels = self._channels(rows)
        if settings.augment:
            channels = augment_channels(channels, generator)
        images = channels[:, 0]
        poses = sample_poses(count * settings.frames_per_volume, settings.magnitude, self.volumes.shape, generator)
        references = reference_field(images, self.volumes.margin).contiguous()
        found = poses
        if settings.passes == 2:
            references, poses, found = self._second_passes(references, poses, generator)
        slices = cut_frames(images, self.volumes.margin, poses, settings.protocol, generator)
        masks = cut_masks(channels[:, 1], self.volumes.margin, poses, settings.protocol) if self.prompted else None
        return Batch(slices, references, *found, masks)

    def _channels(self, rows: Tensor) -> Tensor:
        """Volumes (B, 1 or 2, D, H, W) with their surroundings and, where they are learned from, the organs' masks."""
        images = self.volumes.images[rows].float() / 255
        if not self.prompted:
            return images[:, None]
        return torch.stack([images, self.volumes.organ(rows).float()], 1)

    def _second_passes(
        self, references: Tensor, poses: VoxelPoses, generator: torch.Generator
    ) -> tuple[Tensor, VoxelPoses, VoxelPoses]:
        """Half of the volumes seen from a first guess, with frames near it: references, poses, and what is to find."""
        settings, count = self.settings, len(references)
        each = settings.frames_per_volume
        guesses = sample_poses(count, settings.magnitude, self.volumes.shape, generator)
        near = sample_poses(
            count * each, SECOND_PASS_SHARE * settings.magnitude, self.volumes.shape, generator, min_inside=0
        )
        chosen = torch.rand(count, generator=generator, device=self.device) < 0.5
        seen_from_guess = resample_volume(references, *guesses)
        references = torch.where(chosen[:, None, None, None], seen_from_guess, references)
        per_frame = chosen.repeat_interleave(each)
        guessed = VoxelPoses(*(value.repeat_interleave(each, 0) for value in guesses))
        poses = _choose(per_frame, compose_poses(guessed, near), poses)
        return references, poses, _choose(per_frame, near, poses)

    def _pick(self, frames: AcquiredFrames, rows: Tensor, generator: torch.Generator) -> Batch:
        """Frames that were acquired beforehand: these are other acquisitions already, mismatch adds to the variety."""
        each, device = self.settings.frames_per_volume, self.device
        columns = torch.randint(frames.images.shape[1], (len(rows), each), generator=generator, device=device)
        places = rows[:, None], columns
        slices = frames.images[places].flatten(0, 1).float() / 255
        rotation, translation = frames.rotation[places].flatten(0, 1), frames.translation[places].flatten(0, 1)
        margin = self.volumes.margin
        channels = self._channels(rows)
        if self.settings.augment:
            slices = apply_mismatch(slices, generator, _ACQUIRED, seen=slices > 0)
            mirrored, reversed_ = torch.rand(2, len(rows), generator=generator, device=device) < 0.5
            channels = mirror_volumes(channels, mirrored, reversed_)
            per_frame = (flags.repeat_interleave(each) for flags in (mirrored, reversed_))
            slices, rotation, translation = mirror_frames(slices, rotation, translation, *per_frame)
        poses = VoxelPoses(rotation, translation)
        masks = cut_masks(channels[:, 1], margin, poses, "honest") if self.prompted else None
        return Batch(slices, reference_field(channels[:, 0], margin).contiguous(), *poses, masks)


def _choose(flags: Tensor, one: VoxelPoses, other: VoxelPoses) -> VoxelPoses:
    rotation = torch.where(flags[:, None, None], one.rotation, other.rotation)
    return VoxelPoses(rotation, torch.where(flags[:, None], one.translation, other.translation))


class _Pace:
    """Lets draws overlap with the training step: a stream of their own, and a host that stays close to the device."""

    def __init__(self, device: torch.device) -> None:
        self.device, self.stream = device, torch.cuda.Stream(device)
        self.before: torch.cuda.Event | None = None

    def aside(self, draw: Callable[[int], Batch], index: int) -> Batch:
        """A draw on the own stream: where it waits for the device it waits for itself alone."""
        main = torch.cuda.current_stream(self.device)
        with torch.cuda.stream(self.stream):
            chunk = draw(index)
        main.wait_stream(self.stream)
        for value in chunk.tensors():
            value.record_stream(main)
        return chunk

    def hold(self) -> None:
        """Wait until the device has begun what was launched since the last call, so that draws do not pile up."""
        now = torch.cuda.Event()
        now.record(torch.cuda.current_stream(self.device))
        if self.before is not None:
            self.before.synchronize()
        self.before = now


def check_volumes(volumes: VolumeSet, settings: TrainSettings) -> None:
    """An error where these volumes cannot be trained on with these settings."""
    if volumes.frames is not None and volumes.frames.images.shape[1] < FRAMES_PER_CASE:
        raise ScopeRegError(
            f"{volumes.name} has {volumes.frames.images.shape[1]} frames of each volume",
            where="train(volumes)",
            fix=f"acquire at least {FRAMES_PER_CASE}, which validation takes, or use volumes without frames",
        )
    if volumes.frames is not None and settings.protocol == "honest" and settings.passes == 2:
        raise ScopeRegError(
            f"the frames of {volumes.name} were acquired beforehand, not near a first guess",
            where="train(passes)",
            fix="use passes=1, or volumes without frames of their own",
        )
    if volumes.frames is not None and settings.protocol == "honest":
        made_for = volumes.facts.get("magnitude", settings.magnitude)
        if made_for != settings.magnitude:
            raise ScopeRegError(
                f"the frames of {volumes.name} were acquired within +-{made_for:g}, not +-{settings.magnitude:g}",
                where="train(magnitude)",
                fix="make the phantoms with the magnitude that you train for",
            )
