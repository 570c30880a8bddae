"""Tags, order, any source, self-sends, the eager/rendezvous boundary, truncation, large messages."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import numpy as np
import pytest

import dicomm
from support.leaks import no_leaks
from support.ranks import Ranks

EAGER = 4096


@pytest.fixture(scope="module", params=["shm", "tcp"])
def pair(request: pytest.FixtureRequest) -> Iterator[Ranks]:
    with no_leaks(), Ranks(2, eager_bytes=EAGER, paths=request.param) as ranks:
        yield ranks


@pytest.fixture(scope="module")
def four() -> Iterator[Ranks]:
    with no_leaks(), Ranks(4, eager_bytes=EAGER, sockets_per_peer=3, paths="tcp") as ranks:
        yield ranks


def pattern(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([count, seed]).integers(0, 256, count).astype(np.uint8)


@pytest.mark.parametrize(
    "count", [0, 1, 63, 64, EAGER - 1, EAGER, EAGER + 1, 2 * EAGER, 1 << 20, (1 << 22) + 3, 64 << 20]
)
def test_sizes_across_the_protocols(pair: Ranks, count: int) -> None:
    def exchange(comm: dicomm.Communicator) -> None:
        other = 1 - comm.rank
        got = np.zeros(count, np.uint8)
        receive = comm.irecv(got, other, tag=count)
        comm.send(pattern(count, comm.rank), other, tag=count)
        receive.wait()
        assert (receive.source, receive.bytes) == (other, count)
        np.testing.assert_array_equal(got, pattern(count, other))

    pair.run(exchange)


def test_messages_of_one_tag_keep_their_order(four: Ranks) -> None:
    sizes = [8, 3 * EAGER, 8, EAGER + 1, 1 << 20, 16, 0, 8]

    def stream(comm: dicomm.Communicator) -> None:
        peers = [r for r in range(comm.size) if r != comm.rank]
        sent = [comm.isend(pattern(n, i), peer, tag=9) for i, n in enumerate(sizes) for peer in peers]
        for peer in peers:
            for i, n in enumerate(sizes):
                got = np.zeros(n, np.uint8)
                assert comm.recv(got, peer, tag=9) == (peer, n)
                np.testing.assert_array_equal(got, pattern(n, i))
        dicomm.wait_all(sent)

    four.run(stream)


@pytest.mark.parametrize("count", [16, 8 * EAGER])
def test_tags_select_messages(pair: Ranks, count: int) -> None:
    tags = [0, 1, 2**62 - 1, 7]

    def by_tag(comm: dicomm.Communicator) -> None:
        if comm.rank == 0:
            dicomm.wait_all([comm.isend(pattern(count, i), 1, tag) for i, tag in enumerate(tags)])
        else:
            for i in reversed(range(len(tags))):
                got = np.zeros(count, np.uint8)
                comm.recv(got, 0, tags[i])
                np.testing.assert_array_equal(got, pattern(count, i))

    pair.run(by_tag)


@pytest.mark.parametrize("count", [8, 5 * EAGER])
def test_any_source(four: Ranks, count: int) -> None:
    def gather(comm: dicomm.Communicator) -> None:
        if comm.rank != 0:
            for i in range(5):
                comm.send(pattern(count, 10 * comm.rank + i), 0, tag=3)
            return
        seen = {1: 0, 2: 0, 3: 0}
        for _ in range(15):
            got = np.zeros(count, np.uint8)
            source, size = comm.recv(got, tag=3)
            assert size == count
            np.testing.assert_array_equal(got, pattern(count, 10 * source + seen[source]))
            seen[source] += 1
        assert seen == {1: 5, 2: 5, 3: 5}

    four.run(gather)


@pytest.mark.parametrize("count", [0, 5, 100 * EAGER])
def test_self_sends(four: Ranks, count: int) -> None:
    def to_self(comm: dicomm.Communicator) -> None:
        first = comm.isend(pattern(count, 1), comm.rank, tag=1)
        second = comm.isend(pattern(count, 2), comm.rank, tag=2)
        for tag in (2, 1):
            got = np.zeros(count, np.uint8)
            assert comm.recv(got, comm.rank if tag == 1 else dicomm.ANY_SOURCE, tag).source == comm.rank
            np.testing.assert_array_equal(got, pattern(count, tag))
        dicomm.wait_all([first, second])

    four.run(to_self)


@pytest.mark.parametrize("count", [100, 10 * EAGER])
def test_a_longer_message_is_truncated_with_an_error_and_nothing_more(pair: Ranks, count: int) -> None:
    def truncated(comm: dicomm.Communicator) -> None:
        if comm.rank == 0:
            send = comm.isend(pattern(count), 1, tag=5)
            comm.send(pattern(4, 1), 1, tag=5)
            try:
                send.wait()
            except dicomm.Truncated:
                assert count > EAGER  # an eager send has left before anybody knows
            return
        got = np.full(count // 2 + 8, 255, np.uint8)
        with pytest.raises(dicomm.Truncated) as caught:
            comm.recv(got[: count // 2], 0, tag=5)
        assert caught.value.peer == 0
        assert (got[count // 2 :] == 255).all()
        comm.recv(got[:4], 0, tag=5)  # the next message is as good as ever
        np.testing.assert_array_equal(got[:4], pattern(4, 1))

    pair.run(truncated)


@pytest.mark.parametrize("count", [3, EAGER])
def test_a_shorter_message_fills_the_front(pair: Ranks, count: int) -> None:
    def shorter(comm: dicomm.Communicator) -> None:
        if comm.rank == 0:
            comm.send(pattern(count), 1)
        else:
            got = np.zeros(2 * count, np.uint8)
            assert comm.recv(got).bytes == count
            np.testing.assert_array_equal(got[:count], pattern(count))
            assert not got[count:].any()

    pair.run(shorter)


def test_strided_buffers(pair: Ranks) -> None:
    def strided(comm: dicomm.Communicator) -> None:
        grid = np.arange(600.0).reshape(20, 30)
        if comm.rank == 0:
            comm.send(grid[::2, ::-3], 1)
        else:
            got = np.zeros((10, 40))
            comm.recv(got.T[::4], 0)
            np.testing.assert_array_equal(got.T[::4], grid[::2, ::-3].reshape(10, 10))
            assert not got.T[1::4].any()

    pair.run(strided)


def test_wait_any_and_cancel(pair: Ranks) -> None:
    def waiting(comm: dicomm.Communicator) -> None:
        if comm.rank == 0:
            comm.recv(np.zeros(1, np.uint8), 1, tag=1)
            comm.send(b"x", 1, tag=3)
            return
        buffers = np.zeros(3, np.uint8)
        receives = [comm.irecv(buffers[i : i + 1], 0, tag=2 + i) for i in range(3)]
        with pytest.raises(TimeoutError):
            dicomm.wait_any(receives, timeout=0.02)
        with pytest.raises(TimeoutError):
            receives[0].wait(timeout=0.02)
        comm.send(b"y", 0, tag=1)
        assert dicomm.wait_any(receives) == 1
        assert dicomm.wait_any(receives) == 1
        assert buffers.tolist() == [0, ord("x"), 0]
        for receive in (receives[0], receives[2]):
            receive.cancel()
            with pytest.raises(dicomm.Canceled):
                receive.wait()
            assert isinstance(receive.error, dicomm.Canceled)

    pair.run(waiting)


def test_several_threads_wait_for_one_request(pair: Ranks) -> None:
    def shared(comm: dicomm.Communicator) -> None:
        if comm.rank == 0:
            comm.recv(np.zeros(1, np.uint8), 1, tag=1)
            comm.send(b"z", 1, tag=2)
            return
        got = np.zeros(1, np.uint8)
        receive = comm.irecv(got, 0, tag=2)
        failures: list[BaseException] = []

        def wait() -> None:
            try:
                receive.wait()
                assert got[0] == ord("z")
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=wait) for _ in range(4)]
        for thread in threads:
            thread.start()
        comm.send(b"y", 0, tag=1)
        for thread in threads:
            thread.join(10)
        assert not failures
        assert not any(thread.is_alive() for thread in threads)

    pair.run(shared)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_more_than_four_gibibytes(pair: Ranks) -> None:
    count = (4 << 30) + 12345

    def huge(comm: dicomm.Communicator) -> None:
        if comm.rank == 0:
            data = np.zeros(count, np.uint8)
            data[:: 1 << 20] = 7
            data[-1] = 9
            comm.send(data, 1, timeout=280)
        else:
            got = np.empty(count, np.uint8)
            assert comm.recv(got, 0, timeout=280).bytes == count
            assert got[-1] == 9
            assert (got[:: 1 << 20] == 7).all()
            assert np.count_nonzero(got) == (count - 1) // (1 << 20) + 2

    pair.run(huge)
