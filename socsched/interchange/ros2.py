"""ROS 2 traces (ros2_tracing, CARET) as graphs of callbacks, as pipelines, and as results.

`after` follows messages from publication to take.  `reads` cannot be seen in a trace: CARET's architecture file states
them, by variable passings, message contexts and named paths.

Callbacks, publications and takes in the events of ros2_tracing and CARET.

A message is followed by its source time stamp: `rmw_take` carries it, and `rmw_publish` from Jazzy on.  Before, the
stamp is that of the `dds:write` that follows on the thread where the middleware is instrumented; with CARET it is bound
to the message written (`dds_write`, `dds_bind_addr_to_stamp`) and repeated by `dispatch_subscription_callback`. Without
any of them, a take has the message of its topic that was published next to its source time stamp, whose clock is set by
the latest messages before the takes (by order alone, a queue would shift every link).  Within a process a message is
followed by its address (`rclcpp_intra_publish`).  A publication belongs to the callback that is open on its thread.

Results from ROS 2 traces: the recording as a plan and a trace, which reports and `why` read like a run.

The executor's threads are the lanes of one engine.  A job is an execution of a callback, ready when the message that it
took was published, or when its timer was due.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from socsched.descriptor.distribution import nearest_rank
from socsched.descriptor.source import read as read_yaml
from socsched.errors import DescriptorError, Finding, InputError
from socsched.interchange.ctf import CtfTrace, Event, Gap, read_trace
from socsched.interchange.pipeline_text import ImportedPipeline, Names, Rate, clocks, document, duration, rate_of
from socsched.interchange.results import recorded_plan, recorded_task
from socsched.limits import LONGEST_NS
from socsched.planning.plan import Plan, PlannedSensor
from socsched.planning.task import Task
from socsched.runtime.profile import quantiles
from socsched.trace.metrics import result
from socsched.trace.trace import Job, Slice, Trace

INFRASTRUCTURE = ("/rosout", "/parameter_events", "/clock", "/tf_static")
"""Topics of ROS itself, whose callbacks are left out."""
_Key = tuple[int, int]


@dataclass(slots=True)
class Publication:
    """A message: topic, node, time, and the callback instance that published it, None outside of callbacks.

    `way`: how its source time stamp is known: "stamp" or "dds:write", empty if it is not.
    """

    topic: str
    node: str
    time_ns: int
    instance: Instance | None
    way: str = ""


@dataclass(frozen=True, slots=True)
class _Take:
    """A message taken: the topic if known, its source time stamp (0: none), the time of the take, or the message."""

    topic: str
    stamp: int
    time_ns: int
    message: Publication | None = None


@dataclass(slots=True)
class Instance:
    """One execution of a callback on a thread; wall-clock times, preemption included."""

    callback: Callback
    start_ns: int
    end_ns: int
    thread: int
    taken: Publication | None = None
    published: list[Publication] = field(default_factory=list)
    cpus: tuple[int, int] = (0, 0)
    """Processors of its start and its end."""


@dataclass(slots=True)
class Callback:
    """A timer (with `period_ns`) or a subscription (with `topic`) of a node, in the order of registration.

    `queue`: depth of the subscription's history, 0 if not recorded; `group`: its callback group if that is mutually
    exclusive, else empty.
    """

    node: str
    topic: str = ""
    period_ns: int = 0
    name: str = ""
    queue: int = 0
    group: _Key | tuple[()] = ()
    instances: list[Instance] = field(default_factory=list)


@dataclass(slots=True)
class RecordedEvents:
    """What a trace shows: callbacks in order of registration, publications, and callbacks that are neither kind.

    `links`: takes of callbacks by how they were linked ("stamp", "dds:write", "order", "" if not); `advertised`: topics
    with a publisher; `discarded`: executions left out because events were lost, `foreign`: those on another clock.
    """

    callbacks: list[Callback]
    publications: list[Publication]
    others: int = 0
    links: Counter[str] = field(default_factory=Counter)
    advertised: frozenset[str] = frozenset()
    discarded: int = 0
    foreign: int = 0


class _Follower:
    """The state while events are read; handles are unique within a process only."""

    def __init__(self) -> None:
        self.nodes: dict[_Key, str] = {}
        self.publishers: dict[_Key, tuple[str, str]] = {}
        self.subscriptions: dict[_Key, Callback] = {}
        """Handle or address of a subscription -> its callback."""
        self.timers: dict[_Key, int] = {}
        self.timer_callbacks: dict[_Key, _Key] = {}
        self.groups: dict[_Key, list[Callback]] = {}
        self.exclusive: set[_Key] = set()
        self.callbacks: dict[_Key, Callback] = {}
        self.open: dict[int, Instance] = {}
        self.pending: dict[int, tuple[_Key, int]] = {}
        """Thread -> publisher and time of the outermost publish call that is not yet bound to a message."""
        self.unbound: dict[int, Publication] = {}
        """Thread -> the message it published last, whose source time stamp is not yet known."""
        self.taken: dict[int, _Take] = {}
        self.by_stamp: dict[tuple[str, int], Publication] = {}
        self.by_topic: dict[str, list[Publication]] = {}
        self.topics: dict[_Key, str] = {}
        """Handle of a subscription in the middleware -> topic."""
        self.waiting: dict[str, list[tuple[Instance, _Take]]] = {}
        """Topic -> executions whose message is not known yet."""
        self.skews: dict[str, list[int]] = {}
        """Topic -> source time stamps of messages less the times at which they were published."""
        self.links: Counter[str] = Counter()
        self.by_message: dict[_Key, Publication] = {}
        self.publications: list[Publication] = []
        self.unknown: set[_Key] = set()

    def on_rcl_node_init(self, event: Event, f: Any) -> None:
        space = str(f["namespace"]).rstrip("/")
        self.nodes[event.process, f["node_handle"]] = f"{space}/{f['node_name']}"

    def on_rcl_publisher_init(self, event: Event, f: Any) -> None:
        node = self.nodes.get((event.process, f["node_handle"]), "")
        self.publishers[event.process, f["publisher_handle"]] = str(f["topic_name"]), node

    def on_rcl_subscription_init(self, event: Event, f: Any) -> None:
        node = self.nodes.get((event.process, f["node_handle"]), "")
        callback = Callback(node, str(f["topic_name"]), queue=int(f.get("queue_depth", 0)))
        self.subscriptions[event.process, f["subscription_handle"]] = callback
        if "rmw_subscription_handle" in f:
            self.topics[event.process, f["rmw_subscription_handle"]] = callback.topic

    def on_rclcpp_subscription_init(self, event: Event, f: Any) -> None:
        callback = self.subscriptions.get((event.process, f["subscription_handle"]))
        if callback:
            self.subscriptions[event.process, f["subscription"]] = callback

    def on_rclcpp_subscription_callback_added(self, event: Event, f: Any) -> None:
        callback = self.subscriptions.get((event.process, f["subscription"]))
        if callback:
            self.callbacks[event.process, f["callback"]] = callback

    def on_rcl_timer_init(self, event: Event, f: Any) -> None:
        self.timers[event.process, f["timer_handle"]] = int(f["period"])

    def on_rclcpp_timer_callback_added(self, event: Event, f: Any) -> None:
        period = self.timers.get((event.process, f["timer_handle"]), 0)
        if period > 0:
            callback = event.process, f["callback"]
            self.callbacks[callback] = Callback("", "", period)
            self.timer_callbacks[event.process, f["timer_handle"]] = callback

    def on_rclcpp_timer_link_node(self, event: Event, f: Any) -> None:
        callback = self.timer_callbacks.get((event.process, f["timer_handle"]))
        if callback:
            self.callbacks[callback].node = self.nodes.get((event.process, f["node_handle"]), "")

    def on_callback_group_add_subscription(self, event: Event, f: Any) -> None:
        callback = self.subscriptions.get((event.process, f["subscription_handle"]))
        if callback:
            self.groups.setdefault((event.process, f["callback_group_addr"]), []).append(callback)

    def on_callback_group_add_timer(self, event: Event, f: Any) -> None:
        callback = self.timer_callbacks.get((event.process, f["timer_handle"]))
        if callback:
            self.groups.setdefault((event.process, f["callback_group_addr"]), []).append(self.callbacks[callback])

    def on_add_callback_group(self, event: Event, f: Any) -> None:
        if f["group_type_name"] == "mutually_exclusive":
            self.exclusive.add((event.process, f["callback_group_addr"]))

    def on_callback_start(self, event: Event, f: Any) -> None:
        callback = self.callbacks.get((event.process, f["callback"]))
        if callback is None:
            self.unknown.add((event.process, f["callback"]))
            return
        instance = Instance(callback, event.time_ns, -1, event.thread, cpus=(event.cpu, event.cpu))
        self.open[event.thread] = instance
        take = self.taken.pop(event.thread, None)
        if take and take.topic in ("", callback.topic) and callback.topic:
            self._link(instance, take)

    def _link(self, instance: Instance, take: _Take) -> None:
        """Set the message that an instance took, if its address or its source time stamp says which one."""
        topic = instance.callback.topic
        message = take.message or self.by_stamp.get((topic, take.stamp))
        if message is None:
            self.waiting.setdefault(topic, []).append((instance, take))
        elif message.topic == topic:
            instance.taken = message
            if take.message is None:
                self.skews.setdefault(topic, []).append(take.stamp - message.time_ns)
        if topic not in INFRASTRUCTURE and message is not None:
            self.links[(message.way or "address") if instance.taken else ""] += 1

    def link_by_order(self) -> None:
        """Link what is left to messages without a stamp of their own: the latest before the source time stamp.

        That may be of another clock: its distance is the median of those to the messages that are linked already, or
        without any to the latest message before each take.
        """
        for topic, takes in self.waiting.items():
            messages = [message for message in self.by_topic.get(topic, ()) if not message.way]
            times = [message.time_ns for message in messages]
            before = [bisect_right(times, take.time_ns) for _, take in takes]
            skews = self.skews.get(topic) or [
                take.stamp - times[place - 1] for (_, take), place in zip(takes, before, strict=True) if place
            ]
            skew = sorted(skews)[len(skews) // 2] if skews else 0
            spacing = sorted(b - a for a, b in pairwise(times)) or [0]
            for (instance, take), limit in zip(takes, before, strict=True):
                if take.stamp and limit:
                    at = take.stamp - skew
                    place = bisect_right(times, at, hi=limit)
                    near = [n for n in (place - 1, place) if 0 <= n < limit]
                    chosen = min(near, key=lambda n: abs(times[n] - at))
                    if abs(times[chosen] - at) <= max(spacing[len(spacing) // 2] // 2, 10**6):
                        instance.taken = messages[chosen]
                elif limit:
                    instance.taken = messages[limit - 1]
                if topic not in INFRASTRUCTURE:
                    self.links["order" if instance.taken else ""] += 1

    def on_callback_end(self, event: Event, f: Any) -> None:
        instance = self.open.get(event.thread)
        if instance is not None and self.callbacks.get((event.process, f["callback"])) is instance.callback:
            del self.open[event.thread]
            instance.end_ns, instance.cpus = event.time_ns, (instance.cpus[0], event.cpu)
            instance.callback.instances.append(instance)

    def on_rclcpp_publish(self, event: Event, f: Any) -> None:
        if "publisher_handle" in f:
            self.pending[event.thread] = (event.process, f["publisher_handle"]), event.time_ns

    def on_rcl_publish(self, event: Event, f: Any) -> None:
        key = event.process, f["publisher_handle"]
        if self.pending.get(event.thread, ((0, 0), 0))[0] != key:
            self.pending[event.thread] = key, event.time_ns

    def on_rmw_publish(self, event: Event, f: Any) -> None:
        self._published(event, int(f.get("timestamp", 0)), "stamp")

    def on_write(self, event: Event, f: Any) -> None:
        """Take in `dds:write` of an instrumented middleware; services and discovery write, too."""
        if f.get("timestamp"):
            self._published(event, int(f["timestamp"]), "dds:write")

    def on_dds_bind_addr_to_stamp(self, event: Event, f: Any) -> None:
        self._published(event, int(f["source_stamp"]), "stamp")

    def _published(self, event: Event, stamp: int, way: str) -> None:
        """Take in that the message in publication was handed on, with its source time stamp or (0) without."""
        key, time = self.pending.pop(event.thread, ((0, 0), 0))
        publisher, message = self.publishers.get(key), self.unbound.pop(event.thread, None)
        if publisher:
            message = self._publication(event, publisher, time)
            self.by_topic.setdefault(message.topic, []).append(message)
        if message and stamp:
            message.way = way
            self.by_stamp[message.topic, stamp] = message
        elif message:
            self.unbound[event.thread] = message

    def _publication(self, event: Event, publisher: tuple[str, str], time: int) -> Publication:
        instance = self.open.get(event.thread)
        publication = Publication(*publisher, time, instance)
        self.publications.append(publication)
        if instance is not None:
            instance.published.append(publication)
        return publication

    def on_rclcpp_intra_publish(self, event: Event, f: Any) -> None:
        publisher = self.publishers.get((event.process, f["publisher_handle"]))
        if publisher:
            self.by_message[event.process, f["message"]] = self._publication(event, publisher, event.time_ns)

    def on_dispatch_subscription_callback(self, event: Event, f: Any) -> None:
        callback = self.callbacks.get((event.process, f["callback"]))
        topic = callback.topic if callback else ""
        self.taken[event.thread] = _Take(topic, int(f["source_stamp"]), event.time_ns)

    def on_dispatch_intra_process_subscription_callback(self, event: Event, f: Any) -> None:
        message = self.by_message.get((event.process, f["message"]))
        self.taken[event.thread] = _Take("", 0, event.time_ns, message)

    def on_rmw_take(self, event: Event, f: Any) -> None:
        if f.get("taken", 1):
            topic = self.topics.get((event.process, f.get("rmw_subscription_handle", 0)), "")
            self.taken[event.thread] = _Take(topic, int(f["source_timestamp"]), event.time_ns)


def follow(events: Sequence[Event], gaps: Sequence[Gap] = ()) -> RecordedEvents:
    """Return the callbacks and messages of a trace; events of other kinds are skipped.

    `gaps`: where events were lost; executions across one are left out.  Raises KeyError, TypeError or ValueError if an
    event lacks a field it has in ros2_tracing and CARET.
    """
    follower = _Follower()
    for event in events:
        if (step := getattr(follower, f"on_{event.name.partition(':')[2]}", None)) is not None:
            step(event, event.fields)
    follower.link_by_order()
    for group in follower.exclusive:
        for callback in follower.groups.get(group, ()):
            callback.group = group
    callbacks = [c for c in follower.callbacks.values() if c.topic not in INFRASTRUCTURE]
    counts: dict[str, int] = {}
    # CARET numbers the timers of a node first, then its subscriptions.
    for callback in sorted(callbacks, key=lambda c: not c.period_ns):
        number = counts[callback.node] = counts.get(callback.node, -1) + 1
        callback.name = f"{callback.node or '/node'}/callback_{number}"
    publications = [p for p in follower.publications if p.topic not in INFRASTRUCTURE]
    advertised = frozenset(topic for topic, _ in follower.publishers.values())
    recorded = RecordedEvents(callbacks, publications, len(follower.unknown), follower.links, advertised)
    recorded.discarded = _sift(callbacks, gaps)
    recorded.foreign = _one_clock(callbacks)
    return recorded


def _sift(callbacks: Sequence[Callback], gaps: Sequence[Gap]) -> int:
    """Leave out executions across a gap on a processor that their thread is ever seen on; return their number."""
    if not gaps:
        return 0
    cpus: dict[int, set[int]] = {}
    for callback in callbacks:
        for instance in callback.instances:
            cpus.setdefault(instance.thread, set()).update(instance.cpus)
    ordered = sorted(gaps, key=lambda gap: gap.begin_ns)
    starts = [gap.begin_ns for gap in ordered]

    def across(one: Instance) -> bool:
        begun = ordered[: bisect_right(starts, one.end_ns - 1)]
        return any(gap.end_ns > one.start_ns and gap.cpu in cpus[one.thread] for gap in begun)

    discarded = 0
    for callback in callbacks:
        kept = [instance for instance in callback.instances if not across(instance)]
        discarded += len(callback.instances) - len(kept)
        callback.instances = kept
    return discarded


def _one_clock(callbacks: Sequence[Callback]) -> int:
    """Leave out executions on other clocks than the one of most, over an hour away; return their number."""
    starts = sorted(instance.start_ns for callback in callbacks for instance in callback.instances)
    begins = [0, *(place for place, (a, b) in enumerate(pairwise(starts), 1) if b - a > LONGEST_NS), len(starts)]
    if len(begins) <= 2:
        return 0
    first, last = max(pairwise(begins), key=lambda pair: pair[1] - pair[0])
    low, high = starts[first], starts[last - 1]
    for callback in callbacks:
        callback.instances = [instance for instance in callback.instances if low <= instance.start_ns <= high]
    return len(starts) - (last - first)


_HINT = "record it with ros2_tracing or CARET, or give the architecture file that CARET wrote for this system"


@dataclass(slots=True)
class CallbackNode:
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
class TopicSource:
    """A topic whose publisher is not a recorded callback: the times of its messages (ns, absolute)."""

    name: str
    topic: str
    times: tuple[int, ...] = ()
    period_ns: int = 0
    jitter_ns: int = 0


@dataclass(slots=True)
class CallbackGraph:
    """Stages in the order of their data triggers, sensors, paths by name, and notes on what the trace leaves open."""

    nodes: dict[str, CallbackNode]
    sources: dict[str, TopicSource]
    paths: dict[str, tuple[str, ...]]
    notes: list[str]
    host: str = ""
    threads: tuple[int, ...] = ()
    start_ns: int = 0
    losses: tuple[str, ...] = ()
    """Those of the notes that say what of the recording was left out."""


def read_graph(folder: Path, architecture: Path | None = None) -> CallbackGraph:
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
    spans = clocks([[i.start_ns for i in callback.instances] for callback in recorded.callbacks])
    topics: dict[str, TopicSource] = {}
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
    graph = CallbackGraph(_ordered(nodes), sources, {}, notes, trace.env.get("hostname", ""))
    graph.losses = tuple(_losses(trace, recorded))
    instances = [i for node in nodes.values() for i in node.callback.instances]
    graph.threads = tuple(sorted({i.thread for i in instances}))
    _number(graph)
    begun = [node.releases[0] for node in nodes.values() if node.releases]
    graph.start_ns = min([*begun, *(s.times[0] for s in sources.values()), *(i.start_ns for i in instances)])
    if described:
        _paths(graph, described)
    return graph


def _doubts(trace: CtfTrace, recorded: RecordedEvents) -> list[str]:
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


def _losses(trace: CtfTrace, recorded: RecordedEvents) -> list[str]:
    """Return what of the recording was left out."""
    lines = list[str]()
    if trace.gaps:
        count = f"{trace.lost} events" if trace.lost else "packets of events"
        lines.append(
            f"The tracer discarded {count}: {recorded.discarded} executions of callbacks across the gaps are left out, "
            "and links of messages may be missing."
        )
    if recorded.foreign:
        lines.append(f"{recorded.foreign} executions are stamped by another clock, over an hour away: left out.")
    return lines


_WAYS = {
    "dds:write": "are linked by the time stamp of dds:write",
    "order": "are linked by order, to the latest message of the topic before",
}
"""Ways of linking messages that a reader has to know of."""


def _nodes(
    recorded: RecordedEvents, described: _Architecture | None, names: Names, notes: list[str]
) -> dict[str, CallbackNode]:
    nodes: dict[str, CallbackNode] = {}
    silent = []
    for callback in recorded.callbacks:
        callback.name = (described.name_of(callback) if described else "") or callback.name
        if not callback.instances:
            silent.append(callback.name)
            continue
        name = names.take(callback.name)
        callback.instances.sort(key=lambda i: i.start_ns)
        node = nodes[name] = CallbackNode(name, callback)
        if callback.period_ns:
            _grid(node)
    if silent:
        notes.append(f"Left out, since they never ran: {', '.join(silent)}.")
    return nodes


def _grid(node: CallbackNode) -> None:
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
    node: CallbackNode,
    nodes: Mapping[str, CallbackNode],
    names: Names,
    topics: dict[str, TopicSource],
    spans: Sequence[tuple[int, int]],
    recorded: RecordedEvents,
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
        source = topics[callback.topic] = TopicSource(
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


def _exclusive(nodes: Mapping[str, CallbackNode], notes: list[str]) -> None:
    """Note the callbacks that ROS 2 runs one at a time and a plan does not."""
    groups = defaultdict[Any, list[str]](list)
    for node in nodes.values():
        groups[node.callback.group].append(node.name)
    notes += [
        f"{' and '.join(names)} are of one mutually exclusive callback group: ROS 2 runs one at a time, plans and "
        "simulations take them as independent."
        for group, names in groups.items()
        if group and len(names) > 1
    ]


def _refuse_circles(nodes: Mapping[str, CallbackNode]) -> None:
    """Raise InputError if data triggers go round in a circle."""
    for node in nodes.values():
        passed, at = set[str](), node.name
        while at in nodes and nodes[at].after:
            if at in passed:
                raise InputError(
                    f"{node.name}: its messages go round in a circle: {' -> '.join(sorted(passed))}",
                    "a pipeline needs a timer or an outside topic that starts it",
                )
            passed.add(at)
            at = nodes[at].after


def _ordered(nodes: Mapping[str, CallbackNode]) -> dict[str, CallbackNode]:
    def depth(node: CallbackNode) -> int:
        count = 0
        while node.after in nodes:
            node, count = nodes[node.after], count + 1
        return count

    return {node.name: node for node in sorted(nodes.values(), key=depth)}


def _number(graph: CallbackGraph) -> None:
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
            message = instance.taken
            if source:
                frame = index.get(message.time_ns if message else instance.start_ns)
            else:
                right = message is not None and message.instance is not None
                right = right and message.instance.callback is graph.nodes[node.after].callback  # type: ignore[union-attr]
                frame = frame_of.get(id(message.instance)) if right else None  # type: ignore[union-attr]
            if frame is None or frame in node.frames:
                lost += 1
                continue
            node.frames[frame] = instance
            frame_of[id(instance)] = frame
    if lost:
        graph.notes.append(
            f"{lost} executions are not in the result: their message has no frame, or a frame had several."
        )


def _reads(nodes: Mapping[str, CallbackNode], described: _Architecture) -> None:
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


def _add_read(reader: CallbackNode | None, writer: CallbackNode | None) -> None:
    if reader and writer and reader is not writer and writer.name not in (*reader.reads, reader.after):
        reader.reads = (*reader.reads, writer.name)


def _paths(graph: CallbackGraph, described: _Architecture) -> None:
    """Set the paths whose neighbours are linked."""
    names = Names()
    for name, hops in described.paths:
        path: list[str] = []
        for owner, subscribed, published in hops:
            own = [node for node in graph.nodes.values() if node.callback.node == owner]
            ends = [node for node in own if subscribed and node.callback.topic == subscribed]
            starts = [
                node for node in own if any(p.topic == published for i in node.callback.instances for p in i.published)
            ]
            for node in (*ends[:1], *starts[:1]):
                if node.name not in path:
                    path.append(node.name)
        head = graph.nodes[path[0]].after if path else ""
        while head:
            path.insert(0, head)
            head = graph.nodes[head].after if head in graph.nodes else ""
        links = {node.name: (node.after, *node.reads) for node in graph.nodes.values()}
        gap = next((pair for pair in pairwise(path) if pair[0] not in links.get(pair[1], ())), None)
        if len(path) < 2 or gap:
            reason = f"no link from {gap[0]} to {gap[1]}" if gap else "the trace shows less than two of its callbacks"
            graph.notes.append(f"The path {name} is left out: {reason}.")
        else:
            graph.paths[names.take(name)] = tuple(path)


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


ENGINE = "executor"


@dataclass(frozen=True, slots=True)
class PathResponse:
    """The longest and the median response time of a path (ns)."""

    longest_ns: int
    median_ns: int


def responses(graph: CallbackGraph) -> dict[str, PathResponse]:
    """Return the recorded response times of every path that was completed, as results state them."""
    unknown = dict.fromkeys(graph.paths, PathResponse(LONGEST_NS, LONGEST_NS))
    figures = result(trace_of(graph, unknown), plan_of(graph, "recorded", unknown))["chains"]
    times = {name: figures[name]["response_time_ns"] for name in graph.paths}
    return {
        n: PathResponse(t["max"], t["p50"]) for n, t in times.items() if t["max"] is not None and t["p50"] is not None
    }


def _release(graph: CallbackGraph, name: str, frame: int) -> int:
    if name in graph.sources:
        return graph.sources[name].times[frame]
    node = graph.nodes[name]
    return node.releases[frame] if node.releases else node.frames[frame].start_ns


def _sampled(node: CallbackNode, before_ns: int) -> int | None:
    """Return the frame of the latest execution of a stage finished by a time, None if there is none."""
    done = [(i.end_ns, frame) for frame, i in node.frames.items() if i.end_ns <= before_ns]
    return max(done)[1] if done else None


def trace_of(graph: CallbackGraph, longest: Mapping[str, PathResponse]) -> Trace:
    """Return the executions of a graph as a trace; times from its earliest release, deadlines from `longest`."""
    zero, lanes = graph.start_ns, {thread: lane for lane, thread in enumerate(graph.threads)}
    due = _due(graph, longest)
    rows = []
    for node in graph.nodes.values():
        for frame, instance in node.frames.items():
            ready = instance.taken.time_ns if instance.taken else _release(graph, node.after or node.name, frame)
            release = _release(graph, _origin(graph, node), frame)
            times = (ready - zero, release - zero + due.get(node.name, node.period_ns))
            rows.append((times[0], node, frame, instance, times[1]))
    rows.sort(key=lambda row: (row[0], row[1].name))
    jobs, slices = list[Job](), list[Slice]()
    for ready, node, frame, instance, deadline in rows:
        start, end = instance.start_ns - zero, instance.end_ns - zero
        reads = {name: _sampled(graph.nodes[name], instance.start_ns) for name in node.reads}
        sampled = {name: longest for name, longest in reads.items() if longest is not None}
        slices.append(Slice(ENGINE, (lanes[instance.thread],), len(jobs), node.name, start, end))
        jobs.append(Job(node.name, frame, ready, deadline, start, end, end - start, status="done", sampled=sampled))
    releases = {node.name: [t - zero for t in node.releases] for node in graph.nodes.values() if node.releases}
    releases |= {source.name: [t - zero for t in source.times] for source in graph.sources.values()}
    slices.sort(key=lambda s: s.start_ns)
    return Trace("measured", max(s.end_ns for s in slices), 0, jobs, slices, [], releases)


def _origin(graph: CallbackGraph, node: CallbackNode) -> str:
    while node.after in graph.nodes:
        node = graph.nodes[node.after]
    return node.after or node.name


def _due(graph: CallbackGraph, longest: Mapping[str, PathResponse]) -> dict[str, int]:
    """Return the deadline of the last stage of every path."""
    return {graph.paths[name][-1]: response.longest_ns for name, response in longest.items()}


def plan_of(graph: CallbackGraph, pipeline: str, longest: Mapping[str, PathResponse]) -> Plan:
    """Return a plan that describes the recording: lanes are threads, times as recorded, no bound is proved.

    `longest`: paths with a deadline, their longest response.
    """
    due = _due(graph, longest)
    sensors = tuple(
        PlannedSensor(s.name, s.period_ns, s.times[0] - graph.start_ns, s.jitter_ns, 0) for s in graph.sources.values()
    )
    platform = "".join(c if c.isalnum() or c in "._-" else "-" for c in f"recorded-{graph.host}")
    return recorded_plan(
        platform.strip("-")[:200],
        "recorded",
        [(ENGINE, "cpu", len(graph.threads), "full")],
        (_task(graph, node, due.get(node.name, node.period_ns)) for node in graph.nodes.values()),
        ((name, graph.paths[name], response.longest_ns, response.median_ns) for name, response in longest.items()),
        pipeline=pipeline,
        sensors=sensors,
    )


def _task(graph: CallbackGraph, node: CallbackNode, deadline: int) -> Task:
    times = sorted(max(1, i.end_ns - i.start_ns) for i in node.callback.instances)
    median = times[len(times) // 2]
    return recorded_task(
        node.name,
        times,
        after=(node.after,) if node.after else (),
        reads=node.reads,
        timer=not node.after,
        period_ns=node.period_ns,
        offset_ns=node.releases[0] - graph.start_ns if node.releases else 0,
        release_jitter_ns=min(node.jitter_ns, node.period_ns) if not node.after else 0,
        engine=ENGINE,
        lanes=tuple(range(len(graph.threads))),
        width=1,
        source=" ".join(["trace of ROS 2;", *graph.losses]).rstrip(";"),
        error=round((times[-1] - median) / median, 3),
        deadline_ns=deadline,
    )


_SOURCE = "trace"
_LONGEST_QUEUE = 1000
"""Largest `queue` of a stage."""


def pipeline_of(graph: CallbackGraph, source: Path) -> ImportedPipeline:
    """Return the pipeline of a graph: times as recorded, deadlines assumed to be the longest latencies recorded."""
    host = f"recorded host {graph.host}".strip()
    sensors = {
        s.name: {"kind": "topic", "period": duration(s.period_ns), "jitter": _jitter(s), "source": _SOURCE}
        for s in graph.sources.values()
    }
    answers = responses(graph) if graph.paths else {}
    chains = {
        name: {"path": list(path), "deadline": duration(answers[name].longest_ns), "assumed": _ASSUMED}
        for name, path in graph.paths.items()
        if name in answers
    }
    what, title = "trace of ros2_tracing or CARET", f"ROS 2 trace {source.name}"
    stages = {node.name: _stage(node, host) for node in graph.nodes.values()}
    parts = {"sensors": sensors, "stages": stages, "chains": chains}
    mapping = document(source.resolve().name, title, _SOURCE, what, source.name, **parts)
    notes = [*graph.notes, *([f"Chains: {_ASSUMED}."] if graph.paths else [])]
    return ImportedPipeline(mapping, tuple(dict.fromkeys(notes)))


def _jitter(one: CallbackNode | TopicSource) -> str:
    return duration(min(one.jitter_ns, one.period_ns))


_ASSUMED = "the trace states no deadline; the longest response recorded is assumed, so that the recording meets it"


def _stage(node: CallbackNode, host: str) -> dict[str, Any]:
    callback = node.callback
    what = f"timer of {callback.node}" if callback.period_ns else f"{callback.node} on {callback.topic}"
    stage: dict[str, Any] = {"title": f"{callback.name}: {what}"[:300], "source": _SOURCE}
    if node.after:
        stage["after"] = [node.after]
    else:
        stage |= {"period": duration(node.period_ns), "jitter": _jitter(node)}
    if callback.queue > 0:  # a full history drops its oldest message
        stage |= {"queue": min(callback.queue, _LONGEST_QUEUE), "overflow": "oldest"}
    if node.reads:
        stage["reads"] = list(node.reads)
    times = sorted(max(1, i.end_ns - i.start_ns) for i in callback.instances)
    stage |= {"precisions": ["fp32"], "share": 1, "output_bytes": "0 B"}
    longest = {"value": f"{times[-1]} ns", "kind": "measured", "source": _SOURCE, "note": _note(node, times)}
    cost = {"platform": host, "mode": "as recorded", "engine": "cpu", "precision": "fp32", "units": 1, "time": longest}
    return stage | {
        "costs": [cost],
        "execution": {"samples": [f"{t} ns" for t in quantiles(times)], "source": _SOURCE},
    }


def _note(node: CallbackNode, times: list[int]) -> str:
    """Return the number of executions and their quantiles, in all and on each thread."""
    threads = defaultdict[int, list[int]](list)
    for instance in node.callback.instances:
        threads[instance.thread].append(instance.end_ns - instance.start_ns)
    rows = [
        f"longest of {len(times)}, median {duration(nearest_rank(times, 50))}, p99 {duration(nearest_rank(times, 99))}"
    ]
    for thread, found in sorted(threads.items()):
        found.sort()
        number = thread & 0xFFFFFFFF
        rows.append(
            f"thread {number}: {len(found)}, median {duration(nearest_rank(found, 50))}, longest {duration(found[-1])}"
        )
    return "; ".join(rows)
