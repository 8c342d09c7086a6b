"""Conversion of physical quantities between text with units in files and integers in base units.

Inside socsched a time is int64 nanoseconds, a size bytes, a rate bytes per second or hertz, a power milliwatts, an
energy microjoules.  Text such as ``"10 ms"`` or ``"204.8 GB/s"`` is parsed and formatted only here.
"""

from __future__ import annotations

import difflib
import math
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
    "energy": {
        "pJ": Fraction(1, 10**6),
        "nJ": Fraction(1, 1000),
        "uJ": Fraction(1),
        "mJ": Fraction(1000),
        "J": Fraction(10**6),
    },
    "energy per byte": {"pJ/B": Fraction(1), "pJ/bit": Fraction(8), "nJ/B": Fraction(1000)},
    "temperature": {"C": Fraction(1)},
    "voltage": {"uV": Fraction(1), "mV": Fraction(1000), "V": Fraction(10**6)},
}
"""Dimension -> unit -> factor to the base unit."""

BASE_UNIT = {
    "duration": "ns",
    "size": "B",
    "bandwidth": "B/s",
    "frequency": "Hz",
    "power": "mW",
    "energy": "uJ",
    "energy per byte": "pJ/B",
    "temperature": "C",
    "voltage": "uV",
}

EXAMPLES = {
    "duration": "10 ms",
    "size": "64 KiB",
    "bandwidth": "204.8 GB/s",
    "frequency": "1.3 GHz",
    "power": "15 W",
    "energy": "2 mJ",
    "energy per byte": "40 pJ/B",
    "temperature": "99 C",
    "voltage": "0.85 V",
}
"""Dimension -> example for messages and schemas."""

_WORDS = {
    "second": "s",
    "minute": "min",
    "hour": "h",
    "watt": "w",
    "volt": "v",
    "byte": "b",
    "hertz": "hz",
    "hert": "hz",
}
"""Spelt-out unit names, singular, for the comparison in `nearest_unit`."""

NUMBER = r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
_QUANTITY = re.compile(rf"\s*({NUMBER})\s*(\S*)\s*")
_LONGEST = 64  # characters: longer than any sensible quantity, short enough to keep memory bounded
_LARGEST = 2**63 - 1


def parse_exact(text: object, dimension: str) -> Fraction:
    """Return `text` (such as ``"10 ms"``) in the base unit of `dimension`, without rounding.

    Raises ValueError if the text is not a quantity, its unit is unknown or missing, it is a bare number, or it does
    not fit into 64 bits.
    """
    number, unit = _split(text, dimension)
    units = UNITS[dimension]
    if unit not in units:
        problem = f"unit {unit!r} is not one of {', '.join(units)}" if unit else "the unit is missing"
        near = nearest_unit(unit, dimension)
        raise ValueError(
            f"{_wanted(dimension)}: {problem} in {str(text)!r}" + (f"; did you mean {near!r}?" if near else "")
        )
    # A float first: the exponent of "1e999999999" must not be expanded into digits.
    if not math.isfinite(float(number)) or abs(float(number)) * float(units[unit]) > 2.0 * _LARGEST:
        raise ValueError(f"{_wanted(dimension)}, got {str(text)!r}, which is too large")
    exponent = re.search(r"[eE]-0*([0-9]+)", number)
    exact = Fraction(0) if exponent and int(exponent.group(1)) > 99 else Fraction(number)
    value = exact * units[unit]
    if abs(value) > _LARGEST:
        raise ValueError(f"{_wanted(dimension)}, got {str(text)!r}, which is too large")
    return value


