"""A torch device made of host memory (host_device.cc), for tests of tensors that are not on the CPU."""

from __future__ import annotations

import types
from pathlib import Path

import torch
from torch.utils import cpp_extension

from support.foreign import compile_with

_LIBRARIES = ("c10", "torch_cpu", "torch")


def build(path: Path) -> None:
    """Compiles the device for this torch."""
    libraries = [f"{folder}/lib{name}.so" for folder in cpp_extension.library_paths() for name in _LIBRARIES]
    headers = [f"-isystem{folder}" for folder in cpp_extension.include_paths()]
    source = Path(__file__).with_suffix(".cc")
    compile_with([], *headers, "-O0", "-fPIC", "-shared", "-o", str(path), str(source), *libraries)


def use(library: str) -> None:
    """Makes it torch's accelerator in this process, "hostdev": two of them, the first one current."""
    torch.ops.load_library(library)
    torch.utils.rename_privateuse1_backend("hostdev")
    module = types.ModuleType("torch.hostdev")
    vars(module).update(
        is_available=lambda: True,
        device_count=lambda: 2,
        current_device=lambda: 0,
        is_initialized=lambda: True,
    )
    torch._register_device_module("hostdev", module)
