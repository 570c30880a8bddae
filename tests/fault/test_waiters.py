"""Time-outs, abort and close: whoever waits is freed, with the first reason."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest

import dicomm
from support.ranks import Ranks

pytestmark = pytest.mark.usefixtures("leak_check")


def test_abort_frees_all_waiters_on_all_ranks() -> None:
    with Ranks(4, timeout=30) as ranks:
        ready = threading.Barrier(4, timeout=10)

        def waiting(comm: dicomm.Communicator) -> None:
            ready.wait()
            if comm.rank == 3:
                time.sleep(0.2)
                comm.abort("the loss is not finite")
            if comm.rank == 0:
                dicomm.wait_any([comm.irecv(np.zeros(4), 3), comm.ibarrier()])
            elif comm.rank == 1:
                comm.send(np.zeros(1 << 20), 2)
            comm.barrier()

        start = time.monotonic()
        errors = ranks.errors(waiting)
        assert time.monotonic() - start < 3
        for error in errors:
            assert isinstance(error, dicomm.Aborted), repr(error)
            assert "the loss is not finite" in str(error)


def test_the_first_reason_wins() -> None:
    with Ranks(2) as ranks:
        ranks.comms[0].abort("first")
        ranks.comms[0].abort("second")
        for error in ranks.errors(lambda comm: comm.barrier()):
            assert "first" in str(error)
            assert "second" not in str(error)


@pytest.mark.parametrize("kind", ["recv", "send", "barrier", "allreduce"])
def test_operations_time_out_and_say_for_whom_they_waited(kind: str) -> None:
    with Ranks(2, timeout=20) as ranks:
        gone = threading.Event()

        def wait(comm: dicomm.Communicator) -> None:
            if comm.rank == 1:
                gone.wait(10)
                return
            calls = {
                "recv": lambda: comm.recv(np.zeros(4), 1, timeout=0.4),
                "send": lambda: comm.send(np.zeros(1 << 20), 1, timeout=0.4),
                "barrier": lambda: comm.barrier(timeout=0.4),
                "allreduce": lambda: comm.allreduce(np.zeros(5), timeout=0.4),
            }
            start = time.monotonic()
            try:
                with pytest.raises(dicomm.TimedOut, match="rank 1") as caught:
                    calls[kind]()
            finally:
                gone.set()
            assert 0.35 < time.monotonic() - start < 3
            assert (caught.value.op, caught.value.rank) == (kind, 0)
            assert caught.value.waited == pytest.approx(0.4, abs=0.3)

        errors = ranks.errors(wait)
        assert errors == [None, None]


def test_the_communicators_time_out() -> None:
    with Ranks(2, timeout=0.3) as ranks:
        assert ranks.comms[0].timeout == pytest.approx(0.3)
        errors = ranks.errors(lambda comm: comm.recv(np.zeros(1), 1 - comm.rank, tag=7))
        assert all(isinstance(error, dicomm.DicommError) for error in errors)
        assert any(isinstance(error, dicomm.TimedOut) for error in errors)
    with Ranks(2, timeout=30) as ranks:
        for comm in ranks.comms:
            comm.timeout = 0.3
        start = time.monotonic()
        ranks.errors(lambda comm: comm.recv(np.zeros(1), 1 - comm.rank, tag=7))
        assert time.monotonic() - start < 5


def test_a_point_to_point_time_out_is_the_requests_alone() -> None:
    with Ranks(2) as ranks:

        def wait(comm: dicomm.Communicator) -> None:
            if comm.rank == 0:
                with pytest.raises(dicomm.TimedOut):
                    comm.recv(np.zeros(1), 1, tag=9, timeout=0.2)
            value = np.ones(1)
            comm.allreduce(value)
            assert value[0] == 2

        ranks.run(wait)


def test_close_while_others_wait_tells_them_who_left() -> None:
    with Ranks(3, timeout=20) as ranks:

        def leave(comm: dicomm.Communicator) -> None:
            comm.barrier()
            if comm.rank == 2:
                comm.close()
                return
            comm.barrier()

        start = time.monotonic()
        errors = ranks.errors(leave)
        assert time.monotonic() - start < 5
        assert errors[2] is None
        for error in errors[:2]:
            assert isinstance(error, dicomm.PeerLost), repr(error)
            assert error.peer == 2


def test_close_lets_pending_sends_finish() -> None:
    with Ranks(2, timeout=20) as ranks:

        def leave(comm: dicomm.Communicator) -> None:
            if comm.rank == 0:
                comm.isend(np.arange(1 << 20), 1)
                comm.close()
            else:
                time.sleep(0.3)
                got = np.zeros(1 << 20, np.int64)
                comm.recv(got, 0)
                assert got[-1] == (1 << 20) - 1

        ranks.run(leave)


def test_abort_from_another_thread_frees_a_blocking_call() -> None:
    with Ranks(2, timeout=30) as ranks:
        comm = ranks.comms[0]
        timer = threading.Timer(0.2, comm.abort, ["by hand"])
        timer.start()
        with pytest.raises(dicomm.Aborted, match="by hand"):
            comm.recv(np.zeros(1), 1)
        timer.join()
