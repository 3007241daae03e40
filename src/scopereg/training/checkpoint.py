"""Checkpoints as safetensors: tensors as they are, everything else as JSON in the header. No pickle."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from pytorch_lightning.plugins.io import CheckpointIO

from scopereg.io.tensors import read_tensors, write_tensors

FORMAT = "scopereg-checkpoint-1"
_TENSOR, _PAIRS, _TUPLE = "__tensor__", "__pairs__", "__tuple__"


class SafetensorsIO(CheckpointIO):
    """How Lightning writes and reads the state of a run here: whole or not at all."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        tensors: dict[str, torch.Tensor] = {}
        content = json.dumps(_take_tensors(checkpoint, tensors))
        write_tensors(path, tensors, {"format": FORMAT, "content": content})

    def load_checkpoint(self, path: Any, map_location: Any = None, weights_only: Any = None) -> dict[str, Any]:
        return read_checkpoint(path)

    def remove_checkpoint(self, path: Any) -> None:
        Path(path).unlink(missing_ok=True)


def read_checkpoint(path: Path | str) -> dict[str, Any]:
    """The content of a checkpoint, tensors on the CPU."""
    header, tensors = read_tensors(path, FORMAT, made_by="scopereg train")
    content: dict[str, Any] = _put_tensors(json.loads(header["content"]), tensors)
    return content


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
