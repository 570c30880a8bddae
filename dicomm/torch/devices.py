"""Which chip a rank computes on, seen from torch, and the vendors' own backends for its tensors.

Tensors in the memory of the rank's chip are read and written where they are, in the order of the caller's
stream. Those of any other device (one that dicomm has no run time for, or another one of the same kind) go
through host memory by torch's own copies.
"""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Any

from dicomm.config import Config, invalid, launched
from dicomm.simulate import simulated_chip

if TYPE_CHECKING:
    import torch
    import torch.distributed as dist

# torch's device type -> the vendors whose chips it stands for; the first where nothing else is said. Programs
# may add to it before the first process group, as for a device of their own.
VENDORS: dict[str, tuple[str, ...]] = {
    "cuda": ("nvidia", "amd", "iluvatar", "metax", "hygon"),
    "npu": ("ascend",),
    "musa": ("mthreads",),
}
# Backends that torch names for a device without being its vendor's.
_NOT_VENDORS = ("gloo", "mpi", "fake", "undefined", "dicomm")


def chip_of(config: Config, rank: int) -> tuple[Config, torch.device | None]:
    """The settings of this process with the chip filled in that torch computes on, and the device whose
    tensors are in its memory (None: no such device).

    DICOMM_VENDOR and DICOMM_DEVICE_INDEX win over what torch says; a simulated chip wins over both, and has
    torch's tensors in its memory only where VENDORS says that its brand stands behind torch's device.
    """
    import torch

    accelerator = torch.accelerator.current_accelerator(check_available=True)
    if accelerator is None:
        return config, None
    vendors = VENDORS.get(accelerator.type, ())
    simulated = simulated_chip(config, rank)
    if simulated:
        vendor = simulated.brand
    elif config.vendor:
        vendor = config.vendor
    elif accelerator.type == "cuda" and torch.version.hip:
        vendor = "amd"
    else:
        vendor = vendors[0] if vendors else "cpu"
    index = config.device_index if config.device_index is not None else _current_index(accelerator)
    if not simulated:
        # Ranks whose chips only torch knows are an island by what torch calls them: no backend of a vendor
        # serves them together with others.
        island = config.island or (accelerator.type if vendor == "cpu" else "")
        config = dataclasses.replace(config, vendor=vendor, device_index=index, island=island)
    return config, torch.device(accelerator.type, index) if vendor in vendors else None


def _current_index(accelerator: torch.device) -> int:
    """The current device; where the program has not chosen one yet, that of the launcher's local rank."""
    import torch

    module = torch.get_device_module(accelerator)
    if getattr(module, "is_initialized", lambda: True)():
        return torch.accelerator.current_device_index()
    launch = launched()
    return launch.local_rank % max(torch.accelerator.device_count(), 1) if launch else 0


def vendor_backend(config: Config, group: Any) -> tuple[dist.Backend, str] | None:
    """The vendor's own backend for a new group that is one island, and the device type whose tensors it gets.

    group: a GroupFacts of the native half. None: the group is mixed, or there is no such backend. Collective
    over the group's ranks where it is made; raises what the backend raises.
    """
    import torch

    accelerator = torch.accelerator.current_accelerator(check_available=True)
    device = accelerator.type if accelerator else "cpu"
    name = _backends(config).get(device, _own_backend(device))
    if name in ("", "dicomm"):
        return None
    ranks = json.loads(group.info)["topology"]["ranks"]
    if len({rank["island_index"] for rank in ranks}) > 1:
        return None
    return _make(name, group), device


def _backends(config: Config) -> dict[str, str]:
    """DICOMM_TORCH_ISLAND_BACKEND by device type."""
    pairs: dict[str, str] = {}
    for item in filter(None, map(str.strip, config.torch_island_backend.split(","))):
        device, separator, backend = item.partition(":")
        if not (separator and device.strip() and backend.strip()):
            raise invalid(f"DICOMM_TORCH_ISLAND_BACKEND: {item!r} is not DEVICE:BACKEND, as in npu:hccl")
        pairs[device.strip().lower()] = backend.strip().lower()
    return pairs


def _own_backend(device: str) -> str:
    """What torch, or the vendor's package, has for the device; "" when that is not the vendor's."""
    import torch.distributed as dist

    if device == "cpu":
        return ""
    name = dist.Backend.default_device_backend_map.get(device, "")
    return "" if name in _NOT_VENDORS or not _known(name) else name


def _known(name: str) -> bool:
    import torch.distributed as dist

    built_in = hasattr(dist.distributed_c10d, f"ProcessGroup{name.upper()}")
    return name == "gloo" or (name in ("nccl", "xccl") and built_in) or name.upper() in dist.Backend._plugins


def _make(name: str, group: Any) -> dist.Backend:
    """As torch's own `_new_process_group_helper` makes it, in a place of its own in the store."""
    import torch.distributed as dist

    c10d: Any = dist.distributed_c10d  # which does not export what its own helper uses
    if not _known(name):
        raise invalid(
            f"this torch knows no backend {name!r}, which is to serve islands (DICOMM_TORCH_ISLAND_BACKEND); "
            "import the vendor's package first"
        )
    options: Any
    backend: Any
    if name == "gloo":
        backend = c10d.ProcessGroupGloo(group.store, group.rank, group.size, timeout=group.timeout)
    elif name in ("nccl", "xccl"):
        backend_class = getattr(c10d, f"ProcessGroup{name.upper()}")
        options = backend_class.Options()
        options._timeout = group.timeout
        options.global_ranks_in_group = group.global_ranks
        options.group_name = group.name
        backend = backend_class(group.store, group.rank, group.size, options)
    elif (plugin := dist.Backend._plugins[name.upper()]).extended_api:
        options = c10d._DistributedBackendOptions()
        options.store = group.store
        options.group_rank = group.rank
        options.group_size = group.size
        options.timeout = group.timeout
        options.group_id = group.name
        options.global_ranks_in_group = group.global_ranks
        backend = plugin.creator_fn(options, None)
    else:
        backend = plugin.creator_fn(group.store, group.rank, group.size, group.timeout)
    if name in ("gloo", "nccl"):
        backend._set_sequence_number_for_group()
    made: dist.Backend = backend
    return made
