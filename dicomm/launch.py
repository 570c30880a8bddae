"""What a launcher's variables say: rank, size and where rank 0 is. Pure: the environment is a mapping."""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass

# Below Linux's range of ephemeral ports (32768 and up), above the registered ones people use most.
_FIRST_PORT, _PORTS = 20000, 12000


@dataclass(frozen=True)
class Launch:
    """One rank as its launcher sees it.

    host and port say where rank 0 serves the rendezvous ("" and 0: the launcher does not know); job names
    the run; attempt counts its restarts, so that a restarted run does not meet the keys of the dead one.
    """

    launcher: str
    rank: int
    size: int
    local_rank: int
    host: str
    port: int
    job: str
    attempt: int


def detect(environ: Mapping[str, str]) -> Launch | None:
    """The launcher that started this process, the most specific first: torchrun, Open MPI, Slurm."""
    for read in (_torchrun, _openmpi, _slurm):
        if found := read(environ):
            if not 0 <= found.rank < found.size:
                from dicomm.errors import InvalidArgument

                raise InvalidArgument(f"{found.launcher} says rank {found.rank} of {found.size} ranks")
            return found
    return None


def _number(environ: Mapping[str, str], name: str, default: int = 0) -> int:
    text = environ.get(name, "")
    if not text:
        return default
    if not re.fullmatch(r"-?\d+", text):
        from dicomm.errors import InvalidArgument

        raise InvalidArgument(f"{name}={text!r} in the environment is not a number")
    return int(text)


def _torchrun(environ: Mapping[str, str]) -> Launch | None:
    """torchrun, and everything else that sets torch's env:// variables by hand."""
    if not all(environ.get(name) for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")):
        return None
    host, port = environ["MASTER_ADDR"], _number(environ, "MASTER_PORT")
    return Launch(
        launcher="torchrun",
        rank=_number(environ, "RANK"),
        size=_number(environ, "WORLD_SIZE"),
        local_rank=_number(environ, "LOCAL_RANK"),
        host=host,
        port=port + 1 if port < 65535 else port - 1,  # MASTER_PORT is served by torch's own store
        job=f"torchrun-{environ.get('TORCHELASTIC_RUN_ID', 'none')}-{host}-{port}",
        attempt=_number(environ, "TORCHELASTIC_RESTART_COUNT"),
    )


def _openmpi(environ: Mapping[str, str]) -> Launch | None:
    """Open MPI's mpirun. It names no address: mpi4py or DICOMM_INIT must bring the ranks together."""
    if "OMPI_COMM_WORLD_RANK" not in environ:
        return None
    return Launch(
        launcher="Open MPI",
        rank=_number(environ, "OMPI_COMM_WORLD_RANK"),
        size=_number(environ, "OMPI_COMM_WORLD_SIZE", 1),
        local_rank=_number(environ, "OMPI_COMM_WORLD_LOCAL_RANK"),
        host="",
        port=0,
        job="mpi-" + environ.get("PMIX_NAMESPACE", environ.get("OMPI_MCA_ess_base_jobid", "")),
        attempt=0,
    )


def _slurm(environ: Mapping[str, str]) -> Launch | None:
    """srun (not sbatch, whose script runs once and has no step)."""
    if not all(name in environ for name in ("SLURM_PROCID", "SLURM_STEP_ID", "SLURM_JOB_ID")):
        return None
    nodes = environ.get("SLURM_STEP_NODELIST") or environ.get("SLURM_NODELIST", "")
    job = f"slurm-{environ['SLURM_JOB_ID']}-{environ['SLURM_STEP_ID']}"
    return Launch(
        launcher="Slurm",
        rank=_number(environ, "SLURM_PROCID"),
        size=_number(environ, "SLURM_STEP_NUM_TASKS") or _number(environ, "SLURM_NTASKS", 1),
        local_rank=_number(environ, "SLURM_LOCALID"),
        host=first_host(nodes),
        port=_FIRST_PORT + zlib.crc32(job.encode()) % _PORTS,
        job=job,
        attempt=_number(environ, "SLURM_RESTART_COUNT"),
    )


def first_host(nodes: str) -> str:
    """The first name of a Slurm host list: "gpu[07-09,12]-a,login" -> "gpu07-a"."""
    head = re.match(r"[^,\[]*(\[[^\]]*\][^,\[]*)*", nodes)
    assert head  # matches the empty string
    return re.sub(r"\[([^\]]*)\]", lambda group: re.split(r"[,-]", group[1])[0], head[0])
