"""Machine: everything the checks look at, in one value that a test can make."""

from __future__ import annotations

import dataclasses
import os
import platform
import re
import resource
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dicomm.cli.doctor import sysfs
from dicomm.cli.doctor.syscalls import probe
from dicomm.cli.doctor.verbs import PortView, Verbs, ask_libibverbs, ask_pyverbs
from dicomm.config import Config


@dataclass(frozen=True)
class Machine:
    """A host, as a process on it sees it.

    root: where /sys, /proc and /dev are, "/" but in tests. info: as dicomm.cli.info.collect(). kernel: its
    release. memlock: bytes this process may lock (RLIMIT_MEMLOCK), -1 for any number. address: on which
    dicomm listens; no_address: why it cannot, "" if it can. syscalls: as syscalls.probe(). verbs, pyverbs: as
    verbs.ask_libibverbs() and ask_pyverbs(). dev_shm: bytes of /dev/shm, 0 where there is none.
    """

    root: Path
    info: Mapping[str, Any]
    kernel: str
    memlock: int
    address: str
    no_address: str = ""
    syscalls: Mapping[str, str] = field(default_factory=dict)
    verbs: Verbs = field(default_factory=Verbs)
    pyverbs: Mapping[str, Mapping[int, PortView]] | str = ""
    dev_shm: int = 0

    @property
    def interfaces(self) -> Mapping[str, Mapping[str, Any]]:
        """Network interfaces: name -> state, mtu, mbit_s, addresses."""
        found: Mapping[str, Mapping[str, Any]] = self.info["interfaces"]
        return found

    @property
    def kernel_version(self) -> tuple[int, ...]:
        """(6, 1) of "6.1.0-18-amd64"."""
        return tuple(int(number) for number in re.findall(r"\d+", self.kernel)[:2])

    def listening(self) -> list[str]:
        """The interfaces that hold the address on which dicomm listens."""
        return [name for name, card in self.interfaces.items() if self.address in card["addresses"]]

    def capability(self, number: int) -> bool:
        """Does this process have a capability, by its number in linux/capability.h?"""
        lines = sysfs.read(self.root / "proc/self/status").splitlines()
        mask = next((line.split()[1] for line in lines if line.startswith("CapEff:")), "0")
        return bool(int(mask, 16) >> number & 1)

    def modules(self) -> list[str]:
        """The kernel's loaded modules."""
        return [line.split()[0] for line in sysfs.read(self.root / "proc/modules").splitlines()]


def this_machine(config: Config, route_to: str = "") -> Machine:
    """route_to: the host where ranks meet, "" when it is not known; it decides where dicomm listens."""
    from dicomm.cli import info

    numbers: dict[str, list[int]] = {}
    for port in sysfs.ports(Path("/")):
        numbers.setdefault(port.device, []).append(port.number)
    address, why = _listening_address(config, route_to)
    return Machine(
        root=Path("/"),
        info=info.collect(),
        kernel=platform.release(),
        memlock=resource.getrlimit(resource.RLIMIT_MEMLOCK)[0],
        address=address,
        no_address=why,
        syscalls=probe(),
        verbs=ask_libibverbs(numbers),
        pyverbs=ask_pyverbs(),
        dev_shm=_bytes_of("/dev/shm"),
    )


def _listening_address(config: Config, route_to: str) -> tuple[str, str]:
    """(the address that the native library chooses, why it can choose none)"""
    from dicomm.context import Context
    from dicomm.errors import DicommError

    try:
        context = Context(dataclasses.replace(without_chip(config), paths="tcp"), b"", route_to)
    except DicommError as error:
        return "", str(error)
    try:
        return str(context.info()["address"]).split()[1], ""  # "tcp ADDRESS PORT"
    finally:
        context.close()


def without_chip(config: Config) -> Config:
    """The settings for a process that computes on the host's processors: the doctor opens no chip."""
    return dataclasses.replace(config, vendor="", simulate="", island="", island_library="")


def _bytes_of(path: str) -> int:
    try:
        disk = os.statvfs(path)
    except OSError:
        return 0
    return disk.f_blocks * disk.f_frsize
