"""Checks of RDMA from outside: pyverbs' view of the devices, and direct access to a chip's memory."""

from __future__ import annotations

from dicomm.cli.doctor import sysfs
from dicomm.cli.doctor.finding import NOTE, OK, PROBLEM, Finding
from dicomm.cli.doctor.machine import Machine
from dicomm.cli.doctor.sysfs import Port
from dicomm.cli.doctor.verbs import PortView

# Kernel modules through which ibv_reg_mr takes addresses of a chip's memory.
_PEER_MODULES = ("nvidia_peermem", "nv_peer_mem", "ib_peer_mem", "amdgpu", "mxgpu_peermem")


def inventory(machine: Machine) -> list[Finding]:
    """Does pyverbs see what the kernel and libibverbs say?"""
    seen, here = machine.pyverbs, sysfs.ports(machine.root)
    if seen == "":
        return [Finding("pyverbs", OK, "not installed; it would be a second opinion on RDMA devices")]
    if isinstance(seen, str):
        return [Finding("pyverbs", NOTE, seen, "the distribution's python3-pyverbs fits its libibverbs")]
    if differences := _differences(machine, here):
        found = f"sees other devices than the kernel names: {differences[0]}"
        advice = "is it compiled for this libibverbs, and are all devices in this network namespace?"
        return [Finding("pyverbs", PROBLEM, found, advice, tuple(differences[1:]))]
    count = len(here)
    return [
        Finding("pyverbs", OK, f"sees the same: {count} port{'s' * (count != 1)}, their states, MTU and GIDs")
    ]


def _differences(machine: Machine, here: list[Port]) -> list[str]:
    seen = machine.pyverbs
    assert not isinstance(seen, str)
    ports = {(port.device, port.number): port for port in here}
    views = {(device, number): view for device, found in seen.items() for number, view in found.items()}
    lines = [f"{d}/{n}: pyverbs does not see it" for d, n in sorted(ports.keys() - views.keys())]
    lines += [f"{d}/{n}: only pyverbs sees it" for d, n in sorted(views.keys() - ports.keys())]
    for key in sorted(ports.keys() & views.keys()):
        own = machine.verbs.devices.get(key[0], {}).get(key[1])
        lines += [f"{ports[key].name}: {line}" for line in _differ(ports[key], own, views[key])]
    return lines


def _differ(port: Port, own: PortView | None, view: PortView) -> list[str]:
    """own: what libibverbs says, None where it was not asked."""
    gids = {gid.index: (gid.address.exploded.replace(":", ""), gid.kind) for gid in port.gids}
    theirs = {index: (text, kind) for index, (text, kind) in view.gids.items() if int(text, 16)}
    pairs: list[tuple[str, object, object]] = [
        ("state", port.state, view.state),
        ("link layer", port.link_layer, view.link_layer),
        ("GID table", gids, theirs),
    ]
    if own is not None:
        pairs.append(("active MTU", own.mtu, view.mtu))
    return [f"{what} {ours!r}, by pyverbs {other!r}" for what, ours, other in pairs if ours != other]


def chip_memory(machine: Machine) -> list[Finding]:
    """Can an RDMA device reach the memory of a chip? Whether a certain device and chip can is only seen by
    registering some."""
    name = "RDMA to chips"
    if not sysfs.ports(machine.root):
        return [Finding(name, OK, "does not matter without an RDMA device")]
    modules = [module for module in machine.modules() if module in _PEER_MODULES]
    modules += sysfs.names(machine.root / "sys/kernel/mm/memory_peers")
    ways = ["peer memory: " + ", ".join(dict.fromkeys(modules))] if modules else []
    if machine.verbs.dmabuf and machine.kernel_version >= (5, 12):
        ways.append("dma-buf: kernel and libibverbs can; the device's and the chip's driver must, too")
    if ways:
        return [Finding(name, OK, "; ".join(ways))]
    found = "neither dma-buf (kernel 5.12 and libibverbs of rdma-core 34) nor a peer memory module; "
    advice = (
        "modprobe nvidia_peermem (NVIDIA), or newer kernel and rdma-core; nothing where ranks have no chips"
    )
    return [Finding(name, NOTE, found + "what chips send passes through the host", advice)]


CHECKS = (inventory, chip_memory)
