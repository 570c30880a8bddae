"""Ranks as threads of this process, each with a context and communicator of its own."""

from __future__ import annotations

import contextlib
import dataclasses
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, TypeVar

import dicomm
from support.leaks import no_leaks

T = TypeVar("T")


class Ranks:
    """`with Ranks(3) as ranks: ranks.run(lambda comm: ...)`. One thread per rank runs the function.

    run returns the results by rank and raises the first rank's exception. A rank that raises aborts the
    others, so that a failing test ends at once; `expect_errors` leaves that to the test. each: settings of a
    rank by its own.
    """

    def __init__(
        self,
        size: int,
        *,
        timeout: float = 20.0,
        source: str = "",
        each: Callable[[int], dict[str, Any]] = lambda rank: {},
        **settings: Any,
    ) -> None:
        self.size = size
        self.timeout = timeout
        self._directory = tempfile.TemporaryDirectory(prefix="dicomm-test-")
        self._source = source or f"file://{self._directory.name}/{uuid.uuid4().hex}"
        self._init = {k: settings.pop(k) for k in ("allow_pickle", "name") if k in settings}
        self._config = dataclasses.replace(dicomm.Config(), interface="127.0.0.1", **settings)
        self._each = each
        self._executor = ThreadPoolExecutor(size, thread_name_prefix="rank")
        self.comms: list[dicomm.Communicator] = []
        self._broken = False

    def __enter__(self) -> Ranks:
        try:
            self._join()
        except BaseException:
            self._executor.shutdown()
            self._directory.cleanup()
            raise
        return self

    def _join(self) -> None:
        def make(rank: int) -> dicomm.Communicator:
            return dicomm.init(
                self._source,
                rank=rank,
                size=self.size,
                config=dataclasses.replace(self._config, **self._each(rank)),
                timeout=self.timeout,
                **self._init,
            )

        self.comms = [
            future.result() for future in [self._executor.submit(make, r) for r in range(self.size)]
        ]

    def _leave(self) -> None:
        for future in [self._executor.submit(comm.close) for comm in self.comms]:
            future.result()
        self.comms = []

    def run(self, function: Callable[[dicomm.Communicator], T]) -> list[T]:
        if self._broken:  # so that one failing test does not fail those after it
            self._leave()
            self._join()
            self._broken = False

        def guarded(comm: dicomm.Communicator) -> T:
            try:
                return function(comm)
            except BaseException as error:
                comm.abort(f"rank {comm.rank} raised {type(error).__name__}: {error}")
                raise

        futures = [self._executor.submit(guarded, comm) for comm in self.comms]
        errors = [error for future in futures if (error := future.exception()) is not None]
        # The one that began it, not those that were aborted by it.
        first = next((e for e in errors if not isinstance(e, dicomm.Aborted)), errors[0] if errors else None)
        if first is not None:
            self._broken = True
            raise first
        return [future.result() for future in futures]

    def errors(self, function: Callable[[dicomm.Communicator], Any]) -> list[BaseException | None]:
        """Runs the function and returns what each rank raised, None where it raised nothing."""
        futures = [self._executor.submit(function, comm) for comm in self.comms]
        return [future.exception() for future in futures]

    def close(self) -> None:
        self._leave()
        self._executor.shutdown()
        self._directory.cleanup()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            for comm in self.comms:
                comm.abort(f"the test failed with {type(error).__name__}")
        self.close()


def run_ranks(size: int, function: Callable[[dicomm.Communicator], T], **settings: Any) -> list[T]:
    """Runs the function once per rank, in a job made for it."""
    with Ranks(size, **settings) as ranks:
        return ranks.run(function)


def barrier(size: int) -> threading.Barrier:
    """Lines up threads outside of dicomm."""
    return threading.Barrier(size, timeout=20)


@contextlib.contextmanager
def jobs_by_rules(make: Callable[[str], Ranks]) -> Iterator[Callable[[str], Ranks]]:
    """get(rules): make(rules), joined, the same one each time. In the end all close and leave nothing."""
    made: dict[str, Ranks] = {}

    def get(rules: str) -> Ranks:
        if rules not in made:
            made[rules] = make(rules).__enter__()
        return made[rules]

    with no_leaks():
        yield get
        for ranks in made.values():
            ranks.close()
