"""Registered memory, and frames that a receiver does not take, on real queue pairs."""

from __future__ import annotations

import pytest

from rdma_vm.jobs import PROGRAMS, job, said
from rdma_vm.machine import Machine

pytestmark = [pytest.mark.rdma_vm, pytest.mark.timeout(600)]


def test_memory_that_is_mapped_anew_at_its_address_is_registered_anew(vm: Machine) -> None:
    """40 mappings of a send and of a receive buffer, two messages each; contents are compared inside."""
    for rank in said(vm, job(PROGRAMS / "registration.py"), 300):
        assert rank["regions_not_kept"] == ""
        assert rank["direct_bytes"] == 80 * 300_000
        # The first message of a mapping registers both buffers, the second finds them so.
        assert rank["region_misses"] == 80
        assert rank["region_hits"] == 80
        assert 78 <= rank["region_invalidations"] <= 80


def test_a_receiver_that_stops_is_not_overrun(vm: Machine) -> None:
    """1500 messages for 8 frames: the sender waits for acknowledgements, and no packet finds no receive."""
    command = "export DICOMM_RDMA=queue_depth=8\n" + job(PROGRAMS / "flood.py")
    ranks = said(vm, command, 300)
    assert len(ranks) == 2
    for rank in ranks:
        assert rank["path"] == "rdma-direct"
        assert rank["fallbacks"] == 0
        assert rank["card"]["sent_pkts"] > 1500
        for name in ("send_rnr_err", "rcvd_rnr_err", "retry_rnr_exceeded_err"):
            assert rank["card"][name] == 0, name


def test_a_message_of_more_than_4_gib(vm: Machine) -> None:
    """Contents are compared inside, as far as the machine's memory goes."""
    ranks = said(vm, job(PROGRAMS / "large.py"), 590)
    assert len(ranks) == 2
    for rank in ranks:
        assert rank["path"] == "rdma-direct"
        assert rank["fallbacks"] == 0
    assert max(rank["direct_bytes"] for rank in ranks) >= 4 << 30
