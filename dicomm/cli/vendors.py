"""Vendor libraries dicomm can name, as a table; `dicomm info` says which of them this machine has."""

from __future__ import annotations

import ctypes
import sysconfig
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class VendorLibrary:
    name: str
    chip: str
    soname: str
    source: str  # how to get it
    wheel: str = ""  # where a wheel puts it, below site-packages
    used: bool = True  # by this release; else it is only looked for


VENDOR_LIBRARIES = (
    VendorLibrary(
        "NCCL", "NVIDIA", "libnccl.so.2", "pip install nvidia-nccl-cu13", "nvidia/nccl/lib/libnccl.so.2"
    ),
    VendorLibrary("RCCL", "AMD", "librccl.so.1", "ROCm's package rccl"),
    VendorLibrary(
        "oneCCL", "Intel", "libccl.so.1", "pip install oneccl, or Intel's oneAPI packages", used=False
    ),
    VendorLibrary("HCCL", "Huawei Ascend", "libhccl.so", "the CANN toolkit; source its set_env.sh"),
    VendorLibrary("MCCL", "Moore Threads, MetaX", "libmccl.so", "the MUSA toolkit, or MetaX's MACA toolkit"),
    VendorLibrary("CNCL", "Cambricon", "libcncl.so", "the Neuware toolkit", used=False),
    VendorLibrary("IXCCL", "Iluvatar CoreX", "libnccl.so", "the CoreX toolkit; its library has NCCL's name"),
    VendorLibrary("BKCL", "Kunlunxin", "libbkcl.so", "the XPU toolkit", used=False),
    VendorLibrary(
        "libibverbs", "RDMA cards", "libibverbs.so.1", "apt-get install ibverbs-providers", used=False
    ),
)


def find(library: VendorLibrary) -> str | None:
    """None when the library can be loaded, from a wheel or by the linker; else the linker's reason."""
    packaged = Path(sysconfig.get_path("purelib"), library.wheel)
    try:
        ctypes.CDLL(str(packaged) if packaged.is_file() else library.soname)
    except OSError as error:
        return str(error)
    return None
