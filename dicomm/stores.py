"""Stores: the native ones, and Python objects wrapped to be one."""

from __future__ import annotations

import atexit
import contextlib
import datetime
import threading
import time
from typing import TYPE_CHECKING, Any

from dicomm import _native, interruptible
from dicomm._native import ffi, lib
from dicomm.errors import DicommError

if TYPE_CHECKING:
    from dicomm.rendezvous import Meeting

# Seconds the process that serves a store waits at its end for ranks that are still reading it.
_LINGER = 3.0
_LEFT = "dicomm/left"
_PIECE = 0.2


class LocalStore:
    """The store of a job of one rank."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}

    def set(self, key: str, value: bytes) -> None:
        self.values[key] = value

    def get(self, key: str, timeout: float) -> bytes:
        if key not in self.values:
            raise TimeoutError(key)
        return self.values[key]

    def check(self, key: str) -> bool:
        return key in self.values


class TorchStore:
    """A torch Store, known by its methods: set, get, check and wait."""

    def __init__(self, store: Any) -> None:
        self.store = store

    def set(self, key: str, value: bytes) -> None:
        self.store.set(key, value)

    def get(self, key: str, timeout: float) -> bytes:
        # Torch's wait does not return on a signal, so wait in short pieces.
        end = time.monotonic() + timeout
        while not self.check(key):
            left = end - time.monotonic()
            if left <= 0:
                raise TimeoutError(key)
            with contextlib.suppress(Exception):  # its time-out has a class of its own in every version
                # Under a millisecond torch takes for "no time-out".
                self.store.wait([key], datetime.timedelta(seconds=max(0.001, min(left, _PIECE))))
        value = self.store.get(key)
        return value.encode() if isinstance(value, str) else bytes(value)

    def check(self, key: str) -> bool:
        return bool(self.store.check([key]))


class Store:
    """An open dicomm_store. Close it with leave() once the communicator exists."""

    def __init__(
        self,
        handle: Any,
        *,
        adapter: _native.StoreAdapter | None = None,
        shared: bool = False,
        secret: bytes = b"",
    ) -> None:
        self.handle = handle
        self.adapter = adapter
        self.shared = shared  # over tcp: one process serves it and must not end while others read
        self.served = False  # by this process
        self.secret = secret
        self.readers = 0  # of a served store: ranks that will read it, all inits together
        self.lock = threading.Lock()  # a native store is for one thread at a time

    def create(self, context: Any, prefix: str, rank: int, size: int, options: Any) -> Any:
        """dicomm_comm_create: blocks until all ranks are known. Returns the native communicator."""

        def run() -> Any:
            out = ffi.new("dicomm_comm **")
            with self.lock:
                self.readers += size
                status = lib.dicomm_comm_create(
                    context, self.handle, prefix.encode(), rank, size, options, out
                )
                if status == _native.OK:
                    return out[0]
                cause = self.adapter.failure if self.adapter else None
                if cause is not None and not isinstance(cause, Exception):
                    raise cause  # KeyboardInterrupt, raised in the Python store
                raise _native.last_exception() from cause

        # A Python store is called on this thread, and handlers run whenever it is.
        return run() if self.adapter else interruptible.call(run)

    def add(self, key: str, delta: int) -> int:
        result = ffi.new("int64_t *")
        with self.lock:
            _native.check(lib.dicomm_store_add(self.handle, key.encode(), delta, result))
        return int(result[0])

    def set(self, key: str, value: bytes) -> None:
        """key must be new to the store."""
        with self.lock:
            _native.check(lib.dicomm_store_set(self.handle, key.encode(), value, len(value)))

    def get(self, key: str, timeout: float) -> bytes:
        """Waits until somebody has set the key. TimedOut when nobody does within so many seconds."""
        length, limit = ffi.new("size_t *"), _native.nanoseconds(timeout)

        def run(capacity: int) -> bytes:
            value = ffi.new("uint8_t[]", capacity)
            with self.lock:
                status = lib.dicomm_store_get(self.handle, key.encode(), value, capacity, length, limit)
                _native.check(status)
            return bytes(ffi.buffer(value)[: length[0]])

        value = interruptible.call(lambda: run(1 << 16))
        return value if length[0] == len(value) else run(length[0])

    def expect(self, ranks: int) -> None:
        """Before reading without create(): so many ranks will, and each ends with leave()."""
        with self.lock:
            self.readers += ranks

    def leave(self) -> None:
        """This rank reads no more. A served store stays up for the ranks that do, and for the next init."""
        if self.shared:
            with contextlib.suppress(DicommError):  # the server may be gone already
                self.add(_LEFT, 1)
        if not self.served:
            self.close()

    def close(self) -> None:
        handle, self.handle = self.handle, None
        if handle is not None:
            lib.dicomm_store_close(handle)

    def linger(self) -> None:
        """Waits, not for ever, until no rank reads any more."""
        end = time.monotonic() + _LINGER
        while time.monotonic() < end and self.add(_LEFT, 0) < self.readers:
            time.sleep(0.01)


_served: dict[str, Store] = {}
_lock = threading.Lock()


def serve(url: str, secret: bytes, timeout: float = 60.0) -> tuple[str, bytes]:
    """Serves a store from this process until it ends. Returns the url and the secret for clients, which are
    those of the first call with this url."""
    with _lock:
        store = _served.get(url)
        if store is None:
            store = Store(_open(url, secret, timeout), shared=True, secret=secret)
            store.served = True
            _served[url] = _served[_url(store)] = store
        return _url(store), store.secret


def open_store(meeting: Meeting, timeout: float) -> Store:
    """The store of a meeting: served here, served elsewhere, a directory, or a wrapped object."""
    if meeting.store is not None:
        adapter = _native.StoreAdapter(meeting.store)
        out = ffi.new("dicomm_store **")
        _native.check(lib.dicomm_store_wrap(adapter.vtable, adapter.handle, out))
        return Store(out[0], adapter=adapter)
    if meeting.url.startswith("tcp-server:"):
        serve(meeting.url, meeting.secret, timeout)
    if meeting.rank == 0 and meeting.url in _served:
        return _served[meeting.url]
    shared = meeting.url.startswith("tcp:")
    return Store(_open(meeting.url, meeting.secret, timeout), shared=shared)


def close_all() -> None:
    """Ends the stores this process serves; at exit, after every context is closed."""
    with _lock:
        stores = set(_served.values())
        _served.clear()
    for store in stores:
        with contextlib.suppress(DicommError):  # nothing more can be done for the readers
            store.linger()
        store.close()


def abandon(store: Store) -> None:
    """After an interrupt: a thread may still be inside the store, so nobody touches it again."""
    with _lock:
        for url in [url for url, served in _served.items() if served is store]:
            del _served[url]


def _url(store: Store) -> str:
    return _native.text(lib.dicomm_store_url, store.handle)


def _open(url: str, secret: bytes, timeout: float) -> Any:
    options = ffi.new("dicomm_store_options *")
    options.size = ffi.sizeof("dicomm_store_options")
    held = ffi.new("uint8_t[]", secret or b"\0")
    options.secret, options.secret_len = held, len(secret)
    options.timeout_ns = _native.nanoseconds(timeout)

    def run() -> Any:
        out = ffi.new("dicomm_store **")
        _native.check(lib.dicomm_store_open(url.encode(), options, out))
        return out[0], held

    return interruptible.call(run)[0]


atexit.register(close_all)
