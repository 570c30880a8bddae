"""Context: this process's listener, connections, progress thread; what happens to them at fork and exit."""

from __future__ import annotations

import atexit
import json
import os
import sys
from typing import TYPE_CHECKING, Any

from dicomm import _native
from dicomm._native import ffi, lib
from dicomm.chip import native_chip
from dicomm.config import LOG_LEVELS, Config

if TYPE_CHECKING:
    from dicomm.communicator import Communicator

# Seconds that operations still pending at exit get, when nobody closed their communicator.
_EXIT_GRACE = 10.0
_live: set[Context] = set()


class Context:
    """Owned by the world communicator. Closing it closes all communicators made from it.

    rank: this process's in the job, by which simulated chips are dealt out.
    """

    def __init__(self, config: Config, secret: bytes = b"", route_to: str = "", rank: int = 0) -> None:
        self.config = config
        self.communicators: list[Communicator] = []
        options = ffi.new("dicomm_context_options *")
        options.size = ffi.sizeof("dicomm_context_options")
        texts = (config.interface, route_to, config.paths, config.rdma)
        strings = [ffi.new("char[]", text.encode()) for text in texts]
        options.interface, options.route_to, options.paths, options.rdma = strings
        held_secret = ffi.new("uint8_t[]", secret or b"\0")
        options.secret, options.secret_len = held_secret, len(secret)
        options.sockets_per_peer = config.sockets_per_peer
        options.log_level = LOG_LEVELS.index(config.log)
        options.eager_bytes = config.eager_bytes
        options.spin_ns = -1 if config.spin_us is None else int(config.spin_us * 1000)
        if config.handshake_timeout is not None:
            options.handshake_timeout_ns = _native.nanoseconds(config.handshake_timeout)
        options.chip, held_chip = native_chip(config, rank)
        out = ffi.new("dicomm_context **")
        _native.check(lib.dicomm_context_create(options, out))
        del held_chip  # alive until here
        self.handle: Any = out[0]
        _live.add(self)

    def info(self) -> dict[str, Any]:
        """id, address, interface and counters."""
        info: dict[str, Any] = json.loads(_native.text(lib.dicomm_context_info, self.handle))
        return info

    def close(self) -> None:
        """Closes the communicators, says goodbye to the peers, joins the thread. May be called again."""
        for communicator in reversed(self.communicators):
            communicator._close_handle()
        self.communicators.clear()
        handle, self.handle = self.handle, None
        _live.discard(self)
        if handle is not None:
            lib.dicomm_context_close(handle)

    def abandon(self) -> None:
        """After an interrupt: a thread may still be inside it, so nobody touches it again."""
        self.handle = None
        _live.discard(self)


def _after_fork_in_child() -> None:
    for context in _live:
        lib.dicomm_context_after_fork(context.handle)


def _at_exit() -> None:
    """Leaves as well as possible when a program forgot to close, or died of an exception."""
    failure = getattr(sys, "last_value", None)
    for context in list(_live):
        for communicator in context.communicators:
            if failure is not None:
                communicator.abort(f"the process ended with {type(failure).__name__}: {failure}")
            elif communicator.timeout > _EXIT_GRACE:
                communicator.timeout = _EXIT_GRACE
        context.close()


os.register_at_fork(after_in_child=_after_fork_in_child)
atexit.register(_at_exit)
