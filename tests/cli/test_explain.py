"""`dicomm explain`: times by hand, the NICs' bytes, islands, what it refuses."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

# A byte takes a nanosecond, and no message asks first.
MACHINE = ["--local-latency-us", "10", "--latency-us", "100", "--overhead-us", "1", "--eager", "1G"]
MACHINE += ["--local-bandwidth-gbs", "1", "--bandwidth-gbs", "1", "--nic-gbps", "8"]
MACHINE += ["--copy-gbs", "1", "--reduce-gbs", "1"]


def dicomm(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "dicomm", "explain", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=50, check=False)


def simulated(op: str, size: str, *arguments: str) -> str:
    done = dicomm(op, size, *arguments, *MACHINE, "--simulate")
    assert done.returncode == 0, done.stderr
    return done.stdout


def table(text: str) -> dict[str, float]:
    """{algorithm: predicted microseconds}, in the order of the rows."""
    rows = text.partition("algorithm ")[2].splitlines()[1:-1]
    found = [re.fullmatch(r"(\w+) +([\d.]+) (us|ms) +([\d.]+) +(\d+) +(\d+) +(\d+)", row) for row in rows]
    assert found
    assert all(found), rows
    for row in found:
        assert float(row[4]) >= 0.999  # of the bound
    return {row[1]: float(row[2]) * {"us": 1, "ms": 1000}[row[3]] for row in found}


def test_a_ring_takes_its_rounds() -> None:
    # Three rounds of two overheads, a latency and a block of 4,000 bytes.
    text = simulated("allgather", "16000", "--ranks", "4", "--algorithms", "allgather:ring")
    assert "4 ranks: ring" in text
    assert "predicted 48.00 us" in text
    assert "critical path: 3 messages (0 between hosts)" in text
    assert "NIC" not in text.partition("critical path")[2].partition("algorithm ")[0]
    # Between two hosts, the slowest chain has one block that crosses them twice.
    apart = simulated("allgather", "16000", "--hosts", "2,2", "--algorithms", "allgather:ring")
    assert "predicted 228.00 us" in apart
    assert "3 messages (2 between hosts)" in apart


def test_bytes_through_each_nic() -> None:
    text = simulated("allreduce", "1000K", "--hosts", "2,2", "--algorithms", "allreduce:ring")
    # 2 * 3 / 4 of the buffer each way.
    assert re.search(r"^  0 +2 +1536000 +1536000$", text, re.MULTILINE)
    assert re.search(r"^  1 +2 +1536000 +1536000$", text, re.MULTILINE)


def test_broadcast_to_uneven_hosts() -> None:
    text = simulated("broadcast", "1M", "--hosts", "2x3,1", "--algorithms", "broadcast:binomial")
    assert "7 ranks" in text
    sent = [int(n) for n in re.findall(r"^  \d +\d +(\d+) +\d+$", text, re.MULTILINE)]
    received = [int(n) for n in re.findall(r"^  \d +\d +\d+ +(\d+)$", text, re.MULTILINE)]
    assert len(sent) == 3
    assert sum(sent) == sum(received)
    assert received[0] == 0
    assert min(received[1:]) >= 1 << 20


@pytest.mark.parametrize("op", ["barrier", "broadcast", "allreduce", "reduce", "allgather", "reduce_scatter"])
@pytest.mark.parametrize("hosts", ["6", "3,2,1", "6x1"])
def test_all_algorithms_best_first_and_above_the_bound(op: str, hosts: str) -> None:
    text = simulated(op, "0" if op == "barrier" else "300K", "--hosts", hosts)
    times = list(table(text).values())
    assert len(times) >= 2
    assert times == sorted(times)
    predicted = re.search(r"predicted ([\d.]+) (us|ms)", text)
    assert predicted
    assert float(predicted[1]) * {"us": 1, "ms": 1000}[predicted[2]] in times


def test_many_hosts_are_summed_up() -> None:
    text = simulated("allreduce", "64", "--hosts", "20x2")
    assert "and 4 more with at most" in text


def test_a_slower_nic_takes_longer() -> None:
    arguments = ["allreduce", "4M", "--hosts", "2,2", "--simulate", "--nic-gbps"]
    fast, slow = (dicomm(*arguments, rate).stdout for rate in ("100", "1"))
    assert "1 Gbit/s a host" in slow
    assert all(table(slow)[name] > time for name, time in table(fast).items())


def test_without_simulate_hosts_choose_the_rule() -> None:
    flat = dicomm("allreduce", "4M", "--ranks", "4").stdout
    apart = dicomm("allreduce", "4M", "--hosts", "2,2").stdout
    assert "4 ranks: direct" in flat
    assert "4 ranks: two_level" in apart
    assert "steps of rank 0:" in apart


def in_numbers(text: str) -> dict[str, int]:
    found = re.search(
        r"rank \d: sends (?P<messages>\d+) messages, (?P<sent>\d+) bytes; receives (?P<received>\d+) bytes;"
        r".*its library: (?P<calls>\d+) calls, (?P<called>\d+) bytes; "
        r"its chip: (?P<out>\d+) bytes to the host, (?P<into>\d+) bytes to the chip, "
        r"scratch (?P<scratch>\d+) bytes",
        text,
        re.DOTALL,
    )
    assert found, text
    return {name: int(number) for name, number in found.groupdict().items()}


def islands(letters: str, *arguments: str) -> str:
    done = dicomm("allreduce", "4M", "--islands", letters, *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_islands_exchange_their_sums() -> None:
    text = islands("AABB", "--rank", "3")
    assert "4 ranks: islands" in text
    assert "island 1: ranks 2 3; its library" in text
    size = 4 << 20
    row = in_numbers(text)
    # Each of an island's two ranks takes half of the sums across; the library reduces and spreads the whole.
    assert (row["sent"], row["received"], row["out"], row["into"]) == (size // 2,) * 4
    assert row["called"] == 2 * size
    assert row["calls"] == len(re.findall(r": island (reduce|broadcast) ", text))


def test_one_island_is_its_librarys() -> None:
    row = in_numbers(islands("AAA"))
    size = 4 << 20
    # Who has agreed calls: one message without data.
    assert row == dict.fromkeys(row, 0) | {"messages": 1, "calls": 1, "called": size}
    wide = in_numbers(islands("AAA", "--dtype", "float16", "--reduce", "avg"))
    assert wide["called"] == 2 * size
    assert wide["scratch"] > 0


def test_without_a_library_buffers_pass_through_the_host() -> None:
    text = islands("ABa")
    assert "buffers pass through the host's memory" in text
    assert "rounds: 2 " in text
    row = in_numbers(text)
    assert (row["calls"], row["out"], row["into"]) == (0, 4 << 20, 4 << 20)
    # A rank without a chip has no part in that.
    assert "its chip" not in islands("ABa", "--rank", "2")


def test_reducers_take_a_part() -> None:
    done = dicomm("allreduce", "12M", "--ranks", "6", "--reducers", "2", "--rank", "5")
    assert "6 ranks: reducers\n" in done.stdout
    # Of four workers' loads, 2 * 4 * 3 / (4 * 4 + 2 * 4 - 2 * 2), as received so sent.
    found = re.search(r"rank 5: sends \d+ messages, (\d+) bytes; receives (\d+) bytes", done.stdout)
    assert found
    assert found[1] == found[2]
    assert int(found[1]) == pytest.approx(1.2 * (12 << 20), rel=0.001)
    assert "6 ranks: workers\n" in dicomm("reduce", "1K", "--ranks", "6", "--reducers", "2").stdout
    text = simulated("allreduce", "12M", "--hosts", "6x1", "--reducers", "2")
    assert set(table(text)) == {"workers", "reducers"}
    assert table(text)["reducers"] < table(text)["workers"]
    nics = re.findall(r"^  \d +1 +(\d+) +(\d+)$", text, re.MULTILINE)
    assert len(nics) == 6
    for each in nics:
        assert [int(n) for n in each] == pytest.approx([1.2 * (12 << 20)] * 2, rel=0.001)


def test_a_mixed_schedule_is_not_counted_in_rounds() -> None:
    assert "rounds: not counted: the model knows no chips" in islands("aBB")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--islands", "A2"], "not a letter per rank"),
        (["--islands", "AB", "--ranks", "3"], "--islands has 2 ranks and --ranks says 3"),
        (["--islands", "AB", "--hosts", "3"], "--hosts has 3 ranks and --islands 2"),
        (["--islands", "AABB", "--simulate"], "the model knows no chips"),
        (["--reducers", "4"], "--reducers 4 of 4 ranks leaves none that has data"),
        (["--reduce", "mean"], "no reduction 'mean'"),
        (["--reduce", "bxor"], "bxor is not defined for float32"),
        (["--hosts", "2,x"], "not a list of ranks per host"),
        (["--hosts", "2,,2"], "not a list of ranks per host"),
        (["--hosts", "0"], "not a list of ranks per host"),
        (["--hosts", "9999x9999"], "more than 16384 ranks"),
        (["--hosts", "2,2", "--ranks", "5"], "--hosts has 4 ranks and --ranks says 5"),
        (["--nic-gbps", "10"], "only --simulate"),
        (["--simulate", "--nic-gbps", "0"], "0"),
        (["--simulate", "--latency-us", "-1"], "-1"),
        (["--simulate", "--algorithms", "allreduce:rnig"], "'rnig'"),
    ],
)
def test_what_makes_no_sense_is_refused(arguments: list[str], message: str) -> None:
    done = dicomm("allreduce", "4M", *arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
