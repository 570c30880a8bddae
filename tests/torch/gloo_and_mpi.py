"""One rank of a job that mpirun starts: `python gloo_and_mpi.py FILE gloo,gloo,mpi,mpi`. It ends with "fine".

Ranks of kind "gloo" are an island whose own torch backend is gloo, those of kind "mpi" one whose library is
MPI.
"""

from __future__ import annotations

import json
import os
import sys
from datetime import timedelta
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from mpi4py import MPI
from test_vendor_backend import served_by

from support import reference
from support.reference import Array

KINDS = sys.argv[2].split(",")
RANK, SIZE = MPI.COMM_WORLD.Get_rank(), len(KINDS)
SETTINGS = {"gloo": {"DICOMM_TORCH_ISLAND_BACKEND": "cpu:gloo"}, "mpi": {"DICOMM_ISLAND_LIBRARY": "mpi"}}
COUNTS = (0, 7, 140001)  # the last goes by island
ROOT_OPS = {"sum": dist.ReduceOp.SUM, "max": dist.ReduceOp.MAX, "prod": dist.ReduceOp.PRODUCT}
MORE_OPS = {"min": dist.ReduceOp.MIN, "avg": dist.ReduceOp.AVG}  # avg: not gloo's

facts: dict[str, Any] = {}  # by group


def watch_groups() -> None:
    """Keeps what every group tells of itself: torch has no place for a backend's counters."""
    from dicomm.torch import plugin

    make = plugin.vendor_backend

    def keep(config: Any, group: Any) -> Any:
        facts[group.name] = group
        return make(config, group)

    plugin.vendor_backend = keep


def calls(group: dist.ProcessGroup) -> int | None:
    """Calls of the island's library so far; None where the rank has none in this group."""
    ccl = json.loads(facts[group.group_name].info)["ccl"]
    assert ccl is None or ccl["library"] == "mpi", ccl
    return None if ccl is None else int(ccl["calls"])


def tensor_of(array: Array, dtype: str) -> torch.Tensor:
    return torch.from_numpy(array.astype(np.float64)).to(getattr(torch, dtype))


def check(what: str, got: torch.Tensor, want: Array) -> None:
    np.testing.assert_array_equal(got.double().numpy(), want.astype(np.float64), what)


def collectives(group: dist.ProcessGroup, ops: dict[str, Any], dtype: str, count: int) -> None:
    """Five operations, on the ranks of a group, against numpy."""
    members = dist.get_process_group_ranks(group)
    size, place = len(members), members.index(RANK)
    for name, op in ops.items():
        inputs = [reference.values(dtype, count, r, name) for r in members]
        x = tensor_of(inputs[place], dtype)
        dist.all_reduce(x, op, group=group)
        check(f"all_reduce {name}", x, reference.reduce(inputs, dtype, name))
        wholes = [reference.values(dtype, count * size, r, name) for r in members]
        x = torch.empty(count, dtype=getattr(torch, dtype))
        dist.reduce_scatter_tensor(x, tensor_of(wholes[place], dtype), op, group=group)
        part = slice(place * count, (place + 1) * count)
        check(f"reduce_scatter {name}", x, reference.reduce([whole[part] for whole in wholes], dtype, name))
    inputs = [reference.values(dtype, count, r) for r in members]
    wholes = [reference.values(dtype, count * size, r) for r in members]
    x = torch.empty(count * size, dtype=getattr(torch, dtype))
    dist.all_gather_into_tensor(x, tensor_of(inputs[place], dtype), group=group)
    check("all_gather", x, np.concatenate(inputs))
    dist.all_to_all_single(x, tensor_of(wholes[place], dtype), group=group)
    check("all_to_all", x, np.concatenate([whole[part] for whole in wholes]))
    for root in members:
        x = tensor_of(reference.values(dtype, count, RANK), dtype)
        dist.broadcast(x, root, group=group)
        check("broadcast", x, reference.values(dtype, count, root))


def everything(group: dist.ProcessGroup, ops: dict[str, Any]) -> None:
    for dtype in ("float32", "float64", "int32", "uint8"):
        for count in COUNTS:
            collectives(group, ops, dtype, count)


def main() -> None:
    os.environ.update(SETTINGS[KINDS[RANK]])
    watch_groups()
    dist.init_process_group(
        "dicomm",
        init_method=f"file://{sys.argv[1]}",
        rank=RANK,
        world_size=SIZE,
        timeout=timedelta(seconds=20),
    )
    islands = {kind: [r for r in range(SIZE) if KINDS[r] == kind] for kind in SETTINGS}
    groups = {kind: dist.new_group(ranks) for kind, ranks in islands.items()}
    kind, world, island = KINDS[RANK], dist.group.WORLD, groups[KINDS[RANK]]
    assert world

    assert served_by(None, torch.ones(3)) == "dicomm"
    everything(world, ROOT_OPS | MORE_OPS)
    before = calls(world)
    collectives(world, ROOT_OPS, "float32", COUNTS[-1])
    after = calls(world)
    assert (before, after) == (None, None) if kind == "gloo" else after > before > 0, (before, after)

    assert served_by(island, torch.ones(3)) == ("gloo" if kind == "gloo" else "dicomm")
    everything(island, ROOT_OPS if kind == "gloo" else ROOT_OPS | MORE_OPS)
    before, x = calls(island), torch.ones(COUNTS[-1])
    dist.all_reduce(x, group=island)
    dist.broadcast(x, islands[kind][0], group=island)
    assert calls(island) == (None if kind == "gloo" else before + 2)  # one call each, and nothing else
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
    print("fine", flush=True)
