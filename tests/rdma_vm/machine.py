"""Boots the machine for one command. QEMU emulates its processors, which works everywhere and is slow."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path

from .packages import PACKAGES
from .prepare import INITRAMFS, KERNEL, prepare

MEMORY = "4G"
PROCESSORS = 2

# maxcpus: the emulation can trap where one processor runs kernel text that another is patching, which happens
# mostly at boot; guest.sh starts the other processors afterwards. The rest saves time.
KERNEL_ARGUMENTS = (
    "console=ttyS0 quiet panic=-1 maxcpus=1 noreplace-smp mitigations=off nokaslr tsc=reliable "
    "random.trust_cpu=on rcupdate.rcu_expedited=1 cryptomgr.notests "
    "initcall_blacklist=load_system_certificate_list net.ifnames=0"
)
# Features of a processor that cost emulation time and give nothing here.
PROCESSOR = "max,la57=off,monitor=off,erms=off,smap=off,smep=off"


class Lost(Exception):
    """The machine ended before the command did; the text has the console's last lines."""


class TimedOut(Exception):
    """The time limit has passed; the text has what the command had printed until then."""


class Machine:
    """Boots anew for each command. Creating one installs and downloads what is missing; see prepare."""

    def __init__(self) -> None:
        prepare()

    def run(self, command: str, timeout: float = 120) -> subprocess.CompletedProcess[str]:
        """Runs a shell command as root, with this process's directory and environment.

        This host's files are there; what the command writes is lost, but what it prints comes back.
        timeout: seconds, of boot (10 to 20 on a busy core) and command together. Raises Lost or TimedOut.
        """
        with tempfile.TemporaryDirectory(prefix="dicomm-rdma-vm-") as name:
            shared = Path(name)
            for script in ("guest.sh", "wire.sh"):
                shutil.copy(Path(__file__).with_name(script), shared)
            (shared / "command").write_text(_with_surroundings(command))
            # setpriv has QEMU end with this process, however that ends.
            qemu = ["setpriv", "--pdeathsig", "KILL", *_qemu(shared)]
            try:
                said = subprocess.run(
                    qemu, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                    text=True, timeout=timeout,
                ).stdout  # fmt: skip
            except subprocess.TimeoutExpired:
                raise TimedOut(f"not done within {timeout:g} s\n{_ends(shared)}") from None
            status = _text(shared / "status")
            if not status.endswith("\n"):
                raise Lost(f"the machine was lost\n{said}{_ends(shared)}")
            return subprocess.CompletedProcess(
                command, int(status), _text(shared / "stdout"), _text(shared / "stderr")
            )


def _with_surroundings(command: str) -> str:
    exports = [
        f"export {key}={shlex.quote(value)}\n"
        for key, value in os.environ.items()
        if re.fullmatch(r"[A-Za-z_]\w*", key)
    ]
    return "".join(exports) + f"cd {shlex.quote(os.getcwd())} || exit\n{command}\n"


def _qemu(shared: Path) -> list[str]:
    def share(tag: str, path: str, options: str) -> list[str]:
        path = path.replace(",", ",,")  # QEMU's escape
        file_system = f"local,id={tag},path={path},security_model=none,multidevs=remap{options}"
        return ["-fsdev", file_system, "-device", f"virtio-9p-pci,fsdev={tag},mount_tag={tag}"]

    return [
        PACKAGES["qemu-system-x86"],
        *("-no-user-config", "-nodefaults", "-no-reboot", "-display", "none", "-nic", "none"),
        *("-M", "q35,usb=off,vmport=off", "-accel", "tcg,thread=multi,tb-size=512", "-cpu", PROCESSOR),
        *("-smp", str(PROCESSORS), "-m", MEMORY),
        *("-kernel", str(KERNEL), "-initrd", str(INITRAMFS), "-append", KERNEL_ARGUMENTS),
        *("-serial", f"file:{shared}/console"),
        *share("root", "/", ",readonly=on"),
        *share("machine", str(shared), ""),
    ]


def _ends(shared: Path) -> str:
    names = ("console", "stdout", "stderr")
    return "\n".join(f"--- the end of {name}\n{_text(shared / name)[-3000:]}" for name in names)


def _text(path: Path) -> str:
    return path.read_text(errors="replace") if path.exists() else ""
