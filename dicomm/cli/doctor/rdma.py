"""Checks of RDMA: libibverbs, devices, ports, GIDs, MTU, device files."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from dicomm.cli.doctor import sysfs
from dicomm.cli.doctor.finding import NOTE, OK, PROBLEM, Finding
from dicomm.cli.doctor.gid import choose_gid
from dicomm.cli.doctor.machine import Machine
from dicomm.cli.doctor.sysfs import Port

_FULL_MTU = 4096
_INSTALL = "apt-get install ibverbs-providers, or dnf install libibverbs"
_STATES = {  # of a port that is not ACTIVE -> what to do
    "DOWN": "is the cable in, the other end up, the interface set up (ip link set NAME up)?",
    "INIT": "the port waits for a subnet manager: is one running (opensm, or the switch's)?",
    "ARMED": "the subnet manager has not finished: look at its log",
}


def library(machine: Machine) -> list[Finding]:
    verbs, here = machine.verbs, {port.device for port in sysfs.ports(machine.root)}
    if verbs.missing and here:
        found = f"an RDMA device is there, and the library cannot be loaded: {verbs.missing}"
        return [Finding("libibverbs", PROBLEM, found, _INSTALL)]
    if verbs.missing:
        return [Finding("libibverbs", OK, "not installed; only RDMA needs it, and there is no device")]
    dmabuf = "can" if verbs.dmabuf else "cannot"
    findings = [Finding("libibverbs", OK, f"version {verbs.version}, {dmabuf} register dma-bufs")]
    for device in sorted(here - {*verbs.devices, *verbs.refused}):
        found = f"libibverbs does not see {device}: no provider for its driver, or no access to it"
        findings.append(Finding(f"provider {device}", PROBLEM, found, _INSTALL))
    return findings


def devices(machine: Machine) -> list[Finding]:
    """What there is, then a line for each port."""
    all_ports = sysfs.ports(machine.root)
    idle = sysfs.idle_adapters(machine.root)
    findings = []
    if idle:
        found = f"adapters without an RDMA device: {', '.join(idle)} (PCI)"
        advice = "load the driver's RDMA half (modprobe mlx5_ib, for one), if RDMA is wanted on it"
        findings.append(Finding("RDMA adapters", NOTE, found, advice))
    if not all_ports:
        return [*findings, Finding("RDMA devices", OK, "none: between hosts dicomm uses tcp")]
    active = any(port.state == "ACTIVE" for port in all_ports)
    for port in all_ports:
        findings += _port(machine, port, active)
    return findings


def _port(machine: Machine, port: Port, another: bool) -> list[Finding]:
    """another: some port of the host is active, so this one need not be."""
    name = f"port {port.name}"
    behind = f", interface {port.netdev}" if port.netdev else ""
    what = f"{port.state}, {port.link_layer}, {port.rate}{behind}"
    if port.state != "ACTIVE":
        advice = _STATES.get(port.state, "look at the kernel's log (dmesg) for the device")
        return [Finding(name, NOTE if another else PROBLEM, what, advice)]
    return [_mtu(machine, port, name, what), _gid(machine, port)]


def _mtu(machine: Machine, port: Port, name: str, what: str) -> Finding:
    """The active MTU is the largest power of two that fits into the interface's, headers included."""
    view = machine.verbs.devices.get(port.device, {}).get(port.number)
    if view is None or not view.mtu:
        return Finding(name, OK, what)
    what += f", active MTU {view.mtu}"
    if view.mtu == _FULL_MTU:
        return Finding(name, OK, what)
    if port.link_layer == "InfiniBand":
        return Finding(name, NOTE, what, "set the partition's MTU to 4096 in the subnet manager (mtu=5)")
    card = machine.interfaces.get(port.netdev)
    what += f" (of the interface's {card['mtu']})" if card else ""
    advice = (
        f"ip link set {port.netdev or 'INTERFACE'} mtu 9000, and the same in the switches and on other hosts"
    )
    return Finding(name, NOTE, what, advice)


def _gid(machine: Machine, port: Port) -> Finding:
    name = f"GID {port.name}"
    choice = choose_gid(port.link_layer, port.gids, machine.listening())
    if choice is None:
        advice = f"give {port.netdev or 'the interface behind it'} an address: ip addr add ADDRESS dev ..."
        return Finding(name, PROBLEM, "the port's GID table is empty", advice)
    details = tuple(str(gid) for gid in port.gids)
    found = f"{choice.gid}: {choice.why}"
    if choice.gid.kind == "RoCE v1":
        advice = (
            "no router forwards RoCE v1; let the driver offer v2 (cma_roce_mode, or the adapter's manual)"
        )
        return Finding(name, NOTE, found, advice, details)
    if port.link_layer == "Ethernet" and choice.gid.ip.is_link_local:
        advice = f"give {choice.gid.netdev or 'the interface'} an IPv4 address that other hosts route to"
        return Finding(name, NOTE, found, advice, details)
    return Finding(name, OK, found, "", details)


def device_files(machine: Machine) -> list[Finding]:
    """/dev/infiniband/uverbs*: opened as libibverbs does, for in a container permission bits say little."""
    findings = []
    for device, name in sorted(sysfs.uverbs(machine.root).items()):
        path = machine.root / "dev/infiniband" / name
        shown = f"/dev/infiniband/{name}"
        code = _open_error(path)
        if code == errno.ENOENT:
            found = f"{device} is there, its file {shown} is not"
            advice = "modprobe ib_uverbs; in a container --device /dev/infiniband, or Kubernetes' RDMA plugin"
            findings.append(Finding(f"file {name}", PROBLEM, found, advice))
        elif code:
            found = f"{shown} of {device}: {os.strerror(code)}"
            advice = f"chmod 666 {shown} (a udev rule for good); in a container also --device /dev/infiniband"
            findings.append(Finding(f"file {name}", PROBLEM, found, advice))
        else:
            findings.append(Finding(f"file {name}", OK, f"{shown} of {device} can be opened"))
    return findings


def _open_error(path: Path) -> int:
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CLOEXEC))
    except OSError as error:
        return error.errno or errno.EIO
    return 0


CHECKS = (library, devices, device_files)
