"""`dicomm doctor` on hosts made of files: whole findings."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from dicomm.cli.doctor import finding, memory, network, rdma, rdma_more, software
from dicomm.cli.doctor.checks import examine
from dicomm.cli.doctor.finding import NOTE, OK, PROBLEM, Finding
from dicomm.cli.doctor.verbs import PortView, Verbs
from support import machines
from support.machines import machine, port, verbs, write

INSTALL = "apt-get install ibverbs-providers, or dnf install libibverbs"
UNLIMITED = (
    "ulimit -l unlimited; for good: '* - memlock unlimited' in /etc/security/limits.d/, "
    "LimitMEMLOCK=infinity in the unit of Slurm's daemon, --ulimit memlock=-1 of a container"
)


def test_a_host_without_rdma_is_healthy(tmp_path: Path) -> None:
    assert examine(machine(tmp_path)) == [
        Finding("versions", OK, "dicomm 0.1.0 (ABI 2), Python 3.12.3, torch 2.13.0, numpy 2.1.0"),
        Finding("torch plugin", OK, "ready for torch 2.13.0"),
        Finding("vendor libraries", OK, "none, and no chip that needs one"),
        Finding("kernel", OK, "6.1.0-18-amd64: programs that registered memory may fork"),
        Finding("clock source", OK, "tsc"),
        Finding(
            "network",
            OK,
            "dicomm listens on 10.1.2.3 (eth0)",
            "",
            (
                "lo: unknown, MTU 65536, 127.0.0.1 ::1",
                "eth0: up, MTU 9000, 100 Gbit/s, 10.1.2.3 2001:db8::3",
            ),
        ),
        Finding("locked memory", OK, "unlimited"),
        Finding("shared memory", OK, "memfd works"),
        Finding("copies between processes", OK, "process_vm_readv works (ptrace_scope 0)"),
        Finding("/dev/shm", OK, "64 GiB"),
        Finding("userfaultfd", OK, "allowed"),
        Finding("libibverbs", OK, "not installed; only RDMA needs it, and there is no device"),
        Finding("RDMA devices", OK, "none: between hosts dicomm uses tcp"),
        Finding("pyverbs", OK, "not installed; it would be a second opinion on RDMA devices"),
        Finding("RDMA to chips", OK, "does not matter without an RDMA device"),
    ]


ROCE_TABLE = (
    "index 0, RoCE v1, fe80::e42:a1ff:fe00:1 on eth0",
    "index 1, RoCE v2, fe80::e42:a1ff:fe00:1 on eth0",
    "index 2, RoCE v1, 2001:db8::3 on eth0",
    "index 3, RoCE v2, 2001:db8::3 on eth0",
    "index 4, RoCE v1, 10.1.2.3 on eth0",
    "index 5, RoCE v2, 10.1.2.3 on eth0",
)


def test_a_roce_port(tmp_path: Path) -> None:
    port(tmp_path, "mlx5_0")
    machines.device_file(tmp_path, "mlx5_0", "uverbs0")
    host = machine(tmp_path, verbs=verbs("mlx5_0"))
    assert [found for check in rdma.CHECKS for found in check(host)] == [
        Finding("libibverbs", OK, "version 1.14.50.0, can register dma-bufs"),
        Finding(
            "port mlx5_0/1",
            OK,
            "ACTIVE, Ethernet, 100 Gb/sec (4X EDR), interface eth0, active MTU 4096",
        ),
        Finding(
            "GID mlx5_0/1",
            OK,
            "index 5, RoCE v2, 10.1.2.3 on eth0: RoCE v2 with an IPv4 address, on the interface that dicomm "
            "listens on",
            "",
            ROCE_TABLE,
        ),
        Finding("file uverbs0", OK, "/dev/infiniband/uverbs0 of mlx5_0 can be opened"),
    ]


def test_a_roce_port_of_another_interface(tmp_path: Path) -> None:
    port(tmp_path, "mlx5_0", netdev="eth7")
    (_, chosen) = rdma.devices(machine(tmp_path, verbs=verbs("mlx5_0")))
    assert chosen.state == OK
    assert chosen.found == "index 5, RoCE v2, 10.1.2.3 on eth7: RoCE v2 with an IPv4 address"


@pytest.mark.parametrize(
    ("gids", "state", "found", "advice"),
    [
        (
            [(machines.OF_IPV4, "IB/RoCE v1")],
            NOTE,
            "index 0, RoCE v1, 10.1.2.3 on eth0: RoCE v1",
            "no router forwards RoCE v1; let the driver offer v2 (cma_roce_mode, or the adapter's manual)",
        ),
        (
            [(machines.LINK_LOCAL, "IB/RoCE v1"), (machines.LINK_LOCAL, "RoCE v2")],
            NOTE,
            "index 1, RoCE v2, fe80::e42:a1ff:fe00:1 on eth0: RoCE v2 with a link-local address",
            "give eth0 an IPv4 address that other hosts route to",
        ),
        (
            [(machines.EMPTY, "")] * 3,
            PROBLEM,
            "the port's GID table is empty",
            "give the interface behind it an address: ip addr add ADDRESS dev ...",
        ),
    ],
)
def test_poor_gid_tables(
    tmp_path: Path, gids: list[tuple[str, str]], state: str, found: str, advice: str
) -> None:
    port(tmp_path, "mlx5_0", gids=gids)
    (_, chosen) = rdma.devices(machine(tmp_path, verbs=verbs("mlx5_0")))
    assert replace(chosen, details=()) == Finding("GID mlx5_0/1", state, found, advice)


def test_an_mtu_smaller_than_the_device_could(tmp_path: Path) -> None:
    port(tmp_path, "mlx5_0")
    host = machine(tmp_path, verbs=verbs("mlx5_0", mtu=1024))
    host.info["interfaces"]["eth0"]["mtu"] = 1500
    assert rdma.devices(host)[0] == Finding(
        "port mlx5_0/1",
        NOTE,
        "ACTIVE, Ethernet, 100 Gb/sec (4X EDR), interface eth0, active MTU 1024 (of the interface's 1500)",
        "ip link set eth0 mtu 9000, and the same in the switches and on other hosts",
    )


def test_an_infiniband_port(tmp_path: Path) -> None:
    port(
        tmp_path,
        "mlx5_2",
        link_layer="InfiniBand",
        rate="200 Gb/sec (4X HDR)",
        gids=[(machines.ON_SUBNET, "IB/RoCE v1")],
        netdev="",
    )
    assert rdma.devices(machine(tmp_path, verbs=verbs("mlx5_2", mtu=2048))) == [
        Finding(
            "port mlx5_2/1",
            NOTE,
            "ACTIVE, InfiniBand, 200 Gb/sec (4X HDR), active MTU 2048",
            "set the partition's MTU to 4096 in the subnet manager (mtu=5)",
        ),
        Finding(
            "GID mlx5_2/1",
            OK,
            "index 0, IB, fe80::b859:9f03:d4:1234: the port's own, which InfiniBand always has at index 0",
            "",
            ("index 0, IB, fe80::b859:9f03:d4:1234",),
        ),
    ]


DOWN = Finding(
    "port mlx5_1/1",
    PROBLEM,
    "DOWN, Ethernet, 40 Gb/sec (4X QDR), interface eth1",
    "is the cable in, the other end up, the interface set up (ip link set NAME up)?",
)


def test_a_port_that_is_down_is_a_problem_when_it_is_the_only_one(tmp_path: Path) -> None:
    port(tmp_path, "mlx5_1", state="1: DOWN", rate="40 Gb/sec (4X QDR)", netdev="eth1")
    assert rdma.devices(machine(tmp_path, verbs=verbs("mlx5_1", state="DOWN"))) == [DOWN]
    port(tmp_path, "mlx5_0")
    both = rdma.devices(machine(tmp_path, verbs=verbs("mlx5_0")))
    assert [found.name for found in both] == ["port mlx5_0/1", "GID mlx5_0/1", "port mlx5_1/1"]
    assert both[2] == replace(DOWN, state=NOTE)


def test_an_infiniband_port_without_a_subnet_manager(tmp_path: Path) -> None:
    port(tmp_path, "mlx5_2", state="2: INIT", link_layer="InfiniBand", gids=[], netdev="")
    assert rdma.devices(machine(tmp_path)) == [
        Finding(
            "port mlx5_2/1",
            PROBLEM,
            "INIT, InfiniBand, 100 Gb/sec (4X EDR)",
            "the port waits for a subnet manager: is one running (opensm, or the switch's)?",
        )
    ]


def test_an_adapter_whose_rdma_driver_is_missing(tmp_path: Path) -> None:
    pci = "sys/bus/pci/devices"
    write(
        tmp_path,
        {
            f"{pci}/0000:17:00.0/class": "0x020700",  # InfiniBand
            f"{pci}/0000:17:00.0/vendor": "0x15b3",
            f"{pci}/0000:31:00.0/class": "0x020000",  # Ethernet, of the same vendor, with its RDMA device
            f"{pci}/0000:31:00.0/vendor": "0x15b3",
            f"{pci}/0000:31:00.0/infiniband/mlx5_0/node_type": "1: CA",
            f"{pci}/0000:51:00.0/class": "0x020000",  # Ethernet of another
            f"{pci}/0000:51:00.0/vendor": "0x8086",
            f"{pci}/0000:61:00.0/class": "0x088000",  # no network adapter
            f"{pci}/0000:61:00.0/vendor": "0x15b3",
        },
    )
    assert rdma.devices(machine(tmp_path))[0] == Finding(
        "RDMA adapters",
        NOTE,
        "adapters without an RDMA device: 0000:17:00.0 (PCI)",
        "load the driver's RDMA half (modprobe mlx5_ib, for one), if RDMA is wanted on it",
    )


def test_a_device_without_libibverbs(tmp_path: Path) -> None:
    port(tmp_path, "mlx5_0")
    assert rdma.library(machine(tmp_path)) == [
        Finding(
            "libibverbs",
            PROBLEM,
            "an RDMA device is there, and the library cannot be loaded: libibverbs.so.1: cannot open shared "
            "object file: No such file or directory",
            INSTALL,
        )
    ]


def test_a_device_without_its_provider(tmp_path: Path) -> None:
    port(tmp_path, "mlx5_0")
    port(tmp_path, "bnxt_re0")
    assert rdma.library(machine(tmp_path, verbs=verbs("mlx5_0", dmabuf=False))) == [
        Finding("libibverbs", OK, "version 1.14.50.0, cannot register dma-bufs"),
        Finding(
            "provider bnxt_re0",
            PROBLEM,
            "libibverbs does not see bnxt_re0: no provider for its driver, or no access to it",
            INSTALL,
        ),
    ]


def test_device_files_that_cannot_be_opened(tmp_path: Path) -> None:
    machines.device_file(tmp_path, "mlx5_0", "uverbs0", there=False)
    machines.device_file(tmp_path, "mlx5_1", "uverbs1", there=False)
    machines.device_file(tmp_path, "mlx5_2", "uverbs2", there=False)  # of another network namespace
    port(tmp_path, "mlx5_0")
    port(tmp_path, "mlx5_1")
    (tmp_path / "dev/infiniband/uverbs1").mkdir(parents=True)  # nobody may write to one, root neither
    assert rdma.device_files(machine(tmp_path)) == [
        Finding(
            "file uverbs0",
            PROBLEM,
            "mlx5_0 is there, its file /dev/infiniband/uverbs0 is not",
            "modprobe ib_uverbs; in a container --device /dev/infiniband, or Kubernetes' RDMA plugin",
        ),
        Finding(
            "file uverbs1",
            PROBLEM,
            "/dev/infiniband/uverbs1 of mlx5_1: Is a directory",
            "chmod 666 /dev/infiniband/uverbs1 (a udev rule for good); in a container also "
            "--device /dev/infiniband",
        ),
    ]


def test_locked_memory(tmp_path: Path) -> None:
    def found(memlock: int) -> Finding:
        (one,) = memory.locked_memory(machine(tmp_path, memlock=memlock))
        return one

    limit = "at most 64 KiB (RLIMIT_MEMLOCK)"
    none = "; only RDMA needs more, and there is no device"
    assert found(64 << 10) == Finding("locked memory", OK, limit + none)
    port(tmp_path, "mlx5_0")
    too_little = limit + ": too little to register buffers with an RDMA device"
    assert found(64 << 10) == Finding("locked memory", PROBLEM, too_little, UNLIMITED)
    larger = "at most 8 GiB (RLIMIT_MEMLOCK): larger buffers cannot be registered"
    assert found(8 << 30) == Finding("locked memory", NOTE, larger, UNLIMITED)
    assert found(-1) == Finding("locked memory", OK, "unlimited")
    host = machine(tmp_path, memlock=64 << 10)
    write(tmp_path, {"proc/self/status": "CapEff:\t0000000000004000"})  # bit 14
    free = f"{limit}, which does not bind this process: it has CAP_IPC_LOCK"
    assert memory.locked_memory(host) == [Finding("locked memory", OK, free)]


def test_shared_memory_in_a_strict_container(tmp_path: Path) -> None:
    refused = {"memfd_create": "Operation not permitted", "process_vm_readv": "Operation not permitted"}
    host = machine(tmp_path, syscalls=refused, dev_shm=64 << 20)
    assert memory.shared_memory(host) == [
        Finding(
            "shared memory",
            PROBLEM,
            "memfd_create: Operation not permitted. Without it ranks of this host talk over tcp",
            "allow memfd_create in the container's seccomp profile",
        ),
        Finding(
            "copies between processes",
            NOTE,
            "process_vm_readv: Operation not permitted. Large messages within this host are then copied "
            "twice",
            "allow process_vm_readv in the container's seccomp profile (Docker: --cap-add SYS_PTRACE)",
        ),
        Finding(
            "/dev/shm",
            NOTE,
            "64 MiB; dicomm needs none, NCCL and torch's DataLoader often more than that",
            "Docker: --shm-size 8g or --ipc host; else mount -o remount,size=50% /dev/shm",
        ),
    ]


@pytest.mark.parametrize(
    ("scope", "capabilities", "state"),
    [("0", 0, OK), ("1", 0, NOTE), ("1", 1 << 19, OK), ("3", 1 << 19, NOTE)],
)
def test_ptrace_scope(tmp_path: Path, scope: str, capabilities: int, state: str) -> None:
    host = machine(tmp_path)
    write(
        tmp_path,
        {"proc/sys/kernel/yama/ptrace_scope": scope, "proc/self/status": f"CapEff:\t{capabilities:x}"},
    )
    assert memory.shared_memory(host)[1].state == state


def test_userfaultfd_that_is_not_allowed(tmp_path: Path) -> None:
    host = machine(tmp_path)
    no = "Operation not permitted"
    host = replace(host, syscalls={**host.syscalls, "userfaultfd": no})
    assert memory.userfaultfd(host) == [Finding("userfaultfd", OK, "allowed for faults in user mode")]
    host = replace(host, syscalls={**host.syscalls, "userfaultfd of user mode": no})
    assert memory.userfaultfd(host) == [
        Finding(
            "userfaultfd",
            NOTE,
            "Operation not permitted (vm.unprivileged_userfaultfd is 0); the kernel cannot say when "
            "registered memory is unmapped",
            "allow userfaultfd in the container's seccomp profile; else sysctl vm.unprivileged_userfaultfd=1",
        )
    ]


def test_rdma_to_chips(tmp_path: Path) -> None:
    port(tmp_path, "mlx5_0")
    name = "RDMA to chips"
    new = machine(tmp_path, verbs=verbs("mlx5_0"))
    dmabuf = "dma-buf: kernel and libibverbs can; the device's and the chip's driver must, too"
    assert rdma_more.chip_memory(new) == [Finding(name, OK, dmabuf)]
    old = machine(tmp_path, verbs=verbs("mlx5_0"), kernel="5.10.0-28-amd64")
    (neither,) = rdma_more.chip_memory(old)
    assert (neither.state, neither.advice.split(" (")[0]) == (NOTE, "modprobe nvidia_peermem")
    write(
        tmp_path,
        {
            "proc/modules": "nvidia_peermem 16384 0 - Live 0x0",
            "sys/kernel/mm/memory_peers/nv_mem/version": "1",
        },
    )
    assert rdma_more.chip_memory(old) == [Finding(name, OK, "peer memory: nvidia_peermem, nv_mem")]


def by_pyverbs(**changes: object) -> PortView:
    gids = {
        index: (text.replace(":", ""), kind.split("/")[-1])
        for index, (text, kind) in enumerate(machines.ROCE)
    }
    return replace(PortView("ACTIVE", 4096, "Ethernet", gids), **changes)  # type: ignore[arg-type]


def test_pyverbs_agrees(tmp_path: Path) -> None:
    port(tmp_path, "mlx5_0")
    host = machine(tmp_path, verbs=verbs("mlx5_0"), pyverbs={"mlx5_0": {1: by_pyverbs()}})
    same = "sees the same: 1 port, their states, MTU and GIDs"
    assert rdma_more.inventory(host) == [Finding("pyverbs", OK, same)]


def test_pyverbs_disagrees(tmp_path: Path) -> None:
    port(tmp_path, "mlx5_0")
    port(tmp_path, "mlx5_1")
    seen = {"mlx5_0": {1: by_pyverbs(state="DOWN", mtu=1024)}, "rxe0": {1: by_pyverbs()}}
    host = machine(tmp_path, verbs=verbs("mlx5_0", "mlx5_1"), pyverbs=seen)
    assert rdma_more.inventory(host) == [
        Finding(
            "pyverbs",
            PROBLEM,
            "sees other devices than the kernel names: mlx5_1/1: pyverbs does not see it",
            "is it compiled for this libibverbs, and are all devices in this network namespace?",
            (
                "rxe0/1: only pyverbs sees it",
                "mlx5_0/1: state 'ACTIVE', by pyverbs 'DOWN'",
                "mlx5_0/1: active MTU 4096, by pyverbs 1024",
            ),
        )
    ]


def test_a_chip_without_its_library(tmp_path: Path) -> None:
    write(tmp_path, {"dev/nvidia0": ""})
    assert software.vendor_libraries(machine(tmp_path))[0] == Finding(
        "library NCCL",
        PROBLEM,
        "/dev/nvidia0 is there, and libnccl.so.2 cannot be loaded: no such file",
        "for NVIDIA chips: pip",
    )


def test_software_that_does_not_fit(tmp_path: Path) -> None:
    host = machine(tmp_path, kernel="4.18.0-553.el8")
    host.info["build"]["version"] = "0.0.9"
    host.info["torch_plugin"]["state"] = "dicomm's torch plugin needs torch 2.13 or newer; this is torch 2.4"
    write(tmp_path, {"sys/devices/system/clocksource/clocksource0/current_clocksource": "hpet"})
    states = {found.name: found.state for check in software.CHECKS for found in check(host)}
    assert states == {
        "versions": PROBLEM,
        "torch plugin": PROBLEM,
        "vendor libraries": OK,
        "kernel": NOTE,
        "clock source": NOTE,
    }


def test_addresses_that_others_cannot_reach(tmp_path: Path) -> None:
    host = machine(tmp_path)
    for address, state, found in (
        ("127.0.0.1", NOTE, "dicomm listens on 127.0.0.1 (lo): ranks of other hosts cannot reach it"),
        (
            "fe80::1%eth0",
            NOTE,
            "dicomm listens on fe80::1%eth0 (an interface without a name here): a link-local address, which "
            "no router forwards to",
        ),
        ("2001:db8::3", OK, "dicomm listens on 2001:db8::3 (eth0)"),
    ):
        (one,) = network.listening(replace(host, address=address))
        assert (one.state, one.found) == (state, found)
    (none,) = network.listening(replace(host, address="", no_address="interface 'eth9' is not there"))
    assert (none.state, none.found) == (PROBLEM, "interface 'eth9' is not there")


def test_findings_as_text_and_as_json() -> None:
    findings = [
        Finding("kernel", OK, "6.1"),
        Finding("locked memory", PROBLEM, "at most 64 KiB", "ulimit -l unlimited", ("of 64 GiB",)),
    ]
    assert finding.as_text(findings).splitlines()[1:] == [
        "\x1b[31mproblem  \x1b[0mlocked memory  at most 64 KiB",
        " " * 26 + "of 64 GiB",
        " " * 24 + "-> ulimit -l unlimited",
        "1 problem, 0 notes, 1 ok",
    ]
    assert json.loads(finding.as_json(findings))["findings"][0] == {
        "name": "kernel",
        "state": "ok",
        "found": "6.1",
        "advice": "",
        "details": [],
    }
    assert finding.exit_status(findings) == 1
    assert finding.exit_status(findings[:1]) == 0


def test_the_library_that_is_there_answers() -> None:
    """Whatever this machine has, asking it must not fail."""
    from dicomm.cli.doctor.verbs import ask_libibverbs, ask_pyverbs

    asked = ask_libibverbs({})
    assert isinstance(asked, Verbs)
    assert bool(asked.missing) != bool(asked.version)
    assert ask_pyverbs() is not None
