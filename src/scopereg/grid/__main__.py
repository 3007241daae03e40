"""`python -m scopereg.grid`: the verb `scopereg grid` for machines that have torch and little else."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from scopereg.cli import status_of
from scopereg.grid.command import run


def parser() -> argparse.ArgumentParser:
    """The options of `scopereg grid`, which has them from tyro; a test holds the two together."""
    made = argparse.ArgumentParser(prog="python -m scopereg.grid", description=__doc__)
    made.add_argument("plan", nargs="?", default="main-table", help="file of a plan, or a plan of the package")
    made.add_argument("--data", help="folder of the data or of a prepared set; {size} stands for the resolution")
    made.add_argument("-o", "--output", type=Path, default=Path("out/grid"), help="folder for everything")
    made.add_argument("--only", nargs="+", default=(), help="parts of names of runs, or patterns with *")
    made.add_argument("--set", nargs="+", default=(), help="KEY=VALUE that wins over the plan")
    made.add_argument("--list", action="store_true", help="show the runs and how far they are")
    made.add_argument("--collect", action="store_true", help="make the tables of what is done")
    made.add_argument("--ray", nargs="*", default=None, help="run on Ray: here, or at an address")
    made.add_argument("--cpus", type=float, help="cores of a run on Ray")
    made.add_argument("--gpus", type=float, help="GPUs of a run on Ray that trains")
    made.add_argument("--retries", type=int, default=3, help="times that a lost worker is replaced")
    made.add_argument("--reference", help="method that the others are tested against")
    made.add_argument("--with-published", action="store_true", help="add the paper's numbers to the tables")
    made.add_argument("--device", default="auto", choices=("auto", "cpu", "cuda", "mps"), help="where tensors live")
    return made


def main(words: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit status."""
    return status_of(lambda: run(parser().parse_args(words)))


if __name__ == "__main__":
    sys.exit(main())
