"""What libibverbs says of RDMA devices: the library itself, and pyverbs as an independent view of them."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SONAME = "libibverbs.so.1"
# Places of enum ibv_port_state, of link layers and of GID types.
_STATES = ("NOP", "DOWN", "INIT", "ARMED", "ACTIVE", "ACTIVE_DEFER")
_LINK_LAYERS = ("", "InfiniBand", "Ethernet")
_KINDS = ("IB", "RoCE v1", "RoCE v2")


@dataclass(frozen=True)
class PortView:
    """A port. mtu: bytes, the active one. gids: index -> (GID as 32 hexadecimal digits, kind); libibverbs
    alone is not asked for link_layer and gids."""

    state: str
    mtu: int
    link_layer: str = ""
    gids: Mapping[int, tuple[str, str]] = field(default_factory=dict)


@dataclass(frozen=True)
class Verbs:
    """missing: the linker's reason when the library cannot be loaded, else "". version: of the library file.
    dmabuf: can it register dma-bufs? devices: name -> port number -> port. refused: name -> why the device
    could not be opened."""

    missing: str = ""
    version: str = ""
    dmabuf: bool = False
    devices: Mapping[str, Mapping[int, PortView]] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)


def ask_libibverbs(ports: Mapping[str, Sequence[int]]) -> Verbs:
    """Opens the library and every device. ports: the kernel's device -> port numbers."""
    try:
        library = ctypes.CDLL(SONAME, use_errno=True)
    except OSError as error:
        return Verbs(missing=str(error))
    devices: dict[str, dict[int, PortView]] = {}
    refused: dict[str, str] = {}
    listed = _list(library)
    for device in listed:
        name = library.ibv_get_device_name(device).decode()
        context = library.ibv_open_device(device)
        if not context:
            refused[name] = os.strerror(ctypes.get_errno())
            continue
        devices[name] = {number: _query(library, context, number) for number in ports.get(name, ())}
        library.ibv_close_device(ctypes.c_void_p(context))
    if listed:
        library.ibv_free_device_list(listed)
    return Verbs("", _file_version(), hasattr(library, "ibv_reg_dmabuf_mr"), devices, refused)


def _list(library: ctypes.CDLL) -> Any:
    """The array of ibv_device * that ibv_get_device_list returns; () without devices."""
    library.ibv_get_device_list.restype = ctypes.POINTER(ctypes.c_void_p)
    library.ibv_get_device_name.argtypes = library.ibv_open_device.argtypes = [ctypes.c_void_p]
    library.ibv_get_device_name.restype = ctypes.c_char_p
    library.ibv_open_device.restype = ctypes.c_void_p
    count = ctypes.c_int()
    found = library.ibv_get_device_list(ctypes.byref(count))
    return (
        ctypes.cast(found, ctypes.POINTER(ctypes.c_void_p * count.value))[0] if found and count.value else ()
    )


def _query(library: ctypes.CDLL, context: int, number: int) -> PortView:
    # struct ibv_port_attr begins with state, max_mtu and active_mtu, three ints; the rest is not read.
    attributes = (ctypes.c_int * 64)()
    if library.ibv_query_port(ctypes.c_void_p(context), ctypes.c_uint8(number), attributes):
        return PortView("", 0)
    return PortView(_STATES[attributes[0]], _mtu(attributes[2]))


def _mtu(code: int) -> int:
    """Bytes of an enum ibv_mtu; 0 where there is none."""
    return 128 << code if 1 <= code <= 5 else 0


def _file_version() -> str:
    """ "1.14.44.0" of the file /usr/lib/.../libibverbs.so.1.14.44.0 that this process has mapped."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    path = next((line.split()[-1] for line in lines if "/libibverbs.so" in line), "")
    return Path(path).name.partition(".so.")[2]


def ask_pyverbs() -> Mapping[str, Mapping[int, PortView]] | str:
    """Device -> port number -> port by pyverbs; "": not installed; else why it could not be asked."""
    try:
        from pyverbs import device as pyverbs
    except ImportError as error:
        return "" if isinstance(error, ModuleNotFoundError) and error.name == "pyverbs" else str(error)
    found = {}
    try:
        for device in pyverbs.get_device_list():
            name = device.name.decode()
            with pyverbs.Context(name=name) as context:
                numbers = range(1, context.query_device().phys_port_cnt + 1)
                ports = {number: context.query_port(number) for number in numbers}
                gids = context.query_gid_table(sum(port.gid_tbl_len for port in ports.values()))
                found[name] = {number: _by_pyverbs(port, number, gids) for number, port in ports.items()}
    except Exception as error:  # its classes have changed with its versions
        return f"{type(error).__name__}: {error}"
    return found


def _by_pyverbs(port: Any, number: int, gids: list[Any]) -> PortView:
    table = {
        entry.gid_index: (entry.gid_str().replace(":", ""), _KINDS[entry.gid_type])
        for entry in gids
        if entry.port_num == number
    }
    return PortView(_STATES[port.state], _mtu(port.active_mtu), _LINK_LAYERS[port.link_layer], table)
