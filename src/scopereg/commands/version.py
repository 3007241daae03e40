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
    from scopereg.networks.weights import checksums
    from scopereg.provenance import library_versions

    facts: dict[str, Any] = {
        "scopereg": __version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        **library_versions(),
    }
    models = {name.removesuffix(".safetensors"): digest for name, digest in checksums().items()}
    shown = facts | {f"model {name}": f"sha256 {digest[:16]}" for name, digest in models.items()}
    width = max(map(len, shown))
    for name, version in shown.items():
        print(f"{name:<{width}}  {version}")
    tell(**facts, models=models)
    return 0
