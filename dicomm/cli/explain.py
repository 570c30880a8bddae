"""`dicomm explain`: which algorithm serves an operation, by which rule, in which steps or in what time."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import click

from dicomm.cli.bench_cases import DTYPES
from dicomm.cli.sizes import size_option

# Fields of dicomm_machine, whose defaults the answer prints.
_MACHINE = {
    "local_latency_us": "Inside a host, from a message's leaving to its arrival.",
    "latency_us": "The same, between hosts.",
    "overhead_us": "What a message costs its sender and its receiver each.",
    "local_bandwidth_gbs": "Out of and into a rank, inside a host (1e9 bytes/s).",
    "bandwidth_gbs": "The same, between hosts.",
    "nic_gbps": "Out of and into a host (1e9 bits/s).",
    "copy_gbs": "Copies within a rank.",
    "reduce_gbs": "Reductions, bytes of the result.",
}
_MOST_RANKS = 16384


def _machine_options(function: Callable[..., Any]) -> Callable[..., Any]:
    for field, text in reversed(_MACHINE.items()):
        name = "--" + field.replace("_", "-")
        number = click.FloatRange(min=0, min_open=True)
        function = click.option(name, field, type=number, help=f"With --simulate. {text}")(function)
    return function


def _hosts_option(ctx: click.Context, param: click.Parameter, value: str | None) -> list[int] | None:
    """[host of each rank] of "8,8,4" or "2x8,4"."""
    if value is None:
        return None
    hosts: list[int] = []
    count = 0
    for word in value.split(","):
        match = re.fullmatch(r"\s*(?:(\d{1,5})x)?(\d{1,5})\s*", word)
        times, ranks = (int(match[1] or 1), int(match[2])) if match else (0, 0)
        if times * ranks == 0:
            raise click.BadParameter(f"{value!r} is not a list of ranks per host, such as 8,8,4 or 128x8")
        if len(hosts) + times * ranks > _MOST_RANKS:
            raise click.BadParameter(f"{value!r} has more than {_MOST_RANKS} ranks")
        for _ in range(times):
            hosts += [count] * ranks
            count += 1
    return hosts


def _islands_option(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """A letter per rank, as in "AABBa"."""
    if value is None:
        return None
    if not re.fullmatch(rf"[A-Za-z]{{1,{_MOST_RANKS}}}", value):
        raise click.BadParameter(
            f"{value!r} is not a letter per rank, such as AABB; small letters are ranks without a chip"
        )
    return value


def _of_letters(letters: str) -> tuple[list[int], list[int]]:
    """(host, island) of each rank; island -1: the processors of the host that the small letter names."""
    hosts = [0 if letter.isupper() else ord(letter) for letter in letters]
    return hosts, [ord(letter) - ord("A") if letter.isupper() else -1 for letter in letters]


@click.command(name="explain")
@click.argument("op", required=False)
@click.argument("size", callback=size_option, required=False)
@click.option(
    "--ranks",
    type=click.IntRange(1, _MOST_RANKS),
    help="How many ranks.  [default: 4, or those of --hosts or --islands]",
)
@click.option("--hosts", callback=_hosts_option, help="Ranks per host: 8,8,4; 128x8 is 128 hosts of 8.")
@click.option(
    "--islands",
    callback=_islands_option,
    help="A letter per rank: of one capital letter, an island with a library, all on one host; of one small "
    "letter, the processors of a host. --hosts puts them on others.",
)
@click.option(
    "--reducers",
    default=0,
    type=click.IntRange(min=0),
    help="So many ranks, the last ones, only help to reduce.",
)
@click.option(
    "--rank", default=0, show_default=True, type=click.IntRange(min=0), help="Whose steps to print."
)
@click.option("--dtype", default="float32", show_default=True, type=click.Choice(DTYPES))
@click.option("--reduce", default="sum", show_default=True, help="Of reductions: sum, max, avg ...")
@click.option("--algorithms", default="", help='Rules before the built-in ones, such as "allreduce:ring".')
@click.option("--simulate", is_flag=True, help="Predict the time of every algorithm; list no steps.")
@_machine_options
@click.option("--eager", callback=size_option, help="With --simulate. Longer messages ask first.")
def command(
    op: str | None,
    size: int | None,
    ranks: int | None,
    hosts: list[int] | None,
    islands: str | None,
    reducers: int,
    rank: int,
    dtype: str,
    reduce: str,
    algorithms: str,
    simulate: bool,
    eager: int | None,
    **numbers: float | None,
) -> None:
    """Print the rule that wins for OP at SIZE and the steps of one rank; without OP, the whole table.

    SIZE is bytes with K, M or G, as in `dicomm explain allreduce 4M --ranks 8`. With --simulate, print how
    long all ranks take by a model of the machine, beside what no algorithm can beat, as in
    `dicomm explain allreduce 4M --hosts 8,8,4 --simulate --nic-gbps 25`. With --islands, the steps of ranks
    whose buffers are on chips of several vendors: `dicomm explain allreduce 4M --islands AABB`. With
    --reducers, of a job with ranks that only help: `dicomm explain allreduce 4M --ranks 6 --reducers 2`.
    """
    from dicomm import _native
    from dicomm.errors import InvalidArgument, NotSupported

    opcodes = {name.lower(): code for name, code in _native.OPCODES.items()}
    if op is None:
        opcode = -1
    elif op.lower() in opcodes:
        opcode = opcodes[op.lower()]
        if size is None:
            raise click.UsageError(f"say how many bytes, as in: dicomm explain {op} 4M")
    else:
        raise click.UsageError(f"there is no operation {op!r}; choose one of {', '.join(opcodes)}")
    for option, of_ranks in (("--hosts", hosts), ("--islands", islands)):
        if of_ranks and ranks is not None and ranks != len(of_ranks):
            raise click.UsageError(
                f"{option} has {len(of_ranks)} ranks and --ranks says {ranks}; leave --ranks out"
            )
    if hosts and islands and len(hosts) != len(islands):
        raise click.UsageError(f"--hosts has {len(hosts)} ranks and --islands {len(islands)}")
    ranks = len(hosts or islands or ()) or ranks or 4
    on_hosts, on_islands = _of_letters(islands) if islands else (None, None)
    reduces = {name.lower(): number for name, number in _native.REDUCES.items()}
    if reduce not in reduces:
        raise click.UsageError(f"there is no reduction {reduce!r}; choose one of {', '.join(reduces)}")
    if rank >= ranks:
        raise click.UsageError(f"--rank {rank} is not one of {ranks} ranks (0 to {ranks - 1})")
    if reducers >= ranks:
        raise click.UsageError(f"--reducers {reducers} of {ranks} ranks leaves none that has data")
    machine = {field: number for field, number in numbers.items() if number is not None}
    if eager is not None:
        machine["eager_bytes"] = eager
    if machine and not simulate:
        raise click.UsageError(f"{', '.join(machine)}: only --simulate asks about a machine")
    code = _native.DTYPES[dtype.upper()]
    count = (size or 0) // _native.DTYPE_SIZES[code]
    try:
        text = _native.explain(
            opcode,
            count,
            code,
            rank,
            ranks,
            algorithms,
            hosts=hosts or on_hosts,
            islands=on_islands,
            reduce=reduces[reduce],
            machine=machine if simulate else None,
            reducers=[int(r >= ranks - reducers) for r in range(ranks)] if reducers else None,
        )
    except (InvalidArgument, NotSupported) as error:
        raise click.UsageError(str(error)) from error
    click.echo(text.rstrip("\n"))
