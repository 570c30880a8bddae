"""Makes the backend objects of process groups. Loaded by the first group that is made."""

from __future__ import annotations

import atexit
import functools
import os
import sys
from datetime import timedelta
from types import ModuleType
from typing import TYPE_CHECKING, Any

from dicomm._native import ffi
from dicomm.buffer import dtype_code
from dicomm.chip import native_chip
from dicomm.config import LOG_LEVELS, Config, invalid, launched
from dicomm.errors import DicommError
from dicomm.torch import build
from dicomm.torch.devices import chip_of, vendor_backend

if TYPE_CHECKING:
    import torch.distributed as dist


def create_backend(options: Any, backend_options: Any) -> dist.Backend:
    """The creator given to `Backend.register_backend(..., extended_api=True)`.

    options: torch's `_DistributedBackendOptions`. backend_options (`pg_options`) may be a `Backend.Options`,
    of which only the time-out is used. Blocks until all ranks of the group have come; DistBackendError names
    those that have not. InvalidArgument where this process only helps to reduce.
    """
    if Config.from_environment().role == "reducer":
        raise invalid(
            "this process is a reducer (DICOMM_ROLE), which has no tensors and so no place in a process "
            "group; make the group of the workers alone, average their gradients over a Communicator with "
            "the hook dicomm.torch.ddp.average, and call that Communicator's serve() here"
        )
    extension, process = _extension(), _process()
    address, device, _ = _chip(_global_rank(options))
    process.use_chip(address, device)
    timeout: timedelta = options.timeout
    if backend_options is not None and hasattr(backend_options, "_timeout"):
        timeout = min(timeout, backend_options._timeout)
    backend: dist.Backend = extension.Backend(
        process,
        options.store,
        options.group_rank,
        options.group_size,
        timeout=timeout,
        name=str(options.group_id),
        global_ranks=list(options.global_ranks_in_group),
    )
    return backend


@functools.cache
def _extension() -> ModuleType:
    return build.load()


def _global_rank(options: Any) -> int:
    """This process's rank in the job; the default group's list of ranks may be empty."""
    ranks = list(options.global_ranks_in_group)
    return int(ranks[options.group_rank] if ranks else options.group_rank)


@functools.cache
def _chip(rank: int) -> tuple[int, Any, Any]:
    """Address of the dicomm_chip of a rank; the torch.device whose tensors it holds, or None; what keeps the
    chip alive."""
    config, device = chip_of(Config.from_environment(), rank)
    chip, held = native_chip(config, rank)
    return int(ffi.cast("uintptr_t", chip)), device, held


@functools.cache
def _process() -> Any:
    """What all groups of this process share: one context with one listener, made with the first group and
    closed with the last, and the number of groups each name has had."""
    config = Config.from_environment()
    process = _extension().Process(
        interface=config.interface,
        secret=config.secret_bytes(),
        sockets_per_peer=config.sockets_per_peer,
        log_level=LOG_LEVELS.index(config.log),
        eager_bytes=config.eager_bytes,
        spin_ns=-1 if config.spin_us is None else int(config.spin_us * 1000),
        handshake_timeout_ns=int((config.handshake_timeout or 0) * 1e9),
        paths=config.paths,
        rdma=config.rdma,
        algorithms=config.algorithms,
        wire_dtype=dtype_code(config.wire_dtype) if config.wire_dtype else 0,
        attempt=str(_attempt()),
    )
    process.use_vendor_backends(functools.partial(vendor_backend, config))
    os.register_at_fork(after_in_child=process.after_fork)
    atexit.register(_leave, process)
    return process


def _attempt() -> int:
    """How often the launcher has restarted this job: its ranks may meet in a store that holds the keys of the
    dead attempt. A launcher whose variables make no sense did not start this job."""
    try:
        launch = launched()
    except DicommError:
        return 0
    return launch.attempt if launch else 0


def _leave(process: Any) -> None:
    """At exit, for groups that nobody destroyed: says goodbye, or why this process ends."""
    failure = getattr(sys, "last_value", None)
    if failure is not None:
        process.abort(f"the process ended with {type(failure).__name__}: {failure}")
    process.close()
