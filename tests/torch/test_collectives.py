"""Every collective of torch.distributed, on the tensors that are easy to get wrong."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist

pytestmark = pytest.mark.timeout(60)


def same(actual: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(actual, expected, rtol=0, atol=0, equal_nan=True)


def pattern(rank: int, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Small whole numbers that differ by rank and place: sums are exact in every dtype."""
    count = 1
    for extent in shape:
        count *= extent
    return ((torch.arange(count) + rank) % 4).reshape(shape).to(dtype)


DTYPES = [
    torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16,
    torch.float32, torch.float64, torch.complex64, torch.complex128,
]  # fmt: skip


def allreduce(rank: int, size: int) -> None:
    inputs = {dtype: [pattern(r, 3, 5, dtype=dtype) for r in range(size)] for dtype in DTYPES}
    for dtype in DTYPES:
        tensor = inputs[dtype][rank].clone()
        dist.all_reduce(tensor)
        same(tensor, torch.stack(inputs[dtype]).sum(0).to(dtype))
    stack = torch.stack([pattern(r, 4, dtype=torch.int64) for r in range(size)])
    for op, expected in [
        (dist.ReduceOp.PRODUCT, stack.prod(0)),
        (dist.ReduceOp.MIN, stack.min(0).values),
        (dist.ReduceOp.MAX, stack.max(0).values),
        (dist.ReduceOp.BAND, _fold(stack, torch.bitwise_and)),
        (dist.ReduceOp.BOR, _fold(stack, torch.bitwise_or)),
        (dist.ReduceOp.BXOR, _fold(stack, torch.bitwise_xor)),
    ]:
        tensor = stack[rank].clone()
        dist.all_reduce(tensor, op)
        same(tensor, expected)
    average = torch.full((3,), float(rank))
    dist.all_reduce(average, dist.ReduceOp.AVG)
    same(average, torch.full((3,), sum(range(size)) / size))
    truth = torch.tensor([rank == 0, False, True])
    dist.all_reduce(truth)
    same(truth, torch.tensor([True, False, True]))
    assert truth.view(torch.uint8).max() == 1
    scalar = torch.tensor(float(rank))
    dist.all_reduce(scalar)
    same(scalar, torch.tensor(float(sum(range(size)))))
    dist.all_reduce(torch.empty(0))


def _fold(stack: torch.Tensor, op: object) -> torch.Tensor:
    out = stack[0]
    for row in stack[1:]:
        out = op(out, row)  # type: ignore[operator]
    return out


def factor_before_sum(rank: int, size: int) -> None:
    op = dist._make_nccl_premul_sum(0.5)
    tensor = torch.full((2,), float(rank + 1))
    dist.all_reduce(tensor, op)
    same(tensor, torch.full((2,), 0.5 * sum(range(1, size + 1))))
    op = dist._make_nccl_premul_sum(torch.tensor([3.0]))
    out = torch.empty(1)
    dist.reduce_scatter_tensor(out, torch.arange(size, dtype=torch.float32), op)
    same(out, torch.tensor([3.0 * size * rank]))


def rooted(rank: int, size: int) -> None:
    root = size - 1
    tensor = pattern(rank, 4)
    dist.broadcast(tensor, root)
    same(tensor, pattern(root, 4))

    tensor = pattern(rank, 4)
    dist.reduce(tensor, root)
    expected = sum(pattern(r, 4) for r in range(size)) if rank == root else pattern(rank, 4)
    same(tensor, expected)

    parts = [torch.empty(2, 3) for _ in range(size)] if rank == root else None
    dist.gather(pattern(rank, 2, 3), parts, root)
    for r, part in enumerate(parts or []):
        same(part, pattern(r, 2, 3))

    out = torch.empty(3)
    dist.scatter(out, [pattern(r, 3) for r in range(size)] if rank == root else None, root)
    same(out, pattern(rank, 3))


