"""Finds or compiles the native half of the torch plugin; `python -m dicomm.torch.build` compiles it ahead.

A binary fits one minor version of torch (the layout of c10d's classes changes with each) and one Python
ABI. Looked for in this order: compiled with dicomm itself, where torch was there already; compiled earlier
into the cache; else compiled now, which takes half a minute, by one process while the others wait.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib.machinery
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from dicomm.config import Config, cache_directory

OLDEST = (2, 13)
_COMPILERS = ("g++", "c++", "clang++")
_SOURCE = "dicomm_torch.cc"


@dataclass(frozen=True)
class Torch:
    """An installed torch, described without importing it."""

    directory: Path
    version: str

    @classmethod
    def find(cls, directory: str = "") -> Torch:
        """The torch in `directory`, or the one `import torch` gives. ImportError when there is none."""
        if not directory:
            spec = importlib.util.find_spec("torch")
            if spec is None or spec.origin is None:
                raise ImportError("torch is not installed: pip install torch")
            directory = str(Path(spec.origin).parent)
        try:
            text = Path(directory, "version.py").read_text()
        except OSError as error:
            raise ImportError(f"{directory} is not a torch package: {error}") from error
        match = re.search(r"__version__ = ['\"]([^'\"]+)['\"]", text)
        if not match:
            raise ImportError(f"{directory}/version.py does not say which version of torch it is")
        return cls(Path(directory), match[1])

    @property
    def minor(self) -> tuple[int, int]:
        major, minor = self.version.split(".")[:2]
        return int(major), int(minor)

    def library_path(self, name: str) -> str:
        return str(self.directory / "lib" / f"lib{name}.so")


def package_directory() -> Path:
    """Where dicomm's native parts are installed (for an editable installation: not the source tree)."""
    spec = importlib.util.find_spec("dicomm._cffi")
    if spec is None or spec.origin is None:
        raise ImportError("dicomm's native module is missing; reinstall dicomm")
    return Path(spec.origin).resolve().parent


def file_name(torch: Torch) -> str:
    """Of the binary for this torch and this Python; bindings/torch/CMakeLists.txt makes the same."""
    return "_torch_{}_{}.{}.so".format(*torch.minor, sysconfig.get_config_var("SOABI"))


def _sources() -> Path:
    return package_directory() / "torch" / "csrc"


def _fingerprint() -> str:
    """Of everything that is compiled."""
    digest = hashlib.sha256()
    header = package_directory() / "include" / "dicomm" / "dicomm.h"
    for path in [*sorted(p for p in _sources().iterdir() if p.suffix in (".cc", ".h")), header]:
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def _candidates(torch: Torch, config: Config) -> tuple[Path, Path]:
    """Compiled with dicomm; compiled on first use."""
    name = file_name(torch)
    cached = cache_directory(config) / f"torch-{torch.version}-{_fingerprint()}" / name
    return package_directory() / "torch" / name, cached


def state() -> dict[str, Any]:
    """For `dicomm info`: which torch, and whether its plugin is there. Imports neither of them."""
    try:
        torch = Torch.find()
        _check_version(torch)
        found = next((path for path in _candidates(torch, Config.from_environment()) if path.exists()), None)
    except ImportError as error:
        return {"state": str(error)}
    if found is None:
        return {"state": "will be compiled on first use (about half a minute)", "torch": torch.version}
    return {"state": "ready", "torch": torch.version, "binary": str(found)}


def _check_version(torch: Torch) -> None:
    if torch.minor < OLDEST:
        raise ImportError(
            "dicomm's torch plugin needs torch {}.{} or newer; this is torch {}".format(
                *OLDEST, torch.version
            )
        )


def load() -> ModuleType:
    """The native half for the torch of this process. ImportError says what is missing."""
    config = Config.from_environment()
    torch = Torch.find(config.torch_dir)
    _check_version(torch)
    running = sys.modules["torch"].__version__ if "torch" in sys.modules else torch.version
    if running.split(".")[:2] != torch.version.split(".")[:2]:
        raise ImportError(
            f"DICOMM_TORCH_DIR names torch {torch.version}, but this process runs torch {running}: a plugin "
            "made for one minor version does not fit another; unset DICOMM_TORCH_DIR"
        )
    installed, cached = _candidates(torch, config)
    if installed.exists():
        return _import(installed, torch)
    if not cached.exists():
        compile_plugin(torch, cached)
    return _import(cached, torch)


