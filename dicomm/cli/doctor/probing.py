"""Plain TCP connections between ranks: each by itself, so that one that fails says nothing of the others.

A rank listens on the address on which dicomm would. A peer connects, sends some times 8 bytes and gets this
rank's clock back, then sends many packets' worth and gets its clock again.
"""

from __future__ import annotations

import contextlib
import socket
import socketserver
import struct
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

_CLOCK = struct.Struct("!d")
_ROUND_TRIPS = 8
_LARGE = 256 << 10  # bytes
_THREADS = 32
_GRACE = 5.0  # seconds within which a peer that has connected must have sent all


@dataclass(frozen=True)
class Link:
    """A peer as a rank sees it. connect: why there was no connection, or no answer to 8 bytes; large: why
    none to many packets; "" where all went well. ahead: seconds by which its clock is ahead, as a round trip
    of trip seconds told."""

    connect: str = ""
    large: str = ""
    ahead: float = 0.0
    trip: float = 0.0


class _Handler(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        self.request.settimeout(_GRACE)
        with contextlib.suppress(OSError):  # the peer says what it saw of it
            for size in [8] * _ROUND_TRIPS + [_LARGE]:
                _receive(self.request, size)
                self.request.sendall(_CLOCK.pack(time.time()))


@contextlib.contextmanager
def listening(address: str) -> Iterator[int]:
    """Answers peers on a port, which it gives, until the block ends. OSError: nobody can listen there."""
    if not address:
        raise OSError("there is no address")  # a socket would take it for all of them

    class Server(socketserver.ThreadingTCPServer):
        address_family = socket.AF_INET6 if ":" in address else socket.AF_INET
        daemon_threads = True

    with Server((address, 0), _Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield int(server.server_address[1])
        finally:
            server.shutdown()
            thread.join()


def probe_all(peers: Mapping[int, tuple[str, int]], timeout: float) -> dict[int, Link]:
    """peers: rank -> (address, port). timeout: seconds for each to connect, and to answer."""
    with ThreadPoolExecutor(_THREADS) as pool:
        links = pool.map(lambda peer: probe(peer[0], peer[1], timeout), peers.values())
        return dict(zip(peers, links, strict=True))


def probe(address: str, port: int, timeout: float) -> Link:
    """As NTP does it, an answer is taken to be of the middle of its round trip, the shortest of some."""
    where = f"{f'[{address}]' if ':' in address else address}:{port}"
    try:
        connection = socket.create_connection((address, port), timeout)
    except OSError as error:
        return Link(connect=f"no connection to {where}: {_reason(error)}")
    with connection:
        trips = []
        try:
            for _ in range(_ROUND_TRIPS):
                start, theirs, end = _exchange(connection, 8)
                trips.append((end - start, theirs - (start + end) / 2))
        except OSError as error:
            return Link(connect=f"connected to {where}, but no answer: {_reason(error)}")
        trip, ahead = min(trips)
        try:
            _exchange(connection, _LARGE)
        except OSError as error:
            return Link(
                large=f"no answer of {where} to {_LARGE >> 10} KiB: {_reason(error)}", ahead=ahead, trip=trip
            )
        return Link(ahead=ahead, trip=trip)


def _exchange(connection: socket.socket, size: int) -> tuple[float, float, float]:
    """(this clock before, the peer's, this clock after)"""
    start = time.time()
    connection.sendall(bytes(size))
    (theirs,) = _CLOCK.unpack(_receive(connection, _CLOCK.size))
    return start, theirs, time.time()


def _receive(connection: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        part = connection.recv(min(size - len(data), 1 << 16))
        if not part:
            raise ConnectionResetError(f"closed after {len(data)} of {size} bytes")
        data += part
    return bytes(data)


def _reason(error: OSError) -> str:
    return error.strerror or str(error)
