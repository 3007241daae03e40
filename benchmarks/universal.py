"""Train the model `universal` on random worlds, and measure its learning curve on the development sets as it goes.

    python benchmarks/development_sets.py -o out/zero_shot/quick        # once; needs the data
    python benchmarks/universal.py --minutes 17 --stop-after 9          # the first part of a run of 17 minutes
    python benchmarks/universal.py --minutes 17                         # the rest, from its checkpoint
    python benchmarks/universal.py --minutes 20 --start universal.safetensors --curriculum 0 -o out/more

The same as `scopereg train worlds`, for machines that have torch, numpy, safetensors and Lightning alone. The folder
then holds what `scopereg train` leaves, universal.safetensors in half precision and curve.csv.
"""

from __future__ import annotations

import argparse
import os
import signal
import threading
from dataclasses import replace
from pathlib import Path

import torch
from quick_sets import append_curve, load_quick_sets, quick_errors, quick_summary

from scopereg.networks.weights import load_network, read_facts, save_network
from scopereg.training.fitting import MODEL, Machine, train_worlds
from scopereg.training.module import PoseTraining, network_options
from scopereg.training.presets import preset
from scopereg.training.settings import from_plain

NAME, CURVE = "universal.safetensors", "curve.csv"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    usual = preset("fast", dataset="worlds")
    parser.add_argument("--minutes", type=float, required=True, help="length of the whole run")
    parser.add_argument("--stop-after", type=float, default=None, help="minutes after which this part ends")
    parser.add_argument("--start", type=Path, default=None, help="weights to start from")
    parser.add_argument("--curriculum", type=int, default=usual.curriculum)
    parser.add_argument("--batch", type=int, default=usual.batch)
    parser.add_argument("--learning-rate", type=float, default=usual.learning_rate)
    parser.add_argument("--average", type=float, default=usual.average)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--validate-every", type=int, default=usual.validate_every)
    parser.add_argument("--sets", type=Path, default=Path("out/zero_shot/quick"))
    parser.add_argument("-o", "--output", type=Path, default=Path("out/universal"))
    given = parser.parse_args()
    names = ("minutes", "start", "curriculum", "batch", "learning_rate", "average", "seed", "validate_every")
    settings = replace(usual, **{name: getattr(given, name) for name in names})
    if given.stop_after is not None:
        _interrupt_after(given.stop_after * 60)
    sets = load_quick_sets(given.sets)
    before = 0.0

    def watch(module: PoseTraining) -> None:
        errors = quick_errors(module.average, sets, module.device)
        minutes = before + module.state.seconds / 60
        append_curve(given.output / CURVE, errors, "universal", module.state.step, f"{minutes:.2f}")
        print("  ".join(f"{name} {row['mean_mm']:.2f}" for name, row in quick_summary(errors).items()), flush=True)

    if given.start is not None:
        facts = read_facts(given.start)
        before = float(facts.get("minutes_before", 0.0)) + float(facts.get("minutes", 0.0))
    train_worlds(settings, given.output, Machine(), watch=watch)
    write_half(given.output)


def write_half(folder: Path) -> None:
    """The kept weights in half precision, as the package ships them."""
    facts = read_facts(folder / MODEL)
    network = load_network(folder / MODEL)
    options = network_options(from_plain(facts["settings"]))
    save_network(network, folder / NAME, name="scope-reg", options=options, facts=facts, dtype=torch.float16)


def _interrupt_after(seconds: float) -> None:
    """Ctrl-C after some time: the run writes its checkpoint and ends."""
    timer = threading.Timer(seconds, lambda: os.kill(os.getpid(), signal.SIGINT))
    timer.daemon = True
    timer.start()


if __name__ == "__main__":
    torch.set_num_threads(min(8, os.cpu_count() or 1))
    main()
