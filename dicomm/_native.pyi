from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from dicomm.errors import DicommError

# cffi objects have no useful static types.
ffi: Any
lib: Any

ABI_VERSION: Final[int]
ROOT: Final[Path]
OK: Final[int]
IN_PROGRESS: Final[int]
INTERRUPTED: Final[int]
ANY_SOURCE: Final[int]
TIMEOUT_DEFAULT: Final[int]
TIMEOUT_NEVER: Final[int]
STATUSES: Final[dict[str, int]]
DTYPES: Final[dict[str, int]]
REDUCES: Final[dict[str, int]]
OPCODES: Final[dict[str, int]]
DTYPE_SIZES: Final[dict[int, int]]

def exception(error: Any) -> DicommError: ...
def last_exception() -> DicommError: ...
def check(status: int) -> None: ...
def request_exception(request: Any) -> DicommError: ...
def text(function: Callable[..., int], *arguments: Any) -> str: ...
def run(
    comm: int,
    rank: int,
    size: int,
    opcode: int,
    send: Any,
    recv: Any,
    peer: Any,
    reduce: int,
    tag: Any,
    wait_ns: int,
    /,
) -> bool | tuple[int, int] | int | None: ...
def address(pointer: Any) -> int: ...
def request_at(address: int) -> Any: ...
def build_info() -> dict[str, Any]: ...
def explain(
    opcode: int,
    count: int,
    dtype: int,
    rank: int,
    ranks: int,
    algorithms: str,
    *,
    hosts: list[int] | None = None,
    machine: dict[str, float] | None = None,
    islands: list[int] | None = None,
    reduce: int = ...,
    wire_dtype: int = 0,
    reducers: list[int] | None = None,
) -> str: ...
def nanoseconds(seconds: float | None) -> int: ...

class StoreAdapter:
    store: Any
    failure: BaseException | None
    handle: Any
    vtable: Any
    def __init__(self, store: Any) -> None: ...
