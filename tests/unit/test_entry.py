"""Blocking operations in one call: which buffers take that way, and that the others are still taken."""

from __future__ import annotations

import array
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import dicomm
from dicomm import _native
from support.ranks import Ranks

pytestmark = pytest.mark.usefixtures("leak_check")

SECOND = 1_000_000_000
ALLREDUCE, BROADCAST, RECV = (_native.OPCODES[name] for name in ("ALLREDUCE", "BROADCAST", "RECV"))
MAX = _native.REDUCES["MAX"]
NATIVE = [
    np.dtype(name.lower())
    for name in _native.DTYPES
    if name not in ("BFLOAT16", "FLOAT8_E4M3FN", "FLOAT8_E5M2", "COMPLEX64", "COMPLEX128")
]


@pytest.fixture
def alone() -> Iterator[dicomm.Communicator]:
    with Ranks(1) as ranks:
        yield ranks.comms[0]


def run(comm: dicomm.Communicator, send: Any, recv: Any, opcode: int = ALLREDUCE, **other: Any) -> Any:
    last = {"peer": 0, "reduce": MAX, "tag": 0, **other}
    return _native.run(comm._address, 0, 1, opcode, send, recv, *last.values(), SECOND)


@pytest.mark.parametrize("dtype", NATIVE, ids=str)
def test_numbers_of_every_native_kind_are_plain(alone: dicomm.Communicator, dtype: np.dtype[Any]) -> None:
    given, got = np.array([[0, 1, 3]]).astype(dtype), np.zeros((1, 3), dtype)
    assert run(alone, given, got) is True
    np.testing.assert_array_equal(got, given)
    assert run(alone, given, given) is True
    assert run(alone, given[0, 1:2].reshape(()), got[0, :1]) is True
    assert run(alone, given[:, :0], got[:, :0]) is True


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_complex_numbers(alone: dicomm.Communicator, dtype: str) -> None:
    given, got = np.array([1 + 2j, 3], dtype), np.zeros(2, dtype)
    alone.allreduce(given, got)
    np.testing.assert_array_equal(got, given)


def test_whatever_has_the_buffer_protocol(alone: dicomm.Communicator) -> None:
    got = array.array("d", [0, 0])
    assert run(alone, array.array("d", [2, 3]), got) is True
    assert got.tolist() == [2, 3]
    raw = bytearray(2)
    assert run(alone, b"ab", raw) is True
    assert raw == b"ab"
    assert run(alone, None, b"ab", BROADCAST) is True  # the root's own buffer is only read


def test_what_is_not_plain_starts_nothing(alone: dicomm.Communicator) -> None:
    x = np.zeros(4, np.float32)
    brain = np.zeros(4, ml_dtypes.bfloat16)
    for send, recv, other in [
        (x[::2], x[:2].copy(), {}),
        (x, x.astype(">f4"), {}),
        (x, x.astype(np.float64), {}),
        (brain, brain.copy(), {}),
        (x, bytes(16), {}),
        ([x], x.copy(), {}),
        (x, x, {"reduce": -1}),
        (x, x, {"peer": 1}),
        (x, x, {"peer": 0.5}),
        (x, x, {"tag": -1}),
        (x, x, {"tag": 2**64}),
    ]:
        assert run(alone, send, recv, **other) is False, (send, recv, other)
    assert alone._info()["seq"] == 0
    assert _native.run(0, 0, 1, ALLREDUCE, x, x, 0, MAX, 0, SECOND) is False


def test_what_is_not_plain_takes_the_general_way(alone: dicomm.Communicator) -> None:
    strided, brain = np.zeros(8, np.float32)[::2], np.zeros(4, ml_dtypes.bfloat16)
    alone.allreduce(np.arange(4, dtype=np.float32), strided)
    np.testing.assert_array_equal(strided, np.arange(4))
    alone.allreduce(np.ones(4, ml_dtypes.bfloat16), brain)
    np.testing.assert_array_equal(brain.astype(np.float32), np.ones(4))
    with pytest.raises(dicomm.InvalidArgument, match="argument op"):
        alone.allreduce(strided, op=["sum"])  # type: ignore[arg-type]
    with pytest.raises(dicomm.InvalidArgument, match="argument recv is read-only"):
        alone.allreduce(np.zeros(2, np.uint8), bytes(2))


def test_a_failure_of_the_start_and_one_of_the_operation(alone: dicomm.Communicator) -> None:
    with pytest.raises(dicomm.InvalidArgument, match="recv has 3 elements"):
        alone.allreduce(np.zeros(2), np.zeros(3))
    sent = alone.isend(np.zeros(3, np.int8), 0)
    with pytest.raises(dicomm.Truncated):
        alone.recv(np.zeros(2, np.int8), 0)
    sent.wait(20)
    assert alone._inflight == set()


def test_an_operation_that_takes_long_goes_on_and_holds_its_buffers() -> None:
    with Ranks(2) as ranks:

        def exchange(comm: dicomm.Communicator) -> None:
            value = np.full(3, comm.rank, np.int16)
            if comm.rank == 0:
                address = comm._address
                request = _native.run(address, 0, 2, RECV, None, value, 1, 0, 7, SECOND // 100)
                assert type(request) is int
                comm.send(value, 1)
                waiting = dicomm.Request(comm._inflight, _native.request_at(request), value)
                waiting.wait(20)
            else:
                comm.recv(np.zeros(3, np.int16), 0)
                comm.send(value, 0, tag=7)
            np.testing.assert_array_equal(value, np.full(3, 1))

        ranks.run(exchange)