def gathers(rank: int, size: int) -> None:
    parts = [torch.empty(r) for r in range(size)]
    dist.all_gather(parts, pattern(rank, rank))
    for r, part in enumerate(parts):
        same(part, pattern(r, r))

    whole = torch.empty(size * 2, 3)
    dist.all_gather_into_tensor(whole, pattern(rank, 2, 3))
    same(whole, torch.cat([pattern(r, 2, 3) for r in range(size)]))

    stacked = torch.empty(size, 2, 3)
    dist.all_gather_into_tensor(stacked, pattern(rank, 2, 3))
    same(stacked, torch.stack([pattern(r, 2, 3) for r in range(size)]))

    out = torch.empty(rank + 1)
    dist.reduce_scatter(out, [pattern(rank, r + 1) for r in range(size)])
    same(out, torch.stack([pattern(r, rank + 1) for r in range(size)]).sum(0))

    out = torch.empty(2)
    dist.reduce_scatter_tensor(out, pattern(rank, size * 2), dist.ReduceOp.MAX)
    same(out, torch.stack([pattern(r, size * 2) for r in range(size)]).max(0).values[2 * rank : 2 * rank + 2])


def exchanges(rank: int, size: int) -> None:
    # rank r sends (r + s) % 3 rows to rank s
    rows = [[(r + s) % 3 for s in range(size)] for r in range(size)]
    sent = [[torch.full((rows[r][s], 2), float(10 * r + s)) for s in range(size)] for r in range(size)]
    expected = torch.cat([sent[r][rank] for r in range(size)])

    out = torch.empty_like(expected)
    dist.all_to_all_single(out, torch.cat(sent[rank]), [rows[r][rank] for r in range(size)], rows[rank])
    same(out, expected)

    outs = [torch.empty(rows[r][rank], 2) for r in range(size)]
    dist.all_to_all(outs, sent[rank])
    same(torch.cat(outs), expected)

    even = torch.empty(size, dtype=torch.int64)
    dist.all_to_all_single(even, torch.arange(size) + 100 * rank)
    same(even, torch.arange(size) * 100 + rank)


def unusual_tensors(rank: int, size: int) -> None:
    """Strides, expansion, and views that are conjugated or negated only when they are read."""
    total = sum(range(1, size + 1))
    base = torch.zeros(4, 6)
    view = base[::2, 1::2].t()
    view.fill_(rank + 1)
    dist.all_reduce(view)
    same(view, torch.full((3, 2), float(total)))
    assert base[1].abs().sum() == 0
    assert base[:, ::2].abs().sum() == 0

    # Ranks may disagree about the memory layout.
    image = pattern(rank, 2, 3, 4, 5)
    if rank % 2:
        image = image.contiguous(memory_format=torch.channels_last)
    dist.all_reduce(image)
    same(image.contiguous(), sum(pattern(r, 2, 3, 4, 5) for r in range(size)))

    whole = torch.empty(3, size * 2).t()
    dist.all_gather_into_tensor(whole, torch.tensor([[float(rank)]]).expand(2, 3))
    same(
        whole.contiguous(),
        torch.arange(size).repeat_interleave(2).float().unsqueeze(1).expand(-1, 3).contiguous(),
    )

    parts = [torch.empty(2, dtype=torch.complex64) for _ in range(size)]
    group = dist.group.WORLD  # dist.all_gather would make a real view, which lazy conjugation forbids
    group.allgather([parts], [torch.tensor([1 + 2j, rank * 1j], dtype=torch.complex64).conj()]).wait()
    for r, part in enumerate(parts):
        same(part, torch.tensor([1 - 2j, -r * 1j], dtype=torch.complex64))

    # torch itself resolves such views before the backend sees them, and loses what is written: refused where
    # the backend is called directly.
    with pytest.raises(ValueError, match="resolve_conj"):
        group._get_backend(torch.device("cpu")).allreduce([torch.ones(2, dtype=torch.complex64).conj()])
    with pytest.raises(ValueError, match="several elements in one place"):
        dist.all_reduce(torch.zeros(1).expand(3))
    with pytest.raises(ValueError, match="elements"):
        dist.all_gather_into_tensor(torch.empty(size * 2 + 1), torch.empty(2))
    dist.barrier()


