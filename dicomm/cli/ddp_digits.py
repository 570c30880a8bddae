"""A DistributedDataParallel script that knows torch and nothing else.

It trains a small network on scikit-learn's bundled digits. `dicomm demo` runs it unchanged over
backend "dicomm"; it runs over any other backend as well:

    torchrun --nproc-per-node 4 ddp_digits.py --backend gloo
"""

import argparse

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def digits() -> tuple[TensorDataset, TensorDataset]:
    """1437 images to train on and 360 to test, the same split on every rank."""
    bunch = load_digits()
    images = torch.tensor(bunch.data / 16.0, dtype=torch.float32)
    labels = torch.tensor(bunch.target)
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
    train, test = order[:1437], order[1437:]
    return TensorDataset(images[train], labels[train]), TensorDataset(images[test], labels[test])


def mean_over_ranks(total: float, count: int) -> float:
    both = torch.tensor([total, float(count)], dtype=torch.float64)
    dist.all_reduce(both)
    return float(both[0] / both[1])


def train_epoch(
    model: nn.Module, optimizer: torch.optim.Optimizer, loader: DataLoader[tuple[torch.Tensor, ...]]
) -> float:
    total, count = 0.0, 0
    for images, labels in loader:
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        total += loss.item() * len(images)
        count += len(images)
    return mean_over_ranks(total, count)


@torch.no_grad()
def accuracy(model: nn.Module, test: TensorDataset) -> float:
    """Every rank looks at its share of the test images."""
    images, labels = (part[dist.get_rank() :: dist.get_world_size()] for part in test.tensors)
    right = int((model(images).argmax(dim=1) == labels).sum())
    return mean_over_ranks(right, len(images))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--backend", default="gloo")
    parser.add_argument("--epochs", type=int, default=8)
    arguments = parser.parse_args()
    dist.init_process_group(backend=arguments.backend)
    torch.manual_seed(0)
    train, test = digits()
    network = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10))
    model = DistributedDataParallel(network)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    sampler: DistributedSampler[tuple[torch.Tensor, ...]] = DistributedSampler(train, seed=0)
    loader = DataLoader(train, batch_size=32, sampler=sampler)
    for epoch in range(arguments.epochs):
        sampler.set_epoch(epoch)
        loss = train_epoch(model, optimizer, loader)
        right = accuracy(network, test)
        if dist.get_rank() == 0:
            print(f"epoch {epoch + 1}: loss {loss:.6f}, accuracy {right:.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
