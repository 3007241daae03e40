"""The child of `apart`: reads one file after the other with the readers that it is told, and answers on its pipe.

Nothing of this runs in the process that registers or serves, and nothing here imports torch.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import IO, Any

from scopereg.errors import ScopeRegError
from scopereg.io.apart import LONGEST_HEAD, MARK
from scopereg.io.apart.confinement import confine, limited
from scopereg.io.limits import limit_of

_LONGEST_WORDS = 500


def main() -> None:
    """Read requests until the parent closes the pipe or is gone."""
    folder = Path(sys.argv[1])
    answers = os.fdopen(os.dup(1), "wb")
    _silence()
    _write(answers, {"facts": {"holds": confine(folder)}})
    try:
        for line in sys.stdin.buffer:
            request = json.loads(line)
            if "load" in request:
                import_module(request["load"])
                _write(answers, {})
            else:
                _answer(answers, folder, request)
    finally:
        shutil.rmtree(folder, ignore_errors=True)  # the parent was killed, or it would have done it


def _answer(answers: IO[bytes], folder: Path, request: dict[str, Any]) -> None:
    module, _, name = request["reader"].partition(":")
    reader: Callable[..., Any] = getattr(import_module(module), name)
    path = folder / request["file"]
    try:
        with limited(request["memory"], request["seconds"]), limit_of(request["largest"] / 2**30):
            arrays, facts = reader(path, **request["options"])
            _write(answers, {"facts": facts}, arrays)
    except ScopeRegError as error:
        _write(answers, {"refused": {"what": error.what, "fix": error.fix}})
    except MemoryError:
        _write(answers, {"refused": {"what": "reading it takes more memory than its size explains"}})
    except Exception as error:  # of a library, for which any file is good enough to fail by
        words = "".join(str(error).strip().splitlines()[-1:]) or type(error).__name__
        words = words.replace(f" {str(path)!r}", "").replace(str(path), "the file")  # a copy, which nobody knows
        _write(answers, {"refused": {"what": f"it cannot be read: {words}"[:_LONGEST_WORDS]}})


def _write(answers: IO[bytes], head: dict[str, Any], arrays: Sequence[Any] = ()) -> None:
    """An answer as `apart` reads it: its words as JSON, then the arrays, as little-endian numbers in C order."""
    plain = [array.astype(array.dtype.newbyteorder("<"), order="C", copy=False) for array in arrays]
    said = json.dumps({**head, "arrays": [[array.dtype.str, list(array.shape)] for array in plain]}).encode()
    if len(said) > LONGEST_HEAD:
        raise ValueError("its header says too much")
    answers.write(MARK + len(said).to_bytes(4, "little") + said)
    for array in plain:
        answers.write(memoryview(array).cast("B") if array.size else b"")
    answers.flush()


def _silence() -> None:
    """Libraries print; the pipe is for answers."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(nowhere, stream)
