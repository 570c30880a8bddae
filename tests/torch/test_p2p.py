"""Point to point: tags, any source, batches."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist

pytestmark = pytest.mark.timeout(60)


def tags_select(rank: int, size: int) -> None:
    if rank == 0:
        works = [
            dist.isend(torch.full((n,), float(tag)), 1, tag=tag) for tag, n in [(7, 1 << 18), (3, 4), (9, 0)]
        ]
        for work in works:
            work.wait()
    else:
        for tag, n in [(9, 0), (3, 4), (7, 1 << 18)]:
            tensor = torch.empty(n)
            assert dist.recv(tensor, 0, tag=tag) == 0
            assert (tensor == tag).all()


def any_source(rank: int, size: int) -> None:
    if rank:
        dist.send(torch.tensor([rank]), 0)
        return
    seen = set()
    for _ in range(size - 1):
        tensor = torch.tensor([0])
        source = dist.recv(tensor)
        assert tensor.item() == source
        seen.add(source)
    assert seen == set(range(1, size))


def batches(rank: int, size: int) -> None:
    """A ring both ways, receives and sends in an order that blocking calls could not have."""
    after, before = (rank + 1) % size, (rank - 1) % size
    right, left = torch.empty(1000), torch.empty(3)
    ops = [
        dist.P2POp(dist.isend, torch.full((1000,), float(rank)), after, tag=1),
        dist.P2POp(dist.isend, torch.full((3,), float(rank)), before, tag=2),
        dist.P2POp(dist.irecv, left, after, tag=2),
        dist.P2POp(dist.irecv, right, before, tag=1),
    ]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    assert (right == before).all()
    assert (left == after).all()


def strided_and_object(rank: int, size: int) -> None:
    base = torch.zeros(6, 4)
    if rank == 0:
        base.copy_(torch.arange(24).reshape(6, 4))
        dist.send(base[:, 1], 1)
        dist.send_object_list([{"a": 1}, "b"], 1)
    else:
        dist.recv(base[::1, 2], 0)
        assert base[:, 2].tolist() == [1.0, 5.0, 9.0, 13.0, 17.0, 21.0]
        assert base[:, 1].abs().sum() == 0
        objects: list[object] = [None, None]
        dist.recv_object_list(objects, 0)
        assert objects == [{"a": 1}, "b"]


def test_tags_select(ranks) -> None:
    ranks(2, tags_select)


def test_any_source(ranks) -> None:
    ranks(4, any_source)


@pytest.mark.parametrize("size", [2, 3, 4])
def test_batches(ranks, size: int) -> None:
    ranks(size, batches)


def test_strided_and_object(ranks) -> None:
    ranks(2, strided_and_object)
