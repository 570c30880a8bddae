"""A communication hook: DistributedDataParallel averages its gradients over a Communicator that has reducers.

    comm = dicomm.init()  # all ranks; DICOMM_ROLE=reducer on those that only help
    if comm.role == "reducer":
        comm.serve()  # returns when the workers have closed theirs
    else:
        ...  # init_process_group among the workers, which are ranks of it as well
        model = DistributedDataParallel(network)
        model.register_comm_hook(Averaging(comm), average)

Parameters, buffers and all other collectives keep to DDP's process group. Host memory only.
"""

# torch compares the hook's annotations with classes, so they must not become strings.

import torch
from torch._C._distributed_c10d import GradBucket  # torch.distributed has it without a type

from dicomm.communicator import Communicator
from dicomm.request import Request


class Averaging:
    """The state of `average`, for one model: where its buckets are reduced, and those under way."""

    def __init__(self, comm: Communicator) -> None:
        self.comm = comm
        self.pending: list[tuple[Request, torch.futures.Future[torch.Tensor], torch.Tensor]] = []


def average(state: Averaging, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Averages a bucket in place over the workers of state.comm.

    Buckets travel while the backward pass computes; the last one waits for all of them, when nothing is left
    to compute. Raises what a failing allreduce raises, from backward().
    """
    tensor = bucket.buffer()
    future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    state.pending.append((state.comm.iallreduce(tensor, op="avg"), future, tensor))
    if bucket.is_last():
        pending, state.pending = state.pending, []
        for request, done, result in pending:
            request.wait()
            done.set_result(result)
    return future
