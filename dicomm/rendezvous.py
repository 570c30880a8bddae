"""dicomm.init: how the ranks of a job find each other.

All sources end in a store (a key-value service all ranks reach) plus a rank, a size and a key prefix:

    None               DICOMM_INIT with DICOMM_RANK and DICOMM_SIZE, else the launcher (torchrun, Slurm,
                       Open MPI's mpirun with mpi4py), else a job of one rank
    "tcp://HOST:PORT"  rank 0 runs on HOST and serves the store there, in a thread of its process
    "file:///DIR"      a directory that all ranks see, new for every run
    mpi4py comm        rank 0 serves on a free port and tells the others over MPI
    torch Store        or any object with set(key, bytes), get(key), check([key]) and wait([key], timedelta)

A served store stays up until its process ends, so that ranks may call init again and again. The key prefix
holds the job, its restart count and how many times this rank has called init: a restarted run, or a second
communicator, does not meet the keys of the one before.
"""

from __future__ import annotations

import hashlib
import os
import socket
import time
import uuid
import weakref
from collections import Counter
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from dicomm import stores
from dicomm.communicator import Communicator, comm_options
from dicomm.config import Config, launched
from dicomm.context import Context
from dicomm.errors import DicommError, InvalidArgument, SystemFailed

# How often a rank of this process has called init: by address and job, or on a Store object.
_calls: Counter[str] = Counter()
_store_calls: weakref.WeakKeyDictionary[Any, Counter[str]] = weakref.WeakKeyDictionary()


@dataclass(frozen=True)
class Meeting:
    """Everything needed to create the world communicator. `url` wins over `store` when it is set."""

    rank: int
    size: int
    job: str
    url: str = ""
    store: Any = None
    secret: bytes = b""
    attempt: int = 0


def init(
    source: Any = None,
    *,
    rank: int | None = None,
    size: int | None = None,
    job: str = "",
    name: str = "world",
    config: Config | None = None,
    timeout: float | None = None,
    allow_pickle: bool = False,
) -> Communicator:
    """Collective: brings the ranks of a job together and returns their communicator.

    source: where they meet, see the top of dicomm.rendezvous. rank and size are needed with an address, a
    directory or a Store, unless DICOMM_RANK and DICOMM_SIZE or a launcher give them. job: a name that makes
    the run unique where the address does not. name: for messages. config: settings, default
    Config.from_environment(). timeout: seconds an operation may take, default config.timeout.
    allow_pickle: see dicomm.objects.

    Raises TimedOut, naming the missing ranks, when they are not there within config.init_timeout;
    ConnectFailed when the store cannot be reached; InvalidArgument.
    """
    config = config or Config.from_environment()
    meeting = meet(source, rank, size, job, config)
    deadline = time.monotonic() + config.init_timeout
    prefix = f"dicomm/{meeting.job}/{meeting.attempt}/{_count_call(source, meeting)}"
    context = Context(config, config.secret_bytes(), _route(meeting), meeting.rank)
    try:
        store = stores.open_store(meeting, config.init_timeout)
    except BaseException:
        context.close()
        raise
    try:
        left = max(0.001, deadline - time.monotonic())
        options = comm_options(name, timeout or config.timeout, left, config)
        handle = store.create(context.handle, prefix, meeting.rank, meeting.size, options[0])
        comm = Communicator(handle, context, world=True, allow_pickle=allow_pickle)
    except Exception:
        context.close()
        store.leave()
        raise
    except BaseException:  # an interrupt: the native call goes on in its thread until the process ends
        context.abandon()
        stores.abandon(store)
        raise
    store.leave()
    return comm


def obstacle(config: Config) -> str:
    """What keeps this rank from joining a job with these settings before any other rank is needed, such as a
    path that cannot be had; "" for nothing. Collective where Open MPI started the ranks."""
    meeting = meet(None, None, None, "", config)
    try:
        Context(config, config.secret_bytes(), _route(meeting), meeting.rank).close()
    except InvalidArgument:
        raise
    except DicommError as error:
        return str(error)
    return ""


