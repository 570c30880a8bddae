"""`dicomm doctor --ranks`: what follows from reports, plain connections, and whole jobs."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

import namespaces
from dicomm.cli.doctor import agreement, probing
from dicomm.cli.doctor.finding import NOTE, OK, PROBLEM, Finding
from dicomm.cli.doctor.probing import Link
from dicomm.cli.doctor.reports import Report, describe
from support import machines

GOOD = Link(ahead=0.0005, trip=0.0002)
LOW = Finding("locked memory", PROBLEM, "at most 64 KiB", "ulimit -l unlimited")


def job(**changes: dict[int, object]) -> dict[int, Report]:
    """Reports of three healthy ranks on hosts a, a and b. changes: field -> rank -> another value."""
    reports = {
        rank: Report(
            rank=rank,
            host="aab"[rank],
            address=f"10.0.0.{rank}",
            mtu=9000,
            versions={"dicomm": "0.1.0 (ABI 2)", "Python": "3.12.3"},
            rdma=("Ethernet, RoCE v2, MTU 4096",),
            findings=(Finding("kernel", OK, "6.1"),),
            links={peer: GOOD for peer in range(3) if peer != rank},
            paths={peer: "shm" if {rank, peer} == {0, 1} else "tcp" for peer in range(3) if peer != rank},
        )
        for rank in range(3)
    }
    for name, values in changes.items():
        for rank, value in values.items():
            reports[rank] = replace(reports[rank], **{name: value})  # type: ignore[arg-type]
    return reports


HEALTHY = [
    Finding("meeting", OK, "3 ranks on 2 hosts"),
    Finding("versions", OK, "the same everywhere: dicomm 0.1.0 (ABI 2), Python 3.12.3"),
    Finding("reachability", OK, "all 6 connections from one rank to another can be made"),
    Finding("large messages", OK, "get through wherever small ones do"),
    Finding("communicator", OK, "of 3 ranks: shm between 1 pair, tcp between 2 pairs"),
    Finding("clocks", OK, "at most 0.5 ms apart, give or take 0.1 ms"),
    Finding("MTU", OK, "9000 on every interface that ranks listen on"),
    Finding("RDMA ports", OK, "on every host: Ethernet, RoCE v2, MTU 4096"),
]


def changed(reports: dict[int, Report]) -> list[Finding]:
    """The findings that a healthy job does not have."""
    return [found for found in agreement.between(reports, 3) if found not in HEALTHY]


def test_a_healthy_job() -> None:
    assert agreement.between(job(), 3) == HEALTHY


def test_pairs_that_cannot_connect() -> None:
    refused = "no connection to 10.0.0.2:4711: timed out"
    reports = job(
        links={0: {1: GOOD, 2: Link(connect=refused)}, 1: {0: GOOD, 2: Link(connect=refused)}},
        failure={0: "rank 1 reports: timed out [ABORTED]", 1: "timed out waiting for rank 2 [TIMED_OUT]"},
    )
    assert changed(reports) == [
        Finding(
            "reachability",
            PROBLEM,
            f"2 of 6 connections fail: rank 0 (a, 10.0.0.0) to rank 2 (b, 10.0.0.2): {refused}",
            "most likely a firewall: let these hosts connect to each other on every TCP port (ranks listen "
            "on ports that the kernel picks); or DICOMM_INTERFACE names another network",
            (f"rank 1 (a, 10.0.0.1) to rank 2 (b, 10.0.0.2): {refused}",),
        ),
        Finding(
            "communicator",
            PROBLEM,
            "rank 1 (a, 10.0.0.1): timed out waiting for rank 2 [TIMED_OUT]",
            "mend what is said above first; are all ranks' DICOMM_ variables the same?",
            ("rank 0 (a, 10.0.0.0): rank 1 reports: timed out [ABORTED]",),
        ),
    ]


def test_large_packets_that_are_lost() -> None:
    lost = "no answer of 10.0.0.2:4711 to 256 KiB: timed out"
    assert changed(job(links={1: {0: GOOD, 2: replace(GOOD, large=lost)}})) == [
        Finding(
            "large messages",
            PROBLEM,
            f"do not get through where small ones do: rank 1 (a, 10.0.0.1) to rank 2 (b, 10.0.0.2): {lost}",
            "the same MTU on interfaces and switches all the way: ping -M do -s 8972 HOST tries 9000",
        )
    ]


def test_ranks_that_do_not_come() -> None:
    reports = job(links={0: {1: GOOD}, 1: {0: GOOD}}, failure=dict.fromkeys((0, 1), "not tried"))
    del reports[2]
    findings = {found.name: found for found in agreement.between(reports, 3)}
    assert findings["meeting"].found == "of 3 ranks did not come: 2"
    assert findings["reachability"].found == "all 2 connections from one rank to another can be made"
    del reports[1]
    reports[0] = replace(reports[0], links={})
    findings = {found.name: found for found in agreement.between(reports, 3)}
    assert findings["meeting"].found == "of 3 ranks did not come: 1-2"
    for name, state in (("meeting", PROBLEM), ("reachability", NOTE), ("clocks", NOTE)):
        assert findings[name].state == state


def test_versions_that_differ() -> None:
    reports = job(versions={2: {"dicomm": "0.2.0 (ABI 3)", "Python": "3.12.3", "torch": "2.13.0"}})
    assert changed(reports) == [
        Finding(
            "version of dicomm",
            PROBLEM,
            "0.1.0 (ABI 2) on ranks 0-1; 0.2.0 (ABI 3) on rank 2",
            "install the same dicomm on all hosts",
        ),
        Finding(
            "version of torch",
            NOTE,
            "not installed on ranks 0-1; 2.13.0 on rank 2",
            "install the same torch on all hosts",
        ),
        Finding("versions", OK, "the same everywhere: Python 3.12.3"),
    ]


def test_clocks_that_differ() -> None:
    reports = job(links={0: {1: GOOD, 2: Link(ahead=-12.5, trip=0.001)}})
    assert changed(reports) == [
        Finding(
            "clocks",
            PROBLEM,
            "rank 2 (b, 10.0.0.2) is -12.500 s off rank 0",
            "run chrony or ntpd on every host",
        )
    ]
    # So slow a round trip proves nothing.
    (slow,) = changed(job(links={0: {1: GOOD, 2: Link(ahead=1.5, trip=1.2)}}))
    assert (slow.name, slow.state) == ("clocks", OK)


def test_paths_mtu_and_ports_that_differ() -> None:
    reports = job(paths={2: {0: "tcp", 1: "rdma-direct"}}, mtu={2: 1500}, rdma={2: ()})
    assert changed(reports) == [
        Finding(
            "communicator",
            PROBLEM,
            "the two directions of a pair take different paths: rank 1 -> 2: tcp, back: rdma-direct",
            "the same DICOMM_PATHS on all ranks; findings on their hosts may say why one lacks a path",
        ),
        Finding(
            "MTU",
            NOTE,
            "interfaces that ranks listen on differ: 9000 on ranks 0-1; 1500 on rank 2",
            "the same on all hosts and on the switches between them",
        ),
        Finding(
            "RDMA ports",
            NOTE,
            "active ports differ: Ethernet, RoCE v2, MTU 4096 on ranks 0-1; none on rank 2",
            "hosts without a port of the same kind use tcp; if that is not meant, see findings on them",
        ),
    ]


def test_what_is_wrong_on_hosts_is_said_once() -> None:
    assert changed(job(findings={0: (LOW,), 2: (LOW,)})) == [
        replace(LOW, found="on a, b (ranks 0 2): at most 64 KiB")
    ]


def test_a_report_survives_its_way(tmp_path: Path) -> None:
    machines.port(tmp_path, "mlx5_0")
    machines.port(tmp_path, "mlx5_1", state="1: DOWN")
    host = machines.machine(tmp_path, verbs=machines.verbs("mlx5_0", "mlx5_1"))
    report = describe(3, host, [replace(LOW, details=("of 64 GiB",))])
    report = replace(report, links={0: GOOD, 1: Link(connect="no")}, paths={0: "tcp"}, failure="why")
    assert report.rdma == ("Ethernet, RoCE v2, MTU 4096",)
    assert (report.address, report.mtu) == (machines.ADDRESS, 9000)
    assert Report.from_json(report.to_json()) == report


@contextmanager
def serving(answer: object) -> Iterator[int]:
    """The port of a peer that handles one connection as the function answer does."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with server.accept()[0] as connection:
                answer(connection)  # type: ignore[operator]

        thread = threading.Thread(target=serve)
        thread.start()
        yield int(server.getsockname()[1])
        thread.join()


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_a_probe_measures_the_clock(address: str) -> None:
    with probing.listening(address) as port:
        (link,) = probing.probe_all({5: (address, port)}, 5.0).values()
    assert link.connect == link.large == ""
    assert 0 < link.trip < 5
    assert abs(link.ahead) <= link.trip / 2


