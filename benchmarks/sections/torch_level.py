"""One host, torch.distributed: dicomm against gloo."""

from __future__ import annotations

from measure import Budget, K, M
from report import Section
from sections import beside
from sections.beside import Limit

NAME = "one host, torch level, against gloo"


def run(budget: Budget) -> Section:
    return beside.run(NAME, "torch-dicomm", "torch-gloo", _limits, budget)


def _limits(ranks: int) -> list[Limit]:
    small, large = {2: (10, 3), 4: (5, 2)}[ranks]
    return [Limit(small, 0, 64 * K), Limit(large, M, 64 * M)]
