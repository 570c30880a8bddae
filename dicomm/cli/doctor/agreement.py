"""What follows from all ranks' reports: who cannot reach whom, and on what they do not agree. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

from dicomm.cli.doctor.finding import NOTE, OK, PROBLEM, Finding
from dicomm.cli.doctor.probing import Link
from dicomm.cli.doctor.reports import Report
from dicomm.topology import spans

Reports = Mapping[int, Report]

_FAR = 1.0  # seconds between clocks: time-outs and logs of hosts are compared
_FIREWALL = (
    "most likely a firewall: let these hosts connect to each other on every TCP port (ranks listen on ports "
    "that the kernel picks); or DICOMM_INTERFACE names another network"
)
_TIME = "run chrony or ntpd on every host"


def between(reports: Reports, size: int) -> list[Finding]:
    """What rank 0 prints. reports: of the ranks that came, rank 0 among them."""
    return [
        meeting(reports, size),
        *versions(reports),
        reachability(reports),
        large_messages(reports),
        communicator(reports, size),
        clocks(reports),
        mtus(reports),
        rdma(reports),
        *on_hosts(reports),
    ]


def no_meeting(report: Report, why: str) -> Finding:
    """Of a rank that does not even reach the place where ranks meet."""
    found = f"{who(report)} does not reach the place where ranks meet: {why}"
    advice = "does rank 0 run there, and does a firewall let this host reach the port?"
    return Finding("meeting", PROBLEM, found, advice)


def meeting(reports: Reports, size: int) -> Finding:
    name = "meeting"
    if missing := [rank for rank in range(size) if rank not in reports]:
        found = f"of {size} ranks did not come: {spans(missing)}"
        advice = "their own output says more; can their hosts reach the place where ranks meet (a firewall)?"
        return Finding(name, PROBLEM, found, advice)
    hosts = len({report.host for report in reports.values()})
    return Finding(name, OK, f"{size} ranks on {hosts} host{'s' * (hosts != 1)}")


def versions(reports: Reports) -> list[Finding]:
    """dicomm must be the same; others better are, which a program will notice and dicomm not."""
    findings = []
    agreed = []
    names = list(dict.fromkeys(name for report in reports.values() for name in report.versions))
    for name in names:
        groups = _groups(reports, partial(_version, name))
        if len(groups) == 1:
            agreed.append(f"{name} {next(iter(groups))}")
            continue
        state = PROBLEM if name == "dicomm" else NOTE
        advice = f"install the same {name} on all hosts"
        findings.append(Finding(f"version of {name}", state, _listed(groups), advice))
    if agreed:
        findings.append(Finding("versions", OK, "the same everywhere: " + ", ".join(agreed)))
    return findings


def _version(name: str, report: Report) -> str:
    return report.versions.get(name, "not installed")


def reachability(reports: Reports) -> Finding:
    """In both directions: which of the two connects depends on who has something to send."""
    failures = _failures(reports, lambda link: link.connect)
    tried = sum(len(report.links) for report in reports.values())
    if not tried:
        return Finding(
            "reachability", NOTE, "not tried: no two ranks came", "first mend what keeps them away"
        )
    if failures:
        found = f"{len(failures)} of {tried} connections fail: {failures[0]}"
        return Finding("reachability", PROBLEM, found, _FIREWALL, tuple(failures[1:]))
    return Finding("reachability", OK, f"all {tried} connections from one rank to another can be made")


def large_messages(reports: Reports) -> Finding:
    """Small ones pass and large ones do not where some packets are larger than what the network forwards."""
    failures = _failures(reports, lambda link: link.large)
    if not failures:
        return Finding("large messages", OK, "get through wherever small ones do")
    advice = "the same MTU on interfaces and switches all the way: ping -M do -s 8972 HOST tries 9000"
    found = f"do not get through where small ones do: {failures[0]}"
    return Finding("large messages", PROBLEM, found, advice, tuple(failures[1:]))


def communicator(reports: Reports, size: int) -> Finding:
    """The job's own, with its settings; and do both sides of a pair name the same path?"""
    failures = [f"{who(report)}: {report.failure}" for report in reports.values() if report.failure]
    failures.sort(key=lambda line: "[ABORTED]" in line)  # those are consequences
    if failures:
        advice = "mend what is said above first; are all ranks' DICOMM_ variables the same?"
        return Finding("communicator", PROBLEM, failures[0], advice, tuple(failures[1:]))
    seen = {(rank, peer): path for rank, report in reports.items() for peer, path in report.paths.items()}
    differ = [
        f"rank {rank} -> {peer}: {path}, back: {seen.get((peer, rank))}"
        for (rank, peer), path in sorted(seen.items())
        if rank < peer and seen.get((peer, rank)) != path
    ]
    if differ:
        advice = "the same DICOMM_PATHS on all ranks; findings on their hosts may say why one lacks a path"
        found = f"the two directions of a pair take different paths: {differ[0]}"
        return Finding("communicator", PROBLEM, found, advice, tuple(differ[1:]))
    count = Counter(path for (rank, peer), path in seen.items() if rank < peer)
    ways = ", ".join(f"{path} between {pairs} pair{'s' * (pairs != 1)}" for path, pairs in count.items())
    return Finding("communicator", OK, f"of {size} ranks: {ways}")


