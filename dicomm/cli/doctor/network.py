"""Checks of network interfaces and of the address on which dicomm listens."""

from __future__ import annotations

from ipaddress import ip_address

from dicomm.cli.doctor.finding import NOTE, OK, PROBLEM, Finding
from dicomm.cli.doctor.machine import Machine


def listening(machine: Machine) -> list[Finding]:
    """Of the native library, so that nothing here repeats how it chooses."""
    name, details = "network", tuple(_line(machine, card) for card in machine.interfaces)
    if machine.no_address:
        advice = "set DICOMM_INTERFACE to one of these interfaces, or to a numeric address"
        return [Finding(name, PROBLEM, machine.no_address, advice, details)]
    on = ", ".join(machine.listening()) or "an interface without a name here"
    found = f"dicomm listens on {machine.address} ({on})"
    address = ip_address(machine.address.partition("%")[0])
    if address.is_loopback:
        found += ": ranks of other hosts cannot reach it"
        return [
            Finding(name, NOTE, found, "for a job on several hosts: DICOMM_INTERFACE=eth0, or such", details)
        ]
    if address.is_link_local:
        found += ": a link-local address, which no router forwards to"
        return [
            Finding(
                name, NOTE, found, "give the interface an address, or choose by DICOMM_INTERFACE", details
            )
        ]
    return [Finding(name, OK, found, "", details)]


def _line(machine: Machine, name: str) -> str:
    card = machine.interfaces[name]
    speed = f", {card['mbit_s'] / 1000:g} Gbit/s" if card["mbit_s"] else ""
    return f"{name}: {card['state'] or 'state unknown'}, MTU {card['mtu']}{speed}, " + (
        " ".join(card["addresses"]) or "no address"
    )


CHECKS = (listening,)
