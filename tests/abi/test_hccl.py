"""Our table of HCCL against the header that Huawei publishes with torch-npu; the library is in CANN only.

    pip install --no-deps torch-npu      # 45 MB; it is not imported
    python -m pytest -m vendor tests/abi

Needs a C++ compiler, and no NPU.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from support.foreign import NATIVE, ROOT, compile_with, listed, package_folder

pytestmark = [pytest.mark.vendor, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def include() -> Path:
    return package_folder("torch_npu", "torch-npu") / "include"


def test_declarations_are_the_vendors(include: Path) -> None:
    compile_with([include], "-fsyntax-only", "-Wall", "-Werror", str(ROOT / "tests/abi/check_hccl.cc"))


def test_double_has_the_vendors_declarations(include: Path) -> None:
    header = '-DDOUBLE_HEADER="third_party/hccl/inc/hccl/hccl.h"'
    compile_with([include], "-fsyntax-only", header, str(NATIVE / "tests/doubles/hccl.cc"))


def test_no_code_is_missing(include: Path) -> None:
    """A code that a later version adds is still mapped, to CCL_FAILED; this says that it is time to look."""
    text = (include / "third_party/hccl/inc/hccl/hccl_types.h").read_text()
    theirs = set(re.findall(r"\bHCCL_(SUCCESS|E_\w+)\s*=\s*(\d+)", text))
    rows = listed((NATIVE / "src/ccl/hccl/abi.h").read_text(), "DICOMM_HCCL_RESULTS")
    assert {(row[1], row[2]) for row in rows} == theirs
