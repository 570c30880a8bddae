"""Anything a program may pass as a buffer -> (dtype, address, count, layout), without copying.

Accepted, all in host memory: numpy arrays of any strides, torch CPU tensors of any strides, objects with the
buffer protocol (bytes and other read-only ones as input only), and objects with DLPack. A reducer passes a
NoBuffer. Neither torch nor ml_dtypes is imported here: a tensor can only come from a program that has
imported them.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from operator import index
from typing import Any

import numpy as np

from dicomm import dlpack
from dicomm._native import DTYPES, ffi
from dicomm.errors import DicommError, InvalidArgument, NotSupported

_from_buffer = ffi.from_buffer
_CHARS = ffi.typeof("char[]")
_VOID = ffi.typeof("void *")
_NAMES = {code: name.lower() for name, code in DTYPES.items()}
# numpy's own dtypes by object; those of ml_dtypes by name, found when first met.
_NUMPY: dict[Any, int] = {
    np.dtype(name.lower()): code
    for name, code in DTYPES.items()
    if name not in ("BFLOAT16", "FLOAT8_E4M3FN", "FLOAT8_E5M2")
}
_TORCH: dict[Any, int] = {}
_COMPLEX = (DTYPES["COMPLEX64"], DTYPES["COMPLEX128"])


class BadBuffer(Exception):
    """Why an argument cannot be used; the communicator adds the operation, the argument and the rank."""

    def __init__(self, text: str, kind: type[DicommError] = InvalidArgument) -> None:
        super().__init__(text)
        self.kind = kind


@dataclass(frozen=True)
class NoBuffer:
    """For allreduce and reduce on a rank that only helps to reduce: what the workers' buffers are.

    count: elements. dtype: a name ("bfloat16"), numpy dtype or torch dtype.
    """

    count: int
    dtype: Any = "float32"


# dtype code; address, a cdata pointer; elements; dicomm_layout *, None when contiguous; what must stay
# alive while the memory is in use. A plain tuple: views are made on the path of every operation.
View = tuple[int, Any, int, Any, Any]


def dtype_name(code: int) -> str:
    """13 -> "float32"."""
    return _NAMES[code]


def dtype_code(dtype: Any) -> int:
    """The code of a name ("bfloat16"), numpy dtype or torch dtype. InvalidArgument for others."""
    name = dtype if isinstance(dtype, str) else str(dtype).removeprefix("torch.")
    if (code := DTYPES.get(name.upper())) is None:
        try:
            code = _NUMPY[np.dtype(dtype)]
        except (TypeError, KeyError):
            raise InvalidArgument(f"dtype {dtype!r} is not one of {', '.join(_NAMES.values())}") from None
    return code


def view(buffer: Any, writable: bool) -> View:
    """Describes `buffer`; raises BadBuffer where it cannot be used as input (as output: writable)."""
    if type(buffer) is np.ndarray and (code := _NUMPY.get(buffer.dtype)) is not None:
        try:
            data = _from_buffer(_CHARS, buffer, writable)
        except (ValueError, BufferError):
            return _numpy(buffer, writable)  # strided or read-only
        return code, data, buffer.size, None, data
    if isinstance(buffer, np.ndarray):
        return _numpy(buffer, writable)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(buffer, torch.Tensor):
        return _tensor(torch, buffer, writable)
    if isinstance(buffer, NoBuffer):
        return dtype_code(buffer.dtype), ffi.NULL, index(buffer.count), None, None
    try:
        memory = memoryview(buffer)
    except (TypeError, BufferError, ValueError):
        memory = None
    if memory is not None:
        return _numpy(_as_array(memory), writable)
    if hasattr(buffer, "__dlpack__"):
        return _dlpack(buffer, writable)
    raise BadBuffer(
        f"is a {type(buffer).__name__}; pass a numpy array, a torch tensor, or an object with the buffer "
        "protocol or DLPack"
    )


def strided(shape: Sequence[int], strides: Sequence[int]) -> Any:
    """A dicomm_layout *; strides in bytes. Owns its arrays."""
    layout = ffi.new("dicomm_layout *")
    arrays = (ffi.new("int64_t[]", list(shape)), ffi.new("int64_t[]", list(strides)))
    layout.ndim = len(shape)
    layout.shape, layout.strides = arrays
    return ffi.gc(layout, _Holder(arrays))


class _Holder:
    """Keeps objects alive as long as the cdata whose destructor it is."""

    def __init__(self, held: Any) -> None:
        self.held = held

    def __call__(self, _: Any) -> None:
        self.held = None


def _as_array(memory: memoryview) -> np.ndarray[Any, Any]:
    try:
        return np.asarray(memory)
    except (ValueError, TypeError, RuntimeWarning) as error:
        raise BadBuffer(f"has elements of format {memory.format!r}, which dicomm has no dtype for") from error


def _numpy(array: np.ndarray[Any, Any], writable: bool) -> View:
    code = _NUMPY.get(array.dtype)
    if code is None:
        if (code := DTYPES.get(array.dtype.name.upper())) is None or not array.dtype.isnative:
            raise BadBuffer(f"has dtype {array.dtype.str!r}, which dicomm does not know")
        _NUMPY[array.dtype] = code
    if writable and not array.flags.writeable:
        raise BadBuffer("is read-only; an output must be writable")
    address = array.__array_interface__["data"][0]
    layout = None if array.flags.c_contiguous else strided(array.shape, array.strides)
    return code, ffi.cast(_VOID, address), array.size, layout, array


def _tensor(torch: Any, tensor: Any, writable: bool) -> View:
    if not _TORCH:
        names = {name: getattr(torch, name.lower(), None) for name in DTYPES}
        _TORCH.update({dtype: DTYPES[name] for name, dtype in names.items() if dtype is not None})
    code = _TORCH.get(tensor.dtype)
    if code is None:
        raise BadBuffer(f"has dtype {tensor.dtype}, which dicomm does not know")
    if tensor.layout != torch.strided:
        raise BadBuffer(f"is a sparse tensor ({tensor.layout}); pass a dense one", NotSupported)
    if not tensor.is_cpu:
        raise BadBuffer(
            f"is on device {tensor.device}; only host memory is supported so far, pass tensor.cpu()",
            NotSupported,
        )
    if tensor.is_neg() or (code in _COMPLEX and tensor.is_conj()):
        if writable:
            raise BadBuffer("is lazily conjugated or negated; an output must be plain memory")
        tensor = tensor.resolve_conj().resolve_neg()
    if tensor.is_contiguous():
        return code, ffi.cast(_VOID, tensor.data_ptr()), tensor.numel(), None, tensor
    size = tensor.element_size()
    layout = strided(tuple(tensor.shape), [stride * size for stride in tensor.stride()])
    return code, ffi.cast(_VOID, tensor.data_ptr()), tensor.numel(), layout, tensor


def _dlpack(buffer: Any, writable: bool) -> View:
    try:
        found = dlpack.read(buffer)
    except dlpack.NotHostMemory as error:
        raise BadBuffer(f"is on {error}; only host memory is supported so far", NotSupported) from None
    except (BufferError, ValueError) as error:
        raise BadBuffer(f"cannot be read through DLPack: {error}") from error
    code = DTYPES.get(found.dtype.upper())
    if code is None:
        raise BadBuffer(f"has DLPack dtype {found.dtype}, which dicomm does not know")
    if writable and found.read_only:
        raise BadBuffer("is read-only; an output must be writable")
    layout = None if found.strides is None else strided(found.shape, found.strides)
    count = 1
    for extent in found.shape:
        count *= extent
    return code, ffi.cast(_VOID, found.address), count, layout, found.owner
