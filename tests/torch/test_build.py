"""Finding, compiling and refusing the plugin's binary."""

from __future__ import annotations

import multiprocessing
import shutil
from pathlib import Path

import pytest

from dicomm.torch import build


@pytest.fixture
def this_torch() -> build.Torch:
    return build.Torch.find()


def fake_torch(path: Path, version: str) -> build.Torch:
    path.mkdir(parents=True, exist_ok=True)
    (path / "version.py").write_text(f"__version__ = '{version}'\n")
    return build.Torch.find(str(path))


def test_a_torch_is_described_without_importing_it(tmp_path: Path) -> None:
    torch = fake_torch(tmp_path, "2.13.0+cu130")
    assert torch.minor == (2, 13)
    assert build.file_name(torch).startswith("_torch_2_13.cpython-")
    assert build.file_name(torch) == build.file_name(fake_torch(tmp_path, "2.13.1"))
    assert build.file_name(torch) != build.file_name(fake_torch(tmp_path, "2.14.1"))


def test_no_torch_is_said(tmp_path: Path) -> None:
    with pytest.raises(ImportError, match="is not a torch package"):
        build.Torch.find(str(tmp_path))


def test_an_old_torch_is_refused_with_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_torch(tmp_path, "2.4.1")
    monkeypatch.setenv("DICOMM_TORCH_DIR", str(tmp_path))
    with pytest.raises(ImportError, match=r"needs torch 2\.13 or newer; this is torch 2\.4\.1"):
        build.load()


def test_a_missing_compiler_is_said(
    this_torch: build.Torch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(ImportError, match=r"no C\+\+ compiler here.*apt install g\+\+"):
        build.compile_plugin(this_torch, tmp_path / "plugin.so")


def test_what_does_not_compile_is_shown(
    this_torch: build.Torch,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "dicomm_torch.cc").write_text("#error no such torch\n")
    monkeypatch.setattr(build, "_sources", lambda: tmp_path)
    with pytest.raises(ImportError, match=r"(?s)does not compile.*no such torch.*The command was"):
        build.compile_plugin(this_torch, tmp_path / "out" / "plugin.so")
    assert capfd.readouterr().err.count("compiling the plugin for torch") == 1
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["plugin.lock"]


def _compile(torch: build.Torch, target: Path, directory: Path) -> None:
    build._sources = lambda: directory  # type: ignore[assignment]
    build.compile_plugin(torch, target)


@pytest.mark.timeout(120)
def test_ranks_that_start_together_compile_once(this_torch: build.Torch, tmp_path: Path) -> None:
    compiled = tmp_path / "compiled"
    (tmp_path / "dicomm_torch.cc").write_text("int f() { return __COUNTER__; }\n")
    target = tmp_path / "out" / "plugin.so"
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=_compile, args=(this_torch, target, tmp_path)) for _ in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0] * 4
    assert target.exists()
    assert not compiled.exists()


def test_state_names_the_binary_or_what_will_happen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert build.state()["state"] in ("ready", "will be compiled on first use (about half a minute)")
    monkeypatch.setenv("DICOMM_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(build, "file_name", lambda torch: "_torch_9_9.so")
    assert build.state()["state"].startswith("will be compiled")
