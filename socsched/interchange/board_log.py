"""Logs of tegrastats: the board's state while costs were recorded, and its counters over time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from socsched.interchange.profile_model import Board, Recording
from socsched.runtime.meters import Sample, alarms, hottest, parse, whole_rail

_THROTTLED = 0.98
"""A clock below this share of the highest one in the log counts as lowered."""
_BUSY = 0.5
"""Load from which on the clock of a GPU is the one it computes at."""
_HEAD_LINES = 100


def samples(text: str) -> list[Sample]:
    """Return the samples of all lines that are from tegrastats."""
    return [sample for line in text.splitlines() if (sample := parse(line)) is not None]


def accepts(text: str) -> bool:
    """Return whether one of the first lines is from tegrastats."""
    return any(parse(line) for line in text.split("\n", _HEAD_LINES)[:_HEAD_LINES])


def recording(path: Path, text: str) -> Recording:
    """Return a recording with the board's state only."""
    found = samples(text)
    clocks = {
        "cpu": max((core[1] for sample in found for core in sample.cores if core), default=0),
        "gpu": max((sample.gpu_hz or 0 for sample in found), default=0),
        "dla": max((hz for s in found for name, hz in s.engines_hz.items() if name.startswith("NVDLA")), default=0),
    }
    busy = max((sample.gpu_hz or 0 for sample in found if (sample.gpu_load or 0) >= _BUSY), default=0)
    online = max((sum(core is not None for core in sample.cores) for sample in found), default=0)
    board = Board(
        clocks_hz={kind: clock for kind, clock in clocks.items() if clock},
        busy_hz={"gpu": busy} if busy else {},
        cores=(online, max((len(sample.cores) for sample in found), default=0)),
    )
    return Recording(str(path), "tegrastats", samples=len(found), state=state(found), board=board)


def state(found: Sequence[Sample]) -> str:
    """Return power, clocks, lowered clocks and the highest temperature of a log in words."""
    parts = [f"{len(found)} samples of tegrastats"]
    if powers := [s.power_mw / 1000 for s in found if s.power_mw is not None]:
        parts.append(power_in_words(powers, found[-1].rails_mw))
    for name, clocks in (("gpu", [s.gpu_hz for s in found]), ("emc", [s.emc_hz for s in found])):
        known = [clock for clock in clocks if clock]
        if known:
            low, high = min(known), max(known)
            text = f"{name} {high // 10**6} MHz"
            if low < high * _THROTTLED:
                share = sum(clock < high * _THROTTLED for clock in known) / len(known)
                text += f", lowered in {share:.0%} of the samples, to {low // 10**6} MHz at worst"
            parts.append(text)
    return "; ".join([*parts, *heat_in_words([sample.zones_c for sample in found])])


def power_in_words(watts: Sequence[float], rails: Mapping[str, float]) -> str:
    """Return mean and highest power of a log, and the rails that it is of."""
    whole = whole_rail(rails) or (f"sum of {', '.join(rails)}" if len(rails) > 1 else "")
    text = f"{sum(watts) / len(watts):.1f} W on average, {max(watts):.1f} W at most"
    return f"{text} ({whole})" if whole else text


def heat_in_words(zones: Sequence[Mapping[str, float]]) -> list[str]:
    """Return the highest temperature of a log, and alarms of its power supply; `zones`: of every sample."""
    highest = hottest(zones)
    return [*([] if highest is None else [f"up to {highest:.3g} C"]), *alarms(zones)]
