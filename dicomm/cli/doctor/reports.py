"""What a rank tells rank 0, and how it is written down."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from dicomm.cli.doctor import sysfs
from dicomm.cli.doctor.finding import Finding
from dicomm.cli.doctor.gid import choose_gid
from dicomm.cli.doctor.machine import Machine
from dicomm.cli.doctor.probing import Link


@dataclass(frozen=True)
class Report:
    """address: on which the rank listens; mtu: of that interface. versions: package -> version. rdma: what
    its active ports are. findings: of its host. links: peer -> how it is reached, without those that did
    not come. paths: peer -> the path to it in the job's communicator; failure: why there is none, "" if there
    is."""

    rank: int
    host: str
    address: str
    mtu: int
    versions: Mapping[str, str]
    rdma: tuple[str, ...]
    findings: tuple[Finding, ...]
    links: Mapping[int, Link] = field(default_factory=dict)
    paths: Mapping[int, str] = field(default_factory=dict)
    failure: str = ""

    def to_json(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @classmethod
    def from_json(cls, text: bytes) -> Report:
        record: dict[str, Any] = json.loads(text)
        findings = [{**finding, "details": tuple(finding["details"])} for finding in record["findings"]]
        record["findings"] = tuple(Finding(**finding) for finding in findings)
        record["rdma"] = tuple(record["rdma"])
        record["links"] = {int(peer): Link(**link) for peer, link in record["links"].items()}
        record["paths"] = {int(peer): path for peer, path in record["paths"].items()}
        return cls(**record)


def describe(rank: int, machine: Machine, findings: list[Finding]) -> Report:
    """The part of a rank's report that needs no other rank."""
    mtus = [machine.interfaces[name]["mtu"] for name in machine.listening()]
    build, packages = machine.info["build"], machine.info["versions"]
    versions = {"dicomm": f"{build['version']} (ABI {build['abi']})", "Python": packages["python"]}
    versions |= {name: packages[name] for name in ("torch", "numpy") if packages.get(name)}
    return Report(
        rank=rank,
        host=platform.node(),
        address=machine.address,
        mtu=mtus[0] if mtus else 0,
        versions=versions,
        rdma=_active_ports(machine),
        findings=tuple(findings),
    )


def _active_ports(machine: Machine) -> tuple[str, ...]:
    """ "Ethernet, RoCE v2, MTU 4096" of each kind of active port, sorted."""
    found = set()
    for port in sysfs.ports(machine.root):
        choice = choose_gid(port.link_layer, port.gids, machine.listening())
        if port.state == "ACTIVE" and choice is not None:
            view = machine.verbs.devices.get(port.device, {}).get(port.number)
            mtu = f", MTU {view.mtu}" if view and view.mtu else ""
            kind = "" if port.link_layer == "InfiniBand" else f", {choice.gid.kind}"
            found.add(f"{port.link_layer}{kind}{mtu}")
    return tuple(sorted(found))
