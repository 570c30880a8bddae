"""What trainers do: DDP, FSDP, DTensor, pipelines, checkpoints, compiled collectives."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from support.digits import losses, save_digits

pytestmark = pytest.mark.timeout(90)


def network(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 4))


def batch(rank: int, step: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(100 * rank + step)
    return torch.randn(5, 6, generator=generator), torch.randn(5, 4, generator=generator)


def train_alone(size: int, steps: int = 3) -> nn.Module:
    """One process with every rank's batch: the mean of the ranks' gradients."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(steps):
        optimizer.zero_grad()
        for rank in range(size):
            x, y = batch(rank, step)
            (nn.functional.mse_loss(model(x), y) / size).backward()
        optimizer.step()
    return model


def train(model: nn.Module, rank: int, steps: int = 3, device: str = "cpu") -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(steps):
        optimizer.zero_grad()
        x, y = (tensor.to(device) for tensor in batch(rank, step))
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()


def check_equal(model: nn.Module, size: int) -> None:
    for mine, expected in zip(model.parameters(), train_alone(size).parameters(), strict=True):
        full = mine.full_tensor() if hasattr(mine, "full_tensor") else mine
        torch.testing.assert_close(full, expected, rtol=1e-4, atol=1e-5)


def ddp(rank: int, size: int) -> None:
    for options in ({}, {"static_graph": True}, {"gradient_as_bucket_view": True, "bucket_cap_mb": 1e-4}):
        model = DistributedDataParallel(network(), **options)
        train(model, rank)
        check_equal(model.module, size)


def ddp_hooks(rank: int, size: int) -> None:
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook

    model = DistributedDataParallel(network())
    model.register_comm_hook(None, default_hooks.allreduce_hook)
    train(model, rank)
    check_equal(model.module, size)

    model = DistributedDataParallel(network())
    model.register_comm_hook(None, default_hooks.fp16_compress_hook)
    train(model, rank, 1)

    model = DistributedDataParallel(network())
    state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=1, start_powerSGD_iter=2)
    model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)  # waits inside callbacks
    train(model, rank, 4)
    flat = torch.cat([p.detach().flatten() for p in model.parameters()])
    everyone = [torch.empty_like(flat) for _ in range(size)]
    dist.all_gather(everyone, flat)
    for other in everyone:
        torch.testing.assert_close(other, flat, rtol=0, atol=0)


def uneven_inputs(rank: int, size: int) -> None:
    model = DistributedDataParallel(network())
    with model.join():
        train(model, rank, steps=2 + rank)


def sparse_gradients(rank: int, size: int) -> None:
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Embedding(10, 3, sparse=True))
    model(torch.tensor([rank, 5])).sum().backward()
    expected = torch.zeros(10, 3)
    expected[:size] += 1 / size
    expected[5] += 1
    torch.testing.assert_close(model.module.weight.grad.to_dense(), expected)


def fsdp1(rank: int, size: int) -> None:
    from torch.distributed.fsdp import FullyShardedDataParallel

    model = FullyShardedDataParallel(network(), device_id=torch.device("cpu"), use_orig_params=True)
    train(model, rank)
    with FullyShardedDataParallel.summon_full_params(model):
        check_equal(model, size)


def fsdp2(rank: int, size: int) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (size,))
    model = network()
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    train(model, rank)
    check_equal(model, size)


def dtensor(rank: int, size: int) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    mesh = init_device_mesh("cpu", (size,))
    torch.manual_seed(0)
    whole = torch.randn(7, 4)  # uneven shards
    sharded = distribute_tensor(whole, mesh, [Shard(0)])
    torch.testing.assert_close(sharded.full_tensor(), whole)
    torch.testing.assert_close(sharded.redistribute(mesh, [Shard(1)]).full_tensor(), whole)
    product = torch.matmul(sharded, distribute_tensor(torch.ones(4, 2), mesh, [Replicate()]))
    torch.testing.assert_close(product.full_tensor(), whole @ torch.ones(4, 2))

    plain = network()
    parallel = parallelize_module(
        copy.deepcopy(plain), mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()}
    )
    x, _ = batch(0)
    torch.testing.assert_close(parallel(x), plain(x))


