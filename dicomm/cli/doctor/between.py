"""`dicomm doctor --ranks`: every rank looks at its host, then all talk to all, and rank 0 reports.

What ranks say of one another goes through the rendezvous store: that each rank reaches, or can say nothing.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from urllib.parse import urlsplit

import click
import numpy as np

from dicomm import rendezvous, stores
from dicomm.cli.doctor import agreement, finding, probing
from dicomm.cli.doctor.checks import examine
from dicomm.cli.doctor.machine import this_machine, without_chip
from dicomm.cli.doctor.reports import Report, describe
from dicomm.config import Config
from dicomm.errors import DicommError
from dicomm.rendezvous import Meeting
from dicomm.request import wait_all
from dicomm.stores import Store


def run(as_json: bool, timeout: float) -> int:
    """The exit status. timeout: seconds for each stage: to come, to connect, to make a communicator."""
    # Some ranks come to it late, having waited for connections that cannot be made.
    config = dataclasses.replace(without_chip(Config.from_environment()), init_timeout=2 * timeout)
    meeting = rendezvous.meet(None, None, None, "", config)
    if meeting.size == 1:
        raise click.UsageError(
            "--ranks asks the ranks of a job, and this is the only one: start it as the job is started, such "
            "as torchrun --nnodes 2 ... -m dicomm doctor --ranks, or srun dicomm doctor --ranks"
        )
    machine = this_machine(config, urlsplit(meeting.url).hostname or "")
    report = describe(meeting.rank, machine, examine(machine))
    try:
        store = stores.open_store(meeting, timeout)
    except DicommError as error:
        click.echo(finding.as_text([agreement.no_meeting(report, str(error))]), err=meeting.rank != 0)
        return 1
    store.expect(meeting.size)
    try:
        findings = _Talk(store, meeting, timeout).run(report, config)
    finally:
        store.leave()
    if findings is None:
        return 0
    click.echo(finding.as_json(findings) if as_json else finding.as_text(findings))
    return finding.exit_status(findings)


class _Talk:
    """One rank's part. Keys of the store: address/R, report/R, and done, when rank 0 has read them."""

    def __init__(self, store: Store, meeting: Meeting, timeout: float) -> None:
        self.store, self.timeout = store, timeout
        self.rank, self.size = meeting.rank, meeting.size
        self.prefix = f"dicomm/doctor/{meeting.job}/{meeting.attempt}"

    def run(self, report: Report, config: Config) -> list[finding.Finding] | None:
        """The findings on rank 0, None elsewhere."""
        with contextlib.ExitStack() as stack:
            try:
                port = stack.enter_context(probing.listening(report.address))
            except OSError as error:
                failure = f"cannot listen on {report.address!r}: {error.strerror or error}"
                return self._report(dataclasses.replace(report, failure=failure))
            self.store.set(f"{self.prefix}/address/{self.rank}", f"{report.address} {port}".encode())
            return self._report(self._talk(report, config))

    def _talk(self, report: Report, config: Config) -> Report:
        """Adds what needs the others."""
        addresses = self._collect("address")
        peers = {rank: _address(text) for rank, text in addresses.items() if rank != self.rank}
        report = dataclasses.replace(report, links=probing.probe_all(peers, self.timeout))
        if len(addresses) < self.size:
            return dataclasses.replace(report, failure="not tried, because not all ranks came")
        try:
            return dataclasses.replace(report, paths=_paths(config, self.timeout))
        except DicommError as error:
            return dataclasses.replace(report, failure=str(error))

    def _report(self, report: Report) -> list[finding.Finding] | None:
        self.store.set(f"{self.prefix}/report/{self.rank}", report.to_json())
        if self.rank != 0:
            self._get("done", 5 * self.timeout)
            return None
        reports = {rank: Report.from_json(text) for rank, text in self._collect("report", 3).items()}
        self.store.set(f"{self.prefix}/done", b"1")
        return agreement.between(reports, self.size)

    def _collect(self, key: str, times: int = 1) -> dict[int, bytes]:
        """What the ranks have set under key, of those that do so in time: times the time-out."""
        end = time.monotonic() + times * self.timeout
        found = {
            rank: self._get(f"{key}/{rank}", max(0.01, end - time.monotonic())) for rank in range(self.size)
        }
        return {rank: text for rank, text in found.items() if text is not None}

    def _get(self, key: str, timeout: float) -> bytes | None:
        try:
            return self.store.get(f"{self.prefix}/{key}", timeout)
        except DicommError:
            return None


def _address(text: bytes) -> tuple[str, int]:
    address, port = text.decode().split()
    return address, int(port)


def _paths(config: Config, timeout: float) -> dict[int, str]:
    """Makes the job's communicator and sends every peer a message: peer -> the path that it took."""
    comm = rendezvous.init(name="doctor", config=config, timeout=timeout)
    try:
        peers = [peer for peer in range(comm.size) if peer != comm.rank]
        receives = [comm.irecv(np.empty(1, np.int64), peer) for peer in peers]
        wait_all([*receives, *(comm.isend(np.zeros(1, np.int64), peer) for peer in peers)])
        paths = {peer["rank"]: peer["path"] for peer in comm.stats()["peers"] if peer["rank"] in peers}
        comm.barrier()  # who leaves first has no path any more
        return paths
    finally:
        comm.timeout = 1.0  # what has not arrived by now will not
        comm.close()
