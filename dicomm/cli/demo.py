"""`dicomm demo`: an unmodified DDP script over backend "dicomm", then a few figures; or a mixed job."""

from __future__ import annotations

import sys
import time
from importlib.util import find_spec
from pathlib import Path

import click

from dicomm.cli import demo_mixed, local_ranks

_SCRIPT = Path(__file__).with_name("ddp_digits.py")
_NEEDED = {  # module -> how to get it
    "torch": "pip install torch --index-url https://download.pytorch.org/whl/cpu",
    "sklearn": "pip install scikit-learn",
}


@click.command(name="demo")
@click.option("--ranks", type=click.IntRange(2), help="Local ranks that train.  [default: 4]")
@click.option("--epochs", default=8, show_default=True, type=click.IntRange(1), help="Passes over the data.")
@click.option("--backend", help="torch.distributed backend to train over.  [default: dicomm]")
@click.option("--mixed", is_flag=True, help="Simulate chips of several brands, and train beside gloo.")
@click.option("--layout", help="With --mixed. BRAND:RANKS,...  [default: alpha:2,beta:2]")
def command(ranks: int | None, epochs: int, backend: str | None, mixed: bool, layout: str | None) -> None:
    """Train on scikit-learn's digits with DistributedDataParallel on local ranks, then measure on two.

    With --mixed, the ranks have simulated chips: print the islands, one allreduce with its steps and what it
    moved on which way, and losses beside gloo's; exit with 1 when they differ.
    """
    if layout is not None and not mixed:
        raise click.UsageError("only --mixed has a --layout")
    if mixed and (ranks is not None or backend is not None):
        raise click.UsageError("--mixed trains over dicomm and gloo, on the ranks of --layout")
    for module, way in _NEEDED.items():
        if find_spec(module) is None:
            raise click.ClickException(f"the demo needs {module}, which is not installed here: {way}")
    try:
        if mixed:
            sys.exit(demo_mixed.run(layout or "alpha:2,beta:2", _SCRIPT, epochs))
        sys.exit(_run(ranks or 4, epochs, backend or "dicomm"))
    except local_ranks.Interrupted as signal:
        click.echo(str(signal), err=True)
        sys.exit(128 + signal.number)


def _run(ranks: int, epochs: int, backend: str) -> int:
    click.echo(f'{ranks} local ranks train {_SCRIPT.name} with DistributedDataParallel, backend "{backend}"')
    start = time.monotonic()
    script = [sys.executable, str(_SCRIPT), "--backend", backend, "--epochs", str(epochs)]
    status = local_ranks.run_ranks(script, ranks)
    if status:
        click.echo(
            f"the training failed with exit status {status}; the rank's own message stands above", err=True
        )
        return status
    click.echo(f"trained in {time.monotonic() - start:.1f} s, starting the ranks included")
    figures = local_ranks.own_command(
        "bench", "latency", "bandwidth", "allreduce", "-b", "8", "-e", "2M", "-f", "64"
    )
    return local_ranks.run_ranks(figures, 2)