def pipeline(rank: int, size: int) -> None:
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

    for schedule_class in (ScheduleGPipe, Schedule1F1B):
        torch.manual_seed(0)
        layers = nn.ModuleList(nn.Linear(6, 6) for _ in range(size))
        x, y = torch.randn(8, 6), torch.randn(8, 6)
        stage = PipelineStage(copy.deepcopy(layers[rank]), rank, size, torch.device("cpu"))
        schedule = schedule_class(stage, n_microbatches=4, loss_fn=nn.functional.mse_loss)
        losses: list[torch.Tensor] = []
        if rank == 0:
            schedule.step(x)
        elif rank == size - 1:
            schedule.step(target=y, losses=losses)
        else:
            schedule.step()
        out = x
        for layer in layers:
            out = layer(out)
        nn.functional.mse_loss(out, y).backward()
        torch.testing.assert_close(stage.submod.weight.grad, layers[rank].weight.grad, rtol=1e-4, atol=1e-5)
        if losses:
            torch.testing.assert_close(torch.stack(losses).mean(), nn.functional.mse_loss(out, y))


def checkpoint(rank: int, size: int, path: str) -> None:
    import torch.distributed.checkpoint as dcp
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    mesh = init_device_mesh("cpu", (size,))
    whole = torch.arange(24.0).reshape(6, 4)
    dcp.save({"w": distribute_tensor(whole, mesh, [Shard(0)])}, checkpoint_id=f"{path}/sync")
    loaded = {"w": distribute_tensor(torch.zeros(6, 4), mesh, [Shard(1)])}
    dcp.load(loaded, checkpoint_id=f"{path}/sync")
    torch.testing.assert_close(loaded["w"].full_tensor(), whole)

    # A group of its own: the saving thread's collectives would mix with the training's in one.
    state, group = {"w": distribute_tensor(whole * 2, mesh, [Shard(0)])}, dist.new_group()
    saving = dcp.async_save(state, checkpoint_id=f"{path}/async", process_group=group)
    dist.all_reduce(torch.ones(1))  # training goes on meanwhile
    saving.result()
    dist.barrier()
    dcp.load(loaded, checkpoint_id=f"{path}/async")
    torch.testing.assert_close(loaded["w"].full_tensor(), whole * 2)


def functional(rank: int, size: int) -> None:
    import torch.distributed._functional_collectives as funcol

    group = dist.group.WORLD
    total = sum(range(1, size + 1))

    def step(x: torch.Tensor) -> torch.Tensor:
        y = funcol.all_reduce(x, "sum", group)
        z = funcol.all_gather_tensor(y * (dist.get_rank() + 1), 0, group)
        w = funcol.reduce_scatter_tensor(z, "sum", 0, group)
        return funcol.all_to_all_single(w.repeat(size), None, None, group)

    x = torch.tensor([rank + 1.0, 2.0 * (rank + 1)])
    # rank r gets size * (r + 1) * [t, 2t] from the reduce-scatter, and a piece of each from the exchange
    expected = torch.cat([size * (r + 1) * total * torch.tensor([1.0, 2.0]) for r in range(size)])
    torch.testing.assert_close(step(x), expected)
    torch.testing.assert_close(torch.compile(step, backend="aot_eager", fullgraph=True)(x), expected)
    numbers = funcol.all_reduce(torch.tensor([1 + 1j * rank]), "sum", group)
    torch.testing.assert_close(numbers + 0, torch.tensor([size + 1j * sum(range(size))]))


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize(
    "function", [ddp, ddp_hooks, uneven_inputs, sparse_gradients], ids=lambda f: f.__name__
)
def test_ddp(ranks, function, size: int) -> None:
    ranks(size, function)


@pytest.mark.parametrize("function", [fsdp1, fsdp2, dtensor, pipeline], ids=lambda f: f.__name__)
def test_sharded(ranks, function) -> None:
    ranks(2, function, timeout=60)


@pytest.mark.slow
@pytest.mark.parametrize("function", [fsdp1, fsdp2, dtensor, pipeline], ids=lambda f: f.__name__)
def test_sharded_over_more_ranks(ranks, function) -> None:
    ranks(4, function, timeout=80)


def test_checkpoint(ranks, tmp_path: Path) -> None:
    ranks(2, checkpoint, path=str(tmp_path), timeout=60)


def test_functional_and_compiled(ranks) -> None:
    ranks(2, functional, timeout=80)


@pytest.mark.parametrize("chips", ["", "alpha:2,beta:2"], ids=["host", "mixed"])
def test_digits_losses_equal_those_of_gloo(ranks, tmp_path: Path, chips: str) -> None:
    data = save_digits(tmp_path)
    ours = ranks(4, losses, data=data, env={"DICOMM_SIMULATE": chips})
    theirs = ranks(4, losses, backend="gloo", data=data)
    assert ours[0] == ours[3]
    assert ours[0][-1] < 0.4 < 2 < ours[0][0]
    assert ours[0] == pytest.approx(theirs[0], rel=1e-4)
