"""Exceptions: one class per status, with the fields, and what the stub file promises."""

from __future__ import annotations

import ast
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

import dicomm
from dicomm import _native, errors

STUB = Path(errors.__file__).with_suffix(".pyi")


def test_one_class_per_failure_and_the_stub_agrees() -> None:
    failures = {name for name, code in _native.STATUSES.items() if code >= 10}
    made = {
        value.status: value
        for value in vars(errors).values()
        if isinstance(value, type)
        and issubclass(value, dicomm.DicommError)
        and value is not dicomm.DicommError
    }
    assert made.keys() == failures
    stub = {
        node.name: [base.id for base in node.bases if isinstance(base, ast.Name)]
        for node in ast.parse(STUB.read_text()).body
        if isinstance(node, ast.ClassDef)
    }
    assert stub.pop("DicommError") == ["Exception"]
    assert stub == {cls.__name__: [base.__name__ for base in cls.__bases__] for cls in made.values()}
    assert all(getattr(dicomm, name) is getattr(errors, name) for name in stub)


@pytest.mark.parametrize(
    ("cls", "also"),
    [
        (dicomm.InvalidArgument, ValueError),
        (dicomm.TimedOut, TimeoutError),
        (dicomm.PeerLost, ConnectionError),
        (dicomm.NoMemory, MemoryError),
        (dicomm.SystemFailed, OSError),
    ],
)
def test_built_in_bases(cls: type, also: type) -> None:
    assert issubclass(cls, also)
    assert issubclass(cls, dicomm.DicommError)


@pytest.mark.parametrize("cls", [dicomm.PeerLost, dicomm.Mismatch, dicomm.NoMemory, dicomm.SystemFailed])
def test_fields_survive_pickling(cls: type[dicomm.DicommError]) -> None:
    made = cls("text", op="allreduce", seq=7, rank=1, peer=3, peer_host="b", path="tcp", bytes=9, waited=1.5)
    back = pickle.loads(pickle.dumps(made))
    assert type(back) is cls
    assert str(back) == "text"
    assert back.__dict__ == made.__dict__
    assert (back.op, back.seq, back.peer, back.waited, back.foreign_code) == ("allreduce", 7, 3, 1.5, None)


def test_an_error_of_the_library_carries_its_text() -> None:
    out = _native.ffi.new("dicomm_store **")
    with pytest.raises(dicomm.InvalidArgument, match="nonsense") as caught:
        _native.check(_native.lib.dicomm_store_open(b"nonsense://x", _native.ffi.NULL, out))
    assert caught.value.status == "INVALID_ARGUMENT"
    assert caught.value.group == "caller"


def test_time_outs() -> None:
    assert _native.nanoseconds(1.5) == 1_500_000_000
    assert _native.nanoseconds(None) == _native.TIMEOUT_DEFAULT
    assert _native.nanoseconds(float("inf")) == _native.TIMEOUT_NEVER
    assert _native.nanoseconds(1e-12) == 1
    for bad in (0, -1.0, float("nan")):
        with pytest.raises(dicomm.InvalidArgument, match="timeout"):
            _native.nanoseconds(bad)


@pytest.mark.parametrize("module", ["dicomm", "dicomm.errors"])
def test_a_class_may_be_the_first_thing_imported(module: str) -> None:
    code = f"from {module} import InvalidArgument; assert InvalidArgument.status == 'INVALID_ARGUMENT'"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=30, cwd="/")
