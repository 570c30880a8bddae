"""torch.distributed backends as subjects of `dicomm bench`: the same tensors through "dicomm" and "gloo"."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from dicomm import Communicator
from dicomm.cli.bench_cases import Array, Case
from dicomm.cli.bench_subjects import Subject


class TorchBackend(Subject):
    """One backend, over a process group of its own."""

    level = "torch"

    def __init__(self, name: str, group: dist.ProcessGroup) -> None:
        self.name = name
        self._group = group

    def collective(self, case: Case) -> Callable[[], object]:
        group = self._group
        send, recv = torch.from_numpy(case.send), torch.from_numpy(case.recv)
        op = {
            "sum": dist.ReduceOp.SUM, "prod": dist.ReduceOp.PRODUCT, "min": dist.ReduceOp.MIN,
            "max": dist.ReduceOp.MAX, "avg": dist.ReduceOp.AVG,
        }[case.reduce]  # fmt: skip
        root = case.rank == 0
        calls: dict[str, Callable[[], object]] = {
            "barrier": lambda: dist.barrier(group=group),
            "broadcast": lambda: dist.broadcast(recv, 0, group=group),
            "allreduce": lambda: dist.all_reduce(recv, op, group=group),
            "reduce": lambda: dist.reduce(recv, 0, op, group=group),
            "allgather": lambda: dist.all_gather_single(recv, send, group=group),
            "reduce_scatter": lambda: dist.reduce_scatter_single(recv, send, op, group=group),
            "alltoall": lambda: dist.all_to_all_single(recv, send, group=group),
            "gather": lambda: dist.gather(send, parts_of(recv) if root else None, 0, group=group),
            "scatter": lambda: dist.scatter(recv, parts_of(send) if root else None, 0, group=group),
        }

        def parts_of(tensor: torch.Tensor) -> list[torch.Tensor]:
            return list(tensor.chunk(case.ranks))

        return calls[case.operation]

    def buffer(self, array: Array) -> torch.Tensor:
        return torch.from_numpy(array)

    def isend(self, buffer: torch.Tensor, peer: int) -> Any:
        return dist.isend(buffer, peer, group=self._group)

    def irecv(self, buffer: torch.Tensor, peer: int) -> Any:
        return dist.irecv(buffer, peer, group=self._group)

    def wait_all(self, requests: list[Any]) -> None:
        for request in requests:
            request.wait()

    def close(self) -> None:
        """Of the last one: ends torch's groups."""
        if dist.is_initialized():
            dist.destroy_process_group()


def backends(comm: Communicator, names: list[str]) -> list[Subject]:
    """Collective over ``comm``: a group for "dicomm" and one for each of ``names``.

    They meet in a store on rank 0 whose address travels over ``comm``.
    """
    if comm.rank == 0:
        store = dist.TCPStore("0.0.0.0", 0, comm.size, is_master=True, wait_for_workers=False)  # type: ignore[attr-defined]
        comm.broadcast_object((socket.gethostname(), store.port))
    else:
        host, port = comm.broadcast_object()
        store = dist.TCPStore(host, port, comm.size, is_master=False)  # type: ignore[attr-defined]
    dist.init_process_group("dicomm", store=store, rank=comm.rank, world_size=comm.size)
    world = dist.group.WORLD
    assert world is not None  # init_process_group has just set it
    groups = [("dicomm", world), *((name, dist.new_group(backend=name)) for name in names)]
    return [TorchBackend(name, group) for name, group in groups]
