"""Time, memory and error of every scan backend on this machine.

    python benchmarks/scan.py --out benchmarks/scan.csv        # measure, on the GPU where there is one
    python benchmarks/scan.py --check                          # parity with the float64 loop; exit status 1 on failure
    python benchmarks/scan.py --sweep                          # tile and split settings of the Triton kernels
    python benchmarks/scan.py --growth --out benchmarks/scan-growth.csv   # Triton kernels over tokens and planes

Needs torch and NumPy; triton, numba and mamba-ssm join in where they are installed. Without an installed package, set
PYTHONPATH=src. Ratios compare with `reference` and `torch` of the same run: above one is faster. Errors are the largest
of the output and of all gradients but, in the feature scan, those of B and C, which sum over more channels than the
float64 comparison computes.
"""

from __future__ import annotations

import argparse
import csv
import ctypes
import re
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, fields, replace
from importlib.metadata import PackageNotFoundError, version
from itertools import product
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from scopereg.io.files import write_sheet
from scopereg.ops import available_backends, coordinate_scan, directional_scan
from scopereg.ops.scan.selftest import Case, compare, compare_case, coordinate_inputs, feature_inputs, relative_error

# Tokens at an image size: the encoders halve three times.
TOKENS = {"128": 256, "192": 576, "384": 2304, "512": 4096}
FEATURE = Case(batch=1, directions=4, planes=4, length=256, channels=512, states=32, stiffness=3.0)
# What the reference's backward pass may keep, in GiB: beyond, it is left out.
KEPT_GIB = 40
# Channels of the float64 comparison: they are independent of one another.
EXACT_CHANNELS = 8
# Tokens and planes that the Triton kernels are timed at: frames of 32 to 512 pixels, volumes of 32 to 160 planes.
GROWTH_TOKENS, GROWTH_PLANES = (16, 64, 256, 400, 576, 1024, 2304, 4096), (4, 6, 8, 12, 16, 20, 40)
# Tokens up to which the loop in float32 is timed on a GPU: its time is that of its launches, in step with the tokens.
TIMED_LENGTH = 576
# Tokens up to which the loop in float32 is held to the same tolerance as the other backends.
LOOP_LENGTH = 1024


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    device: str
    backend: str
    form: str
    batch: int
    directions: int
    planes: int
    length: int
    channels: int
    states: int
    direction: str
    ms: float
    ms_min: float
    mib: float | None
    error: float | None
    vs_reference: float | None
    vs_torch: float | None
    torch: str
    triton: str
    numba: str


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", type=Path, help="CSV file to write")
    parser.add_argument("--append", action="store_true", help="keep the rows that the file has, of another device")
    parser.add_argument("--quick", action="store_true", help="the smallest size only")
    parser.add_argument("--check", action="store_true", help="only test parity")
    parser.add_argument("--sweep", action="store_true", help="only time the Triton settings")
    parser.add_argument("--growth", action="store_true", help="only time the Triton kernels, over tokens and planes")
    options = parser.parse_args()
    if options.check:
        return check(options.device)
    if options.sweep:
        return sweep(options.device)
    rows = []
    for row in growth(options.device) if options.growth else measure(options.device, options.quick):
        rows.append(row)
        print(summary(row), flush=True)
        if options.out:  # row by row: what was measured stays when the rest is interrupted
            write(rows, options.out, options.append and options.out.exists())
    return 0


def write(rows: list[Row], path: Path, append: bool) -> None:
    """Write the rows; with `append` those of other devices stay."""
    devices, kept = {row.device for row in rows}, []
    if append:
        with path.open(newline="") as file:
            kept = [row for row in csv.DictReader(file) if row["device"] not in devices]
    write_sheet(path, [*kept, *map(asdict, rows)], [field.name for field in fields(Row)])


