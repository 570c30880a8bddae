"""Processes that die, stop or disagree: every other rank knows what happened, in time."""

from __future__ import annotations

import re
import signal
import time

import psutil
import pytest

from support.processes import Job, run_job

pytestmark = pytest.mark.usefixtures("leak_check")

# Waits in an allreduce that rank 2 never joins, and says what came of it and when.
WAIT = """
if comm.rank == 2:
    time.sleep(60)
x = np.ones(%d, np.float32)
try:
    while True:
        comm.allreduce(x)
except dicomm.DicommError as error:
    say("raised", time.clock_gettime(time.CLOCK_MONOTONIC), type(error).__name__, error.peer, error)
comm.close()
say("closed")
"""


def raised(text: str) -> tuple[float, str, str, str]:
    match = re.search(r"raised (\S+) (\S+) (\S+) (.*)", text)
    assert match, text
    return float(match[1]), match[2], match[3], match[4]


@pytest.mark.parametrize("count", [1, 1_000_000])
@pytest.mark.parametrize("size", [3, 5])
def test_every_rank_learns_within_a_second_which_process_died(size: int, count: int) -> None:
    with Job(size, WAIT % count) as job:
        others = [rank for rank in range(size) if rank != 2]
        for rank in range(size):
            job.wait_for(rank, "ready")
        time.sleep(0.3)
        killed = time.monotonic()
        job.signal(2, signal.SIGKILL)
        assert job.wait(others) == [0] * len(others)
        for rank in others:
            when, kind, peer, text = raised(job.output(rank))
            assert (kind, peer) == ("PeerLost", "2"), job.output(rank)
            assert "rank 2" in text
            assert when - killed < 1.0, f"rank {rank} knew after {when - killed:.2f} s"
            assert "closed" in job.output(rank)


def test_a_rank_that_was_idle_learns_too() -> None:
    source = """
    if comm.rank == 1:
        time.sleep(60)
    time.sleep(3)
    try:
        comm.barrier()
    except dicomm.PeerLost as error:
        say("raised", 0, type(error).__name__, error.peer, error)
    """
    with Job(4, source) as job:
        for rank in range(4):
            job.wait_for(rank, "ready")
        job.signal(1, signal.SIGKILL)
        assert job.wait([0, 2, 3]) == [0, 0, 0]
        for rank in (0, 2, 3):
            assert raised(job.output(rank))[1:3] == ("PeerLost", "1")


def test_a_stopped_process_is_a_time_out_that_names_it() -> None:
    with Job(3, WAIT % 10, env={"DICOMM_TIMEOUT": "1.5"}) as job:
        for rank in range(3):
            job.wait_for(rank, "ready")
        job.signal(2, signal.SIGSTOP)
        start = time.monotonic()
        assert job.wait([0, 1], timeout=10) == [0, 0]
        assert time.monotonic() - start < 6
        for rank in (0, 1):
            _, kind, _, text = raised(job.output(rank))
            assert kind in ("TimedOut", "Aborted"), text
            assert "rank 2" in text
        assert "TimedOut" in job.output(0) + job.output(1)


def test_an_exception_in_one_rank_reaches_the_others_with_its_reason() -> None:
    source = """
    with comm:
        if comm.rank == 1:
            raise KeyError("no such layer")
        comm.barrier()
    """
    with Job(3, source) as job:
        codes = job.wait(timeout=10)
        assert all(codes)
        for rank in (0, 2):
            assert re.search(r"Aborted: .*no such layer", job.output(rank)), job.output(rank)


def test_an_uncaught_exception_without_a_with_block_does_too() -> None:
    source = """
    if comm.rank == 1:
        raise KeyError("no such layer")
    comm.barrier()
    """
    with Job(3, source) as job:
        job.wait(timeout=10)
        for rank in (0, 2):
            assert "no such layer" in job.output(rank), job.output(rank)


def test_ctrl_c_ends_a_waiting_rank_at_once() -> None:
    source = """
    try:
        if comm.rank == 0:
            say("waiting")
            comm.recv(np.zeros(1), 1, timeout=float("inf"))
        time.sleep(60)
    except KeyboardInterrupt:
        say("interrupted")
        raise SystemExit(5)
    """
    with Job(2, source) as job:
        job.wait_for(0, "waiting")
        time.sleep(0.2)
        start = time.monotonic()
        for rank in (0, 1):
            job.signal(rank, signal.SIGINT)
        assert job.wait([0], timeout=10) == [5]
        assert time.monotonic() - start < 3
        assert "interrupted" in job.output(0)


@pytest.mark.parametrize("place", ["init", "client", "split"])
def test_ctrl_c_ends_init_and_split_at_once(place: str) -> None:
    source = """
    source, rank = {
        "init": (None, 0),
        "client": ("tcp://127.0.0.1:9", 1),  # nobody serves there
        "split": (None, int(os.environ["DICOMM_RANK"])),
    }["%s"]
    try:
        if source is None and "%s" == "init":
            os.environ["DICOMM_SIZE"] = "3"
        if "%s" == "split":
            comm = dicomm.init()
            say("waiting")
            if rank == 1:
                time.sleep(60)
            comm.split(0)
        else:
            say("waiting")
            dicomm.init(source, rank=rank)
    except KeyboardInterrupt:
        say("interrupted")
        raise SystemExit(5)
    """
    with Job(2, source.replace("%s", place), join=False) as job:
        job.wait_for(0, "waiting")
        time.sleep(0.7)
        start = time.monotonic()
        job.signal(0, signal.SIGINT)
        assert job.wait([0], timeout=15) == [5], job.output(0)
        assert time.monotonic() - start < 3
        assert "interrupted" in job.output(0)


