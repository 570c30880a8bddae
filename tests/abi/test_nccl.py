"""Our table of the NCCL family against the library and the header that NVIDIA publishes.

    pip install --no-deps nvidia-nccl-cu12      # 350 MB
    python -m pytest -m vendor tests/abi

Needs a C++ compiler, and no GPU.
"""

from __future__ import annotations

import ctypes
import re
import subprocess
from pathlib import Path

import pytest

from support.foreign import NATIVE, ROOT, compile_with, listed, package_folder

ABI = (NATIVE / "src/ccl/nccl/abi.h").read_text()

pytestmark = [pytest.mark.vendor, pytest.mark.timeout(300)]

# What nccl.h wants of CUDA's headers.
CUDA_RUNTIME = """#include <stddef.h>
typedef struct CUstream_st *cudaStream_t;
typedef struct CUevent_st *cudaEvent_t;
#define CUDART_VERSION 0
"""


@pytest.fixture(scope="module")
def package() -> Path:
    return package_folder("nvidia.nccl", "nvidia-nccl-cu12")


@pytest.fixture(scope="module")
def library(package: Path) -> ctypes.CDLL:
    return ctypes.CDLL(str(package / "lib/libnccl.so.2"))


@pytest.fixture(scope="module")
def header(package: Path) -> str:
    return (package / "include/nccl.h").read_text()


@pytest.fixture
def headers(package: Path, tmp_path: Path) -> list[Path]:
    (tmp_path / "cuda_runtime.h").write_text(CUDA_RUNTIME)
    (tmp_path / "cuda_fp16.h").write_text("")
    return [tmp_path, package / "include"]


def test_declarations_are_the_vendors(headers: list[Path]) -> None:
    compile_with(headers, "-fsyntax-only", "-Wall", "-Werror", str(ROOT / "tests/abi/check_nccl.cc"))


def test_double_has_the_vendors_declarations(headers: list[Path]) -> None:
    defines = ["-DDOUBLE_PREFIX=nccl", '-DDOUBLE_HEADER="nccl.h"']
    compile_with(headers, "-fsyntax-only", *defines, str(NATIVE / "tests/doubles/nccl.cc"))


def test_every_function_is_exported(library: ctypes.CDLL) -> None:
    names = [row[0] for row in listed(ABI, "DICOMM_NCCL_FUNCTIONS")]
    assert len(names) > 20
    missing = [name for name in names if not hasattr(library, f"nccl{name}")]
    assert missing == []


def test_version_is_the_headers(library: ctypes.CDLL, header: str) -> None:
    version = ctypes.c_int()
    assert library.ncclGetVersion(ctypes.byref(version)) == 0
    code = re.search(r"#define NCCL_VERSION_CODE (\d+)", header)
    assert code is not None
    assert version.value == int(code[1])


def test_every_code_has_a_text(library: ctypes.CDLL) -> None:
    library.ncclGetErrorString.restype = ctypes.c_char_p
    texts = [library.ncclGetErrorString(int(row[2])) for row in listed(ABI, "DICOMM_NCCL_RESULTS")]
    assert len(texts) == 9
    assert len(set(texts)) == len(texts), texts
    assert all(texts)


def test_no_code_is_missing(header: str) -> None:
    """A code that a later version adds is still mapped, to CCL_FAILED; this says that it is time to look."""
    theirs = re.findall(r"\bnccl(\w+)\s*=\s*(\d+)", header[header.index("/* Error type */") :].split("}")[0])
    ours = {(row[1], row[2]) for row in listed(ABI, "DICOMM_NCCL_RESULTS")}
    assert {(name, value) for name, value in theirs if name != "NumResults"} == ours


def test_library_opens_as_dicomm_opens_it(package: Path, tmp_path: Path) -> None:
    source = NATIVE / "src"
    program = tmp_path / "open_nccl"
    sources = [
        ROOT / "tests/abi/open_nccl.cc",
        source / "ccl/bounded.cc",
        source / "ccl/group_base.cc",
        *sorted((source / "ccl/nccl").glob("*.cc")),
    ]
    sources += [source / name for name in ("base/dynamic_library.cc", "base/error.cc", "base/names.cc")]
    sources.append(source / "api/status.cc")
    compile_with([], "-o", str(program), *map(str, sources), "-pthread", "-ldl")
    file = package / "lib/libnccl.so.2"
    done = subprocess.run([str(program), str(file)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = dict(re.findall(r"^([\w ]+): (.*)$", done.stdout, re.MULTILINE))
    assert re.fullmatch(rf"NCCL 2\.\d+\.\d+ \({re.escape(str(file.resolve()))}\)", lines["describe"])
    assert int(lines["version"]) >= 22400
    assert [lines[key] for key in ("send_recv", "aborts", "tells_errors", "float8 sum", "premul_sum")] == [
        "1"
    ] * 5
    assert lines["id"] == "no error"
    if lines["join"] == "no error":
        return  # a GPU: other tests use it
    assert lines["domain"] == "nccl"
    assert int(lines["code"]) > 0
    assert "ncclCommInitRank" in lines["join"]
    assert float(lines["seconds"]) < 20
