"""The layers of the Python package, read off its syntax trees."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "dicomm"

# Pickles objects only for communicators made with allow_pickle=True.
PICKLE_ON_REQUEST = {PACKAGE / "objects.py"}

# A user's program, shipped to be run by `dicomm demo`; nobody imports it.
SCRIPT = PACKAGE / "cli" / "ddp_digits.py"


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def imports(path: Path) -> Iterator[tuple[str, bool]]:
    """(module, stands at the module's top level) of every import statement."""
    tree = ast.parse(path.read_text())
    inside = {
        id(node)
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for node in ast.walk(function)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for name in node.names:
                yield name.name, id(node) not in inside
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module, id(node) not in inside
            for name in node.names:
                yield f"{node.module}.{name.name}", id(node) not in inside


def within(name: str, package: str) -> bool:
    return name == package or name.startswith(package + ".")


def relative(path: Path) -> str:
    return str(path.relative_to(PACKAGE))


@pytest.mark.parametrize("path", modules(), ids=relative)
def test_torch_is_imported_in_one_place(path: Path) -> None:
    if PACKAGE / "torch" in path.parents or path == SCRIPT:
        return
    assert not [name for name, _ in imports(path) if within(name, "torch")]


@pytest.mark.parametrize("path", modules(), ids=relative)
def test_the_core_knows_neither_cli_nor_torch(path: Path) -> None:
    if path.parent != PACKAGE or path.name == "__main__.py":
        return
    upward = [name for name, _ in imports(path) if within(name, "dicomm.cli") or within(name, "dicomm.torch")]
    assert not upward


def test_the_cli_meets_torch_only_inside_functions() -> None:
    for path in (PACKAGE / "cli").rglob("*.py"):
        early = [name for name, top in imports(path) if top and within(name, "dicomm.torch")]
        assert not early, path


def test_one_module_touches_the_native_library() -> None:
    for path in modules():
        if path.name != "_native.py":
            assert not [name for name, _ in imports(path) if within(name, "dicomm._cffi")], path


def test_one_file_reads_the_environment() -> None:
    for path in modules():
        if path == PACKAGE / "config.py":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            named = isinstance(node, ast.Attribute) and node.attr in ("environ", "environb", "getenv")
            assert not named, f"{relative(path)}:{node.lineno} reads the environment"
        assert not [name for name, _ in imports(path) if name in ("os.environ", "os.getenv")], path


def test_the_demo_script_is_never_imported() -> None:
    for path in modules():
        assert not [name for name, _ in imports(path) if name.endswith("ddp_digits")], path


def test_no_pickle() -> None:
    """Bytes from a peer must never become code. (Exceptions may define __reduce__ for their own process.)"""
    for path in modules():
        bad = [
            name for name, _ in imports(path) if name.split(".")[0] in ("pickle", "marshal", "shelve", "dill")
        ]
        assert not bad or path in PICKLE_ON_REQUEST, path


def test_importing_dicomm_and_its_cli_imports_no_torch() -> None:
    code = "import sys, dicomm, dicomm.cli.bench, dicomm.cli.info, dicomm.cli.demo, dicomm.cli.explain\n"
    code += "import dicomm.cli.doctor.checks, dicomm.cli.doctor.between\n"
    code += "assert 'torch' not in sys.modules, 'torch was imported'"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=30, cwd="/")
