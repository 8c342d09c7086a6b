"""AMALTHEA models (.amxmi): tasks, runnables, ticks per processing unit, labels, requirements, event chains.

A task becomes a stage.  A task that triggers another process and waits for an event becomes two, `X-pre` and `X-post`,
around the process X it triggers.  Its time on a kind of unit is the sum of its runnables' ticks (upper bounds) at the
unit's frequency, plus its label accesses: lines of a cache at the unit's latency, or bytes at its data rate.  Runnables
that only move labels are copies for units with a data rate; elsewhere the labels are in place.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from socsched.descriptor.platform import Platform
from socsched.errors import UsageError
from socsched.interchange.amalthea_hardware import Hardware, Unit, amount, bound, read_hardware, reference
from socsched.interchange.pipeline_text import ImportedPipeline, duration, stage_name
from socsched.interchange.xml_file import Element, XmlFile
from socsched.planning.export.amalthea import JOIN

_HINT = "expected an AMALTHEA model (.amxmi) of APP4MC"
_SOURCE = "model"


@dataclass(slots=True)
class _Runnable:
    ticks: dict[str, tuple[float, float]] = field(default_factory=dict)
    """Definition of a processing unit ("" for any) -> upper bound and average."""
    reads: list[str] = field(default_factory=list)
    writes: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _Stage:
    name: str
    task: str
    calls: list[str] = field(default_factory=list)
    after: list[str] = field(default_factory=list)
    period_ns: float | None = None


class _Model:
    """The parts of a model that a pipeline needs, by name."""

    def __init__(self, path: Path) -> None:
        self.file = XmlFile(path, "model", _HINT)
        root = self.file.root
        if root.tag != "Amalthea":
            self.file.refuse(root, f"expected the root element Amalthea, got {root.tag}")
        self.sections = {child.tag: child for child in root.children}
        software = self.sections.get("swModel")
        if software is None:
            self.file.refuse(root, "expected a swModel")
        self.hardware: Hardware = read_hardware(self.file, self.sections.get("hwModel"))
        self.sizes = {e.get("name"): self._size(e) for e in software.all("labels")}
        self.runnables = {e.get("name"): self._runnable(e) for e in software.all("runnables")}
        self.tasks = {e.get("name"): e for kind in ("tasks", "isrs") for e in software.all(kind) if e.get("name")}
        self.periods, self.notes, self.joins = dict[str, float](), list[str](), set[str]()
        stimuli = self.sections.get("stimuliModel")
        for stimulus in stimuli.all("stimuli") if stimuli else ():
            recurrence = stimulus.first("recurrence")
            if recurrence is not None:
                self.periods[stimulus.get("name")] = amount(self.file, recurrence)
            if any(found.get("key") == JOIN for found in stimulus.all("customProperties")):
                self.joins.add(stimulus.get("name"))

    def _size(self, label: Element) -> int:
        size = label.first("size")
        return round(amount(self.file, size)) if size is not None else 0

    def _runnable(self, element: Element) -> _Runnable:
        found = _Runnable()
        for item in element.walk():
            kind = item.get("type").rpartition(":")[2]
            if kind == "LabelAccess":
                access = found.reads if item.get("access") == "read" else found.writes
                access.append(reference(item.get("data")))
            elif kind == "Ticks":
                for entry in item.all("extended"):
                    self._ticks(found, reference(entry.get("key")), entry.first("value"))
                self._ticks(found, "", item.first("default"))
        return found

    def _ticks(self, runnable: _Runnable, unit: str, value: Element | None) -> None:
        if value is not None:
            most, mean = bound(self.file, value)
            before = runnable.ticks.get(unit, (0.0, 0.0))
            runnable.ticks[unit] = (before[0] + most, before[1] + mean)

    def stages(self) -> list[_Stage]:
        """Return the stages of all tasks, those that wait for another process split at the first wait."""
        triggers: dict[str, list[str]] = {}
        found, split = list[_Stage](), dict[str, tuple[_Stage, _Stage]]()
        targets = {reference(s): name for name, task in self.tasks.items() for s in task.get("stimuli").split() if s}
        for name, task in self.tasks.items():
            items = list(_items(task))
            started = [
                targets.get(reference(i.get("stimulus")), "") for i in items if _kind(i) == "InterProcessTrigger"
            ]
            waits = [place for place, item in enumerate(items) if _kind(item) == "WaitEvent"]
            period = next(
                (self.periods[s] for s in map(reference, task.get("stimuli").split()) if s in self.periods), None
            )
            if started and started[0] and waits:
                base = stage_name(started[0])
                before, later = (
                    _Stage(f"{base}-pre", name, period_ns=period),
                    _Stage(f"{base}-post", name, after=[base]),
                )
                self._calls(before, items[: waits[0]])
                self._calls(later, items[waits[0] :])
                split[started[0]] = (before, later)
                found += [before, later]
            else:
                stage = _Stage(stage_name(name), name, period_ns=period)
                self._calls(stage, items)
                found.append(stage)
            for target in started:
                if target and target not in split:
                    joins = any(s in self.joins for s in map(reference, self.tasks[target].get("stimuli").split()))
                    triggers[target] = [*(triggers.get(target, []) if joins else []), found[-1].name]
        for stage in found:
            if stage.task in split and not stage.after:
                stage.after, stage.period_ns = [split[stage.task][0].name], None
            elif stage.task in triggers and stage.period_ns is None:
                stage.after = triggers[stage.task]
        return found

    def _calls(self, stage: _Stage, items: list[Element]) -> None:
        for item in items:
            if _kind(item) == "RunnableCall":
                name = reference(item.get("runnable"))
                if name not in self.runnables:
                    self.file.refuse(item, f"expected a runnable of the model, got {name!r}")
                stage.calls.append(name)


def _kind(item: Element) -> str:
    return item.get("type").rpartition(":")[2]


def _items(task: Element) -> Iterator[Element]:
    """Yield the calls, triggers and waits of a task in order, groups opened."""
    for part in task.children:
        if part.tag in ("activityGraph", "callGraph"):
            yield from (item for item in part.walk() if item.tag in ("items", "graphEntries", "calls"))


def import_amalthea(
    path: Path, platform: Platform | None = None, mode: str = "", engines: Mapping[str, str] | None = None
) -> ImportedPipeline:
    """Return the pipeline of a model.

    `platform`: costs are stated for its engines, which processing unit definitions match by name or kind, or by
    `engines` (definition -> engine); without it for the model's own hardware.  Raises DescriptorError for a faulty
    file, UsageError if an engine is unknown.
    """
    model = _Model(path)
    stages = [stage for stage in model.stages() if stage.period_ns is not None or stage.after]
    left = [stage.name for stage in model.stages() if stage.period_ns is None and not stage.after]
    if not stages:
        model.file.refuse(model.file.root, "expected a task with a periodic stimulus or a trigger")
    names = [stage.name for stage in stages]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        model.file.refuse(model.file.root, f"expected tasks with distinct names, {twice} is there twice")
    notes = [
        f"Imported from {path.name}. Times are upper bounds of ticks at the model's frequencies, with label accesses.",
        "The model does not state data types: fp32 is assumed. It does not state how critical a late job is: tasks "
        "with a deadline are hard.",
    ]
    if left:
        notes.append(f"Left out, since nothing states when they run: {', '.join(left)}.")
    if any(
        _kind(i) == "WaitEvent" and i.get("waitingBehaviour") == "active"
        for t in model.tasks.values()
        for i in _items(t)
    ):
        notes.append(
            "Tasks that wait actively for a result are split and suspend here: the CPU time of waiting is not charged."
        )
    places = _places(model.hardware, platform, mode, engines or {})
    if platform is not None and not mode:
        notes.append(f"The power mode of {platform.name} is assumed to be its default one.")
    chains = _deadlines(model, stages, notes) | _event_chains(model, stages, notes)
    due = {name for chain in chains.values() for name in chain["path"]}
    documents = {
        stage.name: _stage_document(model, stage, stages, places, stage.name in due, notes) for stage in stages
    }
    mapping: dict[str, Any] = {
        "schema_version": "1",
        "name": stage_name(path.stem),
        "title": f"AMALTHEA model {path.name}",
        "sources": {_SOURCE: {"title": "AMALTHEA model", "where": path.name}},
        "stages": documents,
    }
    if chains:
        mapping["chains"] = chains
    return ImportedPipeline(mapping, tuple(dict.fromkeys(notes)))


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
    model: _Model, stage: _Stage, stages: list[_Stage], places: Mapping[str, tuple[str, str, str]], due: bool,
    notes: list[str],
) -> dict[str, Any]:  # fmt: skip
    written = {label for call in stage.calls for label in model.runnables[call].writes}
    document: dict[str, Any] = {"title": f"{stage.task}: {', '.join(stage.calls)}"[:300], "source": _SOURCE}
    if stage.after:
        document["after"] = stage.after
    else:
        document["period"] = duration(stage.period_ns or 0)
    reads = _producers(model, stage, stages)
    if reads:
        document["reads"] = reads
    document |= {"precisions": ["fp32"], "share": 1, "criticality": "hard" if due else "soft"}
    document["output_bytes"] = f"{sum(model.sizes.get(label, 0) for label in written)} B"
    costs = [
        cost for name, unit in model.hardware.units.items() if (cost := _cost(model, stage, name, unit, places[name]))
    ]
    if costs:
        document["costs"] = costs
    else:
        notes.append(f"The model states no ticks for {stage.name} on any unit with a frequency.")
    return document


def _cost(model: _Model, stage: _Stage, name: str, unit: Unit, place: tuple[str, str, str]) -> dict[str, Any] | None:
    ticks = mean = moved = 0.0
    copied = False
    for call in stage.calls:
        runnable = model.runnables[call]
        labels = [*runnable.reads, *runnable.writes]
        if not runnable.ticks:
            copied = copied or bool(labels)
            if not unit.rate:
                continue
        elif name in runnable.ticks or "" in runnable.ticks:
            most, average = runnable.ticks.get(name, runnable.ticks.get("", (0.0, 0.0)))
            ticks, mean = ticks + most, mean + average
        else:
            return None
        moved += sum(model.sizes.get(label, 0) for label in labels)
    if not ticks or not unit.frequency_hz:
        return None
    access_ns, how = unit.access_ns(moved)
    note = f"{ticks:.0f} ticks at {unit.frequency_hz / 1e6:g} MHz{how}; {mean:.0f} ticks on average"
    platform, mode, engine = place
    time = {"value": duration(ticks / unit.frequency_hz * 1e9 + access_ns), "kind": "derived", "source": _SOURCE}
    cost: dict[str, Any] = {"platform": platform, "mode": mode, "engine": engine, "precision": "fp32"}
    cost |= {"units": 1} if unit.kind == "cpu" else {"scales_with": "compute"}
    return cost | {"time": time | {"note": note}}


def _producers(model: _Model, stage: _Stage, stages: list[_Stage]) -> list[str]:
    """Return the stages whose labels a stage reads, the last of an offloaded group, without its own group."""
    group = {s.name: _group(s, stages) for s in stages}
    found: dict[str, None] = {}
    for call in stage.calls:
        for label in model.runnables[call].reads:
            for other in stages:
                writes = any(label in model.runnables[c].writes for c in other.calls)
                if writes and group[other.name] != group[stage.name]:
                    last = [s.name for s in stages if group[s.name] == group[other.name] and s.name.endswith("-post")]
                    found[last[0] if last else other.name] = None
    return list(found)


def _group(stage: _Stage, stages: list[_Stage]) -> str:
    for other in stages:
        if other.name.endswith("-pre") and stage.name in (base := other.name[:-4], f"{base}-pre", f"{base}-post"):
            return base
    return stage.name


def _path(task: str, stages: list[_Stage]) -> list[str]:
    """Return the stages of a task in order, with the process between its halves."""
    own = [stage.name for stage in stages if stage.task == task]
    return [own[0], own[0][:-4], own[1]] if len(own) == 2 else own


def _deadlines(model: _Model, stages: list[_Stage], notes: list[str]) -> dict[str, Any]:
    chains: dict[str, Any] = {}
    constraints = model.sections.get("constraintsModel")
    for found in constraints.all("requirements") if constraints else ():
        limit = found.first("limit")
        value = limit.first("limitValue") if limit else None
        path = _path(reference(found.get("process")), stages)
        timed = limit is not None and limit.get("metric") == "ResponseTime" and limit.get("limitType") == "UpperLimit"
        if value is None or not timed or not path:
            notes.append(
                f"Left out: the requirement {found.get('name') or 'without a name'}, not a limit on a response time."
            )
            continue
        name = path[1] if len(path) == 3 else path[0]
        limit_ns = duration(amount(model.file, value))
        chains[f"{name}-deadline"] = {"path": path, "deadline": limit_ns, "source": _SOURCE, "criticality": "hard"}
    return chains


def _event_chains(model: _Model, stages: list[_Stage], notes: list[str]) -> dict[str, Any]:
    """Return the event chains with a latency limit; the others have no deadline and are left out with a note."""
    constraints, events = model.sections.get("constraintsModel"), model.sections.get("eventModel")
    entities = {e.get("name"): reference(e.get("entity")) for e in (events.all("events") if events else ())}
    chains: dict[str, Any] = {}
    if constraints is None:
        return chains
    limits = {
        reference(c.get("scope")): value
        for c in constraints.all("timingConstraints")
        if _kind(c) == "EventChainLatencyConstraint" and (value := c.first("maximum")) is not None
    }
    for chain in constraints.all("eventChains"):
        name = chain.get("name")
        parts = [part.first("eventChain") or part for part in chain.all("segments") or chain.all("items")] or [chain]
        hops = [reference(part.get(end)) for part in parts for end in ("stimulus", "response")]
        path: list[str] = []
        for hop in hops:
            task = entities.get(hop, "")
            task = task if task in model.tasks else next((s.task for s in stages if task in s.calls), "")
            path += [stage for stage in _path(task, stages) if stage not in path]
        if name in limits and path:
            limit = duration(amount(model.file, limits[name]))
            chains[stage_name(name)] = {"path": path, "deadline": limit, "source": _SOURCE, "criticality": "hard"}
        else:
            steps = " -> ".join(path) or "no task of the model"
            notes.append(f"The model states no latency limit for the event chain {name}: {steps}.")
    return chains
