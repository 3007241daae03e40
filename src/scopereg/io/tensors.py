"""Tensors with a header in safetensors files: written whole or not at all, with a hash that reading checks."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from scopereg.errors import ScopeRegError
from scopereg.io.files import atomic_path

HASH = "sha256"  # key of the header


def write_tensors(path: Path | str, tensors: dict[str, torch.Tensor], header: dict[str, str]) -> Path:
    """Write a file, and in its header the hash of all that it holds; a disk that fills up leaves what was there."""
    with atomic_path(path) as temporary:
        try:
            save_file(tensors, temporary, {**header, HASH: content_sha256(tensors, header)})
        except SafetensorError as error:  # the library's name for a full disk
            raise OSError(str(error)) from error
    return Path(path)


def read_tensors(
    path: Path | str, file_format: str, *, made_by: str, always_hashed: bool = False
) -> tuple[dict[str, str], dict[str, torch.Tensor]]:
    """Header and tensors of a whole file of this format, on the CPU; `made_by` tells where another can be had.

    A file that was written with a hash must still hold what was written; files of early versions have none, which
    `always_hashed` refuses.
    """
    header, tensors = _read(path, file_format, made_by, with_tensors=True)
    written = header.pop(HASH, None)
    if always_hashed if written is None else written != content_sha256(tensors, header):
        raise ScopeRegError(
            "it is damaged: it does not hold what was written",
            where=str(path),
            fix="copy or make the file again",
        )
    return header, tensors


def read_header(path: Path | str, file_format: str, *, made_by: str) -> dict[str, str]:
    """The header alone, which nothing vouches for until the tensors are read too."""
    header, _ = _read(path, file_format, made_by, with_tensors=False)
    return header


def content_sha256(tensors: Mapping[str, torch.Tensor], header: Mapping[str, str]) -> str:
    """Hash of tensors with their names, kinds and shapes, and of a header but for its hash."""
    digest = hashlib.sha256()
    for key in sorted(header.keys() - {HASH}):
        digest.update(f"{len(key)}:{key}{len(header[key])}:{header[key]}".encode())
    for key in sorted(tensors):
        tensor = tensors[key].detach().cpu().contiguous()
        digest.update(f"{len(key)}:{key}{tensor.dtype}{tuple(tensor.shape)}".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _read(
    path: Path | str, file_format: str, made_by: str, *, with_tensors: bool
) -> tuple[dict[str, str], dict[str, torch.Tensor]]:
    if not Path(path).is_file():
        raise ScopeRegError("there is no such file", where=str(path), fix="check the path")
    try:
        with safe_open(path, "pt") as file:
            header = dict(file.metadata() or {})
            keys = file.keys() if with_tensors else ()
            tensors = {key: file.get_tensor(key) for key in keys}
    except (SafetensorError, OSError, ValueError, RuntimeError, AttributeError, TypeError) as error:
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
