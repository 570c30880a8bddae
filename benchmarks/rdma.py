"""dicomm over RDMA against perftest's ib_write_bw and ib_send_lat over the same devices, in turn, in one run.

    python benchmarks/rdma.py --hosts "ssh host1" "ssh host2" --addresses 192.0.2.1 192.0.2.2 \\
        --devices mlx5_0 mlx5_0 --build /shared/directory

perftest must be installed on both hosts, and this dicomm under the same path. The second host sends to the
first. docs/reference/benchmarks.md says what each number means.
"""

from __future__ import annotations

import argparse
import re
import shlex
import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import machine
import programs
import report
from dicomm.cli.sizes import format_size
from dicomm.config import parse_size
from report import Section, share, times

UNDER_WAY = 16  # messages, of both: see rdma_rank.c
PORT = 29475  # dicomm's ranks meet there; perftest's on 18515
START_S, LIMIT_S = 60.0, 600.0
POLLING_NS = 1_000_000_000  # ib_send_lat polls; a wait of dicomm's polls so long before it sleeps
DEFAULT_WAIT = -1


@dataclass(frozen=True)
class Place:
    """Two hosts. hosts: the words before a command that runs it there."""

    hosts: tuple[list[str], list[str]]
    addresses: tuple[str, str]
    devices: tuple[str, str]
    gid_index: int | None
    program: Path  # rdma_rank

    def perftest(self, program: str, size: int, count: int, *more: str) -> str:
        """What the client prints. It is tried again until the server listens."""
        words = [program, "-F", "-s", str(size), "-n", str(count), *more]
        words += [] if self.gid_index is None else ["-x", str(self.gid_index)]
        server = _start([*self.hosts[0], *words, "-d", self.devices[0]])
        client = [*self.hosts[1], *words, "-d", self.devices[1], self.addresses[0]]
        deadline = time.monotonic() + START_S
        try:
            while True:
                done = subprocess.run(client, capture_output=True, text=True, timeout=LIMIT_S)
                if done.returncode == 0:
                    return done.stdout
                if server.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"{shlex.join(client)} failed: {done.stdout}{done.stderr}")
                time.sleep(0.1)
        finally:
            _end(server)

    def dicomm(self, path: str, measure: str, size: int, count: int, spin_ns: int) -> float:
        """Seconds, as rdma_rank prints them. Rank 0, which does, is the second host's."""
        commands = []
        for rank, host in ((0, 1), (1, 0)):
            rdma = f"devices={self.devices[host]}"
            rdma += "" if self.gid_index is None else f", gid_index={self.gid_index}"
            words = [self.program, rank, self.addresses[1], PORT, self.addresses[host], path, rdma]
            words += [measure, size, count, spin_ns]
            commands.append([*self.hosts[host], *(str(word) for word in words)])
        other = _start(commands[1])
        try:
            done = subprocess.run(commands[0], capture_output=True, text=True, timeout=LIMIT_S)
            if done.returncode != 0:
                raise RuntimeError(f"{shlex.join(commands[0])} failed: {done.stderr}")
            other.wait(START_S)
        finally:
            _end(other)
        return float(done.stdout)


