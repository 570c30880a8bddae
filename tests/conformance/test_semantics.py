"""What operations mean beyond the plain matrix: strides, v forms, aliasing, bits, threads, dropping."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator

import ml_dtypes
import numpy as np
import pytest

import dicomm
from support.leaks import no_leaks
from support.ranks import Ranks

torch = pytest.importorskip("torch")


@pytest.fixture(
    scope="module",
    params=[(1, "shm"), (3, "shm"), (4, "shm"), (3, "tcp")],
    ids=lambda p: f"{p[0]}ranks-{p[1]}",
)
def ranks(request: pytest.FixtureRequest) -> Iterator[Ranks]:
    size, path = request.param
    with no_leaks(), Ranks(size, eager_bytes=4096, paths=path) as made:
        yield made


def part(sender: int, receiver: int) -> np.ndarray:
    """What one rank sends another in uneven exchanges; some parts are empty."""
    return np.arange((sender * 3 + receiver * 5) % 7, dtype=np.int64) + 100 * sender + 10 * receiver


def test_alltoallv_with_counts_and_with_lists(ranks: Ranks) -> None:
    def exchange(comm: dicomm.Communicator) -> None:
        everyone = range(comm.size)
        send, want = [part(comm.rank, r) for r in everyone], [part(r, comm.rank) for r in everyone]
        got = np.zeros(sum(map(len, want)), np.int64)
        comm.alltoallv(np.concatenate(send), got, [len(x) for x in send], [len(x) for x in want])
        np.testing.assert_array_equal(got, np.concatenate(want))
        lists = [np.zeros_like(x) for x in want]
        comm.alltoallv(send, lists)
        for a, b in zip(lists, want, strict=True):
            np.testing.assert_array_equal(a, b)

    ranks.run(exchange)


def test_the_root_of_a_broadcast_only_reads_its_buffer(ranks: Ranks) -> None:
    def spread(comm: dicomm.Communicator) -> None:
        buffer = np.full(5, comm.rank, np.int32)
        buffer.flags.writeable = comm.rank != 0
        comm.broadcast(buffer)
        comm.broadcast([buffer])
        np.testing.assert_array_equal(buffer, np.zeros(5, np.int32))

    ranks.run(spread)


def test_uneven_gathers_and_scatters(ranks: Ranks) -> None:
    def uneven(comm: dicomm.Communicator) -> None:
        counts = [(3 * r + 1) % 5 for r in range(comm.size)]
        pieces = [np.arange(n, dtype=np.float32) + 10 * r for r, n in enumerate(counts)]
        whole, mine, root = np.concatenate(pieces), pieces[comm.rank], comm.size - 1
        got = np.zeros_like(whole)
        comm.allgatherv(mine, got, counts)
        np.testing.assert_array_equal(got, whole)
        lists = [np.zeros_like(x) for x in pieces]
        comm.allgatherv(mine, lists)
        np.testing.assert_array_equal(np.concatenate(lists), whole)
        got[:] = 0
        comm.gatherv(mine, got, counts, root)
        np.testing.assert_array_equal(got, whole if comm.rank == root else np.zeros_like(whole))
        back = np.zeros_like(mine)
        comm.scatterv(whole if comm.rank == root else None, back, counts, root)
        np.testing.assert_array_equal(back, mine)
        back[:] = 0
        comm.reduce_scatterv(whole, back, counts)
        np.testing.assert_array_equal(back, mine * comm.size)
        back[:] = 0
        comm.reduce_scatterv(pieces, back)
        np.testing.assert_array_equal(back, mine * comm.size)

    ranks.run(uneven)


def test_counts_cut_one_dimensional_strided_buffers(ranks: Ranks) -> None:
    def cut(comm: dicomm.Communicator) -> None:
        counts = [r + 1 for r in range(comm.size)]
        mine = np.full(comm.rank + 1, comm.rank, np.int32)
        got = np.full(2 * sum(counts), -1, np.int32)
        comm.allgatherv(mine, got[::2], counts)
        np.testing.assert_array_equal(got[::2], np.repeat(np.arange(comm.size), counts))
        assert (got[1::2] == -1).all()

    ranks.run(cut)


def test_layouts_may_differ_between_ranks(ranks: Ranks) -> None:
    def layouts(comm: dicomm.Communicator) -> None:
        logical = torch.arange(60.0).reshape(3, 4, 5) * (comm.rank + 1)
        forms = [
            lambda: logical.clone(),
            lambda: logical.permute(2, 0, 1).contiguous().permute(1, 2, 0),
            lambda: torch.zeros(3, 4, 15)[:, :, ::3].copy_(logical),
            lambda: torch.zeros(5, 4, 3).transpose(0, 2).copy_(logical),
        ]
        tensor = forms[comm.rank % 4]()
        comm.allreduce(tensor)
        want = torch.arange(60.0).reshape(3, 4, 5) * sum(range(1, comm.size + 1))
        assert torch.equal(tensor, want)
        gathered = torch.zeros(comm.size * 3, 4, 5)
        comm.allgather(forms[comm.rank % 4](), gathered)
        assert torch.equal(gathered[-3:], torch.arange(60.0).reshape(3, 4, 5) * comm.size)

    ranks.run(layouts)


def test_expanded_conjugated_and_negated_inputs(ranks: Ranks) -> None:
    def lazy(comm: dicomm.Communicator) -> None:
        out = torch.zeros(4, 3)
        comm.allreduce(torch.tensor([1.0, 2.0, 3.0]).expand(4, 3), out)
        assert torch.equal(out, torch.tensor([1.0, 2.0, 3.0]).expand(4, 3) * comm.size)
        value = torch.tensor([1 + 2j, 3 - 4j])
        total = torch.zeros(2, dtype=torch.complex64)
        comm.allreduce(value.conj(), total)
        assert torch.equal(total, value.conj().resolve_conj() * comm.size)
        imaginary = torch.zeros(2)
        comm.allreduce(value.conj().imag, imaginary)
        assert torch.equal(imaginary, torch.tensor([-2.0, 4.0]) * comm.size)

    ranks.run(lazy)


def test_input_and_output_may_overlap(ranks: Ranks) -> None:
    def overlapping(comm: dicomm.Communicator) -> None:
        size, rank = comm.size, comm.rank
        whole = np.zeros(4 * size, np.int64)
        mine = whole[4 * rank : 4 * rank + 4]
        mine[:] = rank
        comm.allgather(mine, whole)
        np.testing.assert_array_equal(whole, np.repeat(np.arange(size), 4))
        comm.reduce_scatter(whole, whole[4 * rank :][:4])
        np.testing.assert_array_equal(whole[4 * rank :][:4], rank * size)
        table = np.arange(2 * size) + 1000 * rank
        comm.alltoall(table, table)
        np.testing.assert_array_equal(table[::2], 1000 * np.arange(size) + 2 * rank)
        shifted = np.arange(1001, dtype=np.float32)
        comm.allreduce(shifted[:-1], shifted[1:])
        np.testing.assert_array_equal(shifted[1:], np.arange(1000, dtype=np.float32) * size)

    ranks.run(overlapping)


def test_zero_sizes(ranks: Ranks) -> None:
    def nothing(comm: dicomm.Communicator) -> None:
        empty = torch.zeros(0)
        comm.allreduce(empty)
        comm.broadcast(torch.zeros(0, 3))
        comm.allgather(empty, torch.zeros(0))
        comm.alltoallv(empty, torch.zeros(0), [0] * comm.size, [0] * comm.size)
        comm.reduce_scatter(torch.zeros(0), empty)

    ranks.run(nothing)


@pytest.mark.parametrize("count", [7, 5000, 300_000])
def test_every_rank_gets_the_same_bits_and_the_same_run_gives_them_again(ranks: Ranks, count: int) -> None:
    def bits(comm: dicomm.Communicator) -> list[bytes]:
        values = np.random.default_rng([comm.rank, count]).standard_normal(count)
        found = []
        for dtype in (np.float32, np.float16, ml_dtypes.bfloat16, np.float64):
            for _ in range(2):
                out = values.astype(dtype)
                comm.allreduce(out)
                found.append(out.tobytes())
        return found

    results = ranks.run(bits)
    assert all(result == results[0] for result in results)
    assert all(results[0][i] == results[0][i + 1] for i in range(0, 8, 2))


def test_small_floats_round_once(ranks: Ranks) -> None:
    """1 + n/256 ulp steps vanish when every partial sum is rounded to bfloat16."""

    def tiny(comm: dicomm.Communicator) -> None:
        value = np.array([1.0 if comm.rank == 0 else 2.0**-8 * 1.5], ml_dtypes.bfloat16).repeat(33)
        comm.allreduce(value)
        exact = 1.0 + (comm.size - 1) * 2.0**-8 * 1.5
        assert value.tobytes() == np.full(33, exact, np.float32).astype(ml_dtypes.bfloat16).tobytes()

    ranks.run(tiny)


def test_nan_propagates_and_integers_wrap(ranks: Ranks) -> None:
    def special(comm: dicomm.Communicator) -> None:
        last = comm.size - 1
        for op in ("min", "max"):
            value = np.array([np.nan if comm.rank == last else 1.0, float(comm.rank)], np.float32)
            comm.allreduce(value, op=op)
            assert np.isnan(value[0])
            assert value[1] == (0 if op == "min" else last)
        byte = np.array([200], np.uint8)
        comm.allreduce(byte)
        assert byte[0] == 200 * comm.size % 256

    ranks.run(special)


@pytest.mark.parametrize("factor", [0.5, np.array([0.5], np.float32), torch.tensor([0.5])])
def test_premul_sum_factor(ranks: Ranks, factor: object) -> None:
    def premul(comm: dicomm.Communicator) -> None:
        value = np.full(100, comm.rank + 1.0, np.float32)
        comm.allreduce(value, op="premul_sum", factor=factor)
        np.testing.assert_array_equal(value, 0.5 * sum(range(1, comm.size + 1)))

    ranks.run(premul)


def test_requests_and_buffers_may_be_dropped_at_once(ranks: Ranks) -> None:
    def drop(comm: dicomm.Communicator) -> None:
        other = (comm.rank + 1) % comm.size
        for i in range(200):
            comm.isend(np.full(20_000, i, np.int32), other, tag=1)
            comm.iallreduce(np.full(1000, i, np.int64))
        gc.collect()
        got = np.zeros(20_000, np.int32)
        for i in range(200):
            comm.recv(got, (comm.rank - 1) % comm.size, tag=1)
            assert (got == i).all()
        comm.barrier()
        comm._sweep()
        assert not comm._inflight

    ranks.run(drop)


def test_nonblocking_collectives_complete_in_any_order_of_waiting(ranks: Ranks) -> None:
    def many(comm: dicomm.Communicator) -> None:
        values = [np.full(100 * (i + 1), comm.rank + i, np.int64) for i in range(20)]
        requests = [comm.iallreduce(value) for value in values]
        for request in reversed(requests):
            request.wait()
        for i, value in enumerate(values):
            assert (value == sum(range(comm.size)) + i * comm.size).all()

    ranks.run(many)


def test_split_and_dup(ranks: Ranks) -> None:
    def splitting(comm: dicomm.Communicator) -> None:
        reversed_ = comm.split(0, -comm.rank)
        assert reversed_ is not None
        assert (reversed_.rank, reversed_.size) == (comm.size - 1 - comm.rank, comm.size)
        half = comm.split(comm.rank % 2, name="half")
        assert half is not None
        members = [r for r in range(comm.size) if r % 2 == comm.rank % 2]
        assert (half.size, half.rank, half.name) == (len(members), members.index(comm.rank), "half")
        assert half.allgather_object(comm.rank) == members
        none = comm.split(None if comm.rank == 0 else 1)
        assert (none is None) == (comm.rank == 0)
        with comm.dup() as other:
            mine, theirs = np.ones(1), np.full(1, 2.0)
            first, second = comm.iallreduce(mine), other.iallreduce(theirs)
            second.wait()
            first.wait()
            assert (mine[0], theirs[0]) == (comm.size, 2 * comm.size)
        assert comm.allgather_object("alive") == ["alive"] * comm.size
        for made in (reversed_, half, none):
            if made is not None:
                made.close()

    ranks.run(splitting)


def test_threads_on_different_communicators_are_independent(ranks: Ranks) -> None:
    def threads(comm: dicomm.Communicator) -> None:
        comms = [comm.dup() for _ in range(3)]
        failures: list[BaseException] = []

        def work(mine: dicomm.Communicator, salt: int) -> None:
            try:
                for i in range(50):
                    value = np.full(50 + 97 * i, salt + i, np.int64)
                    mine.allreduce(value)
                    assert (value == (salt + i) * mine.size).all()
            except BaseException as error:
                failures.append(error)

        workers = [threading.Thread(target=work, args=(c, 100 * i)) for i, c in enumerate(comms)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(30)
        assert not failures
        for made in comms:
            made.close()

    ranks.run(threads)


def test_objects(ranks: Ranks) -> None:
    def objects(comm: dicomm.Communicator) -> None:
        value = {"rank": comm.rank, "data": np.arange(comm.rank * 3000.0), "t": (1, b"x", None)}
        everything = comm.allgather_object(value)
        assert [v["rank"] for v in everything] == list(range(comm.size))
        assert all(v["data"].size == 3000 * r for r, v in enumerate(everything))
        root = comm.size - 1
        assert comm.broadcast_object(("hello", comm.rank), root) == ("hello", root)
        gathered = comm.gather_object(comm.rank, root)
        assert gathered == (list(range(comm.size)) if comm.rank == root else None)
        assert comm.scatter_object([10 * r for r in range(comm.size)], root) == 10 * comm.rank
        following = (comm.rank + 1) % comm.size
        sender = threading.Thread(
            target=lambda: [comm.send_object([i, "x" * 10_000 * i], following, tag=4) for i in range(3)]
        )
        sender.start()
        for i in range(3):
            assert comm.recv_object(tag=4) == [i, "x" * 10_000 * i]
        sender.join(10)

    ranks.run(objects)


def test_pickle_is_refused_unless_allowed() -> None:
    def refused(comm: dicomm.Communicator) -> None:
        if comm.rank == 0:
            comm.allow_pickle = True
            comm.send_object({1, 2, frozenset([3])}, 1)
        else:
            with pytest.raises(dicomm.NotSupported, match="rank 0 sent a pickled object"):
                comm.recv_object(0)

    with Ranks(2) as made:
        made.run(refused)

    def allowed(comm: dicomm.Communicator) -> None:
        assert comm.broadcast_object(frozenset([3])) == frozenset([3])

    with Ranks(2, allow_pickle=True) as made:
        made.run(allowed)


def test_stats_and_explain(ranks: Ranks) -> None:
    def tools(comm: dicomm.Communicator) -> None:
        comm.allreduce(np.zeros(1000))
        stats = comm.stats()
        assert (stats["rank"], stats["size"]) == (comm.rank, comm.size)
        assert stats["failed"] is None
        assert stats["context"]["address"]
        assert "allreduce" in comm.explain()
        assert "allreduce" in comm.explain("allreduce", 1 << 20, np.float32)
        with pytest.raises(dicomm.InvalidArgument, match="allsum"):
            comm.explain("allsum")

    ranks.run(tools)
