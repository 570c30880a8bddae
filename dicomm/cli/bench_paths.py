"""`dicomm bench --path`: for each path a communicator that takes no other, or why there is none."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from dicomm import Communicator, Config, init
from dicomm.errors import DicommError, InvalidArgument
from dicomm.rendezvous import obstacle

PATHS = ("shm", "rdma-direct", "rdma-staged", "tcp")
_INIT_S = 60.0  # the ranks are there: what takes longer will not come


@dataclass
class BenchPath:
    """One of those that --path names, written as in DICOMM_PATHS: "tcp", or "rdma-direct>tcp" for the best
    that can be had of several. The same on all ranks; `comm` is None where there is a `reason`.

    used: by what ranks reached one another when look_back() was called.
    """

    name: str
    comm: Communicator | None = None
    reason: str = ""
    used: list[str] = field(default_factory=list)

    def look_back(self, control: Communicator) -> None:
        """Collective over ``control``: sets `used`."""
        peers = self.comm.stats()["peers"] if self.comm is not None else []
        mine = {peer["path"] for peer in peers if peer["rank"] != control.rank}
        self.used = sorted(set().union(*control.allgather_object(mine)))


def open_path(name: str, control: Communicator) -> BenchPath:
    """Collective over ``control``: a rank that cannot have the path keeps all others from it. Raises
    InvalidArgument for settings that are wrong whatever the path."""
    config = Config.from_environment()
    config = replace(config, paths=name, init_timeout=min(config.init_timeout, _INIT_S))
    if reason := _first_reason(obstacle(config), control):
        return BenchPath(name, reason=reason)
    comm, mine = None, ""
    try:
        comm = init(config=config, name=f"bench {name}")
        comm.alltoall(np.zeros(comm.size, np.uint8), np.empty(comm.size, np.uint8))  # connects every pair
    except InvalidArgument:
        raise
    except DicommError as error:
        mine = str(error)
    reason = _first_reason(mine, control)
    if reason and comm is not None:
        comm.close()
        comm = None
    return BenchPath(name, comm, reason)


def _first_reason(mine: str, control: Communicator) -> str:
    """The first rank's that has one; "" where none has."""
    reasons = control.allgather_object(mine)
    return next((f"rank {rank}: {reason}" for rank, reason in enumerate(reasons) if reason), "")
