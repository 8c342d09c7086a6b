"""Small CTF 1.8 traces of ROS 2's tracepoints, written for tests: one stream, 64-bit time stamps."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HANDLE = "integer { size = 64; align = 8; signed = 0; encoding = none; base = 16; }"
EVENTS: dict[str, dict[str, str]] = {
    "ros2:rcl_node_init": {"node_handle": "Q", "rmw_handle": "Q", "node_name": "s", "namespace": "s"},
    "ros2:rcl_publisher_init": {"publisher_handle": "Q", "node_handle": "Q", "topic_name": "s"},
    "ros2:rcl_subscription_init": {"subscription_handle": "Q", "node_handle": "Q", "topic_name": "s"},
    "ros2:rclcpp_subscription_init": {"subscription_handle": "Q", "subscription": "Q"},
    "ros2:rclcpp_subscription_callback_added": {"subscription": "Q", "callback": "Q"},
    "ros2:rcl_timer_init": {"timer_handle": "Q", "period": "q"},
    "ros2:rclcpp_timer_callback_added": {"timer_handle": "Q", "callback": "Q"},
    "ros2:rclcpp_timer_link_node": {"timer_handle": "Q", "node_handle": "Q"},
    "ros2:rclcpp_publish": {"publisher_handle": "Q", "message": "Q"},
    "ros2:rmw_publish": {"message": "Q", "timestamp": "q"},
    "ros2:rmw_take": {"message": "Q", "source_timestamp": "q", "taken": "i"},
    "ros2:callback_start": {"callback": "Q", "is_intra_process": "i"},
    "ros2:callback_end": {"callback": "Q"},
}
HUMBLE = EVENTS | {
    "ros2:rcl_subscription_init": {
        "subscription_handle": "Q", "node_handle": "Q", "rmw_subscription_handle": "Q", "topic_name": "s"
    },
    "ros2:rclcpp_publish": {"message": "Q"},
    "ros2:rcl_publish": {"publisher_handle": "Q", "message": "Q"},
    "ros2:rmw_publish": {"message": "Q"},
    "dds:write": {"writer": "Q", "timestamp": "q"},
    "ros2:rmw_take": {"rmw_subscription_handle": "Q", "message": "Q", "source_timestamp": "q", "taken": "i"},
}  # fmt: skip
"""Tracepoints of Humble and Iron, with those of Cyclone DDS where it is built for tracing."""
TYPES = {
    "Q": HANDLE,
    "q": "integer { size = 64; align = 8; signed = 1; }",
    "i": "integer { size = 32; align = 8; signed = 1; }",
    "s": "string",
}
_HEAD = """/* CTF 1.8 */
typealias integer { size = 8; align = 8; signed = false; } := uint8_t;
typealias integer { size = 32; align = 8; signed = false; } := uint32_t;
typealias integer { size = 64; align = 8; signed = false; } := uint64_t;
trace { major = 1; minor = 8; byte_order = le;
  packet.header := struct { uint32_t magic; uint8_t uuid[16]; uint32_t stream_id; }; };
