"""The operations of a Communicator: point to point and collectives, non-blocking and blocking.

Every collective must be started in the same order on every rank. Buffers are described in dicomm.buffer.
Where an operation speaks of one part per rank, a single buffer is cut into `size` equal parts, a list of
`size` buffers gives each part its own memory, and the v forms cut a buffer by `counts` (elements per rank).

Common to all: op is "sum", "prod", "min", "max", "avg", "band", "bor", "bxor" or "premul_sum" (which
multiplies every input by `factor` first). timeout: seconds the operation may take, None for the
communicator's, float("inf") for no limit. Bad arguments raise InvalidArgument or NotSupported before
anything is sent.

In a communicator some of whose ranks are reducers (Config.role), allreduce and reduce combine the workers'
buffers: avg divides by the number of workers, root is a worker, and a reducer passes a NoBuffer, or serves.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from dicomm._native import ANY_SOURCE, OPCODES
from dicomm.request import Request
from dicomm.starting import Rare, Starter

Buffer = Any  # see dicomm.buffer
Counts = Sequence[int]

_SEND, _RECV, _BARRIER = OPCODES["SEND"], OPCODES["RECV"], OPCODES["BARRIER"]
_BROADCAST, _ALLREDUCE, _REDUCE = OPCODES["BROADCAST"], OPCODES["ALLREDUCE"], OPCODES["REDUCE"]
_ALLGATHER, _REDUCE_SCATTER = OPCODES["ALLGATHER"], OPCODES["REDUCE_SCATTER"]
_ALLTOALL, _GATHER, _SCATTER = OPCODES["ALLTOALL"], OPCODES["GATHER"], OPCODES["SCATTER"]
_SERVE = OPCODES["SERVE"]


class Received(NamedTuple):
    """What a blocking receive says: the sender's rank and the bytes that came."""

    source: int
    bytes: int


