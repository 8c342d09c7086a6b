"""Pipelines from Apollo CyberRT: DAG files, and the scheduler configuration that places their components.

Format: cyber/proto/dag_conf.proto and component_conf.proto.  A timer component runs every `interval` ms.  A component
runs on every message of its first reader and takes the latest of the others.  DAG files state readers but no writers:
`channels` gives the component that writes a channel, or its period; channels named `/socsched/TASK` are of that task.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from socsched.errors import InputError, UsageError
from socsched.interchange.pipeline_text import ImportedPipeline, Names, document, duration, stage_name, unstated_cost
from socsched.limits import LONGEST_NS
from socsched.planning.export import cyberrt
from socsched.planning.export.linux import Thread
from socsched.text import one_line
from socsched.units import parse_duration

_SOURCE = "dag"
PREFIX = "/socsched/"
MOST_FILES = 1000


@dataclass(frozen=True, slots=True, eq=False)
class Component:
    """A component: `interval_ns` of a timer component (else 0), channels it reads, the first of which triggers it."""

    name: str
    interval_ns: int
    channels: tuple[str, ...]


def components(path: Path) -> list[Component]:
    """Return the components of a DAG file; DescriptorError with a position for a fault."""
    found = []
    for module in cyberrt.read_message(path, "DAG").messages("module_config"):
        for component in module.messages("components"):
            config = component.message("config")
            readers = tuple(reader.text("channel") for reader in config.messages("readers"))
            found.append(Component(config.text("name"), 0, readers))
        for component in module.messages("timer_components"):
            config = component.message("config")
            interval = config.number("interval")
            if not 1 <= interval <= LONGEST_NS // 10**6:
                raise config.fault("interval", f"expected 1 to {LONGEST_NS // 10**6} milliseconds, got {interval}")
            found.append(Component(config.text("name"), interval * 10**6, ()))
    return found


def import_cyberrt(
    source: Path, conf: Path | None = None, channels: Mapping[str, str] | None = None
) -> ImportedPipeline:
    """Return the pipeline of a DAG file or a folder of them (*.dag); DescriptorError or InputError for faulty files.

    `conf`: the scheduler configuration, whose processors and priorities become titles.  `channels`: channel -> the
    component that writes it, or a period such as "100 ms".  UsageError for a channel that no component reads.
    """
    files = sorted(source.glob("**/*.dag"))[:MOST_FILES] if source.is_dir() else [source]
    listed = [component for file in files for component in components(file)]
    if not listed:
        raise InputError(f"{source}: expected components", "give a .dag file, or a folder of them")
    known = {channel for component in listed for channel in component.channels}
    unknown = sorted(set(channels or {}) - known)
    if unknown:
        raise UsageError(f"no component reads the channel {unknown[0]!r}", f"channels: {', '.join(sorted(known))}")
    taken = Names()
    names = {component: taken.take(component.name) for component in listed}
    first = {component.name: names[component] for component in reversed(listed)}
    writers, sensors = _origins(known, first, taken, channels or {})
    threads = cyberrt.load(conf) if conf else []
    placed: dict[str, list[Thread]] = {}
    for thread in threads:
        placed.setdefault(thread.task, []).append(thread)
    kept = _reachable(listed, names, writers, {name for name, _ in sensors.values()})
    if not kept:
        raise InputError(
            f"{source}: nothing states how often a component runs", "name the periods of channels: --channel /c=100ms"
        )
    running = {names[component] for component in kept} | {name for name, _ in sensors.values()}
    stages = {names[c]: _stage(c, writers, running, placed.get(c.name, [])) for c in listed if c in kept}
    notes = [
        f"Imported from {source.name}. DAG files state neither execution times, deadlines nor data types: the costs "
        "of 1 ns are placeholders (measure them: profile import), fp32 is assumed.",
    ]
    twice = [c.name for c in dict.fromkeys(listed) if names[c] != stage_name(c.name)]
    if twice:
        notes.append(f"Components with names alike are numbered: {', '.join(dict.fromkeys(twice))}.")
    left = [f"{c.name} ({c.channels[0] if c.channels else 'no reader'})" for c in listed if c not in kept]
    if left:
        notes.append(f"Left out, since the writer of their first channel is not stated: {', '.join(left)}.")
    notes += _configured(threads, {component.name for component in listed})
    title, where = one_line(f"CyberRT components of {source.name}"), one_line(source.name)
    read = {name: {"kind": "channel", "period": text, "source": _SOURCE} for name, text in sensors.values()}
    what = "DAG files of Apollo CyberRT"
    mapping = document(source.stem, title, _SOURCE, what, where, sensors=read, stages=stages)
    return ImportedPipeline(mapping, tuple(map(one_line, notes)))


def _configured(threads: Sequence[Thread], components: set[str]) -> list[str]:
    """Return notes on the groups of a scheduler configuration, and on its tasks that are no components."""
    notes = []
    for scope in dict.fromkeys(thread.scope for thread in threads if thread.scope):
        mine = [thread for thread in threads if thread.scope == scope]
        tasks = ", ".join(f"{thread.name} {thread.priority}" for thread in mine)
        how = f"{scope}, threads of SCHED_{mine[0].policy.upper()} on CPUs {_cpus(mine[:1])}"
        notes.append(f"Scheduler configuration, {how}; priorities: {tasks}.")
    others = [thread.name for thread in threads if thread.task not in components and thread.name not in components]
    if others:
        notes.append(f"In the scheduler configuration, but no component of the DAG: {', '.join(others)}.")
    return notes


def _origins(
    known: set[str], first: Mapping[str, str], taken: Names, given: Mapping[str, str]
) -> tuple[dict[str, str], dict[str, tuple[str, str]]]:
    """Return channel -> stage or sensor that writes it, and channel -> name and period of those that become sensors."""
    writers, sensors = dict[str, str](), dict[str, tuple[str, str]]()
    for channel in sorted(known):
        text = given.get(channel, "")
        own = channel.removeprefix(PREFIX) if channel.startswith(PREFIX) else ""
        if text in first or own in first:
            writers[channel] = first[text or own]
        elif text:
            try:
                period = duration(parse_duration(text))
            except ValueError:
                raise UsageError(
                    f"--channel {channel}: expected a component or a period, got {text!r}", "such as 100ms"
                ) from None
            writers[channel] = taken.take(channel.strip("/"))
            sensors[channel] = (writers[channel], period)
    return writers, sensors


def _reachable(
    listed: Sequence[Component], names: Mapping[Component, str], writers: Mapping[str, str], running: set[str]
) -> set[Component]:
    """Return the components whose activation is known: timers, and those triggered by them or by sensors."""
    kept: set[Component] = set()
    while more := {c for c in listed if c.interval_ns or (c.channels and writers.get(c.channels[0]) in running)} - kept:
        kept |= more
        running = running | {names[component] for component in more}
    return kept


def _stage(
    component: Component, writers: Mapping[str, str], running: set[str], mine: Sequence[Thread]
) -> dict[str, Any]:
    title = component.name
    if mine:
        scope = f" in {mine[0].scope}" if mine[0].scope else ""
        title += f": priority {mine[0].priority} on CPUs {_cpus(mine)}{scope}"
    stage: dict[str, Any] = {"title": one_line(title)[:300], "source": _SOURCE}
    if component.interval_ns:
        stage["period"] = duration(component.interval_ns)
    else:
        stage["after"] = [writers[component.channels[0]]]
    if reads := [writers[channel] for channel in component.channels[1:] if writers.get(channel) in running]:
        stage["reads"] = list(dict.fromkeys(reads))
    width = max(1, len(mine))
    costs = [unstated_cost("configured", width)]
    return stage | {"precisions": ["fp32"], "share": width, "output_bytes": "0 B", "costs": costs}


def _cpus(threads: Sequence[Thread]) -> str:
    return ", ".join(str(cpu) for thread in threads for cpu in thread.processors) or "all"
