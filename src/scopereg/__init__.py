"""Find an untracked 2D ultrasound frame inside a 3D (or 2D+t) reference volume: its rigid pose.

Names are imported on first use, so that `import scopereg` and `scopereg --help` do not load torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"

_HOMES = {
    "Frame": "scopereg.images",
    "Pose": "scopereg.geometry",
    "ScopeRegError": "scopereg.errors",
    "Volume": "scopereg.images",
    "adapt": "scopereg.training.adaptation",
    "load": "scopereg.registration.model",
    "register": "scopereg.registration.register",
}

if TYPE_CHECKING:
    from scopereg.errors import ScopeRegError as ScopeRegError
    from scopereg.geometry import Pose as Pose
    from scopereg.images import Frame as Frame
    from scopereg.images import Volume as Volume
    from scopereg.registration.model import load as load
    from scopereg.registration.register import register as register
    from scopereg.training.adaptation import adapt as adapt

__all__ = ["Frame", "Pose", "ScopeRegError", "Volume", "__version__", "adapt", "load", "register"]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'scopereg' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
