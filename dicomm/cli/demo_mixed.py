"""`dicomm demo --mixed`: a job of simulated chips of several brands on this machine, beside gloo."""

from __future__ import annotations

import re
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

import click

from dicomm.cli import local_ranks

_TOLERANCE = 1e-4  # of losses, relative: the order of additions differs
# The gradients of so small a model are few bytes; without this rule they would go around the libraries.
_BY_ISLAND = "allreduce:islands"


@dataclass(frozen=True)
class Epoch:
    """A line of ddp_digits.py."""

    loss: float
    accuracy: float


def run(layout: str, script: Path, epochs: int) -> int:
    """The exit status. layout: as DICOMM_SIMULATE. DicommError when it makes no sense."""
    ranks = _ranks(layout)
    click.echo(f"{ranks} local ranks with simulated chips, DICOMM_SIMULATE={layout}\n")
    simulate = {"DICOMM_SIMULATE": layout}
    status = local_ranks.run_ranks([sys.executable, "-m", "dicomm.cli.mixed_job"], ranks, variables=simulate)
    if status:
        return status
    click.echo(
        f"\n{script.name} with DistributedDataParallel, DICOMM_ALGORITHMS={_BY_ISLAND}, beside gloo:\n"
    )
    mixed = _train(script, "dicomm", epochs, ranks, simulate | {"DICOMM_ALGORITHMS": _BY_ISLAND})
    gloo = _train(script, "gloo", epochs, ranks, {})
    return compare(mixed, gloo)


def _ranks(layout: str) -> int:
    from dicomm.config import Config
    from dicomm.errors import InvalidArgument
    from dicomm.simulate import simulated_ranks

    chips = simulated_ranks(replace(Config.from_environment(), simulate=layout))
    if len(chips) < 2:
        raise InvalidArgument(f"--layout {layout!r} has {len(chips)} ranks; a job needs at least 2")
    return len(chips)


def _train(script: Path, backend: str, epochs: int, ranks: int, variables: dict[str, str]) -> list[Epoch]:
    command = [sys.executable, str(script), "--backend", backend, "--epochs", str(epochs)]
    with tempfile.TemporaryFile() as output:
        status = local_ranks.run_ranks(command, ranks, variables=variables, output=output)
        output.seek(0)
        text = output.read().decode()
    found = [
        Epoch(float(loss), float(right)) for loss, right in re.findall(r"loss ([\d.]+), accuracy (.*)", text)
    ]
    if status or len(found) != epochs:
        raise click.ClickException(
            f'training over backend "{backend}" ended with exit status {status} after {len(found)} of '
            f"{epochs} epochs; the rank's own message stands above"
        )
    return found


def compare(mixed: list[Epoch], gloo: list[Epoch]) -> int:
    """Prints both; 1 when a loss differs."""
    click.echo("epoch  loss, mixed  loss, gloo  accuracy, mixed  accuracy, gloo")
    worst = 0.0
    for number, (ours, theirs) in enumerate(zip(mixed, gloo, strict=True), 1):
        worst = max(worst, abs(ours.loss - theirs.loss) / theirs.loss)
        click.echo(
            f"{number:<7}{ours.loss:<13.6f}{theirs.loss:<12.6f}{ours.accuracy:<17.4f}{theirs.accuracy:.4f}"
        )
    same = worst <= _TOLERANCE
    click.echo(
        f"\nlosses {'agree' if same else 'DIFFER'}: by {worst:.1e} at most, where {_TOLERANCE:.0e} is allowed"
    )
    return 0 if same else 1
