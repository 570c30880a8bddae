"""dicomm: collective communication for jobs whose ranks sit on chips of different vendors.

    import dicomm, numpy as np
    with dicomm.init() as comm:                 # torchrun, srun, mpirun, or one rank by itself
        x = np.full(1 << 20, comm.rank, np.float32)
        comm.allreduce(x)                       # or: request = comm.iallreduce(x) ... request.wait()

See Communicator for the operations, dicomm.rendezvous for the ways to start, dicomm.Config for the settings
and dicomm.errors for the exceptions.

Names are loaded on first use (PEP 562): torch imports dicomm.torch, and with it this module, in every process
that imports torch, and must not load or depend on the native library there.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dicomm._native import ANY_SOURCE, build_info
    from dicomm.buffer import NoBuffer
    from dicomm.communicator import Communicator
    from dicomm.config import Config
    from dicomm.errors import (
        Aborted,
        Canceled,
        CclFailed,
        ConnectFailed,
        DeviceFailed,
        DicommError,
        Internal,
        InvalidArgument,
        Mismatch,
        NoMemory,
        NotSupported,
        PeerLost,
        Protocol,
        SystemFailed,
        TimedOut,
        Truncated,
    )
    from dicomm.operations import Received
    from dicomm.rendezvous import init
    from dicomm.request import Request, wait_all, wait_any
    from dicomm.topology import Topology

__version__ = "0.1.0"

_HOMES = {
    "ANY_SOURCE": "_native",
    "Communicator": "communicator",
    "Config": "config",
    "NoBuffer": "buffer",
    "Received": "operations",
    "Request": "request",
    "Topology": "topology",
    "build_info": "_native",
    "init": "rendezvous",
    "wait_all": "request",
    "wait_any": "request",
}

__all__ = [
    "ANY_SOURCE",
    "Aborted",
    "Canceled",
    "CclFailed",
    "Communicator",
    "Config",
    "ConnectFailed",
    "DeviceFailed",
    "DicommError",
    "Internal",
    "InvalidArgument",
    "Mismatch",
    "NoBuffer",
    "NoMemory",
    "NotSupported",
    "PeerLost",
    "Protocol",
    "Received",
    "Request",
    "SystemFailed",
    "TimedOut",
    "Topology",
    "Truncated",
    "build_info",
    "init",
    "wait_all",
    "wait_any",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'dicomm' has no attribute {name!r}")
    value = getattr(import_module(f"dicomm.{_HOMES.get(name, 'errors')}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
