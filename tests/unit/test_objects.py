"""The encoding of Python objects: exact round trips, nothing executable, nothing trusted."""

from __future__ import annotations

import contextlib
import math
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dicomm
from dicomm.objects import decode, encode

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary()
KEYS = st.integers() | st.text() | st.binary() | st.tuples(st.integers(), st.text())
VALUES = st.recursive(
    SCALARS | st.complex_numbers(allow_nan=False) | st.sets(st.integers()),
    lambda inner: st.lists(inner) | st.lists(inner).map(tuple) | st.dictionaries(KEYS, inner),
    max_leaves=20,
)


def same(a: Any, b: Any) -> bool:
    if type(a) is not type(b):
        return False
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    return bool(a == b)


@settings(max_examples=200, deadline=None)
@given(VALUES)
def test_round_trip(value: Any) -> None:
    assert same(decode(encode(value)), value)


@pytest.mark.parametrize("dtype", ["?", "u1", "<i8", "<f2", "<f4", "<c16", "U5", "S3", "<M8[ns]"])
def test_arrays(dtype: str) -> None:
    value = np.arange(12).astype(dtype).reshape(3, 4)
    for array in (value, value[::2].T, value[:0], np.array(value[0, 0])):
        back = decode(encode({"x": [array]}))["x"][0]
        assert back.dtype == array.dtype
        assert back.shape == array.shape
        assert back.flags.writeable
        np.testing.assert_array_equal(back, array)
    assert decode(encode(np.float32(1.5))) == np.float32(1.5)
    assert isinstance(decode(encode(np.float32(1.5))), np.float32)


def test_arrays_of_ml_dtypes() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    value = np.arange(4).astype(ml_dtypes.bfloat16)
    back = decode(encode(value))
    assert back.dtype == value.dtype
    assert back.tobytes() == value.tobytes()


def test_special_floats() -> None:
    back = decode(encode([math.inf, -math.inf, math.nan, -0.0]))
    assert back[:2] == [math.inf, -math.inf]
    assert math.isnan(back[2])
    assert math.copysign(1, back[3]) == -1


class Thing:
    pass


@pytest.mark.parametrize("value", [Thing(), [1, {"a": Thing()}], np.array([Thing()]), len, (3).__class__])
def test_other_objects_need_pickle(value: Any) -> None:
    with pytest.raises(dicomm.InvalidArgument, match="allow_pickle"):
        encode(value)


def test_pickle_only_between_ranks_that_allow_it() -> None:
    data = encode({Thing: 1}, allow_pickle=True)
    assert decode(data, allow_pickle=True) == {Thing: 1}
    with pytest.raises(dicomm.NotSupported, match=r"rank 3 sent a pickled object.*allow_pickle"):
        decode(data, sender="rank 3")


def test_plain_data_is_not_pickled_even_where_that_is_allowed() -> None:
    assert decode(encode([1, b"x", np.zeros(3)], allow_pickle=True))[:2] == [1, b"x"]


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200))
def test_garbage_is_an_error_of_the_peer(data: bytes) -> None:
    with pytest.raises(dicomm.Protocol):
        decode(b"\x05\x00\x00\x00" + data)


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 500), st.integers(0, 255))
def test_a_changed_byte_never_does_more_than_fail(position: int, value: int) -> None:
    data = bytearray(encode({"a": [1, (2, 3)], "b": np.arange(6.0), "c": b"xyz"}))
    data[position % len(data)] = value
    with contextlib.suppress(dicomm.Protocol, dicomm.NotSupported):
        decode(bytes(data))


def test_raw_pickles_are_garbage() -> None:
    with pytest.raises(dicomm.Protocol):
        decode(pickle.dumps([1, 2]))
