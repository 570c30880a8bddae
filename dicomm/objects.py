"""Python objects as messages: a typed encoding by default, pickle only where every rank is trusted.

Unpickling runs whatever code the sender chose. So objects travel in an encoding that can only build plain
data: None, bool, int, float, complex, str, bytes, list, tuple, dict, set, numpy arrays and scalars.
Other objects are pickled only by communicators made with allow_pickle=True, and a rank without it refuses
pickled messages. Choose allow_pickle only where you would run the other ranks' code yourself.

Encoding: 4 bytes length of the head, the head as JSON, then the contents of bytes and arrays one after
another. In the head plain JSON values stand for themselves and everything else is a list [tag, ...].
"""

from __future__ import annotations

import json
import pickle
import struct
from typing import Any

import numpy as np

from dicomm import _native
from dicomm.errors import InvalidArgument, NotSupported, Protocol
from dicomm.operations import Operations
from dicomm.starting import TAG_LIMIT

_HEAD = struct.Struct("<I")
_FIRST = struct.Struct("<QQ")  # length of the object, tag of the message that carries the rest
_INLINE = 4096  # bytes of the object that travel in the first message
_MAX_OBJECT = 1 << 40
_ARRAY_KINDS = "biufcSUmM"


def encode(value: Any, allow_pickle: bool = False) -> bytes:
    """InvalidArgument names the type that has no encoding."""
    parts: list[bytes] = []
    try:
        head = {"value": _encode(value, parts)}
    except _NoEncodingError as error:
        if not allow_pickle:
            raise InvalidArgument(
                f"an object of type {error} has no encoding without pickle; send plain data, or make the "
                "communicator with allow_pickle=True if every rank is trusted"
            ) from None
        head, parts = {"pickle": True}, [pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)]
    text = json.dumps(head | {"sizes": [len(part) for part in parts]}, separators=(",", ":")).encode()
    return b"".join([_HEAD.pack(len(text)), text, *parts])


def decode(data: bytes | memoryview, allow_pickle: bool = False, sender: str = "the sender") -> Any:
    """NotSupported for pickled data without allow_pickle; Protocol for data that is not an encoding."""
    view = memoryview(data)
    try:
        (length,) = _HEAD.unpack_from(view)
        head = json.loads(bytes(view[_HEAD.size : _HEAD.size + length]))
        parts, at = [], _HEAD.size + length
        for size in head["sizes"]:
            if not 0 <= size <= len(view) - at:
                raise ValueError("a part is longer than the message")
            parts.append(view[at : at + size])
            at += size
        if not head.get("pickle"):
            return _decode(head["value"], parts)
    except (
        ValueError,
        KeyError,
        IndexError,
        TypeError,
        AttributeError,
        struct.error,
        RecursionError,
    ) as error:
        raise Protocol(f"what {sender} sent is not an encoded object ({error})") from error
    if not allow_pickle:
        raise NotSupported(
            f"{sender} sent a pickled object, and this rank's communicator was made without "
            "allow_pickle=True; set it on every rank if every rank is trusted"
        )
    return pickle.loads(parts[0])


class _NoEncodingError(Exception):
    pass


def _encode(value: Any, parts: list[bytes]) -> Any:
    kind = type(value)
    if value is None or kind in (bool, int, float, str):
        return value
    if kind in (list, tuple, set):
        return [kind.__name__, *(_encode(item, parts) for item in value)]
    if kind is dict:
        return ["dict", *([_encode(key, parts), _encode(item, parts)] for key, item in value.items())]
    if kind is complex:
        return ["complex", value.real, value.imag]
    if kind in (bytes, bytearray, memoryview):
        parts.append(bytes(value))
        return ["bytes", len(parts) - 1]
    if isinstance(value, np.generic) or kind is np.ndarray:
        array = np.asarray(value)
        name = array.dtype.str if array.dtype.kind in _ARRAY_KINDS else array.dtype.name
        if name.startswith(("|V", "|O")) or array.dtype.hasobject or array.dtype.names:
            raise _NoEncodingError(f"numpy array of {array.dtype}")
        if array.dtype.kind not in _ARRAY_KINDS and name.upper() not in _native.DTYPES:
            raise _NoEncodingError(f"numpy array of {array.dtype}")
        parts.append(array.tobytes())
        return ["scalar" if kind is not np.ndarray else "array", name, list(array.shape), len(parts) - 1]
    raise _NoEncodingError(f"{kind.__module__}.{kind.__qualname__}")


def _decode(head: Any, parts: list[memoryview]) -> Any:
    if not isinstance(head, list):
        if isinstance(head, dict):
            raise ValueError("a bare JSON object")
        return head
    tag, *rest = head
    if tag == "bytes":
        return bytes(parts[rest[0]])
    if tag in ("array", "scalar"):
        name, shape, index = rest
        array = np.frombuffer(parts[index], _numpy_dtype(name)).reshape(shape)
        return array[()] if tag == "scalar" else array.copy()
    if tag == "complex":
        return complex(*rest)
    if tag == "dict":
        return {_decode(key, parts): _decode(item, parts) for key, item in rest}
    sequence = {"list": list, "tuple": tuple, "set": set}[tag]
    return sequence(_decode(item, parts) for item in rest)


def _numpy_dtype(name: str) -> np.dtype[Any]:
    if name.upper() in _native.DTYPES and not hasattr(np, name):
        import ml_dtypes  # bfloat16 and float8; a rank that receives them needs it

        found: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
        return found
    try:
        dtype = np.dtype(name)
    except SyntaxError:  # numpy evaluates what looks like a list of fields
        raise ValueError(f"dtype {name!r}") from None
    if dtype.kind not in _ARRAY_KINDS:
        raise ValueError(f"dtype {name!r}")
    return dtype


