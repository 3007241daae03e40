"""What a result was made with: versions, device, seed, data hash, command line."""

from __future__ import annotations

import hashlib
import platform
import shlex
import sys
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from scopereg import __version__

_LIBRARIES = ("torch", "numpy", "SimpleITK", "itk-elastix", "pydicom", "safetensors", "numba", "triton")


def provenance(*, seed: int | None = None, data_sha256: str | None = None, device: str = "cpu") -> dict[str, Any]:
    """Facts to store with every result, ready for JSON."""
    return {
        "scopereg": __version__,
        "made": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "command": command_line(),
        "seed": seed,
        "data_sha256": data_sha256,
        "device": device_name(device),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "versions": library_versions(),
    }


def command_line() -> str:
    """The command as typed, without the program's folder: a report may be passed on, the machine's paths need not."""
    program = Path(sys.argv[0])
    name = program.parent.name if program.name == "__main__.py" else program.name  # python -m scopereg
    return shlex.join([name, *sys.argv[1:]])


def library_versions() -> dict[str, str]:
    """Installed versions of the libraries that decide numbers."""
    return {name: found for name in _LIBRARIES if (found := library_version(name))}


def library_version(name: str) -> str | None:
    """The installed version, or None; that of torch with its build (+cpu, +cu130), which its package may not tell."""
    if name == "torch":
        return str(torch.__version__)
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def device_name(device: str) -> str:
    """The device in words."""
    if device.startswith("cuda"):
        return torch.cuda.get_device_name(device)
    return f"{device} ({torch.get_num_threads()} threads)"


def tensors_sha256(*tensors: torch.Tensor) -> str:
    """Hash of the values and shapes of tensors."""
    digest = hashlib.sha256()
    for tensor in tensors:
        digest.update(f"{tensor.dtype}{tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()
