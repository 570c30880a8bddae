"""Request: one started operation."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from dicomm import _native
from dicomm._native import IN_PROGRESS, INTERRUPTED, OK, ffi, lib
from dicomm.errors import DicommError, InvalidArgument

_wait = lib.dicomm_request_wait
SIGNAL_CHECK = 500_000_000  # nanoseconds; see _in_pieces
_INFO_SIZE = ffi.sizeof("dicomm_request_info")


class Request:
    """One started operation. It completes exactly once: done, or failed.

    The operation's buffers stay alive until it has completed, even when the Request is dropped; dropping it
    does not cancel the operation. Methods may be called from any thread.
    """

    __slots__ = ("__weakref__", "_error", "_handle", "_inflight", "_keep", "_status")

    def __init__(self, inflight: set[Request], handle: Any, keep: Any) -> None:
        # The native request lives as long as this object: another thread may be waiting on it.
        self._handle = handle
        self._keep = keep
        self._inflight = inflight
        self._status = IN_PROGRESS
        self._error: DicommError | None = None
        inflight.add(self)

    def __del__(self, _free: Callable[[Any], None] = lib.dicomm_request_free) -> None:
        _free(self._handle)

    def wait(self, timeout: float | None = None) -> None:
        """Blocks until the operation has completed; raises what it failed with.

        timeout: seconds to wait here, None for as long as the operation may take by its own time-out. When
        they pass first, the built-in TimeoutError is raised and the operation goes on. Waiting again after
        completion gives the same answer. KeyboardInterrupt ends the wait at once; the operation goes on.
        """
        if self._status == IN_PROGRESS:
            status = _wait(self._handle, SIGNAL_CHECK) if timeout is None else IN_PROGRESS
            if status in (IN_PROGRESS, INTERRUPTED):
                status = _in_pieces(timeout, lambda piece: _wait(self._handle, piece))
            if status == IN_PROGRESS:
                raise TimeoutError(f"the operation has not completed within {timeout} s and goes on")
            self._complete(status)
        if self._status != OK:
            raise self._failure()

    def test(self) -> bool:
        """Has the operation completed? Never blocks, makes progress; raises what it failed with."""
        if self._status == IN_PROGRESS and not self._poll():
            return False
        if self._status != OK:
            raise self._failure()
        return True

    def cancel(self) -> None:
        """Cancels a receive that has not matched or a send that has not left; it then fails with Canceled.
        Otherwise nothing happens. NotSupported for collectives."""
        if self._status == IN_PROGRESS:
            _native.check(lib.dicomm_request_cancel(self._handle))

    @property
    def done(self) -> bool:
        """Whether the operation has completed, well or not. Makes progress."""
        return self._status != IN_PROGRESS or self._poll()

    @property
    def error(self) -> DicommError | None:
        """What the operation failed with, None while in progress and when all went well."""
        return self._failure() if self.done and self._status != OK else None

    @property
    def bytes(self) -> int:
        """Bytes received, or the size of the operation."""
        return int(self._info().bytes)

    @property
    def source(self) -> int:
        """The rank a completed receive came from; -1 for other operations."""
        return int(self._info().source)

    def _info(self) -> Any:
        info = ffi.new("dicomm_request_info *")
        info.size = _INFO_SIZE
        lib.dicomm_request_get_info(self._handle, info)
        return info

    def _poll(self) -> bool:
        status = lib.dicomm_request_test(self._handle)
        if status == IN_PROGRESS:
            return False
        self._complete(status)
        return True

    def _complete(self, status: int) -> None:
        """Gives the buffers back. May run in several threads at once, with the same outcome."""
        if status != OK:
            self._error = _native.request_exception(self._handle)
        self._status = status
        self._inflight.discard(self)
        self._keep = None

    def _failure(self) -> DicommError:
        assert self._error is not None
        return self._error.with_traceback(None)

    def __repr__(self) -> str:
        if self._status == IN_PROGRESS:
            return "<dicomm.Request in progress>"
        return "<dicomm.Request done>" if self._status == OK else f"<dicomm.Request failed: {self._error}>"


def _in_pieces(timeout: float | None, wait: Callable[[int], int]) -> int:
    """Calls wait(nanoseconds) until it says that something completed or the time is up; returns its status.

    A signal interrupts a native wait at once, but one that comes just before the thread sleeps leaves only
    Python's note of it. Between pieces Python looks, and runs its handlers.
    """
    if timeout is None:
        while (status := wait(SIGNAL_CHECK)) in (IN_PROGRESS, INTERRUPTED):
            pass
        return status
    end = time.monotonic_ns() + _limit(timeout)
    while True:
        left = max(0, end - time.monotonic_ns())
        status = wait(min(left, SIGNAL_CHECK))
        if status not in (IN_PROGRESS, INTERRUPTED) or left == 0:
            return IN_PROGRESS if status == INTERRUPTED else status


def _limit(timeout: float) -> int:
    """Nanoseconds; 0 polls."""
    if math.isnan(timeout) or timeout < 0:
        raise InvalidArgument(f"timeout must be 0 or a positive number of seconds, not {timeout!r}")
    return min(int(timeout * 1e9), 2**62) if timeout < 4e9 else 2**62


def wait_all(requests: Iterable[Request], timeout: float | None = None) -> None:
    """Waits for all requests, in whatever order they complete; then raises the first failure in list order.

    timeout: seconds for all together; the built-in TimeoutError when they pass first.
    """
    pending = list(requests)
    if timeout is None:
        for request in pending:
            if request._status == IN_PROGRESS:
                _settle(request)
    else:
        deadline = time.monotonic() + timeout
        for request in pending:
            if request._status == IN_PROGRESS:
                _settle(request, max(0.0, deadline - time.monotonic()))
    for request in pending:
        if request._status != OK:
            raise request._failure()


def _settle(request: Request, timeout: float | None = None) -> None:
    try:
        request.wait(timeout)
    except DicommError:
        if request._status == IN_PROGRESS:
            raise


def wait_any(requests: Sequence[Request], timeout: float | None = None) -> int:
    """Waits until one request has completed and returns its index (the lowest).

    Raises what that request failed with. timeout: seconds; the built-in TimeoutError when they pass first.
    """
    if not requests:
        raise InvalidArgument("wait_any needs at least one request")
    for index, request in enumerate(requests):
        if request._status != IN_PROGRESS:
            request.wait()
            return index
    handles = ffi.new("dicomm_request *[]", [request._handle for request in requests])
    found = ffi.new("size_t *")
    count = len(requests)
    status = _in_pieces(timeout, lambda piece: lib.dicomm_request_wait_any(handles, count, piece, found))
    if status == IN_PROGRESS:
        raise TimeoutError(f"none of {len(requests)} operations has completed within {timeout} s")
    _native.check(status)
    requests[found[0]].wait()
    return int(found[0])
