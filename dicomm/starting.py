"""From Python arguments to dicomm_start: where operations begin. Written for little overhead."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from operator import index
from typing import Any, NamedTuple

import numpy as np

from dicomm import _native
from dicomm._native import OK, OPCODES, REDUCES, TIMEOUT_DEFAULT, ffi, lib
from dicomm.buffer import BadBuffer, NoBuffer, View, dtype_name, strided, view
from dicomm.errors import InvalidArgument
from dicomm.request import SIGNAL_CHECK, Request

_OP_NAMES = {code: name.lower() for name, code in OPCODES.items()}
_REDUCE_CODES = {name.lower(): code for name, code in REDUCES.items()}
_PLAIN_REDUCES = {name: code for name, code in _REDUCE_CODES.items() if name != "premul_sum"}
_RECV, _BROADCAST = OPCODES["RECV"], OPCODES["BROADCAST"]
_NULL = ffi.NULL
_start, _run, _new = lib.dicomm_py_start, _native.run, ffi.new
_LISTS = (list, tuple)
_NOTHING: View = (_native.DTYPES["UINT8"], _NULL, -1, None, None)
_NO_RECEIVE = (-1, 0)
_FIRST_SWEEP = 64
TAG_LIMIT = 2**62  # tags from here on carry objects


class Rare(NamedTuple):
    """What few operations need beside their buffers."""

    factor: Any = None
    send_counts: Sequence[int] | None = None
    recv_counts: Sequence[int] | None = None
    uneven: bool = False


class _Out(threading.local):
    """Where the native side puts a new request, used anew for every call of a thread."""

    def __init__(self) -> None:
        self.request = _new("dicomm_request **")


_out = _Out()


class Starter:
    """A communicator as far as starting operations goes. Subclasses set the attributes.

    _handle is the native communicator, None once closed; _address the same as a number, 0 once closed.
    """

    rank: int
    size: int
    name: str
    _handle: Any
    _address: int

    def __init__(self) -> None:
        self._inflight: set[Request] = set()
        self._sweep_at = _FIRST_SWEEP

    # Arguments go by position: on this path keywords cost as much as the operation.
    def _begin(
        self,
        opcode: int,
        send: Any,
        recv: Any,
        peer: int = 0,
        op: str | None = None,
        timeout: float | None = None,
        tag: int = 0,
        rare: Rare | None = None,
    ) -> Request:
        """Starts an operation and returns its Request."""
        arguments, keep = self._arguments(opcode, send, recv, peer, op, timeout, tag, rare)
        out = _out.request
        if _start(*arguments, out) != OK:
            raise _native.last_exception()
        if len(self._inflight) >= self._sweep_at:
            self._sweep()
        return Request(self._inflight, out[0], keep)

    def _run(
        self,
        opcode: int,
        send: Any,
        recv: Any,
        peer: int = 0,
        op: str | None = None,
        timeout: float | None = None,
        tag: int = 0,
        rare: Rare | None = None,
    ) -> tuple[int, int]:
        """Starts an operation and waits for it, without making a Request unless that takes long. Returns the
        sender and the bytes that a receive has got."""
        done: bool | tuple[int, int] | int | None = False
        if rare is None and timeout is None:
            reduce = 0 if op is None else _PLAIN_REDUCES.get(op, -1) if isinstance(op, str) else -1
            done = _run(
                self._address, self.rank, self.size, opcode, send, recv, peer, reduce, tag, SIGNAL_CHECK
            )
        if done is True:
            return _NO_RECEIVE
        if done is None:
            raise _native.last_exception()
        if isinstance(done, tuple):
            return done
        if done is False:
            request = self._begin(opcode, send, recv, peer, op, timeout, tag, rare)
        else:
            keep = [ffi.from_buffer(buffer) for buffer in (send, recv) if buffer is not None]
            request = Request(self._inflight, _native.request_at(done), keep)
        request.wait()
        return (request.source, request.bytes) if opcode == _RECV else _NO_RECEIVE

    def _sweep(self) -> None:
        """Lets go of the buffers of completed operations whose Requests were dropped."""
        for request in list(self._inflight):
            request.done  # noqa: B018 - completing it is the effect
        self._sweep_at = max(_FIRST_SWEEP, 2 * len(self._inflight))

    def _arguments(
        self,
        opcode: int,
        send: Any,
        recv: Any,
        peer: int,
        op: str | None,
        timeout: float | None,
        tag: int,
        rare: Rare | None,
    ) -> tuple[Any, Any]:
        """Returns (arguments of dicomm_py_start, what must stay alive until the request completes)."""
        comm = self._handle
        if comm is None:
            raise InvalidArgument(f"{_OP_NAMES[opcode]}: communicator {self.name!r} is closed")
        plain = rare is None and type(send) not in _LISTS and type(recv) not in _LISTS and op != "premul_sum"
        struct = _NULL
        keep: Any = None
        given = taken = _NOTHING
        argument = "send"
        try:
            if plain:
                if send is not None:
                    given = view(send, send is recv)
                argument = "buffer" if opcode == _BROADCAST else "recv"
                if recv is send:
                    taken = given
                elif recv is not None:
                    taken = view(recv, opcode != _BROADCAST or peer != self.rank)
                    if send is not None and taken[0] != given[0]:
                        raise _other_dtype(taken, given)
                keep = given, taken
                if given[3] is not None or taken[3] is not None:
                    sent = [] if send is None else [given]
                    received = [] if recv is None else [taken]
                    struct, blocks = _operation(sent, received)
                    keep = given, taken, struct, blocks
            else:
                rare = rare or Rare()
                sent = [] if send is None else _views(send, rare.send_counts, False)
                argument = "buffer" if opcode == _BROADCAST else "recv"
                writable = opcode != _BROADCAST or peer != self.rank
                received = [] if recv is None else _views(recv, rare.recv_counts, writable)
                if sent and received and received[0][0] != sent[0][0]:
                    raise _other_dtype(received[0], sent[0])
                given, taken = (sent or [_NOTHING])[0], (received or [_NOTHING])[0]
                struct, blocks = _operation(sent, received)
                struct.uneven = rare.uneven
                keep = [sent, received, struct, blocks]
            dtype = given[0] if recv is None else taken[0]
            argument = "tag"
            if not 0 <= (tag := index(tag)) < 2 * TAG_LIMIT:
                raise BadBuffer(f"is {tag}, not in 0 ... 2**62 - 1")
            argument = "peer"
            if not -1 <= (peer := index(peer)) < self.size:
                raise BadBuffer(f"is {peer}, not a rank of this communicator (0 to {self.size - 1})")
            reduce = 0
            if op is not None:
                argument = "op"
                reduce = _reduction(op)
                if rare is not None and not isinstance(send, NoBuffer):
                    keep.append(_set_factor(struct, op, rare.factor, dtype))
        except (BadBuffer, TypeError, OverflowError) as error:
            kind = error.kind if isinstance(error, BadBuffer) else InvalidArgument
            where = f"{_OP_NAMES[opcode]} on rank {self.rank} of communicator {self.name!r}"
            raise kind(
                f"{where}: argument {argument} {error}; nothing was sent",
                op=_OP_NAMES[opcode],
                rank=self.rank,
            ) from None
        limit = TIMEOUT_DEFAULT if timeout is None else _native.nanoseconds(timeout)
        return (
            (comm, struct, opcode, dtype, reduce, peer, tag, limit, given[1], given[2], taken[1], taken[2]),
            keep,
        )


def _other_dtype(recv: View, send: View) -> BadBuffer:
    return BadBuffer(f"has {dtype_name(recv[0])} elements, send has {dtype_name(send[0])}")


def _reduction(op: str) -> int:
    code = _REDUCE_CODES.get(op)
    if code is None:
        raise BadBuffer(f"is {op!r}, not one of {', '.join(_REDUCE_CODES)}")
    return code


def _set_factor(struct: Any, op: str, factor: Any, dtype: int) -> Any:
    """Returns what must stay alive until the operation has been started."""
    if op != "premul_sum":
        if factor is not None:
            raise BadBuffer(f"is {op!r}, which takes no factor (premul_sum does)")
        return None
    if factor is None:
        raise BadBuffer("is 'premul_sum', which needs a factor: a number or a buffer of one element")
    if isinstance(factor, (int, float)):
        struct.factor = factor
        return None
    if isinstance(factor, complex):
        factor = np.array([factor], dtype_name(dtype))
    one = view(factor, False)
    if one[0] != dtype or one[2] != 1:
        raise BadBuffer(
            f"is 'premul_sum', whose factor must be a number or one {dtype_name(dtype)} element, not "
            f"{one[2]} of {dtype_name(one[0])}"
        )
    struct.factor_data = one[1]
    return one


def _operation(send: list[View], recv: list[View]) -> tuple[Any, Any]:
    """A dicomm_op * and the blocks it points to; both and the views must stay alive while it is used."""
    struct = _new("dicomm_op *")
    struct.size = ffi.sizeof("dicomm_op")
    blocks = _new("dicomm_block[]", len(send) + len(recv))
    for block, one in zip(blocks, send + recv, strict=True):
        block.data, block.count = one[1], one[2]
        if one[3] is not None:
            block.layout = one[3]
    if send:
        struct.send, struct.nsend = blocks, len(send)
    if recv:
        struct.recv, struct.nrecv = blocks + len(send), len(recv)
    return struct, blocks


def _views(buffers: Any, counts: Sequence[int] | None, writable: bool) -> list[View]:
    """The blocks of a list of buffers, of one buffer cut by counts, or of one buffer."""
    if counts is not None:
        if type(buffers) in _LISTS:
            raise BadBuffer("is a list, whose buffers have counts of their own: leave out the counts")
        return _cut(buffers, counts, writable)
    if type(buffers) not in _LISTS:
        return [view(buffers, writable)]
    if not buffers:
        raise BadBuffer("is an empty list")
    views = []
    for position, buffer in enumerate(buffers):
        try:
            views.append(view(buffer, writable))
        except BadBuffer as error:
            raise BadBuffer(f"[{position}] {error}", error.kind) from None
        dtype, first = views[-1][0], views[0][0]
        if dtype != first:
            raise BadBuffer(f"[{position}] has {dtype_name(dtype)} elements, [0] has {dtype_name(first)}")
    return views


def _cut(buffer: Any, counts: Sequence[int], writable: bool) -> list[View]:
    dtype, data, elements, whole, owner = view(buffer, writable)
    sizes = [int(count) for count in counts]
    if any(count < 0 for count in sizes) or sum(sizes) != elements:
        raise BadBuffer(f"has {elements} elements, which is not the sum of the counts {sizes}")
    if whole is not None and whole.ndim != 1:
        raise BadBuffer("is not contiguous, so counts cannot cut it; pass a list of buffers")
    step = _native.DTYPE_SIZES[dtype] if whole is None else whole.strides[0]
    address = int(ffi.cast("intptr_t", data))
    views = []
    for count in sizes:
        layout = None if whole is None else strided([count], [step])
        views.append((dtype, ffi.cast("void *", address), count, layout, owner))
        address += count * step
    return views
