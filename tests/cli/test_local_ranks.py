"""Local ranks: exit statuses, and that nothing survives its parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from dicomm.cli.local_ranks import Interrupted, run_ranks

RANK = "import os; rank = int(os.environ['RANK'])\n"


def python(code: str) -> list[str]:
    return [sys.executable, "-c", RANK + code]


def within(seconds: float, condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.02)
    return condition()


def alive(pid: int) -> bool:
    """Runs, that is: neither gone nor a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def test_ranks_know_who_they_are(tmp_path: Path) -> None:
    code = f"""
names = ("WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "OMP_NUM_THREADS")
open(f"{tmp_path}/{{rank}}", "w").write(" ".join(os.environ[name] for name in names))
"""
    assert run_ranks(python(code), 3) == 0
    found = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert found == {str(rank): f"3 {rank} 3 127.0.0.1 1" for rank in range(3)}


def test_the_first_failure_is_the_status_and_ends_the_others() -> None:
    start = time.monotonic()
    status = run_ranks(python("import time; exit(7) if rank == 1 else time.sleep(60)"), 2)
    assert status == 7
    assert time.monotonic() - start < 20


def test_a_rank_killed_by_a_signal() -> None:
    status = run_ranks(python("os.kill(os.getpid(), 9) if rank == 0 else None"), 2)
    assert status == 128 + signal.SIGKILL


def test_only_rank_0_writes_to_standard_output(capfd: pytest.CaptureFixture[str]) -> None:
    assert run_ranks(python("print('rank', rank)"), 3) == 0
    assert capfd.readouterr().out == "rank 0\n"


PARENT = """
import sys
from dicomm.cli.local_ranks import Interrupted, run_ranks
code = "import os, sys, time; open(sys.argv[1] + os.environ['RANK'], 'w').write(str(os.getpid()))"
code += "; time.sleep(60)"
try:
    run_ranks([sys.executable, "-c", code, sys.argv[1]], 2)
except Interrupted as signal:
    sys.exit(128 + signal.number)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_ranks_die_with_their_parent(number: signal.Signals, tmp_path: Path) -> None:
    parent = subprocess.Popen([sys.executable, "-c", PARENT, f"{tmp_path}/"])
    files = [tmp_path / "0", tmp_path / "1"]
    try:
        assert within(20, lambda: all(path.exists() and path.read_text() for path in files))
        ranks = [int(path.read_text()) for path in files]
        assert all(alive(pid) for pid in ranks)
        parent.send_signal(number)
        status = parent.wait(timeout=15)
        assert status == (-number if number == signal.SIGKILL else 128 + number)
        assert within(5, lambda: not any(alive(pid) for pid in ranks))
    finally:
        parent.kill()
        parent.wait()


def test_a_signal_is_an_exception_here_and_the_handlers_come_back() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(Interrupted, match="SIGTERM"):
        run_ranks(["sh", "-c", f"kill -TERM {os.getpid()}; sleep 30"], 1)
    assert signal.getsignal(signal.SIGTERM) is before