def nearest_unit(unit: str, dimension: str) -> str:
    """Return the unit of a dimension closest to a misspelt one, empty when none is close.

    A valid unit of another dimension is not a misspelling, so it gets no suggestion.
    """
    if any(unit in units for units in UNITS.values()):
        return ""
    known = {name.lower(): name for name in reversed(UNITS[dimension])}
    plain = unit.lower().replace("μ", "µ").removesuffix(".")
    plain = _WORDS.get(plain.removesuffix("s"), plain)
    for candidate in (plain, plain.replace("ps", "/s"), plain.removesuffix("s"), plain.removesuffix("ec")):
        if candidate in known:
            return known[candidate]
    near = difflib.get_close_matches(plain, known, n=1, cutoff=0.6) if plain else []
    return known[near[0]] if near else ""


def parse(text: object, dimension: str) -> int:
    """Return `text` (such as ``"10 ms"``) in the base unit of `dimension`, rounded to the nearest integer.

    Raises ValueError as `parse_exact` does.
    """
    return round(parse_exact(text, dimension))


def parse_number(text: object) -> float:
    """Return a number; ValueError for anything else: nan and inf, which compare unlike numbers, are none."""
    if not re.fullmatch(NUMBER, str(text).strip()) or not math.isfinite(float(str(text))):
        raise ValueError(f"expected a number, got {str(text)[:_LONGEST]!r}")
    return float(str(text))


def parse_duration(text: object) -> int:
    """Return a duration in nanoseconds."""
    return parse(text, "duration")


def _split(text: object, dimension: str) -> tuple[str, str]:
    if isinstance(text, bool) or not isinstance(text, (str, int, float)):
        raise ValueError(f"{_wanted(dimension)}")
    # Converting a huge int to text raises its own ValueError; check the size first.
    quoted = text if isinstance(text, str) else str(text) if abs(text) < 1e300 else "a huge number"
    match = _QUANTITY.fullmatch(quoted) if len(quoted) <= _LONGEST else None
    if not match:
        raise ValueError(f"{_wanted(dimension)}, got {quoted[:_LONGEST]!r}")
    return match.group(1), match.group(2)


def _wanted(dimension: str) -> str:
    article = "an" if dimension[0] in "aeiou" else "a"
    return f"expected {article} {dimension} such as '{EXAMPLES[dimension]}'"


def _pick(value: float, steps: tuple[tuple[float, str], ...], digits: int) -> str:
    """Return `value` in the largest unit it reaches once rounded to `digits` significant digits."""
    rounded = float(f"{value:.{digits}g}")
    for factor, unit in steps:
        if abs(rounded) >= factor or factor == steps[-1][0]:
            scaled = rounded / factor
            whole = len(str(int(abs(scaled))))
            text = f"{scaled:.{max(digits - whole, 0) if abs(scaled) >= 1 else digits}f}"
            return f"{text.rstrip('0').rstrip('.') if '.' in text else text} {unit}"
    raise AssertionError("steps is never empty")


def format_duration(ns: float, digits: int = 4) -> str:
    """Return nanoseconds as human-readable text, such as ``4.87 ms``."""
    return _pick(ns, ((1e9, "s"), (1e6, "ms"), (1e3, "us"), (1, "ns")), digits)


def format_bandwidth(bytes_per_s: float, digits: int = 4) -> str:
    """Return bytes per second as human-readable text, such as ``204.8 GB/s``."""
    return _pick(bytes_per_s, ((1e9, "GB/s"), (1e6, "MB/s"), (1, "B/s")), digits)


def format_power(mw: float, digits: int = 4) -> str:
    """Return milliwatts as human-readable text, such as ``15 W``."""
    return _pick(mw, ((1e3, "W"), (1, "mW")), digits)


def format_size(size: float, digits: int = 4) -> str:
    """Return bytes as human-readable text, such as ``52.3 MiB``."""
    return _pick(size, ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"), (1, "B")), digits)


def format_frequency(hz: float, digits: int = 5) -> str:
    """Return hertz as human-readable text, such as ``1.3005 GHz``."""
    return _pick(hz, ((1e9, "GHz"), (1e6, "MHz"), (1, "Hz")), digits)
