"""Communicator: an ordered set of ranks that issue operations in the same order."""

from __future__ import annotations

import json
from functools import cached_property
from types import TracebackType
from typing import Any

from dicomm import _native, interruptible
from dicomm._native import OPCODES, REDUCES, ffi, lib
from dicomm.buffer import dtype_code
from dicomm.config import Config
from dicomm.context import Context
from dicomm.errors import InvalidArgument
from dicomm.objects import ObjectOperations
from dicomm.topology import Topology


class Communicator(ObjectOperations):
    """Made by dicomm.init(), split() or dup(). Closing the one from init() closes all made from it.

    Threads: operations on different communicators are independent. On one communicator collectives must
    start in the same order on every rank, so let one thread start them; point-to-point operations,
    Request methods and abort() are free of that. In a forked child every operation fails; use spawn.

    As a context manager it closes at the end of the block, and aborts first when an exception leaves it, so
    that the other ranks learn why.

    Attributes: rank, size, name; role, "worker" or "reducer"; allow_pickle (see dicomm.objects).
    """

    def __init__(self, handle: Any, context: Context, *, world: bool, allow_pickle: bool) -> None:
        super().__init__()
        self._handle = handle
        self._address = _native.address(handle)
        self._context = context
        self._world = world
        self._objects_sent = 0
        self.allow_pickle = allow_pickle
        info = self._info()
        self.rank: int = info["rank"]
        self.size: int = info["size"]
        self.name: str = info["name"]
        self.role: str = info["topology"]["ranks"][self.rank]["chip"]["role"]
        self._timeout = info["timeout_ns"] / 1e9 if info["timeout_ns"] > 0 else float("inf")
        context.communicators.append(self)

    @property
    def timeout(self) -> float:
        """Seconds an operation may take unless it says otherwise; may be set at any time, for later ones."""
        return self._timeout

    @timeout.setter
    def timeout(self, seconds: float) -> None:
        lib.dicomm_comm_set_timeout(self._open(), _native.nanoseconds(seconds))
        self._timeout = seconds

    def split(self, color: int | None, key: int | None = None, name: str = "") -> Communicator | None:
        """Collective and blocking. Ranks with the same color form a new communicator, ordered by (key, rank).

        color: 0 or more; None: this rank joins none, and gets None. key: None means the rank.
        """
        color = -1 if color is None else color
        key = self.rank if key is None else key
        options = comm_options(name or f"{self.name}/{color}", self.timeout, None, self._context.config)
        out = ffi.new("dicomm_comm **")
        handle = self._open()

        def run() -> None:
            _native.check(lib.dicomm_comm_split(handle, color, key, options[0], out))

        try:
            interruptible.call(run, lambda: self.abort(f"rank {self.rank} was interrupted in split"))
        except (TypeError, OverflowError) as error:
            raise InvalidArgument(f"split: color {color!r} or key {key!r}: {error}") from None
        if out[0] == ffi.NULL:
            return None
        return Communicator(out[0], self._context, world=False, allow_pickle=self.allow_pickle)

    def dup(self, name: str = "") -> Communicator:
        """Collective and blocking. The same ranks, with operations and tags independent of this one's."""
        made = self.split(0, self.rank, name or f"{self.name}/dup")
        assert made is not None
        return made

    def abort(self, reason: str = "") -> None:
        """Fails every pending and later operation on all ranks with Aborted; the first reason wins. Does not
        block; may be called from any thread. Does nothing when closed."""
        if self._handle is not None:
            lib.dicomm_comm_abort(self._handle, reason.encode())

    def close(self) -> None:
        """Leaves. Pending operations get the time-out to finish, then fail; peers learn that this rank left.

        Local: it does not wait for other ranks, so finish with barrier() where all must be done. May be
        called again.
        """
        self._close_handle()
        if self._world:
            self._context.close()
        elif self in self._context.communicators:
            self._context.communicators.remove(self)

    @cached_property
    def topology(self) -> Topology:
        """What each rank has, and the islands, hosts and links that follow."""
        return Topology.from_record(self._info()["topology"])

    def stats(self) -> dict[str, Any]:
        """Counters. "peers": messages and bytes each way, per peer, with the path they took. "ccl": what went
        to the library of the rank's island, calls and the bytes of the rank's larger buffer in each; None
        where it has none. "arena": operations that used the memory which the ranks of one host share, and
        the bytes written and read there; None without such memory. "context": what the process counts for
        all its communicators, such as "chip", the bytes copied from and to the chip's memory (None without
        a chip)."""
        info = self._info() | {"context": self._context.info()}
        del info["topology"]
        return info

    def explain(self, op: str = "", count: int = 1, dtype: Any = "float32", reduce: str = "sum") -> str:
        """Which rule wins for an operation and the steps this rank would take; "" prints the whole table.

        count: elements of dtype in this rank's buffer (per part where the operation has parts). reduce: of a
        reduction, "sum", "max" ... Ranks with chips have their buffers there, and the libraries of their
        islands are taken to know the operation.
        """
        opcode = -1
        if op and (opcode := OPCODES.get(op.upper(), -1)) < 0:
            raise InvalidArgument(f"op {op!r} is not one of {', '.join(OPCODES).lower()}")
        if reduce.upper() not in REDUCES:
            raise InvalidArgument(f"reduce {reduce!r} is not one of {', '.join(REDUCES).lower()}")
        hosts = islands = reducers = None
        if op:
            reducers = [int(rank.chip.role == "reducer") for rank in self.topology.ranks]
            hosts = [rank.host_index for rank in self.topology.ranks]
            if any(rank.chip.library for rank in self.topology.ranks):
                islands = [rank.island_index if rank.chip.library else -1 for rank in self.topology.ranks]
        config = self._context.config
        return _native.explain(
            opcode,
            count,
            dtype_code(dtype),
            self.rank,
            self.size,
            config.algorithms,
            hosts=hosts,
            islands=islands,
            reduce=REDUCES[reduce.upper()],
            wire_dtype=dtype_code(config.wire_dtype) if config.wire_dtype else 0,
            reducers=reducers,
        )

    def _open(self) -> Any:
        if self._handle is None:
            raise InvalidArgument(f"communicator {self.name!r} is closed")
        return self._handle

    def _info(self) -> dict[str, Any]:
        info: dict[str, Any] = json.loads(_native.text(lib.dicomm_comm_info, self._open()))
        return info

    def _close_handle(self) -> None:
        handle, self._handle = self._handle, None
        self._address = 0
        if handle is not None:
            lib.dicomm_comm_close(handle)
            self._sweep()

    def __enter__(self) -> Communicator:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None and not (isinstance(error, SystemExit) and not error.code):
            self.abort(f"rank {self.rank} left with {type(error).__name__}: {error}")
        self.close()

    def __repr__(self) -> str:
        state = ", closed" if self._handle is None else ""
        return f"<dicomm.Communicator {self.name!r}: rank {self.rank} of {self.size}{state}>"


def comm_options(
    name: str, timeout: float, init_timeout: float | None, config: Config
) -> tuple[Any, list[Any]]:
    """A dicomm_comm_options * and what must stay alive with it."""
    options = ffi.new("dicomm_comm_options *")
    options.size = ffi.sizeof("dicomm_comm_options")
    held = [ffi.new("char[]", text.encode()) for text in (name, config.algorithms)]
    options.name, options.algorithms = held
    options.wire_dtype = dtype_code(config.wire_dtype) if config.wire_dtype else 0
    options.timeout_ns = _native.nanoseconds(timeout)
    options.init_timeout_ns = _native.nanoseconds(init_timeout)
    return options, held
