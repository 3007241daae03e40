"""Train the model `universal` on random worlds, and measure its learning curve on the development sets as it goes.

    python benchmarks/development_sets.py -o out/zero_shot/quick        # once; needs the data
    python benchmarks/universal.py --minutes 17 --stop-after 9          # the first part of a run of 17 minutes
    python benchmarks/universal.py --minutes 17                         # the rest, from its checkpoint
    python benchmarks/universal.py --minutes 20 --start universal.safetensors --curriculum 0 -o out/more
    python benchmarks/universal.py --finish out/more/model.safetensors --blend universal.safetensors -o out/blended

    python benchmarks/universal.py --network fine-stage --minutes 24 --sets out/gpu/quick -o out/fine

The same as `scopereg train worlds`, for machines that have torch, numpy, safetensors and Lightning alone. The folder
then holds what `scopereg train` leaves, universal.safetensors (or universal.fine.safetensors) in half precision and
curve.csv. The fine stage is measured from the poses that the shipped `universal` finds.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path

import torch
from quick_sets import append_curve, load_quick_sets, quick_errors, quick_summary
from torch import Tensor, nn

from scopereg.data.phantom.anatomy import ANATOMIES
from scopereg.data.phantom.sets import make_phantoms
from scopereg.data.store import MANIFEST, AcquiredFrames, VolumeSet, save_set
from scopereg.data.worlds import WorldRanges
from scopereg.geometry import VoxelPoses
from scopereg.networks.fine import FineResult, FineStage
from scopereg.networks.scope_reg import ScopeReg
from scopereg.networks.weights import load_network, read_facts, save_network
from scopereg.training.fitting import MODEL, Machine, Training, train_worlds
from scopereg.training.network import network_options
from scopereg.training.parts import measure_statistics, norms_of
from scopereg.training.presets import preset
from scopereg.training.settings import from_plain
from scopereg.training.task import minutes_of
from scopereg.training.worlds import WorldSource

NAMES = {"scope-reg": "universal.safetensors", "fine-stage": "universal.fine.safetensors"}
CURVE = "curve.csv"
SHIPPED_UNIVERSAL = Path(__file__).parents[1] / "src" / "scopereg" / "weights" / "universal.safetensors"
BLEND = 0.6  # share of the trained weights in a blend with those that they were trained from
LOOKS = 4  # of the shipped weights, one more than in training: frames far off need it, and the others lose nothing
STATISTICS_BATCHES, STATISTICS_STREAM = 24, 1_000_000  # no process of a run draws from that stream
SETTINGS = (
    *("minutes", "start", "curriculum", "norm", "depth_stride", "later_planes"),
    *("batch", "learning_rate", "average", "seed", "validate_every", "capture"),
)
PHANTOMS, PHANTOMS_AT_ONCE, PHANTOM_MAGNITUDE = 96, 6, 14.0  # patients of each anatomy; tests begin at seed 10,000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--network", choices=tuple(NAMES), default="scope-reg")
    usual = preset("fast", parser.parse_known_args()[0].network, "worlds")
    parser.add_argument("--minutes", type=float, default=usual.minutes, help="length of the whole run")
    parser.add_argument("--finish", type=Path, default=None, help="only write these weights as they are shipped")
    parser.add_argument("--blend", type=Path, default=None, help="weights from before, to blend those to finish with")
    parser.add_argument("--stop-after", type=float, default=None, help="minutes after which this part ends")
    parser.add_argument("--start", type=Path, default=None, help="weights to start from")
    parser.add_argument("--curriculum", type=int, default=usual.curriculum)
    parser.add_argument("--norm", choices=("batch", "instance"), default=usual.norm)
    parser.add_argument("--depth-stride", type=int, default=usual.depth_stride)
    parser.add_argument("--later-planes", type=int, default=usual.later_planes)
    parser.add_argument("--batch", type=int, default=usual.batch)
    parser.add_argument("--learning-rate", type=float, default=usual.learning_rate)
    parser.add_argument("--average", type=float, default=usual.average)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--validate-every", type=int, default=usual.validate_every)
    parser.add_argument("--capture", action=argparse.BooleanOptionalAction, default=usual.capture)
    parser.add_argument("--phantoms", type=Path, default=None, help="folder for phantoms to mix in; made if not there")
    parser.add_argument("--sets", type=Path, default=Path("out/zero_shot/quick"))
    parser.add_argument("-o", "--output", type=Path, default=Path("out/universal"))
    given = parser.parse_args()
    if given.finish is not None:
        given.output.mkdir(parents=True, exist_ok=True)
        finish(given.finish, given.output / NAMES[given.network], given.blend)
        return
    phantoms = make_phantom_sets(given.phantoms) if given.phantoms is not None else None
    settings = replace(usual, phantoms=phantoms, **{name: getattr(given, name) for name in SETTINGS})
    if given.stop_after is not None:
        _interrupt_after(given.stop_after * 60)
    sets = load_quick_sets(given.sets)
    before = minutes_of(given.start)

    coarse = FromUniversal() if given.network == "fine-stage" else None

    def watch(module: Training) -> None:
        locate = None if coarse is None else coarse.locate(module.average)
        errors = quick_errors(module.average, sets, module.device, locate=locate)
        minutes = before + module.state.seconds / 60
        append_curve(given.output / CURVE, errors, given.network, module.state.step, f"{minutes:.2f}")
        print("  ".join(f"{name} {row['mean_mm']:.2f}" for name, row in quick_summary(errors).items()), flush=True)

    train_worlds(settings, given.output, Machine(), watch=watch)
    if (given.output / MODEL).is_file():
        finish(given.output / MODEL, given.output / NAMES[given.network])


class FromUniversal:
    """Poses that the shipped `universal` finds on the development sets, once, for a fine stage to go on from."""

    def __init__(self) -> None:
        self.found: dict[bytes, VoxelPoses] = {}

    def locate(self, fine: nn.Module) -> Callable[[Tensor, Tensor], FineResult]:
        """How frames are located by both together."""
        assert isinstance(fine, FineStage)

        def both(frames: Tensor, volumes: Tensor) -> FineResult:
            key = hashlib.sha256(frames.cpu().numpy().tobytes()).digest()
            if key not in self.found:
                coarse = load_network(SHIPPED_UNIVERSAL, frames.device)(frames, volumes)
                self.found[key] = VoxelPoses(coarse.rotation.float(), coarse.translation.float())
            return fine(frames, volumes, self.found[key])

        return both


def finish(trained: Path, path: Path, before: Path | None = None) -> None:
    """The weights as the package ships them: half precision, four looks, and batch norms that expect ultrasound.

    While training, these meet volumes in foreign contrast as well; volumes in use are ultrasound. Blended with the
    weights `before` a run, those after it forget less of what they could do: see docs/experiments.md.
    """
    facts, network = read_facts(trained), load_network(trained)
    if isinstance(network, FineStage):
        save_network(network, path, name="fine-stage", facts=facts, dtype=torch.float16)
        return
    assert isinstance(network, ScopeReg)
    network.looks = LOOKS
    if before is not None:
        facts |= {"blend": {"share": BLEND, "with_minutes": minutes_of(before)}}
        _blend(network, load_network(before))
    if norms_of(network):
        facts |= {"statistics": f"of {STATISTICS_BATCHES} batches of worlds in ultrasound contrast"}
        _expect_ultrasound(network)
    options = network_options(from_plain(facts["settings"])) | {"looks": LOOKS}
    save_network(network, path, name="scope-reg", options=options, facts=facts, dtype=torch.float16)


@torch.no_grad()
def _blend(network: ScopeReg, before: nn.Module) -> None:
    """Weights on the line between those of two networks."""
    earlier = before.state_dict()
    for name, weight in network.state_dict().items():
        if weight.is_floating_point():
            weight.copy_(torch.lerp(earlier[name].double(), weight.double(), BLEND))


def _expect_ultrasound(network: ScopeReg) -> None:
    ranges = WorldRanges(foreign_chance=0.0, shapes=(((32, 128, 128), 0.75), ((40, 64, 64), 0.25)))
    settings = replace(preset("fast", dataset="worlds"), curriculum=0, magnitude=10.0, capture=False)
    source = WorldSource(torch.device("cpu"), settings, STATISTICS_STREAM, ranges)
    measure_statistics(network, map(source.batch, range(STATISTICS_BATCHES)))


def make_phantom_sets(folder: Path) -> Path:
    """Phantoms of all anatomies, made on all cores and stored, each in a set of its own."""
    for anatomy in ANATOMIES:
        if (folder / anatomy / MANIFEST).is_file():
            continue
        firsts = range(0, PHANTOMS, PHANTOMS_AT_ONCE)
        with ProcessPoolExecutor(os.cpu_count(), multiprocessing.get_context("spawn")) as pool:
            parts = list(pool.map(_some_phantoms, itertools.repeat(anatomy), firsts))
        joined = replace(
            parts[0],
            images=torch.cat([part.images for part in parts]),
            cases=tuple(case for part in parts for case in part.cases),
            patients=tuple(patient for part in parts for patient in part.patients),
            labels=None,
            frames=AcquiredFrames(*(torch.cat(rows) for rows in zip(*map(_frame_tensors, parts), strict=True))),
            facts={**parts[0].facts, "seeds": [0, PHANTOMS - 1]},
        )
        save_set(joined, folder / anatomy)
    return folder


def _some_phantoms(anatomy: str, first: int) -> VolumeSet:
    torch.set_num_threads(1)
    made = make_phantoms(anatomy, PHANTOMS_AT_ONCE, seed=first, frames=24, magnitude=PHANTOM_MAGNITUDE)
    return replace(made, labels=None)


def _frame_tensors(part: VolumeSet) -> tuple[torch.Tensor, ...]:
    assert part.frames is not None
    return part.frames.images, part.frames.rotation, part.frames.translation


def _interrupt_after(seconds: float) -> None:
    """Ctrl-C after some time: the run writes its checkpoint and ends."""
    timer = threading.Timer(seconds, lambda: os.kill(os.getpid(), signal.SIGINT))
    timer.daemon = True
    timer.start()


if __name__ == "__main__":
    torch.set_num_threads(min(8, os.cpu_count() or 1))
    main()
