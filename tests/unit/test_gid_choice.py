"""The rule by which an entry of a port's GID table is chosen."""

from __future__ import annotations

from ipaddress import IPv6Address
from itertools import permutations

import pytest

from dicomm.cli.doctor.gid import Gid, choose_gid

V1 = Gid(0, IPv6Address("::ffff:10.0.0.1"), "RoCE v1", "eth0")
LOCAL = Gid(1, IPv6Address("fe80::1"), "RoCE v2", "eth0")
LOCAL_4 = Gid(2, IPv6Address("::ffff:169.254.7.7"), "RoCE v2", "eth0")
SIX = Gid(3, IPv6Address("2001:db8::1"), "RoCE v2", "eth0")
OTHER = Gid(4, IPv6Address("::ffff:10.9.0.1"), "RoCE v2", "eth1")
FOUR = Gid(5, IPv6Address("::ffff:10.0.0.1"), "RoCE v2", "eth0")
NOTHING = Gid(6, IPv6Address("::"), "RoCE v2", "eth0")

# Best first, when dicomm listens on eth0.
ORDER = [FOUR, OTHER, SIX, LOCAL, V1]


@pytest.mark.parametrize("best", range(len(ORDER)))
def test_each_kind_wins_over_all_after_it(best: int) -> None:
    for table in permutations([*ORDER[best:], NOTHING]):
        choice = choose_gid("Ethernet", table, ["eth0"])
        assert choice is not None
        assert choice.gid == ORDER[best]


def test_reasons_tell_the_kinds_apart() -> None:
    reasons = [choose_gid("Ethernet", [gid], ["eth0"]) for gid in ORDER]
    assert [choice and choice.why for choice in reasons] == [
        "RoCE v2 with an IPv4 address, on the interface that dicomm listens on",
        "RoCE v2 with an IPv4 address",
        "RoCE v2 with an IPv6 address",
        "RoCE v2 with a link-local address",
        "RoCE v1",
    ]


def test_an_ipv4_address_that_is_link_local_counts_as_such() -> None:
    choice = choose_gid("Ethernet", [LOCAL_4, SIX], ["eth0"])
    assert choice is not None
    assert choice.gid == SIX
    lone = choose_gid("Ethernet", [LOCAL_4, V1], ["eth0"])
    assert lone is not None
    assert lone.gid == LOCAL_4


def test_of_equals_the_lowest_index_wins() -> None:
    """Nobody listens on either interface."""
    choice = choose_gid("Ethernet", [FOUR, OTHER], [])
    assert choice is not None
    assert choice.gid == OTHER


def test_infiniband_takes_index_0() -> None:
    first = Gid(0, IPv6Address("fe80::b859:9f03:d4:1234"), "IB")
    choice = choose_gid("InfiniBand", [Gid(1, IPv6Address("fec0::1"), "IB"), first], ["ib0"])
    assert choice is not None
    assert choice.gid == first
    assert choose_gid("InfiniBand", [Gid(1, IPv6Address("fec0::1"), "IB")]) is None


@pytest.mark.parametrize("link_layer", ["InfiniBand", "Ethernet"])
def test_an_empty_table_has_no_choice(link_layer: str) -> None:
    assert choose_gid(link_layer, []) is None
    assert choose_gid(link_layer, [Gid(0, IPv6Address("::"), "RoCE v2")]) is None
