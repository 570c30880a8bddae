"""The command group, and the one place where an error becomes a line on the terminal."""

from __future__ import annotations

import importlib
from typing import Any

import click

_COMMANDS = {
    "bench": "latency and bandwidth of every operation, checked, beside other libraries if asked",
    "doctor": "what is wrong with this host, or between the hosts of a job, and what to do",
    "demo": "train a DDP script on four local ranks, then measure; or on simulated chips",
    "explain": "which algorithm serves an operation, and why",
    "info": "versions, build, interfaces, transports, vendor libraries",
}


class _Commands(click.Group):
    """Imports a subcommand's module only when it is run: `dicomm info` must not need what `demo` needs."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        command: click.Command = importlib.import_module(f"dicomm.cli.{cmd_name}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(sorted(_COMMANDS.items()))

    def invoke(self, ctx: click.Context) -> Any:
        from dicomm.errors import DicommError

        try:
            return super().invoke(ctx)
        except DicommError as error:
            raise click.ClickException(str(error)) from error


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="dicomm")
def main() -> None:
    """Collective communication between ranks whose chips come from different vendors."""
