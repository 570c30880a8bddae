"""The ``dicomm`` command. Each subcommand stands in a module of its own."""

from __future__ import annotations

from dicomm.cli.main import main

__all__ = ["main"]
