"""`dicomm explain`: which algorithm serves an operation, by which rule, in which steps."""

from __future__ import annotations

import click

from dicomm.cli.bench_cases import DTYPES
from dicomm.cli.sizes import size_option


@click.command(name="explain")
@click.argument("op", required=False)
@click.argument("size", callback=size_option, required=False)
@click.option("--ranks", default=4, show_default=True, type=click.IntRange(min=1), help="How many ranks.")
@click.option(
    "--rank", default=0, show_default=True, type=click.IntRange(min=0), help="Whose steps to print."
)
@click.option("--dtype", default="float32", show_default=True, type=click.Choice(DTYPES))
@click.option("--algorithms", default="", help='Rules before the built-in ones, such as "allreduce:ring".')
def command(op: str | None, size: int | None, ranks: int, rank: int, dtype: str, algorithms: str) -> None:
    """Print the rule that wins for OP at SIZE and the steps of one rank; without OP, the whole table.

    SIZE is bytes with K, M or G, as in `dicomm explain allreduce 4M --ranks 8`.
    """
    from dicomm import _native

    opcodes = {name.lower(): code for name, code in _native.OPCODES.items()}
    if op is None:
        opcode = -1
    elif op.lower() in opcodes:
        opcode = opcodes[op.lower()]
        if size is None:
            raise click.UsageError(f"say how many bytes, as in: dicomm explain {op} 4M")
    else:
        raise click.UsageError(f"there is no operation {op!r}; choose one of {', '.join(opcodes)}")
    if rank >= ranks:
        raise click.UsageError(f"--rank {rank} is not one of {ranks} ranks (0 to {ranks - 1})")
    code = _native.DTYPES[dtype.upper()]
    count = (size or 0) // _native.DTYPE_SIZES[code]
    text = _native.text(_native.lib.dicomm_explain, opcode, count, code, rank, ranks, algorithms.encode())
    error = _native.last_exception()
    if text == str(error):  # how the library answers rules that it cannot read
        raise click.UsageError(text)
    click.echo(text.rstrip("\n"))
