"""What the collectives must give, computed with numpy alone.

8- and 16-bit floats are reduced in float32 and rounded once at the end. The inputs are small whole numbers,
for which float32 and float64 sums and products are exact in every order, so results are compared bit by bit.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

Array = np.ndarray[Any, Any]

INTEGERS = ("uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64")
SMALL_FLOATS = ("float8_e4m3fn", "float8_e5m2", "float16", "bfloat16")
FLOATS = (*SMALL_FLOATS, "float32", "float64")
COMPLEX = ("complex64", "complex128")
DTYPES = (*INTEGERS, "bool", *FLOATS, *COMPLEX)
OPS = ("sum", "prod", "min", "max", "avg", "band", "bor", "bxor", "premul_sum")
FACTOR = 2


def dtype_of(name: str) -> np.dtype[Any]:
    return np.dtype(getattr(ml_dtypes, name, None) or name)


def supported(dtype: str, op: str) -> bool:
    """Wherever torch defines the arithmetic."""
    if op in ("min", "max"):
        return dtype not in COMPLEX
    if op in ("avg", "premul_sum"):
        return dtype != "bool"
    if op in ("band", "bor", "bxor"):
        return dtype in INTEGERS or dtype == "bool"
    return True


def values(dtype: str, count: int, rank: int, op: str = "sum") -> Array:
    """One rank's input. Differs by rank and position; exact to reduce."""
    seed = np.random.default_rng([count, rank, sum(dtype.encode())])
    if dtype == "bool":
        return seed.integers(0, 2, count).astype(bool)
    low, high = (1, 3) if op == "prod" else (0, 5)
    made = seed.integers(low, high, count)
    if op != "prod" and not dtype.startswith("uint"):
        made = made - 2
    if dtype in COMPLEX:
        return (made + 1j * seed.integers(0, 2, count)).astype(dtype)
    return made.astype(dtype_of(dtype))


def reduce(inputs: list[Array], dtype: str, op: str) -> Array:
    target = dtype_of(dtype)
    wide = np.dtype(np.float32) if dtype in SMALL_FLOATS else target
    if dtype == "bool":
        logical = {"sum": np.logical_or, "prod": np.logical_and, "min": np.logical_and, "max": np.logical_or}
        logical |= {"band": np.logical_and, "bor": np.logical_or, "bxor": np.logical_xor}
        return _fold(logical[op], inputs)
    widened = [x.astype(wide) for x in inputs]
    if op == "premul_sum":
        widened = [(x * wide.type(FACTOR)).astype(wide) for x in widened]
    functions = {"prod": np.multiply, "min": np.minimum, "max": np.maximum}
    functions |= {"band": np.bitwise_and, "bor": np.bitwise_or, "bxor": np.bitwise_xor}
    total = _fold(functions.get(op, np.add), widened)
    if op == "avg":
        size = len(inputs)
        if dtype in INTEGERS:  # toward zero
            total = np.sign(total.astype(object)) * (abs(total.astype(object)) // size)
        elif dtype in COMPLEX:  # by component: numpy's complex division rounds more than once
            parts = total.view(total.real.dtype)
            total = (parts / parts.dtype.type(size)).view(wide)
        else:
            total = (total / wide.type(size)).astype(wide)
    return total.astype(target)


def _fold(function: Any, arrays: list[Array]) -> Array:
    total = arrays[0].copy()
    for array in arrays[1:]:
        total = function(total, array).astype(total.dtype)
    return total


def same_bits(a: Array, b: Array) -> bool:
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
