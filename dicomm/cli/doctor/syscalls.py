"""Whether the kernel, or a container's filter of system calls, lets this process do what dicomm wants to."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
from collections.abc import Callable

_USERFAULTFD = {"x86_64": 323, "aarch64": 282}
_USER_MODE_ONLY = 1


def probe() -> dict[str, str]:
    """Name of the call -> "" when it works, else the kernel's reason."""
    probes: dict[str, Callable[[], None]] = {
        "memfd_create": _memfd,
        "process_vm_readv": _readv,
        "userfaultfd": lambda: _userfaultfd(0),
        "userfaultfd of user mode": lambda: _userfaultfd(_USER_MODE_ONLY),
    }
    return {name: _reason(function) for name, function in probes.items()}


def _reason(function: Callable[[], None]) -> str:
    try:
        function()
    except OSError as error:
        return error.strerror or str(error)
    return ""


def _memfd() -> None:
    os.close(os.memfd_create("dicomm-doctor"))


class _Piece(ctypes.Structure):
    """struct iovec"""

    _fields_ = (("data", ctypes.c_void_p), ("bytes", ctypes.c_size_t))


def _readv() -> None:
    """Of this process's own memory: the filter is the same for a peer's, the ptrace rules are not."""
    source, target = ctypes.create_string_buffer(b"dicomm"), ctypes.create_string_buffer(7)
    ours, theirs = _Piece(ctypes.addressof(target), 7), _Piece(ctypes.addressof(source), 7)
    call = ctypes.CDLL(None, use_errno=True).process_vm_readv
    call.restype = ctypes.c_ssize_t
    one = ctypes.c_ulong(1)
    if call(os.getpid(), ctypes.byref(ours), one, ctypes.byref(theirs), one, ctypes.c_ulong(0)) != 7:
        raise _last()


def _userfaultfd(flags: int) -> None:
    number = _USERFAULTFD.get(platform.machine())
    if number is None:
        raise OSError(errno.ENOSYS, f"not tried on {platform.machine()}")
    fd = ctypes.CDLL(None, use_errno=True).syscall(ctypes.c_long(number), ctypes.c_long(os.O_CLOEXEC | flags))
    if fd < 0:
        raise _last()
    os.close(fd)


def _last() -> OSError:
    code = ctypes.get_errno()
    return OSError(code, os.strerror(code))
