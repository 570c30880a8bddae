"""Two cards on each host, and wires that are cut again and again."""

from __future__ import annotations

import pytest

from rdma_vm.jobs import PROGRAMS, job, said
from rdma_vm.machine import Machine

pytestmark = [pytest.mark.rdma_vm, pytest.mark.timeout(900)]

SECOND_WIRE = ". /run/machine/wire.sh; wire 2 203.0.113 || exit\n"
ROUNDS = 52


def test_of_two_cards_one_is_left_when_it_is_lost_and_used_again_when_it_returns(vm: Machine) -> None:
    """Lost in the middle of operations: its network is silent, its link is down, it is deleted."""
    command = (
        SECOND_WIRE + "export DICOMM_RDMA='timeout=14, retry_count=3'\n" + job(PROGRAMS / "two_cards.py")
    )
    for rank in said(vm, command, 800):
        together, whole = rank["together"], rank["whole"]
        assert together["path"] == whole["path"] == "rdma-direct"
        assert together["fallbacks"] == together["socket_bytes"] == 0
        # Half of the large messages go over each; the small ones over the first.
        for packets in rank["packets"]:
            assert packets > 0.4 * together["direct_bytes"] / 4096
        assert rank["silent"]["fallbacks"] >= 1
        for lost in ("silent", "down", "deleted"):
            assert rank[lost]["path"] == "rdma-direct"
            assert rank[lost]["written"] > 0
            assert rank[lost]["packets"] > 0.9 * rank[lost]["written"] / 4096
        assert rank["deleted"]["links"] > whole["links"] > rank["silent"]["links"]
        assert rank["deleted"]["fallbacks"] > whole["fallbacks"]


@pytest.mark.parametrize("kind", ["silence", "down"])
def test_a_wire_cut_at_random_moments_loses_doubles_and_reorders_nothing(vm: Machine, kind: str) -> None:
    """Either host's, in the middle of messages both ways, and whole again each time. 52 cuts of each kind."""
    command = (
        f"{SECOND_WIRE}export CUT={kind} ROUNDS={ROUNDS} SEED=7\n"
        "export DICOMM_RDMA='devices=rxeA2+rxeB2, timeout=14, retry_count=3'\n" + job(PROGRAMS / "cuts.py")
    )
    ranks = said(vm, command, 850)
    assert len(ranks) == 2
    for rank in ranks:
        assert rank["cuts"] == ROUNDS
        assert rank["fallbacks"] >= ROUNDS
        assert rank["links"] >= 1.5 * ROUNDS  # each context's first, and one after each cut
        assert rank["in_traffic"] >= ROUNDS / 3
        assert rank["direct_bytes"]
        assert rank["socket_bytes"]
