"""The layers of native/src: includes point down, siblings never meet, a registry names concrete classes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SRC = ROOT / "native" / "src"

# layer -> what its files may include, besides their own layer and the public header.
ALLOWED: dict[str, set[str]] = {
    layer: set(allowed.split())
    for layer, allowed in {
        "base": "",
        "progress": "base",
        "store": "base",
        "topology": "base",
        "device/host": "base",
        "device": "device/host base",
        "device/processor": "device device/host base",
        # Simulated chips are the host's processors, and a model of what work costs.
        "device/sim": "device/processor device device/host base",
        "device/*": "device device/host base",
        "ccl": "device base",
        # Like a vendor's library, they run on its vendor's streams.
        "ccl/sim": "ccl device/sim device/processor device device/host base",
        "ccl/mpi": "ccl device/processor device base",
        "ccl/*": "ccl device base",
        "transport": "device progress base",
        "transport/stream": "transport progress base",
        "transport/*": "transport/stream transport device progress base",
        "coll": "topology base",
        "model": "coll topology base",
        "path": "model coll topology base",
        "p2p": "transport device device/host progress base",
        "exec": "p2p transport coll topology ccl device device/host progress base",
        "comm": "exec p2p path coll topology transport store ccl device progress base",
        "api": "comm exec p2p path model coll topology transport store device device/host progress base",
    }.items()
}

CONCRETE = {
    *("transport/loopback", "transport/shm", "transport/tcp", "transport/verbs"),
    *("device/sim", "device/cuda", "device/acl"),
    *("ccl/nccl", "ccl/hccl"),
}

# Pure layers compute; they have no way to reach a file, a socket, a clock, a thread or chance.
PURE = ("coll", "model", "path", "topology")
PURE_HEADERS = set(
    re.findall(
        r"\w+",
        """algorithm array bit cctype charconv cstddef cstdint cstring deque functional initializer_list
        iomanip iterator limits map memory numeric optional set span sstream string string_view tuple
        unordered_map utility vector""",
    )
)


def sources() -> list[Path]:
    return sorted(path for path in SRC.rglob("*") if path.suffix in (".h", ".cc"))


def layer_of(path: Path) -> str:
    parts = path.relative_to(SRC).parts[:-1]
    return "/".join(parts[:2])


def rule_of(layer: str) -> set[str]:
    return ALLOWED[layer if layer in ALLOWED else f"{layer.split('/')[0]}/*"]


def includes(path: Path, pattern: str) -> list[str]:
    return re.findall(rf"^#include {pattern}", path.read_text(), re.MULTILINE)


def own_includes(path: Path) -> list[Path]:
    return [SRC / name for name in includes(path, r'"([^"]+)"') if not name.startswith("dicomm/")]


@pytest.mark.parametrize("path", sources(), ids=lambda path: str(path.relative_to(SRC)))
def test_includes_point_down(path: Path) -> None:
    layer = layer_of(path)
    allowed = rule_of(layer) | {layer}
    registry = path.name == "registry.cc"
    for included in own_includes(path):
        assert included.exists(), f"{included.relative_to(SRC)} is included by its path from native/src"
        target = layer_of(included)
        below = registry and target.startswith(f"{layer}/")
        assert target in allowed or below, f"{layer} must not include {target}"


def test_every_layer_has_a_rule_and_rules_point_down() -> None:
    """A cycle among the rules would make 'down' meaningless."""
    assert {layer_of(path) for path in sources()} <= set(ALLOWED) | CONCRETE
    order = list(ALLOWED)
    for layer, targets in ALLOWED.items():
        for target in targets:
            rule = target if target in ALLOWED else f"{target.split('/')[0]}/*"
            assert order.index(rule) < order.index(layer), f"{layer} -> {target}"


@pytest.mark.parametrize("contract", ["transport", "ccl"])
def test_only_a_registry_names_concrete_classes(contract: str) -> None:
    for path in sources():
        if layer_of(path).startswith(f"{contract}/") or path == SRC / contract / "registry.cc":
            continue
        for included in own_includes(path):
            assert not layer_of(included).startswith(f"{contract}/"), f"{path.name} includes {included.name}"


@pytest.mark.parametrize("layer", PURE)
def test_pure_layers_reach_nothing_outside(layer: str) -> None:
    for path in sources():
        if layer_of(path) == layer:
            foreign = set(includes(path, r"<([^>]+)>")) - PURE_HEADERS
            assert not foreign, f"{path.relative_to(SRC)} includes {foreign}"


def test_only_the_simulated_library_calls_the_abi_from_below() -> None:
    """It stands for a foreign library; see docs/architecture.md. Names and sizes of enumerators are free."""
    calls = re.compile(r"\bdicomm_(store|context|comm|request|last)_\w+\(|\bdicomm_start\(")
    callers = {
        layer_of(path)
        for path in sources()
        if calls.search(re.sub(r"//.*", "", path.read_text())) and layer_of(path) != "api"
    }
    assert callers == {"ccl/sim"}


def test_nothing_native_reads_the_environment() -> None:
    for folder in ("native", "bindings"):
        for path in (ROOT / folder).rglob("*"):
            if path.suffix in (".h", ".cc", ".cpp", ".c"):
                assert not re.search(r"\b(secure_)?getenv\b|\benviron\b", path.read_text()), path


def test_no_cpp_in_the_public_header() -> None:
    text = (ROOT / "native/include/dicomm/dicomm.h").read_text()
    assert "std::" not in text
    assert not re.search(r"#include <(?!stddef\.h|stdint\.h)", text)
