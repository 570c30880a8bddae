"""Everything that may be passed as a buffer, and everything that may not."""

from __future__ import annotations

import array
import gc
import weakref
from typing import Any, NamedTuple

import numpy as np
import pytest

from dicomm import buffer as under_test
from dicomm._native import DTYPES, ffi
from dicomm.buffer import BadBuffer, dtype_code, dtype_name
from dicomm.errors import InvalidArgument, NotSupported

torch = pytest.importorskip("torch")


class View(NamedTuple):
    dtype: int
    data: Any
    elements: int
    layout: Any
    owner: Any


def view(buffer: Any, writable: bool) -> View:
    return View(*under_test.view(buffer, writable))


def address(found: View) -> int:
    return int(ffi.cast("intptr_t", found.data))


def layout(found: View) -> tuple[list[int], list[int]] | None:
    if found.layout is None:
        return None
    n = found.layout.ndim
    return list(ffi.unpack(found.layout.shape, n)), list(ffi.unpack(found.layout.strides, n))


NUMPY = "uint8 int8 uint16 int16 uint32 int32 uint64 int64 bool float16 float32 float64 complex64 complex128"


@pytest.mark.parametrize("name", NUMPY.split())
def test_numpy_dtypes(name: str) -> None:
    array_ = np.zeros((3, 4), name)
    found = view(array_, True)
    assert (found.dtype, found.elements, layout(found)) == (DTYPES[name.upper()], 12, None)
    assert address(found) == array_.__array_interface__["data"][0]


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_dtypes_of_ml_dtypes(name: str) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    array_ = np.zeros(5, getattr(ml_dtypes, name))
    assert view(array_, True).dtype == DTYPES[name.upper()]
    assert view(array_[::2], True).elements == 3


def test_strided_views_keep_shape_and_strides() -> None:
    base = np.zeros((6, 8), np.float32)
    for part in (base[::2, 1:5], base.T, base[::-1], np.broadcast_to(base[0], (3, 8))):
        found = view(part, False)
        assert layout(found) == (list(part.shape), list(part.strides))
        assert address(found) == part.__array_interface__["data"][0]


def test_every_torch_dtype_and_stride() -> None:
    for name, code in DTYPES.items():
        tensor = torch.zeros(4, 6, dtype=getattr(torch, name.lower()))
        found = view(tensor, True)
        assert (found.dtype, found.elements, address(found)) == (code, 24, tensor.data_ptr())
        part = tensor.t()[1:4]
        size = tensor.element_size()
        assert layout(view(part, True)) == ([3, 4], [size, 6 * size])


def test_lazily_conjugated_and_negated_tensors_are_values_as_input_and_refused_as_output() -> None:
    value = torch.tensor([1 + 2j, 3 - 4j])
    found = view(value.conj(), False)
    assert found.owner.tolist() == [1 - 2j, 3 + 4j]
    assert not found.owner.is_conj()
    imaginary = value.conj().imag
    assert imaginary.is_neg()
    assert view(imaginary, False).owner.tolist() == [-2.0, 4.0]
    with pytest.raises(BadBuffer, match="lazily"):
        view(value.conj(), True)


def test_buffer_protocol() -> None:
    assert view(b"abc", False)[0:1] + view(b"abc", False)[2:4] == (DTYPES["UINT8"], 3, None)
    assert view(array.array("d", [1, 2]), True).dtype == DTYPES["FLOAT64"]
    assert view(memoryview(bytearray(8)).cast("i"), True).elements == 2
    assert layout(view(memoryview(bytearray(8))[::2], True)) == ([4], [2])


class Producer:
    """Something with DLPack and nothing else."""

    def __init__(self, inner: Any, old: bool = False) -> None:
        self.inner = inner
        self.old = old

    def __dlpack__(self, **more: Any) -> Any:
        if self.old and more:
            raise TypeError("a producer from before version 1")
        return self.inner.__dlpack__(**more)

    def __dlpack_device__(self) -> Any:
        return self.inner.__dlpack_device__()


@pytest.mark.parametrize("old", [False, True])
def test_dlpack(old: bool) -> None:
    for tensor in (torch.arange(12.0).reshape(3, 4), torch.zeros(5, dtype=torch.bfloat16)):
        found = view(Producer(tensor, old), True)
        assert found.dtype == dtype_code(tensor.dtype)
        assert (address(found), found.elements, layout(found)) == (tensor.data_ptr(), tensor.numel(), None)
    part = torch.arange(12.0).reshape(3, 4)[:, 1:3]
    assert layout(view(Producer(part, old), True)) == ([3, 2], [16, 4])


def test_dlpack_keeps_memory_alive_and_gives_it_back() -> None:
    source = np.zeros(1000)
    ref = weakref.ref(source)
    found = view(Producer(source), True)
    del source
    gc.collect()
    assert ref() is not None
    del found
    gc.collect()
    assert ref() is None


class ElsewhereProducer(Producer):
    def __dlpack_device__(self) -> Any:
        return (2, 0)


@pytest.mark.parametrize(
    ("buffer", "writable", "kind", "text"),
    [
        (b"abc", True, InvalidArgument, "read-only"),
        (np.broadcast_to(np.zeros(1), 4), True, InvalidArgument, "read-only"),
        (np.zeros(3, "O"), False, InvalidArgument, "dtype"),
        (np.zeros(3, ">f4"), False, InvalidArgument, "dtype '>f4'"),
        (np.zeros(3, "U4"), False, InvalidArgument, "dtype"),
        (np.zeros(3, [("a", "i4")]), False, InvalidArgument, "dtype"),
        (np.zeros(3, np.longdouble), False, InvalidArgument, "dtype"),
        (3.5, False, InvalidArgument, "is a float"),
        ([1, 2], False, InvalidArgument, "is a list"),
        (None, False, InvalidArgument, "NoneType"),
        ("text", False, InvalidArgument, "is a str"),
        (torch.zeros(2, device="meta"), False, NotSupported, "device meta"),
        (torch.zeros(2, 2).to_sparse(), False, NotSupported, "sparse"),
        (ElsewhereProducer(torch.zeros(2)), False, NotSupported, "cuda"),
    ],
)
def test_refused(buffer: Any, writable: bool, kind: type, text: str) -> None:
    with pytest.raises(BadBuffer, match=text) as caught:
        view(buffer, writable)
    assert caught.value.kind is kind


def test_read_only_dlpack_is_refused_as_output() -> None:
    source = np.zeros(3)
    source.flags.writeable = False
    assert view(Producer(source), False).elements == 3
    with pytest.raises(BadBuffer, match="read-only"):
        view(Producer(source), True)


def test_the_export_holds_resizable_memory() -> None:
    memory = bytearray(10)
    found = view(memory, True)
    with pytest.raises(BufferError):
        memory.append(1)
    del found
    gc.collect()
    memory.append(1)


def test_dtype_names() -> None:
    for name, code in DTYPES.items():
        assert dtype_code(name.lower()) == code
        assert dtype_code(getattr(torch, name.lower())) == code
        assert dtype_name(code) == name.lower()
    assert dtype_code(np.float32) == dtype_code("f4") == DTYPES["FLOAT32"]
    with pytest.raises(InvalidArgument, match="float7"):
        dtype_code("float7")
