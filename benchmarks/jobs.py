"""Jobs of ranks that live as long as they are needed and work only when told to.

Each library runs in processes of its own: two in one process would share its threads' cores, allocator and
interpreter lock, and the one with helper threads would slow the other down. All jobs of a comparison stay
alive; while one works, the others' ranks sleep in a read of their control sockets (gloo's and Open MPI's
own threads sleep too), so that blocks can alternate within milliseconds and meet the same machine.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from dicomm.cli.local_ranks import die_with

WORKER = Path(__file__).with_name("worker.py")
START_S, SILENCE_S, END_S = 120.0, 300.0, 20.0


class JobFailed(Exception):
    """A rank ended or fell silent."""


def mpirun(ranks: int) -> list[str]:
    """The command that starts `ranks` ranks of Open MPI; raises JobFailed where there is none.

    Cores are given out by the worker, as for every library. With more ranks than cores Open MPI must yield
    instead of spinning; told to leave the cores alone, it may not see that, so we say it.
    """
    path = shutil.which("mpirun", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if path is None:
        raise JobFailed("mpirun is missing: pip install 'dicomm[mpi]'")
    words = [path, "-n", str(ranks), "--map-by", ":OVERSUBSCRIBE", "--bind-to", "none"]
    words += ["--mca", "mpi_yield_when_idle", str(int(ranks > len(os.sched_getaffinity(0))))]
    return words + (["--allow-run-as-root"] if os.geteuid() == 0 else [])


class Job:
    """`with Job("torch-gloo", 2) as job:` has two ranks ready; a subject is dicomm, mpi, torch-dicomm or
    torch-gloo. `prefix`: the words before a rank's command, `environment`: added to ours.

    `pinned`: rank r keeps to core r mod cores, as mpirun does it and torchrun does not.
    """

    def __init__(
        self,
        subject: str,
        ranks: int,
        *,
        pinned: bool = False,
        prefix: Callable[[int], list[str]] = lambda rank: [],
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.subject, self.ranks = subject, ranks
        self.pinned, self._prefix = pinned, prefix
        self._environment = dict(environment or {})
        self._processes: list[subprocess.Popen[bytes]] = []
        self._lines: dict[int, IO[str]] = {}

    def __enter__(self) -> Job:
        self._directory = tempfile.TemporaryDirectory(prefix="dicomm-bench-")
        try:
            with socket.socket(socket.AF_UNIX) as listener:
                path = f"{self._directory.name}/control"
                listener.bind(path)
                listener.listen(self.ranks)
                self._start(path)
                self._accept(listener)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def _start(self, control: str) -> None:
        place = self._directory.name
        command = [sys.executable, str(WORKER), self.subject, str(self.ranks), control, f"{place}/store"]
        command += ["--pin"] if self.pinned else []
        fixed = {
            "OMP_NUM_THREADS": "1",
            "DICOMM_INIT": f"file://{place}/dicomm",
            "DICOMM_SIZE": str(self.ranks),
            "TMPDIR": place,  # where Open MPI keeps its session
        }
        environment = {**os.environ, **fixed, **self._environment}
        if self.subject == "mpi":
            self._spawn([*mpirun(self.ranks), *command], environment)
            return
        for rank in range(self.ranks):
            words = [*self._prefix(rank), *command, "--rank", str(rank)]
            self._spawn(words, {**environment, "DICOMM_RANK": str(rank)})

    def _spawn(self, command: list[str], environment: dict[str, str]) -> None:
        # From "/", as in dicomm/cli/local_ranks.py.
        started = subprocess.Popen(
            command, env=environment, cwd="/", stdin=subprocess.DEVNULL, preexec_fn=die_with(os.getpid())
        )
        self._processes.append(started)

    def _accept(self, listener: socket.socket) -> None:
        """Waits for every rank's connection, then for its first line, which says that it is ready."""
        listener.settimeout(0.2)
        connections: list[socket.socket] = []
        waited = 0.0
        while len(connections) < self.ranks:
            try:
                connections.append(listener.accept()[0])
            except TimeoutError:
                waited += 0.2
                if waited > START_S or any(process.poll() is not None for process in self._processes):
                    raise JobFailed(
                        f"{self.subject}: {len(connections)} of {self.ranks} ranks started"
                    ) from None
        for connection in connections:
            connection.settimeout(SILENCE_S)
            lines = connection.makefile("rw", encoding="utf-8", newline="\n")
            connection.close()  # `lines` keeps it
            self._lines[self._answer(lines)["rank"]] = lines

    def command(self, **words: Any) -> list[dict[str, Any]]:
        """Every rank does it at once; their answers in order of rank."""
        text = json.dumps(words) + "\n"
        for lines in self._lines.values():
            lines.write(text)
            lines.flush()
        return [self._answer(self._lines[rank]) for rank in range(self.ranks)]

    def _answer(self, lines: IO[str]) -> dict[str, Any]:
        try:
            line = lines.readline()
        except (OSError, ValueError) as error:
            raise JobFailed(f"{self.subject}: a rank is silent: {error}") from error
        if not line:
            raise JobFailed(f"{self.subject}: a rank ended")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for lines in self._lines.values():
            with suppress(OSError):
                lines.close()
        for process in self._processes:
            try:
                process.wait(END_S if error is None else 1.0)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        self._directory.cleanup()
