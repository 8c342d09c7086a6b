"""ROS 2 traces (ros2_tracing, CARET) as graphs: sensors, callbacks as stages, their links, frames and paths.

`after` follows messages from publication to take.  `reads` cannot be seen in a trace: CARET's architecture file states
them, by variable passings, message contexts and named paths.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from socsched.descriptor.source import read as read_yaml
from socsched.errors import DescriptorError, Finding, InputError
from socsched.interchange.ctf import CtfTrace, read_trace
from socsched.interchange.pipeline_text import Names
from socsched.interchange.rates import Rate, clocks, rate_of
from socsched.interchange.ros2_events import Callback, Instance, Recorded, follow
from socsched.limits import LONGEST_NS

_HINT = "record it with ros2_tracing or CARET, or give the architecture file that CARET wrote for this system"


@dataclass(slots=True)
class Node:
    """A stage: its callback, links to other stages or sensors, and the frame of every instance.

    `releases`: nominal times of a timer's frames (ns, absolute); `jitter_ns`: its largest lateness after them.
    """

    name: str
    callback: Callback
    after: str = ""
    reads: tuple[str, ...] = ()
    period_ns: int = 0
    jitter_ns: int = 0
    releases: tuple[int, ...] = ()
    frames: dict[int, Instance] = field(default_factory=dict)


@dataclass(slots=True)
class Source:
    """A topic whose publisher is not a recorded callback: the times of its messages (ns, absolute)."""

    name: str
    topic: str
    times: tuple[int, ...] = ()
    period_ns: int = 0
    jitter_ns: int = 0


@dataclass(slots=True)
class Graph:
    """Stages in the order of their data triggers, sensors, paths by name, and notes on what the trace leaves open."""

    nodes: dict[str, Node]
    sources: dict[str, Source]
    paths: dict[str, tuple[str, ...]]
    notes: list[str]
    host: str = ""
    threads: tuple[int, ...] = ()
    start_ns: int = 0
    losses: tuple[str, ...] = ()
    """Those of the notes that say what of the recording was left out."""


def read_graph(folder: Path, architecture: Path | None = None) -> Graph:
    """Return the graph of a trace; InputError if no callback ran, DescriptorError for a faulty architecture file."""
    trace = read_trace(folder)
    try:
        recorded = follow(trace.events, trace.gaps)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(f"{folder}: an event lacks a field: {type(error).__name__}: {error}", _HINT) from None
    if not any(callback.instances for callback in recorded.callbacks):
        raise InputError(f"{folder}: no callback of a timer or subscription ran", _HINT)
    notes = _doubts(trace, recorded)
    described = _Architecture(architecture) if architecture else None
    names = Names()
    nodes = _nodes(recorded, described, names, notes)
    sources: dict[str, Source] = {}
    spans = clocks([[i.start_ns for i in callback.instances] for callback in recorded.callbacks])
    topics: dict[str, Source] = {}
    for node in nodes.values():
        _link(node, nodes, names, topics, spans, recorded, notes)
    sources = {source.name: source for source in topics.values()}
    if described:
        _reads(nodes, described)
    else:
        notes.append(
            "Without CARET's architecture file nothing states which callbacks read data of others: no reads, no chains."
        )
    _refuse_circles(nodes)
    _exclusive(nodes, notes)
    graph = Graph(_ordered(nodes), sources, {}, notes, trace.env.get("hostname", ""))
    graph.losses = tuple(_losses(trace, recorded))
    instances = [i for node in nodes.values() for i in node.callback.instances]
    graph.threads = tuple(sorted({i.thread for i in instances}))
    _number(graph)
    begun = [node.releases[0] for node in nodes.values() if node.releases]
    graph.start_ns = min([*begun, *(s.times[0] for s in sources.values()), *(i.start_ns for i in instances)])
    if described:
        _paths(graph, described)
    return graph


def _doubts(trace: CtfTrace, recorded: Recorded) -> list[str]:
    notes = [
        "Execution times are the wall-clock time of callbacks, preemption included: the trace has no scheduler events.",
        "A ROS 2 trace states neither deadlines nor message sizes nor data types: sizes are 0, fp32 is assumed.",
    ]
    notes += _losses(trace, recorded)
    links = recorded.links
    if ways := [(_WAYS[way], count) for way, count in links.items() if way in _WAYS]:
        shown = ", ".join(f"{count} {how}" for how, count in ways)
        notes.append(
            f"ros2_tracing before Jazzy states no time stamps of published messages: of {links.total()} messages that "
            f"callbacks took, {shown}, and {links['']} are not linked."
        )
    if recorded.others:
        notes.append(f"{recorded.others} callbacks are neither timers nor subscriptions (services, actions): left out.")
    return notes


def _losses(trace: CtfTrace, recorded: Recorded) -> list[str]:
    """Return what of the recording was left out."""
    found = list[str]()
    if trace.gaps:
        count = f"{trace.lost} events" if trace.lost else "packets of events"
        found.append(
            f"The tracer discarded {count}: {recorded.discarded} executions of callbacks across the gaps are left out, "
            "and links of messages may be missing."
        )
    if recorded.foreign:
        found.append(f"{recorded.foreign} executions are stamped by another clock, over an hour away: left out.")
    return found


_WAYS = {
    "dds:write": "are linked by the time stamp of dds:write",
    "order": "are linked by order, to the latest message of the topic before",
}
"""Ways of linking messages that a reader has to know of."""


def _nodes(recorded: Recorded, described: _Architecture | None, names: Names, notes: list[str]) -> dict[str, Node]:
    nodes: dict[str, Node] = {}
    silent = []
    for callback in recorded.callbacks:
        callback.name = (described.name_of(callback) if described else "") or callback.name
        if not callback.instances:
            silent.append(callback.name)
            continue
        name = names.take(callback.name)
        callback.instances.sort(key=lambda i: i.start_ns)
        node = nodes[name] = Node(name, callback)
        if callback.period_ns:
            _grid(node)
    if silent:
        notes.append(f"Left out, since they never ran: {', '.join(silent)}.")
    return nodes


def _grid(node: Node) -> None:
    """Set a timer's releases: the period's grid through its earliest start, and the largest lateness after it."""
    callback, index, places = node.callback, 0, [0]
    starts = [instance.start_ns for instance in callback.instances]
    for before, start in pairwise(starts):
        index += max(1, round((start - before) / callback.period_ns))
        places.append(index)
    deviations = [start - place * callback.period_ns for start, place in zip(starts, places, strict=True)]
    first = min(deviations)
    node.period_ns, node.jitter_ns = callback.period_ns, max(deviations) - first
    node.releases = tuple(first + place * callback.period_ns for place in range(index + 1))
    node.frames = dict(zip(places, callback.instances, strict=True))


def _link(
    node: Node,
    nodes: Mapping[str, Node],
    names: Names,
    topics: dict[str, Source],
    spans: Sequence[tuple[int, int]],
    recorded: Recorded,
    notes: list[str],
) -> None:
    """Set what a subscription runs after: the stage that published most of its messages, or a sensor of its topic."""
    callback = node.callback
    if callback.period_ns:
        return
    home = {id(other.callback): other.name for other in nodes.values()}
    counts = Counter(
        home.get(id(i.taken.instance.callback), "") if i.taken and i.taken.instance else "" for i in callback.instances
    )
    (first, count), *others = counts.most_common()
    if first:
        node.after = first
        if others:
            notes.append(
                f"{node.name} took {count} messages from {first} and {sum(n for _, n in others)} from elsewhere: it "
                "is taken to run after the former only."
            )
        return
    source = topics.get(callback.topic)
    if source is None:
        times = sorted({i.taken.time_ns if i.taken else i.start_ns for i in callback.instances})
        name = names.take(callback.topic)
        source = topics[callback.topic] = Source(
            name, callback.topic, tuple(times), *_rate(callback, times, spans, notes)
        )
        if not any(i.taken for i in callback.instances):
            why = f"The publisher of {callback.topic} is not in the trace"
            if callback.topic in recorded.advertised:
                why = f"No message that was taken on {callback.topic} could be linked to its publisher"
            notes.append(f"{why}: its times are those of the callback's starts.")
    node.after = source.name


def _rate(
    callback: Callback, times: Sequence[int], spans: Sequence[tuple[int, int]], notes: list[str]
) -> tuple[int, int]:
    """Return period and jitter of a topic from outside; of events without a rate, their number over the recording."""
    rate = rate_of(times, [(min(begin, times[0]), max(end, times[-1])) for begin, end in spans])
    if isinstance(rate, Rate):
        return rate.period_ns, rate.jitter_ns
    length = max(spans[0][1], times[-1]) - min(spans[0][0], times[0])
    period = min(max(1, length // len(times)) if length else 10**9, LONGEST_NS)
    notes.append(
        f"{callback.topic}: {rate.reason}; the period of its sensor is the recording's length over their number."
    )
    return period, period


def _exclusive(nodes: Mapping[str, Node], notes: list[str]) -> None:
    """Note the callbacks that ROS 2 runs one at a time and a plan does not."""
    groups: dict[Any, list[str]] = {}
    for node in nodes.values():
        if node.callback.group:
            groups.setdefault(node.callback.group, []).append(node.name)
    for names in groups.values():
        if len(names) > 1:
            notes.append(
                f"{' and '.join(names)} are of one mutually exclusive callback group: ROS 2 runs one at a time, plans "
                "and simulations take them as independent."
            )


def _refuse_circles(nodes: Mapping[str, Node]) -> None:
    """Raise InputError if data triggers go round in a circle."""
    for node in nodes.values():
        seen, at = set[str](), node.name
        while at in nodes and nodes[at].after:
            if at in seen:
                raise InputError(
                    f"{node.name}: its messages go round in a circle: {' -> '.join(sorted(seen))}",
                    "a pipeline needs a timer or an outside topic that starts it",
                )
            seen.add(at)
            at = nodes[at].after


def _ordered(nodes: Mapping[str, Node]) -> dict[str, Node]:
    def depth(node: Node) -> int:
        count = 0
        while node.after in nodes:
            node, count = nodes[node.after], count + 1
        return count

    return {node.name: node for node in sorted(nodes.values(), key=depth)}


def _number(graph: Graph) -> None:
    """Give every instance the frame of the message it took, and every stage the period of its trigger."""
    frame_of: dict[int, int] = {id(i): f for node in graph.nodes.values() for f, i in node.frames.items()}
    lost = 0
    for node in graph.nodes.values():
        if node.callback.period_ns:
            continue
        source = graph.sources.get(node.after)
        node.period_ns = source.period_ns if source else graph.nodes[node.after].period_ns
        index = {time: frame for frame, time in enumerate(source.times)} if source else {}
        for instance in node.callback.instances:
            taken = instance.taken
            if source:
                frame = index.get(taken.time_ns if taken else instance.start_ns)
            else:
                right = taken is not None and taken.instance is not None
                right = right and taken.instance.callback is graph.nodes[node.after].callback  # type: ignore[union-attr]
                frame = frame_of.get(id(taken.instance)) if right else None  # type: ignore[union-attr]
            if frame is None or frame in node.frames:
                lost += 1
                continue
            node.frames[frame] = instance
            frame_of[id(instance)] = frame
    if lost:
        graph.notes.append(
            f"{lost} executions are not in the result: their message has no frame, or a frame had several."
        )


def _reads(nodes: Mapping[str, Node], described: _Architecture) -> None:
    """Set the reads that the architecture states, within nodes."""
    by_name = {node.callback.name: node for node in nodes.values()}
    for to, origin in described.passings:
        _add_read(by_name.get(to), by_name.get(origin))
    for owner, subscribed, published in described.contexts:
        own = [node for node in nodes.values() if node.callback.node == owner]
        writers = [node for node in own if node.callback.topic == subscribed]
        readers = [n for n in own if any(p.topic == published for i in n.callback.instances for p in i.published)]
        for reader in readers:
            for writer in writers:
                _add_read(reader, writer)


def _add_read(reader: Node | None, writer: Node | None) -> None:
    if reader and writer and reader is not writer and writer.name not in (*reader.reads, reader.after):
        reader.reads = (*reader.reads, writer.name)


def _paths(graph: Graph, described: _Architecture) -> None:
    """Set the paths whose neighbours are linked."""
    names = Names()
    for name, hops in described.paths:
        found: list[str] = []
        for owner, subscribed, published in hops:
            own = [node for node in graph.nodes.values() if node.callback.node == owner]
            ends = [node for node in own if subscribed and node.callback.topic == subscribed]
            starts = [
                node for node in own if any(p.topic == published for i in node.callback.instances for p in i.published)
            ]
            for node in (*ends[:1], *starts[:1]):
                if node.name not in found:
                    found.append(node.name)
        head = graph.nodes[found[0]].after if found else ""
        while head:
            found.insert(0, head)
            head = graph.nodes[head].after if head in graph.nodes else ""
        gap = next((pair for pair in pairwise(found) if not _linked(graph, *pair)), None)
        if len(found) < 2 or gap:
            reason = f"no link from {gap[0]} to {gap[1]}" if gap else "the trace shows less than two of its callbacks"
            graph.notes.append(f"The path {name} is left out: {reason}.")
        else:
            graph.paths[names.take(name)] = tuple(found)


def _linked(graph: Graph, first: str, second: str) -> bool:
    node = graph.nodes.get(second)
    return node is not None and (node.after == first or first in node.reads)


class _Architecture:
    """What is used of CARET's architecture.yaml."""

    def __init__(self, path: Path) -> None:
        document = read_yaml(path)
        document.check()
        data = document.data if isinstance(document.data, Mapping) else {}
        nodes, paths = data.get("nodes"), data.get("named_paths") or []
        if not isinstance(nodes, list) or not isinstance(paths, list):
            raise DescriptorError([Finding(str(path), 1, 1, "file", "expected nodes and named_paths")], _HINT)
        self.callbacks: dict[tuple[str, str, int], list[str]] = {}
        self.passings: list[tuple[str, str]] = []
        self.contexts: list[tuple[str, str, str]] = []
        self.paths: list[tuple[str, list[tuple[str, str, str]]]] = []
        for node in _maps(nodes):
            owner = _text(node, "node_name")
            for callback in _maps(node.get("callbacks")):
                period = callback.get("period_ns", 0)
                key = owner, _text(callback, "topic_name"), period if isinstance(period, int) else 0
                self.callbacks.setdefault(key, []).append(_text(callback, "callback_name"))
            for passing in _maps(node.get("variable_passings")):
                self.passings.append((_text(passing, "callback_name_read"), _text(passing, "callback_name_write")))
            for context in _maps(node.get("message_contexts")):
                topics = _text(context, "subscription_topic_name"), _text(context, "publisher_topic_name")
                self.contexts.append((owner, *topics))
        for entry in _maps(paths):
            hops = [
                (_text(hop, "node_name"), _text(hop, "subscribe_topic_name"), _text(hop, "publish_topic_name"))
                for hop in _maps(entry.get("node_chain"))
            ]
            self.paths.append((_text(entry, "path_name") or "path", hops))
            self.contexts += [hop for hop in hops if hop[1] and hop[2]]

    def name_of(self, callback: Callback) -> str:
        """Return the name of a recorded callback; of several that match, in order of registration."""
        names = self.callbacks.get((callback.node, callback.topic, callback.period_ns), [])
        return names.pop(0) if names else ""


def _maps(value: Any) -> list[Mapping[str, Any]]:
    return [entry for entry in value if isinstance(entry, Mapping)] if isinstance(value, list) else []


def _text(entry: Mapping[str, Any], key: str) -> str:
    value = entry.get(key)
    return value if isinstance(value, str) and value != "UNDEFINED" else ""