def measure(device: str, quick: bool) -> Iterator[Row]:
    """All backends at all sizes, slowest backend first so that ratios are known."""
    for form, case in sizes(device, quick):
        inputs = place(form, case, device)
        for backward in (False, True):
            times: dict[str, float] = {}
            exact = exact_result(form, inputs, backward)
            for backend in backends(device, form):
                if not worthwhile(backend, case, device) or (backward and not differentiable(backend, case)):
                    continue
                run = scan_call(form, backend, inputs, backward)
                try:
                    ms, mib = clock(run, device)
                except torch.cuda.OutOfMemoryError:
                    print(f"{backend} {form} {case}: out of memory", file=sys.stderr)
                    continue
                times[backend] = min(ms)
                error = None if backend == "mamba_ssm" else relative_errors(form, run(), exact, inputs)
                ratios = [times[other] / times[backend] if other in times else None for other in ("reference", "torch")]
                kind = "fwd+bwd" if backward else "fwd"
                yield make_row(device, backend, form, case, kind, ms, mib, error, ratios)


def growth(device: str) -> Iterator[Row]:
    """The Triton kernels at batch 16, over tokens at four planes and over planes at 256 tokens."""
    cases = [replace(FEATURE, batch=16, length=length) for length in GROWTH_TOKENS]
    cases += [replace(FEATURE, batch=16, planes=planes) for planes in GROWTH_PLANES[1:]]
    for case in cases:
        inputs = place("directional", case, device)
        for kind in ("fwd", "fwd+bwd"):
            run = scan_call("directional", "triton", inputs, kind != "fwd")
            ms, mib = clock(run, device, 0.15)
            yield make_row(device, "triton", "directional", case, kind, ms, mib, None, [None, None])


def sizes(device: str, quick: bool) -> Iterator[tuple[str, Case]]:
    names = ["128"] if quick else list(TOKENS) if device.startswith("cuda") else ["128", "192"]
    batches = [1, 16] if device.startswith("cuda") else [1]
    for name, batch in product(names, batches):
        case = replace(FEATURE, batch=batch, length=TOKENS[name])
        yield "directional", case
        yield "coordinate", case
        if not quick:
            yield "selective", replace(case, directions=1, planes=1)


def place(form: str, case: Case, device: str) -> dict[str, Tensor]:
    make = coordinate_inputs if form == "coordinate" else feature_inputs
    inputs = {name: x.to(device) for name, x in make(case).items()}
    if form == "selective":
        inputs["order"] = torch.arange(case.length, device=device).unsqueeze(0)
    return inputs


def backends(device: str, form: str) -> list[str]:
    names = [name for name, obstacle in available_backends(device).items() if obstacle is None]
    return [*names, "mamba_ssm"] if form == "selective" and device.startswith("cuda") and mamba() else names


def worthwhile(backend: str, case: Case, device: str) -> bool:
    """On a GPU the loop's time is that of its launches, whatever the batch: one batch and short scans tell it all."""
    slow = backend == "reference" and device.startswith("cuda")
    return not (slow and (case.batch > 1 or case.length > TIMED_LENGTH))


def differentiable(backend: str, case: Case) -> bool:
    states = case.batch * case.directions * case.planes * case.channels * case.states
    too_much = backend == "reference" and 3 * 4 * states * case.length > KEPT_GIB * 2**30
    return not too_much


def scan_call(form: str, backend: str, inputs: dict[str, Tensor], backward: bool) -> Callable[[], list[Tensor]]:
    """y, and for `backward` the gradients of all floating-point inputs."""
    given = {name: x.detach() for name, x in inputs.items()}
    free = [x.requires_grad_(backward) for x in given.values() if x.is_floating_point()]
    shape = (given["delta"].shape[0], *given["values"].shape) if form == "coordinate" else given["u"].shape
    weights = torch.ones(shape, device=given["delta"].device)

    def run() -> list[Tensor]:
        with torch.set_grad_enabled(backward):
            if backend == "mamba_ssm":
                y = mamba_scan(given)
            elif form == "coordinate":
                y = coordinate_scan(**given, backend=backend)
            else:
                y = directional_scan(**given, backend=backend)
            return [y, *torch.autograd.grad(y, free, weights, allow_unused=True)] if backward else [y]

    return run


