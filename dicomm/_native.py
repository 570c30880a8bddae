"""The raw layer: the only module that touches `ffi`, `lib` and `_entry`.

Everything here is a thin, one-to-one use of dicomm.h. `check` turns a status into an exception.
"""

from __future__ import annotations

import json
from pathlib import Path

from dicomm import errors

try:
    from dicomm._cffi import ffi, lib
    from dicomm._entry import run as run
except ImportError as error:
    raise ImportError(
        f"dicomm's native module cannot be loaded ({error}). It is compiled when dicomm is installed: run "
        "`pip install .` in dicomm's source folder with a C++20 compiler at hand, and do not import "
        "dicomm from inside its source folder without having installed it."
    ) from error

ABI_VERSION = lib.DICOMM_ABI_VERSION
if lib.dicomm_abi_version() != ABI_VERSION:
    raise ImportError(
        f"dicomm's native module was compiled for version {ABI_VERSION} of libdicomm's ABI, the library that "
        f"was found has version {lib.dicomm_abi_version()}; reinstall dicomm"
    )

# Directory that holds lib/ and include/: the installed package, also for an editable installation.
ROOT = Path(__import__("dicomm._cffi", fromlist=["_cffi"]).__file__).resolve().parent

OK = lib.DICOMM_OK
IN_PROGRESS = lib.DICOMM_IN_PROGRESS
INTERRUPTED = lib.DICOMM_INTERRUPTED
ANY_SOURCE = lib.DICOMM_ANY_SOURCE
TIMEOUT_DEFAULT = lib.DICOMM_TIMEOUT_DEFAULT
TIMEOUT_NEVER = lib.DICOMM_TIMEOUT_NEVER


def _enumerators(ctype: str) -> dict[str, int]:
    """{"FLOAT32": 13, ...} of an enum, without the DICOMM_ prefix."""
    values = ffi.typeof(ctype).relements
    return {name.removeprefix("DICOMM_"): values[name] for name in sorted(values, key=values.__getitem__)}


def _text(chars) -> str:
    return ffi.string(chars).decode("utf-8", "replace")


STATUSES = _enumerators("dicomm_status")
DTYPES = _enumerators("dicomm_dtype")
REDUCES = _enumerators("dicomm_reduce")
OPCODES = _enumerators("dicomm_opcode")
DTYPE_SIZES = {code: lib.dicomm_dtype_size(code) for code in DTYPES.values()}

_NAMES = {code: name for name, code in STATUSES.items()}
_CLASSES = errors.define(
    [
        (name, _text(lib.dicomm_status_group(code)), _text(lib.dicomm_status_text(code)))
        for name, code in STATUSES.items()
    ]
)


def exception(error) -> errors.DicommError:
    """The exception for a `dicomm_error *`."""
    cls = _CLASSES.get(_NAMES.get(error.status, ""), _CLASSES["INTERNAL"])
    domain = _text(error.foreign_domain)
    made = cls(
        _text(error.message),
        op=_text(error.op),
        seq=error.seq if error.seq >= 0 else None,
        rank=error.rank if error.rank >= 0 else None,
        peer=error.peer if error.peer >= 0 else None,
        peer_host=_text(error.peer_host),
        path=_text(error.path),
        bytes=error.bytes,
        waited=error.waited_ns / 1e9 if error.waited_ns > 0 else None,
        foreign_domain=domain,
        foreign_code=error.foreign_code if domain else None,
    )
    if domain == "errno" and isinstance(made, OSError):
        made.errno = error.foreign_code
    return made


def last_exception() -> errors.DicommError:
    """The failure of the last call on this thread."""
    error = ffi.new("dicomm_error *")
    lib.dicomm_last_error(error)
    return exception(error)


def check(status: int) -> None:
    """Raises the failure of the call that just returned `status`, unless that was OK."""
    if status != OK:
        raise last_exception()


def request_exception(request) -> errors.DicommError:
    """The failure of a completed request."""
    error = ffi.new("dicomm_error *")
    lib.dicomm_request_get_error(request, error)
    return exception(error)


def text(function, *arguments) -> str:
    """Calls a function that ends in (char *buf, size_t cap) and returns the whole text."""
    capacity = 4096
    while True:
        buffer = ffi.new("char[]", capacity)
        length = function(*arguments, buffer, capacity)
        if length < capacity:
            return ffi.buffer(buffer, length)[:].decode("utf-8", "replace")
        capacity = length + 1


