"""Networks to and from safetensors files: the weights, and in the header which network they belong to."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from torch import nn

from scopereg import networks
from scopereg.errors import ScopeRegError
from scopereg.io.tensors import read_tensors, write_tensors

FORMAT = "scopereg-1"


def save_network(
    network: nn.Module,
    path: Path | str,
    *,
    name: str,
    options: dict[str, Any] | None = None,
    facts: dict[str, Any] | None = None,
    dtype: torch.dtype | None = None,
) -> Path:
    """Write a network made by `create(name, **options)`; `facts` (data, seed, versions) travel in the header.

    `dtype` (such as torch.float16) stores floating weights in fewer bytes.
    """
    if not networks.is_network(network, name, options or {}):
        raise ScopeRegError(
            f"the network is no {name}: a {type(network).__name__} with other settings",
            where="save_network(name)",
            fix="pass the name and options that the network was created with",
        )
    tensors = {key: _packed(value, dtype) for key, value in network.state_dict().items()}
    header = {"format": FORMAT, "network": name, "options": json.dumps(options or {}), "facts": json.dumps(facts or {})}
    return write_tensors(path, tensors, header)


def load_network(path: Path | str, device: torch.device | str = "cpu") -> nn.Module:
    """The network of a file, in float32 and ready for inference."""
    header, tensors = _read(Path(path))
    network = networks.create(header["network"], **json.loads(header["options"]))
    wanted = network.state_dict()
    problems = [f"{key} is missing" for key in wanted.keys() - tensors.keys()]
    problems += [f"{key} is not part of it" for key in tensors.keys() - wanted.keys()]
    problems += [
        f"{key} has shape {tuple(tensors[key].shape)} instead of {tuple(wanted[key].shape)}"
        for key in wanted.keys() & tensors.keys()
        if tensors[key].shape != wanted[key].shape
    ]
    if problems:
        raise ScopeRegError(
            f"does not hold a {header['network']}: {sorted(problems)[0]}, {len(problems)} differences in all",
            where=str(path),
            fix="use weights that this version of scopereg wrote, or install the version that wrote them",
        )
    network.load_state_dict({key: value.to(wanted[key].dtype) for key, value in tensors.items()})
    return network.to(device).eval()


def read_facts(path: Path | str) -> dict[str, Any]:
    """What the header of a weights file says of its making."""
    header, _ = _read(Path(path))
    facts: dict[str, Any] = json.loads(header["facts"])
    return facts


def _packed(value: torch.Tensor, dtype: torch.dtype | None) -> torch.Tensor:
    value = value.detach().cpu()
    return (value.to(dtype) if dtype is not None and value.is_floating_point() else value).contiguous()


def _read(path: Path) -> tuple[dict[str, str], dict[str, torch.Tensor]]:
    return read_tensors(path, FORMAT, made_by="scopereg (networks.weights.save_network)")
