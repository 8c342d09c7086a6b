"""AMALTHEA models (.amxmi) of APP4MC as pipelines: tasks, runnables, ticks, labels, requirements, event chains.

Tried on models of versions 0.9.5 to 2.0 (`callGraph` and `activityGraph`).  A task becomes a stage, one for each task
that triggers it (an inter-process stimulus activates it once for each).  A task that triggers another process and waits
for an event becomes two, `X-pre` and `X-post`, around the process X it triggers.  The time on a kind of unit is the sum
of the ticks (upper bounds) of what the task calls, the longest entry of a switch, at the unit's frequency, plus the
accesses to labels: lines of a cache at the unit's latency, or bytes at its data rate.  Runnables that only move labels
are copies for units with a data rate; elsewhere the labels are in place.

A switch (ModeSwitch, ProbabilitySwitch, the older RunnableModeSwitch) runs one of its entries: the longest counts.
Runnables may call runnables.  References are by name; a name that several elements have is refused where it is used,
unless what they state can be taken together.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

from socsched.descriptor.platform import Platform
from socsched.errors import UsageError
from socsched.interchange.pipeline_text import ImportedPipeline, Names, document, duration, stage_name, unstated_cost
from socsched.interchange.xml_file import PLAIN_TYPE, Element, XmlFile
from socsched.limits import LONGEST_NS, MOST_BYTES
from socsched.planning.export.amalthea import JOIN
from socsched.text import one_line

_UNITS = {
    **{"ps": 1e-3, "ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9},
    **{"bit": 0.125, "kbit": 125.0, "Mbit": 125e3, "Gbit": 125e6, "Tbit": 125e9},
    **{"B": 1.0, "kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12, "KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30},
    **{"Hz": 1.0, "kHz": 1e3, "MHz": 1e6, "GHz": 1e9},
    **{"BPerSecond": 1.0, "kBPerSecond": 1e3, "MBPerSecond": 1e6, "GBPerSecond": 1e9, "TBPerSecond": 1e12},
    **{"KiBPerSecond": 2.0**10, "MiBPerSecond": 2.0**20, "GiBPerSecond": 2.0**30},
    **{"bitPerSecond": 0.125, "kbitPerSecond": 125.0, "MbitPerSecond": 125e3, "GbitPerSecond": 125e6},
}
_LARGEST = 1e18
_LINE = 64


def reference(text: str) -> str:
    """Return the name in a reference such as "SFM?type=Task"."""
    return unquote(text.partition("?")[0].replace("+", " "))


def amount(file: XmlFile, element: Element) -> float:
    """Return a quantity in ns, bytes, Hz or bytes/s; DescriptorError if it is not one."""
    factor = _UNITS.get(element.get("unit"))
    value = plain(file, element, "value")
    if not value and not element.get("unit"):
        return 0.0
    if factor is None:
        file.refuse(element, f"expected a known unit, got {element.get('unit')!r}")
    return value * factor


def plain(file: XmlFile, element: Element, name: str) -> float:
    """Return a non-negative number in an attribute; DescriptorError if it is not one."""
    try:
        value = float(element.get(name))
    except ValueError:
        value = math.nan
    if not 0 <= value <= _LARGEST:
        file.refuse(element, f"{name}: expected a number from 0 to {_LARGEST:g}, got {element.get(name)!r}")
    return value


def bound(file: XmlFile, value: Element) -> tuple[float, float]:
    """Return the upper bound and the average of a deviation (a constant, statistics, or a bounded distribution)."""
    if "value" in value.attributes:
        constant = plain(file, value, "value")
        return constant, constant
    if "upperBound" not in value.attributes:
        file.refuse(value, "expected a value or an upperBound: a time without a bound cannot be planned")
    most = plain(file, value, "upperBound")
    mean = next((name for name in ("average", "mean") if name in value.attributes), "upperBound")
    return most, plain(file, value, mean)


@dataclass(slots=True)
class Unit:
    """A kind of processing unit: engine kind, frequency, latency of a line of memory (ns), data rate (bytes/s)."""

    kind: str
    frequency_hz: float = 0.0
    latency_ns: float = 0.0
    rate: float = 0.0
    line: int = _LINE

    def linear_ns(self, ticks: float, moved: float) -> float:
        """Return the time of ticks and of bytes of labels, lines not rounded up; 0 for what is not stated."""
        access = moved / self.rate * 1e9 if self.rate else moved / self.line * self.latency_ns
        return (ticks / self.frequency_hz * 1e9 if self.frequency_hz else 0.0) + access

    def access_ns(self, moved: float) -> tuple[float, str]:
        """Return the time to access bytes of labels, and how it was computed."""
        if not moved:
            return 0.0, ""
        if self.rate:
            return moved / self.rate * 1e9, f" + {moved:.0f} B at {self.rate / 1e9:g} GB/s"
        lines = math.ceil(moved / self.line)
        return lines * self.latency_ns, f" + {lines} lines of {self.line} B x {self.latency_ns:g} ns"


@dataclass(slots=True)
class Hardware:
    """Processing units by the name of their definition, and the name of the system."""

    name: str = "hardware of the model"
    units: dict[str, Unit] = field(default_factory=dict)


def period(file: XmlFile, element: Element) -> float:
    """Return a positive time of at most an hour, the longest that pipelines take; DescriptorError if it is not one."""
    ns = amount(file, element)
    if not 1 <= ns <= LONGEST_NS:
        file.refuse(element, f"expected a time from 1 ns to 1 hour, got {element.get('value')} {element.get('unit')}")
    return ns


def read_hardware(file: XmlFile, section: Element | None) -> Hardware:
    """Return the hardware of a model; of a definition used by several units, the slowest counts."""
    hardware = Hardware()
    if section is None:
        return hardware
    domains: dict[str, Element] = {}
    for domain in section.all("domains"):
        if (value := domain.first("defaultValue")) is not None:
            if domain.get("name") in domains:
                file.refuse(domain, f"expected domains with distinct names, {domain.get('name')!r} is there twice")
            domains[domain.get("name")] = value
    definitions = section.all("definitions")
    size = next((size for one in definitions if (size := one.first("lineSize")) is not None), None)
    line = round(amount(file, size)) if size is not None else _LINE
    for definition in definitions:
        if definition.get("type").endswith("ProcessingUnitDefinition"):
            name = definition.get("name")
            if name in hardware.units:
                file.refuse(definition, f"expected processing units with distinct names, {name!r} is there twice")
            hardware.units[name] = Unit(definition.get("puType").lower() or "cpu", line=max(1, line))
    for element in section.walk():
        if element.tag == "structures" and element.get("structureType") == "System":
            hardware.name = element.get("name") or hardware.name
        if element.tag != "modules" or not element.get("type").endswith(":ProcessingUnit"):
            continue
        unit = hardware.units.get(reference(element.get("definition")))
        clock = domains.get(reference(element.get("frequencyDomain")))
        if unit is None or clock is None or not (frequency := amount(file, clock)):
            continue
        unit.frequency_hz = min(frequency, unit.frequency_hz or frequency)
        for access in element.all("accessElements"):
            cycles = [bound(file, v)[0] for k in ("readLatency", "writeLatency") if (v := access.first(k)) is not None]
            rate = access.first("dataRate")
            if cycles:
                unit.latency_ns = max(unit.latency_ns, max(cycles) / frequency * 1e9)
            if rate is not None and (given := amount(file, rate)):
                unit.rate = min(given, unit.rate or given)
    return hardware


_GRAPHS = ("activityGraph", "callGraph")
_ITEMS = ("items", "graphEntries", "calls", "runnableItems")
_ENTRIES = ("entries", "defaultEntry")
_GROUPS = ("Group", "CallSequence", "RunnableItemsGroup")
MOST_DEEP = 150
"""Calls and switches, one inside the other."""


class Load(NamedTuple):
    """What a call graph takes on a unit: ticks at most and on average, bytes of labels moved."""

    ticks: float = 0.0
    mean: float = 0.0
    moved: float = 0.0

    def __add__(self, other: tuple[object, ...]) -> Load:
        """Return both one after the other."""
        assert isinstance(other, Load)
        return Load(self.ticks + other.ticks, self.mean + other.mean, self.moved + other.moved)


@dataclass(slots=True, eq=False)
class Process:
    """A task or an interrupt: its name, its element, and the items of its call graph, groups opened."""

    name: str
    kind: str
    element: Element
    items: list[Element] = field(default_factory=list)


class Index:
    """Elements by name, as references mean them."""

    def __init__(self, file: XmlFile, what: str, elements: Iterable[Element]) -> None:
        self.file, self.what = file, what
        self.named: dict[str, list[Element]] = {}
        for element in elements:
            self.named.setdefault(element.get("name"), []).append(element)

    def one(self, name: str, at: Element) -> Element | None:
        """Return the element of a name, None if there is none; DescriptorError if there are several."""
        listed = self.named.get(name, [])
        if len(listed) > 1:
            lines = ", ".join(str(element.line) for element in listed)
            self.file.refuse(at, f"expected one {self.what}, {name!r} is the name of several (lines {lines})")
        return listed[0] if listed else None


def kind(item: Element) -> str:
    """Return the type of an element without its prefix, such as RunnableCall."""
    return item.get("type").rpartition(":")[2]


class Software:
    """Processes, runnables and labels of a model."""

    def __init__(self, file: XmlFile, section: Element) -> None:
        self.file = file
        self.sizes: dict[str, int] = {}
        for label in section.all("labels"):  # of labels with one name the largest counts
            size = label.first("size")
            many = round(amount(file, size)) if size is not None else 0
            self.sizes[label.get("name")] = max(many, self.sizes.get(label.get("name"), 0))
        self.runnables = Index(file, "runnable", section.all("runnables"))
        self.processes = [
            Process(e.get("name"), tag[:-1], e, list(_opened(_graph(e))))
            for tag in ("tasks", "isrs")
            for e in section.all(tag)
            if e.get("name")
        ]
        self._bodies: dict[int, list[Element]] = {}
        self._loads: dict[tuple[int, str], Load | None] = {}

    def named(self, text: str) -> list[Process]:
        """Return the processes that a reference names."""
        name, kind_ = reference(text), text.partition("?type=")[2].lower()
        every = [process for process in self.processes if process.name == name]
        return [process for process in every if process.kind[:-1] in kind_ or process.kind == kind_] or every

    def reached(self, items: Sequence[Element]) -> list[Element]:
        """Return every item that may run, entries of switches and called runnables opened, each once."""
        items_by_id: dict[int, Element] = {}
        pending = list(reversed(items))
        while pending:
            item = pending.pop()
            if id(item) in items_by_id:
                continue
            items_by_id[id(item)] = item
            called = self.called(item)
            inner = self.body(called) if called is not None else _all_entries(item)
            pending += reversed(inner)
        return list(items_by_id.values())

    def called(self, item: Element) -> Element | None:
        """Return the runnable that an item calls; DescriptorError if the model has none of that name."""
        if not kind(item).endswith("RunnableCall"):
            return None
        name = reference(item.get("runnable"))
        runnable = self.runnables.one(name, item)
        if runnable is None:
            self.file.refuse(item, f"expected a runnable of the model, got {name!r}")
        return runnable

    def body(self, runnable: Element) -> list[Element]:
        """Return the items of a runnable, groups opened."""
        if id(runnable) not in self._bodies:
            self._bodies[id(runnable)] = list(_opened(_graph(runnable)))
        return self._bodies[id(runnable)]

    def timed(self, items: Sequence[Element]) -> bool:
        """Return whether anything that may run states ticks for some unit."""
        return any(item.children for item in self.reached(items) if kind(item) == "Ticks")

    def load(self, items: Sequence[Element], name: str, unit: Unit, labels: bool = True, depth: int = 0) -> Load | None:
        """Return what items take on a unit, None if one of them states ticks for other units only.

        `labels`: whether accesses to labels count; those of a runnable without ticks are copies, which take time on
        units with a data rate only.
        """
        total = Load()
        for item in items:
            part = self._item(item, name, unit, labels, depth)
            if part is None:
                return None
            total += part
        return total

    def _item(self, item: Element, name: str, unit: Unit, labels: bool, depth: int) -> Load | None:
        what = kind(item)
        if what == "LabelAccess":
            return Load(moved=self.sizes.get(reference(item.get("data")), 0)) if labels else Load()
        if what == "Ticks":
            return self._ticks(item, name)
        if (called := self.called(item)) is not None:
            key = (id(called), name)
            if key not in self._loads:
                self._deeper(item, depth)
                body = self.body(called)
                own = unit.rate > 0 or any(kind(i) == "Ticks" for i in self._flat(body))
                self._loads[key] = self.load(body, name, unit, own, depth + 1)
            return self._loads[key]
        if what.endswith("Loop"):
            self.file.refuse(item, "expected no loop: the model does not state how often it runs")
        entries = _entries(item)
        return self._longest(item, entries, name, unit, labels, depth) if entries else Load()

    def _longest(
        self, item: Element, entries: list[Element], name: str, unit: Unit, labels: bool, depth: int
    ) -> Load | None:
        """Return the longest entry of a switch, its average weighted where the entries have probabilities."""
        loads: list[Load] = []
        self._deeper(item, depth)
        for entry in entries:
            load = self.load(list(_opened(_inside(entry))), name, unit, labels, depth + 1)
            if load is None:
                return None
            loads.append(load)
        # Ticks alone decide where neither frequency nor memory is known.
        longest = max(loads, key=lambda load: (unit.linear_ns(load.ticks, load.moved), load.ticks))
        if kind(item).endswith("ProbabilitySwitch"):
            shares = [plain(self.file, entry, "probability") for entry in entries]
            if sum(shares):
                mean = sum(share * load.mean for share, load in zip(shares, loads, strict=True)) / sum(shares)
                return longest._replace(mean=mean)
        return longest

    def _flat(self, items: Sequence[Element]) -> Iterator[Element]:
        """Yield items and those in entries of switches, without called runnables."""
        pending = list(items)
        while pending:
            item = pending.pop()
            yield item
            pending += _all_entries(item)

    def _ticks(self, item: Element, name: str) -> Load | None:
        stated = [e.first("value") for e in item.all("extended") if reference(e.get("key")) == name]
        values = [value for value in stated if value is not None] or item.all("default")[:1]
        if not values:
            return None if item.children else Load()
        return Load(*max(bound(self.file, value) for value in values))

    def _deeper(self, item: Element, depth: int) -> None:
        if depth >= MOST_DEEP:
            self.file.refuse(item, f"expected calls and switches at most {MOST_DEEP} deep, and no cycle of calls")


def _graph(element: Element) -> Iterator[Element]:
    """Yield the items of a process or runnable."""
    for child in element.children:
        if child.tag in _GRAPHS:
            yield from _inside(child)
        elif child.tag == "runnableItems":
            yield child


def _inside(element: Element) -> Iterator[Element]:
    return (child for child in element.children if child.tag in _ITEMS)


def _opened(items: Iterable[Element]) -> Iterator[Element]:
    """Yield items in order, groups replaced by what they hold."""
    for item in items:
        if kind(item) in _GROUPS:
            yield from _opened(_inside(item))
        else:
            yield item


def _entries(item: Element) -> list[Element]:
    return [child for child in item.children if child.tag in _ENTRIES] if kind(item).endswith("Switch") else []


def _all_entries(item: Element) -> list[Element]:
    return [inner for entry in _entries(item) for inner in _opened(_inside(entry))]


_HINT = "expected an AMALTHEA model (.amxmi) of APP4MC"
_SOURCE = "model"
_TRIGGERS = ("InterProcessTrigger", "InterProcessActivation")
_ANY = Unit("cpu", 1e9)
MOST_STAGES = 2000


@dataclass(frozen=True, slots=True)
class _Timer:
    """The activation of a task by a stimulus (ns)."""

    period_ns: float
    offset_ns: float = 0.0
    jitter_ns: float = 0.0


@dataclass(slots=True, eq=False)
class _Stage:
    """A task, or the part of it before or after a wait; `group`: the process that is waited for."""

    process: Process
    items: list[Element]
    after: list[_Stage]
    timer: _Timer | None = None
    group: Process | None = None
    name: str = ""
    reads: list[_Stage] = field(default_factory=list)


class _Model:
    """The parts of a model that a pipeline needs."""

    def __init__(self, path: Path) -> None:
        self.file = XmlFile(path, "model", _HINT)
        root = self.file.root
        if root.tag != "Amalthea":
            self.file.refuse(root, f"expected the root element Amalthea, got {root.tag}")
        self.sections = {child.tag: child for child in root.children}
        section = self.sections.get("swModel")
        if section is None:
            self.file.refuse(root, "expected a swModel")
        self.notes: dict[str, None] = {}
        self.hardware: Hardware = read_hardware(self.file, self.sections.get("hwModel"))
        self.software = Software(self.file, section)
        self.stimuli = Index(self.file, "stimulus", self.listed("stimuliModel", "stimuli"))
        self.timers = {id(e): self._activation(e) for e in self.listed("stimuliModel", "stimuli")}
        self.events = Index(self.file, "event", self.listed("eventModel", "events"))
        self.targets: dict[str, list[Process]] = {}
        for process in self.software.processes:
            for text in process.element.get("stimuli").split():
                self.targets.setdefault(reference(text), []).append(process)

    def listed(self, section: str, tag: str) -> list[Element]:
        """Return the elements of a section."""
        return self.sections[section].all(tag) if section in self.sections else []

    def note(self, text: str) -> None:
        """Add a note, once."""
        self.notes[one_line(text)] = None

    def timer(self, process: Process) -> _Timer | None:
        """Return the activation of a process by its own stimulus, None if only others trigger it, or nothing does."""
        texts = process.element.get("stimuli").split()
        stimuli = [self.stimuli.one(reference(text), process.element) for text in texts]
        timers = [timer for one in stimuli if one is not None and (timer := self.timers[id(one)]) is not None]
        if len(timers) > 1:
            self.note(f"{process.name} has {len(timers)} periodic stimuli; the one with the shortest period is taken.")
        return min(timers, key=lambda timer: timer.period_ns, default=None)

    def _activation(self, stimulus: Element) -> _Timer | None:
        recurrence, least = stimulus.first("recurrence"), stimulus.first("nextOccurrence")
        name = stimulus.get("name")
        if recurrence is not None:
            every = period(self.file, recurrence)
            listed = [e for times in stimulus.all("occurrenceTimes") for e in (times.all("timestamps") or [times])]
            times = sorted(amount(self.file, e) for e in listed)
            if len(times) > 1:
                times.append(times[0] + every)
                every = max(1.0, min(later - first for first, later in pairwise(times)))
                self.note(
                    f"{name} occurs {len(times) - 1} times a period; its shortest distance is taken as the period."
                )
            if (burst := stimulus.get("occurrenceCount")) not in ("", "0", "1"):
                count, least = plain(self.file, stimulus, "occurrenceCount"), stimulus.first("occurrenceMinDistance")
                length = stimulus.first("burstLength")
                apart = amount(self.file, least) if least is not None else 0.0
                apart = apart or (amount(self.file, length) if length is not None else every) / count
                every = max(1.0, min(every, apart))
                self.note(f"{name} occurs in bursts of {burst}; the distance within them is taken as the period.")
            offset, jitter = stimulus.first("offset"), stimulus.first("jitter")
            return _Timer(
                every,
                min(amount(self.file, offset), LONGEST_NS) if offset is not None else 0.0,
                min(self._bound(jitter, "upperBound"), LONGEST_NS) if jitter is not None else 0.0,
            )
        if least is not None:
            if (shortest := self._bound(least, "lowerBound")) >= 1:
                self.note(f"{name} is relative: its shortest distance is taken as the period.")
                return _Timer(min(shortest, LONGEST_NS))
            self.note(f"{name} states no shortest distance between its occurrences.")
        return None

    def _bound(self, deviation: Element, which: str) -> float:
        """Return a bound of a deviation of times, 0 if it has none."""
        element = deviation.first(which) or deviation.first("value")
        if element is not None:
            return amount(self.file, element)
        return amount(self.file, deviation) if "value" in deviation.attributes else 0.0

    def joins(self, process: Process) -> bool:
        """Return whether a process waits for all that trigger it, as models written by socsched state."""
        listed = [
            e for text in process.element.get("stimuli").split() for e in self.stimuli.named.get(reference(text), [])
        ]
        return any(found.get("key") == JOIN for e in listed for found in e.all("customProperties"))

    def triggered(self, items: Sequence[Element]) -> list[Process]:
        """Return the processes that items trigger, each once."""
        processes: dict[Process, None] = {}
        for item in self.software.reached(items):
            if kind(item) in _TRIGGERS:
                processes.update(dict.fromkeys(self.targets.get(reference(item.get("stimulus")), [])))
        return list(processes)


def import_amalthea(
    path: Path, platform: Platform | None = None, mode: str = "", engines: Mapping[str, str] | None = None
) -> ImportedPipeline:
    """Return the pipeline of a model.

    `platform`: costs are stated for its engines, which processing unit definitions match by name or kind, or by
    `engines` (definition -> engine); without it for the model's own hardware.  Raises DescriptorError for a faulty
    file, UsageError if an engine is unknown.
    """
    model = _Model(path)
    model.note(
        f"Imported from {path.name}. Times are upper bounds of ticks at the model's frequencies, with label accesses."
    )
    model.note(
        "The model does not state data types: fp32 is assumed. It does not state how critical a late job is: tasks "
        "with a deadline are hard."
    )
    stages = _stages(model)
    if not stages:
        model.file.refuse(model.file.root, "expected a task with a periodic stimulus or a trigger")
    if any(kind(i) == "WaitEvent" and i.get("waitingBehaviour") == "active" for s in stages for i in s.items):
        model.note(
            "Tasks that wait actively for a result are split and suspend here: the CPU time of waiting is not charged."
        )
    places = _places(model.hardware, platform, mode, engines or {})
    if platform is not None and not mode:
        model.note(f"The power mode of {platform.name} is assumed to be its default one.")
    _connect_labels(model, stages)
    names = Names()
    chains = _deadlines(model, stages, names) | _event_chains(model, stages, names)
    due = {name for chain in chains.values() for name in chain["path"]}
    documents = {stage.name: _stage_document(model, stage, places, stage.name in due) for stage in stages}
    title, where = one_line(f"AMALTHEA model {path.name}"), one_line(path.name)
    mapping = document(path.stem, title, _SOURCE, "AMALTHEA model", where, stages=documents, chains=chains)
    return ImportedPipeline(mapping, tuple(model.notes))


def _stages(model: _Model) -> list[_Stage]:
    """Return the stages of all processes that run, in the order of the file, each with a name of its own."""
    order = {process: place for place, process in enumerate(model.software.processes)}
    stages, joined = list[_Stage](), dict[Process, _Stage]()
    timers = {process: model.timer(process) for process in order}
    pending = deque[tuple[Process, list[_Stage], frozenset[Process]]](
        (process, [], frozenset()) for process, timer in timers.items() if timer
    )
    while pending:
        process, after, above = pending.popleft()
        if after and model.joins(process) and process in joined:
            joined[process].after += after
            continue
        placed, later = _placed(model, process, after, timers[process] if not after else None)
        stages += placed
        if len(stages) > MOST_STAGES:
            model.file.refuse(process.element, f"expected at most {MOST_STAGES} stages, one for each trigger of a task")
        if after and model.joins(process):
            joined[process] = placed[0]
        above |= {process}
        for stage, followers in later:
            for follower in followers:
                if timers[follower]:
                    model.note(
                        f"{follower.name} has a timer and is triggered by {process.name}: the timer alone is taken."
                    )
                elif follower in above or stage.process is follower:
                    model.note(f"{follower.name} is triggered by what it triggers itself: that trigger is left out.")
                else:
                    pending.append((follower, [stage], above | {stage.process}))
    left = [process.name for process in order if all(stage.process is not process for stage in stages)]
    if left:
        model.note(f"Left out, since nothing states when they run: {', '.join(left)}.")
    stages.sort(key=lambda stage: order[stage.process])
    _name(model, stages)
    return stages


def _placed(
    model: _Model, process: Process, after: list[_Stage], timer: _Timer | None
) -> tuple[list[_Stage], list[tuple[_Stage, list[Process]]]]:
    """Return the stages of a run of a process, and which processes each of them starts."""
    wait = next((place for place, item in enumerate(process.items) if kind(item) == "WaitEvent"), None)
    started = model.triggered(process.items if wait is None else process.items[:wait])
    if wait is None or not started:
        stage = _Stage(process, process.items, after, timer)
        return [stage], [(stage, model.triggered(process.items))]
    awaited, *others = started
    before = _Stage(process, process.items[:wait], after, timer, awaited)
    inner = _Stage(awaited, awaited.items, [before], None, awaited)
    rest = _Stage(process, process.items[wait:], [inner], None, awaited)
    others += [other for other in model.triggered(rest.items) if other not in started]
    return [before, inner, rest], [(inner, model.triggered(inner.items)), (rest, others)]


def _name(model: _Model, stages: list[_Stage]) -> None:
    names = Names()
    whole = [stage for stage in stages if stage.group is None or stage.process is stage.group]
    for stage in whole:
        stage.name = names.take(stage.process.name)
    for stage in stages:
        if stage.group is not None and stage.process is stage.group:
            (before,) = stage.after
            before.name = names.take(f"{stage.name}-pre")
            rest = next(other for other in stages if other.after == [stage] and other.process is before.process)
            rest.name = names.take(f"{stage.name}-post")
    numbered = {stage.process for stage in whole if stage.name != stage_name(stage.process.name)}
    if shared := [p.name for p in dict.fromkeys(stage.process for stage in whole) if p in numbered]:
        model.note(
            f"Several stages, numbered, stand for tasks with names alike or several triggers: {', '.join(shared)}."
        )


def _places(
    hardware: Hardware, platform: Platform | None, mode: str, engines: Mapping[str, str]
) -> dict[str, tuple[str, str, str]]:
    """Return definition -> platform, mode and engine of its costs."""
    if platform is None:
        return {name: (hardware.name, "as modelled", unit.kind) for name, unit in hardware.units.items()}
    try:
        chosen = platform.mode(mode or None).name
    except KeyError:
        known = ", ".join(found.name for found in platform.modes)
        raise UsageError(f"{platform.name} has no mode {mode!r}", f"modes: {known}") from None
    places, ids = {}, [engine.id for engine in platform.engines]
    for name, unit in hardware.units.items():
        same = [engine.id for engine in platform.engines if engine.kind == unit.kind]
        engine = engines.get(name) or next(
            (i for i in ids if i.lower() == name.lower()), same[0] if len(same) == 1 else ""
        )
        if engine not in ids:
            hint = f"add --engine {name}=ENGINE; engines: {', '.join(ids)}"
            raise UsageError(f"{platform.name}: no engine for the processing unit {name!r}", hint)
        places[name] = (platform.name, chosen, engine)
    return places


def _stage_document(
    model: _Model, stage: _Stage, places: Mapping[str, tuple[str, str, str]], due: bool
) -> dict[str, Any]:
    reached = model.software.reached(stage.items)
    calls = dict.fromkeys(reference(item.get("runnable")) for item in reached if item.get("runnable"))
    written = dict.fromkeys(_labels(reached, "write"))
    title = one_line(": ".join(part for part in (stage.process.name, ", ".join(calls)) if part))[:300]
    document: dict[str, Any] = {"title": title, "source": _SOURCE}
    if stage.timer is None:
        document["after"] = [other.name for other in stage.after]
    else:
        document["period"] = duration(stage.timer.period_ns)
        for key, value in (("offset", stage.timer.offset_ns), ("jitter", stage.timer.jitter_ns)):
            if value:
                document[key] = duration(value)
    if stage.reads:
        document["reads"] = [other.name for other in stage.reads]
    document |= {"precisions": ["fp32"], "share": 1, "criticality": "hard" if due else "soft"}
    size = sum(model.software.sizes.get(label, 0) for label in written)
    if size > MOST_BYTES:
        model.file.refuse(stage.process.element, f"expected labels of at most {MOST_BYTES} B, got {size}")
    document["output_bytes"] = f"{size} B"
    costs: dict[tuple[str, str, str], tuple[float, dict[str, Any]]] = {}
    for name, unit in model.hardware.units.items():
        cost = _cost(model, stage, name, unit, places[name])
        if cost and cost[0] > costs.get(places[name], (0.0, {}))[0]:  # of several units on one engine the slowest
            costs[places[name]] = cost
    document["costs"] = [cost for _, cost in costs.values()] or [_unknown(model, stage, reached)]
    return document


def _cost(
    model: _Model, stage: _Stage, name: str, unit: Unit, place: tuple[str, str, str]
) -> tuple[float, dict[str, Any]] | None:
    """Return the time (ns) of a stage on a unit and its cost; None if the model does not state it."""
    load = model.software.load(stage.items, name, unit)
    if load is None or not load.ticks or not unit.frequency_hz:
        return None
    access_ns, how = unit.access_ns(load.moved)
    note = f"{load.ticks:.0f} ticks at {unit.frequency_hz / 1e6:g} MHz{how}; {load.mean:.0f} ticks on average"
    platform, mode, engine = place
    time_ns = load.ticks / unit.frequency_hz * 1e9 + access_ns
    if time_ns > LONGEST_NS:
        model.file.refuse(
            stage.process.element, f"{stage.process.name}: expected at most an hour on {name}, got {time_ns / 1e9:g} s"
        )
    time = {"value": duration(time_ns), "kind": "derived", "source": _SOURCE}
    cost: dict[str, Any] = {"platform": platform, "mode": mode, "engine": engine, "precision": "fp32"}
    cost |= {"units": 1} if unit.kind == "cpu" else {"scales_with": "compute"}
    return time_ns, cost | {"time": time | {"note": note}}


def _unknown(model: _Model, stage: _Stage, reached: Sequence[Element]) -> dict[str, Any]:
    """Return a placeholder for a stage without a time, with a note that says where and what is missing."""
    if any(kind(item) == "Ticks" and item.children for item in reached):
        load = model.software.load(stage.items, "", _ANY)
        ticks = f"{load.ticks:.0f} ticks" if load else "ticks"
        clocked = any(unit.frequency_hz for unit in model.hardware.units.values())
        why = f"{ticks}, but {'for no unit of the model' if clocked else 'no frequency of a processing unit'}"
    else:
        why = "no ticks"
    where = f"{model.file.path.name}:{stage.process.element.line}"
    model.note(f"{where}: the model states {why} for {stage.process.name}: its time, 1 ns, is a placeholder.")
    cost = unstated_cost("modelled", 1)
    cost["time"]["note"] = f"a placeholder: the model states {why}; replace it"
    return cost


def _labels(reached: Sequence[Element], access: str) -> Iterator[str]:
    for item in reached:
        if kind(item) == "LabelAccess" and (item.get("access") == "read") == (access == "read"):
            yield reference(item.get("data"))


def _connect_labels(model: _Model, stages: list[_Stage]) -> None:
    """Let every stage read those that write its labels, of a group that waits the last; not its own group."""
    writers: dict[str, list[_Stage]] = {}
    reached = {stage: model.software.reached(stage.items) for stage in stages}
    last = {
        stage.after[0]: stage for stage in stages if stage.group and stage.process is not stage.group and stage.after
    }
    ends: dict[_Stage, _Stage] = {}
    for inner, rest in last.items():
        ends |= {inner: rest, rest: rest, **dict.fromkeys(inner.after, rest)}
    for stage in stages:
        for label in dict.fromkeys(_labels(reached[stage], "write")):
            writers.setdefault(label, []).append(stage)
    for stage in stages:
        sources: dict[_Stage, None] = {}
        for label in _labels(reached[stage], "read"):
            for other in writers.get(label, ()):
                end = ends.get(other, other)
                if end is not ends.get(stage, stage):
                    sources[end] = None
        stage.reads = list(sources)


def _groups(stages: Sequence[_Stage], process: Process) -> list[list[_Stage]]:
    """Return the stages of each run of a process in order, with what it waits for between its halves."""
    own = [stage for stage in stages if stage.process is process]
    halves = [stage for stage in own if stage.group is not None and stage.group is not process]
    if not halves:
        return [[stage] for stage in own]
    return [
        [*rest.after[0].after, *rest.after, rest] for rest in halves if rest.after and rest.after[0].group is rest.group
    ]


def _from_timer(path: list[_Stage]) -> list[_Stage]:
    """Return a path that begins at a timer: what triggers its first stage comes before it."""
    before: list[_Stage] = []
    first = path[0]
    while first.timer is None and first.after:
        first = first.after[0]
        before.insert(0, first)
    return [*before, *path]


def _chain(path: Sequence[_Stage], deadline_ns: float) -> dict[str, Any]:
    names = [stage.name for stage in path]
    return {"path": names, "deadline": duration(deadline_ns), "source": _SOURCE, "criticality": "hard"}


def _deadlines(model: _Model, stages: list[_Stage], names: Names) -> dict[str, Any]:
    """Return a chain for every limit on a response time, from the timer on where a task is triggered."""
    chains: dict[str, Any] = {}
    for requirement in model.listed("constraintsModel", "requirements"):
        limit = requirement.first("limit")
        value = limit.first("limitValue") if limit else None
        processes = model.software.named(requirement.get("process"))
        groups = [group for process in processes for group in _groups(stages, process)]
        title = requirement.get("name") or "without a name"
        timed = limit is not None and limit.get("metric") == "ResponseTime" and limit.get("limitType") == "UpperLimit"
        if value is None or not timed:
            model.note(f"Left out: the requirement {title}, not a limit on a response time.")
            continue
        if not groups:
            model.note(f"Left out: the requirement {title}, on a task that is left out or not there.")
            continue
        if len(processes) > 1:
            model.note(f"The requirement {title} names {len(processes)} tasks: it is taken for each of them.")
        limit_ns = period(model.file, value)
        for group in groups:
            path = _from_timer(group)
            if len(path) > len(group):
                model.note(
                    f"The requirement {title} is on a task that {group[0].after[0].process.name} triggers: its chain "
                    f"begins at the timer of {path[0].process.name}, which is stricter."
                )
            middle = group[1] if len(group) == 3 else group[0]
            chains[names.take(f"{middle.name}-deadline")] = _chain(path, limit_ns)
    return chains


def _event_chains(model: _Model, stages: list[_Stage], names: Names) -> dict[str, Any]:
    """Return the event chains with a latency limit; the others have no deadline and are left out with a note."""
    limits: dict[str, dict[str, float]] = {}
    for constraint in model.listed("constraintsModel", "timingConstraints"):
        value = constraint.first("maximum")
        if kind(constraint) == "EventChainLatencyConstraint" and value is not None:
            which = "age" if constraint.get(PLAIN_TYPE) == "Age" else "reaction"
            mine = limits.setdefault(reference(constraint.get("scope")), {})
            mine[which] = min(period(model.file, value), mine.get(which, LONGEST_NS))
    chains: dict[str, Any] = {}
    for element in model.listed("constraintsModel", "eventChains"):
        name = element.get("name")
        parts = [part.first("eventChain") or part for part in element.all("segments") or element.all("items")]
        hops = [part.get(end) for part in parts or [element] for end in ("stimulus", "response")]
        path: list[_Stage] = []
        for hop in hops:
            path += [stage for stage in _of_event(model, stages, hop, element) if stage not in path]
        whole = _linked(_from_timer(path)) if path else []
        mine = limits.get(name, {})
        if mine and whole:
            chain = _chain(whole, mine.get("reaction", mine.get("age", 0.0)))
            if "age" in mine:
                chain["max_age"] = duration(mine["age"])
            chains[names.take(name)] = chain
            continue
        steps = " -> ".join(stage.name for stage in path) or "no task of the model"
        if mine and path:
            model.note(f"Left out: the event chain {name}, whose tasks neither trigger nor read each other: {steps}.")
        else:
            model.note(f"The model states no latency limit for the event chain {name}: {steps}.")
    return chains


def _of_event(model: _Model, stages: list[_Stage], hop: str, at: Element) -> list[_Stage]:
    """Return the stages of the task, or of the first that calls the runnable, which an event is about."""
    event = model.events.one(reference(hop), at)
    if event is None:
        return []
    entity = event.get("entity")
    processes = model.software.named(entity)
    if not processes and (runnable := model.software.runnables.one(reference(entity), event)) is not None:
        calling = (
            s for s in stages if any(model.software.called(i) is runnable for i in model.software.reached(s.items))
        )
        processes = [stage.process for stage in calling][:1]
    if not processes:
        processes = model.targets.get(reference(entity), [])[:1]
    groups = [group for process in processes for group in _groups(stages, process)]
    return groups[0] if groups else []


def _linked(path: list[_Stage]) -> list[_Stage]:
    """Return a path with the stages between neighbours that are linked through others; empty if some are not linked."""
    whole = path[:1]
    for last, stage in pairwise(path):
        between = _way(last, stage)
        if between is None:
            return []
        whole += [*between, stage]
    return whole if len(set(whole)) == len(whole) else []


def _way(first: _Stage, last: _Stage) -> list[_Stage] | None:
    """Return the fewest stages between two, back from the last to what it waits for or reads; None if no way leads."""
    ahead: dict[_Stage, _Stage | None] = {last: None}
    pending = deque([last])
    while pending:
        stage = pending.popleft()
        for source in (*stage.after, *stage.reads):
            if source is first:
                way: list[_Stage] = []
                step: _Stage | None = stage
                while step is not None and step is not last:
                    way.append(step)
                    step = ahead[step]
                return way
            if source not in ahead:
                ahead[source] = stage
                pending.append(source)
    return None