class Operations(Starter):
    """Base of Communicator."""

    # ---- point to point ----------------------------------------------------------------------------

    def isend(self, buffer: Buffer, dest: int, tag: int = 0, timeout: float | None = None) -> Request:
        """Starts to send a buffer to rank dest. tag: 0 to 2**62 - 1."""
        return self._begin(_SEND, buffer, None, dest, None, timeout, tag)

    def send(self, buffer: Buffer, dest: int, tag: int = 0, timeout: float | None = None) -> None:
        """Sends a buffer; returns when it may be reused."""
        self._run(_SEND, buffer, None, dest, None, timeout, tag)

    def irecv(
        self, buffer: Buffer, source: int = ANY_SOURCE, tag: int = 0, timeout: float | None = None
    ) -> Request:
        """Starts to receive a message of this tag, from rank source or from any. Messages with the same
        sender and tag arrive in the order they were sent. A longer message than the buffer fails with
        Truncated; a shorter one fills the front, Request.bytes says how much."""
        return self._begin(_RECV, None, buffer, source, None, timeout, tag)

    def recv(
        self, buffer: Buffer, source: int = ANY_SOURCE, tag: int = 0, timeout: float | None = None
    ) -> Received:
        """Receives a message; see irecv."""
        return Received(*self._run(_RECV, None, buffer, source, None, timeout, tag))

    # ---- one buffer, every rank --------------------------------------------------------------------

    def ibarrier(self, timeout: float | None = None) -> Request:
        """Starts a barrier: completes when every rank has started it."""
        return self._begin(_BARRIER, None, None, 0, None, timeout)

    def barrier(self, timeout: float | None = None) -> None:
        """Returns when every rank has entered it."""
        self._run(_BARRIER, None, None, 0, None, timeout)

    def ibroadcast(self, buffer: Buffer, root: int = 0, timeout: float | None = None) -> Request:
        """Starts to copy root's buffer to every rank's buffer (same dtype and count)."""
        return self._begin(_BROADCAST, None, buffer, root, None, timeout)

    def broadcast(self, buffer: Buffer, root: int = 0, timeout: float | None = None) -> None:
        """Copies root's buffer to every rank's buffer; see ibroadcast."""
        self._run(_BROADCAST, None, buffer, root, None, timeout)

    def iallreduce(
        self,
        send: Buffer,
        recv: Buffer | None = None,
        op: str = "sum",
        factor: Any = None,
        timeout: float | None = None,
    ) -> Request:
        """Starts an elementwise reduction over all ranks, its result on every rank. recv None: in place."""
        recv = send if recv is None else recv
        return self._begin(
            _ALLREDUCE, send, recv, 0, op, timeout, 0, Rare(factor) if factor is not None else None
        )

    def allreduce(
        self,
        send: Buffer,
        recv: Buffer | None = None,
        op: str = "sum",
        factor: Any = None,
        timeout: float | None = None,
    ) -> None:
        """Reduces elementwise over all ranks; see iallreduce."""
        recv = send if recv is None else recv
        self._run(_ALLREDUCE, send, recv, 0, op, timeout, 0, Rare(factor) if factor is not None else None)

    def ireduce(
        self,
        send: Buffer,
        recv: Buffer | None = None,
        op: str = "sum",
        root: int = 0,
        factor: Any = None,
        timeout: float | None = None,
    ) -> Request:
        """Starts a reduction whose result only root gets. recv is ignored on other ranks; None on root: in
        place."""
        recv = (send if recv is None else recv) if self.rank == root else None
        return self._begin(
            _REDUCE, send, recv, root, op, timeout, 0, Rare(factor) if factor is not None else None
        )

    def reduce(
        self,
        send: Buffer,
        recv: Buffer | None = None,
        op: str = "sum",
        root: int = 0,
        factor: Any = None,
        timeout: float | None = None,
    ) -> None:
        """Reduces to root; see ireduce."""
        recv = (send if recv is None else recv) if self.rank == root else None
        self._run(_REDUCE, send, recv, root, op, timeout, 0, Rare(factor) if factor is not None else None)

    def serve(self) -> None:
        """On a reducer: takes part in every allreduce, reduce and barrier that the workers start; returns
        when all of them have closed the communicator. No time-out holds meanwhile.

        Raises what a failing operation raises, PeerLost when a worker's process ends, Mismatch when a worker
        starts anything else. InvalidArgument on a worker.
        """
        self._run(_SERVE, None, None, 0, None, float("inf"))

    # ---- one part per rank -------------------------------------------------------------------------

    def iallgather(
        self, send: Buffer, recv: Buffer | Sequence[Buffer], timeout: float | None = None
    ) -> Request:
        """Starts to gather every rank's send (same count) on every rank: part r of recv is rank r's."""
        return self._begin(_ALLGATHER, send, recv, 0, None, timeout)

    def allgather(self, send: Buffer, recv: Buffer | Sequence[Buffer], timeout: float | None = None) -> None:
        """Gathers on every rank; see iallgather."""
        self._run(_ALLGATHER, send, recv, 0, None, timeout)

    def iallgatherv(
        self,
        send: Buffer,
        recv: Buffer | Sequence[Buffer],
        counts: Counts | None = None,
        timeout: float | None = None,
    ) -> Request:
        """iallgather where ranks send different counts. counts cuts a single recv buffer."""
        return self._begin(_ALLGATHER, send, recv, 0, None, timeout, 0, Rare(None, None, counts))

    def allgatherv(
        self,
        send: Buffer,
        recv: Buffer | Sequence[Buffer],
        counts: Counts | None = None,
        timeout: float | None = None,
    ) -> None:
        """Blocking iallgatherv."""
        self._run(_ALLGATHER, send, recv, 0, None, timeout, 0, Rare(None, None, counts))

    def ireduce_scatter(
        self,
        send: Buffer | Sequence[Buffer],
        recv: Buffer,
        op: str = "sum",
        factor: Any = None,
        timeout: float | None = None,
    ) -> Request:
        """Starts a reduction of every part over all ranks; rank r gets part r."""
        return self._begin(
            _REDUCE_SCATTER, send, recv, 0, op, timeout, 0, Rare(factor) if factor is not None else None
        )

    def reduce_scatter(
        self,
        send: Buffer | Sequence[Buffer],
        recv: Buffer,
        op: str = "sum",
        factor: Any = None,
        timeout: float | None = None,
    ) -> None:
        """Reduces and scatters; see ireduce_scatter."""
        self._run(
            _REDUCE_SCATTER, send, recv, 0, op, timeout, 0, Rare(factor) if factor is not None else None
        )

    def ireduce_scatterv(
        self,
        send: Buffer | Sequence[Buffer],
        recv: Buffer,
        counts: Counts | None = None,
        op: str = "sum",
        factor: Any = None,
        timeout: float | None = None,
    ) -> Request:
        """ireduce_scatter with parts of different counts. counts cuts a single send buffer."""
        return self._begin(_REDUCE_SCATTER, send, recv, 0, op, timeout, 0, Rare(factor, counts))

    def reduce_scatterv(
        self,
        send: Buffer | Sequence[Buffer],
        recv: Buffer,
        counts: Counts | None = None,
        op: str = "sum",
        factor: Any = None,
        timeout: float | None = None,
    ) -> None:
        """Blocking ireduce_scatterv."""
        self._run(_REDUCE_SCATTER, send, recv, 0, op, timeout, 0, Rare(factor, counts))

    def ialltoall(
        self,
        send: Buffer | Sequence[Buffer],
        recv: Buffer | Sequence[Buffer],
        timeout: float | None = None,
    ) -> Request:
        """Starts an exchange: part r of send goes to rank r, part r of recv comes from rank r."""
        return self._begin(_ALLTOALL, send, recv, 0, None, timeout)

    def alltoall(
        self,
        send: Buffer | Sequence[Buffer],
        recv: Buffer | Sequence[Buffer],
        timeout: float | None = None,
    ) -> None:
        """Exchanges parts; see ialltoall."""
        self._run(_ALLTOALL, send, recv, 0, None, timeout)

    def ialltoallv(
        self,
        send: Buffer | Sequence[Buffer],
        recv: Buffer | Sequence[Buffer],
        send_counts: Counts | None = None,
        recv_counts: Counts | None = None,
        timeout: float | None = None,
    ) -> Request:
        """ialltoall with parts of different counts; zeros are fine."""
        return self._begin(_ALLTOALL, send, recv, 0, None, timeout, 0, Rare(None, send_counts, recv_counts))

    def alltoallv(
        self,
        send: Buffer | Sequence[Buffer],
        recv: Buffer | Sequence[Buffer],
        send_counts: Counts | None = None,
        recv_counts: Counts | None = None,
        timeout: float | None = None,
    ) -> None:
        """Blocking ialltoallv."""
        self._run(_ALLTOALL, send, recv, 0, None, timeout, 0, Rare(None, send_counts, recv_counts))

    def igather(
        self,
        send: Buffer,
        recv: Buffer | Sequence[Buffer] | None = None,
        root: int = 0,
        timeout: float | None = None,
    ) -> Request:
        """Starts to gather every rank's send (same count) on root. recv is ignored on other ranks."""
        return self._begin(_GATHER, send, recv if self.rank == root else None, root, None, timeout)

    def gather(
        self,
        send: Buffer,
        recv: Buffer | Sequence[Buffer] | None = None,
        root: int = 0,
        timeout: float | None = None,
    ) -> None:
        """Gathers on root; see igather."""
        self._run(_GATHER, send, recv if self.rank == root else None, root, None, timeout)

    def igatherv(
        self,
        send: Buffer,
        recv: Buffer | Sequence[Buffer] | None = None,
        counts: Counts | None = None,
        root: int = 0,
        timeout: float | None = None,
    ) -> Request:
        """igather where ranks send different counts. counts (used on root) cuts a single recv buffer."""
        recv, counts = (recv, counts) if self.rank == root else (None, None)
        return self._begin(_GATHER, send, recv, root, None, timeout, 0, Rare(None, None, counts, True))

    def gatherv(
        self,
        send: Buffer,
        recv: Buffer | Sequence[Buffer] | None = None,
        counts: Counts | None = None,
        root: int = 0,
        timeout: float | None = None,
    ) -> None:
        """Blocking igatherv."""
        recv, counts = (recv, counts) if self.rank == root else (None, None)
        self._run(_GATHER, send, recv, root, None, timeout, 0, Rare(None, None, counts, True))

    def iscatter(
        self,
        send: Buffer | Sequence[Buffer] | None,
        recv: Buffer,
        root: int = 0,
        timeout: float | None = None,
    ) -> Request:
        """Starts to give rank r part r of root's send. send is ignored on other ranks."""
        return self._begin(_SCATTER, send if self.rank == root else None, recv, root, None, timeout)

    def scatter(
        self,
        send: Buffer | Sequence[Buffer] | None,
        recv: Buffer,
        root: int = 0,
        timeout: float | None = None,
    ) -> None:
        """Scatters from root; see iscatter."""
        self._run(_SCATTER, send if self.rank == root else None, recv, root, None, timeout)

    def iscatterv(
        self,
        send: Buffer | Sequence[Buffer] | None,
        recv: Buffer,
        counts: Counts | None = None,
        root: int = 0,
        timeout: float | None = None,
    ) -> Request:
        """iscatter with parts of different counts. counts (used on root) cuts a single send buffer."""
        send, counts = (send, counts) if self.rank == root else (None, None)
        return self._begin(_SCATTER, send, recv, root, None, timeout, 0, Rare(None, counts, None, True))

    def scatterv(
        self,
        send: Buffer | Sequence[Buffer] | None,
        recv: Buffer,
        counts: Counts | None = None,
        root: int = 0,
        timeout: float | None = None,
    ) -> None:
        """Blocking iscatterv."""
        send, counts = (send, counts) if self.rank == root else (None, None)
        self._run(_SCATTER, send, recv, root, None, timeout, 0, Rare(None, counts, None, True))