def clock(run: Callable[[], Any], device: str, seconds: float = 0.7) -> tuple[list[float], float | None]:
    """Milliseconds of at least three runs (one where a run is slow), and the peak of memory it adds, in MiB."""
    run()  # compile and warm up
    begun = time.perf_counter()
    mib = peak_memory(run, device)
    least = 3 if time.perf_counter() - begun < seconds else 1
    times: list[float] = []
    begun = time.perf_counter()
    while len(times) < least or (time.perf_counter() - begun < seconds and len(times) < 200):
        if device.startswith("cuda"):
            start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            torch.cuda.synchronize()
            start.record()
            run()
            stop.record()
            torch.cuda.synchronize()
            times.append(start.elapsed_time(stop))
        else:
            start_s = time.perf_counter()
            run()
            times.append((time.perf_counter() - start_s) * 1e3)
    return times, mib


def peak_memory(run: Callable[[], Any], device: str) -> float | None:
    if device.startswith("cuda"):
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        held = torch.cuda.memory_allocated()
        run()
        torch.cuda.synchronize()
        return (torch.cuda.max_memory_allocated() - held) / 2**20
    try:  # Linux keeps a high-water mark of resident memory, and lets a process reset its own
        # What earlier runs freed stays resident and would be used again unseen: hand it back first.
        ctypes.CDLL(None).malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5")
        before = resident("VmRSS")
        run()
        return max(0.0, resident("VmHWM") - before)
    except (OSError, AttributeError):
        return None


