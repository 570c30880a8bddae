"""Ranks that call different things: an error on every rank that names both calls, never wrong data."""

from __future__ import annotations

import numpy as np
import pytest

import dicomm
from support.ranks import Ranks

pytestmark = pytest.mark.usefixtures("leak_check")


def f32(count: int = 100) -> np.ndarray:
    return np.ones(count, np.float32)


CASES = {
    "operation": (lambda c: c.allreduce(f32()), lambda c: c.broadcast(f32()), ("allreduce", "broadcast")),
    "barrier": (lambda c: c.allreduce(f32()), lambda c: c.barrier(), ("allreduce", "barrier")),
    "dtype": (
        lambda c: c.allreduce(f32()),
        lambda c: c.allreduce(f32().astype(np.int32)),
        ("float32", "int32"),
    ),
    "count": (lambda c: c.allreduce(f32(100)), lambda c: c.allreduce(f32(99)), ("100", "99")),
    "large count": (
        lambda c: c.allreduce(f32(300_000)),
        lambda c: c.allreduce(f32(299_999)),
        ("300000", "299999"),
    ),
    "reduce op": (lambda c: c.allreduce(f32()), lambda c: c.allreduce(f32(), op="max"), ("sum", "max")),
    "root": (lambda c: c.broadcast(f32(), 0), lambda c: c.broadcast(f32(), 1), ("root 0", "root 1")),
    "reduce root": (
        lambda c: c.reduce(f32(), root=0),
        lambda c: c.reduce(f32(), root=1),
        ("root 0", "root 1"),
    ),
    "allgather count": (
        lambda c: c.allgather(f32(10), f32(10 * c.size)),
        lambda c: c.allgather(f32(11), f32(11 * c.size)),
        ("30", "33"),  # elements of the whole
    ),
    "alltoall counts": (
        lambda c: c.alltoallv(f32(6 * c.size), f32(6 * c.size), [6] * c.size, [6] * c.size),
        lambda c: c.alltoallv(f32(5 * c.size), f32(5 * c.size), [5] * c.size, [5] * c.size),
        ("alltoall",),
    ),
}


@pytest.mark.parametrize("odd", [0, 2])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.replace(" ", "_"))
def test_every_rank_names_both_calls(case: str, odd: int) -> None:
    usual, other, words = CASES[case]
    with Ranks(3, timeout=10) as ranks:
        ranks.run(lambda comm: comm.barrier())

        def call(comm: dicomm.Communicator) -> None:
            (other if comm.rank == odd else usual)(comm)
            comm.barrier()  # a root may have sent all it has before it can know

        errors = ranks.errors(call)
        for rank, error in enumerate(errors):
            assert isinstance(error, (dicomm.Mismatch, dicomm.Aborted)), f"rank {rank}: {error!r}"
            for word in words:
                assert word in str(error), f"rank {rank}: {error}"
        again = ranks.errors(lambda comm: comm.barrier())
        assert all(isinstance(error, dicomm.DicommError) for error in again), "failed once, failed for ever"


def test_a_rank_that_is_one_call_ahead_is_found_out() -> None:
    """Rank 1 leaves one collective out: the next one does not pair up with it silently."""

    def skip(comm: dicomm.Communicator) -> None:
        if comm.rank != 1:
            comm.allreduce(f32(7))
        comm.allreduce(f32(8))

    with Ranks(3, timeout=5) as ranks:
        for error in ranks.errors(skip):
            assert isinstance(error, (dicomm.Mismatch, dicomm.Aborted)), repr(error)
            assert "7" in str(error)
            assert "8" in str(error)


BAD = [
    (lambda c: c.allreduce(f32(), np.ones(99, np.float32)), "allreduce"),
    (lambda c: c.allreduce(f32(), np.ones(100)), "recv has float64 elements, send has float32"),
    (lambda c: c.allreduce(f32(), op="total"), "op is 'total'"),
    (lambda c: c.allreduce(f32(), op="premul_sum"), "needs a factor"),
    (lambda c: c.allreduce(f32(), factor=2), "takes no factor"),
    (lambda c: c.allreduce(b"abc"), "read-only"),
    (lambda c: c.allreduce([f32(), f32()]), "allreduce"),
    (lambda c: c.allgather(f32(10), f32(10 * c.size + 1)), "allgather"),
    (lambda c: c.allgatherv(f32(1), f32(6), [1] * 7), "sum of the counts"),
    (lambda c: c.alltoall(f32(c.size + 1), f32(c.size + 1)), "alltoall"),
    (lambda c: c.alltoallv(f32(2), f32(2), [1, 2, -1], [1, 1, 0]), "sum of the counts"),
    (lambda c: c.broadcast(f32(), 3), "broadcast"),
    (lambda c: c.broadcast(f32(), -1), "broadcast"),
    (lambda c: c.broadcast(f32(), "0"), "peer"),
    (lambda c: c.send(f32(), 3), "send"),
    (lambda c: c.send(f32(), -1), "send"),
    (lambda c: c.send(f32(), 0, tag=-1), "tag is -1"),
    (lambda c: c.recv(f32(), 7), "recv"),
    (lambda c: c.allreduce(f32(), timeout=0), "timeout"),
    (lambda c: c.allreduce("text"), "argument send is a str"),
    (lambda c: c.allreduce(np.lib.stride_tricks.as_strided(f32(), (10, 2), (0, 4))), "allreduce"),
]


@pytest.mark.parametrize("index", range(len(BAD)))
def test_bad_arguments_raise_before_anything_is_sent(index: int) -> None:
    call, text = BAD[index]

    def bad(comm: dicomm.Communicator) -> None:
        if comm.rank == 1:  # alone: had anything been sent, the others would notice
            with pytest.raises((dicomm.InvalidArgument, dicomm.NotSupported), match="(?i)" + text):
                call(comm)
        value = f32(3)
        comm.allreduce(value)
        assert value[0] == comm.size

    with Ranks(3, timeout=10) as ranks:
        ranks.run(bad)


def test_a_closed_communicator_says_so() -> None:
    with Ranks(2) as ranks:
        comm = ranks.comms[0]
        ranks.errors(lambda comm: comm.close())
        for call in (lambda: comm.barrier(), lambda: comm.split(0), lambda: comm.stats()):
            with pytest.raises(dicomm.InvalidArgument, match="closed"):
                call()
        comm.close()
        comm.abort()
