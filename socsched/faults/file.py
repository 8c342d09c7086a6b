"""Files of faults: read against the names of a plan, with every finding reported (format: `socsched.faults`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from socsched.faults.model import (
    FAILURES,
    SECTIONS,
    SIMULATION,
    Burst,
    Delay,
    Dropout,
    Failure,
    Faults,
    Hog,
    Overrun,
    Slowdown,
    Stall,
    by_field,
    cannot,
    sections_of,
)
from socsched.planning.plan import Plan, PlannedSensor
from socsched.units import format_duration, parse, parse_duration

if TYPE_CHECKING:
    from socsched.descriptor.source import Document


# Faults drawn from a seed: the same on every machine, since drawing and arithmetic use only whole numbers.
#
# The total is `rate` faults per minute until `until` (a fractional fault occurs with that probability).  Kind and
# instant are drawn uniformly, as for the events of a Poisson process given their number.  Windows last 20 ms to 1 s.
# Factors range from 1.25 to 4 in quarters, delays up to the sensor's period less its jitter, bursts up to five
# frames, foreign traffic from 5 to 50 % of the achievable DRAM bandwidth.

KINDS = tuple(name for name, section in SECTIONS.items() if section.drawn)
"""Sections of a faults file that can be drawn."""

_SHORTEST, _LONGEST = 20_000_000, 1_000_000_000
_OF_SENSORS = ("dropouts", "delays", "bursts")
_MINUTE = 60 * 10**9


def random_faults(plan: Plan, seed: int, rate: Fraction, until_ns: int, kinds: Sequence[str] = ()) -> Faults:
    """Return faults drawn from a seed, `rate` per minute, of the given `kinds` (empty: all that can be drawn)."""
    return by_field(draw(plan, seed, rate, until_ns, tuple(kinds) or KINDS).items())


def draw(plan: Plan, seed: int, rate: Fraction, until_ns: int, kinds: tuple[str, ...] = KINDS) -> dict[str, list[Any]]:
    """Return faults by section of a faults file, in time order; kinds that cannot affect `plan` are left out."""
    rng = Random(f"{seed}:faults")
    possible = [kind for kind in kinds if _suffers(plan, kind)]
    expected = rate * until_ns / _MINUTE
    count = expected.numerator // expected.denominator
    count += _below(rng, expected.denominator) < expected.numerator % expected.denominator
    found: dict[str, list[Any]] = {}
    for at in sorted(_below(rng, until_ns) for _ in range(count if possible else 0)):
        kind = possible[_below(rng, len(possible))]
        found.setdefault(kind, []).append(_fault(rng, plan, kind, at))
    return found


def _below(rng: Random, limit: int) -> int:
    """Return a whole number from 0 to `limit` - 1 (from bits alone: other draws may differ between Python versions)."""
    return rng.getrandbits(limit.bit_length() + 64) * limit >> (limit.bit_length() + 64)


def _suffers(plan: Plan, kind: str) -> bool:
    if kind in _OF_SENSORS:
        return bool(_sensors(plan, kind))
    return bool(plan.engines) and (kind != "hogs" or plan.dram_bandwidth > 0)


def _sensors(plan: Plan, kind: str) -> list[PlannedSensor]:
    """Return the sensors that can be affected: one whose jitter is its period cannot be delayed further."""
    return [sensor for sensor in plan.sensors if kind != "delays" or sensor.jitter_ns < sensor.period_ns]


def _fault(rng: Random, plan: Plan, kind: str, at: int) -> Any:
    until = at + _SHORTEST + _below(rng, _LONGEST - _SHORTEST + 1)
    if kind in _OF_SENSORS:
        sensors = _sensors(plan, kind)
        sensor = sensors[_below(rng, len(sensors))]
        if kind == "dropouts":
            return Dropout(sensor.name, at, until)
        if kind == "delays":
            return Delay(sensor.name, at, until, 1 + _below(rng, sensor.period_ns - sensor.jitter_ns))
        return Burst(sensor.name, at, 1 + _below(rng, 5))
    engine = plan.engines[_below(rng, len(plan.engines))].id
    if kind in ("stalls", "deaths"):
        return Stall(engine, at, until, kind == "deaths")
    if kind == "hogs":
        return Hog(engine, at, until, max(plan.dram_bandwidth * (5 + _below(rng, 46)) // 100, 1))
    return Slowdown(engine, at, until, Fraction(5 + _below(rng, 12), 4), kind == "throttles")


def load_faults(path: str | Path, plan: Plan, by: str = SIMULATION) -> Faults:
    """Read a faults file (YAML or JSON) against the names of `plan`; raise DescriptorError with every finding.

    `by`: what injects them, `model.SIMULATION` or `model.RUN`; faults that it cannot inject are findings.
    """
    from socsched.descriptor.source import read

    document = read(path)
    sections = _sections(plan)
    parts: list[tuple[str, list[Any]]] = []
    for name, entries in document.data.items():
        if name == "random":
            parts += _drawn(document, entries, plan, by).items()
        elif name in SECTIONS and by not in SECTIONS[name].by:
            document.report((name,), f"{cannot(by, name)}: expected one of {_expected(by)}", key=True)
        elif name not in sections:
            document.report((name,), f"expected one of {_expected(by)}", key=True)
        elif not isinstance(entries, list):
            document.report((name,), "expected a list of faults")
        else:
            faults_read = [_entry(document, (name, i), entry, *sections[name]) for i, entry in enumerate(entries)]
            parts.append((name, [fault for fault in faults_read if fault is not None]))
            if name in _CHECKS:
                _CHECKS[name](document, faults_read, plan)
    document.check()
    return by_field(parts)


def _expected(by: str) -> str:
    return ", ".join((*sections_of(by), "random"))


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
        "failures": (Failure, {"engine": engine, "at": instant, "kind": _kind, "lanes": _lanes}),
    }


def _check_delays(document: Document, delays: Sequence[Delay | None], plan: Plan) -> None:
    longest = {sensor.name: sensor.period_ns - sensor.jitter_ns for sensor in plan.sensors}
    for index, delay in enumerate(delays):
        if delay and delay.by_ns > longest[delay.sensor]:
            most = format_duration(longest[delay.sensor])
            document.report(("delays", index, "by"), f"expected at most {most}, or frames would overtake each other")


def _check_overruns(document: Document, overruns: Sequence[Overrun | None], plan: Plan) -> None:
    firsts: dict[str, int] = {}
    for index, overrun in enumerate(overruns):
        if overrun and firsts.setdefault(overrun.stage, index) != index:
            first = f"overruns[{firsts[overrun.stage]}]"
            document.report(
                ("overruns", index, "stage"),
                f"expected one overrun for each stage, {first} is for {overrun.stage!r} already",
            )


def _check_failures(document: Document, failures: Sequence[Failure | None], plan: Plan) -> None:
    lanes = {engine.id: engine.lanes for engine in plan.engines}
    for index, failure in enumerate(failures):
        if failure and max(failure.lanes, default=0) >= lanes[failure.engine]:
            most = lanes[failure.engine] - 1
            document.report(
                ("failures", index, "lanes"), f"expected lanes from 0 to {most}, the lanes of {failure.engine}"
            )


_CHECKS: dict[str, Callable[[Document, Sequence[Any], Plan], None]] = {
    "delays": _check_delays,
    "overruns": _check_overruns,
    "failures": _check_failures,
}


@dataclass(frozen=True, slots=True)
class _Random:
    seed: int
    rate: Fraction
    until_ns: int


_MOST_DRAWN = 100_000


def _drawn(document: Document, entry: object, plan: Plan, by: str) -> dict[str, list[Any]]:
    """Return the faults requested by section ``random``, by section; on errors, add findings and return none."""
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
            elif by not in SECTIONS[kind].by:
                document.report(("random", "kinds", index), cannot(by, kind))
        entry = {key: value for key, value in entry.items() if key != "kinds"}
    elif foreign := [kind for kind in KINDS if by not in SECTIONS[kind].by]:
        possible = ", ".join(kind for kind in KINDS if kind not in foreign)
        document.report(("random",), f"expected kinds, some of {possible}: {cannot(by, foreign[0])}")
    request = _entry(document, ("random",), entry, _Random, fields, ("kinds",))
    if request is None or len(document.findings) > before:
        return {}
    if request.rate * request.until_ns > _MOST_DRAWN * 60 * 10**9:
        document.report(("random", "rate"), f"expected at most {_MOST_DRAWN} faults until then")
        return {}
    return draw(plan, request.seed, request.rate, request.until_ns, kinds)


_OPTIONAL: Mapping[str, object] = {"lanes": []}
"""Field of an entry -> its value if it is absent."""


def _entry(
    document: Document,
    where: tuple[str | int, ...],
    entry: object,
    kind: Callable[..., Any],
    fields: Mapping[str, _Reader],
    others: tuple[str, ...] = (),
) -> Any:
    """Return the fault an entry describes, or None after adding findings; `others` are keys read elsewhere."""
    keys = ", ".join((*fields, *others))
    if not isinstance(entry, dict):
        document.report(where, f"expected a mapping with {keys}")
        return None
    before = len(document.findings)
    for name in entry:
        if name not in fields:
            document.report((*where, name), f"expected one of {keys}", key=True)
    entry = {**_OPTIONAL, **entry}
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


def _kind(value: object) -> str:
    if value not in FAILURES:
        raise ValueError(f"expected one of {', '.join(FAILURES)}, got {value!r}")
    return str(value)


def _lanes(value: object) -> tuple[int, ...]:
    if not isinstance(value, list) or not all(type(lane) is int and lane >= 0 for lane in value):
        raise ValueError(f"expected a list of lane numbers, got {value!r}")
    return tuple(value)


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
        amount = parse(value, dimension)
        if amount < least:
            raise ValueError(f"expected a {dimension} {what}, got {value!r}")
        return amount

    return read