def float8_moves(rank: int, size: int) -> None:
    tensor = torch.full((3,), float(rank)).to(torch.float8_e4m3fn)
    dist.broadcast(tensor, size - 1)
    assert tensor.float().tolist() == [size - 1.0] * 3
    odd = torch.full((3,), float(rank)).to(torch.float8_e4m3fnuz)  # a type dicomm has no arithmetic for
    parts = [torch.empty_like(odd) for _ in range(size)]
    dist.all_gather(parts, odd)
    assert [part.float().tolist() for part in parts] == [[float(r)] * 3 for r in range(size)]
    with pytest.raises(NotImplementedError, match="convert them first"):
        dist.all_reduce(odd)


def sparse(rank: int, size: int) -> None:
    tensor = torch.sparse_coo_tensor([[rank, size]], [1.0, 2.0], (size + 1,))
    dist.all_reduce(tensor)
    same(tensor.to_dense(), torch.tensor([1.0] * size + [2.0 * size]))
    work = dist.all_reduce(torch.sparse_coo_tensor([[0]], [1.0], (2,)), async_op=True)
    same(work.get_future().wait()[0].to_dense(), torch.tensor([float(size), 0.0]))


def coalesced(rank: int, size: int) -> None:
    tensors = [torch.full((n,), float(rank)) for n in (1, 5, 0)]
    with dist._coalescing_manager(async_ops=True) as manager:
        for tensor in tensors:
            dist.all_reduce(tensor)
    manager.wait()
    for tensor in tensors:
        same(tensor, torch.full_like(tensor, float(sum(range(size)))))
    outs = [torch.empty(size), torch.empty(size * 2)]
    with dist._coalescing_manager():
        for n, out in enumerate(outs, 1):
            dist.all_gather_into_tensor(out, torch.full((n,), float(rank)))
    for n, out in enumerate(outs, 1):
        same(out, torch.arange(size).float().repeat_interleave(n))
    outs = [torch.empty(1), torch.empty(2)]
    with dist._coalescing_manager():
        for n, out in enumerate(outs, 1):
            dist.reduce_scatter_tensor(out, torch.ones(size * n))
    for out in outs:
        same(out, torch.full_like(out, float(size)))


def objects(rank: int, size: int) -> None:
    things: list[object] = [None] * size
    dist.all_gather_object(things, {"rank": rank, "text": "x" * rank * 1000})
    assert [t["rank"] for t in things] == list(range(size))  # type: ignore[index]
    given = [{"from": rank}, rank]
    dist.broadcast_object_list(given, 0)
    assert given == [{"from": 0}, 0]
    received: list[object] = [None]
    dist.scatter_object_list(received, [f"for {r}" for r in range(size)] if rank == 0 else None, 0)
    assert received == [f"for {rank}"]
    gathered: list[object] | None = [None] * size if rank == 0 else None
    dist.gather_object(rank * 2, gathered, 0)
    if gathered is not None:
        assert gathered == [2 * r for r in range(size)]


ALL = [
    allreduce, factor_before_sum, rooted, gathers, exchanges, unusual_tensors, float8_moves, sparse,
    coalesced, objects,
]  # fmt: skip


def everything(rank: int, size: int) -> None:
    for function in ALL:
        try:
            function(rank, size)
        except Exception as error:
            raise AssertionError(f"in {function.__name__}") from error


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_every_collective(ranks, size: int) -> None:
    ranks(size, everything)


@pytest.mark.parametrize("chips", ["alpha:2,beta:2", "alpha", "beta,alpha,gamma"])
def test_every_collective_on_simulated_chips(ranks, chips: str) -> None:
    ranks(4, everything, env={"DICOMM_SIMULATE": chips})
