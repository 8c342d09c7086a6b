"""Logs of tegrastats: the board's state while costs were recorded, and its counters over time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from socsched.bounded import read_bytes
from socsched.errors import InputError
from socsched.interchange.recording import HINT, MOST_BYTES, Recording
from socsched.runtime.tegrastats import Sample, parse

_THROTTLED = 0.98
"""A clock below this share of the highest one in the log counts as lowered."""


def samples(text: str) -> list[Sample]:
    """Return the samples of all lines that are from tegrastats."""
    return [sample for line in text.splitlines() if (sample := parse(line)) is not None]


def recording(path: Path, data: object = None) -> Recording:
    """Return a recording with the board's state only; InputError if no line is from tegrastats."""
    text = read_bytes(path, "log", HINT, MOST_BYTES).decode("utf-8", "replace")
    found = samples(text)
    if not found:
        raise InputError(f"{path}: no line is from tegrastats", HINT)
    return Recording(str(path), "tegrastats", samples=len(found), state=state(found))


def state(found: Sequence[Sample]) -> str:
    """Return power, clocks, lowered clocks and the highest temperature of a log in words."""
    parts = [f"{len(found)} samples of tegrastats"]
    powers = [s.power_mw for s in found if s.power_mw is not None]
    if powers:
        parts.append(f"{sum(powers) / len(powers) / 1000:.1f} W on average, {max(powers) / 1000:.1f} W at most")
    for name, clocks in (("gpu", [s.gpu_hz for s in found]), ("emc", [s.emc_hz for s in found])):
        known = [clock for clock in clocks if clock]
        if known:
            low, high = min(known), max(known)
            text = f"{name} {high // 10**6} MHz"
            if low < high * _THROTTLED:
                share = sum(clock < high * _THROTTLED for clock in known) / len(known)
                text += f", lowered in {share:.0%} of the samples, to {low // 10**6} MHz at worst"
            parts.append(text)
    hottest = [max(s.zones_c.values()) for s in found if s.zones_c]
    if hottest:
        parts.append(f"up to {max(hottest):.0f} C")
    return "; ".join(parts)
