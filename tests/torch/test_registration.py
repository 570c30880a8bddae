"""The entry point, which runs in every process that imports torch."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.timeout(60)


def run(code: str, **env: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert not done.stderr, done.stderr
    return done.stdout


def test_importing_torch_registers_and_loads_nothing_native() -> None:
    code = """
import sys, threading, torch
import torch.distributed as dist
assert "dicomm" in dist.Backend.backend_list
assert dist.Backend.default_device_backend_map["cpu"] == "gloo"
assert dist.Backend.default_device_backend_map["cuda"] == "nccl"
assert "dicomm" not in dist.Backend.default_device_backend_map.values()
assert "dicomm._cffi" not in sys.modules and "numpy" not in {m for m in sys.modules if m == "dicomm._native"}
assert threading.active_count() == 1
"""
    run(code)


def test_without_the_entry_point_one_call_registers() -> None:
    code = """
import torch
import torch.distributed as dist
assert "dicomm" not in dist.Backend.backend_list
import dicomm.torch
dicomm.torch.register()
dicomm.torch.register()
dist.init_process_group("dicomm", store=dist.HashStore(), rank=0, world_size=1)
x = torch.ones(2)
dist.all_reduce(x)
dist.destroy_process_group()
print(x.tolist())
"""
    assert run(code, TORCH_DEVICE_BACKEND_AUTOLOAD="0").strip() == "[1.0, 1.0]"


def test_a_vendor_device_keeps_its_own_backend() -> None:
    code = """
import torch
import torch.distributed as dist
dist.Backend.register_backend("other", lambda *a: None, devices=["privateuseone"])
assert dist.Backend.default_device_backend_map["privateuseone"] == "other"
"""
    run(code)


def test_a_program_that_forgets_to_destroy_ends() -> None:
    code = """
import torch
import torch.distributed as dist
dist.init_process_group("dicomm", store=dist.HashStore(), rank=0, world_size=1)
work = dist.all_reduce(torch.ones(1), async_op=True)
future = work.get_future()
"""
    run(code)


def test_a_forked_child_makes_groups_of_its_own() -> None:
    code = """
import os
import torch
import torch.distributed as dist
dist.init_process_group("dicomm", store=dist.HashStore(), rank=0, world_size=1)
pid = os.fork()
if pid == 0:
    dist.destroy_process_group()
    dist.init_process_group("dicomm", store=dist.HashStore(), rank=0, world_size=1)
    dist.all_reduce(torch.ones(1))
    dist.destroy_process_group()
    os._exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
dist.all_reduce(torch.ones(1))
dist.destroy_process_group()
"""
    run(code)
