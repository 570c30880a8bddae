"""Which entry of a port's GID table to use: the rule, and nothing else."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address


@dataclass(frozen=True)
class Gid:
    """An entry. kind: "IB", "RoCE v1" or "RoCE v2". netdev: the network interface behind it, "" for none."""

    index: int
    address: IPv6Address
    kind: str
    netdev: str = ""

    @property
    def ip(self) -> IPv4Address | IPv6Address:
        """The IP address that the entry stands for."""
        return self.address.ipv4_mapped or self.address

    def __str__(self) -> str:
        return f"index {self.index}, {self.kind}, {self.ip}" + (f" on {self.netdev}" if self.netdev else "")


@dataclass(frozen=True)
class Choice:
    """why: the line of the rule that won."""

    gid: Gid
    why: str


def choose_gid(link_layer: str, gids: Iterable[Gid], netdevs: Collection[str] = ()) -> Choice | None:
    """The entry to connect with; None when there is none.

    link_layer: the port's, "InfiniBand" or "Ethernet". netdevs: the interfaces that hold the address on which
    dicomm listens. The best entry wins, of equals the one with the lowest index:

    InfiniBand: index 0, whatever else there is.
    Ethernet:   RoCE v2 with an IPv4 address, on one of netdevs; RoCE v2 with an IPv4 address; RoCE v2 with an
                IPv6 address; RoCE v2 with an address that is link-local (no router forwards it); RoCE v1.
    """
    usable = sorted((gid for gid in gids if int(gid.address)), key=lambda gid: gid.index)
    if link_layer == "InfiniBand":
        first = next((gid for gid in usable if gid.index == 0), None)
        return Choice(first, "the port's own, which InfiniBand always has at index 0") if first else None
    ranked = [(_rank(gid, netdevs), gid.index, gid) for gid in usable]
    if not ranked:
        return None
    rank, _, gid = min(ranked)
    return Choice(gid, _REASONS[rank])


_REASONS = (
    "RoCE v2 with an IPv4 address, on the interface that dicomm listens on",
    "RoCE v2 with an IPv4 address",
    "RoCE v2 with an IPv6 address",
    "RoCE v2 with a link-local address",
    "RoCE v1",
)


def _rank(gid: Gid, netdevs: Collection[str]) -> int:
    """Index into _REASONS."""
    if gid.kind != "RoCE v2":
        return 4
    if gid.ip.is_link_local:
        return 3
    if isinstance(gid.ip, IPv6Address):
        return 2
    return 0 if gid.netdev in netdevs else 1
