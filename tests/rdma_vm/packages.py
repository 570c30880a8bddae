"""The packages of Debian's that the machine needs on its host, and whose programs the guest runs."""

from __future__ import annotations

import glob
import os
import shutil
import subprocess
from pathlib import Path

KEYS = "/usr/share/keyrings/debian-archive-keyring.gpg"

# Package and a file that tells whether it is there.
PACKAGES = {
    "qemu-system-x86": "/usr/bin/qemu-system-x86_64",
    "busybox": "/bin/busybox",
    "zstd": "/usr/bin/zstd",
    "kmod": "/sbin/modinfo",
    "iproute2": "/sbin/ip",
    "debian-archive-keyring": KEYS,
    "ibverbs-providers": "/usr/lib/x86_64-linux-gnu/libibverbs/librxe-*.so",
    "ibverbs-utils": "/usr/bin/ibv_rc_pingpong",
    "perftest": "/usr/bin/ib_write_bw",
    "python3-pyverbs": "/usr/lib/python3/dist-packages/pyverbs/qp.*.so",
}


class Unprepared(Exception):
    """The machine cannot be made here; the text says what is missing."""


class NoDownload(Unprepared):
    """What is missing could not be fetched: there is no network, or no mirror of Debian's behind it."""


def install_packages() -> None:
    """Those that are missing. Needs root if any are."""
    missing = [package for package, file in PACKAGES.items() if not glob.glob(file)]
    if not missing:
        return
    install = ["apt-get", "install", "-y", "--no-install-recommends", *missing]
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise Unprepared("missing on this host; as root: " + " ".join(install))
    fetch("apt-get", "--error-on=any", "update")
    fetch(*install, "--download-only")
    run("env", "DEBIAN_FRONTEND=noninteractive", *install)


def run(*command: str, cwd: Path | None = None) -> str:
    """What it prints. Raises Unprepared when it fails."""
    done = subprocess.run(
        command, cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=600
    )
    if done.returncode:
        raise Unprepared(f"{' '.join(command)} failed:\n{(done.stdout + done.stderr)[-2000:]}")
    return done.stdout


def fetch(*command: str, cwd: Path | None = None) -> None:
    """A command that downloads."""
    try:
        run(*command, cwd=cwd)
    except (Unprepared, subprocess.TimeoutExpired) as error:
        raise NoDownload(str(error)) from None
