"""The `dicomm` command, run as a user would."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest


def dicomm(*arguments: str, limit: float = 50) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "dicomm", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=limit, check=False)


def ok(*arguments: str, limit: float = 50) -> str:
    done = dicomm(*arguments, limit=limit)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_console_script_is_the_module() -> None:
    from importlib.metadata import entry_points

    (script,) = [entry for entry in entry_points(group="console_scripts") if entry.name == "dicomm"]
    import dicomm.cli

    assert script.load() is dicomm.cli.main
    assert ok("--help").count("\n  ") >= 4


@pytest.mark.parametrize("command", ["bench", "demo", "doctor", "explain", "info"])
def test_every_command_explains_itself(command: str) -> None:
    assert "Usage: " in ok(command, "--help")


def test_bench_measures_and_checks_every_operation() -> None:
    document = json.loads(
        ok("bench", "all", "-b", "4", "-e", "64K", "-f", "128", "-n", "5", "--ranks", "2", "--json")
    )
    rows = document["results"]
    from dicomm.cli.bench_cases import OPERATIONS

    assert {row["operation"] for row in rows} == set(OPERATIONS)
    for row in rows:
        assert row["errors"] == 0, row
        assert row["time_us"] > 0
        assert row["ranks"] == 2
        if row["operation"] != "barrier":
            assert row["algbw"] == pytest.approx(row["size"] / row["time_us"] / 1e3)
    assert document["machine"]["cores"] >= 1


def test_bench_on_three_ranks_as_csv() -> None:
    text = ok("bench", "allreduce", "-b", "8", "-e", "8", "--ranks", "3", "--csv", "-d", "int64", "-o", "max")
    (row,) = csv.DictReader(io.StringIO(text))
    assert row["operation"] == "allreduce"
    assert row["dtype"] == "int64"
    assert row["reduce"] == "max"
    assert row["errors"] == "0"
    assert float(row["busbw"]) == pytest.approx(float(row["algbw"]) * 4 / 3)


def test_bench_table_has_a_line_per_size_and_no_bar_off_a_terminal() -> None:
    done = dicomm(
        "bench", "allgather", "-b", "1K", "-e", "16K", "-f", "4", "-n", "4", "-c", "0", "--ranks", "2"
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    lines = [line.split() for line in done.stdout.splitlines()]
    assert [line[0] for line in lines if line and line[0].endswith("K")] == ["1K", "4K", "16K"]
    assert all(line[-1] == "-" for line in lines if line and line[0].endswith("K"))


def test_bench_beside_gloo() -> None:
    pytest.importorskip("torch")
    text = ok(
        "bench",
        "allreduce",
        "latency",
        "-b",
        "8",
        "-e",
        "8",
        "-n",
        "5",
        "--peer",
        "gloo",
        "--json",
        "--ranks",
        "2",
    )
    rows = json.loads(text)["results"]
    found = {(row["operation"], row["subject"], row["level"]): row for row in rows}
    for operation in ("allreduce", "latency"):
        own, gloo = found[operation, "dicomm", "torch"], found[operation, "gloo", "torch"]
        assert own["errors"] == gloo["errors"] == 0
        assert gloo["ratio"] == pytest.approx(gloo["time_us"] / own["time_us"])
        assert (operation, "dicomm", "python") in found


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["bench", "allreduec"], "there is no operation 'allreduec'"),
        (["bench", "-b", "12Q"], "'12Q' is not a size"),
        (["bench", "-b", "4K", "-e", "8"], "-b 4K is above -e 8"),
        (["bench", "--peer", "nccl"], "there is no peer 'nccl'"),
        (["bench", "--peer", "mpi"], "mpirun -n 2 dicomm bench --peer mpi"),
        (["bench", "--path", "tcp,rdma-direct>fast"], "there is no path 'fast'"),
        (["explain", "allreduce"], "say how many bytes"),
        (["demo", "--layout", "alpha:2"], "only --mixed"),
        (["demo", "--mixed", "--ranks", "2"], "on the ranks of --layout"),
        (["explain", "allredcue", "4M"], "there is no operation 'allredcue'"),
        (["explain", "allreduce", "4M", "--rank", "4"], "--rank 4 is not one of 4 ranks"),
    ],
)
def test_mistakes_are_one_line(arguments: list[str], message: str) -> None:
    done = dicomm(*arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_bench_needs_two_ranks_for_point_to_point() -> None:
    done = dicomm("bench", "latency", "--ranks", "1")
    assert done.returncode != 0
    assert "at least 2 ranks" in done.stderr


def test_info_as_json() -> None:
    facts = json.loads(ok("info", "--json"))
    assert set(facts) == {"versions", "build", "interfaces", "torch_plugin", "vendor_libraries"}
    assert {"loopback", "tcp"} <= set(facts["build"]["transports"])
    assert facts["build"]["kernels"] in {"portable", "avx2", "avx512", "neon"}
    assert "127.0.0.1" in facts["interfaces"]["lo"]["addresses"]
    for library in facts["vendor_libraries"].values():
        assert library["missing"] is None or (
            library["library"].split(".")[0] in library["missing"] and library["get"]
        )


def test_info_for_people() -> None:
    text = ok("info")
    for section in ("versions", "build", "interfaces", "torch plugin", "vendor libraries"):
        assert f"{section}\n" in text


def test_info_prints_a_topology_and_reads_it_back(tmp_path: Path) -> None:
    lone = ok("info", "--topology", "--json")
    file = tmp_path / "job.json"
    file.write_text(lone)
    text = ok("info", "--topology", str(file))
    assert text.startswith("1 rank, 1 host, 1 island\n")
    assert text == ok("info", "--topology")
    assert ok("info", "--topology", str(file), "--json") == lone
    file.write_text("[]")
    done = dicomm("info", "--topology", str(file))
    assert done.returncode == 1
    assert f"{file}: topology: not a JSON object" in done.stderr


def test_info_gathers_the_topology_of_a_job(tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "DICOMM_INIT": f"file://{tmp_path}",
        "DICOMM_SIZE": "3",
        "DICOMM_INTERFACE": "127.0.0.1",
        "DICOMM_SIMULATE": "alpha:2,beta",
    }
    command = [sys.executable, "-m", "dicomm", "info", "--topology"]
    ranks = [
        subprocess.Popen(
            command, env={**environment, "DICOMM_RANK": str(rank)}, stdout=subprocess.PIPE, text=True
        )
        for rank in range(3)
    ]
    outputs = [process.communicate(timeout=40)[0] for process in ranks]
    assert [process.returncode for process in ranks] == [0, 0, 0]
    assert outputs[0].startswith("3 ranks, 1 host, 2 islands\n")
    assert outputs[1:] == ["", ""]


def test_doctor_looks_at_this_machine() -> None:
    done = dicomm("doctor", "--json")
    findings = json.loads(done.stdout)["findings"]
    assert done.returncode == int(any(found["state"] == "problem" for found in findings))
    names = [found["name"] for found in findings]
    assert {"versions", "kernel", "network", "locked memory", "shared memory", "libibverbs"} <= set(names)
    for found in findings:
        assert bool(found["advice"]) == (found["state"] != "ok"), found
    text = dicomm("doctor").stdout.splitlines()
    assert text[-1].endswith(" ok")
    assert [line.split()[0] for line in text if line[:1] not in ("", " ")][:-1] == [
        found["state"] for found in findings
    ]


def test_explain_names_an_algorithm_and_its_steps() -> None:
    text = ok("explain", "allreduce", "4M", "--ranks", "4", "--algorithms", "allreduce:ring")
    assert "ring" in text
    assert "send" in text
    assert "recv" in text


def test_explain_prints_the_table() -> None:
    text = ok("explain")
    for operation in ("barrier", "broadcast", "allreduce", "reduce_scatter", "alltoall", "gather", "scatter"):
        assert operation in text


def test_explain_says_which_rule_is_wrong() -> None:
    done = dicomm("explain", "allreduce", "4M", "--algorithms", "allreduce:rnig")
    assert done.returncode != 0
    assert "rnig" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.timeout(150)
def test_demo_trains_and_measures() -> None:
    pytest.importorskip("torch")
    pytest.importorskip("sklearn")
    text = ok("demo", "--epochs", "3", limit=140)
    losses = [float(line.split("loss ")[1].split(",")[0]) for line in text.splitlines() if "loss " in line]
    assert len(losses) == 3
    assert losses[2] < losses[0] / 2
    assert "latency, 2 ranks" in text


@pytest.mark.timeout(150)
def test_demo_of_a_mixed_job_trains_as_gloo_does() -> None:
    pytest.importorskip("torch")
    pytest.importorskip("sklearn")
    text = ok("demo", "--mixed", "--layout", "alpha:1,beta:1", "--epochs", "1", limit=140)
    assert "2 ranks, 1 host, 2 islands" in text
    assert "buffers pass through the host's memory" in text
    assert "0 wrong elements" in text
    (row,) = re.findall(r"^1 +(\S+) +(\S+) +(\S+) +(\S+)$", text, re.MULTILINE)
    mixed, gloo, *_ = (float(number) for number in row)
    assert mixed == pytest.approx(gloo, rel=1e-4)
    assert 0 < mixed < 2.4  # what guessing costs: log 10
    assert "losses agree" in text


def test_mixed_losses_that_differ_are_a_failure(capsys: pytest.CaptureFixture[str]) -> None:
    from dicomm.cli.demo_mixed import Epoch, compare

    gloo = [Epoch(2.0, 0.5), Epoch(1.0, 0.75)]
    assert compare([Epoch(2.0001, 0.5), Epoch(1.00009, 0.75)], gloo) == 0
    assert compare([Epoch(2.0, 0.5), Epoch(1.0002, 0.75)], gloo) == 1
    assert "losses DIFFER: by 2.0e-04" in capsys.readouterr().out


@pytest.mark.parametrize("layout", ["alpha:2,beta:1,gamma:1", "alpha:1,beta:3", "gamma:2"])
def test_an_allreduce_of_a_mixed_job_says_where_it_went(
    layout: str, capfd: pytest.CaptureFixture[str]
) -> None:
    from dicomm.cli.local_ranks import run_ranks

    ranks = sum(int(item.split(":")[1]) for item in layout.split(","))
    job = [sys.executable, "-m", "dicomm.cli.mixed_job"]
    assert run_ranks(job, ranks, variables={"DICOMM_SIMULATE": layout}) == 0
    text = capfd.readouterr().out
    islands = layout.count(",") + 1
    assert text.startswith(f"{ranks} ranks, 1 host, {islands} island")
    assert f"{ranks} ranks: {'islands' if islands > 1 else 'library'}\n" in text
    table = [line.split() for line in text.partition("What each rank did for it:")[2].splitlines()]
    rows = {words[0]: words[1:] for words in table if words and words[0].isdigit() and words[1] != "wrong"}
    at = 0
    for item in layout.split(","):
        brand, count = item.split(":")
        for rank in range(at, at + int(count)):
            found_brand, calls, called, *_ = rows[str(rank)]
            assert found_brand == brand
            assert (calls == "-") == (called == "-") == (count == "1")
        at += int(count)
    assert "0 wrong elements" in text
