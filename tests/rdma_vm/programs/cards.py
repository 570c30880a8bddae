"""What programs of two ranks, one on each host, say of RDMA; and ways to cut a wire between the hosts."""

from __future__ import annotations

import contextlib
import fcntl
import json
import socket
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dicomm

SIOCGIFFLAGS, SIOCSIFFLAGS, SIOCSARP, SIOCDARP = 0x8913, 0x8914, 0x8955, 0x8953
IFF_UP, ATF_COM, ATF_PERM = 1, 2, 4
ARPHRD_ETHER = 1


def say(line: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def other(comm: dicomm.Communicator) -> dict[str, Any]:
    """stats() of the one other rank."""
    found: dict[str, Any] = next(peer for peer in comm.stats()["peers"] if peer["rank"] == 1 - comm.rank)
    return found


def wait_for_path(comm: dicomm.Communicator, path: str, seconds: float = 60) -> None:
    _wait(comm, lambda: other(comm)["path"] == path, path, seconds)


def wait_for_cards(comm: dicomm.Communicator, cards: set[str], seconds: float = 60) -> None:
    """Until the messages to the other rank go over these cards and no others."""
    _wait(comm, lambda: {port.split()[0] for port in other(comm)["ports"]} == cards, cards, seconds)


def _wait(comm: dicomm.Communicator, reached: Callable[[], bool], what: object, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not reached():
        assert time.monotonic() < deadline, f"not {what} within {seconds:g} s: {other(comm)}"
        time.sleep(0.02)


def card_counters(card: str) -> dict[str, int]:
    """Of Soft-RoCE, such as sent_pkts and send_rnr_err; of packets, but for errors."""
    folder = Path("/sys/class/infiniband") / card / "ports/1/hw_counters"
    return {file.name: int(file.read_text()) for file in folder.iterdir() if file.name != "lifespan"}


class Wire:
    """The end of wire 2 (see wire.sh) on the host of this rank, 0 or 1."""

    def __init__(self, rank: int) -> None:
        self._interface = b"ethA2" if rank == 0 else b"ethB2"
        self._peer = socket.inet_aton(f"203.0.113.{2 - rank}")
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)

    def close(self) -> None:
        self._socket.close()

    def silence(self) -> None:
        """What this host sends is for nobody: as if a switch lost it. Nothing is told of that."""
        self._arp(SIOCSARP, bytes([2, 0, 0, 0, 0, 99]))

    def down(self) -> None:
        self._flags(IFF_UP, 0)

    def heal(self) -> None:
        """After either; also when there is nothing to heal."""
        with contextlib.suppress(OSError):  # there is no such entry, as after down()
            self._arp(SIOCDARP, bytes(6))
        self._flags(0, IFF_UP)

    def _arp(self, request: int, address: bytes) -> None:
        # struct arpreq of linux/if_arp.h
        packed = struct.pack(
            "=HH4s8x H6s8x i16x16s",
            socket.AF_INET, 0, self._peer, ARPHRD_ETHER, address, ATF_COM | ATF_PERM, self._interface,
        )  # fmt: skip
        fcntl.ioctl(self._socket, request, packed)

    def _flags(self, clear: int, put: int) -> None:
        packed = fcntl.ioctl(self._socket, SIOCGIFFLAGS, struct.pack("=16sH22x", self._interface, 0))
        flags = struct.unpack_from("=H", packed, 16)[0]
        fcntl.ioctl(
            self._socket, SIOCSIFFLAGS, struct.pack("=16sH22x", self._interface, (flags & ~clear) | put)
        )
