"""Shell commands for the machine that run a job of dicomm's between its hosts."""

from __future__ import annotations

import json
import os
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from rdma_vm.machine import Machine

# A dicomm_tests to run in the machine: see docs/testing.md. Read before a test's environment is cleaned.
NATIVE_TESTS = os.environ.get("DICOMM_NATIVE_TESTS")
needs_native_tests = pytest.mark.skipif(not NATIVE_TESTS, reason="DICOMM_NATIVE_TESTS names no dicomm_tests")

PROGRAMS = Path(__file__).with_name("programs")


def job(program: str | Path, hosts: str = "AB") -> str:
    """Runs Python source, or a file of it that may import from tests/, as rank r on host hosts[r]."""
    return ranks(*(["-c", program] if isinstance(program, str) else [str(program)]), hosts=hosts)


def ranks(*arguments: str, hosts: str = "AB") -> str:
    """Runs Python with these arguments, as job() does."""
    python = [sys.executable, *arguments]
    lines = [
        f"export DICOMM_INIT=tcp://198.51.100.1:29471 DICOMM_SIZE={len(hosts)}",
        "export DICOMM_TIMEOUT=100 DICOMM_INIT_TIMEOUT=100",
        f"export PYTHONPATH={shlex.quote(str(PROGRAMS.parents[1]))} ranks= failed=0",
        *(
            f'DICOMM_RANK={rank} ip netns exec host{host} {shlex.join(python)} & ranks="$ranks $!"'
            for rank, host in enumerate(hosts)
        ),
        "for rank in $ranks; do wait $rank || failed=$?; done",
        "(exit $failed)",
    ]
    return "\n".join(lines) + "\n"


def native_tests(*arguments: str) -> str:
    """The shell command that runs them. For a test that needs_native_tests."""
    assert NATIVE_TESTS
    return shlex.join([str(Path(NATIVE_TESTS).resolve()), *arguments])


def said(vm: Machine, command: str, timeout: float) -> list[dict[str, Any]]:
    """What the ranks printed, a line of JSON each, when all of them have ended well."""
    done = vm.run(command, timeout)
    assert done.returncode == 0, done.stdout + done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]