def meet(source: Any, rank: int | None, size: int | None, job: str, config: Config) -> Meeting:
    """Turns init's arguments and the environment into a Meeting; opens nothing but MPI's own exchange."""
    if source is not None and not isinstance(source, str) and hasattr(source, "Get_rank"):
        return _meet_mpi(source, job, config)
    source = source or config.init or None
    launch = launched()
    rank = _first(rank, config.rank, launch.rank if launch else None)
    size = _first(size, config.size, launch.size if launch else None)
    attempt = launch.attempt if launch else 0
    if source is None:
        if launch is None:
            if (size or 1) != 1 or rank:
                raise InvalidArgument(
                    f"init: {size} ranks need a place to meet: pass an address such as 'tcp://HOST:PORT', "
                    "set DICOMM_INIT, or start the program with torchrun, srun or mpirun"
                )
            return Meeting(0, 1, job or "single", store=stores.LocalStore())
        if launch.launcher == "Open MPI":
            return _meet_mpi(_mpi_world(), job, config)
        if not launch.host:
            raise InvalidArgument(f"init: {launch.launcher} names no host for rank 0; set DICOMM_INIT")
        source = f"tcp://{_bracketed(launch.host)}:{config.port or launch.port}"
        job = job or launch.job
    if rank is None or size is None:
        raise InvalidArgument(
            "init: rank and size are needed: pass them, or set DICOMM_RANK and DICOMM_SIZE, or use a launcher"
        )
    if not 0 <= rank < size:
        raise InvalidArgument(f"init: rank {rank} is not in 0 ... {size - 1}")
    if not isinstance(source, str):
        if not (hasattr(source, "set") and hasattr(source, "get")):
            raise InvalidArgument(
                f"init: source is a {type(source).__name__}; pass an address, an mpi4py comm or a Store"
            )
        return Meeting(rank, size, job or "store", store=stores.TorchStore(source), attempt=attempt)
    scheme = source.partition("://")[0]
    if scheme not in ("tcp", "file"):
        raise InvalidArgument(f"init: {source!r} is neither tcp://HOST:PORT nor file:///DIR")
    job = job or source
    secret = config.secret_bytes() or hashlib.sha256(f"dicomm {job} {source}".encode()).digest()
    if scheme == "tcp":
        _check_address(source)
        source = f"tcp-server://{source.partition('://')[2]}" if rank == 0 else source
    job = hashlib.sha256(job.encode()).hexdigest()[:16]
    return Meeting(rank, size, job, url=source, secret=secret, attempt=attempt)


def _count_call(source: Any, meeting: Meeting) -> int:
    """0 for this rank's first init on this meeting point, then 1 ..."""
    counter = _calls if meeting.url else _store_calls.setdefault(source or meeting.store, Counter())
    key = f"{meeting.url} {meeting.job} {meeting.rank}"
    counter[key] += 1
    return counter[key] - 1


def _meet_mpi(mpi: Any, job: str, config: Config) -> Meeting:
    """Over MPI everything can be agreed: a free port, a fresh secret, a unique job."""
    rank, size = mpi.Get_rank(), mpi.Get_size()
    hosts = mpi.allgather(socket.gethostname())
    offer: tuple[str, bytes, str] | None = None
    if rank == 0:
        other = next((host for host in hosts if host != hosts[0]), None)
        secret = config.secret_bytes() or os.urandom(32)
        try:
            address = _address_towards(other)
            url, secret = stores.serve(f"tcp-server://{_bracketed(address)}:0", secret)
            offer = (url, secret, f"{job or 'mpi'}-{uuid.uuid4().hex[:16]}")
        finally:
            offer = mpi.bcast(offer, root=0)
    else:
        offer = mpi.bcast(None, root=0)
    if offer is None:
        raise SystemFailed("init: rank 0 could not serve the rendezvous; see its error")
    url, secret, job = offer
    return Meeting(rank, size, job, url=url, secret=secret)


def _mpi_world() -> Any:
    try:
        from mpi4py import MPI
    except ImportError as error:
        raise InvalidArgument(
            f"init: mpirun started this process, and mpi4py cannot be imported ({error}): install "
            "dicomm[mpi], or set DICOMM_INIT=tcp://HOST:PORT, where HOST is rank 0's"
        ) from error
    return MPI.COMM_WORLD


def _address_towards(host: str | None) -> str:
    """This host's address on the way to another host; the loopback address when there is no other."""
    if host is None:
        return "127.0.0.1"
    family, kind, protocol, _, target = socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.connect(target)  # sends nothing
        return str(probe.getsockname()[0])


def _route(meeting: Meeting) -> str:
    """The host whose direction decides on which interface to listen."""
    if meeting.size == 1:
        return "127.0.0.1"
    return (urlsplit(meeting.url).hostname or "") if meeting.url.startswith("tcp") else ""


def _check_address(url: str) -> None:
    try:
        parts = urlsplit(url)
        good = bool(parts.hostname) and (parts.port or 0) > 0 and not parts.path
    except ValueError:
        good = False
    if not good:
        raise InvalidArgument(f"init: {url!r} is not tcp://HOST:PORT (IPv6 addresses in brackets)")


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def _first(*values: int | None) -> int | None:
    return next((value for value in values if value is not None), None)
