"""From Python arguments to dicomm_start: where operations begin. Written for little overhead."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from dicomm import _native
from dicomm._native import (
    IN_PROGRESS,
    INTERRUPTED,
    OK,
    OPCODES,
    REDUCES,
    TIMEOUT_DEFAULT,
    ffi,
    lib,
)
from dicomm.buffer import BadBuffer, dtype_name, view
from dicomm.errors import InvalidArgument
from dicomm.request import SIGNAL_CHECK, Request

_OP_NAMES = {code: name.lower() for name, code in OPCODES.items()}
_REDUCE_CODES = {name.lower(): code for name, code in REDUCES.items()}
_BROADCAST, _PREMUL_SUM = OPCODES["BROADCAST"], REDUCES["PREMUL_SUM"]
_UINT8 = _native.DTYPES["UINT8"]
_NULL = ffi.NULL
_start, _wait, _free, _new = lib.dicomm_start, lib.dicomm_request_wait, lib.dicomm_request_free, ffi.new
_FIRST_SWEEP = 64
TAG_LIMIT = 2**62  # tags from here on carry objects


class _Scratch(threading.local):
    """Argument structs of a thread, used anew for every call: the native side copies them."""

    def __init__(self) -> None:
        self.op = _new("dicomm_op *")
        self.op.size = ffi.sizeof("dicomm_op")
        self.send = _new("dicomm_block *")
        self.recv = _new("dicomm_block *")
        self.request = _new("dicomm_request **")
        # A block's first word is its address: writing it as an integer saves making a pointer object.
        self.send_address = ffi.cast("uintptr_t *", self.send)
        self.recv_address = ffi.cast("uintptr_t *", self.recv)
        self.all = (self.op, self.send, self.send_address, self.recv, self.recv_address, self.request)


_scratch = _Scratch()


class Starter:
    """A communicator as far as starting operations goes. Subclasses set the attributes.

    _handle is the native communicator, None once closed.
    """

    rank: int
    size: int
    name: str
    _handle: Any

    def __init__(self) -> None:
        self._inflight: set[Request] = set()
        self._sweep_at = _FIRST_SWEEP

    def _begin(self, opcode: int, send: Any, recv: Any, peer: int = 0, **more: Any) -> Request:
        """Starts an operation and returns its Request."""
        handle, keep = self._start(opcode, send, recv, peer, **more)
        if len(self._inflight) >= self._sweep_at:
            self._sweep()
        return Request(self._inflight, handle, keep)

    def _run(self, opcode: int, send: Any, recv: Any, peer: int = 0, **more: Any) -> None:
        """Starts an operation and waits for it, without making a Request unless it is interrupted."""
        handle, keep = self._start(opcode, send, recv, peer, **more)
        try:
            while (status := _wait(handle, SIGNAL_CHECK)) in (INTERRUPTED, IN_PROGRESS):
                pass  # Python's signal handlers run here
        except BaseException:
            Request(self._inflight, handle, keep)  # goes on: its buffers must stay
            raise
        error = _native.request_exception(handle) if status != OK else None
        _free(handle)
        if error is not None:
            raise error

    def _sweep(self) -> None:
        """Lets go of the buffers of completed operations whose Requests were dropped."""
        for request in list(self._inflight):
            request.done  # noqa: B018 - completing it is the effect
        self._sweep_at = max(_FIRST_SWEEP, 2 * len(self._inflight))

    def _start(
        self,
        opcode: int,
        send: Any,
        recv: Any,
        peer: int,
        tag: int = 0,
        op: str | None = None,
        factor: Any = None,
        timeout: float | None = None,
        send_counts: Sequence[int] | None = None,
        recv_counts: Sequence[int] | None = None,
        uneven: bool = False,
    ) -> tuple[Any, Any]:
        """Returns (native request, what must stay alive until it completes)."""
        comm = self._handle
        if comm is None:
            raise InvalidArgument(f"{_OP_NAMES[opcode]}: communicator {self.name!r} is closed")
        struct, send_block, send_address, recv_block, recv_address, request = _scratch.all
        keep: list[Any] = []
        argument = "send"
        dtype = _UINT8
        try:
            if send is None:
                struct.send, struct.nsend = _NULL, 0
            elif send_counts is None and type(send) not in (list, tuple):
                dtype, data, send_block.count, layout, owner = view(send, send is recv)
                if type(data) is int:
                    send_address[0] = data
                else:
                    send_block.data = data
                send_block.layout = layout or _NULL
                struct.send, struct.nsend = send_block, 1
                keep += (owner, layout)
            else:
                dtype, struct.send, struct.nsend = _blocks(send, send_counts, False, keep)
            argument = "recv" if opcode != _BROADCAST else "buffer"
            if recv is None:
                struct.recv, struct.nrecv = _NULL, 0
            elif recv is send and recv_counts is None and struct.nsend == 1:
                struct.recv, struct.nrecv = struct.send, 1
            else:
                writable = opcode != _BROADCAST or peer != self.rank
                if recv_counts is None and type(recv) not in (list, tuple):
                    code, data, recv_block.count, layout, owner = view(recv, writable)
                    if type(data) is int:
                        recv_address[0] = data
                    else:
                        recv_block.data = data
                    recv_block.layout = layout or _NULL
                    struct.recv, struct.nrecv = recv_block, 1
                    keep += (owner, layout)
                else:
                    code, struct.recv, struct.nrecv = _blocks(recv, recv_counts, writable, keep)
                if send is not None and code != dtype:
                    raise BadBuffer(f"has {dtype_name(code)} elements, send has {dtype_name(dtype)}")
                dtype = code
            struct.opcode, struct.dtype, struct.uneven = opcode, dtype, uneven
            argument = "tag"
            if not 0 <= tag < 2 * TAG_LIMIT:
                raise BadBuffer(f"is {tag}, not in 0 ... 2**62 - 1")
            struct.tag = tag
            argument = "peer"
            struct.peer = peer
            if op is None:
                struct.reduce = 0
            else:
                argument = "op"
                self._reduction(struct, op, factor, dtype, keep)
        except (BadBuffer, TypeError, OverflowError) as error:
            kind = error.kind if isinstance(error, BadBuffer) else InvalidArgument
            where = f"{_OP_NAMES[opcode]} on rank {self.rank} of communicator {self.name!r}"
            raise kind(
                f"{where}: argument {argument} {error}; nothing was sent",
                op=_OP_NAMES[opcode],
                rank=self.rank,
            ) from None
        struct.timeout_ns = TIMEOUT_DEFAULT if timeout is None else _native.nanoseconds(timeout)
        if _start(comm, struct, request) != OK:
            raise _native.last_exception()
        return request[0], keep

    def _reduction(self, struct: Any, op: str, factor: Any, dtype: int, keep: list[Any]) -> None:
        code = _REDUCE_CODES.get(op)
        if code is None:
            raise BadBuffer(f"is {op!r}, not one of {', '.join(_REDUCE_CODES)}")
        struct.reduce = code
        if code != _PREMUL_SUM:
            if factor is not None:
                raise BadBuffer(f"is {op!r}, which takes no factor (premul_sum does)")
            return
        struct.factor_data = _NULL
        if isinstance(factor, (int, float)):
            struct.factor = factor
        elif isinstance(factor, complex):
            values = np.array([factor], dtype_name(dtype))
            struct.factor_data = ffi.cast("void *", values.ctypes.data)
            keep.append(values)
        elif factor is None:
            raise BadBuffer("is 'premul_sum', which needs a factor: a number or a buffer of one element")
        else:
            code, data, elements, _, owner = view(factor, False)
            if code != dtype or elements != 1:
                raise BadBuffer(
                    f"is 'premul_sum', whose factor must be a number or one {dtype_name(dtype)} element, not "
                    f"{elements} of {dtype_name(code)}"
                )
            struct.factor_data = ffi.cast("void *", data)
            keep.append(owner)


def _blocks(
    buffers: Any, counts: Sequence[int] | None, writable: bool, keep: list[Any]
) -> tuple[int, Any, int]:
    """(dtype, dicomm_block array, length) of a list of buffers, or of one buffer cut by counts."""
    if counts is not None:
        if type(buffers) in (list, tuple):
            raise BadBuffer("is a list, whose buffers have counts of their own: leave out the counts")
        return _cut(buffers, counts, writable, keep)
    if not buffers:
        raise BadBuffer("is an empty list")
    blocks = _new("dicomm_block[]", len(buffers))
    first = None
    for index, buffer in enumerate(buffers):
        try:
            dtype, data, count, layout, owner = view(buffer, writable)
        except BadBuffer as error:
            raise BadBuffer(f"[{index}] {error}", error.kind) from None
        first = dtype if first is None else first
        if dtype != first:
            raise BadBuffer(f"[{index}] has {dtype_name(dtype)} elements, [0] has {dtype_name(first)}")
        block = blocks[index]
        block.data = ffi.cast("void *", data) if type(data) is int else data
        block.count = count
        if layout is not None:
            block.layout = layout
        keep += (owner, layout)
    keep.append(blocks)
    assert first is not None
    return first, blocks, len(buffers)


def _cut(buffer: Any, counts: Sequence[int], writable: bool, keep: list[Any]) -> tuple[int, Any, int]:
    dtype, data, elements, whole, owner = view(buffer, writable)
    sizes = [int(count) for count in counts]
    if any(count < 0 for count in sizes) or sum(sizes) != elements:
        raise BadBuffer(f"has {elements} elements, which is not the sum of the counts {sizes}")
    if whole is not None and whole.ndim != 1:
        raise BadBuffer("is not contiguous, so counts cannot cut it; pass a list of buffers")
    step = _native.DTYPE_SIZES[dtype] if whole is None else whole.strides[0]
    address = int(ffi.cast("intptr_t", data))
    blocks = _new("dicomm_block[]", len(sizes))
    for index, count in enumerate(sizes):
        block = blocks[index]
        block.data = ffi.cast("void *", address)
        block.count = count
        if whole is not None:
            shape = _new("int64_t[]", [count])
            block.layout = layout = _new(
                "dicomm_layout *", {"ndim": 1, "shape": shape, "strides": whole.strides}
            )
            keep += (shape, layout)
        address += count * step
    keep += (owner, whole, blocks)
    return dtype, blocks, len(sizes)
