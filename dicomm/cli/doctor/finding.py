"""What a check found, and how findings are printed."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable
from dataclasses import asdict, dataclass

import click

OK, NOTE, PROBLEM = "ok", "note", "problem"
_COLORS = {OK: "green", NOTE: "yellow", PROBLEM: "red"}
_WIDTH = 110


@dataclass(frozen=True)
class Finding:
    """name: what was looked at. state: OK; NOTE, worth knowing; PROBLEM, something will not work. found: a
    sentence. advice: what to do, "" only where the state is OK. details: what else was seen, lines."""

    name: str
    state: str
    found: str
    advice: str = ""
    details: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        assert self.state in _COLORS, self.state
        assert bool(self.advice) == (self.state != OK), f"{self.name}: what should one do?"


def exit_status(findings: Iterable[Finding]) -> int:
    return int(any(finding.state == PROBLEM for finding in findings))


def as_json(findings: Iterable[Finding]) -> str:
    """One JSON object: "findings", each with the fields of Finding."""
    return json.dumps({"findings": [asdict(finding) for finding in findings]}, indent=1)


def as_text(findings: list[Finding]) -> str:
    """A table of state, name and what was found; what to do stands below, after an arrow."""
    width = max(len(finding.name) for finding in findings)
    margin = " " * (9 + width + 2)
    lines = []
    for finding in findings:
        head = click.style(f"{finding.state:<9}", _COLORS[finding.state]) + f"{finding.name:<{width}}  "
        lines.append(head + _wrapped(finding.found, margin))
        lines += [f"{margin}  {line}" for line in finding.details]
        if finding.advice:
            lines.append(f"{margin}-> {_wrapped(finding.advice, margin + '   ')}")
    count = {state: sum(finding.state == state for finding in findings) for state in _COLORS}
    problems = f"{count[PROBLEM]} problem{'s' * (count[PROBLEM] != 1)}"
    return "\n".join([*lines, f"{problems}, {count[NOTE]} note{'s' * (count[NOTE] != 1)}, {count[OK]} ok"])


def _wrapped(text: str, margin: str) -> str:
    lines = textwrap.wrap(text, max(40, _WIDTH - len(margin)), break_long_words=False, break_on_hyphens=False)
    return f"\n{margin}".join(lines)
