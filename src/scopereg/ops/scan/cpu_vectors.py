# mypy: disable-error-code="import-untyped, import-not-found"
"""Vectors of LANES numbers for the kernels of the `cpu` backend, written in LLVM's portable vector types.

These become AVX-512, AVX2, SSE or NEON on their own. LLVM does not find the form of the kernels by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import llvmlite.binding
import numpy as np
from llvmlite import ir
from numba import njit
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Indices = NDArray[np.int64]

# One 512-bit register, or two of NEON's; machines with 16 registers of 256 bits would spill at more than 8.
LANES = 16 if llvmlite.binding.get_host_cpu_features().get("avx512f", False) else 8

# 2^f on [-1/2, 1/2], highest power first: relative error below 1e-7, exact at zero. Below 2^LOWEST lies zero, so
# that no denormal number ever slows a product down.
POLYNOMIAL = (
    0.001326472731307149,
    0.009671512991189957,
    0.05550733581185341,
    0.24022242426872253,
    0.6931470036506653,
    1.0,
)
LOWEST = -126.0

FLOAT, INT = ir.FloatType(), ir.IntType(32)
VECTOR, INTS = ir.VectorType(FLOAT, LANES), ir.VectorType(INT, LANES)
# Adding and subtracting 1.5 * 2^23 rounds to the nearest integer and leaves that integer in the low bits.
_ROUNDER = 12582912.0
# A product and a sum may fuse; nothing may be reordered, which would undo the rounding above.
_FUSE = ("contract",)


def compiled(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Numba's `njit` with the machine code kept on disk; without, where neither package nor user cache is writable."""

    def decorate(function: Callable[..., Any]) -> Any:
        try:
            return njit(cache=True, nogil=True, error_model="numpy", **options)(function)
        except RuntimeError:
            return njit(nogil=True, error_model="numpy", **options)(function)

    return decorate


def constant(x: float) -> ir.Constant:
    return ir.Constant(VECTOR, [ir.Constant(FLOAT, float(np.float32(x)))] * LANES)


def fma(b: Any, x: Any, y: Any, z: Any) -> Any:
    return b.fadd(b.fmul(x, y, flags=_FUSE), z, flags=_FUSE)


def splat(b: Any, x: Any) -> Any:
    nothing = ir.Constant(VECTOR, ir.Undefined)
    return b.shuffle_vector(b.insert_element(nothing, x, INT(0)), nothing, ir.Constant(INTS, [0] * LANES))


def exp2(b: Any, x: Any) -> Any:
    """2^x: round x to n, take the polynomial of the rest, add n to its exponent bits."""
    shifted = b.fadd(x, constant(_ROUNDER))
    rest = b.fsub(x, b.fsub(shifted, constant(_ROUNDER)))
    power = constant(POLYNOMIAL[0])
    for coefficient in POLYNOMIAL[1:]:
        power = fma(b, power, rest, constant(coefficient))
    exponent = b.shl(b.bitcast(shifted, INTS), ir.Constant(INTS, [23] * LANES))
    scaled = b.bitcast(b.add(b.bitcast(power, INTS), exponent), VECTOR)
    # Unordered: a NaN passes through instead of turning into zero.
    return b.select(b.fcmp_unordered(">=", x, constant(LOWEST)), scaled, constant(0.0))


def sums_of_both(b: Any, x: Any, y: Any) -> tuple[Any, Any]:
    """The sums over the lanes of two vectors, taken together: half the work of one after the other."""
    half = LANES // 2
    low, high = ([*range(first, first + half), *range(LANES + first, LANES + first + half)] for first in (0, half))
    both = b.fadd(*(b.shuffle_vector(x, y, ir.Constant(INTS, lanes)) for lanes in (low, high)))
    while half > 1:
        half //= 2
        swapped = ir.Constant(INTS, [lane ^ half for lane in range(LANES)])
        both = b.fadd(both, b.shuffle_vector(both, both, swapped))
    return b.extract_element(both, INT(0)), b.extract_element(both, INT(LANES // 2))


def vector_at(b: Any, base: Any, offset: Any) -> Any:
    """Where a vector lies, `offset` elements behind the beginning of an array."""
    return b.bitcast(b.gep(base, [offset]), VECTOR.as_pointer())


def load(b: Any, base: Any, offset: Any) -> Any:
    return b.load(vector_at(b, base, offset), align=4)


def add_to(b: Any, base: Any, offset: Any, value: Any) -> None:
    """Add to a vector in memory."""
    place = vector_at(b, base, offset)
    b.store(b.fadd(b.load(place, align=4), value), place, align=4)


def data_of(context: Any, b: Any, signature: Any, args: Any, *places: int) -> list[Any]:
    """Where the elements of some of an intrinsic's arguments begin, which are arrays."""
    return [context.make_array(signature.args[i])(context, b, args[i]).data for i in places]
