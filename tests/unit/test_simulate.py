"""DICOMM_SIMULATE: which chip a rank has, and brands from a file."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from dicomm import Config, InvalidArgument, _native
from dicomm.simulate import SimulatedChip, built_in, dtype_mask, simulated_chip


def brands(text: str, ranks: int) -> list[str]:
    chips = [simulated_chip(Config(simulate=text), rank) for rank in range(ranks)]
    assert all(isinstance(chip, SimulatedChip) for chip in chips)
    return [chip.brand for chip in chips if chip]


def test_nothing_is_simulated_unless_asked() -> None:
    assert simulated_chip(Config(), 0) is None
    assert simulated_chip(Config(simulate=" ", simulate_file="/absent"), 0) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("alpha", ["alpha"] * 5),
        ("alpha:2,beta:2", ["alpha", "alpha", "beta", "beta", "alpha"]),
        ("alpha:1,beta:1", ["alpha", "beta", "alpha", "beta", "alpha"]),
        (" alpha : 2 , beta , gamma:1 ", ["alpha", "alpha", "beta", "gamma", "alpha"]),
        ("gamma:70", ["gamma"] * 5),
    ],
)
def test_the_list_repeats_and_is_cut(text: str, expected: list[str]) -> None:
    assert brands(text, 5) == expected


@pytest.mark.parametrize("text", ["alpha:0", "alpha:", ":2", "alpha:2,", "alpha:-1", "alpha 2", "alpha:x"])
def test_a_bad_list_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgument, match="BRAND:RANKS"):
        simulated_chip(Config(simulate=text), 0)


def test_an_unknown_brand_is_refused_with_those_there_are() -> None:
    with pytest.raises(InvalidArgument, match="'omega'; known: alpha, beta, gamma"):
        simulated_chip(Config(simulate="alpha,omega"), 0)


def test_the_built_in_brands_differ_in_what_they_can_do() -> None:
    chips = built_in()
    assert chips["alpha"].dtypes == dtype_mask()
    assert chips["beta"].dtypes == dtype_mask() - dtype_mask("bfloat16", "float8_e4m3fn", "float8_e5m2")
    assert [chips[name].lacks for name in chips] == ["", "avg", "send_recv"]
    assert (
        len({(chip.tflops, chip.memory_bytes, chip.copy_gbs, chip.link_gbs) for chip in chips.values()}) == 3
    )


def test_masks_are_the_abi_s_bits() -> None:
    assert dtype_mask("uint8", "float32") == 1 << _native.DTYPES["UINT8"] | 1 << _native.DTYPES["FLOAT32"]
    assert dtype_mask() == (1 << len(_native.DTYPES)) - 1


def test_a_file_declares_brands(tmp_path: Path) -> None:
    path = tmp_path / "brands.yaml"
    path.write_text(
        """
        brands:
          delta: {tflops: 300, memory: 80G, copy_gbs: 50.5, copy_latency_us: 5, link_gbs: 300,
                  lacks_dtypes: [float64, complex128], lacks: [avg, send_recv]}
          alpha: {tflops: 1, dtypes: float32}
        """
    )
    config = Config(simulate="delta,alpha,beta", simulate_file=str(path))
    assert simulated_chip(config, 0) == SimulatedChip(
        "delta", 300.0, 80 << 30, 50.5, 5.0, 300.0, dtype_mask() - dtype_mask("float64", "complex128"),
        "avg,send_recv",
    )  # fmt: skip
    assert simulated_chip(config, 1) == SimulatedChip("alpha", 1.0, dtypes=dtype_mask("float32"))
    assert simulated_chip(config, 2) == built_in()["beta"]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "mapping"),
        ("- alpha", "mapping"),
        ("brands: [alpha]", "mapping"),
        ("{brands: {}, chips: {}}", "mapping"),
        ("brands: {a: [", "cannot be read"),
        ("brands: {a: 3}", "needs fields"),
        ("brands: {nvidia: {tflops: 1}}", "no real vendor's"),
        ("brands: {a b: {tflops: 1}}", "letters and digits"),
        ("brands: {a: {tflops: -1}}", "tflops"),
        ("brands: {a: {link_gbs: yes}}", "link_gbs"),
        ("brands: {a: {memory: much}}", "memory is a size"),
        ("brands: {a: {dtypes: [float12]}}", "dtypes"),
        ("brands: {a: {dtypes: []}}", "dtypes"),
        ("brands: {a: {dtypes: [int8], lacks_dtypes: [int8]}}", "once"),
        ("brands: {a: {lacks: [taste]}}", "avg and send_recv"),
        ("brands: {a: {colour: red}}", "'colour'; known: tflops"),
    ],
)
def test_a_bad_file_is_refused_with_the_reason(text: str, complaint: str, tmp_path: Path) -> None:
    path = tmp_path / "brands.yaml"
    path.write_text(text)
    with pytest.raises(InvalidArgument, match=complaint) as caught:
        simulated_chip(Config(simulate="alpha", simulate_file=str(path)), 0)
    assert str(path) in str(caught.value)


def test_a_missing_file_is_named() -> None:
    with pytest.raises(InvalidArgument, match=r"/absent/brands\.yaml"):
        simulated_chip(Config(simulate="alpha", simulate_file="/absent/brands.yaml"), 0)


def test_without_pyyaml_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(InvalidArgument, match="pip install PyYAML"):
        simulated_chip(Config(simulate="alpha", simulate_file="/b.yaml"), 0)