def _start(command: Sequence[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)


def _end(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def write_bandwidth(text: str, size: int) -> float:
    """Seconds of a message, from the table of ib_write_bw, whose MB are of 2^20 bytes."""
    average = re.search(rf"^ *{size} +\d+ +[\d.]+ +([\d.]+)", text, re.MULTILINE)
    if average is None:
        raise RuntimeError(f"ib_write_bw printed no bandwidth of {size} bytes: {text}")
    return size / (float(average[1]) * (1 << 20))


def send_latency(text: str, size: int) -> float:
    """Seconds, from the table of ib_send_lat: the median of half round trips, which it calls typical."""
    typical = re.search(rf"^ *{size} +\d+ +[\d.]+ +[\d.]+ +([\d.]+)", text, re.MULTILINE)
    if typical is None:
        raise RuntimeError(f"ib_send_lat printed no latency of {size} bytes: {text}")
    return float(typical[1]) / 1e6


@dataclass
class Found:
    """Seconds of a message, by round."""

    perftest: list[float] = field(default_factory=list)
    dicomm: list[float] = field(default_factory=list)

    def medians(self) -> tuple[float, float]:
        """dicomm's first, as report.share and report.times take them."""
        return statistics.median(self.dicomm), statistics.median(self.perftest)


def bandwidth(place: Place, path: str, size: int, count: int, rounds: int) -> Found:
    found = Found()
    for _ in range(rounds):
        text = place.perftest("ib_write_bw", size, count, "-t", str(UNDER_WAY))
        found.perftest.append(write_bandwidth(text, size))
        found.dicomm.append(place.dicomm(path, "flow", size, count, DEFAULT_WAIT))
    return found


def latency(place: Place, path: str, size: int, count: int, rounds: int) -> Found:
    found = Found()
    for _ in range(rounds):
        found.perftest.append(send_latency(place.perftest("ib_send_lat", size, count), size))
        found.dicomm.append(place.dicomm(path, "echo", size, count, POLLING_NS))
    return found


def compare(place: Place, arguments: argparse.Namespace) -> Section:
    section = Section(f"{arguments.path}, against perftest over {' and '.join(place.devices)}")
    for size in arguments.bandwidth:
        count = max(UNDER_WAY, arguments.volume // size)
        found = bandwidth(place, arguments.path, size, count, arguments.rounds)
        work = f"{format_size(size)} messages one way, against ib_write_bw"
        section.targets.append(share(work, *found.medians(), at_least=90))
        section.rows.append({"work": work} | asdict(found))
    for size in arguments.latency:
        found = latency(place, arguments.path, size, arguments.echoes, arguments.rounds)
        work = f"{format_size(size)} bytes one way, against ib_send_lat"
        section.targets.append(times(work, *found.medians(), at_most=1.5))
        section.rows.append({"work": work} | asdict(found))
    return section


def parse() -> argparse.Namespace:
    summary, *rest = (__doc__ or "").splitlines()
    parser = argparse.ArgumentParser(
        description=summary, epilog="\n".join(rest), formatter_class=argparse.RawDescriptionHelpFormatter
    )
    two: dict[str, Any] = {"nargs": 2, "required": True}
    parser.add_argument("--hosts", **two, metavar="WORDS", help='before a command there: "ip netns exec a"')
    parser.add_argument("--addresses", **two, metavar="ADDRESS", help="of the cards' networks")
    parser.add_argument("--devices", **two, metavar="DEVICE", help="as ibv_devices prints them")
    parser.add_argument("--gid-index", type=int, help="of both devices; chosen by each program if not given")
    parser.add_argument("--path", default="rdma-direct", help="of dicomm (rdma-direct)")
    parser.add_argument("--bandwidth", nargs="*", type=parse_size, default=[1 << 20, 8 << 20], metavar="SIZE")
    parser.add_argument("--latency", nargs="*", type=parse_size, default=[8, 64, 1024, 4096], metavar="SIZE")
    parser.add_argument("--volume", type=parse_size, default=1 << 30, help="bytes of a flow (1G)")
    parser.add_argument("--echoes", type=int, default=1000, help="of a latency (1000)")
    parser.add_argument("--rounds", type=int, default=5, help="of each; their median counts (5)")
    parser.add_argument("--build", type=Path, help="where the program goes that both hosts run, if not /tmp")
    parser.add_argument("--out", type=Path, help="directory for rdma.json")
    return parser.parse_args()


def main() -> int:
    arguments = parse()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    program = programs.build("rdma_rank", with_dicomm=True)
    if arguments.build:
        program = Path(shutil.copy(program, arguments.build))
    first, second = (shlex.split(words) for words in arguments.hosts)
    place = Place(
        (first, second), tuple(arguments.addresses), tuple(arguments.devices), arguments.gid_index, program
    )
    section = compare(place, arguments)
    print(report.table([section]))
    if arguments.out:
        report.write(arguments.out / "rdma.json", report.document(machine.describe(), False, [section]))
    met, of = report.count([section])
    print(f"\n{met} of {of} targets met")
    return 0


if __name__ == "__main__":
    sys.exit(main())
