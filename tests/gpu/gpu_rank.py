"""One rank of a job of two that share a chip; test_gpu.py says run("large") in each.

TEST_DEVICE in the environment is "cuda", or the compiled host_device.cc, whose tensors of host memory then
stand for those of a simulated chip. Other settings are dicomm's.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import statistics
import time
from collections.abc import Iterator
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from test_training import check_equal, network, train
from test_vendor_backend import served_by
from torch.nn.parallel import DistributedDataParallel

from dicomm.torch import devices
from support import host_device

CUDA = os.environ["TEST_DEVICE"] == "cuda"
DEVICE = "cuda:0" if CUDA else "hostdev:0"
RANK, SIZE = int(os.environ["DICOMM_RANK"]), 2
MIB = 1 << 20

INTEGERS = (*(torch.uint8, torch.int8, torch.uint16, torch.int16),
            *(torch.uint32, torch.int32, torch.uint64, torch.int64))  # fmt: skip
SMALL_FLOATS = (torch.float8_e4m3fn, torch.float8_e5m2, torch.float16, torch.bfloat16)
FLOATS = (*SMALL_FLOATS, torch.float32, torch.float64)
COMPLEX = (torch.complex64, torch.complex128)
FACTOR = 2.0


def join() -> None:
    dist.init_process_group(
        "dicomm",
        init_method=os.environ["DICOMM_INIT"],
        rank=RANK,
        world_size=SIZE,
        timeout=timedelta(seconds=30),
    )


def given(rank: int, count: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """A rank's input, on the CPU: small whole numbers."""
    numbers = torch.randint(0, 4, (count,), generator=torch.Generator().manual_seed(rank))
    return numbers.to(dtype) * (1 + 1j) if dtype.is_complex else numbers.to(dtype)


# ---- what is enqueued before and after an operation ------------------------------------------------------


@contextlib.contextmanager
def busy_stream() -> Iterator[None]:
    """A stream of its own, current inside, whose first work takes a third of a second; where streams are
    always idle, nothing."""
    if not CUDA:
        yield
        return
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(600_000_000)  # cycles
        yield
        stream.synchronize()


def still_busy() -> bool:
    return not CUDA or not torch.cuda.current_stream().query()


def stream_order() -> None:
    """Operations wait for kernels enqueued before them; kernels behind wait() see their results. On a stream
    of the program's and on the default one, small and large, several at once."""
    join()
    for count in (1000, 4 * MIB):
        x, y = (torch.zeros(count, device=DEVICE) for _ in range(2))
        # Once before: what is loaded or allocated the first time may wait for the whole chip.
        dist.all_reduce(x.fill_(1).mul_(2).add_(y).zero_())
        with busy_stream():
            x.fill_(RANK + 1)
            y.fill_(RANK + 10)
            assert still_busy()
            works = [dist.all_reduce(x, async_op=True), dist.all_reduce(y, dist.ReduceOp.MAX, async_op=True)]
            for work in works:
                work.wait()
            x.mul_(2)
            x.add_(y)
        assert (x.cpu() == 2 * 3 + 11).all(), x
    x = torch.full((count,), float(RANK), device=DEVICE)
    for _ in range(10):
        x.add_(1)
        dist.all_reduce(x, dist.ReduceOp.AVG)
    assert (x.cpu() == 10.5).all(), x


# ---- data through pinned memory --------------------------------------------------------------------------


def large() -> None:
    """64 MiB, bit by bit; prints how long it takes."""
    join()
    inputs = [torch.randn(16 * MIB, generator=torch.Generator().manual_seed(rank)) for rank in range(SIZE)]
    mine, x = inputs[RANK].to(DEVICE), torch.empty(16 * MIB, device=DEVICE)
    seconds = []
    for _ in range(6):
        x.copy_(mine)
        dist.barrier()
        begun = time.perf_counter()
        dist.all_reduce(x)
        seconds.append(time.perf_counter() - begun)
    torch.testing.assert_close(x.cpu(), inputs[0] + inputs[1], rtol=0, atol=0)
    whole = torch.empty(2 * 16 * MIB, device=DEVICE)
    dist.all_gather_into_tensor(whole, mine)
    torch.testing.assert_close(whole.cpu(), torch.cat(inputs), rtol=0, atol=0)
    if RANK == 0:
        median = statistics.median(seconds[1:])
        print(f"figure: allreduce of 64 MiB between 2 ranks on one chip: {median * 1e3:.1f} ms", flush=True)


