"""`dicomm info`: what is installed here, what was compiled in, and what the machine offers."""

from __future__ import annotations

import json
import platform
import socket
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click

from dicomm.cli.vendors import VENDOR_LIBRARIES, find

_PACKAGES = ("dicomm", "numpy", "cffi", "torch", "mpi4py", "scikit-learn")


@click.command(name="info")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option(
    "--topology",
    "topology_file",
    is_flag=False,
    flag_value="",
    default=None,
    metavar="[FILE]",
    help="Print islands, hosts and ranks instead: of a saved file, or of the job whose launcher runs this.",
)
def command(as_json: bool, topology_file: str | None) -> None:
    """Print versions, build, interfaces, transports, the torch plugin's state and vendor libraries.

    With --topology, what ranks have: `torchrun --nproc-per-node 4 -m dicomm info --topology` asks the ranks
    of a job, and rank 0 prints it; with --json, as a file that --topology FILE reads.
    """
    if topology_file is not None:
        print_topology(topology_file, as_json)
        return
    facts = collect()
    if as_json:
        click.echo(json.dumps(facts, indent=1))
        return
    for title, content in facts.items():
        click.secho(title.replace("_", " "), bold=True)
        for key, value in content.items():
            click.echo(f"  {key:<16} {_line(value)}")


def print_topology(file: str, as_json: bool) -> None:
    """Of a saved file; "": of the job this process is a rank of, printed by rank 0."""
    from dicomm.rendezvous import init
    from dicomm.topology import Topology

    if file:
        rank, topology = 0, Topology.load(file)
    else:
        with init(name="info") as comm:
            rank, topology = comm.rank, comm.topology
            comm.barrier()
    if rank == 0:
        click.echo(topology.to_json() if as_json else str(topology))


def collect() -> dict[str, dict[str, Any]]:
    """Everything `dicomm info` knows: section -> name -> fact."""
    from dicomm import _native

    return {
        "versions": {"python": platform.python_version(), **{name: _version(name) for name in _PACKAGES}},
        "build": _native.build_info(),
        "interfaces": interfaces(),
        "torch_plugin": torch_plugin(),
        "vendor_libraries": {
            library.name: {
                "chip": library.chip,
                "library": library.soname,
                "used": library.used,
                "missing": (why := find(library)),
                "get": library.source if why else None,
            }
            for library in VENDOR_LIBRARIES
        },
    }


def interfaces() -> dict[str, dict[str, Any]]:
    """Network interfaces by name: state, MTU, Mbit/s (None where the driver does not say), addresses."""
    addresses: dict[str, list[str]] = {}
    for name, address in [*_ipv4(), *_ipv6()]:
        addresses.setdefault(name, []).append(address)
    found = {}
    for _, name in socket.if_nameindex():
        speed = _sys_class_net(name, "speed")
        found[name] = {
            "state": _sys_class_net(name, "operstate"),
            "mtu": int(_sys_class_net(name, "mtu") or 0),
            "mbit_s": int(speed) if speed and int(speed) > 0 else None,
            "addresses": addresses.get(name, []),
        }
    return found


def torch_plugin() -> dict[str, Any]:
    """State of the torch.distributed plugin, without importing torch."""
    if find_spec("torch") is None:
        return {"state": "torch is not installed: pip install torch"}
    from dicomm.torch import build

    return build.state()


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _sys_class_net(name: str, attribute: str) -> str:
    try:
        return Path("/sys/class/net", name, attribute).read_text().strip()
    except OSError:  # the driver has no such attribute, or refuses to say (speed of a link that is down)
        return ""


def _ipv4() -> list[tuple[str, str]]:
    import fcntl
    import struct

    siocgifaddr = 0x8915
    found = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            request = struct.pack("256s", name.encode()[:15])
            try:
                answer = fcntl.ioctl(probe.fileno(), siocgifaddr, request)
            except OSError:
                continue  # no IPv4 address
            found.append((name, socket.inet_ntoa(answer[20:24])))
    return found


def _ipv6() -> list[tuple[str, str]]:
    try:
        lines = Path("/proc/net/if_inet6").read_text().splitlines()
    except OSError:
        return []  # the kernel has no IPv6
    rows = [line.split() for line in lines]
    return [(row[5], socket.inet_ntop(socket.AF_INET6, bytes.fromhex(row[0]))) for row in rows]


def _line(value: Any) -> str:
    if isinstance(value, dict):
        if "missing" in value:
            return _library_line(value)
        return ", ".join(f"{key} {_line(part)}" for key, part in value.items() if part not in (None, "", []))
    if isinstance(value, list):
        return " ".join(_line(part) for part in value)
    return "not installed" if value is None else str(value)


def _library_line(library: dict[str, Any]) -> str:
    if library["missing"] is None:
        return f"{library['library']} found" + ("" if library["used"] else " (not used by this release)")
    return f"not found: {library['missing']}. For {library['chip']}: {library['get']}"
