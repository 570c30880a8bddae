"""`ranks(size, function, **arguments)` runs a test file's function on ranks that are processes."""

from __future__ import annotations

import inspect
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")


@pytest.fixture(scope="session")
def rank_server() -> Iterator[subprocess.Popen[str]]:
    server = subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("rank_server.py"))],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[1])},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    yield server
    assert server.stdin
    server.stdin.close()
    server.wait(10)


@pytest.fixture
def ranks(rank_server: subprocess.Popen[str]) -> Callable[..., list[Any]]:
    """function(rank, size, **arguments) runs in a group of `backend` (None: it makes its own groups) with the
    variables of `env`; what it returns (as JSON) comes back as a list by rank. Fails with the output of the
    ranks that raise, or that have not ended after `timeout` seconds."""

    def run(
        size: int,
        function: Callable[..., Any],
        *,
        timeout: float = 30,
        backend: str | None = "dicomm",
        env: dict[str, str] | None = None,
        **arguments: Any,
    ) -> list[Any]:
        job = {
            "file": inspect.getfile(function),
            "function": function.__name__,
            "size": size,
            "timeout": timeout,
            "backend": backend,
            "env": {"DICOMM_INTERFACE": "127.0.0.1", "GLOO_SOCKET_IFNAME": "lo", **(env or {})},
            "arguments": arguments,
        }
        assert rank_server.stdin
        assert rank_server.stdout
        rank_server.stdin.write(json.dumps(job) + "\n")
        rank_server.stdin.flush()
        answer = json.loads(rank_server.stdout.readline())
        assert not answer["problems"], "\n".join(answer["problems"])
        return answer["results"]

    return run


@pytest.fixture
def unused_port() -> int:
    """Free now; the test that serves there binds it at once."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
