"""CSV logs of jtop (jetson-stats, `jtop.stats` written by its logger): the board's state while costs were recorded.

Columns of jetson-stats 3 and 4: powers in mW ("Power TOT", "power cur"), temperatures in C, loads in %.  Versions 2 and
earlier are not known.
"""

from __future__ import annotations

import csv
from pathlib import Path

from socsched.bounded import read_bytes
from socsched.errors import InputError
from socsched.interchange.recording import HINT, MOST_BYTES, Recording

_TOTAL = ("Power TOT", "power cur")
_HINT = "give a log of jtop_logger: jtop.stats as comma-separated values with a line of names"
_OFF_C = -256.0


def accepts(head: str) -> bool:
    """Return whether the first line holds the columns of jtop."""
    names = head.partition("\n")[0].strip().split(",")
    return "time" in names and any(n.startswith(("Temp ", "Power ", "power ")) or n == "nvp model" for n in names)


def recording(path: Path, data: object = None) -> Recording:
    """Return a recording with the board's state only; InputError with the line of a fault."""
    text = read_bytes(path, "log", HINT, MOST_BYTES).decode("utf-8", "replace")
    reader = csv.DictReader(text.splitlines())
    powers, temperatures, loads, modes, clocks, count = [], list[float](), list[float](), set[str](), set[str](), 0
    try:
        for row in reader:
            count += 1
            place = f"{path}:{reader.line_num}"
            total = next((row[name] for name in _TOTAL if row.get(name)), None)
            if total is not None:
                powers.append(_number(place, "power", total) / 1000)
            for name, value in row.items():
                if isinstance(name, str) and name.startswith("Temp ") and value and value != "OFF":
                    temperatures.append(_number(place, name, value))
            if (load := row.get("GPU")) and load != "OFF":
                loads.append(_number(place, "GPU", load))
            modes |= {row["nvp model"]} if row.get("nvp model") else set()
            clocks |= {row["jetson_clocks"]} if row.get("jetson_clocks") else set()
    except csv.Error as error:
        raise InputError(f"{path}:{reader.line_num}: expected comma-separated values: {error}", _HINT) from None
    if not count:
        raise InputError(f"{path}: the log holds no samples", _HINT)
    parts = [f"{count} samples of jtop"]
    if modes:
        parts.append("nvpmodel " + " and ".join(sorted(modes)))
    if clocks:
        parts.append("jetson_clocks " + " and ".join(sorted(clocks)))
    if powers:
        parts.append(f"{sum(powers) / len(powers):.1f} W on average, {max(powers):.1f} W at most")
    if loads:
        parts.append(f"gpu load {sum(loads) / len(loads):.0f}% on average")
    if hot := [value for value in temperatures if value > _OFF_C]:
        parts.append(f"up to {max(hot):.0f} C")
    return Recording(str(path), "jtop", samples=count, state=" ".join("; ".join(parts).split())[:400])


def _number(place: str, name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not -1000 <= value <= 10**7:
        raise InputError(f"{place}: {name}: expected a number, got {text[:20]!r}", _HINT)
    return value
