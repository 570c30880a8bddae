"""RDMA devices as the kernel describes them in /sys."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv6Address
from pathlib import Path

from dicomm.cli.doctor.gid import Gid

_KINDS = {"IB/RoCE v1": "RoCE v1", "RoCE v2": "RoCE v2"}


@dataclass(frozen=True)
class Port:
    """A port of an RDMA device. state: "ACTIVE", "DOWN", "INIT" ... link_layer: "InfiniBand" or "Ethernet".
    rate: as the kernel writes it. netdev: the interface behind it, "" where none shows in this namespace."""

    device: str
    number: int
    state: str
    link_layer: str
    rate: str
    gids: tuple[Gid, ...]

    @property
    def name(self) -> str:
        return f"{self.device}/{self.number}"

    @property
    def netdev(self) -> str:
        return next((gid.netdev for gid in self.gids if gid.netdev), "")


def read(path: Path) -> str:
    """A file's text without the last newline; "" when it is not there or the kernel refuses to say."""
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""


def names(path: Path) -> list[str]:
    """What a directory holds, sorted; nothing when it is not there."""
    try:
        return sorted(entry.name for entry in path.iterdir())
    except OSError:
        return []


def ports(root: Path) -> list[Port]:
    """All ports of all devices. root: where the file system begins, "/" but in tests."""
    devices = root / "sys/class/infiniband"
    return [
        _port(device, number, devices / device / "ports" / number)
        for device in names(devices)
        for number in sorted(names(devices / device / "ports"), key=int)
    ]


def uverbs(root: Path) -> dict[str, str]:
    """Device -> name of the file in /dev/infiniband through which a process reaches it. Of this network
    namespace: those of others are listed beside them, and cannot be opened here."""
    verbs, here = root / "sys/class/infiniband_verbs", names(root / "sys/class/infiniband")
    found = {read(verbs / name / "ibdev"): name for name in names(verbs) if name.startswith("uverbs")}
    return {device: name for device, name in found.items() if device in here}


def idle_adapters(root: Path) -> list[str]:
    """PCI addresses of network adapters that could have an RDMA device and have none: those of class
    "InfiniBand controller", and all of NVIDIA's (Mellanox)."""
    pci = root / "sys/bus/pci/devices"
    found = []
    for address in names(pci):
        kind, vendor = read(pci / address / "class"), read(pci / address / "vendor")
        capable = kind.startswith("0x0207") or (kind.startswith("0x02") and vendor == "0x15b3")
        if capable and not names(pci / address / "infiniband"):
            found.append(address)
    return found


def _port(device: str, number: str, path: Path) -> Port:
    link_layer = read(path / "link_layer")
    indices = sorted((int(name) for name in names(path / "gids")), key=int)
    gids = [gid for index in indices if (gid := _gid(path, index, link_layer)) is not None]
    return Port(
        device,
        int(number),
        read(path / "state").partition(": ")[2],  # "4: ACTIVE"
        link_layer,
        read(path / "rate"),
        tuple(gids),
    )


def _gid(path: Path, index: int, link_layer: str) -> Gid | None:
    text = read(path / "gids" / str(index))
    try:
        address = IPv6Address(text)
    except ValueError:
        return None
    if not int(address):
        return None  # an empty entry
    kind = _KINDS.get(read(path / "gid_attrs/types" / str(index)), "RoCE v1")
    netdev = read(path / "gid_attrs/ndevs" / str(index))
    return Gid(index, address, "IB" if link_layer == "InfiniBand" else kind, netdev)
