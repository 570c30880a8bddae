"""Chips that exist on any machine: which one each rank of a job has, from DICOMM_SIMULATE.

`DICOMM_SIMULATE="alpha:2,beta:2"` gives ranks 0 and 1 a chip of brand alpha and ranks 2 and 3 one of brand
beta; with more ranks the list repeats, with fewer it is cut. Brands are those below and those that the YAML
file named by DICOMM_SIMULATE_FILE declares. docs/guide/simulate.md says what is modelled.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from dicomm import _native
from dicomm.config import Config, parse_size
from dicomm.errors import InvalidArgument

# Words that mean a real vendor.
_REAL = ("cpu", "nvidia", "amd", "ascend", "mthreads", "iluvatar", "metax", "hygon")
_LACKS = ("avg", "send_recv")


def dtype_mask(*names: str) -> int:
    """Bits of dtypes by name ("bfloat16"), as SimulatedChip.dtypes has them; no name: of all dtypes."""
    codes = _native.DTYPES
    return sum(1 << codes[name.upper()] for name in names or codes)


@dataclass(frozen=True)
class SimulatedChip:
    """What is modelled of a chip; the fields of dicomm_simulation in dicomm.h, and the brand."""

    brand: str
    tflops: float = 0.0  # 1e12 operations per second
    memory_bytes: int = 0  # 0: no limit
    copy_gbs: float = 0.0  # 1e9 bytes per second, each way; 0: as fast as it goes
    copy_latency_us: float = 0.0
    link_gbs: float = 0.0  # to chips of its brand; 0: as fast as it goes
    dtypes: int = (1 << 64) - 1  # bit 1 << DICOMM_<dtype>: its collective library knows the dtype
    lacks: str = ""  # what the library cannot do: "avg", "send_recv" or both with a comma


_FLOAT8 = ("float8_e4m3fn", "float8_e5m2")


@cache
def built_in() -> Mapping[str, SimulatedChip]:
    """The brands that need no file, by name. No two can do the same."""
    everything = dtype_mask()
    chips = (
        SimulatedChip("alpha", 120.0, 32 << 30, 20.0, 8.0, 150.0, everything),
        SimulatedChip(
            "beta", 60.0, 24 << 30, 12.0, 12.0, 50.0, everything & ~dtype_mask("bfloat16", *_FLOAT8), "avg"
        ),
        SimulatedChip(
            "gamma", 200.0, 64 << 30, 25.0, 10.0, 100.0, everything & ~dtype_mask(*_FLOAT8), "send_recv"
        ),
    )
    return {chip.brand: chip for chip in chips}


def simulated_chip(config: Config, rank: int) -> SimulatedChip | None:
    """The chip of this rank; None when nothing is simulated. Raises as simulated_ranks does."""
    ranks = simulated_ranks(config)
    return ranks[rank % len(ranks)] if ranks else None


def simulated_ranks(config: Config) -> list[SimulatedChip]:
    """The chips that config.simulate lists, rank by rank; none when nothing is simulated.

    Raises InvalidArgument when config.simulate or the file of config.simulate_file makes no sense.
    """
    if not config.simulate.strip():
        return []
    brands = dict(built_in())
    if config.simulate_file:
        brands.update(_read(config.simulate_file))
    ranks: list[SimulatedChip] = []
    for item in config.simulate.split(","):
        match = re.fullmatch(r"\s*([\w-]+)\s*(?::\s*(\d{1,6})\s*)?", item)
        if not match or (match[2] and not int(match[2])):
            raise InvalidArgument(
                f"DICOMM_SIMULATE={config.simulate!r}: {item!r} is not BRAND:RANKS, as in alpha:2,beta:2"
            )
        if match[1] not in brands:
            known = ", ".join(brands)
            raise InvalidArgument(
                f"DICOMM_SIMULATE={config.simulate!r}: no brand is called {match[1]!r}; known: {known}. "
                "A file named by DICOMM_SIMULATE_FILE can declare more"
            )
        ranks += [brands[match[1]]] * int(match[2] or 1)
    return ranks


def _read(path: str) -> dict[str, SimulatedChip]:
    try:
        import yaml
    except ImportError as error:
        raise InvalidArgument(
            f"DICOMM_SIMULATE_FILE={path!r} needs PyYAML: pip install PyYAML ({error})"
        ) from error
    try:
        content = yaml.safe_load(Path(path).read_text())
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise InvalidArgument(f"DICOMM_SIMULATE_FILE={path!r} cannot be read: {error}") from error
    brands = content["brands"] if isinstance(content, dict) and content.keys() == {"brands"} else None
    if not isinstance(brands, dict):
        raise InvalidArgument(f"DICOMM_SIMULATE_FILE={path!r} is not a mapping `brands:` from name to chip")
    return {str(brand): _chip(path, str(brand), fields) for brand, fields in brands.items()}


def _chip(path: str, brand: str, fields: Any) -> SimulatedChip:
    def wrong(what: str) -> InvalidArgument:
        return InvalidArgument(f"DICOMM_SIMULATE_FILE={path!r}: brand {brand!r}: {what}")

    if not re.fullmatch(r"[\w-]{1,32}", brand) or brand in _REAL:
        raise wrong("a brand's name is letters and digits, and no real vendor's")
    if not isinstance(fields, dict):
        raise wrong("it needs fields such as `tflops: 100`")
    values: dict[str, Any] = {}
    for name, value in fields.items():
        if name in ("tflops", "copy_gbs", "copy_latency_us", "link_gbs"):
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e12:
                raise wrong(f"{name} is a number that is not negative, not {value!r}")
            values[name] = float(value)
        elif name == "memory":
            try:
                values["memory_bytes"] = parse_size(str(value))
            except ValueError as error:
                raise wrong(f"memory is {error}, not {value!r}") from None
        elif name in ("dtypes", "lacks_dtypes"):
            names = _words(value)
            unknown = [word for word in names if word.upper() not in _native.DTYPES]
            if unknown or not names or "dtypes" in values:
                raise wrong(f"{name} is a list of dtypes, once, not {value!r}")
            mask = dtype_mask(*names)
            values["dtypes"] = mask if name == "dtypes" else dtype_mask() & ~mask
        elif name == "lacks":
            if not set(_words(value)) <= set(_LACKS):
                raise wrong(f"lacks is a list of {' and '.join(_LACKS)}, not {value!r}")
            values["lacks"] = ",".join(_words(value))
        else:
            known = "tflops, memory, copy_gbs, copy_latency_us, link_gbs, dtypes, lacks_dtypes, lacks"
            raise wrong(f"there is no field {name!r}; known: {known}")
    return SimulatedChip(brand, **values)


def _words(value: Any) -> list[str]:
    return [str(word) for word in value] if isinstance(value, list) else [str(value)]
