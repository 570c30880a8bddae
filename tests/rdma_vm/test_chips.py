"""Messages between chips of two brands on two hosts, which the cards read and write themselves."""

from __future__ import annotations

import pytest

from rdma_vm.jobs import job, said
from rdma_vm.machine import Machine

pytestmark = [pytest.mark.rdma_vm, pytest.mark.timeout(600)]

# As rank 0 sends to rank 1 and back, sizes grow from those that pass through the host to many chunks.
EXCHANGE = """
import json
import sys
import numpy as np
import dicomm
comm = dicomm.init()
peer = 1 - comm.rank
sent = 0
for step, count in enumerate((1, 20_000, 100_000, 3_000_000, 3_000_000)):
    mine = np.arange(count, dtype=np.int32) * (step + 2) + comm.rank
    theirs = np.full(count, -1, np.int32)
    requests = [comm.irecv(theirs, peer), comm.isend(mine, peer)]
    for request in requests:
        request.wait()
    assert (theirs == np.arange(count, dtype=np.int32) * (step + 2) + peer).all()
    sent += mine.nbytes
stats = comm.stats()
counters = [entry for entry in stats["peers"] if entry["rank"] == peer][0]
chip = stats["context"]["chip"]
rdma = stats["context"]["transports"]["rdma"]
sys.stdout.write(json.dumps({"path": counters["path"], "chip_bytes": counters["chip_bytes"], "sent": sent,
                             "copied": chip["bytes_to_host"], "memory": rdma["chip_memory"]}) + "\\n")
comm.barrier()
comm.close()
"""


def test_cards_read_and_write_chips(vm: Machine) -> None:
    command = "export DICOMM_SIMULATE=alpha:1,beta:1 DICOMM_PATHS='rdma-direct>tcp'\n" + job(EXCHANGE)
    ranks = said(vm, command, 500)
    assert len(ranks) == 2
    for rank in ranks:
        assert rank["path"] == "rdma-direct"
        assert rank["memory"] == "host memory"  # a simulated chip's is
        # Short messages pass through the host, and the first long one if it met no connection.
        assert rank["chip_bytes"] >= 2 * 12_000_000
        assert rank["copied"] <= rank["sent"] - rank["chip_bytes"]
