"""dicomm beside gloo, every operation, interleaved in the same processes; figures and machine as JSON.

    python benchmarks/compare.py --ranks 2 --out results.json

Prints how much faster dicomm is (gloo's time over dicomm's at torch level) per operation and size.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

OPERATIONS = (
    "latency", "bandwidth", "barrier", "broadcast", "reduce", "allreduce", "allgather", "reduce_scatter",
    "alltoall", "gather", "scatter",
)  # fmt: skip


def measure(ranks: int, end: str, iterations: int) -> dict[str, Any]:
    command = [sys.executable, "-m", "dicomm", "bench", *OPERATIONS, "--json", "--peer", "gloo"]
    command += ["-b", "4", "-e", end, "-f", "16", "-n", str(iterations), "--ranks", str(ranks)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if not done.stdout:
        sys.exit(f"the measurement failed with exit status {done.returncode}")
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def ratios(document: dict[str, Any]) -> list[str]:
    """A line per operation: size and ratio, in order of size."""
    lines: dict[str, list[str]] = {}
    for row in document["results"]:
        if row["ratio"] is not None:
            lines.setdefault(row["operation"], []).append(f"{row['size']}: {row['ratio']:.2f}x")
    return [f"{operation:<15} {'  '.join(cells)}" for operation, cells in lines.items()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--end", default="4M", help="largest size")
    parser.add_argument("--iterations", type=int, default=20)
    parser.add_argument("--out", type=Path, help="where the JSON goes")
    arguments = parser.parse_args()
    documents = []
    for ranks in arguments.ranks:
        document = measure(ranks, arguments.end, arguments.iterations)
        documents.append(document)
        print(f"\n{ranks} ranks on {document['machine']['cores']} cores, {document['machine']['cpu']}")
        print("\n".join(ratios(document)), flush=True)
    if arguments.out:
        arguments.out.write_text(json.dumps(documents, indent=1) + "\n")


if __name__ == "__main__":
    main()
