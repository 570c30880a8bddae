"""A small classifier of scikit-learn's digits, trained by DistributedDataParallel, every rank on a shard."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def save_digits(directory: Path) -> str:
    """The path of a file for losses(). Skips the test where scikit-learn is missing."""
    x, y = pytest.importorskip("sklearn.datasets").load_digits(return_X_y=True)
    path = directory / "digits.npz"
    np.savez(path, x=x, y=y)
    return str(path)


def losses(
    rank: int,
    size: int,
    data: str,
    prepare: Callable[[DistributedDataParallel], None] = lambda model: None,
    bucket_mb: float | None = None,
) -> list[float]:
    """Means over the ranks, of each of 20 steps. prepare: called with the model before the first."""
    loaded = np.load(data)
    images = torch.tensor(loaded["x"][rank::size] / 16, dtype=torch.float32)
    labels = torch.tensor(loaded["y"][rank::size])
    torch.manual_seed(0)
    model = DistributedDataParallel(
        nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10)), bucket_cap_mb=bucket_mb
    )
    prepare(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.03)
    found = []
    for _ in range(20):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        found.append(mean.item() / size)
    return found
