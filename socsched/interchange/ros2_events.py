"""Callbacks, publications and takes in the events of ros2_tracing and CARET.

A message is followed by its source time stamp: `rmw_take` carries it, and `rmw_publish` from Jazzy on.  Before, the
stamp is that of the `dds:write` that follows on the thread where the middleware is instrumented; with CARET it is
bound to the message written (`dds_write`, `dds_bind_addr_to_stamp`) and repeated by `dispatch_subscription_callback`.
Without any of them, a take has the message of its topic that was published next to its source time stamp, whose clock
is set by the latest messages before the takes.  Within a process a message is followed by its address
(`rclcpp_intra_publish`).  A publication belongs to the callback that is open on its thread.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from socsched.interchange.ctf import Event, Gap
from socsched.limits import LONGEST_NS

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
class Recorded:
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

    def follow(self, event: Event) -> None:
        name = event.name.partition(":")[2]
        step = getattr(self, f"on_{name}", None)
        if step is not None:
            step(event, event.fields)

    def on_rcl_node_init(self, event: Event, f: Any) -> None:
        space = str(f["namespace"]).rstrip("/")
        self.nodes[event.process, f["node_handle"]] = f"{space}/{f['node_name']}"

    def on_rcl_publisher_init(self, event: Event, f: Any) -> None:
        node = self.nodes.get((event.process, f["node_handle"]), "")
        self.publishers[event.process, f["publisher_handle"]] = str(f["topic_name"]), node

    def on_rcl_subscription_init(self, event: Event, f: Any) -> None:
        node = self.nodes.get((event.process, f["node_handle"]), "")
        found = Callback(node, str(f["topic_name"]), queue=int(f.get("queue_depth", 0)))
        self.subscriptions[event.process, f["subscription_handle"]] = found
        if "rmw_subscription_handle" in f:
            self.topics[event.process, f["rmw_subscription_handle"]] = found.topic

    def on_rclcpp_subscription_init(self, event: Event, f: Any) -> None:
        known = self.subscriptions.get((event.process, f["subscription_handle"]))
        if known:
            self.subscriptions[event.process, f["subscription"]] = known

    def on_rclcpp_subscription_callback_added(self, event: Event, f: Any) -> None:
        known = self.subscriptions.get((event.process, f["subscription"]))
        if known:
            self.callbacks[event.process, f["callback"]] = known

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
        known = self.subscriptions.get((event.process, f["subscription_handle"]))
        if known:
            self.groups.setdefault((event.process, f["callback_group_addr"]), []).append(known)

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
        found = take.message or self.by_stamp.get((topic, take.stamp))
        if found is None:
            self.waiting.setdefault(topic, []).append((instance, take))
        elif found.topic == topic:
            instance.taken = found
            if take.message is None:
                self.skews.setdefault(topic, []).append(take.stamp - found.time_ns)
        if topic not in INFRASTRUCTURE and found is not None:
            self.links[(found.way or "address") if instance.taken else ""] += 1

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
        found = Publication(*publisher, time, instance)
        self.publications.append(found)
        if instance is not None:
            instance.published.append(found)
        return found

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


def follow(events: Sequence[Event], gaps: Sequence[Gap] = ()) -> Recorded:
    """Return the callbacks and messages of a trace; events of other kinds are skipped.

    `gaps`: where events were lost; executions across one are left out.  Raises KeyError, TypeError or ValueError if an
    event lacks a field it has in ros2_tracing and CARET.
    """
    follower = _Follower()
    for event in events:
        follower.follow(event)
    follower.link_by_order()
    for group in follower.exclusive:
        for callback in follower.groups.get(group, ()):
            callback.group = group
    wanted = [c for c in follower.callbacks.values() if c.topic not in INFRASTRUCTURE]
    counts: dict[str, int] = {}
    # CARET numbers the timers of a node first, then its subscriptions.
    for callback in sorted(wanted, key=lambda c: not c.period_ns):
        number = counts[callback.node] = counts.get(callback.node, -1) + 1
        callback.name = f"{callback.node or '/node'}/callback_{number}"
    publications = [p for p in follower.publications if p.topic not in INFRASTRUCTURE]
    advertised = frozenset(topic for topic, _ in follower.publishers.values())
    recorded = Recorded(wanted, publications, len(follower.unknown), follower.links, advertised)
    recorded.discarded = _sift(wanted, gaps)
    recorded.foreign = _one_clock(wanted)
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
    discarded = 0
    for callback in callbacks:
        kept = [
            instance
            for instance in callback.instances
            if not any(
                gap.end_ns > instance.start_ns and gap.cpu in cpus[instance.thread]
                for gap in ordered[: bisect_right(starts, instance.end_ns - 1)]
            )
        ]
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
