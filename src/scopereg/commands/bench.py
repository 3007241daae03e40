"""`scopereg bench`: speed, memory and cost of the networks on this machine, as a table, a CSV file and a plot."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scopereg.commands.output import tell
from scopereg.commands.shared import Device, File, Methods, PrecisionName
from scopereg.errors import ScopeRegError
from scopereg.interruption import name_of, status_of
from scopereg.io.files import output_folder
from scopereg.progress import duration, say
from scopereg.registration.settings import DEFAULT

if TYPE_CHECKING:
    from scopereg.evaluation.speed.bench import Bench


@dataclass(frozen=True)
class BenchOptions:
    """Measure speed, memory and cost of the networks on this machine: a table, a CSV file and a plot.

    Times are from arrays on the host to a pose on the host, one frame at a time, in volumes of 32 x N x N voxels.
    Methods: scope-reg, scope-reg-3 (with 3 looks), eureg, fvr-net, cu-reg, dreamreg; cross-attention-heads, ssvf-heads,
    cwcd-heads, cwcd-kabsch, tri-plane (variants of the ablation), all with fresh weights; or any method of scopereg
    register by its name, such as universal:wide+refine, timed as it ships. What cannot run here, for want of
    memory or of a library, is named; the others go on. Interrupted, it keeps what was measured.
    """

    output: File = Path("out/bench.csv")
    """File for the table; the plot goes beside it (.svg), stages too (-stages.csv)."""
    methods: Methods = (DEFAULT, "scope-reg", "scope-reg-3", "eureg")
    """What to measure: the usual model as it ships, and networks. SCoPE-Reg comes as published, forward, whole (volume
    encoded anew) and streaming (prepared)."""
    resolutions: tuple[int, ...] = (128, 192, 384, 512)
    """Pixels along a side."""
    seconds: float = 2.0
    """Time to measure each row for, about; a slow row takes at least three calls."""
    precision: PrecisionName = "auto"
    """Of encoders and products in the modes whole and streaming; auto: float16 on CUDA. Others run in float32."""
    stages: bool = False
    """Also time every stage of SCoPE-Reg alone, beside the least time that it could take on this machine."""
    seed: int = 0
    """Seed of weights and images."""
    device: Device = "auto"


def run(options: BenchOptions) -> int:
    """The status is 0 when every row was measured, 1 when one was not, 130 when interrupted, 143 after SIGTERM."""
    from scopereg.devices import resolve_device
    from scopereg.evaluation.speed.bench import BLOCKS, Bench, BenchProgress
    from scopereg.evaluation.speed.floor import staged
    from scopereg.evaluation.speed.modes import Setting, modes_of
    from scopereg.provenance import command_line, provenance

    modes = modes_of(options.methods)
    _check(options)
    device = resolve_device(options.device)
    output_folder(options.output.parent)
    settings = [Setting(size, device, options.precision, options.seed) for size in dict.fromkeys(options.resolutions)]
    bench, ended_by = Bench(), ""
    steps = len(modes) * (1 + BLOCKS) + options.stages * len(staged(options.methods))
    least = len(settings) * len(modes) * options.seconds
    say(f"{len(modes)} rows at {len(settings)} resolutions: {duration(least)} to measure, and their making besides")
    with BenchProgress(len(settings) * steps, [setting.resolution for setting in settings]) as show:
        try:
            for setting in settings:
                bench.measure(modes, setting, options.seconds, show)
                if options.stages:
                    bench.time_stages(options.methods, setting, options.seconds, show)
        except KeyboardInterrupt as stop:
            ended_by = name_of(stop)
    facts = provenance(seed=options.seed, device=str(device)) | {"command": command_line()}
    _save(bench, options.output, facts)
    if ended_by:
        say(f"{'interrupted' if ended_by == 'SIGINT' else 'ended by SIGTERM'}; what was measured is kept")
        return status_of(ended_by)
    return 1 if any(row.fps is None for row in bench.rows()) else 0


def _save(bench: Bench, output: Path, facts: dict[str, Any]) -> None:
    """Files first, then the tables to read."""
    from scopereg.evaluation.speed.rows import print_rows, print_stages, write_csv
    from scopereg.report.speed_plot import draw_speeds

    rows = bench.rows()
    tell(rows=rows, stages=bench.stages, made_with=facts)
    if not rows:
        return
    written = [write_csv(output, rows, facts)]
    if bench.stages:
        written.append(write_csv(output.with_name(f"{output.stem}-stages.csv"), bench.stages, facts))
    if any(row.fps for row in rows):
        written.append(draw_speeds(rows, output.with_suffix(".svg"), facts))
    print_rows(rows, facts)
    if bench.ceilings is not None:
        print_stages(bench.stages, bench.ceilings)
    for path in written:
        say(str(path))


def _check(options: BenchOptions) -> None:
    """Refuse what would spoil every row before the first is measured."""
    smallest = min(options.resolutions, default=0)
    if smallest < 8:
        raise ScopeRegError(
            f"a resolution of {smallest}" if options.resolutions else "no resolution is given",
            where="--resolutions",
            fix="pass pixels along a side, 8 or more, such as 128 512",
        )
    if not options.seconds > 0:
        raise ScopeRegError(f"{options.seconds:g} seconds", where="--seconds", fix="pass more than 0, such as 2")
    if options.output.suffix != ".csv":
        raise ScopeRegError("is no .csv file", where=f"-o {options.output}", fix="pass a file such as out/bench.csv")
