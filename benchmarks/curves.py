"""Latency and bandwidth over size, drawn from the JSON document: one SVG per pair of libraries and ranks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dicomm.cli.bench_cases import bus_factor

# section of the document -> start of the files' names
DRAWN = {"one host, torch level, against gloo": "torch", "one host, Python API, against Open MPI": "python"}
KINDS = {"time": ("microseconds", "time of one operation"), "bandwidth": ("GB/s", "bus bandwidth")}
LABELS = {"torch-dicomm": "dicomm", "torch-gloo": "gloo", "mpi": "Open MPI"}
COLUMNS = 5


def draw(document: dict[str, Any], directory: Path) -> list[Path]:
    """The files written: none, and a word on it, where matplotlib is missing."""
    try:
        import matplotlib
    except ImportError:
        print("no curves: matplotlib is missing, pip install 'dicomm[bench]'")
        return []
    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.hashsalt": "dicomm", "svg.fonttype": "none", "font.size": 8})
    written = []
    for section in document["sections"]:
        start = DRAWN.get(section["name"])
        for ranks in sorted({row["ranks"] for row in section["rows"]} if start else ()):
            rows = [row for row in section["rows"] if row["ranks"] == ranks and row["best"]]
            rows = [row for row in rows if row["size"] and row["seconds"]]
            for kind in KINDS:
                path = directory / f"{start}-{ranks}-{kind}.svg"
                _figure(rows, kind, f"{section['name']}, {ranks} ranks", path)
                written.append(path)
    return written


def _figure(rows: list[dict[str, Any]], kind: str, title: str, path: Path) -> None:
    """Small multiples, one per operation."""
    from matplotlib.figure import Figure

    operations = list(dict.fromkeys(row["operation"] for row in rows))
    unit, what = KINDS[kind]
    lines = -(-len(operations) // COLUMNS)
    figure = Figure(figsize=(2.3 * COLUMNS, 2.0 * lines + 0.6), layout="constrained")
    figure.suptitle(f"{title}: {what}")
    grid = figure.subplots(lines, COLUMNS, squeeze=False).flat
    for axes, operation in zip(grid, operations, strict=False):
        for subject in dict.fromkeys(row["subject"] for row in rows):
            mine = [row for row in rows if (row["operation"], row["subject"]) == (operation, subject)]
            axes.plot(
                [row["size"] for row in mine],
                [_value(row, kind) for row in mine],
                marker=".",
                label=LABELS.get(subject, subject),
            )
        axes.set(title=operation, xscale="log", yscale="log" if kind == "time" else "linear")
        axes.set_xscale("log", base=2)
        axes.set_xticks([1 << 2, 1 << 10, 1 << 16, 1 << 20, 1 << 26], ["4", "1K", "64K", "1M", "64M"])
        axes.grid(alpha=0.3)
    for axes in list(grid):
        axes.set_visible(False)
    figure.axes[0].legend()
    figure.supylabel(unit)
    figure.supxlabel("bytes")
    figure.savefig(path, metadata={"Date": None})


def _value(row: dict[str, Any], kind: str) -> float:
    seconds: float = row["seconds"]
    return (
        seconds * 1e6
        if kind == "time"
        else row["size"] * bus_factor(row["operation"], row["ranks"]) / seconds / 1e9
    )
