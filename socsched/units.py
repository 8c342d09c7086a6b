"""Physical quantities at the file edge: text with a unit in, integers in base units inside.

Inside socsched a time is int64 nanoseconds, a size bytes, a rate bytes per second or hertz, a power milliwatts, an
energy microjoules.  Text such as ``"10 ms"`` or ``"204.8 GB/s"`` is parsed here and formatted here, nowhere else.
"""

from __future__ import annotations

import re
from fractions import Fraction

_SI = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_IEC = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30}


def _scaled(unit: str, prefixes: dict[str, int], base: int = 1) -> dict[str, Fraction]:
    return {prefix + unit: Fraction(factor * base) for prefix, factor in prefixes.items()}


UNITS: dict[str, dict[str, Fraction]] = {
    "duration": {
        "ns": Fraction(1),
        "us": Fraction(10**3),
        "µs": Fraction(10**3),
        "ms": Fraction(10**6),
        "s": Fraction(10**9),
        "min": Fraction(60 * 10**9),
        "h": Fraction(3600 * 10**9),
    },
    "size": {**_scaled("B", _SI), **_scaled("B", _IEC)},
    "bandwidth": {**_scaled("B/s", _SI), **_scaled("B/s", _IEC)},
    "frequency": _scaled("Hz", _SI),
    "power": {"mW": Fraction(1), "W": Fraction(1000)},
    "energy": {"pJ": Fraction(1, 10**6), "nJ": Fraction(1, 1000), "uJ": Fraction(1), "mJ": Fraction(1000), "J": Fraction(10**6)},
    "temperature": {"C": Fraction(1)},
}
BASE_UNIT = {
    "duration": "ns",
    "size": "B",
    "bandwidth": "B/s",
    "frequency": "Hz",
    "power": "mW",
    "energy": "uJ",
    "temperature": "C",
}
_QUANTITY = re.compile(r"\s*([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*(\S*)\s*")


def parse(text: object, dimension: str) -> int:
    """Return `text` (such as ``"10 ms"``) in the base unit of `dimension`, rounded to the nearest integer.

    Raises ValueError when the text is no quantity, its unit is unknown or missing, or it is a bare number.
    """
    units = UNITS[dimension]
    if isinstance(text, bool) or not isinstance(text, (str, int, float)):
        raise ValueError(f"expected a {dimension} with a unit such as {_examples(dimension)}")
    match = _QUANTITY.fullmatch(str(text))
    if not match:
        raise ValueError(f"expected a {dimension} such as {_examples(dimension)}, got {text!r}")
    number, unit = match.groups()
    if unit not in units:
        problem = f"unit {unit!r} is not one" if unit else "the unit is missing"
        raise ValueError(f"expected a {dimension} such as {_examples(dimension)}: {problem} in {text!r}")
    return round(Fraction(number) * units[unit])


def parse_duration(text: object) -> int:
    """Return a duration in nanoseconds."""
    return parse(text, "duration")


def _examples(dimension: str) -> str:
    return {
        "duration": "'10 ms'",
        "size": "'64 KiB'",
        "bandwidth": "'204.8 GB/s'",
        "frequency": "'1.3 GHz'",
        "power": "'15 W'",
        "energy": "'2 mJ'",
        "temperature": "'99 C'",
    }[dimension]


def _pick(value: float, steps: tuple[tuple[float, str], ...], digits: int) -> str:
    for factor, unit in steps:
        if abs(value) >= factor:
            return f"{value / factor:.{digits}g} {unit}"
    factor, unit = steps[-1]
    return f"{value / factor:.{digits}g} {unit}"


def format_duration(ns: float, digits: int = 4) -> str:
    """Return nanoseconds as text for people, such as ``4.87 ms``."""
    return _pick(ns, ((1e9, "s"), (1e6, "ms"), (1e3, "us"), (1, "ns")), digits)


def format_bandwidth(bytes_per_s: float, digits: int = 4) -> str:
    """Return bytes per second as text for people, such as ``204.8 GB/s``."""
    return _pick(bytes_per_s, ((1e9, "GB/s"), (1e6, "MB/s"), (1, "B/s")), digits)


def format_power(mw: float, digits: int = 4) -> str:
    """Return milliwatts as text for people, such as ``15 W``."""
    return _pick(mw, ((1e3, "W"), (1, "mW")), digits)


def format_size(size: float, digits: int = 4) -> str:
    """Return bytes as text for people, such as ``52.3 MiB``."""
    return _pick(size, ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"), (1, "B")), digits)


def format_frequency(hz: float, digits: int = 5) -> str:
    """Return hertz as text for people, such as ``1.3005 GHz``."""
    return _pick(hz, ((1e9, "GHz"), (1e6, "MHz"), (1, "Hz")), digits)
