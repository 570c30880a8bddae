"""`dicomm doctor`: what is wrong with a host, or between the hosts of a job, and what to do about it."""

from __future__ import annotations

import sys

import click

from dicomm.cli.doctor import finding


@click.command(name="doctor")
@click.option("--ranks", is_flag=True, help="Check between the ranks of the job whose launcher runs this.")
@click.option(
    "--timeout",
    default=30.0,
    show_default=True,
    type=click.FloatRange(min=0, min_open=True),
    help="With --ranks. Seconds that ranks have to meet, and messages to arrive.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(ranks: bool, timeout: float, as_json: bool) -> None:
    """Look for what will not work, or not as fast as it could, and say what to do.

    A finding is ok, a note or a problem; the exit status is 1 when there is a problem. With --ranks, run as
    the ranks of a job: `torchrun --nproc-per-node 8 --nnodes 2 ... -m dicomm doctor --ranks`. Rank 0 prints
    what was found between ranks, and what is not ok on their hosts.
    """
    if ranks:
        from dicomm.cli.doctor import between

        sys.exit(between.run(as_json, timeout))
    from dicomm.cli.doctor.checks import examine
    from dicomm.cli.doctor.machine import this_machine
    from dicomm.config import Config

    findings = examine(this_machine(Config.from_environment()))
    click.echo(finding.as_json(findings) if as_json else finding.as_text(findings))
    sys.exit(finding.exit_status(findings))
