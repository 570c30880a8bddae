"""Runs a command in the machine: python -m tests.rdma_vm [--timeout S] -- COMMAND [ARGUMENT ...]

Without a command it installs and downloads what the machine needs.
"""

from __future__ import annotations

import argparse
import shlex
import sys

from .machine import Lost, Machine, TimedOut
from .packages import NoDownload, Unprepared


def main() -> int:
    """The command's exit status; 124: time limit; 125: the machine could not be made, or was lost; 126: could
    not be made for want of a download."""
    parser = argparse.ArgumentParser(prog="python -m tests.rdma_vm", description=__doc__)
    parser.add_argument("--timeout", type=float, default=300, help="seconds, boot included (300)")
    parser.add_argument("command", nargs="*")
    arguments = parser.parse_args()
    try:
        machine = Machine()
        if not arguments.command:
            return 0
        done = machine.run(shlex.join(arguments.command), arguments.timeout)
    except NoDownload as error:
        print(error, file=sys.stderr)
        return 126
    except (Unprepared, Lost) as error:
        print(error, file=sys.stderr)
        return 125
    except TimedOut as error:
        print(error, file=sys.stderr)
        return 124
    sys.stdout.write(done.stdout)
    sys.stderr.write(done.stderr)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
