"""Simulated chips: which brand each rank has."""

from __future__ import annotations

from dataclasses import dataclass

from dicomm._native import DTYPES
from dicomm.config import Config


@dataclass(frozen=True)
class SimulatedChip:
    """The fields of dicomm_simulation, and the brand."""

    brand: str
    tflops: float = 1.0
    memory_bytes: int = 1 << 30
    copy_gbs: float = 0.0
    copy_latency_us: float = 0.0
    link_gbs: float = 0.0
    dtypes: int = sum(1 << code for code in DTYPES.values())
    lacks: str = ""


def simulated_chip(config: Config, rank: int) -> SimulatedChip | None:
    """The chip of a rank by config.simulate, "alpha:2,beta:2", which repeats for more ranks."""
    brands: list[str] = []
    for part in config.simulate.split(",") if config.simulate else []:
        brand, _, count = part.partition(":")
        brands += [brand.strip()] * int(count or 1)
    return SimulatedChip(brands[rank % len(brands)]) if brands else None
