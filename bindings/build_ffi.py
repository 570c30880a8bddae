"""Writes the C source of the cffi module `dicomm._cffi` from native/include/dicomm/dicomm.h.

    python build_ffi.py HEADER CALLS OUTPUT.c

CALLS is bindings/calls.h, whose functions become part of the module.

The header is run through the C preprocessor (the CC environment variable, else cc, gcc or clang), so its
lists are written once; comments and the #include lines drop out because DICOMM_CDEF is defined.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys

import cffi

CALLBACKS = """
extern "Python" int32_t dicomm_py_store_set(void *self, const char *key, const uint8_t *value, size_t len);
extern "Python" int32_t dicomm_py_store_get(void *self, const char *key, uint8_t *value, size_t cap,
                                            size_t *len, int64_t timeout_ns);
extern "Python" int32_t dicomm_py_store_check(void *self, const char *key, int32_t *exists);
"""


def preprocessor() -> list[str]:
    if cc := os.environ.get("CC"):
        return shlex.split(cc)
    for name in ("cc", "gcc", "clang"):
        if path := shutil.which(name):
            return [path]
    sys.exit("dicomm: no C compiler found to read dicomm.h (apt install g++, dnf install gcc-c++, or set CC)")


def preprocess(header: str) -> str:
    command = [*preprocessor(), "-DDICOMM_CDEF", "-E", "-P", "-x", "c", header]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        sys.exit(f"dicomm: {shlex.join(command)} failed:\n{result.stderr}")
    return result.stdout


def prototypes(calls: str) -> str:
    """Of the functions that a file defines."""
    with open(calls) as file:
        return "".join(
            f"{head};" for head in re.findall(r"^static ([^{;]+?)\s*\{", file.read(), re.MULTILINE)
        )


def main(header: str, calls: str, output: str) -> None:
    ffi = cffi.FFI()
    ffi.cdef(preprocess(header) + CALLBACKS + prototypes(calls))
    ffi.set_source("dicomm._cffi", f'#include "{os.path.abspath(calls)}"')
    ffi.emit_c_code(output)


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    main(*sys.argv[1:])