def test_a_probe_sees_a_clock_that_is_ahead() -> None:
    def answer(connection: socket.socket) -> None:
        for size in [8] * 8 + [256 << 10]:
            left = size
            while left:
                left -= len(connection.recv(left))
            connection.sendall(probing._CLOCK.pack(time.time() + 100))

    with serving(answer) as port:
        link = probing.probe("127.0.0.1", port, 5.0)
    assert link.connect == link.large == ""
    assert abs(link.ahead - 100) <= link.trip / 2


def test_probes_that_fail() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        silent = probing.probe("127.0.0.1", port, 0.2)
        where = f"127.0.0.1:{port}"
        assert silent == Link(connect=f"connected to {where}, but no answer: timed out")
    refused = probing.probe("127.0.0.1", port, 5.0)
    assert refused == Link(connect=f"no connection to {where}: Connection refused")

    def stop_at_large(connection: socket.socket) -> None:
        for _ in range(8):
            connection.recv(8)
            connection.sendall(probing._CLOCK.pack(time.time()))

    with serving(stop_at_large) as port:
        link = probing.probe("127.0.0.1", port, 5.0)
    assert link.connect == ""
    assert link.large.startswith(f"no answer of 127.0.0.1:{port} to 256 KiB: ")


class Doctors:
    """`dicomm doctor --ranks`, a process per rank, whose launcher is torchrun as far as they can tell."""

    def __init__(self, host: str, port: int, launch: list[list[str]], *arguments: str) -> None:
        command = [sys.executable, "-m", "dicomm", "doctor", "--ranks", *arguments]
        world = {"WORLD_SIZE": str(len(launch)), "MASTER_ADDR": host, "MASTER_PORT": str(port)}
        ranks = [
            subprocess.Popen(
                [*words, *command],
                env={**os.environ, **world, "RANK": str(rank)},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                cwd="/",
            )
            for rank, words in enumerate(launch)
        ]
        try:
            ended = [process.communicate(timeout=45) for process in ranks]
        finally:
            for process in ranks:
                process.kill()
                process.wait()
        self.outputs = [output for output, _ in ended]
        self.errors = [error for _, error in ended]
        self.codes = [process.returncode for process in ranks]


