"""Hosts for `dicomm doctor` to look at: trees of files as the kernel's, and what else a Machine holds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from dicomm.cli.doctor.machine import Machine
from dicomm.cli.doctor.verbs import PortView, Verbs

ADDRESS = "10.1.2.3"

# GIDs as sysfs writes them: of an interface's MAC address, of 10.1.2.3, of 2001:db8::3; nothing.
LINK_LOCAL = "fe80:0000:0000:0000:0e42:a1ff:fe00:0001"
OF_IPV4 = "0000:0000:0000:0000:0000:ffff:0a01:0203"
OF_IPV6 = "2001:0db8:0000:0000:0000:0000:0000:0003"
EMPTY = "0000:0000:0000:0000:0000:0000:0000:0000"
ON_SUBNET = "fe80:0000:0000:0000:b859:9f03:00d4:1234"  # InfiniBand

_V1, _V2 = "IB/RoCE v1", "RoCE v2"
# What mlx5 shows of an interface with an IPv4 and an IPv6 address: each twice, and empty entries.
ROCE = [
    (LINK_LOCAL, _V1),
    (LINK_LOCAL, _V2),
    (OF_IPV6, _V1),
    (OF_IPV6, _V2),
    (OF_IPV4, _V1),
    (OF_IPV4, _V2),
    (EMPTY, ""),
]


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")


def port(
    root: Path,
    device: str,
    *,
    number: int = 1,
    state: str = "4: ACTIVE",
    link_layer: str = "Ethernet",
    rate: str = "100 Gb/sec (4X EDR)",
    gids: list[tuple[str, str]] = ROCE,
    netdev: str = "eth0",
) -> None:
    """Adds a port with what /sys/class/infiniband has of it."""
    base = f"sys/class/infiniband/{device}/ports/{number}"
    files = {"state": state, "link_layer": link_layer, "rate": rate}
    for index, (gid, kind) in enumerate(gids):
        files[f"gids/{index}"] = gid
        if gid != EMPTY:  # else the kernel answers EINVAL
            files[f"gid_attrs/types/{index}"] = kind
            files[f"gid_attrs/ndevs/{index}"] = netdev
    write(root, {f"{base}/{name}": text for name, text in files.items()})


def device_file(root: Path, device: str, name: str, there: bool = True) -> None:
    """Adds what leads to /dev/infiniband/NAME, and the file itself if it is there."""
    write(root, {f"sys/class/infiniband_verbs/{name}/ibdev": device})
    write(root, {f"dev/infiniband/{name}": ""} if there else {})


def machine(root: Path, **changes: Any) -> Machine:
    """A healthy host with two interfaces and, but for files in root, no RDMA device."""
    write(
        root,
        {
            "proc/self/status": "Name:\tpython\nCapEff:\t0000000000000000",
            "proc/sys/vm/unprivileged_userfaultfd": "0",
            "proc/sys/kernel/yama/ptrace_scope": "0",
            "proc/modules": "ib_core 462848 1 mlx5_ib, Live 0x0\nmlx5_ib 503808 0 - Live 0x0",
            "sys/devices/system/clocksource/clocksource0/current_clocksource": "tsc",
            "sys/devices/system/clocksource/clocksource0/available_clocksource": "tsc hpet acpi_pm",
        },
    )
    library = {
        "chip": "NVIDIA",
        "library": "libnccl.so.2",
        "used": True,
        "missing": "no such file",
        "get": "pip",
    }
    healthy = Machine(
        root=root,
        info={
            "versions": {"python": "3.12.3", "dicomm": "0.1.0", "torch": "2.13.0", "numpy": "2.1.0"},
            "build": {"version": "0.1.0", "abi": 2},
            "torch_plugin": {"state": "ready", "torch": "2.13.0"},
            "vendor_libraries": {"NCCL": library},
            "interfaces": {
                "lo": {"state": "unknown", "mtu": 65536, "mbit_s": None, "addresses": ["127.0.0.1", "::1"]},
                "eth0": {"state": "up", "mtu": 9000, "mbit_s": 100000, "addresses": [ADDRESS, "2001:db8::3"]},
            },
        },
        kernel="6.1.0-18-amd64",
        memlock=-1,
        address=ADDRESS,
        syscalls=dict.fromkeys(
            ("memfd_create", "process_vm_readv", "userfaultfd", "userfaultfd of user mode"), ""
        ),
        verbs=Verbs(missing="libibverbs.so.1: cannot open shared object file: No such file or directory"),
        dev_shm=64 << 30,
    )
    return replace(healthy, **changes)


def verbs(*devices: str, mtu: int = 4096, state: str = "ACTIVE", **changes: Any) -> Verbs:
    """libibverbs of a host with such devices of one port each."""
    ports = {name: {1: PortView(state, mtu)} for name in devices}
    return replace(Verbs(version="1.14.50.0", dmabuf=True, devices=ports), **changes)
