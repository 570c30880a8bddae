"""What a section finds, held against its targets: data, the table and the JSON document."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Target:
    """One line of the table. `limit` None: a figure without a target."""

    work: str
    measured: float | None  # None: could not be measured, `note` says why
    limit: float | None = None
    at_least: bool = True  # else at most
    unit: str = "x"
    note: str = ""

    @property
    def met(self) -> bool | None:
        """None where there is no target."""
        if self.limit is None:
            return None
        if self.measured is None or math.isnan(self.measured):
            return False
        return self.measured >= self.limit if self.at_least else self.measured <= self.limit


def times(work: str, own: float | None, bare: float | None, at_most: float | None = None) -> Target:
    """How many times as long as a bare limit dicomm takes."""
    if own is None or bare is None:
        return Target(work, None, at_most, at_least=False, note="refused on this machine")
    note = f"{own * 1e6:.2f} us, bare {bare * 1e6:.2f} us"
    return Target(work, own / bare, at_most, at_least=False, note=note)


def share(work: str, own: float | None, bare: float | None, at_least: float | None = None) -> Target:
    """What percentage of a bare limit's speed dicomm reaches; `at_least` is one too."""
    if own is None or bare is None:
        return Target(work, None, at_least, unit="%", note="refused on this machine")
    note = f"{own * 1e3:.2f} ms, bare {bare * 1e3:.2f} ms"
    return Target(work, 100 * bare / own, at_least, unit="%", note=note)


@dataclass
class Section:
    name: str
    targets: list[Target] = field(default_factory=list)
    rows: list[dict[str, Any]] = field(default_factory=list)  # every figure behind the targets
    skipped: str = ""  # why nothing was measured
    wrong: int = 0  # elements that dicomm got wrong
    seconds: float = 0.0  # the section took


def table(sections: Sequence[Section]) -> str:
    lines = []
    for section in sections:
        lines.append(f"\n{section.name}" + (f": skipped, {section.skipped}" if section.skipped else ""))
        if section.targets:
            lines.append(f"  {'work':<66}{'target':>12}{'measured':>12}  met")
        lines += [_line(target) for target in section.targets]
        if section.wrong:
            lines.append(f"  WRONG RESULTS: {section.wrong} elements")
    return "\n".join(lines)


def count(sections: Sequence[Section]) -> tuple[int, int]:
    """(targets met, targets)."""
    answers = [target.met for section in sections for target in section.targets if target.met is not None]
    return sum(answers), len(answers)


def _line(target: Target) -> str:
    sign = ">=" if target.at_least else "<="
    limit = "-" if target.limit is None else f"{sign} {_number(target.limit)} {target.unit}"
    measured = "-" if target.measured is None else f"{_number(target.measured)} {target.unit}"
    met = {True: "yes", False: "NO", None: ""}[target.met]
    return f"  {target.work:<66}{limit:>12}{measured:>12}  {met:<4}{target.note}".rstrip()


def _number(value: float) -> str:
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"


def document(machine: dict[str, Any], quick: bool, sections: Sequence[Section]) -> dict[str, Any]:
    met, all_of_them = count(sections)
    listed = [
        asdict(section) | {"targets": [asdict(t) | {"met": t.met} for t in section.targets]}
        for section in sections
    ]
    return {"machine": machine, "quick": quick, "met": met, "of": all_of_them, "sections": listed}


def write(path: Path, content: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1, allow_nan=False) + "\n")
