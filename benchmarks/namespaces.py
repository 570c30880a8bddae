"""Two hosts and the wire between them, for which two network namespaces of this machine stand."""

from __future__ import annotations

import os
import shutil
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress

WIRE = "wire"  # the interface's name on both hosts
ADDRESSES = ("198.51.100.1", "198.51.100.2")


def missing() -> str:
    """Why there can be no namespaces here; "" if there can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    tools = [tool for tool in ("ip", "tc") if shutil.which(tool) is None]
    return f"{' and '.join(tools)} missing (iproute2)" if tools else ""


@contextmanager
def two_hosts() -> Iterator[tuple[str, str]]:
    """Their names. Nothing of them is left afterwards."""
    unique = uuid.uuid4().hex[:6]
    names = f"dicomm-a{unique}", f"dicomm-b{unique}"
    try:
        for name in names:
            _run("ip", "netns", "add", name)
            _run("ip", "-n", name, "link", "set", "lo", "up")
        ends = [["name", WIRE, "netns", name] for name in names]
        _run("ip", "link", "add", *ends[0], "type", "veth", "peer", *ends[1])
        for name, address in zip(names, ADDRESSES, strict=True):
            _run("ip", "-n", name, "addr", "add", f"{address}/24", "dev", WIRE)
            _run("ip", "-n", name, "link", "set", WIRE, "up")
        yield names
    finally:
        for name in names:
            with suppress(subprocess.CalledProcessError):
                _run("ip", "netns", "del", name)


def shape(names: tuple[str, str], megabits: int) -> None:
    """Limits the wire in both directions. What may leave at once is 128 KiB, two of the kernel's largest
    packets: less would have to be cut up in software, more would let small transfers past the limit."""
    for name in names:
        rate = ["rate", f"{megabits}mbit", "burst", "128kb", "latency", "50ms"]
        _run("tc", "-n", name, "qdisc", "replace", "dev", WIRE, "root", "tbf", *rate)


def enter(name: str) -> list[str]:
    """The words before a command that runs it on a host."""
    return ["ip", "netns", "exec", name]


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, timeout=20)
