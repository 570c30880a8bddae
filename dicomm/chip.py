"""Which chip a rank computes on: from the settings to the dicomm_chip that its native context is given."""

from __future__ import annotations

import contextlib
import importlib
from typing import Any

from dicomm._native import ffi
from dicomm.config import Config, launched
from dicomm.errors import InvalidArgument
from dicomm.simulate import SimulatedChip, simulated_chip


def native_chip(config: Config, rank: int) -> tuple[Any, list[Any]]:
    """A dicomm_chip * for a rank of the job, and what must stay alive with it."""
    simulated = simulated_chip(config, rank)
    if simulated and config.vendor:
        raise InvalidArgument(
            f"DICOMM_VENDOR={config.vendor!r} names a real chip, DICOMM_SIMULATE simulates one; unset either"
        )
    vendor = simulated.brand if simulated else config.vendor or "cpu"
    if config.island_library == "mpi":
        _import_mpi()
    texts = (vendor, config.island, config.role, config.island_library)
    words = [ffi.new("char[]", text.encode()) for text in texts]
    chip = ffi.new("dicomm_chip *")
    chip.size = ffi.sizeof("dicomm_chip")
    chip.vendor, chip.island, chip.role, chip.library = words
    chip.index = _index(config, vendor, simulated is not None)
    held: list[Any] = [chip, *words]
    if simulated:
        chip.simulation, words = _native_simulation(simulated)
        held += [chip.simulation, *words]
    return chip, held


def _import_mpi() -> None:
    """Brings the MPI that mpi4py was installed with into the process and initialises it. Without mpi4py, or
    where it finds no MPI, the native library looks for one and says what it looked for.
    """
    with contextlib.suppress(ImportError, RuntimeError):
        importlib.import_module("mpi4py.MPI")


def _index(config: Config, vendor: str, simulated: bool) -> int:
    if config.device_index is not None:
        return config.device_index
    if simulated or vendor == "cpu":
        return 0
    launch = launched()
    return launch.local_rank if launch else 0


def _native_simulation(chip: SimulatedChip) -> tuple[Any, list[Any]]:
    simulation = ffi.new("dicomm_simulation *")
    simulation.size = ffi.sizeof("dicomm_simulation")
    lacks = ffi.new("char[]", chip.lacks.encode())
    simulation.lacks = lacks
    for name in ("tflops", "memory_bytes", "copy_gbs", "copy_latency_us", "link_gbs", "dtypes"):
        setattr(simulation, name, getattr(chip, name))
    return simulation, [simulation, lacks]
