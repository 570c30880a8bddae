"""Settings: parsing, the reference page, and that one file alone reads the environment."""

from __future__ import annotations

import dataclasses
import math
import runpy
from pathlib import Path

import pytest

from dicomm import Config, InvalidArgument, config
from dicomm.config import parse_seconds, parse_size

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", 0),
        ("4096", 4096),
        ("64K", 65536),
        ("1m", 1 << 20),
        ("2GiB", 2 << 30),
        (" 3 KB ", 3072),
        ("1T", 1 << 40),
    ],
)
def test_sizes(text: str, expected: int) -> None:
    assert parse_size(text) == expected


@pytest.mark.parametrize("text", ["", "K", "-1", "1.5M", "1X", "0x10"])
def test_bad_sizes(text: str) -> None:
    with pytest.raises(ValueError):
        parse_size(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("30", 30), ("0.5", 0.5), ("500ms", 0.5), ("5min", 300), ("1h", 3600), ("2 s", 2), ("never", math.inf)],
)
def test_seconds(text: str, expected: float) -> None:
    assert parse_seconds(text) == pytest.approx(expected)


@pytest.mark.parametrize("text", ["", "0", "-3", "nan", "soon", "1.2.3", "5 days"])
def test_bad_seconds(text: str) -> None:
    with pytest.raises(ValueError):
        parse_seconds(text)


def test_defaults_when_nothing_is_set() -> None:
    assert Config.from_environment({}) == Config()
    assert Config.from_environment({"DICOMM_TIMEOUT": "", "DICOMM_LOG": " "}) == Config()


def test_every_setting_is_read() -> None:
    samples = {
        "init": ("tcp://host:1", "tcp://host:1"),
        "rank": ("3", 3),
        "size": ("8", 8),
        "port": ("1234", 1234),
        "secret": ("s", "s"),
        "secret_file": ("/f", "/f"),
        "interface": ("eth0", "eth0"),
        "paths": ("shm>tcp", "shm>tcp"),
        "rdma": ("timeout=20", "timeout=20"),
        "vendor": ("ascend", "ascend"),
        "device_index": ("2", 2),
        "island": ("left", "left"),
        "island_library": ("MPI", "mpi"),
        "role": ("Reducer", "reducer"),
        "sockets_per_peer": ("4", 4),
        "eager_bytes": ("8K", 8192),
        "spin_us": ("20.5", 20.5),
        "timeout": ("1min", 60.0),
        "init_timeout": ("7", 7.0),
        "handshake_timeout": ("2s", 2.0),
        "algorithms": ("barrier:tree", "barrier:tree"),
        "wire_dtype": ("float16", "float16"),
        "simulate": ("alpha:2,beta", "alpha:2,beta"),
        "simulate_file": ("/b.yaml", "/b.yaml"),
        "log": ("DEBUG", "debug"),
        "torch_dir": ("/t", "/t"),
        "torch_island_backend": ("npu:hccl", "npu:hccl"),
        "cache_dir": ("/c", "/c"),
    }
    fields = {field.name: field.metadata["env"] for field in dataclasses.fields(Config)}
    assert samples.keys() == fields.keys(), "add the new setting here"
    made = Config.from_environment({fields[name]: text for name, (text, _) in samples.items()})
    assert dataclasses.asdict(made) == {name: value for name, (_, value) in samples.items()}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("DICOMM_TIMEOUT", "soon"),
        ("DICOMM_LOG", "loud"),
        ("DICOMM_RANK", "-1"),
        ("DICOMM_EAGER_BYTES", "big"),
        ("DICOMM_SPIN_US", "x"),
        ("DICOMM_DEVICE_INDEX", "first"),
        ("DICOMM_ROLE", "boss"),
    ],
)
def test_a_wrong_variable_is_named(name: str, text: str) -> None:
    with pytest.raises(InvalidArgument, match=f"{name}='{text}'"):
        Config.from_environment({name: text})


def test_secret(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_text("from file\n")
    assert Config().secret_bytes() == b""
    assert Config(secret="given", secret_file=str(path)).secret_bytes() == b"given"
    assert Config(secret_file=str(path)).secret_bytes() == b"from file"
    assert "given" not in repr(Config(secret="given"))
    with pytest.raises(InvalidArgument, match="cannot be read"):
        Config(secret_file=str(tmp_path / "absent")).secret_bytes()
    path.write_text("\n")
    with pytest.raises(InvalidArgument, match="empty"):
        Config(secret_file=str(path)).secret_bytes()


def test_generated_pages_are_up_to_date() -> None:
    pages = runpy.run_path(str(ROOT / "docs" / "generate.py"))["pages"]()
    assert {"reference/config.md", "reference/errors.md"} <= pages.keys()
    for name, text in pages.items():
        assert (ROOT / "docs" / name).read_text() == text, f"run docs/generate.py: {name} is out of date"


def test_cache_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert config.cache_directory(Config()) == tmp_path / "dicomm"
    assert config.cache_directory(Config(cache_dir="/elsewhere")) == Path("/elsewhere")
