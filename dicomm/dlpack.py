"""Reads a DLPack capsule (versions 0 and 1) with ctypes: address, dtype, shape, strides.

numpy.from_dlpack is not enough: it knows neither bfloat16 nor float8 and hides whether memory may be written.
"""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

_CPU, _CUDA_HOST, _ROCM_HOST = 1, 3, 11
_DEVICES = {2: "cuda", 4: "opencl", 7: "vulkan", 8: "metal", 10: "rocm", 12: "ext_dev", 14: "oneapi"}
# (code, bits) -> name; codes of DLDataTypeCode.
_TYPES = {(6, 8): "bool", (4, 16): "bfloat16", (10, 8): "float8_e4m3fn", (12, 8): "float8_e5m2"}
_TYPES |= {(0, bits): f"int{bits}" for bits in (8, 16, 32, 64)}
_TYPES |= {(1, bits): f"uint{bits}" for bits in (8, 16, 32, 64)}
_TYPES |= {(2, bits): f"float{bits}" for bits in (16, 32, 64)}
_TYPES |= {(5, bits): f"complex{bits}" for bits in (64, 128)}
_READ_ONLY = 1


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _Versioned(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("manager_ctx", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    )


class NotHostMemory(Exception):
    """str() names the device."""


class Found(NamedTuple):
    """strides are in bytes, None when contiguous; owner keeps the memory alive (it is the capsule, which
    gives the memory back when it goes)."""

    address: int
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None
    read_only: bool
    owner: Any


_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype = ctypes.c_void_p
_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
_name = ctypes.pythonapi.PyCapsule_GetName
_name.restype = ctypes.c_char_p
_name.argtypes = [ctypes.py_object]


def read(buffer: Any) -> Found:
    """Reads `buffer.__dlpack__()`. NotHostMemory; BufferError or ValueError when it cannot be read."""
    device = int(buffer.__dlpack_device__()[0])
    if device not in (_CPU, _CUDA_HOST, _ROCM_HOST):
        raise NotHostMemory(f"DLPack device {_DEVICES.get(device, device)}")
    try:
        capsule = buffer.__dlpack__(max_version=(1, 0))
    except TypeError:  # a producer from before version 1
        capsule = buffer.__dlpack__()
    name = _name(capsule)
    read_only = False
    if name == b"dltensor_versioned":
        versioned = _Versioned.from_address(_pointer(capsule, name))
        if versioned.major != 1:
            raise ValueError(f"DLPack version {versioned.major} is not known here")
        tensor, read_only = versioned.tensor, bool(versioned.flags & _READ_ONLY)
    elif name == b"dltensor":
        tensor = _Tensor.from_address(_pointer(capsule, name))
    else:
        raise ValueError(f"__dlpack__ returned a capsule named {name!r}")
    dtype = _TYPES.get((tensor.code, tensor.bits), f"(code {tensor.code}, {tensor.bits} bits)")
    if tensor.lanes != 1:
        raise ValueError(f"elements have {tensor.lanes} lanes")
    shape = tuple(tensor.shape[i] for i in range(tensor.ndim))
    strides = None
    if tensor.strides:
        strides = tuple(tensor.strides[i] * tensor.bits // 8 for i in range(tensor.ndim))
        if strides == _contiguous(shape, tensor.bits // 8):
            strides = None
    address = (tensor.data or 0) + tensor.byte_offset
    return Found(address, dtype, shape, strides, read_only, capsule)


def _contiguous(shape: tuple[int, ...], item: int) -> tuple[int, ...]:
    strides = []
    for extent in reversed(shape):
        strides.append(item)
        item *= extent
    return tuple(reversed(strides))