def address(pointer) -> int:
    """Of cdata, as `run` takes it."""
    return int(ffi.cast("intptr_t", pointer))


def request_at(address: int):
    """The dicomm_request * that `run` returned."""
    return ffi.cast("dicomm_request *", address)


def build_info() -> dict:
    """Version, compiler, flags, transports and algorithms of libdicomm."""
    return json.loads(text(lib.dicomm_build_info))


def explain(
    opcode: int,
    count: int,
    dtype: int,
    rank: int,
    ranks: int,
    algorithms: str,
    *,
    hosts=None,
    machine=None,
    islands=None,
    reduce=REDUCES["SUM"],
    wire_dtype=0,
    reducers=None,
) -> str:
    """dicomm_explain: hosts, islands and reducers are lists of each rank's, machine a dict of
    dicomm_machine's fields."""
    question = ffi.new("dicomm_question *")
    held = [ffi.new("char[]", algorithms.encode()), ffi.NULL, ffi.NULL, ffi.NULL, ffi.NULL]
    if hosts is not None:
        held[1] = ffi.new("int32_t[]", hosts)
    if machine is not None:
        held[2] = ffi.new("dicomm_machine *", {"size": ffi.sizeof("dicomm_machine"), **machine})
    if islands is not None:
        held[3] = ffi.new("int32_t[]", islands)
    if reducers is not None:
        held[4] = ffi.new("int32_t[]", reducers)
    question.size = ffi.sizeof("dicomm_question")
    question.opcode, question.count, question.dtype = opcode, count, dtype
    question.rank, question.ranks, question.reduce = rank, ranks, reduce
    question.wire_dtype = wire_dtype
    question.algorithms, question.hosts, question.machine, question.islands, question.reducers = held
    answer = text(lib.dicomm_explain, question)
    failure = last_exception()
    if answer == str(failure):  # how the library answers a question that makes no sense
        raise failure
    return answer


def nanoseconds(seconds: float | None) -> int:
    """Seconds to a time-out of the C ABI; None is the default, infinity never."""
    if seconds is None:
        return TIMEOUT_DEFAULT
    if seconds == float("inf"):
        return TIMEOUT_NEVER
    if not seconds > 0:
        raise _CLASSES["INVALID_ARGUMENT"](
            f"timeout must be a positive number of seconds, None (the default) or inf, not {seconds!r}"
        )
    return min(int(seconds * 1e9) or 1, 2**62)


# ---- stores that Python objects implement --------------------------------------------------------------


class StoreAdapter:
    """Makes `set(key, bytes)`, `get(key, timeout_seconds) -> bytes` and `check(key) -> bool` a dicomm_store.

    An exception of the Python object is kept in `failure`, because it cannot cross C.
    """

    def __init__(self, store) -> None:
        self.store = store
        self.failure: BaseException | None = None
        self.handle = ffi.new_handle(self)
        self.vtable = ffi.new("dicomm_store_vtable *")
        self.vtable.size = ffi.sizeof("dicomm_store_vtable")
        self.vtable.set = lib.dicomm_py_store_set
        self.vtable.get = lib.dicomm_py_store_get
        self.vtable.check = lib.dicomm_py_store_check

    def failed(self, error: BaseException) -> int:
        if isinstance(error, TimeoutError):
            return lib.DICOMM_TIMED_OUT
        self.failure = error
        return lib.DICOMM_SYSTEM


@ffi.def_extern(error=lib.DICOMM_INTERNAL)
def dicomm_py_store_set(handle, key, value, length):
    adapter = ffi.from_handle(handle)
    try:
        adapter.store.set(_text(key), ffi.buffer(value, length)[:] if length else b"")
        return OK
    except BaseException as error:
        return adapter.failed(error)


@ffi.def_extern(error=lib.DICOMM_INTERNAL)
def dicomm_py_store_get(handle, key, value, capacity, length, timeout_ns):
    adapter = ffi.from_handle(handle)
    try:
        data = adapter.store.get(_text(key), timeout_ns / 1e9)
        length[0] = len(data)
        copied = min(len(data), capacity)
        ffi.memmove(value, data[:copied], copied)
        return OK
    except BaseException as error:
        return adapter.failed(error)


@ffi.def_extern(error=lib.DICOMM_INTERNAL)
def dicomm_py_store_check(handle, key, exists):
    adapter = ffi.from_handle(handle)
    try:
        exists[0] = bool(adapter.store.check(_text(key)))
        return OK
    except BaseException as error:
        return adapter.failed(error)