def resident(name: str) -> float:
    found = re.search(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return int(found.group(1)) / 1024 if found else 0.0


def exact_result(form: str, inputs: dict[str, Tensor], backward: bool) -> list[Tensor]:
    """What the loop gives in float64, on a few channels where there are many."""
    part = {name: narrow(form, name, x) for name, x in inputs.items()}
    return scan_call(
        form, "reference", {name: x.double() if x.is_floating_point() else x for name, x in part.items()}, backward
    )()


def relative_errors(form: str, found: list[Tensor], exact: list[Tensor], inputs: dict[str, Tensor]) -> float:
    """Largest relative error of y and of all gradients."""
    names = ["y", *(name for name in inputs if name != "order")]
    # Gradients of gates that the channels share are sums over all of them: no part of the comparison.
    shared = {"B", "C"} if form != "coordinate" else set()
    return max(
        relative_error(narrow(form, name, have), want)
        for name, have, want in zip(names, found, exact, strict=False)
        if name not in shared
    )


def narrow(form: str, name: str, x: Tensor) -> Tensor:
    if form == "coordinate" or name in ("B", "C", "order"):
        return x
    return x[:, :EXACT_CHANNELS] if name == "A" else x[..., :EXACT_CHANNELS]


def mamba() -> bool:
    try:
        from mamba_ssm.ops.selective_scan_interface import selective_scan_fn  # noqa: F401
    except ImportError:
        return False
    return True


def mamba_scan(given: dict[str, Tensor]) -> Tensor:
    """The same single scan by mamba-ssm, which wants length last."""
    from mamba_ssm.ops.selective_scan_interface import selective_scan_fn

    u, delta, B, C = (given[name][:, 0].transpose(1, 2).contiguous() for name in ("u", "delta", "B", "C"))
    return selective_scan_fn(u, delta, given["A"][0], B, C, given["D"][0]).transpose(1, 2).unsqueeze(1)


def make_row(
    device: str,
    backend: str,
    form: str,
    case: Case,
    direction: str,
    ms: list[float],
    mib: float | None,
    error: float | None,
    ratios: list[float | None],
) -> Row:
    name = torch.cuda.get_device_name(device) if device.startswith("cuda") else f"cpu x{torch.get_num_threads()}"
    mib, error, vs_reference, vs_torch = (None if x is None else float(f"{x:.3g}") for x in (mib, error, *ratios))
    return Row(
        device=name,
        backend=backend,
        form=form,
        batch=case.batch,
        directions=case.directions,
        planes=case.planes,
        length=case.length,
        channels=4 if form == "coordinate" else case.channels,
        states=case.states,
        direction=direction,
        ms=float(f"{statistics.median(ms):.4g}"),
        ms_min=float(f"{min(ms):.4g}"),
        mib=mib,
        error=error,
        vs_reference=vs_reference,
        vs_torch=vs_torch,
        torch=torch.__version__,
        triton=installed("triton"),
        numba=installed("numba"),
    )


def installed(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def summary(row: Row) -> str:
    sizes = f"{row.batch}x{row.directions}x{row.planes}x{row.length}x{row.channels}x{row.states}"
    ratios = " ".join(f"{x:7.2f}x" if x else "      - " for x in (row.vs_reference, row.vs_torch))
    memory = "-" if row.mib is None else f"{row.mib:.0f}"
    error = "-" if row.error is None else f"{row.error:.1e}"
    return (
        f"{row.form:12} {sizes:22} {row.direction:8} {row.backend:10} {row.ms:10.3f} ms (min {row.ms_min:.3f}) "
        f"{memory:>7} MiB  error {error}  vs reference, torch {ratios}"
    )


def check(device: str) -> int:
    """Parity of every usable backend, and of the Triton kernels at the network's own size, without pytest."""
    failures = 0
    for backend, obstacle in available_backends(device).items():
        if obstacle is not None:
            print(f"{backend}: skipped, {obstacle}")
            continue
        found = compare(backend, device)
        if device.startswith("cuda"):
            for length, channels in ((256, 512), (4096, 64)):
                case = replace(FEATURE, length=length, channels=channels)
                found += compare_case(case, backend, device)
        if backend == "reference":
            # Over thousands of tokens the float32 loop itself drifts by some 1e-5: its multiply-adds are not fused.
            found = [x for x in found if x.case.length <= LOOP_LENGTH]
        wrong = [x for x in found if not x.ok]
        worst = max(x.error for x in found if x.case.dtype == torch.float32)
        print(f"{backend}: {len(found) - len(wrong)} of {len(found)} tensors agree, worst float32 error {worst:.1e}")
        for x in wrong:
            print(f"  {x}")
        failures += len(wrong)
    if device.startswith("cuda") and available_backends(device)["triton"] is None:
        failures += not repeats(device)
    return 1 if failures else 0


def repeats(device: str) -> bool:
    """Whether the Triton kernels give the same bits twice."""
    run = scan_call("directional", "triton", place("directional", FEATURE, device), True)
    same = all(torch.equal(a, b) for a, b in zip(run(), run(), strict=True))
    print(f"triton: two runs are {'identical' if same else 'DIFFERENT'}")
    return same


def sweep(device: str) -> int:
    """Forward and backward times over the constants of `triton_backend`."""
    from scopereg.ops.scan import triton_backend

    for length, batch in ((256, 1), (4096, 1), (256, 16)):
        case = replace(FEATURE, length=length, batch=batch)
        inputs = place("directional", case, device)
        for tile, fill in product((512, 1024, 2048), (4, 8, 16, 32)):
            triton_backend.FORWARD_TILE = triton_backend.RECALL_TILE = triton_backend.ADJOINT_TILE = tile
            triton_backend.WARPS_PER_PROCESSOR = fill
            forward, both = (
                min(clock(scan_call("directional", "triton", inputs, backward), device, 0.1)[0])
                for backward in (False, True)
            )
            print(
                f"tokens {length} batch {batch} tile {tile} fill {fill}: {forward:.3f} ms, with backward {both:.3f} ms",
                flush=True,
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
