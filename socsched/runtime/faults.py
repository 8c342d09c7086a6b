"""Faults to inject into a run, in the file format of the simulator, plus engines that fail or hang.

dropouts:  [{sensor: lidar, from: 2 s, until: 3 s}]             frames released in the window are lost
slowdowns: [{engine: gpu, from: 5 s, until: 6 s, factor: 1.5}]  everything on the engine takes factor times as long
overruns:  [{stage: head, probability: 0.01, factor: 2}]        a job takes factor times as long
failures:  [{engine: cpu, lanes: [1], at: 2 s, kind: hang}]     the first job there from then on hangs, or fails

Times count from the first release.  A slowed job computes at normal speed and then occupies its lanes for the rest.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from socsched.errors import MachineError
from socsched.planning.plan import Plan, Task
from socsched.units import parse_duration

if TYPE_CHECKING:
    from socsched.descriptor.source import Document

KINDS = ("hang", "fail")


class InjectedFailure(MachineError):
    """A stage failure injected by a faults file."""


@dataclass(frozen=True, slots=True)
class Dropout:
    """Frames of `sensor` released in [from_ns, until_ns) never arrive."""

    sensor: str
    from_ns: int
    until_ns: int


@dataclass(frozen=True, slots=True)
class Slowdown:
    """Jobs started on `engine` in [from_ns, until_ns) take `factor` times as long."""

    engine: str
    from_ns: int
    until_ns: int
    factor: float


@dataclass(frozen=True, slots=True)
class Overrun:
    """A job of `stage` takes `factor` times as long, with this probability."""

    stage: str
    probability: float
    factor: float


@dataclass(frozen=True, slots=True)
class Failure:
    """The first job on `lanes` (empty: any) of `engine` from `at_ns` on hangs, or fails."""

    engine: str
    at_ns: int
    kind: str
    lanes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Faults:
    """All faults of a run; the empty one injects nothing."""

    dropouts: tuple[Dropout, ...] = ()
    slowdowns: tuple[Slowdown, ...] = ()
    overruns: tuple[Overrun, ...] = ()
    failures: tuple[Failure, ...] = ()


@dataclass(slots=True)
class Injector:
    """Injects the faults; `origin_ns` is the monotonic time of the first release, -1 before it."""

    faults: Faults
    seed: int
    origin_ns: int = -1
    freed: threading.Event = field(default_factory=threading.Event)
    spent: set[int] = field(default_factory=set)

    def loses(self, sensor: str, release_ns: int) -> bool:
        """Return whether a frame is lost to a dropout."""
        return any(f.sensor == sensor and f.from_ns <= release_ns < f.until_ns for f in self.faults.dropouts)

    def before(self, task: Task) -> None:
        """Hang or fail if a fault applies to this job; a hang lasts until the run ends."""
        if self.origin_ns < 0 or not self.faults.failures:
            return
        now = time.monotonic_ns() - self.origin_ns
        for number, failure in enumerate(self.faults.failures):
            here = failure.engine == task.engine and (not failure.lanes or set(failure.lanes) & set(task.lanes))
            if here and now >= failure.at_ns and number not in self.spent:
                self.spent.add(number)
                if failure.kind == "fail":
                    raise InjectedFailure(f"{task.engine} failed, as the faults file asks")
                self.freed.wait()

    def after(self, task: Task, frame: int, start_ns: int) -> None:
        """Occupy the lanes for the extra time the faults add to a job that began at `start_ns` (monotonic)."""
        if self.origin_ns < 0 or not (self.faults.slowdowns or self.faults.overruns):
            return
        factor, since = 1.0, start_ns - self.origin_ns
        for slow in self.faults.slowdowns:
            if slow.engine == task.engine and slow.from_ns <= since < slow.until_ns:
                factor *= slow.factor
        for number, over in enumerate(self.faults.overruns):
            chance = random.Random(f"{self.seed}/{number}/{task.name}/{frame}").random()
            if over.stage == task.name and chance < over.probability:
                factor *= over.factor
        until = start_ns + int((time.monotonic_ns() - start_ns) * factor)
        while factor > 1.0 and (left := until - time.monotonic_ns()) > 0:
            time.sleep(min(left / 1e9, 0.05))


def load_faults(path: str | Path, plan: Plan) -> Faults:
    """Read a faults file (YAML or JSON) against the names of `plan`; raise DescriptorError with all findings."""
    from socsched.descriptor.source import read

    document = read(path)
    engines = {engine.id: engine.lanes for engine in plan.engines}
    names = {
        "sensor": [sensor.name for sensor in plan.sensors],
        "engine": list(engines),
        "stage": [task.name for task in plan.tasks],
    }
    kinds: dict[str, type] = {"dropouts": Dropout, "slowdowns": Slowdown, "overruns": Overrun, "failures": Failure}
    found: dict[str, tuple[Any, ...]] = {}
    for section, entries in document.data.items():
        if section not in kinds or not isinstance(entries, list):
            document.report((section,), f"expected lists of faults under {', '.join(kinds)}", key=section not in kinds)
            continue
        made = [_entry(document, (section, i), entry, kinds[section], names) for i, entry in enumerate(entries)]
        found[section] = tuple(fault for fault in made if fault is not None)
    document.check()
    return Faults(**found)


_FIELDS = {"from": "from_ns", "until": "until_ns", "at": "at_ns"}


def _entry(
    document: Document, where: tuple[str | int, ...], entry: object, kind: type, names: Mapping[str, list[str]]
) -> Any:
    """Return the fault an entry describes, or None with the findings in `document`."""
    wanted = {field.removesuffix("_ns"): field for field in kind.__slots__}  # type: ignore[attr-defined]
    if not isinstance(entry, dict):
        document.report(where, f"expected a mapping with {', '.join(wanted)}")
        return None
    before = len(document.findings)
    values: dict[str, Any] = {}
    for name in entry.keys() - wanted.keys():
        document.report((*where, name), f"expected one of {', '.join(wanted)}", key=True)
    for name, attribute in wanted.items():
        if name not in entry:
            if name != "lanes":
                document.report(where, f"expected {name}, it is missing")
            continue
        try:
            values[attribute] = _value(name, entry[name], names)
        except ValueError as error:
            document.report((*where, name), str(error))
    if len(document.findings) > before:
        return None
    if "until_ns" in values and not 0 <= values["from_ns"] < values["until_ns"]:
        document.report((*where, "until"), "expected a window that starts at 0 or later and ends after its start")
        return None
    return kind(**values)


def _value(name: str, value: object, names: Mapping[str, list[str]]) -> Any:
    if name in names:
        if value not in names[name]:
            raise ValueError(f"expected one of {', '.join(names[name]) or 'none, the plan has none'}, got {value!r}")
        return value
    if name in _FIELDS:
        return parse_duration(value)
    if name == "kind":
        if value not in KINDS:
            raise ValueError(f"expected one of {', '.join(KINDS)}, got {value!r}")
        return value
    if name == "lanes":
        if not isinstance(value, list) or not all(isinstance(lane, int) and lane >= 0 for lane in value):
            raise ValueError(f"expected a list of lane numbers, got {value!r}")
        return tuple(value)
    low, high = (0, 1) if name == "probability" else (1, 1000)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:
        raise ValueError(f"expected a number from {low} to {high}, got {value!r}")
    return float(value)
