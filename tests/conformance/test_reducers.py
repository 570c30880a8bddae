"""Ranks that only help to reduce: the matrix of allreduce and reduce against numpy, started or served."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import dicomm
import namespaces
from support import reference
from support.cells import OPERATIONS, Cell, ops_for, run_cells
from support.leaks import no_leaks
from support.processes import Job
from support.ranks import Ranks, jobs_by_rules
from support.reference import same_bits, values

# A word per rank: the brand of its chip, "" for the host's processors; with "*" it is a reducer.
LAYOUTS = {
    "2+1": ("", "", "*"),
    "1+3": ("*", "", "", ""),
    "alone": ("", "*"),
    "among": ("", "*", "", "*", "", "*", "*"),
    "islands": ("alpha", "*", "alpha", "beta", "beta"),
    "one island": ("alpha", "alpha", "*"),
    "slow chips": ("alpha", "beta", "alpha*", "beta", "gamma*"),
}
# The matrices' layouts; those that show least beyond the others run with -m slow.
MATRIX = [
    pytest.param(layout, id=name, marks=[pytest.mark.slow] if name in ("1+3", "alone", "one island") else [])
    for name, layout in LAYOUTS.items()
]
COUNTS = (0, 1, 7, 1000, 140001)
BY_REDUCERS = "allreduce:reducers_islands,reduce:reducers_islands,allreduce:reducers,reduce:reducers"
BY_WORKERS = "allreduce:workers,reduce:workers"
RULES = {"built-in": "", "reducers": BY_REDUCERS, "workers": BY_WORKERS}


def job(layout: tuple[str, ...], **settings: Any) -> Ranks:
    def each(rank: int) -> dict[str, str]:
        role = "reducer" if layout[rank].endswith("*") else "worker"
        return {"simulate": layout[rank].rstrip("*"), "role": role}

    return Ranks(len(layout), each=each, timeout=30.0, **settings)


def workers_of(comm: dicomm.Communicator) -> list[int]:
    return [rank.rank for rank in comm.topology.ranks if rank.chip.role == "worker"]


def check(comm: dicomm.Communicator, operation: str, dtype: str, op: str, count: int) -> str:
    """One cell on one worker, as support.cells has it; reducers start it too."""
    workers = workers_of(comm)
    root = workers[count % len(workers)]
    run = {"allreduce": comm.allreduce, "reduce": lambda *args, **more: comm.reduce(*args, root=root, **more)}
    if comm.role == "reducer":
        run[operation](dicomm.NoBuffer(count, dtype), op=op)
        return ""
    inputs = {rank: values(dtype, count, rank, op) for rank in workers}
    mine = inputs[comm.rank].copy()
    got = np.zeros_like(mine)
    run[operation](mine, got, op=op, factor=reference.FACTOR if op == "premul_sum" else None)
    want = np.zeros_like(mine)
    if operation == "allreduce" or comm.rank == root:
        want = reference.reduce(list(inputs.values()), dtype, op)
    cell = f"{operation} {dtype} {op} x{count} on rank {comm.rank}"
    if not same_bits(got, want):
        return f"{cell}: {got[:8]} instead of {want[:8]}"
    return "" if same_bits(mine, inputs[comm.rank]) else f"{cell}: the input was changed"


def cells_of(operation: str) -> list[Cell]:
    """Every dtype and op at one of the counts, and every count."""
    counts = itertools.cycle(COUNTS[:-1])
    cells = [(dtype, op, next(counts)) for dtype in reference.DTYPES for op in ops_for(operation, dtype)]
    cells += [("float32", "sum", count) for count in COUNTS]
    return cells + [
        (dtype, op, COUNTS[-1]) for dtype in ("bfloat16", "int32") for op in ("avg", "premul_sum")
    ]


@pytest.fixture(scope="module", params=MATRIX)
def jobs(request: pytest.FixtureRequest) -> Iterator[Callable[[str], Ranks]]:
    """jobs(rules): the job of this layout that follows the algorithm rules."""
    with jobs_by_rules(lambda rules: job(request.param, algorithms=rules)) as get:
        yield get


@pytest.mark.parametrize("rules", RULES.values(), ids=RULES)
@pytest.mark.parametrize("operation", ["allreduce", "reduce"])
def test_matrix(jobs: Callable[[str], Ranks], operation: str, rules: str) -> None:
    cells = cells_of(operation)

    def run(comm: dicomm.Communicator) -> list[str]:
        return [text for cell in cells if (text := check(comm, operation, *cell))]

    wrong = list(itertools.chain.from_iterable(jobs(rules).run(run)))
    assert not wrong, "\n".join(wrong[:10])


@pytest.mark.parametrize("layout", MATRIX)
def test_matrix_served(layout: tuple[str, ...]) -> None:
    """The reducers know nothing of what the workers do; these leave when they are done."""
    cells = [(operation, cell) for operation in ("allreduce", "reduce") for cell in cells_of(operation)]

    def run(comm: dicomm.Communicator) -> list[str]:
        if comm.role == "reducer":
            comm.serve()
            return []
        wrong = [text for operation, cell in cells if (text := check(comm, operation, *cell))]
        comm.barrier()
        comm.close()
        return wrong

    with no_leaks(), job(layout) as ranks:
        wrong = list(itertools.chain.from_iterable(ranks.run(run)))
    assert not wrong, "\n".join(wrong[:10])


@pytest.mark.parametrize("operation", [op for op in OPERATIONS if op not in ("allreduce", "reduce")])
def test_a_reducer_is_a_rank_like_any_other_elsewhere(jobs: Callable[[str], Ranks], operation: str) -> None:
    cells = [(dtype, ops_for(operation, dtype)[0], n) for dtype in ("float32", "float16") for n in COUNTS]
    run_cells(jobs(""), operation, cells)


@pytest.mark.parametrize("rules", RULES.values(), ids=RULES)
def test_in_place_strided_and_many_at_once(jobs: Callable[[str], Ranks], rules: str) -> None:
    def run(comm: dicomm.Communicator) -> None:
        shapes = [(60, 100), (300, 700), (1, 1), (0, 5), (2, 3)]
        inputs = [
            [values("float32", a * b, r * 10).reshape(a, b) for r in workers_of(comm)] for a, b in shapes
        ]
        if comm.role == "reducer":
            requests = [comm.iallreduce(dicomm.NoBuffer(a * b), op="avg") for a, b in shapes]
        else:
            place = workers_of(comm).index(comm.rank)
            mine = [rows[place].copy() for rows in inputs]
            columns = [np.zeros(x.shape, np.float32, "F") for x in mine]
            requests = [comm.iallreduce(x, y, op="avg") for x, y in zip(mine, columns, strict=True)]
        for request in reversed(requests):
            request.wait()
        if comm.role == "reducer":
            comm.allreduce(dicomm.NoBuffer(6000))
            return
        for rows, y in zip(inputs, columns, strict=True):
            assert same_bits(np.ascontiguousarray(y), reference.reduce(rows, "float32", "avg"))
        whole = inputs[0][place].copy()
        comm.allreduce(whole)
        assert same_bits(whole, reference.reduce(inputs[0], "float32", "sum"))

    jobs(rules).run(run)


def test_the_same_bits_on_all_ranks_and_in_all_runs() -> None:
    def run(comm: dicomm.Communicator) -> list[bytes]:
        x = np.random.default_rng(comm.rank).standard_normal(300001).astype(np.float32)
        results = []
        for _ in range(3):
            y = np.empty_like(x)
            comm.allreduce(*(dicomm.NoBuffer(x.size),) if comm.role == "reducer" else (x, y))
            results.append(y.tobytes())
        return [] if comm.role == "reducer" else results

    with job(LAYOUTS["slow chips"]) as ranks:
        results = [result for rank in ranks.run(run) for result in rank]
    assert len(results) == 9
    assert len(set(results)) == 1


@pytest.mark.parametrize(
    ("workers", "reducers", "factor"), [(3, 3, 1.0), (3, 1, 1.2), (4, 2, 1.2), (2, 4, 1.0)]
)
def test_what_workers_send_and_receive(workers: int, reducers: int, factor: float) -> None:
    """Of S bytes: 2 n (n - 1) / (n n + k n - 2 k) with k < n reducers, S with more. 2 (n - 1) / n without."""
    count = 3 << 20

    def run(comm: dicomm.Communicator) -> tuple[int, int]:
        def now() -> tuple[int, int]:
            peers = [peer for peer in comm.stats()["peers"] if peer["rank"] != comm.rank]
            return sum(p["bytes_sent"] for p in peers), sum(p["bytes_received"] for p in peers)

        comm.barrier()
        before = now()
        buffer = np.ones(count, np.float32)
        comm.allreduce(dicomm.NoBuffer(count) if comm.role == "reducer" else buffer)
        after = now()
        assert comm.role == "reducer" or (buffer == workers).all()
        return after[0] - before[0], after[1] - before[1]

    with job(("",) * workers + ("*",) * reducers) as ranks:
        found = ranks.run(run)
    for rank in range(workers):
        assert found[rank] == pytest.approx((factor * 4 * count,) * 2, rel=0.01)


def test_what_does_not_go_together_is_refused_before_anything_is_sent() -> None:
    x, nothing = np.ones(10, np.float32), dicomm.NoBuffer(10)

    def run(comm: dicomm.Communicator) -> None:
        with pytest.raises(dicomm.InvalidArgument, match="root 2 is a reducer"):
            comm.reduce(nothing if comm.role == "reducer" else x, root=2)
        if comm.role == "reducer":
            for send, recv in ((x, None), (nothing, x), (None, None)):
                with pytest.raises(dicomm.InvalidArgument, match="this rank is a reducer"):
                    comm.allreduce(send, recv)
            with pytest.raises(dicomm.InvalidArgument, match="argument send"):
                comm.allreduce(dicomm.NoBuffer("ten"))  # type: ignore[arg-type]
        else:
            with pytest.raises(dicomm.InvalidArgument, match="null address"):
                comm.allreduce(nothing)
            with pytest.raises(dicomm.InvalidArgument, match="send has 0 blocks"):
                comm.allreduce(None)
            with pytest.raises(dicomm.InvalidArgument, match=r"rank \d is a worker"):
                comm.serve()
        y = x.copy()
        comm.allreduce(nothing if comm.role == "reducer" else y)  # the communicator is unharmed
        assert (y == (1 if comm.role == "reducer" else 2)).all()

    with job(LAYOUTS["2+1"]) as ranks:
        ranks.run(run)

    def without_workers(comm: dicomm.Communicator) -> None:
        with pytest.raises(dicomm.InvalidArgument, match="every rank is a reducer"):
            comm.allreduce(nothing)
        with pytest.raises(dicomm.InvalidArgument, match="nobody to serve"):
            comm.serve()
        total = np.zeros(2, np.int32)
        comm.allgather(np.full(1, comm.rank, np.int32), total)
        assert total.tolist() == [0, 1]

    with job(("*", "*")) as ranks:
        ranks.run(without_workers)


def test_what_ranks_are_is_seen_in_parts() -> None:
    """A communicator made by split has the reducers that are in it."""

    def run(comm: dicomm.Communicator) -> None:
        part = comm.split(comm.rank % 2)
        assert part is not None
        with part:
            assert part.role == comm.role
            if part.role == "reducer":
                part.serve()
                return
            for count in (1, 100_000):
                x = np.full(count, comm.rank, np.float32)
                part.allreduce(x)
                assert (x == sum(range(comm.rank % 2, 4, 2))).all()

    with job(("", "", "", "", "*")) as ranks:
        ranks.run(run)


def test_serving_twice_on_one_communicator_one_after_the_other() -> None:
    """Operations that a reducer starts itself, and those it serves, count as one sequence."""

    def run(comm: dicomm.Communicator) -> int:
        x = np.ones(1000, np.float32)
        comm.allreduce(dicomm.NoBuffer(1000) if comm.role == "reducer" else x)
        part = comm.dup()
        if comm.role == "reducer":
            part.serve()
        else:
            part.allreduce(x)
        part.close()
        comm.barrier()
        if comm.role == "reducer":
            comm.serve()
            return int(comm.stats()["seq"])
        for _ in range(100):
            comm.allreduce(x, op="max")
        comm.close()
        return 0

    with job(LAYOUTS["2+1"]) as ranks:
        assert ranks.run(run)[2] == 103


def test_explain_names_the_algorithm() -> None:
    with job(LAYOUTS["2+1"]) as ranks:
        worker, _, reducer = ranks.run(lambda comm: comm.explain("allreduce", 1 << 20))
        assert "3 ranks: reducers\n" in worker
        assert "rank 2: sends" in reducer
        small = ranks.run(lambda comm: comm.explain("reduce", 10))[2]
        assert "3 ranks: workers\n" in small
        assert "3 ranks: reducers" not in ranks.comms[0].explain("allgather", 1 << 20)
    with job(LAYOUTS["islands"]) as ranks:
        text = ranks.comms[0].explain("allreduce", 1 << 20)
        assert "5 ranks: reducers_islands" in text
        assert "island reduce" in text


def test_a_reducer_that_waits_uses_no_cpu() -> None:
    source = """
    if comm.role == "reducer":
        start = time.process_time()
        comm.serve()
        say("used", time.process_time() - start)
    else:
        time.sleep(3)
        comm.allreduce(np.ones(10, np.float32))
    """
    with Job(2, source, launch=lambda rank: ["env", "DICOMM_ROLE=reducer"] * rank) as ranks:
        assert ranks.wait() == [0, 0]
        used = float(ranks.output(1).split("used")[1])
    assert used < 0.15, f"{used} s of 3"


@pytest.mark.skipif(namespaces.missing() != "", reason=namespaces.missing())
def test_on_hosts_of_their_own() -> None:
    """Two workers on one host, one worker and a reducer on another: sums cross, not what they are of."""
    count = 1 << 20
    source = f"""
    if comm.role == "reducer":
        comm.serve()
        sys.exit()
    for _ in range(3):
        x = np.arange({count}, dtype=np.float32) % 97 + comm.rank
        comm.allreduce(x)
        assert (x == (np.arange({count}, dtype=np.float32) % 97) * 3 + 3).all()
    sent = sum(p["bytes_sent"] for p in comm.stats()["peers"] if p["rank"] >= 2)
    comm.close()
    say("sent", sent)
    """
    with namespaces.two_hosts() as hosts:
        place = [hosts[0], hosts[0], hosts[1], hosts[1]]

        def launch(rank: int) -> list[str]:
            role = "reducer" if rank == 3 else "worker"
            return ["ip", "netns", "exec", place[rank], "env", f"DICOMM_ROLE={role}"]

        env = {"DICOMM_INIT": "tcp://198.51.100.1:29471", "DICOMM_INTERFACE": ""}
        with Job(4, source, env=env, launch=launch) as ranks:
            assert ranks.wait(timeout=60) == [0] * 4
            sent = [int(ranks.output(rank).split("sent")[1]) for rank in (0, 1)]
    assert sum(sent) == pytest.approx(3 * 4 * count, rel=0.02)