def clocks(reports: Reports) -> Finding:
    """Against rank 0's."""
    measured = {rank: link for rank, link in reports[0].links.items() if not link.connect}
    if not measured:
        found = "not compared: rank 0 could connect to no other"
        return Finding("clocks", NOTE, found, "first mend what keeps them apart")
    far = {rank: link for rank, link in measured.items() if abs(link.ahead) - link.trip / 2 > _FAR}
    if far:
        lines = [f"{_name(reports, rank)} is {link.ahead:+.3f} s off rank 0" for rank, link in far.items()]
        return Finding("clocks", PROBLEM, lines[0], _TIME, tuple(lines[1:]))
    worst = max(measured.values(), key=lambda link: abs(link.ahead))
    found = f"at most {abs(worst.ahead) * 1e3:.3g} ms apart, give or take {worst.trip / 2 * 1e3:.2g} ms"
    return Finding("clocks", OK, found)


def mtus(reports: Reports) -> Finding:
    groups = _groups(reports, lambda report: str(report.mtu))
    if len(groups) == 1:
        return Finding("MTU", OK, f"{next(iter(groups))} on every interface that ranks listen on")
    found = f"interfaces that ranks listen on differ: {_listed(groups)}"
    return Finding("MTU", NOTE, found, "the same on all hosts and on the switches between them")


def rdma(reports: Reports) -> Finding:
    groups = _groups(reports, lambda report: "; ".join(report.rdma) or "none")
    if len(groups) == 1:
        return Finding("RDMA ports", OK, f"on every host: {next(iter(groups))}")
    found = f"active ports differ: {_listed(groups)}"
    advice = "hosts without a port of the same kind use tcp; if that is not meant, see findings on them"
    return Finding("RDMA ports", NOTE, found, advice)


def on_hosts(reports: Reports) -> list[Finding]:
    """What is not ok on the hosts, each once, with the ranks that have it."""
    having: dict[Finding, list[int]] = {}
    for rank, report in sorted(reports.items()):
        for finding in report.findings:
            if finding.state != OK:
                having.setdefault(finding, []).append(rank)
    found = []
    for finding, ranks in having.items():
        hosts = ", ".join(dict.fromkeys(reports[rank].host for rank in ranks))
        where = f"on {hosts} (rank{'s' * (len(ranks) != 1)} {spans(ranks)}): "
        found.append(replace(finding, found=where + finding.found))
    return found


def who(report: Report) -> str:
    return f"rank {report.rank} ({report.host}, {report.address or 'no address'})"


def _name(reports: Reports, rank: int) -> str:
    return who(reports[rank]) if rank in reports else f"rank {rank}"


def _failures(reports: Reports, why: Callable[[Link], str]) -> list[str]:
    """A line for each connection of a rank to another that failed."""
    return [
        f"{who(report)} to {_name(reports, peer)}: {reason}"
        for _, report in sorted(reports.items())
        for peer, link in sorted(report.links.items())
        if (reason := why(link))
    ]


def _groups(reports: Reports, value: Callable[[Report], str]) -> dict[str, list[int]]:
    """Value -> the ranks that have it."""
    found: dict[str, list[int]] = {}
    for rank, report in sorted(reports.items()):
        found.setdefault(value(report), []).append(rank)
    return found


def _listed(groups: dict[str, list[int]]) -> str:
    return "; ".join(
        f"{value} on rank{'s' * (len(ranks) != 1)} {spans(ranks)}" for value, ranks in groups.items()
    )