def ops_of(dtype: torch.dtype) -> list[str]:
    """What torch defines the arithmetic of."""
    if dtype in COMPLEX:
        return ["SUM", "AVG", "PREMUL_SUM"]
    ops = ["SUM", "PRODUCT", "MIN", "MAX"]
    if dtype in INTEGERS or dtype == torch.bool:
        ops += ["BAND", "BOR", "BXOR"]
    return ops + (["AVG", "PREMUL_SUM"] if dtype != torch.bool else [])


def expected(a: torch.Tensor, b: torch.Tensor, op: str) -> torch.Tensor:
    """By torch's own arithmetic on the CPU; small floats in float32, rounded once."""
    dtype = a.dtype
    wide = torch.float32 if dtype in SMALL_FLOATS else torch.int64 if dtype in INTEGERS else dtype
    a, b = a.to(wide), b.to(wide)
    if dtype == torch.bool:
        result = {"SUM": a | b, "MAX": a | b, "BOR": a | b, "BXOR": a ^ b}.get(op, a & b)
    elif op == "AVG":
        result = (a + b) / 2 if wide.is_floating_point or wide.is_complex else (a + b) // 2
    elif op == "PREMUL_SUM":
        result = a * int(FACTOR) + b * int(FACTOR)
    elif op in ("MIN", "MAX"):
        result = torch.minimum(a, b) if op == "MIN" else torch.maximum(a, b)
    elif op in ("BAND", "BOR", "BXOR"):
        result = {"BAND": torch.bitwise_and, "BOR": torch.bitwise_or, "BXOR": torch.bitwise_xor}[op](a, b)
    else:
        result = a + b if op == "SUM" else a * b
    return result.to(dtype)


def bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.cpu().view(torch.uint8)


def every_dtype() -> None:
    """Every dtype and reduce operation, below and above the size from which islands are used."""
    join()
    premul = dist._make_nccl_premul_sum(FACTOR)
    for dtype, count in itertools.product((*INTEGERS, torch.bool, *FLOATS, *COMPLEX), (1000, 140001)):
        inputs = [given(rank, count, dtype) for rank in range(SIZE)]
        for name in ops_of(dtype):
            x = inputs[RANK].to(DEVICE)
            dist.all_reduce(x, premul if name == "PREMUL_SUM" else getattr(dist.ReduceOp, name))
            want = expected(inputs[0], inputs[1], name)
            assert bits(x).equal(bits(want)), f"{name} of {count} {dtype}: {x.cpu()} instead of {want}"
        x = torch.empty(SIZE * count, dtype=dtype, device=DEVICE)
        dist.all_gather_into_tensor(x, inputs[RANK].to(DEVICE))
        assert bits(x).equal(torch.cat([bits(each) for each in inputs])), dtype
    x = torch.tensor([float("nan"), 1.0] if RANK else [1.0, 2.0]).to(DEVICE)
    dist.all_reduce(x, dist.ReduceOp.MAX)
    torch.testing.assert_close(x.cpu(), torch.tensor([float("nan"), 2.0]), equal_nan=True)


# ---- groups and training ---------------------------------------------------------------------------------


def training() -> None:
    """A DDP step as in one process; groups of one rank, one island each, have the vendor's own backend."""
    join()
    assert served_by(None, torch.ones(3, device=DEVICE)) == "dicomm"
    model = DistributedDataParallel(network().to(DEVICE))
    train(model, RANK, device=DEVICE)
    check_equal(model.module.cpu(), SIZE)
    alone = [dist.new_group([rank]) for rank in range(SIZE)][RANK]
    x = torch.full((1000,), RANK + 0.5, device=DEVICE)
    assert served_by(alone, x) == ("nccl" if CUDA else "dicomm")
    assert (x.cpu() == RANK + 0.5).all()


def refused() -> None:
    """What cannot be one island is refused on both ranks, with the reason."""
    with pytest.raises((dist.DistBackendError, ValueError), match=os.environ["EXPECTED"]) as caught:
        join()
    print(f"rank {RANK} was told: {caught.value}", flush=True)
    os._exit(0)  # without waiting for what the vendor's library left


def run(case: str) -> None:
    torch.set_num_threads(1)
    if CUDA:
        torch.cuda.set_device(0)
    else:
        host_device.use(os.environ["TEST_DEVICE"])
        devices.VENDORS["hostdev"] = ("alpha", "beta")
    os.environ.setdefault("DICOMM_ISLAND", ("left", "right")[RANK])
    cases = (stream_order, large, every_dtype, training, refused)
    {each.__name__: each for each in cases}[case]()
    dist.destroy_process_group()
