"""Faults in mixed jobs: those who wait inside their island's library learn of them as all others do."""

from __future__ import annotations

import re
import signal
import time

import pytest

from support.processes import Job

pytestmark = pytest.mark.usefixtures("leak_check")

LAYOUTS = ["alpha:2,beta:3", "alpha:5", "alpha:4,beta:1"]

WORK = """
if comm.rank == 2 and %r:
    time.sleep(60)
x = np.ones(500_000, np.float32)
try:
    for step in range(1_000_000):
        comm.allreduce(x)
        x[:] = 1
        if step == 3:
            say("works")
except dicomm.DicommError as error:
    say("raised", time.clock_gettime(time.CLOCK_MONOTONIC), type(error).__name__, error)
begin = time.monotonic()
comm.close()
say("closed after", time.monotonic() - begin)
"""
OTHERS = (0, 1, 3, 4)


def raised(job: Job, rank: int) -> tuple[float, str, str]:
    match = re.search(r"raised (\S+) (\S+) (.*)", job.output(rank))
    assert match, job.output(rank)
    return float(match[1]), match[2], match[3]


@pytest.mark.parametrize("absent", [True, False], ids=["waiting", "working"])
@pytest.mark.parametrize("brands", LAYOUTS)
def test_a_killed_rank(brands: str, absent: bool) -> None:
    with Job(5, WORK % absent, env={"DICOMM_SIMULATE": brands}) as job:
        for rank in range(5):
            job.wait_for(rank, "ready" if absent else "works")
        time.sleep(0.3)
        killed = time.monotonic()
        job.signal(2, signal.SIGKILL)
        assert job.wait(OTHERS) == [0] * len(OTHERS)
        for rank in OTHERS:
            when, kind, text = raised(job, rank)
            assert kind == "PeerLost", text
            assert "rank 2" in text
            assert when - killed < 1.5, f"rank {rank} knew after {when - killed:.2f} s"
            closing = re.search(r"closed after (\S+)", job.output(rank))
            assert closing, job.output(rank)
            assert float(closing[1]) < 5


def test_a_stopped_rank_is_a_time_out() -> None:
    settings = {"DICOMM_SIMULATE": LAYOUTS[0], "DICOMM_TIMEOUT": "1.5"}
    with Job(5, WORK % False, env=settings) as job:
        for rank in range(5):
            job.wait_for(rank, "works")
        start = time.monotonic()
        job.signal(2, signal.SIGSTOP)
        assert job.wait(OTHERS, timeout=15) == [0] * len(OTHERS)
        assert time.monotonic() - start < 12
        kinds = {raised(job, rank)[1] for rank in OTHERS}
        assert kinds <= {"TimedOut", "Aborted"}
        assert "TimedOut" in kinds
