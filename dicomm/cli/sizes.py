"""Sizes on the command line and in tables: 8, 64K, 1M, 2G (powers of 1024)."""

from __future__ import annotations

import click

from dicomm.config import parse_size


def format_size(count: int) -> str:
    """The shortest exact text that parse_size reads back."""
    for unit, shift in (("G", 30), ("M", 20), ("K", 10)):
        if count and count % (1 << shift) == 0:
            return f"{count >> shift}{unit}"
    return str(count)


def size_option(ctx: click.Context, param: click.Parameter, value: str | None) -> int | None:
    """click callback: the bytes of a size, None where none was given."""
    try:
        return None if value is None else parse_size(value)
    except ValueError as error:
        raise click.BadParameter(f"{value!r} is not {error}") from error
