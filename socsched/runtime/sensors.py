"""What the power rails and thermal zones of a board stand for: a total and its parts, readings and constants.

Rails     A rail that is the input of the whole module or board is named for nothing else: VIN, VDD_IN, POM_5V_IN.  The
          input of a part is named for the part (VIN_SYS_5V0, SYS_VIN_HV) and adds to the others, as on AGX Orin, whose
          module has no meter of its whole input (its developer guide: the module's power is the sum of the channels).
Zones     A zone that is switched off reads -256 C.  PMIC is no temperature: the driver of its chip (max77620_thermal,
          max77851) reports the highest alarm level that is passed, 100 C or 50 C in the absence of an alarm.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

_INPUT = re.compile(r"(?:[A-Z0-9]+_)*V?IN", re.IGNORECASE)
_LEVEL = re.compile(r"pmic", re.IGNORECASE)
OFF_C = -200.0
"""Zones below are switched off (-256 C) or absent (-273 C)."""
_NO_READING_C = 200.0
_ENOUGH = 8
"""Samples from which on a zone that never changes, while another does, is taken for a constant."""
_MOVES_C = 1.0


def whole_rail(rails: Mapping[str, float]) -> str:
    """Return the rail that supplies all others, empty where none does: the largest input that no part exceeds."""
    inputs = [name for name in rails if _INPUT.fullmatch(name)]
    largest = max(inputs, key=lambda name: rails[name], default="")
    return largest if largest and rails[largest] >= max(rails.values()) else ""


def power_of(rails: Mapping[str, float]) -> float | None:
    """Return the power of the module: that of the rail which supplies all others, else of all rails together."""
    whole = whole_rail(rails)
    return rails[whole] if whole else (sum(rails.values()) if rails else None)


def temperatures(zones: Mapping[str, float]) -> dict[str, float]:
    """Return the zones that state a temperature: neither switched off nor an alarm level."""
    return {name: value for name, value in zones.items() if OFF_C < value < _NO_READING_C and not _LEVEL.search(name)}


def hottest(samples: Sequence[Mapping[str, float]]) -> float | None:
    """Return the highest temperature of a log, None without any; zones that never change while others do are left out.

    `samples`: zone -> degrees Celsius, off zones and levels included.
    """
    columns = dict[str, list[float]]()
    for sample in samples:
        for name, value in temperatures(sample).items():
            columns.setdefault(name, []).append(value)
    moving = [values for values in columns.values() if max(values) - min(values) >= _MOVES_C]
    still = [values for values in columns.values() if len(values) < _ENOUGH or len(set(values)) > 1]
    return max((value for values in (still if moving else columns.values()) for value in values), default=None)


def alarms(samples: Sequence[Mapping[str, float]]) -> list[str]:
    """Return the alarm levels that rose during a log, in words."""
    levels = dict[str, set[float]]()
    for sample in samples:
        for name, value in sample.items():
            if _LEVEL.search(name) and value > OFF_C:
                levels.setdefault(name, set()).add(value)
    return [f"{name} alarm at {max(found):g} C" for name, found in levels.items() if max(found) > 100]
