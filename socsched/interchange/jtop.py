"""CSV logs of jtop (jetson-stats, `jtop.stats` written by its logger): the board's state while costs were recorded.

Columns of jetson-stats 3 and 4: powers in mW ("Power TOT" and one for every rail, or "power cur"), temperatures in C,
loads in %, the name of the power mode with blanks for "_".  jtop's total adds up the rails unless it knows the one of
the whole module (VDD_IN, POM_5V_IN); on other boards, as Thor, it counts VIN and its parts twice.
"""

from __future__ import annotations

import csv
from pathlib import Path

from socsched.errors import InputError
from socsched.interchange.board_log import heat_in_words, power_in_words
from socsched.interchange.profile_model import Board, Recording
from socsched.runtime.meters import whole_rail

_TOTALS = ("Power TOT", "power cur")
_HINT = "give a log of jtop_logger: jtop.stats as comma-separated values with a line of names"
_UNKNOWN = ("", "none", "n/a", "unknown")


def accepts(text: str) -> bool:
    """Return whether the first line holds the columns of jtop."""
    names = text.partition("\n")[0].strip().split(",")
    return "time" in names and any(n.startswith(("Temp ", "Power ", "power ")) or n == "nvp model" for n in names)


def recording(path: Path, text: str) -> Recording:
    """Return a recording with the board's state only; InputError with the line of a fault."""
    reader = csv.DictReader(text.splitlines())
    powers, loads, count = list[float](), list[float](), 0
    zones, rails, modes, clocks = list[dict[str, float]](), dict[str, float](), dict[str, None](), set[str]()
    try:
        for row in reader:
            count += 1
            place = f"{path}:{reader.line_num}"
            cells = {name: value for name, value in row.items() if isinstance(name, str) and value and value != "OFF"}
            rails = {
                name.removeprefix("Power "): _number(place, name, value)
                for name, value in cells.items()
                if name.startswith("Power ") and name not in _TOTALS
            }
            total = next((cells[name] for name in _TOTALS if name in cells), None)
            if whole := whole_rail(rails):
                powers.append(rails[whole] / 1000)
            elif total is not None:
                powers.append(_number(place, "power", total) / 1000)
            zones.append({n: _number(place, n, value) for n, value in cells.items() if n.startswith("Temp ")})
            if "GPU" in cells:
                loads.append(_number(place, "GPU", cells["GPU"]))
            if (mode := cells.get("nvp model", "").strip()).lower() not in _UNKNOWN:
                modes[mode] = None
            clocks |= {row["jetson_clocks"]} if row.get("jetson_clocks") else set()
    except csv.Error as error:
        raise InputError(f"{path}:{reader.line_num}: expected comma-separated values: {error}", _HINT) from None
    if not count:
        raise InputError(f"{path}: the log holds no samples", _HINT)
    parts = [f"{count} samples of jtop"]
    if modes:
        parts.append("nvpmodel " + " and ".join(modes))
    if clocks:
        parts.append("jetson_clocks " + " and ".join(sorted(clocks)))
    if powers:
        parts.append(power_in_words(powers, rails))
    if loads:
        parts.append(f"gpu load {sum(loads) / len(loads):.0f}% on average")
    said = " ".join("; ".join([*parts, *heat_in_words(zones)]).split())[:400]
    return Recording(str(path), "jtop", samples=count, state=said, board=Board(tuple(modes)))


def _number(place: str, name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not -1000 <= value <= 10**7:
        raise InputError(f"{place}: {name}: expected a number, got {text[:20]!r}", _HINT)
    return value
