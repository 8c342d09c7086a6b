"""Faults to inject into a simulation, and the file format that describes them.

dropouts:  [{sensor: lidar, from: 2 s, until: 3 s}]           frames released in the window are lost
delays:    [{sensor: lidar, from: 2 s, until: 3 s, by: 20 ms}]  frames released in the window arrive late
bursts:    [{sensor: lidar, at: 2 s, frames: 3}]              that many extra frames with the first one after `at`
slowdowns: [{engine: gpu, from: 5 s, until: 6 s, factor: 1.5}]  everything on the engine takes factor times as long
throttles: [{engine: gpu, from: 5 s, until: 6 s, factor: 1.5}]  the same, marked in the trace as thermal throttling
stalls:    [{engine: gpu, from: 5 s, until: 6 s}]             the engine stalls; running work continues afterwards
deaths:    [{engine: gpu, from: 5 s, until: 6 s}]             the engine fails; running work is lost
overruns:  [{stage: head, probability: 0.01, factor: 2}]      a job takes factor times its planned work
hogs:      [{engine: gpu, from: 5 s, until: 6 s, bandwidth: 20 GB/s}]  foreign DRAM traffic, as if from that engine
random:    {seed: 1, rate: 2, until: 60 s, kinds: [stalls]}   additional faults drawn from a seed, `rate` per minute

Every section may be absent.  Windows are [from, until) from the start of the simulation; factors lie between 1 and
1000.  Windows may overlap: slowdowns multiply, hogs add up, and of several delays the longest applies.  Frames of a
sensor do not overtake each other, so a delay and the sensor's jitter together are at most its period.  `kinds` names
sections of this file; if it is absent, all except overruns (which have a probability of their own).  The distributions
are documented in `sim.random_faults`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from socsched.planning.plan import Plan
from socsched.units import format_duration, parse, parse_duration

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
    """`frames` extra frames arrive at once with the first frame of `sensor` from `at_ns` on."""

    sensor: str
    at_ns: int
    frames: int


@dataclass(frozen=True, slots=True)
class Stall:
    """`engine` stalls in [from_ns, until_ns); with `lost`, jobs running there are aborted."""

    engine: str
    from_ns: int
    until_ns: int
    lost: bool = False


@dataclass(frozen=True, slots=True)
class Hog:
    """Foreign traffic draws `bandwidth` bytes/s of DRAM in [from_ns, until_ns), as `engine` would."""

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
    """All faults of a simulation; empty by default."""

    dropouts: tuple[Dropout, ...] = ()
    slowdowns: tuple[Slowdown, ...] = ()
    overruns: tuple[Overrun, ...] = ()
    stalls: tuple[Stall, ...] = ()
    delays: tuple[Delay, ...] = ()
    bursts: tuple[Burst, ...] = ()
    hogs: tuple[Hog, ...] = ()


def load_faults(path: str | Path, plan: Plan) -> Faults:
    """Read a faults file (YAML or JSON) against the names of `plan`; raise DescriptorError with every finding."""
    from socsched.descriptor.source import read

    document = read(path)
    sections = _sections(plan)
    found: dict[str, list[Any]] = {}
    for name, entries in document.data.items():
        if name == "random":
            for kind, drawn in _drawn(document, entries, plan).items():
                found.setdefault(_FIELD.get(kind, kind), []).extend(drawn)
        elif name not in sections:
            document.report((name,), f"expected one of {', '.join((*sections, 'random'))}", key=True)
        elif not isinstance(entries, list):
            document.report((name,), "expected a list of faults")
        else:
            made = [_entry(document, (name, i), entry, *sections[name]) for i, entry in enumerate(entries)]
            found.setdefault(_FIELD.get(name, name), []).extend(fault for fault in made if fault is not None)
            if name == "delays":
                _check_delays(document, made, plan)
    document.check()
    return Faults(**{name: tuple(faults) for name, faults in found.items()})


def draw_faults(plan: Plan, seed: int, rate: Fraction, until_ns: int, kinds: Sequence[str] = ()) -> Faults:
    """Return faults drawn from a seed, `rate` per minute, of the given `kinds` (empty: all that can be drawn)."""
    from socsched.sim.random_faults import KINDS, draw

    found: dict[str, list[Any]] = {}
    for kind, drawn in draw(plan, seed, rate, until_ns, tuple(kinds) or KINDS).items():
        found.setdefault(_FIELD.get(kind, kind), []).extend(drawn)
    return Faults(**{name: tuple(faults) for name, faults in found.items()})


_FIELD = {"throttles": "slowdowns", "deaths": "stalls"}
"""Sections whose faults are a variety of another section's."""
_Reader = Callable[[object], Any]