class ObjectOperations(Operations):
    """Blocking operations on Python objects; see the top of dicomm.objects for what may be sent."""

    allow_pickle: bool
    _objects_sent: int

    def send_object(self, value: Any, dest: int, tag: int = 0, timeout: float | None = None) -> None:
        """Sends an object to rank dest, which receives it with recv_object. tag: 0 to 2**61 - 1."""
        data = encode(value, self.allow_pickle)
        self._objects_sent += 1
        rest_tag = TAG_LIMIT + TAG_LIMIT // 2 + self._objects_sent
        first = _FIRST.pack(len(data), rest_tag) + data[:_INLINE]
        request = self.isend(first, dest, _object_tag(tag), timeout)
        if len(data) > _INLINE:
            rest = memoryview(data)[_INLINE:]
            self.send(rest, dest, rest_tag, timeout)
        request.wait()

    def recv_object(
        self, source: int = _native.ANY_SOURCE, tag: int = 0, timeout: float | None = None
    ) -> Any:
        """Receives an object from rank source, or from any."""
        first = bytearray(_FIRST.size + _INLINE)
        request = self.irecv(first, source, _object_tag(tag), timeout)
        request.wait()
        sender = f"rank {request.source}"
        if request.bytes < _FIRST.size:
            raise Protocol(f"what {sender} sent is not an encoded object ({request.bytes} bytes)")
        length, rest_tag = _FIRST.unpack_from(first)
        if (
            length > _MAX_OBJECT
            or rest_tag < TAG_LIMIT
            or request.bytes != _FIRST.size + min(length, _INLINE)
        ):
            raise Protocol(f"what {sender} sent is not an encoded object")
        data = memoryview(bytearray(length))
        data[:_INLINE] = memoryview(first)[_FIRST.size : request.bytes]
        if length > _INLINE:
            self.recv(data[_INLINE:], request.source, rest_tag, timeout)
        return decode(data, self.allow_pickle, sender)

    def broadcast_object(self, value: Any = None, root: int = 0, timeout: float | None = None) -> Any:
        """Returns root's object on every rank. value is ignored on other ranks."""
        data = encode(value, self.allow_pickle) if self.rank == root else b""
        length = np.array([len(data)], np.int64)
        self.broadcast(length, root, timeout)
        if self.rank == root:
            self.broadcast(data, root, timeout)
            return value
        received = np.empty(_bounded(int(length[0]), root), np.uint8)
        self.broadcast(received, root, timeout)
        return decode(received.data, self.allow_pickle, f"rank {root}")

    def allgather_object(self, value: Any, timeout: float | None = None) -> list[Any]:
        """Returns the list of every rank's object, by rank."""
        data = np.frombuffer(encode(value, self.allow_pickle), np.uint8)
        lengths = self._lengths(data.size, timeout)
        received = np.empty(sum(lengths), np.uint8)
        self.allgatherv(data, received, lengths, timeout)
        return self._split(received, lengths)

    def gather_object(self, value: Any, root: int = 0, timeout: float | None = None) -> list[Any] | None:
        """Returns the list of every rank's object on root, None elsewhere."""
        data = np.frombuffer(encode(value, self.allow_pickle), np.uint8)
        lengths = self._lengths(data.size, timeout)
        if self.rank != root:
            self.gatherv(data, root=root, timeout=timeout)
            return None
        received = np.empty(sum(lengths), np.uint8)
        self.gatherv(data, received, lengths, root, timeout)
        return self._split(received, lengths)

    def scatter_object(
        self, values: list[Any] | None = None, root: int = 0, timeout: float | None = None
    ) -> Any:
        """Returns values[rank] of root's list. values is ignored on other ranks."""
        lengths = np.zeros(self.size, np.int64)
        encoded: list[bytes] = []
        if self.rank == root:
            if values is None or len(values) != self.size:
                raise InvalidArgument(f"scatter_object on root {root} needs a list of {self.size} objects")
            encoded = [encode(value, self.allow_pickle) for value in values]
            lengths[:] = [len(data) for data in encoded]
        self.broadcast(lengths, root, timeout)
        received = np.empty(_bounded(int(lengths[self.rank]), root), np.uint8)
        self.scatterv(encoded if self.rank == root else None, received, root=root, timeout=timeout)
        return decode(received.data, self.allow_pickle, f"rank {root}")

    def _lengths(self, mine: int, timeout: float | None) -> list[int]:
        lengths = np.empty(self.size, np.int64)
        self.allgather(np.array([mine], np.int64), lengths, timeout)
        return [_bounded(int(length), rank) for rank, length in enumerate(lengths)]

    def _split(self, received: np.ndarray[Any, Any], lengths: list[int]) -> list[Any]:
        values, at = [], 0
        for rank, length in enumerate(lengths):
            part = received[at : at + length]
            values.append(decode(part.data, self.allow_pickle, f"rank {rank}"))
            at += length
        return values


def _object_tag(tag: int) -> int:
    if not isinstance(tag, int) or not 0 <= tag < TAG_LIMIT // 2:
        raise InvalidArgument(f"tag of an object must be in 0 ... 2**61 - 1, not {tag!r}")
    return TAG_LIMIT + tag


def _bounded(length: int, rank: int) -> int:
    if not 0 <= length <= _MAX_OBJECT:
        raise Protocol(f"rank {rank} announced an object of {length} bytes")
    return length
