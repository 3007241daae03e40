"""Checkpoints as safetensors: tensors as they are, all else as JSON in the header, and a hash of both. No pickle."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from scopereg.errors import ScopeRegError
from scopereg.io.records import parse_json
from scopereg.io.tensors import read_tensors, write_tensors

FORMAT = "scopereg-checkpoint-2"
_EARLIER = "scopereg-checkpoint-1"  # of Lightning's trainer
_TENSOR, _PAIRS, _TUPLE = "__tensor__", "__pairs__", "__tuple__"
_FIX = "remove it to begin anew in this folder, or start a new run in another one (output=)"


def write_checkpoint(content: dict[str, Any], path: Path | str) -> Path:
    """Write the state of a run: whole or not at all."""
    tensors: dict[str, torch.Tensor] = {}
    text = json.dumps(_take_tensors(content, tensors))
    return write_tensors(path, tensors, {"format": FORMAT, "content": text})


def read_checkpoint(path: Path | str) -> dict[str, Any]:
    """The content of a checkpoint, tensors on the CPU; an error where it does not hold what was written."""
    try:
        header, tensors = read_tensors(path, FORMAT, made_by="scopereg train", always_hashed=True)
    except ScopeRegError as error:
        if Path(path).is_file() and _EARLIER in error.what:
            raise _of_an_earlier_version(path) from None
        raise ScopeRegError(error.what, where=error.where, fix=_FIX if Path(path).is_file() else error.fix) from error
    try:
        content = _put_tensors(parse_json(header["content"], str(path), _FIX, finite=False), tensors)
    except (KeyError, ValueError, TypeError) as error:
        raise ScopeRegError(f"it is no checkpoint: {error!r}", where=str(path), fix=_FIX) from None
    if not isinstance(content, dict):
        raise ScopeRegError("it is no checkpoint", where=str(path), fix=_FIX)
    return content


def _of_an_earlier_version(path: Path | str) -> ScopeRegError:
    return ScopeRegError(
        "an earlier version of scopereg wrote it, and this one cannot go on with it",
        where=str(path),
        fix="finish the run with that version, or start a new one in another folder (output=) from its weights "
        "(start=model.safetensors)",
    )


def _take_tensors(value: Any, tensors: dict[str, torch.Tensor]) -> Any:
    """A copy fit for JSON; tensors move to `tensors` and leave their key behind."""
    if isinstance(value, torch.Tensor):
        key = str(len(tensors))
        tensors[key] = value.detach().cpu().clone(memory_format=torch.contiguous_format)
        return {_TENSOR: key}
    if isinstance(value, dict):
        return {_PAIRS: [[key, _take_tensors(item, tensors)] for key, item in value.items()]}
    if isinstance(value, list | tuple):
        items = [_take_tensors(item, tensors) for item in value]
        return {_TUPLE: items} if isinstance(value, tuple) else items
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"a {type(value).__name__} cannot be stored in a checkpoint")


def _put_tensors(value: Any, tensors: dict[str, torch.Tensor]) -> Any:
    if isinstance(value, dict):
        if _TENSOR in value:
            return tensors[value[_TENSOR]]
        if _TUPLE in value:
            return tuple(_put_tensors(item, tensors) for item in value[_TUPLE])
        return {key: _put_tensors(item, tensors) for key, item in value[_PAIRS]}
    if isinstance(value, list):
        return [_put_tensors(item, tensors) for item in value]
    return value
