"""dicomm: collective communication for jobs whose ranks sit on chips of different vendors.

    import dicomm, numpy as np
    with dicomm.init() as comm:                 # torchrun, srun, mpirun, or one rank by itself
        x = np.full(1 << 20, comm.rank, np.float32)
        comm.allreduce(x)                       # or: request = comm.iallreduce(x) ... request.wait()

See Communicator for the operations, dicomm.rendezvous for the ways to start, dicomm.Config for the settings
and dicomm.errors for the exceptions.
"""

from dicomm._native import ANY_SOURCE, build_info
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

__version__ = "0.1.0"

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
    "NoMemory",
    "NotSupported",
    "PeerLost",
    "Protocol",
    "Received",
    "Request",
    "SystemFailed",
    "TimedOut",
    "Truncated",
    "build_info",
    "init",
    "wait_all",
    "wait_any",
]
