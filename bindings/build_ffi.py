"""Writes the C source of the cffi module `dicomm._cffi` from native/include/dicomm/dicomm.h.

    python build_ffi.py HEADER CALLS OUTPUT.c

CALLS is bindings/calls.h, whose functions become part of the module.

The header is run through the C preprocessor (the CC environment variable, else cc, gcc or clang), so its
lists are written once; comments and the #include lines drop out because DICOMM_CDEF is defined.
"""

from __future__ import annotations

import os
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

# In bindings/calls.h.
CALLS = """
dicomm_status dicomm_py_start(dicomm_comm *comm, const dicomm_op *rare, int32_t opcode, int32_t dtype,
                              int32_t reduce, int32_t peer, uint64_t tag, int64_t timeout_ns, void *send,
                              int64_t nsend, void *recv, int64_t nrecv, dicomm_request **request);
dicomm_status dicomm_py_run(dicomm_comm *comm, const dicomm_op *rare, int32_t opcode, int32_t dtype,
                            int32_t reduce, int32_t peer, uint64_t tag, int64_t timeout_ns, void *send,
                            int64_t nsend, void *recv, int64_t nrecv, int64_t wait_ns,
                            dicomm_request_info *info, dicomm_request **request);
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


def main(header: str, calls: str, output: str) -> None:
    ffi = cffi.FFI()
    ffi.cdef(preprocess(header) + CALLBACKS + CALLS)
    ffi.set_source("dicomm._cffi", f'#include "{os.path.abspath(calls)}"')
    ffi.emit_c_code(output)


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    main(*sys.argv[1:])
