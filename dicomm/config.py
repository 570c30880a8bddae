"""Every setting, in one documented object. This is the only file that reads the environment.

docs/reference/config.md is made from the fields below by docs/generate.py.
"""

from __future__ import annotations

import dataclasses
import math
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dicomm import launch
from dicomm.errors import DicommError

WIRE_DTYPES = ("bfloat16", "float16", "float8_e4m3fn", "float8_e5m2")
LOG_LEVELS = ("silent", "error", "warning", "info", "debug")


def parse_size(text: str) -> int:
    """Bytes from "4096", "64K", "1M" or "2G" (powers of 1024; KiB, KB and K mean the same)."""
    match = re.fullmatch(r"\s*(\d+)\s*([KMGT]?)(i?B)?\s*", text, re.IGNORECASE)
    if not match:
        raise ValueError("a size such as 4096, 64K, 1M or 2G")
    return int(match[1]) << {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}[match[2].upper()]


def parse_seconds(text: str) -> float:
    """Seconds from "30", "0.5", "500ms", "5min" or "never"."""
    if text.strip().lower() in ("never", "inf"):
        return math.inf
    match = re.fullmatch(r"\s*([\d.]+)\s*(us|ms|s|min|h)?\s*", text)
    try:
        seconds = float(match[1]) * {"us": 1e-6, "ms": 1e-3, "s": 1, "min": 60, "h": 3600}[match[2] or "s"]  # type: ignore[index]
    except (TypeError, ValueError):
        seconds = 0.0
    if not seconds > 0:
        raise ValueError("a positive time such as 30, 500ms, 5min or never")
    return seconds


def _parse_count(text: str) -> int:
    if not re.fullmatch(r"\s*\d+\s*", text):
        raise ValueError("a whole number that is not negative")
    return int(text)


def _parse_spin(text: str) -> float:
    try:
        microseconds = float(text)
    except ValueError:
        microseconds = -1.0
    if not 0 <= microseconds < 1e9:
        raise ValueError("microseconds, 0 or more")
    return microseconds


def _parse_role(text: str) -> str:
    if text.strip().lower() not in ("worker", "reducer"):
        raise ValueError("worker or reducer")
    return text.strip().lower()


def _parse_island_library(text: str) -> str:
    if text.strip().lower() != "mpi":
        raise ValueError("mpi")
    return "mpi"


def _parse_wire_dtype(text: str) -> str:
    if text.strip() not in WIRE_DTYPES:
        raise ValueError("one of " + ", ".join(WIRE_DTYPES))
    return text.strip()


def _parse_log(text: str) -> str:
    if text.strip().lower() not in LOG_LEVELS:
        raise ValueError("one of " + ", ".join(LOG_LEVELS))
    return text.strip().lower()


def _setting(
    env: str,
    default: Any,
    doc: str,
    parse: Callable[[str], Any] = str,
    shown: str | None = None,
    **kwargs: Any,
) -> Any:
    """A field: environment variable, default, one paragraph of documentation, parser of its text."""
    shown = (f"`{default}`" if default not in ("", None) else "not set") if shown is None else shown
    metadata = {"env": env, "doc": doc, "parse": parse, "shown": shown}
    return dataclasses.field(default=default, metadata=metadata, **kwargs)


