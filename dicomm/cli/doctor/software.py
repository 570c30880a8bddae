"""Checks of what is installed: dicomm, torch's plugin, vendors' libraries, the kernel."""

from __future__ import annotations

from dicomm.cli.doctor import sysfs
from dicomm.cli.doctor.finding import NOTE, OK, PROBLEM, Finding
from dicomm.cli.doctor.machine import Machine
from dicomm.cli.doctor.verbs import SONAME

_PACKAGES = ("torch", "numpy", "mpi4py")
# The file of the first chip in /dev -> the vendor's library in dicomm.cli.vendors.
_CHIPS = {"nvidia0": "NCCL", "kfd": "RCCL", "davinci0": "HCCL", "iluvatar0": "IXCCL"}
# Kernels read these without a system call; another source costs one, a microsecond or so.
_FAST_CLOCKS = ("tsc", "kvm-clock", "hyperv_clocksource_tsc_page", "arch_sys_counter")


def versions(machine: Machine) -> list[Finding]:
    package, build = machine.info["versions"], machine.info["build"]
    others = [f"{name} {package[name]}" for name in _PACKAGES if package.get(name)]
    found = f"dicomm {build['version']} (ABI {build['abi']}), " + ", ".join(
        [f"Python {package['python']}", *others]
    )
    if package["dicomm"] != build["version"]:
        found = f"the package is dicomm {package['dicomm']}, its native library {build['version']}"
        return [Finding("versions", PROBLEM, found, "pip install --force-reinstall dicomm")]
    return [Finding("versions", OK, found)]


def torch_plugin(machine: Machine) -> list[Finding]:
    state, torch = machine.info["torch_plugin"]["state"], machine.info["torch_plugin"].get("torch")
    if machine.info["versions"]["torch"] is None:
        return [Finding("torch plugin", OK, 'torch is not installed; only backend="dicomm" needs it')]
    if state == "ready":
        return [Finding("torch plugin", OK, f"ready for torch {torch}")]
    if state.startswith("will be compiled"):
        return [Finding("torch plugin", NOTE, state, "python -m dicomm.torch.build compiles it now")]
    return [
        Finding(
            "torch plugin", PROBLEM, state, "install a torch that dicomm knows: pip install dicomm[torch]"
        )
    ]


def vendor_libraries(machine: Machine) -> list[Finding]:
    """A library is missed where its vendor's chip is."""
    libraries = machine.info["vendor_libraries"]
    found = [
        name
        for name, library in libraries.items()
        if library["missing"] is None and library["library"] != SONAME  # which has a finding of its own
    ]
    missed = [
        Finding(
            f"library {name}",
            PROBLEM,
            f"/dev/{chip} is there, and {libraries[name]['library']} cannot be loaded: "
            f"{libraries[name]['missing']}",
            f"for {libraries[name]['chip']} chips: {libraries[name]['get']}",
        )
        for chip, name in _CHIPS.items()
        if (machine.root / "dev" / chip).exists() and libraries[name]["missing"] is not None
    ]
    return [*missed, Finding("vendor libraries", OK, ", ".join(found) or "none, and no chip that needs one")]


def kernel(machine: Machine) -> list[Finding]:
    """From 5.12 on a fork copies pinned pages at once: the parent keeps those that a device writes to."""
    if machine.kernel_version >= (5, 12):
        return [Finding("kernel", OK, f"{machine.kernel}: programs that registered memory may fork")]
    return [
        Finding(
            "kernel",
            NOTE,
            f"{machine.kernel}: after a fork, RDMA devices may write to pages that the parent no longer sees",
            "a kernel of 5.12 or newer; else set RDMAV_FORK_SAFE=1, and start processes before dicomm.init()",
        )
    ]


def clock_source(machine: Machine) -> list[Finding]:
    path = machine.root / "sys/devices/system/clocksource/clocksource0"
    current, available = sysfs.read(path / "current_clocksource"), sysfs.read(path / "available_clocksource")
    if current in _FAST_CLOCKS:
        return [Finding("clock source", OK, current)]
    found = f"{current or 'not known'} (available: {available or 'not known'})"
    found += "; dicomm reads the clock often, and this one costs a system call each time"
    return [Finding("clock source", NOTE, found, "boot with clocksource=tsc where the processor's is stable")]


CHECKS = (versions, torch_plugin, vendor_libraries, kernel, clock_source)
