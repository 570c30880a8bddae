"""Faults among workers and reducers: every rank learns what happened, also one that serves."""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Callable

import numpy as np
import pytest

import dicomm
from support.processes import Job
from support.ranks import Ranks

pytestmark = pytest.mark.usefixtures("leak_check")

# Reducers serve. Workers leave the cores some rest: how soon they know is measured.
WORK = """
try:
    if comm.role == "reducer":
        comm.serve()
    while comm.role == "worker":
        comm.allreduce(np.ones(%d, np.float32))
        time.sleep(0.02)
except dicomm.DicommError as error:
    say("raised", time.clock_gettime(time.CLOCK_MONOTONIC), type(error).__name__, error.peer, error)
comm.close()
say("closed")
"""


def as_reducer(*ranks: int) -> Callable[[int], list[str]]:
    return lambda rank: ["env", "DICOMM_ROLE=reducer"] if rank in ranks else []


@pytest.mark.parametrize("count", [1, 1_000_000])
@pytest.mark.parametrize("victim", [1, 3])
def test_a_killed_worker_or_reducer_is_named_on_all(victim: int, count: int) -> None:
    with Job(4, WORK % count, launch=as_reducer(2, 3)) as job:
        for rank in range(4):
            job.wait_for(rank, "ready")
        time.sleep(0.3)
        killed = time.monotonic()
        job.signal(victim, signal.SIGKILL)
        others = [rank for rank in range(4) if rank != victim]
        assert job.wait(others) == [0] * 3
        for rank in others:
            found = re.search(r"raised (\S+) PeerLost (\d) ", job.output(rank))
            assert found, job.output(rank)
            assert int(found[2]) == victim
            assert float(found[1]) - killed < 1.0
            assert "closed" in job.output(rank)


def test_a_worker_killed_while_all_is_quiet() -> None:
    source = """
    try:
        comm.serve() if comm.role == "reducer" else time.sleep(60)
    except dicomm.PeerLost as error:
        say("raised", error.peer, error)
    """
    with Job(3, source, launch=as_reducer(2)) as job:
        for rank in range(3):
            job.wait_for(rank, "ready")
        time.sleep(0.3)
        job.signal(0, signal.SIGKILL)
        job.wait_for(2, "raised 0 serve on rank 2", timeout=2)


def test_a_stopped_reducer_is_a_time_out_that_names_it() -> None:
    with Job(3, WORK % 1_000_000, env={"DICOMM_TIMEOUT": "1.5"}, launch=as_reducer(2)) as job:
        for rank in range(3):
            job.wait_for(rank, "ready")
        job.signal(2, signal.SIGSTOP)
        assert job.wait([0, 1], timeout=10) == [0, 0]
        assert "TimedOut" in job.output(0) + job.output(1)
        for rank in (0, 1):
            assert "rank 2" in job.output(rank)


def test_a_reducer_that_is_interrupted_tells_the_workers() -> None:
    with Job(
        2,
        "with comm:\n" + "    comm.serve() if comm.role == 'reducer' else comm.recv(np.ones(1), 1)",
        launch=as_reducer(1),
    ) as job:
        for rank in range(2):
            job.wait_for(rank, "ready")
        time.sleep(0.5)
        job.signal(1, signal.SIGINT)
        job.wait(timeout=10)
        assert "KeyboardInterrupt" in job.output(1)
        assert "Aborted" in job.output(0), job.output(0)


def roles(*names: str) -> Callable[[int], dict[str, str]]:
    return lambda rank: {"role": names[rank]}


def serve_or(function: Callable[[dicomm.Communicator], None]) -> Callable[[dicomm.Communicator], None]:
    return lambda comm: comm.serve() if comm.role == "reducer" else function(comm)


def test_workers_that_differ_are_named_on_the_reducer_too() -> None:
    def differ(comm: dicomm.Communicator) -> None:
        comm.allreduce(np.zeros(100_000 + comm.rank, np.float32))

    with Ranks(3, each=roles("worker", "worker", "reducer")) as ranks:
        for error in ranks.errors(serve_or(differ)):
            assert isinstance(error, dicomm.Mismatch), error
            assert "100000 elements" in str(error)
            assert "100001 elements" in str(error)


@pytest.mark.parametrize("size", [10, 200_000])
def test_a_reducer_that_says_something_else_is_a_mismatch(size: int) -> None:
    def differ(comm: dicomm.Communicator) -> None:
        if comm.role == "reducer":
            comm.allreduce(dicomm.NoBuffer(size, "int32"))
        else:
            comm.allreduce(np.zeros(size, np.float32))
        comm.barrier()  # workers are done with a small one before they hear from the reducer

    with Ranks(3, each=roles("worker", "reducer", "worker")) as ranks:
        for error in ranks.errors(differ):
            assert isinstance(error, dicomm.Mismatch), error
            assert f"int32, sum, {size} elements" in str(error)


def test_what_cannot_be_served_is_a_mismatch_that_says_so() -> None:
    def gather(comm: dicomm.Communicator) -> None:
        comm.allgather(np.zeros(5, np.float32), np.zeros(15, np.float32))

    with Ranks(3, each=roles("worker", "worker", "reducer")) as ranks:
        for error in ranks.errors(serve_or(gather)):
            assert isinstance(error, dicomm.Mismatch), error
            assert "serves, and takes part in allreduce, reduce and barrier only" in str(error)


def test_an_abort_ends_serving_with_its_reason() -> None:
    def give_up(comm: dicomm.Communicator) -> None:
        comm.allreduce(np.zeros(5, np.float32))
        if comm.rank == 0:
            comm.abort("no more data")
        comm.allreduce(np.zeros(5, np.float32))

    with Ranks(3, each=roles("worker", "worker", "reducer")) as ranks:
        for error in ranks.errors(serve_or(give_up)):
            assert isinstance(error, dicomm.Aborted), error
            assert "no more data" in str(error)


def test_a_worker_that_leaves_before_the_others_does_not_end_serving() -> None:
    def leave(comm: dicomm.Communicator) -> None:
        comm.allreduce(np.zeros(5, np.float32))
        if comm.rank == 0:
            comm.close()
            return
        time.sleep(0.5)
        comm.send(np.zeros(5, np.float32), 1)  # the communicator is not over for the others
        comm.close()

    with Ranks(3, each=roles("worker", "worker", "reducer")) as ranks:
        started = time.monotonic()
        ended = ranks.run(lambda comm: (serve_or(leave)(comm), time.monotonic() - started)[1])
        assert ended[2] >= 0.5
        assert ended[2] < 5


def test_serving_after_the_workers_have_left() -> None:
    """Also those whose process is no more, and that the reducer never had a message from."""

    def part(comm: dicomm.Communicator) -> None:
        if comm.role == "reducer":
            time.sleep(0.5)
            comm.serve()
            comm.serve()  # there is still nothing to do
        comm.close()

    with Ranks(6, each=roles(*["worker"] * 5, "reducer")) as ranks:
        ranks.run(part)


def test_a_reducer_that_closes_leaves_in_good_order() -> None:
    """What a worker then starts is a PeerLost that names it, at once."""

    def part(comm: dicomm.Communicator) -> None:
        if comm.role == "reducer":
            comm.barrier()
            comm.close()
            return
        comm.barrier()
        time.sleep(0.3)
        with pytest.raises(dicomm.PeerLost, match=r"rank 1 .* closed its context"):
            comm.allreduce(np.zeros(500_000, np.float32))

    with Ranks(2 + 1, each=roles("worker", "reducer", "worker")) as ranks:
        ranks.run(part)
