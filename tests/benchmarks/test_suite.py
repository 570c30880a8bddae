"""The instrument works: its programs run, blocks alternate, targets are judged and curves drawn. No figure is
asserted: a busy machine may give any."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest

import curves
import report
from jobs import Job
from measure import Budget, compare, ratio
from report import Section, Target
from sections import beside
from sections.beside import Limit

SUITE = Path(__file__).resolve().parents[2] / "benchmarks/suite.py"
SHORT = Budget(True, 0.001, 0.002, 2, 2, (4, 4096), 1)


@pytest.mark.skipif(shutil.which("cc") is None, reason="the limits are a C program")
@pytest.mark.timeout(120)
def test_the_limits_in_one_command(tmp_path: Path) -> None:
    command = [sys.executable, str(SUITE), "--quick", "limits", "--out", str(tmp_path / "results")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    document = json.loads((tmp_path / "results/results.json").read_text())
    assert {"cpu", "cores", "kernel", "memory_gib", "packages", "compiler", "commit"} <= set(
        document["machine"]
    )
    (section,) = document["sections"]
    seconds = {row["name"]: row["seconds"] for row in section["rows"]}
    assert {"flag_spin", "flag_futex", "unix", "tcp", "tcp_stream", "memcpy", "vm_readv", "add"} <= set(
        seconds
    )
    assert all(value is None or 0 < value < 100 for value in seconds.values())
    for target in section["targets"]:
        assert target["work"] in done.stdout


@pytest.mark.timeout(120)
def test_ranks_alternate_and_check_their_results() -> None:
    with Job("dicomm", 2) as first, Job("dicomm", 2) as second:
        for operation, size in (("latency", 8), ("allreduce", 4096), ("barrier", 0)):
            points = compare([first, second], operation, size, SHORT)
            assert [(p.operation, p.size, p.wrong, p.reason) for p in points] == [
                (operation, size, 0, "")
            ] * 2
            assert all(len(point.blocks) == 2 and min(point.blocks) > 0 for point in points)


class Canned:
    """A job whose iterations take a known time and whose ranks count wrong elements."""

    ranks, pinned = 2, False

    def __init__(
        self, subject: str, seconds: float, log: list[str], reason: str = "", wrong: int = 0
    ) -> None:
        self.subject, self._seconds, self._log = subject, seconds, log
        self._reason, self._wrong = reason, wrong

    def command(self, do: str, **words: Any) -> list[dict[str, Any]]:
        self._log.append(f"{self.subject} {do}")
        answers: dict[str, list[dict[str, Any]]] = {
            "prepare": [{"size": 8, "reason": ""}, {"size": 8, "reason": self._reason}],
            "block": [{"seconds": self._seconds / 2}, {"seconds": self._seconds}],
            "check": [{"wrong": 0}, {"wrong": self._wrong}],
        }
        return answers[do]


def test_the_slowest_rank_counts_and_latency_is_one_way() -> None:
    log: list[str] = []
    jobs: Any = [Canned("own", 0.25, log), Canned("peer", 1.0, log, wrong=3)]
    allreduce, latency = (compare(jobs, name, 8, SHORT) for name in ("allreduce", "latency"))
    assert [point.seconds for point in allreduce] == [0.25, 1.0]
    assert [point.seconds for point in latency] == [0.125, 0.5]
    assert ratio(allreduce) == 4.0
    assert [point.wrong for point in allreduce] == [0, 3]
    blocks = [line for line in log if line.endswith("block")][2:6]
    assert blocks == ["own block", "peer block"] * 2


def test_a_refusal_is_a_target_not_met() -> None:
    jobs: Any = [Canned("own", 0.25, []), Canned("peer", 1.0, [], reason="NotImplementedError: no")]
    points = compare(jobs, "allreduce", 8, SHORT)
    assert points[1].seconds is None
    assert ratio(points) is None
    target = beside._worst([points], Limit(2, 0, 64))
    assert target is not None
    assert target.met is False
    assert "NotImplementedError" in target.note


def test_the_worst_size_within_the_limit_counts() -> None:
    slow: Any = [Canned("own", 0.5, []), Canned("peer", 1.0, [])]
    fast: Any = [Canned("own", 0.1, []), Canned("peer", 1.0, [])]
    pairs = [compare(jobs, "allreduce", size, SHORT) for jobs, size in ((fast, 4), (slow, 64), (slow, 1024))]
    target = beside._worst(pairs[:2], Limit(3, 0, 64))
    assert target is not None
    assert (target.measured, target.met) == (2.0, False)
    assert beside._worst(pairs, Limit(3, 2048, 4096)) is None


@pytest.mark.parametrize(
    ("target", "met"),
    [
        (Target("", 2.0, 2.0), True),
        (Target("", 1.9, 2.0), False),
        (Target("", 1.9, 2.0, at_least=False), True),
        (Target("", 2.1, 2.0, at_least=False), False),
        (Target("", None, 2.0), False),
        (Target("", 2.0), None),
        (report.times("", 3e-6, 2e-6, at_most=1.5), True),
        (report.times("", 3e-6, None, at_most=1.5), False),
        (report.share("", 2.0, 1.9, at_least=95), True),
        (report.share("", 2.0, 1.8, at_least=95), False),
    ],
)
def test_targets(target: Target, met: bool | None) -> None:
    assert target.met is met


def test_the_table_and_the_document_say_the_same() -> None:
    sections = [
        Section("first", [Target("fast", 3.0, 2.0), Target("slow", 1.0, 2.0)], wrong=7),
        Section("second", skipped="no root"),
    ]
    table = report.table(sections)
    assert "skipped, no root" in table
    assert "7 elements" in table
    assert [line.split()[-1] for line in table.splitlines() if line.startswith(("  fast", "  slow"))] == [
        "yes",
        "NO",
    ]
    document = report.document({"cpu": "x"}, True, sections)
    assert (document["met"], document["of"]) == (1, 2)
    assert [target["met"] for target in document["sections"][0]["targets"]] == [True, False]
    json.dumps(document, allow_nan=False)


def test_curves_show_what_was_measured(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="curves need matplotlib")
    rows = [
        {
            "operation": operation,
            "subject": subject,
            "ranks": 2,
            "size": size,
            "seconds": size * 1e-9,
            "best": True,
        }
        for operation in ("allreduce", "alltoall")
        for subject in ("torch-dicomm", "torch-gloo")
        for size in (4, 4096)
    ]
    document = {"sections": [{"name": next(iter(curves.DRAWN)), "rows": rows}]}
    written = curves.draw(document, tmp_path)
    assert sorted(path.name for path in written) == ["torch-2-bandwidth.svg", "torch-2-time.svg"]
    for path in written:
        text = "".join(ElementTree.parse(path).getroot().itertext())
        assert all(word in text for word in ("allreduce", "alltoall", "dicomm", "gloo"))