def _import(path: Path, torch: Torch) -> ModuleType:
    from dicomm import _native  # loads libdicomm, which the plugin is linked to by name only

    loader = importlib.machinery.ExtensionFileLoader("dicomm.torch._C", str(path))
    spec = importlib.util.spec_from_file_location("dicomm.torch._C", path, loader=loader)
    assert spec is not None
    try:
        module = importlib.util.module_from_spec(spec)
    except ImportError as error:
        raise ImportError(
            f"dicomm's torch plugin {path} does not fit torch {torch.version} ({error}); delete it and run "
            "python -m dicomm.torch.build"
        ) from error
    loader.exec_module(module)
    made_for = module.TORCH_VERSION.split(".")[:2]
    if made_for != torch.version.split(".")[:2] or module.ABI_VERSION != _native.ABI_VERSION:
        raise ImportError(
            f"{path} was compiled for torch {module.TORCH_VERSION} and version {module.ABI_VERSION} of "
            f"dicomm's ABI, not for torch {torch.version} and version {_native.ABI_VERSION}: run "
            "python -m dicomm.torch.build"
        )
    return module


def compile_plugin(torch: Torch, target: Path) -> None:
    """Compiles into `target`, or waits for the process that is doing so."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with _locked(target.with_suffix(".lock")):
        if target.exists():
            return
        command = _command(torch)
        print(
            f"dicomm: compiling the plugin for torch {torch.version} once (half a minute) into {target}",
            file=sys.stderr,
            flush=True,
        )
        with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
            made = Path(scratch) / target.name
            done = subprocess.run([*command, "-o", str(made)], capture_output=True, text=True, check=False)
            if done.returncode != 0:
                tail = "\n".join(done.stderr.splitlines()[-30:])
                raise ImportError(
                    f"dicomm's plugin for torch {torch.version} does not compile:\n{tail}\nThe command was: "
                    + " ".join(command)
                )
            os.replace(made, target)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """One process at a time; released by the system when a process dies."""
    with open(path, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _command(torch: Torch) -> list[str]:
    compiler = next(filter(None, map(shutil.which, _COMPILERS)), None)
    if compiler is None:
        raise ImportError(
            f"dicomm's plugin must be compiled for torch {torch.version}, and there is no C++ compiler here. "
            "Install one (apt install g++, dnf install gcc-c++), or run `python -m dicomm.torch.build` with "
            "the same torch and Python where there is one and copy the file it names to the same place"
        )
    root = package_directory()
    python_include = Path(sysconfig.get_path("include"))
    if not (python_include / "Python.h").exists():
        raise ImportError(
            f"dicomm's plugin must be compiled for torch {torch.version}, and Python's C headers are not in "
            f"{python_include}. Install them (apt install python3-dev, dnf install python3-devel)"
        )
    includes = [
        torch.directory / "include",
        torch.directory / "include/torch/csrc/api/include",
        python_include,
    ]
    libraries = sorted((root / "lib").glob("libdicomm.so*"))
    return [
        compiler,
        *("-std=c++20", "-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-DTORCH_EXTENSION_NAME=_C"),
        *(f"-isystem{path}" for path in includes),
        f"-I{root / 'include'}",
        str(_sources() / _SOURCE),
        str(libraries[0]),
        *map(torch.library_path, ("c10", "torch_cpu", "torch", "torch_python")),
        "-Wl,-rpath,$ORIGIN/../lib",
    ]


def main() -> int:
    """Compiles for the installed torch into the package, or into the cache where that is read-only."""
    try:
        config = Config.from_environment()
        torch = Torch.find(config.torch_dir)
        _check_version(torch)
        installed, cached = _candidates(torch, config)
        target = installed if os.access(installed.parent, os.W_OK) else cached
        target.unlink(missing_ok=True)
        compile_plugin(torch, target)
    except ImportError as error:
        print(f"dicomm.torch.build: {error}", file=sys.stderr)
        return 1
    print(target)
    return 0


if __name__ == "__main__":
    sys.exit(main())
