"""Measured stage costs in a file (`profile.json`); where one fits, it wins over every other figure.

Format: {"schema_version": "1", "platform": NAME, "tool": TEXT, "date": TEXT, "costs": [{"stage", "engine", "mode",
"precision", "share", "time_ns", "error", "samples", "median_ns", "times_ns"}], "contention": [{"victim", "aggressor",
"factor", "samples"}], "conversions": [{"tensor", "given", "wanted", "bytes", "time_ns", "samples"}]}; `time_ns` is what
to plan with, `error` its relative uncertainty, `median_ns` what to expect, `times_ns` (ascending) what jobs took.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from socsched.errors import DescriptorError, Finding, InputError
from socsched.files import write_file

SCHEMA_VERSION = "1"
_ANEW = "write it anew with `socsched profile`"
_FIELDS: dict[str, tuple[type, ...]] = {
    "stage": (str,),
    "engine": (str,),
    "mode": (str,),
    "precision": (str,),
    "share": (int,),
    "time_ns": (int,),
}
_OPTIONAL: dict[str, tuple[type, ...]] = {
    "error": (int, float),
    "samples": (int,),
    "median_ns": (int,),
    "times_ns": (list,),
}


@dataclass(frozen=True, slots=True)
class MeasuredCost:
    """One measured stage: `share` engine units used (0 = all), time in ns, relative error, number of samples.

    `times_ns`: quantiles of what jobs took, at equal steps; empty where only figures are known.
    """

    stage: str
    engine: str
    mode: str
    precision: str
    share: int
    time_ns: int
    error: float = 0.05
    samples: int = 0
    median_ns: int = 0
    times_ns: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class CoRun:
    """How many times as long (median) the stage `victim` takes while `aggressor` runs beside it without a pause."""

    victim: str
    aggressor: str
    factor: float
    samples: int


@dataclass(frozen=True, slots=True)
class MeasuredConversion:
    """Median time of bringing the tensor a stage puts out ("stage.port") from one data type and layout to another."""

    tensor: str
    given: str
    wanted: str
    bytes: int
    time_ns: int
    samples: int


@dataclass(frozen=True, slots=True)
class Profile:
    """Measured costs of one platform; `tool` and `date` say how and when they were taken."""

    platform: str
    costs: tuple[MeasuredCost, ...]
    tool: str = ""
    date: str = ""
    contention: tuple[CoRun, ...] = ()
    conversions: tuple[MeasuredConversion, ...] = ()

    def find(self, stage: str, engine: str, modes: tuple[str, ...], precision: str, share: int) -> MeasuredCost | None:
        """Return the measurement for exactly this configuration (`modes`: the mode's name and aliases), else None."""
        names = {name.lower() for name in modes}
        for cost in self.costs:
            same = (cost.stage, cost.engine, cost.precision) == (stage, engine, precision)
            if same and cost.mode.lower() in names and cost.share in (0, share):
                return cost
        return None


def save_profile(profile: Profile, path: str | Path) -> None:
    """Write a profile as JSON."""
    costs = [{name: getattr(cost, name) for name in MeasuredCost.__slots__} for cost in profile.costs]
    document = {
        "schema_version": SCHEMA_VERSION,
        "platform": profile.platform,
        "tool": profile.tool,
        "date": profile.date,
        "costs": costs,
        "contention": [asdict(entry) for entry in profile.contention],
        "conversions": [asdict(entry) for entry in profile.conversions],
    }
    write_file(path, json.dumps(document, indent=1) + "\n")


def load_profile(path: str | Path) -> Profile:
    """Read a profile; InputError when the file cannot be read, DescriptorError listing every fault in it."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot read the profile: {error}", "write one with `socsched profile`") from None
    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        raise DescriptorError(
            [Finding(str(path), error.lineno, error.colno, "profile", f"JSON: {error.msg}")]
        ) from None
    findings = [Finding(str(path), 1, 1, where, expected) for where, expected in _faults(document)]
    if findings:
        raise DescriptorError(findings, _ANEW)
    costs = tuple(map(_cost, document["costs"]))
    try:
        beside = tuple(CoRun(**entry) for entry in document.get("contention", ()))
        moves = tuple(MeasuredConversion(**entry) for entry in document.get("conversions", ()))
    except TypeError as error:
        raise DescriptorError([Finding(str(path), 1, 1, "profile", f"known fields: {error}")], _ANEW) from None
    tool, date = str(document.get("tool", "")), str(document.get("date", ""))
    return Profile(document["platform"], costs, tool, date, beside, moves)


def _cost(entry: Mapping[str, Any]) -> MeasuredCost:
    known = {name: value for name, value in entry.items() if name in _FIELDS | _OPTIONAL}
    return MeasuredCost(**{**known, "times_ns": tuple(known.get("times_ns") or ())})


def _faults(document: Any) -> list[tuple[str, str]]:
    if not isinstance(document, Mapping):
        return [("profile", "an object with schema_version, platform and costs")]
    faults = []
    if document.get("schema_version") != SCHEMA_VERSION:
        faults.append(("schema_version", f'"{SCHEMA_VERSION}", got {document.get("schema_version")!r}'))
    if not isinstance(document.get("platform"), str):
        faults.append(("platform", "the name of the platform measured on"))
    if not isinstance(document.get("costs"), list):
        return [*faults, ("costs", "a list of measured costs")]
    for index, entry in enumerate(document["costs"]):
        faults += _entry_faults(f"costs[{index}]", entry)
    return faults


def _entry_faults(where: str, entry: Any) -> list[tuple[str, str]]:
    if not isinstance(entry, Mapping):
        return [(where, f"an object with {', '.join(_FIELDS)}")]
    faults = []
    for name, types in (_FIELDS | _OPTIONAL).items():
        value = entry.get(name)
        if value is None and name in _OPTIONAL:
            continue
        if not isinstance(value, types) or isinstance(value, bool):
            faults.append((f"{where}.{name}", f"{types[-1].__name__}, got {value!r}"))
        elif name == "times_ns" and not _ascending(value):
            faults.append((f"{where}.{name}", "times in ns, ascending"))
        elif isinstance(value, (int, float)) and value < (1 if name == "time_ns" else 0):
            faults.append((f"{where}.{name}", f"no negative value or zero time, got {value!r}"))
    return faults


def _ascending(values: Any) -> bool:
    return all(type(value) is int and value > 0 for value in values) and values == sorted(values)
