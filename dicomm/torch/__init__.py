"""dicomm as a torch.distributed backend: `init_process_group(backend="dicomm")`.

Nothing needs to be imported: `import torch` finds the entry point `torch.backends` and calls
`_register_hook`. Where that is switched off (TORCH_DEVICE_BACKEND_AUTOLOAD=0), call
`dicomm.torch.register()` after `import torch`.

This file runs in every process that imports torch, data loader workers and launchers included. It therefore
imports nothing native, starts nothing and never raises; the rest is loaded by the first process group.
"""

from __future__ import annotations

import functools
import sys
import warnings
from datetime import timedelta
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch.distributed as dist

NAME = "dicomm"
# "privateuseone" stands for every vendor's renamed device: npu, mlu, musa ...
DEVICES = ["cpu", "cuda", "xpu", "privateuseone"]


def register() -> None:
    """Makes backend="dicomm" known to torch.distributed. May be called again."""
    import torch.distributed as dist

    if not dist.is_available() or NAME in dist.Backend.backend_list:
        return
    # register_backend makes the new backend the default of every device that has none, and would take a
    # vendor's own device from that vendor's backend when it is imported later.
    defaults = dict(dist.Backend.default_device_backend_map)
    dist.Backend.register_backend(NAME, _create_backend, extended_api=True, devices=list(DEVICES))
    dist.Backend.default_device_backend_map.clear()
    dist.Backend.default_device_backend_map.update(defaults)
    _allow_monitored_barrier(dist, sys.modules["torch.distributed.distributed_c10d"])


def _register_hook() -> None:
    """The entry point. An exception here would make `import torch` itself fail."""
    try:
        register()
    except Exception as error:
        warnings.warn(
            f"backend {NAME!r} could not be registered with torch.distributed: {error!r}", stacklevel=2
        )


def _create_backend(options: Any, backend_options: Any) -> dist.Backend:
    from dicomm.torch.plugin import create_backend

    return create_backend(options, backend_options)


def _allow_monitored_barrier(dist: Any, c10d: Any) -> None:
    """Up to torch 2.13 `dist.monitored_barrier` refuses every backend that is not named "gloo", though the
    process group below it asks the backend. This wrapper goes past the refusal for dicomm's groups only; it
    is the one place where dicomm replaces a function of torch."""
    original = c10d.monitored_barrier
    if tuple(int(part) for part in dist.torch.__version__.split(".")[:2]) > (2, 13):
        return

    @functools.wraps(original)
    def monitored_barrier(group: Any = None, timeout: Any = None, wait_all_ranks: bool = False) -> None:
        if c10d._rank_not_in_group(group) or c10d.get_backend(group) != NAME:
            original(group, timeout, wait_all_ranks)
            return
        group = c10d._get_default_group() if group is None else group
        if timeout is not None and not isinstance(timeout, timedelta):
            timeout = timedelta(seconds=timeout)
        group.monitored_barrier(timeout, wait_all_ranks=wait_all_ranks)

    c10d.monitored_barrier = dist.monitored_barrier = monitored_barrier


if "torch" in sys.modules:  # else torch calls _register_hook when it is imported
    _register_hook()