def _sections(plan: Plan) -> dict[str, tuple[Callable[..., Any], dict[str, _Reader]]]:
    sensor = _one_of("a sensor", [sensor.name for sensor in plan.sensors])
    engine = _one_of("an engine", [engine.id for engine in plan.engines])
    stage = _one_of("a task", [task.name for task in plan.tasks])
    window: dict[str, _Reader] = {"from": parse_duration, "until": parse_duration}
    factor, probability = _ratio("a factor from 1 to 1000", 1, 1000), _ratio("a probability from 0 to 1", 0, 1)
    instant, time = _quantity("duration", "of 0 or more", 0), _quantity("duration", "above 0", 1)
    frames, rate = _whole("a number of frames from 1 to 1000", 1, 1000), _quantity("bandwidth", "above 0", 1)
    return {
        "dropouts": (Dropout, {"sensor": sensor, **window}),
        "delays": (Delay, {"sensor": sensor, **window, "by": time}),
        "bursts": (Burst, {"sensor": sensor, "at": instant, "frames": frames}),
        "slowdowns": (Slowdown, {"engine": engine, **window, "factor": factor}),
        "throttles": (partial(Slowdown, throttle=True), {"engine": engine, **window, "factor": factor}),
        "stalls": (Stall, {"engine": engine, **window}),
        "deaths": (partial(Stall, lost=True), {"engine": engine, **window}),
        "overruns": (Overrun, {"stage": stage, "probability": probability, "factor": factor}),
        "hogs": (Hog, {"engine": engine, **window, "bandwidth": rate}),
    }


def _check_delays(document: Document, delays: Sequence[Delay | None], plan: Plan) -> None:
    longest = {sensor.name: sensor.period_ns - sensor.jitter_ns for sensor in plan.sensors}
    for index, delay in enumerate(delays):
        if delay and delay.by_ns > longest[delay.sensor]:
            most = format_duration(longest[delay.sensor])
            document.report(("delays", index, "by"), f"expected at most {most}, or frames would overtake each other")


@dataclass(frozen=True, slots=True)
class _Random:
    seed: int
    rate: Fraction
    until_ns: int


_MOST_DRAWN = 100_000


def _drawn(document: Document, entry: object, plan: Plan) -> dict[str, list[Any]]:
    """Return the faults requested by section ``random``, by section; on errors, add findings and return none."""
    from socsched.sim.random_faults import KINDS, draw

    fields: dict[str, _Reader] = {
        "seed": _whole("a whole number of 0 or more as seed", 0, 2**63 - 1),
        "rate": _ratio("a rate from 0 to 6000 faults a minute", 0, 6000),
        "until": _quantity("duration", "above 0", 1),
    }
    before, kinds = len(document.findings), KINDS
    if isinstance(entry, dict) and "kinds" in entry:
        kinds = tuple(entry["kinds"]) if isinstance(entry["kinds"], list) else ()
        if not kinds:
            document.report(("random", "kinds"), f"expected a list of {', '.join(KINDS)}")
        for index, kind in enumerate(kinds):
            if kind not in KINDS or kind in kinds[:index]:
                document.report(("random", "kinds", index), f"expected each of {', '.join(KINDS)} once at most")
        entry = {key: value for key, value in entry.items() if key != "kinds"}
    request = _entry(document, ("random",), entry, _Random, fields, ("kinds",))
    if request is None or len(document.findings) > before:
        return {}
    if request.rate * request.until_ns > _MOST_DRAWN * 60 * 10**9:
        document.report(("random", "rate"), f"expected at most {_MOST_DRAWN} faults until then")
        return {}
    return draw(plan, request.seed, request.rate, request.until_ns, kinds)


def _entry(
    document: Document,
    where: tuple[str | int, ...],
    entry: object,
    kind: Callable[..., Any],
    fields: Mapping[str, _Reader],
    others: tuple[str, ...] = (),
) -> Any:
    """Return the fault an entry describes, or None after adding findings; `others` are keys read elsewhere."""
    known = ", ".join((*fields, *others))
    if not isinstance(entry, dict):
        document.report(where, f"expected a mapping with {known}")
        return None
    before = len(document.findings)
    for name in entry:
        if name not in fields:
            document.report((*where, name), f"expected one of {known}", key=True)
    values = [_value(document, (*where, name), entry, name, reader) for name, reader in fields.items()]
    if len(document.findings) > before or None in values:
        return None
    fault = kind(*values)
    if "from" in fields and not 0 <= fault.from_ns < fault.until_ns:
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


def _whole(what: str, low: int, high: int) -> _Reader:
    def read(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise ValueError(f"expected {what}, got {value!r}")
        return value

    return read


def _quantity(dimension: str, what: str, least: int) -> _Reader:
    def read(value: object) -> int:
        found = parse(value, dimension)
        if found < least:
            raise ValueError(f"expected a {dimension} {what}, got {value!r}")
        return found

    return read
