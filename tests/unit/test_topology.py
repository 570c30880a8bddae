"""Topologies as data: what follows from the ranks, and that saving loses nothing and nonsense is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dicomm import InvalidArgument, Topology
from dicomm.topology import Chip, Link, Nic, RankInfo, spans

CPU = Chip("cpu", "Xeon", "x86_64", "", 0, "", 1 << 35, ("float32", "int8"), 0, "", "", "worker", False)


def sim(brand: str, *dtypes: str) -> Chip:
    known = dtypes or ("int8", "float32")
    return replace(
        CPU, vendor=brand, library=f"{brand}-ccl", library_release="1", dtypes=known, simulated=True
    )


def job(*ranks: tuple[int, int, Chip], nics: dict[int, tuple[Nic, ...]] | None = None) -> Topology:
    """Ranks as (host number, island number, chip); network cards by host."""
    cards = nics or {}
    return Topology(
        tuple(
            RankInfo(number, f"h{host}", host, island, "0.1.0", -1, cards.get(host, ()), chip)
            for number, (host, island, chip) in enumerate(ranks)
        )
    )


def test_islands_and_hosts_of_an_interleaved_job() -> None:
    a, b = sim("alpha", "int8", "float32", "bfloat16"), sim("beta")
    topology = job((0, 0, a), (0, 1, b), (1, 0, replace(a, dtypes=("float32", "bfloat16"))), (1, 1, b))
    assert [(island.ranks, island.hosts, island.vendor) for island in topology.islands] == [
        ((0, 2), (0, 1), "alpha"),
        ((1, 3), (0, 1), "beta"),
    ]
    assert topology.islands[0].dtypes == ("float32", "bfloat16")
    assert topology.islands[1].library == "beta-ccl"
    assert [(host.name, host.ranks, host.islands) for host in topology.hosts] == [
        ("h0", (0, 1), (0, 1)),
        ("h1", (2, 3), (0, 1)),
    ]


def test_links() -> None:
    def card(mbit_s: int) -> tuple[Nic, ...]:
        return (Nic("slow", "ethernet", 1000, -1), Nic("fast", "roce", mbit_s, 0))

    a, b, c = sim("alpha"), sim("beta"), sim("gamma")
    topology = job((0, 0, a), (0, 1, b), (1, 2, c), (0, 2, c), nics={0: card(100_000), 1: card(40_000)})
    assert topology.links == (
        Link((0, 1), "shm", 0.0),
        Link((0, 2), "shm+network", 40.0),
        Link((1, 2), "shm+network", 40.0),
    )
    apart = job((0, 0, a), (1, 1, b), nics={0: card(100_000)})
    assert apart.links == (Link((0, 1), "network", 0.0),)  # host 1 does not say


def test_the_table_names_islands_links_and_ranks() -> None:
    nic = (Nic("eth0", "ethernet", 25_000, -1),)
    topology = job((0, 0, sim("alpha")), (0, 1, CPU), (0, 0, sim("alpha")), nics={0: nic})
    lines = str(topology).splitlines()
    assert lines[0] == "3 ranks, 1 host, 2 islands"
    assert lines[2].split() == ["island", "ranks", "vendor", "library", "hosts"]
    assert lines[3].split() == ["0", "0", "2", "alpha", "alpha-ccl", "1", "h0"]
    assert lines[4].split() == ["1", "1", "cpu", "-", "h0"]
    assert lines[7].split() == ["0", "and", "1", "shm", "-"]
    assert lines[10].split() == ["0", "0", "h0", "Xeon", "#0", "32", "GiB", "-", "worker", "eth0:25G"]
    assert len(lines) == 13


def test_spans() -> None:
    assert spans([0, 1, 2, 3, 6, 8, 9]) == "0-3 6 8-9"
    assert spans([]) == ""


words = st.text(max_size=8)
number = st.integers(0, 2**63)
nics = st.lists(st.builds(Nic, words, words, number, st.integers(-1, 64)), max_size=3).map(tuple)
chips = st.builds(
    Chip, words, words, words, words, number, words, number, st.lists(words, max_size=3).map(tuple), number,
    words, words, words, st.booleans(),
)  # fmt: skip


@st.composite
def topologies(draw: st.DrawFn) -> Topology:
    """Any ranks whose numbers fit together."""
    ranks: list[RankInfo] = []
    kinds: list[Chip] = []
    hosts = 0
    for rank in range(draw(st.integers(1, 6))):
        host, island = draw(st.integers(0, hosts)), draw(st.integers(0, len(kinds)))
        hosts += host == hosts
        chip = draw(chips)
        if island == len(kinds):
            kinds.append(chip)
        chip = replace(chip, vendor=kinds[island].vendor, library=kinds[island].library)
        made = RankInfo(
            rank, draw(words), host, island, draw(words), draw(st.integers(-1, 9)), draw(nics), chip
        )
        ranks.append(made)
    return Topology(tuple(ranks))


@settings(max_examples=60, deadline=None)
@given(topologies())
def test_saving_loses_nothing(topology: Topology) -> None:
    assert Topology.from_json(topology.to_json()) == topology
    assert sorted(rank for island in topology.islands for rank in island.ranks) == list(
        range(len(topology.ranks))
    )
    assert str(topology)


def test_save_and_load(tmp_path: Path) -> None:
    topology = job((0, 0, replace(CPU, name="Prozessor für Österreich")), (1, 1, sim("alpha")))
    topology.save(tmp_path / "job.json")
    assert Topology.load(tmp_path / "job.json") == topology
    with pytest.raises(InvalidArgument, match=r"absent\.json cannot be read"):
        Topology.load(tmp_path / "absent.json")
    (tmp_path / "bad.json").write_text("{")
    with pytest.raises(InvalidArgument, match=r"bad\.json: topology: not JSON"):
        Topology.load(tmp_path / "bad.json")


def change(record: dict[str, Any], path: str, value: Any) -> None:
    *way, last = path.split(".")
    for step in way:
        record = record[int(step) if step.isdigit() else step]  # type: ignore[index]
    if value is None:
        del record[last]
    else:
        record[last] = value


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("format", 9, "format is 1"),
        ("ranks", [], "ranks is empty"),
        ("ranks", {}, "ranks is not a list"),
        ("extra", 1, "should not have: extra"),
        ("ranks.0.host", None, r"ranks\[0\] lacks, or should not have: host"),
        ("ranks.1.rank", 0, r"ranks\[1\].rank is 0"),
        ("ranks.1.host_index", 2, "not numbered in order"),
        ("ranks.0.island_index", -1, "not numbered in order"),
        ("ranks.0.numa", "x", r"ranks\[0\].numa is 'x', not int"),
        ("ranks.0.numa", True, r"ranks\[0\].numa is True, not int"),
        ("ranks.0.chip", 3, r"ranks\[0\].chip is not an object"),
        ("ranks.0.chip.dtypes", [1], r"chip.dtypes\[0\] is 1, not str"),
        ("ranks.0.nics.0.kind", None, r"nics\[0\] lacks"),
        ("ranks.1.chip.library", "other", "island 0 has chips of several"),
    ],
)
def test_nonsense_is_refused_with_its_place(path: str, value: Any, message: str) -> None:
    good = job((0, 0, CPU), (1, 0, CPU), nics={0: (Nic("eth0", "ethernet", 1, 0),)})
    record = json.loads(good.to_json())
    change(record, path, value)
    with pytest.raises(InvalidArgument, match=message):
        Topology.from_json(json.dumps(record))


@pytest.mark.parametrize("text", ["", "[]", "3", "null", '{"ranks": []}'])
def test_other_json_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgument):
        Topology.from_json(text)
