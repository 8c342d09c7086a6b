"""Faults to inject into a simulation, and the file they are written in.

dropouts:  [{sensor: lidar, from: 2 s, until: 3 s}]           frames released in the window are lost
delays:    [{sensor: lidar, from: 2 s, until: 3 s, by: 20 ms}]  frames released in the window arrive late
bursts:    [{sensor: lidar, at: 2 s, frames: 3}]              that many more frames come with the first one after `at`
slowdowns: [{engine: gpu, from: 5 s, until: 6 s, factor: 1.5}]  everything on the engine takes factor times as long
throttles: [{engine: gpu, from: 5 s, until: 6 s, factor: 1.5}]  the same, because it is too hot: marked as such
stalls:    [{engine: gpu, from: 5 s, until: 6 s}]             the engine stands still; what runs there goes on later
deaths:    [{engine: gpu, from: 5 s, until: 6 s}]             the engine fails; what runs there is lost
overruns:  [{stage: head, probability: 0.01, factor: 2}]      a job takes factor times its planned work
hogs:      [{engine: gpu, from: 5 s, until: 6 s, bandwidth: 20 GB/s}]  foreign traffic on the DRAM, as if from there
random:    {seed: 1, rate: 2, until: 60 s}                    besides, faults drawn from a seed, `rate` of them a minute
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from socsched.plan.plan import Plan
from socsched.units import parse_duration

if TYPE_CHECKING:
    from socsched.descriptor.source import Document


@dataclass(frozen=True, slots=True)
class Dropout:
    """Frames of `sensor` released in [from_ns, until_ns) never arrive."""

    sensor: str
    from_ns: int
    until_ns: int


@dataclass(frozen=True, slots=True)
class Slowdown:
    """Jobs on `engine` take `factor` times as long in [from_ns, until_ns)."""

    engine: str
    from_ns: int
    until_ns: int
    factor: Fraction
    throttle: bool = False


@dataclass(frozen=True, slots=True)
class Delay:
    """Frames of `sensor` released in [from_ns, until_ns) arrive `by_ns` later than they were released."""

    sensor: str
    from_ns: int
    until_ns: int
    by_ns: int


@dataclass(frozen=True, slots=True)
class Burst:
    """`frames` more frames come at once with the first one of `sensor` from `at_ns` on."""

    sensor: str
    at_ns: int
    frames: int


@dataclass(frozen=True, slots=True)
class Stall:
    """`engine` stands still in [from_ns, until_ns); with `lost`, what runs there then is aborted."""

    engine: str
    from_ns: int
    until_ns: int
    lost: bool = False


@dataclass(frozen=True, slots=True)
class Hog:
    """Somebody else draws `bandwidth` bytes/s of DRAM in [from_ns, until_ns), in the way `engine` would."""

    engine: str
    from_ns: int
    until_ns: int
    bandwidth: int


@dataclass(frozen=True, slots=True)
class Overrun:
    """A job of `stage` takes `factor` times its planned work, with this probability."""

    stage: str
    probability: Fraction
    factor: Fraction


@dataclass(frozen=True, slots=True)
class Faults:
    """All faults of a simulation; the empty one injects nothing."""

    dropouts: tuple[Dropout, ...] = ()
    slowdowns: tuple[Slowdown, ...] = ()
    overruns: tuple[Overrun, ...] = ()
    stalls: tuple[Stall, ...] = ()
    delays: tuple[Delay, ...] = ()
    bursts: tuple[Burst, ...] = ()
    hogs: tuple[Hog, ...] = ()


def load_faults(path: str | Path, plan: Plan) -> Faults:
    """Read a faults file (YAML or JSON) against the names of `plan`; DescriptorError with every finding."""
    from socsched.descriptor.source import read

    document = read(path)
    sections = _sections(plan)
    found: dict[str, Any] = {}
    for name, entries in document.data.items():
        if name not in sections:
            document.report((name,), f"expected one of {', '.join(sections)}", key=True)
        elif not isinstance(entries, list):
            document.report((name,), "expected a list of faults")
        else:
            made = [_entry(document, (name, i), entry, *sections[name]) for i, entry in enumerate(entries)]
            found[name] = tuple(fault for fault in made if fault is not None)
    document.check()
    return Faults(**found)


_Reader = Callable[[object], Any]


def _sections(plan: Plan) -> dict[str, tuple[type, dict[str, _Reader]]]:
    sensor = _one_of("a sensor", [sensor.name for sensor in plan.sensors])
    engine = _one_of("an engine", [engine.id for engine in plan.engines])
    stage = _one_of("a task", [task.name for task in plan.tasks])
    window: dict[str, _Reader] = {"from": parse_duration, "until": parse_duration}
    factor, probability = _ratio("a factor from 1 to 1000", 1, 1000), _ratio("a probability from 0 to 1", 0, 1)
    return {
        "dropouts": (Dropout, {"sensor": sensor, **window}),
        "slowdowns": (Slowdown, {"engine": engine, **window, "factor": factor}),
        "overruns": (Overrun, {"stage": stage, "probability": probability, "factor": factor}),
    }


def _entry(
    document: Document, where: tuple[str | int, ...], entry: object, kind: type, fields: Mapping[str, _Reader]
) -> Any:
    """Return the fault an entry describes, or None with the findings in `document`."""
    if not isinstance(entry, dict):
        document.report(where, f"expected a mapping with {', '.join(fields)}")
        return None
    before = len(document.findings)
    for name in entry.keys() - fields.keys():
        document.report((*where, name), f"expected one of {', '.join(fields)}", key=True)
    values = [_value(document, (*where, name), entry, name, reader) for name, reader in fields.items()]
    if len(document.findings) > before:
        return None
    fault = kind(*values)
    if "until" in fields and not 0 <= fault.from_ns < fault.until_ns:
        document.report((*where, "until"), "expected a window that starts at 0 or later and ends after its start")
    return fault


def _value(
    document: Document, where: tuple[str | int, ...], entry: Mapping[str, object], name: str, reader: _Reader
) -> Any:
    if name not in entry:
        document.report(where, "expected a value, it is missing")
        return None
    try:
        return reader(entry[name])
    except ValueError as error:
        document.report(where, str(error))
        return None


def _one_of(what: str, names: Sequence[str]) -> _Reader:
    def read(value: object) -> str:
        if value not in names:
            raise ValueError(f"expected {what} of the plan ({', '.join(names) or 'it has none'}), got {value!r}")
        return str(value)

    return read


def _ratio(what: str, low: int, high: int) -> _Reader:
    def read(value: object) -> Fraction:
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:
            raise ValueError(f"expected {what}, got {value!r}")
        return Fraction(str(value))

    return read
