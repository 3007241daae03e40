"""`scopereg doctor`: what this machine has, which backends work, and a numeric self-test."""

from __future__ import annotations

import platform
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from scopereg import __version__
from scopereg.commands.output import tell

if TYPE_CHECKING:
    from scopereg.selftest import Check

EXTRAS = {
    "train": ("pytorch-lightning", "tensorboard"),
    "eval": ("scipy",),
    "baselines": ("itk-elastix",),
    "live": ("pyigtl", "fastcrc"),
    "view": ("starlette", "uvicorn", "websockets"),
    "export": ("onnx", "onnxscript", "onnxruntime"),
    "cluster": ("ray",),
    "video": ("av",),
}
CORE = (
    *("torch", "numpy", "SimpleITK", "pydicom", "pillow", "zlib-ng", "safetensors", "jaxtyping", "rich"),
    "PyYAML",
)
FASTER = ("numba",)  # of the core too, but there are Pythons and machines that it has no wheels for


@dataclass(frozen=True)
class DoctorOptions:
    """Report device, versions and backends, and run a numeric self-test."""


def run(options: DoctorOptions) -> int:
    from scopereg.provenance import library_version
    from scopereg.selftest import backends, devices, self_test
    from scopereg.threads import in_words

    checks = self_test()
    facts: dict[str, Any] = {
        "scopereg": __version__,
        "python": platform.python_version(),
        "system": platform.platform(),
        "devices": devices(),
        "threads": in_words(),
        "core": {name: library_version(name) for name in CORE},
        "faster": {name: library_version(name) for name in FASTER},
        "extras": {extra: {name: library_version(name) for name in names} for extra, names in EXTRAS.items()},
        "backends": backends(),
        "self_test": [{**asdict(check), "ok": check.ok} for check in checks],
    }
    tell(**facts)
    _show(facts, checks)
    return 0 if all(check.ok for check in checks) and None not in facts["core"].values() else 1


def _show(facts: dict[str, Any], checks: list[Check]) -> None:
    table = Table(title=f"scopereg {facts['scopereg']}, Python {facts['python']}, {facts['system']}", show_header=False)
    for device in facts["devices"]:
        table.add_row("device", device)
    table.add_row("threads", facts["threads"])
    table.add_section()
    for name, version in facts["core"].items():
        table.add_row(name, version or "[red]missing: pip install scopereg[/]")
    state = facts["backends"]["cpu"]["cpu"]
    for name, version in facts["faster"].items():
        slower = f"[yellow]{escape(state)}: all runs, but on a CPU several times slower[/]"
        table.add_row(name, version if version and state == "ready" else slower)
    table.add_section()
    for extra, versions in facts["extras"].items():
        state = f"pip install 'scopereg\\[{extra}]'" if None in versions.values() else "[green]ready[/]"
        table.add_row(f"extra {extra}", state)
    table.add_section()
    for device, rows in facts["backends"].items():
        for name, state in rows.items():
            table.add_row(f"scan backend {name} on {device}", "[green]ready[/]" if state == "ready" else escape(state))
    table.add_section()
    for check in checks:
        mark = "[green]ok[/]" if check.ok else "[red]FAILED[/]"
        table.add_row(
            f"self-test on {check.device}", f"{mark} {check.name}: {check.error:.1e} (at most {check.limit:.0e})"
        )
    Console().print(table)
