"""dicomm against gloo, Open MPI and the bare machine, in one run: ratios, targets, JSON and curves.

    python benchmarks/suite.py --out results            everything; a quiet machine, about half an hour
    python benchmarks/suite.py --quick limits torch     some sections, few sizes, short blocks

Exit status: 1 if dicomm gave a wrong result or a section failed. A target that is not met is no failure.
docs/reference/benchmarks.md says what each number means.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
import traceback
from pathlib import Path

import curves
import machine
import report
from measure import FULL, QUICK, Budget
from report import Section
from sections import (
    cost_of_size,
    islands,
    limits,
    overhead,
    point_to_point,
    python_level,
    torch_level,
    two_hosts,
)

SECTIONS = {
    "limits": limits,
    "torch": torch_level,
    "mpi": python_level,
    "p2p": point_to_point,
    "hosts": two_hosts,
    "islands": islands,
    "size": cost_of_size,
    "overhead": overhead,
}


def main() -> int:
    words = (__doc__ or "").splitlines()
    parser = argparse.ArgumentParser(
        description=words[0],
        epilog="\n".join(words[1:]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=", ".join(SECTIONS) + "; all if none")
    parser.add_argument("--quick", action="store_true", help="few sizes, short blocks: does it work?")
    parser.add_argument("--out", type=Path, help="directory for results.json and the curves")
    arguments = parser.parse_args()
    for name in arguments.sections:
        if name not in SECTIONS:
            parser.error(f"there is no section {name!r}; choose from {', '.join(SECTIONS)}")
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # so that ranks are ended
    described = machine.describe()
    print(
        f"{described['cpu']}, {described['cores']} cores, Linux {described['kernel']}, {described['commit']}"
    )
    results, failed = [], 0
    for name in arguments.sections or SECTIONS:
        section = _run(name, QUICK if arguments.quick else FULL)
        failed += section is None or section.wrong > 0
        if section is not None:
            print(report.table([section]), flush=True)
            results.append(section)
    if arguments.out:
        document = report.document(described, arguments.quick, results)
        report.write(arguments.out / "results.json", document)
        curves.draw(document, arguments.out)
    met, of = report.count(results)
    print(f"\n{met} of {of} targets met" + (f"; {failed} sections failed" if failed else ""))
    return 1 if failed else 0


def _run(name: str, budget: Budget) -> Section | None:
    """None when it failed: the other sections are still worth having."""
    start = time.monotonic()
    try:
        section: Section = SECTIONS[name].run(budget)
    except Exception:
        traceback.print_exc()
        return None
    section.seconds = time.monotonic() - start
    return section


if __name__ == "__main__":
    sys.exit(main())
