"""Two processes that share a GPU, each of them an island: dicomm on a real chip, in under five minutes.

    python -m pytest -m gpu tests/gpu -s      # -s shows the figures

The same cases run everywhere in the default tests, on a simulated chip.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from support.foreign import NATIVE, ROOT, compile_with
from support.processes import Job

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.timeout(280)

HERE = Path(__file__).parent
DEVICES = [pytest.param("cuda", marks=pytest.mark.gpu), pytest.param("simulated", marks=pytest.mark.slow)]
SETTINGS = {
    "cuda": {"DICOMM_VENDOR": "nvidia", "DICOMM_DEVICE_INDEX": "0"},
    "simulated": {"DICOMM_SIMULATE": "alpha"},
}
RunCase = Callable[..., str]


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> str:
    if request.param == "cuda" and not (torch.version.cuda and torch.cuda.is_available()):
        pytest.skip(f"torch {torch.__version__} sees no GPU of NVIDIA's")
    return str(request.param)


@pytest.fixture
def run_case(device: str, request: pytest.FixtureRequest) -> RunCase:
    """run_case("large") runs that function of gpu_rank.py on two ranks and returns what they printed. Fails
    where a rank raises or does not end."""
    tensors = "cuda" if device == "cuda" else str(request.getfixturevalue("host_device_library"))
    paths = (HERE, ROOT / "tests", ROOT / "tests/torch")
    own = {"PYTHONPATH": os.pathsep.join(map(str, paths)), "TEST_DEVICE": tensors, **SETTINGS[device]}

    def run(case: str, timeout: float = 60, **settings: str) -> str:
        source = f"import gpu_rank\ngpu_rank.run({case!r})"
        with Job(2, source, join=False, env={**own, **settings}) as job:
            codes = job.wait(timeout=timeout)
            said = "\n".join(f"--- rank {rank}\n{job.output(rank)}" for rank in range(2))
        assert codes == [0, 0], said
        return said

    return run


def test_stream_order(run_case: RunCase) -> None:
    run_case("stream_order")


def test_64_mib(run_case: RunCase) -> None:
    print(*re.findall("figure: .*", run_case("large")), sep="\n")


def test_every_dtype_and_reduce_operation(run_case: RunCase) -> None:
    run_case("every_dtype", 120)


def test_training_and_groups_of_one(run_case: RunCase) -> None:
    run_case("training")


def test_what_cannot_be_one_island(run_case: RunCase, device: str) -> None:
    """NCCL takes no chip twice; brands of simulated chips refuse one another."""
    if device == "cuda":
        more = {"EXPECTED": "use one chip|Duplicate GPU detected"}
    else:
        more = {"DICOMM_SIMULATE": "alpha,beta", "EXPECTED": "would hold alpha .* rank 0 .*, beta .* rank 1 "}
    said = run_case("refused", DICOMM_ISLAND="shared", **more)
    assert said.count("was told: ") == 2
    print(said)


# Over doubles, ctest has more; here only what runs the program.
@pytest.mark.parametrize(
    "device", [DEVICES[0], pytest.param("doubles", marks=pytest.mark.slow)], indirect=True
)
def test_a_group_of_one_rank(device: str, tmp_path: Path) -> None:
    """The CUDA run time and NCCL through dicomm's own contracts, without torch."""
    program, source = tmp_path / "one_rank", NATIVE / "src"
    names = ("ccl/bounded.cc", "ccl/group_base.cc", "api/status.cc", "base/dynamic_library.cc")
    sources = [HERE / "one_rank.cc", *(source / name for name in (*names, "base/error.cc", "base/names.cc"))]
    for folder in ("ccl/nccl", "device/cuda"):
        sources += sorted((source / folder).glob("*.cc"))
    compile_with([], "-o", str(program), *map(str, sources), "-pthread", "-ldl")
    files = of_torch() if device == "cuda" else doubles(tmp_path)
    done = subprocess.run([program, *files], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("fine\n")
    # The double says that it is older than premul_sum.
    assert done.stdout.count("as expected") == (7 if device == "cuda" else 6), done.stdout
    print(done.stdout)


def of_torch() -> list[str]:
    """The run time and the library that this torch has in its process; "" for what is linked into it."""
    code = "import torch; torch.cuda.init(); print(open('/proc/self/maps').read())"
    maps = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    found = [re.search(rf"/\S+/{name}\.so\S*", maps.stdout) for name in ("libcudart", "libnccl")]
    return [match[0] if match else "" for match in found]


def doubles(folder: Path) -> list[str]:
    """Libraries with the vendor's interface that work in host memory."""
    for name in ("cuda", "nccl"):
        more = ["-shared", "-fPIC", f"-DDOUBLE_PREFIX={name}", "-o", str(folder / f"{name}.so")]
        compile_with([], *more, str(NATIVE / f"tests/doubles/{name}.cc"))
    return [str(folder / f"{name}.so") for name in ("cuda", "nccl")]