env { hostname = "car"; };
clock { name = monotonic; freq = 1000000000; offset = 5000; };
typealias integer { size = 64; align = 8; signed = false; map = clock.monotonic.value; } := stamp_t;
stream { id = 0;
  event.header := struct { uint32_t id; stamp_t timestamp; };
  packet.context := struct { stamp_t timestamp_begin; stamp_t timestamp_end; uint64_t content_size;
    uint64_t packet_size; uint64_t events_discarded; uint32_t cpu_id; };
  event.context := struct { integer { size = 32; align = 8; signed = 1; } _vpid;
    integer { size = 32; align = 8; signed = 1; } _vtid; };
};
"""


Row = tuple[int, int, str, Sequence[Any]]
"""Time, thread, name without provider, values."""


def write(
    folder: Path,
    rows: Sequence[Row],
    lost: int = 0,
    events: dict[str, dict[str, str]] = EVENTS,
    packets: Sequence[tuple[Sequence[Row], int]] = (),
    cpu: int = 3,
    offset: int = 5000,
    stream: str = "stream_0",
) -> Path:
    """Write events as a trace, in one packet; or in `packets`: rows, and events discarded up to its end."""
    folder.mkdir(parents=True, exist_ok=True)
    text = _HEAD.replace("offset = 5000", f"offset = {offset}")
    for number, (name, fields) in enumerate(events.items()):
        listed = " ".join(f"{TYPES[kind]} _{field};" for field, kind in fields.items())
        text += f'event {{ name = "{name}"; id = {number}; stream_id = 0; fields := struct {{ {listed} }}; }};\n'
    (folder / "metadata").write_text(text)
    whole = b"".join(_packet(mine, count, events, cpu) for mine, count in packets or [(rows, lost)])
    (folder / stream).write_bytes(whole)
    return folder


def _packet(rows: Sequence[Row], lost: int, events: dict[str, dict[str, str]], cpu: int) -> bytes:
    numbers = {name.partition(":")[2]: (number, name) for number, name in enumerate(events)}
    body = b""
    for time, thread, name, values in rows:
        number, full = numbers[name]
        body += struct.pack("<IQii", number, time, 7, thread)
        for kind, value in zip(events[full].values(), values, strict=True):
            body += value.encode() + b"\0" if kind == "s" else struct.pack(f"<{kind}", value)
    size = (24 + 44 + len(body)) * 8
    begin = rows[0][0] if rows else 0
    head = struct.pack("<I16sI", 0xC1FC1FC1, bytes(16), 0)
    return head + struct.pack("<QQQQQI", begin, 0, size, size + 64, lost, cpu) + body + bytes(8)


def chain(frames: int = 5, period: int = 100, reply: int = 2) -> list[tuple[int, int, str, list[Any]]]:
    """Return a timer on thread 1 that publishes /scan, and a subscription on thread 2 that takes it `reply` later."""
    rows: list[tuple[int, int, str, list[Any]]] = [
        (1, 1, "rcl_node_init", [10, 0, "lidar", "/"]),
        (2, 1, "rcl_node_init", [20, 0, "detector", "/perception"]),
        (3, 1, "rcl_publisher_init", [11, 10, "/scan"]),
        (4, 1, "rcl_timer_init", [12, period]),
        (5, 1, "rclcpp_timer_callback_added", [12, 13]),
        (6, 1, "rclcpp_timer_link_node", [12, 10]),
        (7, 1, "rcl_subscription_init", [21, 20, "/scan"]),
        (8, 1, "rclcpp_subscription_init", [21, 22]),
        (9, 1, "rclcpp_subscription_callback_added", [22, 23]),
    ]
    for frame in range(frames):
        start = 1000 + frame * period + (frame % 2) * 5
        rows += [
            (start, 1, "callback_start", [13, 0]),
            (start + 10, 1, "rclcpp_publish", [11, 99]),
            (start + 11, 1, "rmw_publish", [99, 777 + frame]),
            (start + 12, 1, "callback_end", [13]),
            (start + 12 + reply, 2, "rmw_take", [98, 777 + frame, 1]),
            (start + 13 + reply, 2, "callback_start", [23, 0]),
            (start + 33 + reply + frame, 2, "callback_end", [23]),
        ]
    return rows


def humble(frames: int, dds: bool, clock: int = 10**6, dropped: Sequence[int] = ()) -> list[Row]:
    """Return `chain` of a timer, a relay and a sink in tracepoints of Humble; messages stamped by another `clock`.

    `dds`: with `dds:write`, but for the frames `dropped`.
    """
    rows: list[Row] = []
    for node, name in ((10, "source"), (20, "relay"), (30, "sink")):
        rows.append((node, 1, "rcl_node_init", [node, 0, name, "/"]))
    for publisher, node, topic in ((11, 10, "/topic_a"), (21, 20, "/topic_b")):
        rows.append((40, 1, "rcl_publisher_init", [publisher, node, topic]))
    for subscription, node, topic in ((22, 20, "/topic_a"), (32, 30, "/topic_b")):
        rows += [
            (50, 1, "rcl_subscription_init", [subscription, node, subscription + 100, topic]),
            (51, 1, "rclcpp_subscription_init", [subscription, subscription + 1]),
            (52, 1, "rclcpp_subscription_callback_added", [subscription + 1, subscription + 2]),
        ]
    rows += [
        (60, 1, "rcl_timer_init", [12, 1000]),
        (61, 1, "rclcpp_timer_callback_added", [12, 13]),
        (62, 1, "rclcpp_timer_link_node", [12, 10]),
    ]

    def publish(time: int, thread: int, publisher: int, frame: int) -> list[Row]:
        stamped: list[Row] = [(time + 4, thread, "write", [9, clock + time + 3])]
        return [
            (time, thread, "rclcpp_publish", [99]),
            (time + 1, thread, "rcl_publish", [publisher, 99]),
            (time + 2, thread, "rmw_publish", [99]),
            *(stamped if dds and frame not in dropped else []),
        ]

    def take(time: int, thread: int, subscription: int, stamp: int) -> list[Row]:
        return [
            (time, thread, "rmw_take", [subscription + 100, 98, clock + stamp, 1]),
            (time + 1, thread, "callback_start", [subscription + 2, 0]),
        ]

    for frame in range(frames):
        start = 10_000 + frame * 1000
        rows += [(start, 1, "callback_start", [13, 0]), *publish(start + 10, 1, 11, frame)]
        rows += [(start + 20, 1, "callback_end", [13]), *take(start + 50, 2, 22, start + 13)]
        rows += [*publish(start + 60, 2, 21, frame), (start + 70, 2, "callback_end", [24])]
        rows += [*take(start + 100, 3, 32, start + 63), (start + 140, 3, "callback_end", [34])]
    return rows
