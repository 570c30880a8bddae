"""What the machine is made of: packages of the host, and one of Debian's kernels with the modules it needs.

The kernel is the newest of KERNEL_SUITE: there a Soft-RoCE device can live in a network namespace, which it
cannot in 6.12, the kernel of Debian 13. It is fetched once, checked by apt against Debian's keys, and kept in
${XDG_CACHE_HOME:-~/.cache}/dicomm/rdma_vm until this file or init.sh changes or the folder is deleted.
"""

from __future__ import annotations

import fcntl
import hashlib
import lzma
import os
import platform
import re
import shutil
import struct
import subprocess
import tempfile
from pathlib import Path

from .packages import KEYS, Unprepared, fetch, install_packages, run

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dicomm/rdma_vm"
KERNEL = CACHE / "kernel/vmlinux"
INITRAMFS = CACHE / "kernel/initramfs"

MIRROR = "http://deb.debian.org/debian"
KERNEL_SUITE = "trixie-backports"

# With what they depend on. Those that a kernel has built in are passed over.
MODULES = ("virtio_pci", "9pnet_virtio", "9p", "overlay", "dummy", "veth", "rdma_ucm", "rdma_rxe", "udmabuf")


def prepare() -> None:
    """Installs and downloads what is missing. Installing needs root, the rest does not. Raises Unprepared."""
    if platform.machine() != "x86_64":
        raise Unprepared(f"the RDMA machine is an x86-64 one, this host is {platform.machine()}")
    CACHE.mkdir(parents=True, exist_ok=True)
    with open(CACHE / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        install_packages()
        sources = [Path(__file__), Path(__file__).with_name("init.sh")]
        version = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()
        made_by = KERNEL.parent / "made-by"
        if not made_by.exists() or made_by.read_text() != version:
            with tempfile.TemporaryDirectory(dir=CACHE) as scratch:
                _make(Path(scratch))
            made_by.write_text(version)


def _make(scratch: Path) -> None:
    """Writes KERNEL and INITRAMFS."""
    tree = scratch / "tree"
    for package in _download_kernel(scratch):
        run("dpkg-deb", "-x", str(package), str(tree))
    modules = {path.name.removesuffix(".ko.xz").replace("-", "_"): path for path in tree.rglob("*.ko.xz")}
    if "rdma_rxe" not in modules:
        raise Unprepared(f"the kernel of {KERNEL_SUITE} has no Soft-RoCE (rdma_rxe)")
    order: list[str] = []
    for name in MODULES:
        _append_with_dependencies(name, modules, order)

    root = scratch / "initramfs"
    for folder in ("bin", "dev", "lower", "modules", "new", "proc", "sys", "upper"):
        (root / folder).mkdir(parents=True)
    for number, name in enumerate(order):
        image = lzma.decompress(modules[name].read_bytes())  # here, since the guest is slow
        (root / f"modules/{number:02}-{name}.ko").write_bytes(image)
    shutil.copy(Path(__file__).with_name("init.sh"), root / "init")
    (root / "init").chmod(0o755)
    shutil.copy("/bin/busybox", root / "bin/busybox")
    # A static busybox has no libraries, and ldd fails.
    libraries = subprocess.run(["ldd", "/bin/busybox"], capture_output=True, text=True)
    for library in re.findall(r"/\S+\.so\S*", libraries.stdout):
        place = root / library[1:]
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(library, place)

    shutil.rmtree(KERNEL.parent, ignore_errors=True)
    KERNEL.parent.mkdir()
    KERNEL.write_bytes(_unpacked(next(tree.rglob("vmlinuz*")).read_bytes()))
    pack = "find . | busybox cpio -o -H newc"
    with open(INITRAMFS, "wb") as archive:
        subprocess.run(["sh", "-c", pack], cwd=root, stdout=archive, stderr=subprocess.DEVNULL, check=True)


def _unpacked(image: bytes) -> bytes:
    """The kernel inside a bzImage, which QEMU can start as well: the slow guest need not unpack it.

    The header's fields are those of the kernel's Documentation/arch/x86/boot.rst.
    """
    sectors = image[0x1F1]
    offset, length = struct.unpack_from("<II", image, 0x248)
    start = 512 * (sectors + 1) + offset
    # zstd ends with an error, for behind the data stands its size.
    unpack = subprocess.run(["zstd", "-dcq"], input=image[start : start + length], capture_output=True)
    if not unpack.stdout.startswith(b"\x7fELF"):
        raise Unprepared(f"the kernel of {KERNEL_SUITE} is not packed with zstd")
    return unpack.stdout


def _append_with_dependencies(name: str, modules: dict[str, Path], order: list[str]) -> None:
    if name in order or name not in modules:
        return
    for needed in run("modinfo", "-F", "depends", str(modules[name])).strip().split(","):
        _append_with_dependencies(needed.replace("-", "_"), modules, order)
    order.append(name)


def _download_kernel(scratch: Path) -> list[Path]:
    """The packages' files. apt works in folders of its own, so that the host's lists stay as they are."""
    (scratch / "sources.list").write_text(f"deb [signed-by={KEYS}] {MIRROR} {KERNEL_SUITE} main\n")
    for folder in ("lists/partial", "cache/archives/partial"):
        (scratch / folder).mkdir(parents=True)
    settings = {
        "Dir::Etc::sourcelist": scratch / "sources.list",
        "Dir::Etc::sourceparts": "/dev/null",
        "Dir::State::lists": scratch / "lists",
        "Dir::Cache": scratch / "cache",
        "APT::Sandbox::User": "root",  # the folders are not readable for apt's own user
        "APT::Architecture": "amd64",
    }
    options = [word for key, value in settings.items() for word in ("-o", f"{key}={value}")]
    fetch("apt-get", *options, "--error-on=any", "update")
    kernel = re.search(
        r"Depends: linux-image-(\S+)", run("apt-cache", *options, "depends", "linux-image-amd64")
    )
    if kernel is None:
        raise Unprepared(f"linux-image-amd64 of {KERNEL_SUITE} names no kernel")
    parts = [f"linux-{part}-{kernel[1]}" for part in ("binary", "modules")]
    fetch("apt-get", *options, "download", *parts, cwd=scratch)
    return sorted(scratch.glob("*.deb"))
