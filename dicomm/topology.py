"""Topology: what each rank of a communicator has, and the islands, hosts and links that follow. Pure data.

    print(comm.topology)                        # a table of islands and ranks
    comm.topology.save("job.json")
    Topology.load("job.json").islands[0].ranks

`str()` is for people; to_json and from_json lose nothing.
"""

from __future__ import annotations

import json
import typing
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields, is_dataclass
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import Any

from dicomm.errors import InvalidArgument

_FORMAT = 1  # of saved files


@dataclass(frozen=True)
class Nic:
    """A network card. kind: "ethernet", "infiniband", "roce" or "ipoib". mbit_s: 1e6 bits per second, 0 where
    the driver does not say. numa: its node, -1 where that is not known."""

    name: str
    kind: str
    mbit_s: int
    numa: int


@dataclass(frozen=True)
class Chip:
    """What a rank computes on.

    vendor: "cpu", "nvidia" ..., or a simulated chip's brand. library: the vendor's collective library, "" for
    none; library_version: the vendor's number, library_release: as the vendor writes it. memory_bytes: 0
    where that is not known. dtypes: what the chip and its library know. index: as the vendor counts in the
    rank's process. id: what no other chip has, "" where that is not known. island: the user's word for the
    rank's island, "" for none. role: "worker" or "reducer".
    """

    vendor: str
    name: str
    arch: str
    library: str
    library_version: int
    library_release: str
    memory_bytes: int
    dtypes: tuple[str, ...]
    index: int
    id: str
    island: str
    role: str
    simulated: bool


@dataclass(frozen=True)
class RankInfo:
    """A rank. host: its host's name. version: dicomm's. numa: the NUMA node of all processors that the rank
    may use, -1 for several or not known."""

    rank: int
    host: str
    host_index: int
    island_index: int
    version: str
    numa: int
    nics: tuple[Nic, ...]
    chip: Chip


@dataclass(frozen=True)
class Island:
    """Ranks that one vendor's library serves. hosts: their numbers. dtypes: what all its chips know."""

    index: int
    ranks: tuple[int, ...]
    hosts: tuple[int, ...]
    vendor: str
    library: str
    library_release: str
    dtypes: tuple[str, ...]


@dataclass(frozen=True)
class Host:
    """Ranks that can share memory. Two hosts of one name are two containers, or namespaces, of a machine."""

    index: int
    name: str
    ranks: tuple[int, ...]
    islands: tuple[int, ...]


@dataclass(frozen=True)
class Link:
    """Between two islands. path: "shm" when all their ranks are on one host, "network" when they have no host
    in common, else "shm+network". gbit_s: what two of their hosts can exchange at most, 1e9 bits per second:
    the fastest card of the host whose fastest is slowest; 0 where that is not known, or nothing crosses."""

    islands: tuple[int, int]
    path: str
    gbit_s: float


