"""Code compiled for instructions that not every processor has must not leak into the rest of the library."""

from __future__ import annotations

import platform
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HOST = ROOT / "native" / "src" / "device" / "host"

FLAGS = {
    "avx2": ["-mavx2", "-mf16c"],
    "avx512": ["-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mf16c"],
}


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="the variants are of x86-64")
@pytest.mark.parametrize("variant", FLAGS)
def test_a_variant_shares_no_function_with_other_units(variant: str, tmp_path: Path) -> None:
    """The linker keeps one of several inline functions or template instances of a name. Unoptimised, nothing
    is inlined, so each that the unit could share shows as a global or weak symbol.
    """
    unit = tmp_path / "unit.o"
    subprocess.run(
        ["c++", "-std=c++20", "-O0", "-fPIC", *FLAGS[variant],
         f"-I{ROOT}/native/include", f"-I{ROOT}/native/src",
         "-c", str(HOST / f"kernels_{variant}.cc"), "-o", str(unit)],
        check=True, timeout=60,
    )  # fmt: skip
    listing = subprocess.run(
        ["nm", "--defined-only", "--extern-only", "--format=posix", "--demangle", str(unit)],
        check=True, capture_output=True, text=True, timeout=30,
    ).stdout  # fmt: skip
    shared = [line.rsplit(" ", 3)[0] for line in listing.splitlines()]
    assert len(shared) == 1, shared
    assert shared[0].lower() == f"dicomm::k{variant}kernels", shared


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="the mnemonics are of x86-64")
def test_no_product_is_fused_with_a_sum() -> None:
    """A fused one is rounded once, not twice: ranks on different processors would get different bits."""
    from dicomm import _native

    listing = subprocess.run(
        ["objdump", "--disassemble", "--no-show-raw-insn", str(_native.ROOT / "lib" / "libdicomm.so")],
        check=True, capture_output=True, text=True, timeout=60,
    ).stdout  # fmt: skip
    assert "vaddps" in listing, "no vector instruction at all: the kernels are not where this test looks"
    assert not re.findall(r"\bvfn?m(?:add|sub)\w+", listing)


def test_the_list_of_variants_is_complete() -> None:
    units = {path.stem.removeprefix("kernels_") for path in HOST.glob("kernels_*.cc")}
    assert units == {"portable", "neon", *FLAGS}
