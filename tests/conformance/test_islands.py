"""Mixed jobs of simulated chips: operation x dtype x reduce op x count x islands, against numpy.

Ranks are threads. A job's islands are given rank by rank; "" is a rank on the host's processors.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import dicomm
from support import reference
from support.cells import OPERATIONS, ops_for, run_cells
from support.ranks import Ranks, jobs_by_rules
from support.reference import same_bits, values

LAYOUTS = {
    "2+2": ("alpha", "alpha", "beta", "beta"),
    "interleaved": ("alpha", "beta", "alpha", "beta"),
    "1+3": ("beta", "alpha", "alpha", "alpha"),
    "2+1+1": ("alpha", "alpha", "beta", "gamma"),
    "3 and the host": ("", "gamma", "gamma", "", "gamma"),
    "one island": ("alpha", "alpha", "alpha"),
    "one island without all": ("gamma", "gamma", "gamma"),
    "alone": ("beta",),
}
# So that small messages go by island too.
BY_ISLAND = ",".join(
    f"{op}:islands" for op in ("broadcast", "allreduce", "reduce", "allgather", "reduce_scatter")
)
COUNTS = (0, 1, 7, 1000, 140001)


def job(layout: tuple[str, ...], **settings: Any) -> Ranks:
    return Ranks(len(layout), each=lambda rank: {"simulate": layout[rank]}, timeout=30.0, **settings)


@pytest.fixture(scope="module", params=LAYOUTS.values(), ids=LAYOUTS)
def jobs(request: pytest.FixtureRequest) -> Iterator[Callable[[str], Ranks]]:
    """jobs(rules): the job of this layout that follows the algorithm rules."""
    with jobs_by_rules(lambda rules: job(request.param, algorithms=rules)) as get:
        yield get


@pytest.mark.parametrize("operation", OPERATIONS)
def test_some_of_everything(jobs: Callable[[str], Ranks], operation: str) -> None:
    """Every dtype and op at one of the counts, and every count, by island whatever the size."""
    counts = itertools.cycle(COUNTS[:-1])
    cells = [(dtype, op, next(counts)) for dtype in reference.DTYPES for op in ops_for(operation, dtype)]
    cells += [("float32", "sum", count) for count in COUNTS] + [("bfloat16", "avg", COUNTS[-1])]
    run_cells(jobs(BY_ISLAND), operation, cells)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_built_in_choice(jobs: Callable[[str], Ranks], operation: str) -> None:
    cells = [(dtype, ops_for(operation, dtype)[0], n) for dtype in ("float32", "float16") for n in COUNTS]
    run_cells(jobs(""), operation, cells)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("rules", [BY_ISLAND, ""], ids=["islands", "built-in"])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_everything(jobs: Callable[[str], Ranks], operation: str, rules: str) -> None:
    cells = [(d, op, n) for d in reference.DTYPES for op in ops_for(operation, d) for n in COUNTS]
    run_cells(jobs(rules), operation, cells)


def test_between_any_two_ranks(jobs: Callable[[str], Ranks]) -> None:
    def exchange(comm: dicomm.Communicator) -> None:
        sent = [values("float32", 50001, comm.rank * 16 + peer) for peer in range(comm.size)]
        got = [np.zeros(50001, np.float32) for _ in range(comm.size)]
        requests = [comm.irecv(got[peer], peer, tag=peer) for peer in range(comm.size)]
        requests += [comm.isend(sent[peer], peer, tag=comm.rank) for peer in range(comm.size)]
        for request in requests:
            request.wait()
        for peer in range(comm.size):
            assert same_bits(got[peer], values("float32", 50001, peer * 16 + comm.rank))

    jobs("").run(exchange)


def test_messages_of_one_tag_keep_their_order(jobs: Callable[[str], Ranks]) -> None:
    """A short one must not overtake a long one that still waits for its bytes from the chip."""

    def follow(comm: dicomm.Communicator) -> None:
        ahead, behind = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
        counts = [200000, 1, 0, 70000, 3] * 3
        got = [np.zeros(count, np.int32) for count in counts]
        requests = [comm.irecv(buffer, behind) for buffer in got]
        requests += [comm.isend(np.full(n, i, np.int32), ahead) for i, n in enumerate(counts)]
        for request in requests:
            request.wait()
        assert all((buffer == i).all() for i, buffer in enumerate(got))

    jobs("").run(follow)


@pytest.mark.parametrize("rules", [BY_ISLAND, ""], ids=["islands", "built-in"])
def test_strided_overlapping_and_in_place(jobs: Callable[[str], Ranks], rules: str) -> None:
    def check(comm: dicomm.Communicator) -> None:
        inputs = [values("float32", 6000, rank).reshape(60, 100) for rank in range(comm.size)]
        want = reference.reduce(inputs, "float32", "sum")
        whole = inputs[comm.rank].copy()
        comm.allreduce(whole)
        assert same_bits(whole, want)
        columns = np.zeros((100, 60), np.float32)
        comm.allreduce(inputs[comm.rank].T, columns)
        assert same_bits(columns, np.ascontiguousarray(want.T))
        memory = np.zeros(6003, np.float32)
        memory[:6000] = inputs[comm.rank].ravel()
        comm.allreduce(memory[:6000], memory[3:])  # shares all but three elements
        assert same_bits(memory[3:], want.ravel())
        blocks = [np.zeros(6000, np.float32) for _ in range(comm.size)]
        comm.allgather(inputs[comm.rank].ravel(), blocks)
        assert all(same_bits(blocks[r], inputs[r].ravel()) for r in range(comm.size))
        own = np.concatenate([x.ravel() for x in inputs]) if comm.rank == 0 else None
        comm.scatter(own, blocks[0])
        assert same_bits(blocks[0], inputs[comm.rank].ravel())

    jobs(rules).run(check)


def test_uneven_blocks(jobs: Callable[[str], Ranks]) -> None:
    def check(comm: dicomm.Communicator) -> None:
        counts = [(rank * 7919) % 60001 * (rank % 3 != 1) for rank in range(comm.size)]
        inputs = [values("float32", n, rank) for rank, n in enumerate(counts)]
        got = [np.zeros(n, np.float32) for n in counts]
        comm.allgather(inputs[comm.rank], got)
        assert all(same_bits(a, b) for a, b in zip(got, inputs, strict=True))
        parts = [
            [values("float32", n, rank * 100 + r) for r, n in enumerate(counts)] for rank in range(comm.size)
        ]
        mine = np.zeros(counts[comm.rank], np.float32)
        comm.reduce_scatter(parts[comm.rank], mine)
        assert same_bits(mine, reference.reduce([p[comm.rank] for p in parts], "float32", "sum"))
        out = [values("float32", (comm.rank + r) % 3 * 9000, comm.rank * 10 + r) for r in range(comm.size)]
        into = [np.zeros((comm.rank + r) % 3 * 9000, np.float32) for r in range(comm.size)]
        comm.alltoall(out, into)
        for r in range(comm.size):
            assert same_bits(into[r], values("float32", (comm.rank + r) % 3 * 9000, r * 10 + comm.rank))

    for rules in (BY_ISLAND, ""):
        jobs(rules).run(check)


def test_many_at_once_and_on_parts(jobs: Callable[[str], Ranks]) -> None:
    def check(comm: dicomm.Communicator) -> None:
        part = comm.split(comm.rank % 2)
        assert part is not None
        with part:
            wholes = [np.full(70000, comm.rank + i, np.float32) for i in range(4)]
            halves = [np.full(70000, comm.rank + i, np.float32) for i in range(4)]
            requests = []
            for whole, half in zip(wholes, halves, strict=True):
                requests += [comm.iallreduce(whole), part.iallreduce(half)]
            for request in requests:
                request.wait()
            everybody, some = range(comm.size), range(comm.rank % 2, comm.size, 2)
            for i in range(4):
                assert (wholes[i] == sum(everybody) + i * comm.size).all()
                assert (halves[i] == sum(some) + i * len(some)).all()

    jobs(BY_ISLAND).run(check)


def test_the_same_bits_on_all_ranks_and_in_all_runs() -> None:
    def run(comm: dicomm.Communicator) -> list[bytes]:
        x = np.random.default_rng(comm.rank).standard_normal(300001).astype(np.float32)
        y = np.empty_like(x)
        results = []
        for _ in range(3):
            comm.allreduce(x, y)
            results.append(y.tobytes())
        return results

    with job(LAYOUTS["2+1+1"]) as ranks:
        results = [result for rank in ranks.run(run) for result in rank]
    assert len(set(results)) == 1


def test_an_island_is_forced_apart() -> None:
    """Two halves of one brand that must not talk through their library, as on one shared chip."""
    words = ("left", "right", "left", "right")
    with Ranks(4, simulate="alpha", each=lambda rank: {"island": words[rank]}) as ranks:

        def check(comm: dicomm.Communicator) -> int:
            x = np.full(100000, comm.rank, np.float32)
            comm.allreduce(x)
            assert (x == 6).all()
            return len(comm.topology.islands)

        assert ranks.run(check) == [2, 2, 2, 2]


def test_different_calls_are_named_on_every_rank() -> None:
    with job(LAYOUTS["2+2"]) as ranks:

        def differ(comm: dicomm.Communicator) -> None:
            x = np.zeros(100000 + (comm.rank == 3), np.float32)
            comm.allreduce(x)

        errors = ranks.errors(differ)
        assert all(isinstance(error, dicomm.DicommError) for error in errors)
        assert any("100001" in str(error) and "100000" in str(error) for error in errors)


def test_abort_frees_ranks_inside_their_library() -> None:
    with job(LAYOUTS["2+2"]) as ranks:

        def leave(comm: dicomm.Communicator) -> None:
            if comm.rank == 1:
                comm.abort("the test says so")
            comm.allreduce(np.zeros(1 << 20, np.float32))

        errors = ranks.errors(leave)
        assert all(isinstance(error, dicomm.Aborted) for error in errors), errors


def test_what_went_to_the_library_and_over_the_chips_edge_is_counted() -> None:
    count = 1 << 17

    def counted(comm: dicomm.Communicator) -> tuple[Any, Any, int]:
        def now() -> tuple[list[int], list[int], int]:
            stats = comm.stats()
            calls, copies = stats["ccl"], stats["context"]["chip"]
            return (
                [calls["calls"], calls["bytes"]] if calls else [],
                [copies["bytes_to_host"], copies["bytes_to_chip"]] if copies else [],
                sum(peer["bytes_sent"] for peer in stats["peers"]),
            )

        x = np.ones(count, np.float32)
        comm.barrier()
        before = now()
        comm.allreduce(x)
        after = now()
        calls, copies = (
            [b - a for a, b in zip(*both, strict=True)] for both in list(zip(before, after, strict=True))[:2]
        )
        return calls, copies, after[2] - before[2]

    whole, half = 4 * count, 2 * count
    with job(LAYOUTS["2+2"]) as ranks:
        for (calls, called), copies, sent in ranks.run(counted):
            # Both islands reduce everything and spread everything; a rank drives half of it.
            assert called == 2 * whole
            assert calls > 0
            assert calls % 2 == 0
            assert copies == [half, half]
            assert sent == half
    with job(LAYOUTS["one island"]) as ranks:
        assert ranks.run(counted) == [([1, whole], [0, 0], 0)] * 3
    with job(("alpha", "", "beta")) as ranks:
        found = ranks.run(counted)
        assert [row[0] for row in found] == [[]] * 3  # no island has two ranks
        assert [row[1] for row in found] == [[whole, whole], [], [whole, whole]]


def test_messages_of_chips_are_counted() -> None:
    with job(("alpha", "beta")) as ranks:

        def exchange(comm: dicomm.Communicator) -> list[int]:
            x = np.ones(1000 + comm.rank, np.float32)
            request = comm.irecv(np.empty(1001, np.float32), 1 - comm.rank)
            comm.send(x, 1 - comm.rank)
            request.wait()
            return list(comm.stats()["context"]["chip"].values())

        assert ranks.run(exchange) == [[4000, 4004], [4004, 4000]]


def test_explain_tells_of_the_encoding() -> None:
    with job(LAYOUTS["2+2"], wire_dtype="bfloat16") as ranks:
        text = ranks.comms[0].explain("allreduce", 1 << 20)
        assert ": encode wire[" in text
        assert f"{1 << 20} bytes; receives {1 << 20} bytes" in text  # half of the elements, 2 bytes each
        assert ": encode wire[" not in ranks.comms[0].explain("allreduce", 1 << 20, reduce="max")


def test_explain_tells_of_the_island() -> None:
    with job(LAYOUTS["2+1+1"]) as ranks:
        first, *_, last = ranks.run(lambda comm: comm.explain("allreduce", 1 << 20))
        assert "4 ranks: islands" in first
        assert "island 0: ranks 0 1; its library" in first
        assert "island reduce" in first
        assert "pass through the host's memory" in last
        small = ranks.run(lambda comm: comm.explain("allreduce", 10, reduce="max"))[0]
        assert "4 ranks: islands" not in small
        with pytest.raises(dicomm.InvalidArgument, match="'maximum' is not one of sum"):
            ranks.comms[0].explain("allreduce", 10, reduce="maximum")


@pytest.mark.parametrize("wire", ["bfloat16", "float16", "float8_e4m3fn", "float8_e5m2"])
@pytest.mark.parametrize("layout", ["2+2", "2+1+1", "3 and the host"])
def test_encoded_on_the_wire(layout: str, wire: str) -> None:
    """Within the encoding's error, the same bits on all ranks, and without drift."""
    error = {"bfloat16": 2**-8, "float16": 2**-11, "float8_e4m3fn": 2**-4, "float8_e5m2": 2**-3}[wire]
    rounds, count = 30, 100001

    def run(comm: dicomm.Communicator) -> tuple[bytes, float, float]:
        inputs = [np.random.default_rng(r).uniform(-1, 1, count).astype(np.float32) for r in range(comm.size)]
        want = np.sum(inputs, axis=0, dtype=np.float64)
        out, total = np.empty(count, np.float32), np.zeros(count)
        for _ in range(rounds):
            comm.allreduce(inputs[comm.rank], out)
            total += out
        exact = np.arange(count, dtype=np.int64)
        comm.allreduce(exact)  # other dtypes cross as they are
        assert (exact == np.arange(count) * comm.size).all()
        return out.tobytes(), float(np.abs(out - want).max()), float(np.abs(total / rounds - want).max())

    with job(LAYOUTS[layout], algorithms=BY_ISLAND, wire_dtype=wire) as ranks:
        results = ranks.run(run)
    assert len({bits for bits, _, _ in results}) == 1
    islands = len(set(LAYOUTS[layout]))
    once = error * len(LAYOUTS[layout]) * islands  # every island's sum is encoded, and the result
    assert 0 < results[0][1] <= 2 * once
    assert results[0][2] <= 4 * once / rounds


def test_ranks_must_agree_on_the_encoding() -> None:
    wires = ("float16", "", "float16", "float16")
    layout = LAYOUTS["2+2"]
    with Ranks(4, each=lambda r: {"simulate": layout[r], "wire_dtype": wires[r]}) as ranks:
        errors = ranks.errors(lambda comm: comm.allreduce(np.zeros(100000, np.float32)))
        assert any(isinstance(error, dicomm.Mismatch) for error in errors), errors
        assert all(isinstance(error, dicomm.DicommError) for error in errors), errors