@dataclass(frozen=True)
class Topology:
    """Of a communicator: comm.topology. Islands and hosts are numbered in order of their first rank."""

    ranks: tuple[RankInfo, ...]

    @cached_property
    def islands(self) -> tuple[Island, ...]:
        made = []
        for index in range(_count(rank.island_index for rank in self.ranks)):
            members = [rank for rank in self.ranks if rank.island_index == index]
            chip = members[0].chip
            common = set(chip.dtypes).intersection(*(rank.chip.dtypes for rank in members))
            made.append(
                Island(
                    index,
                    tuple(rank.rank for rank in members),
                    tuple(sorted({rank.host_index for rank in members})),
                    chip.vendor,
                    chip.library,
                    chip.library_release,
                    tuple(dtype for dtype in chip.dtypes if dtype in common),
                )
            )
        return tuple(made)

    @cached_property
    def hosts(self) -> tuple[Host, ...]:
        made = []
        for index in range(_count(rank.host_index for rank in self.ranks)):
            members = [rank for rank in self.ranks if rank.host_index == index]
            ranks = tuple(rank.rank for rank in members)
            islands = tuple(sorted({rank.island_index for rank in members}))
            made.append(Host(index, members[0].host, ranks, islands))
        return tuple(made)

    @cached_property
    def links(self) -> tuple[Link, ...]:
        """Between every two islands, in order."""
        speed = [
            max((nic.mbit_s for rank in host.ranks for nic in self.ranks[rank].nics), default=0) / 1000
            for host in self.hosts
        ]
        made = []
        for a, b in combinations(self.islands, 2):
            hosts = {*a.hosts, *b.hosts}
            crosses = len(hosts) > 1
            path = "network" if not {*a.hosts} & {*b.hosts} else "shm+network" if crosses else "shm"
            made.append(Link((a.index, b.index), path, min(speed[h] for h in hosts) if crosses else 0.0))
        return tuple(made)

    def to_json(self) -> str:
        """One JSON object: "format", "ranks"."""
        return json.dumps({"format": _FORMAT, **asdict(self)}, indent=1)

    @classmethod
    def from_json(cls, text: str) -> Topology:
        """The reverse of to_json. InvalidArgument says what is wrong with the text, and where."""
        try:
            record = json.loads(text)
        except ValueError as error:
            raise InvalidArgument(f"topology: not JSON: {error}") from None
        if not isinstance(record, dict) or record.pop("format", None) != _FORMAT:
            raise InvalidArgument(f"topology: not a JSON object whose format is {_FORMAT}")
        return cls.from_record(record)

    @classmethod
    def from_record(cls, record: Any) -> Topology:
        """From what is under "topology" in the native library's answers."""
        topology = _read(cls, record, "topology")
        assert isinstance(topology, cls)
        _check(topology)
        return topology

    def save(self, path: str | Path) -> None:
        Path(path).write_text(self.to_json() + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path) -> Topology:
        """From a file that save wrote. InvalidArgument: it cannot be read, or makes no sense, and where."""
        try:
            return cls.from_json(Path(path).read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidArgument(f"topology: {path} cannot be read: {error}") from None
        except InvalidArgument as error:
            raise InvalidArgument(f"{path}: {error}") from None

    def __str__(self) -> str:
        """A table of islands, their links, and ranks."""
        counts = (("rank", self.ranks), ("host", self.hosts), ("island", self.islands))
        lines = [", ".join(f"{len(things)} {word}{'s' * (len(things) != 1)}" for word, things in counts), ""]
        rows = [["island", "ranks", "vendor", "library", "hosts"]]
        for island in self.islands:
            hosts = dict.fromkeys(self.hosts[host].name for host in island.hosts)
            library = f"{island.library} {island.library_release}" if island.library else "-"
            rows.append([str(island.index), spans(island.ranks), island.vendor, library, " ".join(hosts)])
        lines += table(rows)
        if self.links:
            rows = [["between", "path", "Gbit/s"]]
            rows += [
                ["{} and {}".format(*link.islands), link.path, f"{link.gbit_s:g}" if link.gbit_s else "-"]
                for link in self.links
            ]
            lines += ["", *table(rows)]
        rows = [["rank", "island", "host", "chip", "memory", "NUMA", "role", "network"]]
        return "\n".join([*lines, "", *table(rows + [_row(rank) for rank in self.ranks])])


def spans(numbers: Iterable[int]) -> str:
    """ "0-3 6 8-9" of sorted numbers."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][1] + 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return " ".join(str(a) if a == b else f"{a}-{b}" for a, b in parts)


def _row(rank: RankInfo) -> list[str]:
    chip = rank.chip
    name = chip.name or chip.arch or chip.vendor
    return [
        str(rank.rank),
        str(rank.island_index),
        rank.host,
        name if chip.vendor == "cpu" else f"{name} #{chip.index}",
        f"{chip.memory_bytes / 2**30:.4g} GiB" if chip.memory_bytes else "-",
        str(rank.numa) if rank.numa >= 0 else "-",
        chip.role,
        " ".join(f"{nic.name}{f':{nic.mbit_s / 1000:g}G' if nic.mbit_s else ''}" for nic in rank.nics) or "-",
    ]


def table(rows: list[list[str]]) -> list[str]:
    """Lines with columns as wide as their widest cell."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def _count(numbers: Iterable[int]) -> int:
    return max(numbers, default=-1) + 1


def _read(kind: Any, value: Any, where: str) -> Any:
    """A value of JSON as what a dataclass's annotations say. InvalidArgument: the place that does not fit."""
    if typing.get_origin(kind) is tuple:
        (element, _) = typing.get_args(kind)
        if not isinstance(value, list):
            raise InvalidArgument(f"{where} is not a list")
        return tuple(_read(element, part, f"{where}[{i}]") for i, part in enumerate(value))
    if not is_dataclass(kind):
        if type(value) is not kind:
            raise InvalidArgument(f"{where} is {value!r}, not {kind.__name__}")
        return value
    if not isinstance(value, dict):
        raise InvalidArgument(f"{where} is not an object")
    names = [field.name for field in fields(kind)]
    if value.keys() != set(names):
        wrong = ", ".join(sorted(value.keys() ^ set(names)))
        raise InvalidArgument(f"{where} lacks, or should not have: {wrong}")
    hints = typing.get_type_hints(kind)
    assert isinstance(kind, type)
    return kind(**{name: _read(hints[name], value[name], f"{where}.{name}") for name in names})


def _check(topology: Topology) -> None:
    """Are ranks, hosts and islands numbered as they must be, and islands of one library?"""
    if not topology.ranks:
        raise InvalidArgument("topology.ranks is empty")
    hosts = islands = 0
    for number, rank in enumerate(topology.ranks):
        where = f"topology.ranks[{number}]"
        if rank.rank != number:
            raise InvalidArgument(f"{where}.rank is {rank.rank}")
        if not (0 <= rank.host_index <= hosts and 0 <= rank.island_index <= islands):
            raise InvalidArgument(f"{where}: hosts and islands are not numbered in order of their first rank")
        hosts += rank.host_index == hosts
        islands += rank.island_index == islands
    for rank in topology.ranks:
        island = topology.islands[rank.island_index]
        if (rank.chip.vendor, rank.chip.library) != (island.vendor, island.library):
            raise InvalidArgument(
                f"topology: island {island.index} has chips of several vendors or libraries"
            )
