"""The public ABI: what the header declares is what the library exports, and nothing else."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HEADER = ROOT / "native/include/dicomm/dicomm.h"
MAX_FUNCTIONS = 40

# What every Linux has, and g++'s run time.
SYSTEM_LIBRARIES = {
    "libc",
    "libm",
    "libstdc++",
    "libgcc_s",
    "libpthread",
    "libdl",
    "ld-linux-x86-64",
    "ld-linux-aarch64",
}


def declared() -> set[str]:
    return set(re.findall(r"^DICOMM_API [^(]*?\b(dicomm_\w+)\(", HEADER.read_text(), re.MULTILINE))


def library() -> Path:
    from dicomm import _native

    path = _native.ROOT / "lib" / "libdicomm.so"
    assert path.exists(), f"{path} is where the installed package keeps its library"
    return path


def test_exported_symbols_are_the_declared_functions() -> None:
    listing = subprocess.run(
        ["nm", "--dynamic", "--defined-only", "--format=posix", str(library())],
        check=True, capture_output=True, text=True, timeout=30,
    ).stdout  # fmt: skip
    exported = {line.split()[0].split("@")[0] for line in listing.splitlines() if line.split()[1] != "A"}
    assert exported == declared()


def test_the_abi_is_small() -> None:
    assert len(declared()) <= MAX_FUNCTIONS


def test_the_library_needs_only_the_system() -> None:
    listing = subprocess.run(
        ["readelf", "--dynamic", str(library())], check=True, capture_output=True, text=True, timeout=30
    ).stdout
    needed = {name.split(".so")[0] for name in re.findall(r"\(NEEDED\).*\[(.+)\]", listing)}
    assert needed, "readelf printed no dependency at all"
    assert needed <= SYSTEM_LIBRARIES


def test_the_header_is_c(tmp_path: Path) -> None:
    source = tmp_path / "use.c"
    source.write_text('#include "dicomm/dicomm.h"\nint main(void) { return DICOMM_OK; }\n')
    subprocess.run(
        ["cc", "-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-I",
         str(HEADER.parents[1]), str(source)],
        check=True, timeout=30,
    )  # fmt: skip
