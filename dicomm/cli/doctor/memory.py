"""Checks of memory: what may be locked and shared, and what processes may do to one another's."""

from __future__ import annotations

from dicomm.cli.doctor import sysfs
from dicomm.cli.doctor.finding import NOTE, OK, PROBLEM, Finding
from dicomm.cli.doctor.machine import Machine

_CAP_IPC_LOCK, _CAP_SYS_PTRACE = 14, 19  # linux/capability.h
_LEAST_LOCKED = 1 << 30  # what dicomm itself registers is less; buffers of a program are not
_LEAST_SHM = 1 << 30
_UNLIMITED = (
    "ulimit -l unlimited; for good: '* - memlock unlimited' in /etc/security/limits.d/, "
    "LimitMEMLOCK=infinity in the unit of Slurm's daemon, --ulimit memlock=-1 of a container"
)


def locked_memory(machine: Machine) -> list[Finding]:
    """Registering memory with an RDMA device locks it."""
    name = "locked memory"
    if machine.memlock < 0:
        return [Finding(name, OK, "unlimited")]
    limit = f"at most {size(machine.memlock)} (RLIMIT_MEMLOCK)"
    if machine.capability(_CAP_IPC_LOCK):
        return [Finding(name, OK, f"{limit}, which does not bind this process: it has CAP_IPC_LOCK")]
    if not sysfs.ports(machine.root):
        return [Finding(name, OK, f"{limit}; only RDMA needs more, and there is no device")]
    if machine.memlock < _LEAST_LOCKED:
        found = f"{limit}: too little to register buffers with an RDMA device"
        return [Finding(name, PROBLEM, found, _UNLIMITED)]
    return [Finding(name, NOTE, f"{limit}: larger buffers cannot be registered", _UNLIMITED)]


def shared_memory(machine: Machine) -> list[Finding]:
    """The path shm needs a memfd; without process_vm_readv it copies large messages twice."""
    found = []
    if why := machine.syscalls["memfd_create"]:
        found.append(
            Finding(
                "shared memory",
                PROBLEM,
                f"memfd_create: {why}. Without it ranks of this host talk over tcp",
                "allow memfd_create in the container's seccomp profile",
            )
        )
    else:
        found.append(Finding("shared memory", OK, "memfd works"))
    return [*found, _copies(machine), _dev_shm(machine)]


def _copies(machine: Machine) -> Finding:
    name, slower = "copies between processes", "Large messages within this host are then copied twice"
    if why := machine.syscalls["process_vm_readv"]:
        advice = "allow process_vm_readv in the container's seccomp profile (Docker: --cap-add SYS_PTRACE)"
        return Finding(name, NOTE, f"process_vm_readv: {why}. {slower}", advice)
    scope = sysfs.read(machine.root / "proc/sys/kernel/yama/ptrace_scope")
    if scope in ("", "0") or (scope in ("1", "2") and machine.capability(_CAP_SYS_PTRACE)):
        return Finding(name, OK, "process_vm_readv works" + (f" (ptrace_scope {scope})" if scope else ""))
    found = f"kernel.yama.ptrace_scope is {scope}: processes may not read one another's memory. {slower}"
    return Finding(name, NOTE, found, "sysctl kernel.yama.ptrace_scope=0, if the host's rules allow it")


def _dev_shm(machine: Machine) -> Finding:
    if machine.dev_shm >= _LEAST_SHM:
        return Finding("/dev/shm", OK, size(machine.dev_shm))
    found = f"{size(machine.dev_shm)}; dicomm needs none, NCCL and torch's DataLoader often more than that"
    return Finding(
        "/dev/shm",
        NOTE,
        found,
        "Docker: --shm-size 8g or --ipc host; else mount -o remount,size=50% /dev/shm",
    )


def userfaultfd(machine: Machine) -> list[Finding]:
    """Through it the kernel tells a program that memory is unmapped, which a cache of registrations needs."""
    if not machine.syscalls["userfaultfd"]:
        return [Finding("userfaultfd", OK, "allowed")]
    if not machine.syscalls["userfaultfd of user mode"]:
        return [Finding("userfaultfd", OK, "allowed for faults in user mode")]
    switch = sysfs.read(machine.root / "proc/sys/vm/unprivileged_userfaultfd")
    found = f"{machine.syscalls['userfaultfd']} (vm.unprivileged_userfaultfd is {switch or 'not there'})"
    found += "; the kernel cannot say when registered memory is unmapped"
    advice = "allow userfaultfd in the container's seccomp profile; else sysctl vm.unprivileged_userfaultfd=1"
    return [Finding("userfaultfd", NOTE, found, advice)]


def size(count: int) -> str:
    """ "64 KiB", "15.6 GiB"."""
    number, unit = float(count), "bytes"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if number < 1024:
            break
        number, unit = number / 1024, larger
    return f"{number:.4g} {unit}"


CHECKS = (locked_memory, shared_memory, userfaultfd)
