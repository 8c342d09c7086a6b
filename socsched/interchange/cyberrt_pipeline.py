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
from socsched.interchange.pipeline_text import ImportedPipeline, duration, stage_name, unstated_cost
from socsched.planning.export import cyberrt, textproto
from socsched.planning.export.threads import Thread
from socsched.units import parse_duration

_SOURCE = "dag"
PREFIX = "/socsched/"
MOST_FILES = 1000


@dataclass(frozen=True, slots=True)
class Component:
    """A component: `interval_ns` of a timer component (else 0), channels it reads, the first of which triggers it."""

    name: str
    interval_ns: int
    channels: tuple[str, ...]


def components(path: Path) -> list[Component]:
    """Return the components of a DAG file; DescriptorError with a position for a fault."""
    found = []
    for module in textproto.read(path, "DAG").messages("module_config"):
        for component in module.messages("components"):
            config = component.message("config")
            readers = tuple(reader.text("channel") for reader in config.messages("readers"))
            found.append(Component(config.text("name"), 0, readers))
        for component in module.messages("timer_components"):
            config = component.message("config")
            interval = config.number("interval")
            if interval < 1:
                raise config.fault("interval", "expected a whole number of milliseconds from 1 on")
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
    names = {component.name: stage_name(component.name) for component in listed}
    if not listed or len(names) < len(listed) or len(set(names.values())) < len(names):
        raise InputError(f"{source}: expected components with distinct names", "give a .dag file, or a folder of them")
    known = {channel for component in listed for channel in component.channels}
    unknown = sorted(set(channels or {}) - known)
    if unknown:
        raise UsageError(f"no component reads the channel {unknown[0]!r}", f"channels: {', '.join(sorted(known))}")
    writers, sensors = _origins(known, names, channels or {})
    threads = _placed(conf)
    stages, left = dict[str, Any](), list[str]()
    kept = _reachable(listed, names, writers, sensors)
    for component in listed:
        if component.name in kept:
            stages[names[component.name]] = _stage(component, names, writers, kept, threads)
        else:
            left.append(f"{component.name} ({component.channels[0] if component.channels else 'no reader'})")
    if not stages:
        raise InputError(
            f"{source}: nothing states how often a component runs", "name the periods of channels: --channel /c=100ms"
        )
    notes = [
        f"Imported from {source.name}. DAG files state neither execution times, deadlines nor data types: the costs "
        "of 1 ns are placeholders (measure them: profile import), fp32 is assumed.",
    ]
    if left:
        notes.append(f"Left out, since the writer of their first channel is not stated: {', '.join(left)}.")
    mapping: dict[str, Any] = {
        "schema_version": "1",
        "name": stage_name(source.stem),
        "title": f"CyberRT components of {source.name}"[:300],
        "sources": {_SOURCE: {"title": "DAG files of Apollo CyberRT", "where": source.name}},
    }
    if sensors:
        mapping["sensors"] = {
            stage_name(channel.strip("/")): {"kind": "channel", "period": text, "source": _SOURCE}
            for channel, text in sensors.items()
        }
    return ImportedPipeline({**mapping, "stages": stages}, tuple(notes))


def _origins(
    known: set[str], names: Mapping[str, str], given: Mapping[str, str]
) -> tuple[dict[str, str], dict[str, str]]:
    """Return channel -> stage or sensor that writes it, and channel -> period of those that become sensors."""
    writers, sensors = dict[str, str](), dict[str, str]()
    for channel in sorted(known):
        text = given.get(channel, "")
        own = channel.removeprefix(PREFIX) if channel.startswith(PREFIX) else ""
        if text in names or own in names:
            writers[channel] = names[text or own]
        elif text:
            try:
                sensors[channel] = duration(parse_duration(text))
            except ValueError:
                raise UsageError(
                    f"--channel {channel}: expected a component or a period, got {text!r}", "such as 100ms"
                ) from None
            writers[channel] = stage_name(channel.strip("/"))
    return writers, sensors


def _reachable(
    listed: Sequence[Component], names: Mapping[str, str], writers: Mapping[str, str], sensors: Mapping[str, str]
) -> set[str]:
    """Return the components whose activation is known: timers, and those triggered by them or by sensors."""
    running = {stage_name(channel.strip("/")) for channel in sensors}
    kept: set[str] = set()
    while True:
        more = {
            c.name
            for c in listed
            if c.name not in kept and (c.interval_ns or (c.channels and writers.get(c.channels[0]) in running))
        }
        if not more:
            return kept
        kept |= more
        running |= {names[name] for name in more}


def _placed(conf: Path | None) -> dict[str, list[Thread]]:
    found: dict[str, list[Thread]] = {}
    for thread in cyberrt.load(conf) if conf else ():
        found.setdefault(thread.task, []).append(thread)
    return found


def _stage(
    component: Component,
    names: Mapping[str, str],
    writers: Mapping[str, str],
    kept: set[str],
    threads: Mapping[str, list[Thread]],
) -> dict[str, Any]:
    mine = threads.get(component.name, [])
    title = component.name
    if mine:
        cpus = ", ".join(str(cpu) for thread in mine for cpu in thread.processors)
        title += f": priority {mine[0].priority} on CPUs {cpus}"
    document: dict[str, Any] = {"title": title[:300], "source": _SOURCE}
    running = {names[name] for name in kept} | set(writers.values())
    if component.interval_ns:
        document["period"] = duration(component.interval_ns)
    else:
        document["after"] = [writers[component.channels[0]]]
    reads = [writers[channel] for channel in component.channels[1:] if writers.get(channel) in running]
    if reads:
        document["reads"] = list(dict.fromkeys(reads))
    width = max(1, len(mine))
    costs = [unstated_cost("configured", width)]
    return document | {"precisions": ["fp32"], "share": width, "output_bytes": "0 B", "costs": costs}
