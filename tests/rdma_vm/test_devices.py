"""The machine itself: two hosts, a Soft-RoCE device each, seen with rdma-core and perftest."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import pytest

from rdma_vm.machine import Lost, Machine, TimedOut

pytestmark = [pytest.mark.rdma_vm, pytest.mark.timeout(600)]  # the first one downloads


def test_output_and_status_come_back(vm: Machine, tmp_path: Path) -> None:
    """So do the directory, the environment and the host's files; what is written stays inside."""
    file = tmp_path / "a file"
    file.write_text("host")
    name = shlex.quote(str(file))
    done = vm.run(f"cat {name}; echo guest >{name}; cat {name}; echo $$ >&2; pwd; exit 7")
    assert done.stdout == f"hostguest\n{Path.cwd()}\n"
    assert done.stderr.strip().isdigit()
    assert done.returncode == 7
    assert file.read_text() == "host"


def test_an_end_without_a_status_is_no_result(vm: Machine) -> None:
    with pytest.raises(Lost, match="before the end"):
        vm.run("echo before the end; busybox poweroff -f")
    with pytest.raises(TimedOut, match="within 1 s"):
        vm.run("true", timeout=1)


def test_each_host_has_a_device_of_its_own(vm: Machine) -> None:
    done = vm.run("for h in A B; do ip netns exec host$h ibv_devinfo -v; done; ibv_devinfo -v")
    assert re.findall(r"hca_id:\s*(\S+)", done.stdout) == ["rxeA", "rxeB", "rxe0"]
    assert re.findall(r"\sstate:\s*(\S+)", done.stdout) == ["PORT_ACTIVE"] * 3
    assert re.findall(r"active_mtu:\s*(\S+)", done.stdout) == ["4096"] * 3
    gids = re.findall(r"GID\[ *1\]:\s*::ffff:([0-9.]+), RoCE v2", done.stdout)
    assert gids == ["198.51.100.1", "198.51.100.2", "192.0.2.1"]


def test_messages_and_writes_between_the_hosts(vm: Machine) -> None:
    """ibv_rc_pingpong checks what it receives (-c)."""
    done = vm.run(
        """
        set -e
        pair() { # port, program and arguments: a server on host A, a client on host B
            port=$1
            shift
            ip netns exec hostA "$@" -d rxeA &
            until ip netns exec hostA ss -Htln sport = :$port | grep -q .; do sleep 0.1; done
            ip netns exec hostB "$@" -d rxeB 198.51.100.1
            wait $!
        }
        pair 18515 ibv_rc_pingpong -g 1 -m 4096 -s 4096 -n 100 -c
        pair 18515 ib_write_bw -x 1 -F -s 65536 -n 100
        """
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("100 iters in") == 2  # at both ends
    figures = re.findall(r"^ *65536 +100 +[0-9.]+ +([0-9.]+)", done.stdout, re.MULTILINE)
    assert figures, done.stdout
    assert all(float(megabytes) > 0.1 for megabytes in figures)


def test_a_dma_buffer_cannot_be_registered(vm: Machine) -> None:
    """Soft-RoCE knows no memory of devices, so here it is the way around it that runs."""
    done = vm.run(f"{sys.executable} {shlex.quote(str(Path(__file__).with_name('register_dmabuf.py')))}")
    assert done.stdout == "Operation not supported\n", done.stderr
