"""What more ranks cost on one machine: start, memory, file descriptors and threads, dicomm against gloo."""

from __future__ import annotations

import statistics
import sys
from pathlib import Path
from typing import Any

import programs
from measure import Budget
from report import Section, Target

NAME = "cost of size, torch level, against gloo"
RANKS, QUICK_RANKS, TARGET_RANKS = (2, 8, 32, 64, 128), (2, 8), 64
REPEATS = 3
SCRIPT = Path(__file__).parents[1] / "cost_ranks.py"


def run(budget: Budget) -> Section:
    section = Section(NAME)
    for ranks in QUICK_RANKS if budget.quick else RANKS:
        found: dict[str, list[dict[str, float]]] = {"dicomm": [], "gloo": []}
        # Beyond the target's number a run takes minutes on few cores: one has to do.
        for _ in range(1 if budget.quick or ranks > TARGET_RANKS else REPEATS):
            for backend, into in found.items():
                into.append(_costs(backend, ranks))
        costs = {backend: _median(several) for backend, several in found.items()}
        section.rows += [{"backend": name, "ranks": ranks, **cost} for name, cost in costs.items()]
        section.targets += _targets(ranks, costs["dicomm"], costs["gloo"])
    return section


def _costs(backend: str, ranks: int) -> dict[str, float]:
    """Per rank, beyond what it had when it had imported torch and connected to the store."""
    phases: dict[str, Any] = programs.run(sys.executable, SCRIPT, backend, ranks)
    met, init, operated = (phases[phase] for phase in ("meet", "init", "operate"))
    return {
        "load_s": phases["load"]["seconds"],
        "init_s": init["seconds"],
        "first_allreduce_s": operated["seconds"],
        "load_memory": (phases["load"]["memory"] - met["memory"]) / ranks,
        "init_memory": (init["memory"] - met["memory"]) / ranks,
        "memory": (operated["memory"] - met["memory"]) / ranks,
        "init_fds": init["fds"] - met["fds"],
        "fds": operated["fds"] - met["fds"],
        "init_threads": init["threads"] - met["threads"],
        "threads": operated["threads"] - met["threads"],
    }


def _median(several: list[dict[str, float]]) -> dict[str, float]:
    return {name: statistics.median(one[name] for one in several) for name in several[0]}


def _targets(ranks: int, own: dict[str, float], gloo: dict[str, float]) -> list[Target]:
    """Times and memory as dicomm's over gloo's; at most 1 where the target stands."""
    limit = 1.0 if ranks == TARGET_RANKS else None
    seconds = [cost["load_s"] + cost["init_s"] for cost in (own, gloo)]
    megabytes = [cost["memory"] / 1e6 for cost in (own, gloo)]
    return [
        Target(
            f"{ranks} ranks, init",
            seconds[0] / seconds[1],
            limit,
            at_least=False,
            note=f"{seconds[0]:.3f} s ({own['load_s']:.3f} s of it loading), gloo {seconds[1]:.3f} s; "
            f"first allreduce {own['first_allreduce_s']:.3f} s, gloo {gloo['first_allreduce_s']:.3f} s",
        ),
        Target(
            f"{ranks} ranks, memory per rank after an allreduce",
            megabytes[0] / megabytes[1],
            limit,
            at_least=False,
            note=f"{megabytes[0]:.2f} MB ({own['load_memory'] / 1e6:.2f} of it loading), gloo "
            f"{megabytes[1]:.2f} MB; fds {own['fds']:.0f}, gloo {gloo['fds']:.0f}; threads "
            f"{own['threads']:.0f}, gloo {gloo['threads']:.0f}",
        ),
    ]