def test_a_job_on_one_host() -> None:
    from dicomm.cli.local_ranks import _free_port

    doctors = Doctors("127.0.0.1", _free_port(), [[], [], []], "--json", "--timeout", "20")
    assert doctors.errors == ["", "", ""]
    assert doctors.outputs[1:] == ["", ""]
    findings = named(doctors.outputs[0])
    assert findings["meeting"]["found"] == "3 ranks on 1 host"
    assert findings["communicator"]["found"] == "of 3 ranks: shm between 3 pairs"
    for name in ("versions", "reachability", "large messages", "clocks", "MTU", "RDMA ports"):
        assert findings[name]["state"] == "ok", findings[name]
    problem = any(found["state"] == "problem" for found in findings.values())
    assert doctors.codes == [int(problem), 0, 0]


def named(text: str) -> dict[str, dict[str, str]]:
    return {found["name"]: found for found in json.loads(text)["findings"]}


@pytest.mark.skipif(namespaces.missing() != "", reason=namespaces.missing())
@pytest.mark.timeout(100)
def test_two_hosts_whose_ranks_cannot_connect() -> None:
    """The place to meet has an address of its own, so that it can be reached where rank 0 cannot: packets
    to that go to a card that nobody has."""
    a, b = namespaces.ADDRESSES
    meeting = "198.51.100.11"
    with namespaces.two_hosts() as names:
        launch = [namespaces.enter(name) for name in names]
        launch[0] += ["env", f"DICOMM_INTERFACE={a}"]
        on = ["dev", namespaces.WIRE]
        command = ["ip", "-n", names[0], "addr", "add", f"{meeting}/24", *on]
        subprocess.run(command, check=True, timeout=20)

        findings = named(Doctors(meeting, 29481, launch, "--json", "--timeout", "20").outputs[0])
        assert findings["communicator"]["found"] == "of 2 ranks: tcp between 1 pair"
        for name in ("meeting", "reachability", "large messages", "clocks"):
            assert findings[name]["state"] == "ok", findings[name]

        nobody = ["lladdr", "02:00:00:00:00:99", *on, "nud", "permanent"]
        subprocess.run(["ip", "-n", names[1], "neigh", "replace", a, *nobody], check=True, timeout=20)
        doctors = Doctors(meeting, 29483, launch, "--json", "--timeout", "2")
        findings = named(doctors.outputs[0])
        assert findings["meeting"]["state"] == "ok"
        lost = findings["reachability"]
        assert (lost["state"], lost["found"].split(":")[0]) == ("problem", "2 of 2 connections fail")
        assert f"{a}) to rank 1" in lost["found"]
        assert f"no connection to {b}:" in lost["found"]
        assert "firewall" in lost["advice"]
        assert f"no connection to {a}:" in lost["details"][0]
        assert findings["communicator"]["state"] == "problem"
        assert doctors.codes == [1, 0]


def test_a_rank_that_does_not_find_the_place_to_meet() -> None:
    from dicomm.cli.local_ranks import _free_port

    absent = ["env", "WORLD_SIZE=2", "RANK=1"]  # rank 0 is not started
    alone = Doctors("127.0.0.1", _free_port(), [absent], "--timeout", "0.5")
    assert alone.codes == [1]
    assert alone.outputs == [""]
    assert "does not reach the place where ranks meet" in alone.errors[0]
    assert "Traceback" not in alone.errors[0]


def test_a_single_process_is_no_job() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "dicomm", "doctor", "--ranks"],
        capture_output=True, text=True, timeout=40, check=False, cwd="/",
    )  # fmt: skip
    assert done.returncode == 2
    assert "torchrun" in done.stderr