@dataclass(frozen=True)
class Config:
    """Settings of a process. `Config.from_environment()` reads the variables named in the reference page;
    `dataclasses.replace(config, ...)` changes some. All ranks of a job should use the same settings."""

    init: str = _setting(
        "DICOMM_INIT",
        "",
        "Where ranks meet when `dicomm.init()` is given no source: `tcp://HOST:PORT` (rank 0 runs on HOST "
        "and serves there) or `file:///DIR` (a directory all ranks see, new for every run). Wins over "
        "what the launcher says.",
    )
    rank: int | None = _setting(
        "DICOMM_RANK", None, "This process's rank. Not set: the launcher's.", _parse_count
    )
    size: int | None = _setting(
        "DICOMM_SIZE", None, "Number of ranks. Not set: the launcher's.", _parse_count
    )
    port: int = _setting(
        "DICOMM_PORT",
        0,
        "Port on which rank 0 serves the rendezvous when the launcher only names its host. 0: "
        "`MASTER_PORT + 1` under torchrun (`MASTER_PORT` itself is torch's), a number made from the job "
        "id under Slurm.",
        _parse_count,
    )
    secret: str = _setting(
        "DICOMM_SECRET",
        "",
        "A secret that all ranks know and nobody else does; ranks prove that they know it and never send it. "
        "Not set: made from the job's id and address, which keeps out strangers and strays but not an "
        "attacker who knows the job.",
        repr=False,
    )
    secret_file: str = _setting(
        "DICOMM_SECRET_FILE", "", "A file whose contents are the secret; used when DICOMM_SECRET is not set."
    )
    interface: str = _setting(
        "DICOMM_INTERFACE",
        "",
        "Network interface (such as `eth0`) or numeric address to listen on. Not set: the one that reaches "
        "the rendezvous host.",
    )
    paths: str = _setting(
        "DICOMM_PATHS",
        "",
        "The paths to use, best first, such as `rdma-direct>tcp`. Not set: "
        "`shm>rdma-direct>rdma-staged>tcp`. A path that cannot be had is left out; where none is left, "
        "`init` says why.",
    )
    rdma: str = _setting(
        "DICOMM_RDMA",
        "",
        "Settings of the RDMA paths, `name=value` separated by commas: `devices` (such as "
        "`mlx5_0:1+mlx5_1:1`; not set: every active port, four at most), `gid_index` (chosen by type and "
        "address), `pkey_index` (0), `service_level` (0), `traffic_class` (0), `timeout` (18: 4.096 us * "
        "2^18 until a packet is repeated), `retry_count` (6), `mtu` (4096, at most), `queue_pairs` (1 per "
        "port for large messages), `queue_depth` (32 frames under way). See [the guide](../guide/rdma.md).",
    )
    vendor: str = _setting(
        "DICOMM_VENDOR",
        "",
        "Whose chip this rank computes on: `cpu`, `nvidia`, `amd`, `ascend`, `mthreads`, `iluvatar`, `metax` "
        "or `hygon`. Not set: `cpu`. May differ between ranks, as may the four settings after it.",
    )
    device_index: int | None = _setting(
        "DICOMM_DEVICE_INDEX",
        None,
        "Which of the vendor's chips, as the vendor counts in this process. Not set: the launcher's local "
        "rank.",
        _parse_count,
    )
    island: str = _setting(
        "DICOMM_ISLAND",
        "",
        "Ranks with equal words form an island. Not set: the ranks of one vendor, library and compatible "
        "version do. Ranks that no library serves together are refused.",
    )
    island_library: str = _setting(
        "DICOMM_ISLAND_LIBRARY",
        "",
        "`mpi`: this rank computes on the host's processors and lets MPI do the inside of its island; see "
        "[the guide](../guide/mpi.md). Not set: the chip's vendor's library, and none for `cpu`.",
        _parse_island_library,
    )
    role: str = _setting(
        "DICOMM_ROLE",
        "worker",
        "`worker`, or `reducer`: has no data in allreduce and reduce and only helps the others; see "
        "[the guide](../guide/reducers.md).",
        _parse_role,
    )
    sockets_per_peer: int = _setting(
        "DICOMM_SOCKETS_PER_PEER", 0, "TCP connections to each peer. 0: the library's default.", _parse_count
    )
    eager_bytes: int = _setting(
        "DICOMM_EAGER_BYTES",
        0,
        "Messages up to this size are sent without asking the receiver first. 0: the library's default.",
        parse_size,
    )
    spin_us: float | None = _setting(
        "DICOMM_SPIN_US",
        None,
        "Microseconds a waiting thread polls before it sleeps, soon yielding its core meanwhile. Not set: "
        "the library's default, 500.",
        _parse_spin,
    )
    timeout: float = _setting(
        "DICOMM_TIMEOUT",
        1800.0,
        "Seconds an operation may take before it fails with TIMED_OUT, also as `500ms`, `5min`, `never`.",
        parse_seconds,
    )
    init_timeout: float = _setting(
        "DICOMM_INIT_TIMEOUT",
        300.0,
        "Seconds `dicomm.init()` waits for all ranks; the error names the missing ones.",
        parse_seconds,
    )
    handshake_timeout: float | None = _setting(
        "DICOMM_HANDSHAKE_TIMEOUT",
        None,
        "Seconds after which a connection that has not proved the secret is dropped. Not set: the library's "
        "default.",
        parse_seconds,
    )
    algorithms: str = _setting(
        "DICOMM_ALGORITHMS",
        "",
        "Rules that come before the built-in choice of algorithms, such as "
        "`allreduce@64K-1M:ring,barrier:tree`. `dicomm explain` prints the table.",
    )
    wire_dtype: str = _setting(
        "DICOMM_WIRE_DTYPE",
        "",
        "Encoding in which sums of float32 cross between hosts and islands, to save bandwidth: `bfloat16`, "
        "`float16`, `float8_e4m3fn` or `float8_e5m2`. It rounds: what a buffer loses is added to it the next "
        "time, so that training does not drift. Not set: float32 crosses as it is.",
        _parse_wire_dtype,
    )
    simulate: str = _setting(
        "DICOMM_SIMULATE",
        "",
        "Gives ranks chips that exist on any machine, such as `alpha:2,beta:2`: two ranks with a chip of "
        "brand alpha, then two of brand beta; the list repeats for more ranks and is cut for fewer. Every "
        "buffer of such a rank counts as memory of its chip.",
    )
    simulate_file: str = _setting(
        "DICOMM_SIMULATE_FILE",
        "",
        "A YAML file that declares more brands for DICOMM_SIMULATE than the built-in alpha, beta and gamma.",
    )
    log: str = _setting(
        "DICOMM_LOG",
        "warning",
        "What is written to standard error: " + ", ".join(LOG_LEVELS) + ".",
        _parse_log,
    )
    torch_dir: str = _setting(
        "DICOMM_TORCH_DIR",
        "",
        "Directory of the torch package (it holds `include` and `lib`) the torch plugin is compiled against. "
        "Not set: the torch that is imported.",
    )
    torch_island_backend: str = _setting(
        "DICOMM_TORCH_ISLAND_BACKEND",
        "",
        "The torch backend that serves the tensors of a device in groups that are one island, such as "
        "`npu:hccl,cuda:dicomm`; `dicomm` means dicomm itself. Not set: the one that torch, or the vendor's "
        "package, has for the device, such as `nccl` for `cuda`. Must be the same on all ranks of an island.",
    )
    cache_dir: str = _setting(
        "DICOMM_CACHE_DIR",
        "",
        "Where a torch plugin compiled on first use is kept. Not set: `$XDG_CACHE_HOME/dicomm` or "
        "`~/.cache/dicomm`.",
    )

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] | None = None) -> Config:
        """Reads the environment (default: os.environ). InvalidArgument names the variable that is wrong."""
        environ = os.environ if environ is None else environ
        values: dict[str, Any] = {}
        for field in dataclasses.fields(cls):
            text = environ.get(field.metadata["env"], "")
            if text.strip():
                try:
                    values[field.name] = field.metadata["parse"](text)
                except ValueError as error:
                    raise invalid(f"{field.metadata['env']}={text!r} is not {error}") from None
        return cls(**values)

    def secret_bytes(self) -> bytes:
        """The secret, b"" when none is set."""
        if self.secret or not self.secret_file:
            return self.secret.encode()
        try:
            secret = Path(self.secret_file).read_bytes().strip()
        except OSError as error:
            raise invalid(
                f"DICOMM_SECRET_FILE={self.secret_file!r} cannot be read: {error.strerror}"
            ) from error
        if not secret:
            raise invalid(f"DICOMM_SECRET_FILE={self.secret_file!r} is empty")
        return secret


def invalid(message: str) -> DicommError:
    """An InvalidArgument, which exists once the native layer is loaded."""
    from dicomm.errors import InvalidArgument

    return InvalidArgument(message)


def launched() -> launch.Launch | None:
    """What torchrun, Slurm or Open MPI say about this process; None when none of them started it."""
    return launch.detect(os.environ)


def cache_directory(config: Config) -> Path:
    """The directory for compiled plugins (not created here)."""
    if config.cache_dir:
        return Path(config.cache_dir)
    base = os.environ.get("XDG_CACHE_HOME")
    return Path(base) / "dicomm" if base else Path.home() / ".cache" / "dicomm"


def reference() -> str:
    """docs/reference/config.md."""
    lines = [
        "# Settings",
        "",
        "Every setting is an environment variable and a field of `dicomm.Config`. An empty variable",
        "counts as not set. This page is made from `dicomm/config.py` by `docs/generate.py`.",
        "",
    ]
    for field in dataclasses.fields(Config):
        meta = field.metadata
        lines += [
            f"## {meta['env']}",
            "",
            f"Field `{field.name}`, default {meta['shown']}.",
            "",
            meta["doc"],
            "",
        ]
    return "\n".join(lines)
