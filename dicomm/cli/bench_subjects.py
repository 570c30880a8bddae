"""What `dicomm bench` can measure: dicomm's Python API and MPI; dicomm/torch/bench_peer.py adds torch.

All subjects of a run work in the same processes on the same memory, one block of iterations after another, so
that what disturbs one disturbs the others too.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from dicomm import Communicator, wait_all
from dicomm.cli.bench_cases import Array, Case

WINDOW = 64  # messages in flight in the bandwidth tests


class Subject(ABC):
    """A library under measurement. Used on one thread."""

    name: str
    level: str  # "python" or "torch": ratios compare subjects of one level
    path: str = ""  # that it is held to, as --path names it

    @abstractmethod
    def collective(self, case: Case) -> Callable[[], object]:
        """A function that runs the case's operation once, from case.send (and recv) to case.recv."""

    @abstractmethod
    def buffer(self, array: Array) -> Any:
        """The array's memory in the form that isend and irecv take."""

    @abstractmethod
    def isend(self, buffer: Any, peer: int) -> Any: ...

    @abstractmethod
    def irecv(self, buffer: Any, peer: int) -> Any: ...

    @abstractmethod
    def wait_all(self, requests: list[Any]) -> None: ...

    @abstractmethod
    def close(self) -> None: ...

    def block(self, case: Case) -> Callable[[int], None]:
        """A function that runs the case's operation a given number of times."""
        if case.operation == "latency":
            return self._ping_pong(case)
        if case.operation in ("bandwidth", "bibandwidth"):
            return self._stream(case)
        run = self.collective(case)

        def loop(times: int) -> None:
            for _ in range(times):
                run()

        return loop

    def _ping_pong(self, case: Case) -> Callable[[int], None]:
        send, recv, peer = self.buffer(case.send), self.buffer(case.recv), 1 - case.rank
        starts = case.rank == 0

        def loop(times: int) -> None:
            if case.rank > 1:
                return
            for _ in range(times):
                if starts:
                    self.wait_all([self.isend(send, peer)])
                self.wait_all([self.irecv(recv, peer)])
                if not starts:
                    self.wait_all([self.isend(send, peer)])

        return loop

    def _stream(self, case: Case) -> Callable[[int], None]:
        """A window of messages, then one element back: the sender's clock runs until they have arrived."""
        send, recv, peer = self.buffer(case.send), self.buffer(case.recv), 1 - case.rank
        sends = case.rank == 0 or case.operation == "bibandwidth"
        receives = case.rank == 1 or case.operation == "bibandwidth"
        token = self.buffer(case.send[:1].copy())

        def window(times: int) -> None:
            requests = [self.irecv(recv, peer) for _ in range(times if receives else 0)]
            requests += [self.isend(send, peer) for _ in range(times if sends else 0)]
            self.wait_all(requests)
            self.wait_all([self.irecv(token, peer) if case.rank == 0 else self.isend(token, peer)])

        def loop(times: int) -> None:
            while times > 0 and case.rank < 2:
                window(min(times, WINDOW))
                times -= WINDOW

        return loop


class Api(Subject):
    """dicomm.Communicator on numpy arrays."""

    name, level = "dicomm", "python"

    def __init__(self, comm: Communicator, path: str = "") -> None:
        self._comm = comm
        self.path = path

    def collective(self, case: Case) -> Callable[[], object]:
        comm, send, recv, op = self._comm, case.send, case.recv, case.reduce
        root = case.rank == 0
        calls: dict[str, Callable[[], object]] = {
            "barrier": lambda: comm.barrier(),
            "broadcast": lambda: comm.broadcast(recv, root=0),
            "allreduce": lambda: comm.allreduce(send, recv, op=op),
            "reduce": lambda: comm.reduce(send, recv if root else None, op=op, root=0),
            "allgather": lambda: comm.allgather(send, recv),
            "reduce_scatter": lambda: comm.reduce_scatter(send, recv, op=op),
            "alltoall": lambda: comm.alltoall(send, recv),
            "gather": lambda: comm.gather(send, recv if root else None, root=0),
            "scatter": lambda: comm.scatter(send if root else None, recv, root=0),
        }
        return calls[case.operation]

    def buffer(self, array: Array) -> Array:
        return array

    def isend(self, buffer: Array, peer: int) -> Any:
        return self._comm.isend(buffer, peer)

    def irecv(self, buffer: Array, peer: int) -> Any:
        return self._comm.irecv(buffer, peer)

    def wait_all(self, requests: list[Any]) -> None:
        wait_all(requests)

    def close(self) -> None:
        """The communicator belongs to the caller."""


class Mpi(Subject):
    """mpi4py's world on the same arrays; ranks must be numbered as dicomm's are."""

    name, level = "mpi", "python"

    def __init__(self) -> None:
        from mpi4py import MPI

        self._mpi = MPI
        self._comm = MPI.COMM_WORLD
        self.rank: int = self._comm.Get_rank()
        self.size: int = self._comm.Get_size()

    def collective(self, case: Case) -> Callable[[], object]:
        comm, send, recv = self._comm, case.send, case.recv
        root = case.rank == 0
        operations = {
            "sum": self._mpi.SUM, "prod": self._mpi.PROD, "min": self._mpi.MIN, "max": self._mpi.MAX,
        }  # fmt: skip
        calls: dict[str, Callable[[], object]] = {
            "barrier": lambda: comm.Barrier(),
            "broadcast": lambda: comm.Bcast(recv, root=0),
            "allreduce": lambda: comm.Allreduce(send, recv, op=operations[case.reduce]),
            "reduce": lambda: comm.Reduce(send, recv if root else None, op=operations[case.reduce], root=0),
            "allgather": lambda: comm.Allgather(send, recv),
            "reduce_scatter": lambda: comm.Reduce_scatter_block(send, recv, op=operations[case.reduce]),
            "alltoall": lambda: comm.Alltoall(send, recv),
            "gather": lambda: comm.Gather(send, recv if root else None, root=0),
            "scatter": lambda: comm.Scatter(send if root else None, recv, root=0),
        }
        return calls[case.operation]

    def buffer(self, array: Array) -> Array:
        return array

    def isend(self, buffer: Array, peer: int) -> Any:
        return self._comm.Isend(buffer, dest=peer)

    def irecv(self, buffer: Array, peer: int) -> Any:
        return self._comm.Irecv(buffer, source=peer)

    def wait_all(self, requests: list[Any]) -> None:
        self._mpi.Request.Waitall(requests)

    def close(self) -> None:
        """mpi4py finalizes at exit."""
