"""Tensors with a header in safetensors files: written whole or not at all, never read in part."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from scopereg.errors import ScopeRegError
from scopereg.io.files import atomic_path


def write_tensors(path: Path | str, tensors: dict[str, torch.Tensor], header: dict[str, str]) -> Path:
    """Write a file; a disk that fills up leaves what was there before."""
    with atomic_path(path) as temporary:
        try:
            save_file(tensors, temporary, header)
        except SafetensorError as error:  # the library's name for a full disk
            raise OSError(str(error)) from error
    return Path(path)


def read_tensors(path: Path | str, file_format: str, *, made_by: str) -> tuple[dict[str, str], dict[str, torch.Tensor]]:
    """Header and tensors of a whole file of this format, on the CPU; `made_by` tells where another can be had."""
    if not Path(path).is_file():
        raise ScopeRegError("there is no such file", where=str(path), fix="check the path")
    try:
        with safe_open(path, "pt") as file:
            header = file.metadata() or {}
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 - not a dict
    except (SafetensorError, OSError, ValueError) as error:
        raise ScopeRegError(
            f"not a whole safetensors file: {error}", where=str(path), fix="copy or make the file again"
        ) from error
    if header.get("format") != file_format:
        raise ScopeRegError(
            f"the header says {header.get('format')!r} instead of {file_format!r}",
            where=str(path),
            fix=f"use a file written by {made_by}",
        )
    return header, tensors
