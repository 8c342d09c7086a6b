"""Callbacks, publications and takes in the events of ros2_tracing and CARET.

A message is followed by its source time stamp: `rmw_publish` and `rmw_take` carry it in newer ros2_tracing; with CARET
it is bound to the message written (`dds_write`, `dds_bind_addr_to_stamp`) and repeated by
`dispatch_subscription_callback`.  Within a process it is followed by its address (`rclcpp_intra_publish`).  A
publication belongs to the callback that is open on its thread.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from socsched.interchange.ctf import Event

INFRASTRUCTURE = ("/rosout", "/parameter_events", "/clock", "/tf_static")
"""Topics of ROS itself, whose callbacks are left out."""
_Key = tuple[int, int]


@dataclass(slots=True)
class Publication:
    """A message: topic, node, time, and the callback instance that published it, None outside of callbacks."""

    topic: str
    node: str
    time_ns: int
    instance: Instance | None


@dataclass(slots=True)
class Instance:
    """One execution of a callback on a thread; wall-clock times, preemption included."""

    callback: Callback
    start_ns: int
    end_ns: int
    thread: int
    taken: Publication | None = None
    published: list[Publication] = field(default_factory=list)


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
    """What a trace shows: callbacks in order of registration, publications, and callbacks that are neither kind."""

    callbacks: list[Callback]
    publications: list[Publication]
    others: int = 0


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
        self.taken: dict[int, Publication | None] = {}
        self.by_stamp: dict[tuple[str, int] | int, Publication] = {}
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
        taken = self.taken.pop(event.thread, None) if callback.topic else None
        if taken is not None and taken.topic != callback.topic:
            taken = None
        self.open[event.thread] = Instance(callback, event.time_ns, -1, event.thread, taken)

    def on_callback_end(self, event: Event, f: Any) -> None:
        instance = self.open.get(event.thread)
        if instance is not None and self.callbacks.get((event.process, f["callback"])) is instance.callback:
            del self.open[event.thread]
            instance.end_ns = event.time_ns
            instance.callback.instances.append(instance)

    def on_rclcpp_publish(self, event: Event, f: Any) -> None:
        if "publisher_handle" in f:
            self.pending[event.thread] = (event.process, f["publisher_handle"]), event.time_ns

    def on_rcl_publish(self, event: Event, f: Any) -> None:
        key = event.process, f["publisher_handle"]
        if self.pending.get(event.thread, ((0, 0), 0))[0] != key:
            self.pending[event.thread] = key, event.time_ns

    def on_rmw_publish(self, event: Event, f: Any) -> None:
        if f.get("timestamp"):
            self._published(event, int(f["timestamp"]))

    def on_dds_bind_addr_to_stamp(self, event: Event, f: Any) -> None:
        self._published(event, int(f["source_stamp"]))

    def _published(self, event: Event, stamp: int) -> None:
        key, time = self.pending.pop(event.thread, ((0, 0), 0))
        publisher = self.publishers.get(key)
        if publisher:
            self.by_stamp[publisher[0], stamp] = self.by_stamp[stamp] = self._publication(event, publisher, time)

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
        stamp = int(f["source_stamp"])
        topic = callback.topic if callback else ""
        self.taken[event.thread] = self.by_stamp.get((topic, stamp))

    def on_dispatch_intra_process_subscription_callback(self, event: Event, f: Any) -> None:
        self.taken[event.thread] = self.by_message.get((event.process, f["message"]))

    def on_rmw_take(self, event: Event, f: Any) -> None:
        if f.get("taken", 1):
            self.taken[event.thread] = self.by_stamp.get(int(f["source_timestamp"]))


def follow(events: Iterable[Event]) -> Recorded:
    """Return the callbacks and messages of a trace; events of other kinds are skipped.

    Raises KeyError, TypeError or ValueError if an event lacks a field it has in ros2_tracing and CARET.
    """
    follower = _Follower()
    for event in events:
        follower.follow(event)
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
    return Recorded(wanted, publications, len(follower.unknown))