def test_sigterm_ends_a_waiting_rank_at_once() -> None:
    with Job(2, "say('waiting')\nif comm.rank == 0: comm.recv(np.zeros(1), 1)\ntime.sleep(60)") as job:
        job.wait_for(0, "waiting")
        time.sleep(0.2)
        start = time.monotonic()
        job.signal(0, signal.SIGTERM)
        assert job.wait([0], timeout=5) == [-signal.SIGTERM]
        assert time.monotonic() - start < 1


def test_a_waiting_rank_uses_no_processor() -> None:
    source = """
    if comm.rank == 0:
        say("waiting")
        comm.recv(np.zeros(1), 1)
    elif comm.rank == 1:
        time.sleep(60)
    else:
        say("waiting")
        comm.barrier()
    """
    with Job(3, source, env={"DICOMM_TIMEOUT": "60"}) as job:
        watched = []
        for rank in (0, 2):
            job.wait_for(rank, "waiting")
            watched.append(psutil.Process(job.processes[rank].pid))
        watched.append(psutil.Process(job.processes[1].pid))
        time.sleep(0.5)
        before = [sum(p.cpu_times()[:2]) for p in watched]
        time.sleep(4)
        used = [sum(p.cpu_times()[:2]) - b for p, b in zip(watched, before, strict=True)]
        assert max(used) <= 0.04, f"seconds of processor time in 4 s: {used}"


def test_a_normal_end_without_close_is_quiet() -> None:
    outputs = run_job(3, "comm.allreduce(np.ones(5)); comm.iallreduce(np.ones(5))")
    assert [text.strip() for text in outputs] == ["ready"] * 3


def test_a_forked_child_is_told_and_harms_nothing() -> None:
    source = """
    comm.barrier()
    y = np.zeros(1)
    pending = comm.irecv(y, 1 - comm.rank)
    pid = os.fork()
    if pid == 0:
        for call in (comm.barrier, pending.cancel, pending.test, pending.wait):
            try:
                call()
            except dicomm.NotSupported as error:
                say("child", error)
        os._exit(0)
    os.waitpid(pid, 0)
    comm.send(np.full(1, 7.0), 1 - comm.rank)
    pending.wait()
    say("received", y[0])
    x = np.ones(3)
    comm.allreduce(x)
    say("sum", x[0])
    """
    for text in run_job(2, source):
        assert len(re.findall(r"child .*forked child must make its own", text)) == 4, text
        assert "received 7.0" in text
        assert "sum 2.0" in text


def test_nothing_is_inherited_by_programs_that_are_started() -> None:
    source = """
    import subprocess
    comm.barrier()
    command = ["ls", "-l", "/proc/self/fd"]
    listing = subprocess.run(command, capture_output=True, text=True, close_fds=False).stdout
    say("sockets", listing.count("socket:"), "epolls", listing.count("eventpoll"))
    comm.barrier()
    """
    for text in run_job(2, source):
        assert "sockets 0 epolls 0" in text


def test_missing_ranks_are_named_at_init() -> None:
    source = """
    try:
        dicomm.init()
    except dicomm.TimedOut as error:
        say("raised", 0, "TimedOut", error.peer, error)
    """
    job = Job(5, source, join=False, env={"DICOMM_INIT_TIMEOUT": "1.5"})
    try:
        for rank in (0, 2, 4):
            job.environment["DICOMM_RANK"] = str(rank)
            job.start(rank)
        start = time.monotonic()
        assert job.wait([0, 1, 2], timeout=15) == [0, 0, 0]
        assert time.monotonic() - start < 10
        for rank in (0, 2, 4):
            text = raised(job.output(rank))[3]
            assert "1" in text
            assert "3" in text
            assert re.search(r"ranks? 1 and 3|ranks? 1, 3", text), text
    finally:
        job.__exit__(None, None, None)


@pytest.mark.parametrize("size", [2, 4])
def test_a_rank_that_dies_between_writing_and_reading(size: int) -> None:
    """What it has written may still be read, whole; then everybody hears of its death."""
    source = """
    x, y = np.full(100, comm.rank + 1, np.float32), np.zeros(100, np.float32)
    if comm.rank == 1:
        comm.iallreduce(x, y)
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        comm.allreduce(x, y)
        assert (y == sum(range(1, comm.size + 1))).all(), y
        comm.barrier()
    except dicomm.PeerLost as error:
        say("raised", time.clock_gettime(time.CLOCK_MONOTONIC), type(error).__name__, error.peer, error)
    """
    with Job(size, source) as job:
        others = [rank for rank in range(size) if rank != 1]
        job.wait([1])
        died = time.monotonic()
        assert job.wait(others) == [0] * len(others)
        for rank in others:
            when, kind, peer, _ = raised(job.output(rank))
            assert (kind, peer) == ("PeerLost", "1"), job.output(rank)
            assert when - died < 1.0
