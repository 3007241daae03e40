"""`scopereg version`: the versions of all that decides results."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from typing import Any

from scopereg import __version__
from scopereg.commands.output import tell


@dataclass(frozen=True)
class VersionOptions:
    """Tell the versions of scopereg, of Python and of the libraries that decide numbers, and the models at hand."""


def run(options: VersionOptions) -> int:
    from scopereg.networks.weights import checksums, fine_beside, shipped
    from scopereg.provenance import library_versions

    facts: dict[str, Any] = {
        "scopereg": __version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        **library_versions(),
    }
    sums = checksums()
    weights = {name: f"{name}.safetensors" for name in shipped()}
    files = {name: {"weights": file, "fine": fine_beside(file).name} for name, file in weights.items()}
    models = {name: {part: sums[file] for part, file in parts.items() if file in sums} for name, parts in files.items()}
    shown = facts | {f"model {name}": _in_short(parts) for name, parts in models.items()}
    width = max(map(len, shown))
    for name, version in shown.items():
        print(f"{name:<{width}}  {version}")
    tell(**facts, models=models)
    return 0


def _in_short(parts: dict[str, str]) -> str:
    """The beginnings of the hashes of a model's files."""
    return ", ".join(f"{part} sha256 {digest[:16]}" for part, digest in parts.items())
