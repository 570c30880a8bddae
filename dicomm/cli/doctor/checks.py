"""All checks of one host, in the order in which they are printed."""

from __future__ import annotations

from dicomm.cli.doctor import memory, network, rdma, rdma_more, software
from dicomm.cli.doctor.finding import Finding
from dicomm.cli.doctor.machine import Machine

CHECKS = (*software.CHECKS, *network.CHECKS, *memory.CHECKS, *rdma.CHECKS, *rdma_more.CHECKS)


def examine(machine: Machine) -> list[Finding]:
    """All findings on one host."""
    return [found for check in CHECKS for found in check(machine)]
