"""Mutations of files, the same for the same seed, and the rule that every reader keeps.

It gives the same answer, another that is consistent, or a ScopeRegError; never another exception, and never late.
"""

from __future__ import annotations

import random
import resource
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from scopereg.errors import ScopeRegError

_INTERESTING = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)
_WORDS = (b"nan", b"-1", b"0", b"1e308", b"-inf", b"9" * 20, b"LOCAL", b"/etc/passwd", b"\r\n", b"\0", b"\xff\xfe")
LONGEST_S = 10.0  # of one read, also on a machine with other work


def mutations(seed_file: bytes, count: int, seed: int = 0, *, head: int = 2**12) -> Iterator[bytes]:
    """So many variants of a file; half of the changes are in its first `head` bytes, where what matters stands."""
    rng = random.Random(seed)
    for _ in range(count):
        data = bytearray(seed_file)
        for _ in range(rng.choice((1, 1, 1, 2, 4, 16))):
            rng.choice(_KINDS)(data, rng, min(head, len(data)) if rng.random() < 0.5 else len(data))
        yield bytes(data)


def survive(
    read: Callable[[Path], Any],
    seed_file: bytes,
    path: Path,
    count: int,
    seed: int = 0,
    *,
    check: Callable[[Any], None] = lambda _: None,
) -> Counter[str]:
    """Read mutations of a file at `path`: how many were read and refused. `check` looks at what was read."""
    ends: Counter[str] = Counter()
    for number, data in enumerate(mutations(seed_file, count, seed)):
        path.write_bytes(data)
        started = time.monotonic()
        try:
            found = read(path)
        except ScopeRegError as error:
            ends["refused" if error.what and error.fix else "refused without words"] += 1
        except BaseException as error:
            path.with_name(f"bad-{number}{path.suffix}").write_bytes(data)
            raise AssertionError(f"mutation {number} of seed {seed}: {type(error).__name__}: {error}") from error
        else:
            check(found)
            ends["read"] += 1
        taken = time.monotonic() - started
        assert taken < LONGEST_S, f"mutation {number} of seed {seed} took {taken:.1f} s"
    return ends


def peak_memory() -> int:
    """The most bytes that this process ever had in memory."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _place(rng: random.Random, most: int) -> int:
    return rng.randrange(max(most, 1))


def _flip(data: bytearray, rng: random.Random, most: int) -> None:
    if data:
        data[_place(rng, most) % len(data)] ^= 1 << rng.randrange(8)


def _byte(data: bytearray, rng: random.Random, most: int) -> None:
    if data:
        data[_place(rng, most) % len(data)] = rng.randrange(256)


def _number(data: bytearray, rng: random.Random, most: int) -> None:
    width, value = rng.choice((1, 2, 4)), rng.choice(_INTERESTING)
    at = _place(rng, most)
    data[at : at + width] = (value & (256**width - 1)).to_bytes(width, rng.choice(("little", "big")))


def _cut(data: bytearray, rng: random.Random, most: int) -> None:
    del data[_place(rng, most) :]


def _remove(data: bytearray, rng: random.Random, most: int) -> None:
    at = _place(rng, most)
    del data[at : at + rng.randrange(1, 64)]


def _repeat(data: bytearray, rng: random.Random, most: int) -> None:
    at, length = _place(rng, most), rng.randrange(1, 64)
    data[at:at] = data[at : at + length] * rng.choice((1, 1, 8))


def _word(data: bytearray, rng: random.Random, most: int) -> None:
    at, word = _place(rng, most), rng.choice(_WORDS)
    data[at : at + (len(word) if rng.random() < 0.5 else 0)] = word


def _digit(data: bytearray, rng: random.Random, most: int) -> None:
    """Another digit where there is one: what a header says stays text, and means something else."""
    digits = [at for at in range(min(most, len(data))) if 48 <= data[at] <= 57]
    if digits:
        data[rng.choice(digits)] = 48 + rng.randrange(10)


def _swap(data: bytearray, rng: random.Random, most: int) -> None:
    one, other, length = _place(rng, most), _place(rng, most), rng.randrange(1, 32)
    first, second = bytes(data[one : one + length]), bytes(data[other : other + length])
    data[one : one + length], data[other : other + length] = second, first


_KINDS = (_flip, _flip, _byte, _number, _number, _cut, _remove, _repeat, _word, _digit, _digit, _swap)
