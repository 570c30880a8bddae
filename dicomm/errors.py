"""Exceptions: one class per status of dicomm.h, made from its status list.

The hierarchy is flat: every class derives from `DicommError`, and from the built-in exception a Python
programmer would expect where there is one (`TimedOut` is a `TimeoutError`, `PeerLost` a `ConnectionError`).
"""

from __future__ import annotations

import re
from importlib import import_module
from typing import Any


class DicommError(Exception):
    """An operation failed. `str()` is one sentence that says what, where, why and what to do.

    Fields that do not apply are None (or "" for strings).

    Attributes:
        status: name in the status list, such as "PEER_LOST".
        group: what is lost: "caller" (nothing was sent), "request", "peer", "communicator" or "process".
        op: the operation, such as "allreduce".
        seq: the communicator's sequence number of the operation.
        rank: the rank that raises.
        peer: the rank the failure is about.
        peer_host: that rank's host.
        path: the way the bytes went, such as "tcp".
        bytes: size of the operation.
        waited: seconds from the start of the operation to its failure.
        foreign_domain, foreign_code: the code of another library or the system, such as ("errno", 104).
    """

    status = "INTERNAL"
    group = "process"

    def __init__(
        self,
        message: str,
        *,
        op: str = "",
        seq: int | None = None,
        rank: int | None = None,
        peer: int | None = None,
        peer_host: str = "",
        path: str = "",
        bytes: int | None = None,
        waited: float | None = None,
        foreign_domain: str = "",
        foreign_code: int | None = None,
    ) -> None:
        super().__init__(message)
        self.op = op
        self.seq = seq
        self.rank = rank
        self.peer = peer
        self.peer_host = peer_host
        self.path = path
        self.bytes = bytes
        self.waited = waited
        self.foreign_domain = foreign_domain
        self.foreign_code = foreign_code

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles with every field, so that multiprocessing and test runners can carry it home."""
        return (_rebuild, (type(self), self.args, dict(self.__dict__)))


def _rebuild(cls: type[DicommError], args: tuple[Any, ...], fields: dict[str, Any]) -> DicommError:
    error = cls(*args)
    error.__dict__.update(fields)
    return error


# Beside the base class. Statuses that are not failures have no class.
_ALSO: dict[str, type[Exception]] = {
    "INVALID_ARGUMENT": ValueError,
    "NOT_SUPPORTED": NotImplementedError,
    "TIMED_OUT": TimeoutError,
    "CONNECT_FAILED": ConnectionError,
    "PEER_LOST": ConnectionError,
    "PROTOCOL": ConnectionError,
    "NO_MEMORY": MemoryError,
    "SYSTEM": OSError,
}
_NOT_FAILURES = {"OK", "IN_PROGRESS", "INTERRUPTED"}
_RENAMED = {"SYSTEM": "SystemFailed"}


def class_name(status: str) -> str:
    """PEER_LOST -> PeerLost."""
    return _RENAMED.get(status) or re.sub(r"(^|_)([A-Z])([A-Z]*)", lambda m: m[2] + m[3].lower(), status)


def define(statuses: list[tuple[str, str, str]]) -> dict[str, type[DicommError]]:
    """Adds the classes for (name, group, text) rows to this module; called once, by dicomm._native.

    errors.pyi tells type checkers their names.
    """
    classes: dict[str, type[DicommError]] = {}
    for status, group, text in statuses:
        if status in _NOT_FAILURES:
            continue
        bases: tuple[type, ...] = (DicommError, _ALSO[status]) if status in _ALSO else (DicommError,)
        doc = f"{text[0].upper()}{text[1:]} ({status}; lost: {'nothing' if group == 'caller' else group})."
        body = {"status": status, "group": group, "__doc__": doc, "__module__": __name__}
        classes[status] = type(class_name(status), bases, body)
    globals().update({cls.__name__: cls for cls in classes.values()})
    return classes


def __getattr__(name: str) -> Any:
    """The classes exist once the native layer, which has the list, is loaded: whoever asks first loads it."""
    if not name.startswith("_"):
        import_module("dicomm._native")
    if name not in globals():
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return globals()[name]
